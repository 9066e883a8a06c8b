"""The passes: normalise, the batching rules, the boundaries, and the rewrite that uses them."""
