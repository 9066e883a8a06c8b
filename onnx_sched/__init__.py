"""Run independent, alike nodes of an ONNX model together."""

__version__ = "0.1.0"
