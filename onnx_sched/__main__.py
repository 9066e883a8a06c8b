"""`python -m onnx_sched` is `onnx-sched`."""

from onnx_sched.cli import main

if __name__ == "__main__":
    main()
