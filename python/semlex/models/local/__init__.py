"""Models that run in this process, on torch or ONNX Runtime."""
