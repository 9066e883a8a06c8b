"""The command line: words in, words and exit codes out.

Only click is imported by these modules; everything else waits until a command runs, so that `--help` is
quick.
"""

from onnx_sched.cli.main import cli, main

__all__ = ["cli", "main"]
