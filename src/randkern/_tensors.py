"""Which arrays are PyTorch tensors, without importing PyTorch."""

from __future__ import annotations

import sys
from typing import Any


def is_tensor(array: Any) -> bool:
    """Tell whether `array` is a tensor: there is none before PyTorch is imported."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def tensor_floats() -> tuple[Any, Any]:
    """Return the dtypes of tensors that are computed on, the widest first."""
    torch = sys.modules["torch"]
    return torch.float64, torch.float32
