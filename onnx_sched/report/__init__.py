"""What the tool tells: one report, in several forms."""
