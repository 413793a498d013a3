"""Which primitives work on an array: NumPy's, or PyTorch's."""

from __future__ import annotations

import sys
from typing import Any

__all__ = ["is_tensor", "ops_of"]


def is_tensor(array: Any) -> bool:
    """Tell whether `array` is a PyTorch tensor (PyTorch is not imported for it)."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def ops_of(array: Any) -> Any:
    """Return the module whose primitives work on arrays like this one.

    :mod:`randkern.backend.torch_ops` for a tensor, :mod:`randkern.backend.numpy_ops`
    for everything else. Both hold the same functions.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.backend.namespace import ops_of
    >>> ops_of(np.zeros(2)).__name__
    'randkern.backend.numpy_ops'
    """
    if is_tensor(array):
        from randkern.backend import torch_ops

        return torch_ops
    from randkern.backend import numpy_ops

    return numpy_ops
