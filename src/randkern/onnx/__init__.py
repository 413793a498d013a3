"""Export of fitted models to ONNX files, and converters for skl2onnx."""

from randkern.onnx.convert import export_onnx, register

__all__ = ["export_onnx", "register"]
