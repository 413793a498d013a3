"""Which primitives work on an array: NumPy's, or PyTorch's."""

from __future__ import annotations

from typing import Any

from randkern._extras import import_extra
from randkern._validation import is_tensor


def ops_of(array: Any) -> Any:
    """Return the primitives that work on arrays like this one.

    They are :class:`randkern.backend.array_ops.ArrayOps`: those of
    :mod:`randkern.backend.torch_ops` for a tensor, of
    :mod:`randkern.backend.array_ops` for everything else. Other arrays bring theirs as
    the attribute `array_ops`.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.backend.namespace import ops_of
    >>> type(ops_of(np.zeros(2))).__name__
    'NumpyOps'
    """
    if is_tensor(array):
        from randkern.backend.torch_ops import TorchOps

        return TorchOps()
    if hasattr(array, "array_ops"):
        return array.array_ops
    from randkern.backend.array_ops import NumpyOps

    return NumpyOps()


def empty_on(device: str, dtype: Any) -> Any:
    """Return an empty tensor of a dtype of NumPy on a device, by its name.

    What lies there is made with it: ``ops_of(like).asarray(X, like)``.

    Raises
    ------
    ValueError
        If there is no such device.
    ImportError
        Without PyTorch; the extra ``gpu`` brings it.
    """
    import_extra("torch", "computing on a device", "gpu")
    from randkern.backend import torch_constants

    return torch_constants.empty_on(device, dtype)
