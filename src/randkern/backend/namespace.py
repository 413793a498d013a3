"""Selects the primitives for an array: NumPy's or PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np

from randkern._extras import import_extra
from randkern._validation import is_tensor


def ops_of(array: Any) -> Any:
    """Return the primitives for arrays of this kind.

    They are a subclass of :class:`randkern.backend.array_ops.ArrayOps`: that of
    :mod:`randkern.backend.torch_ops` for tensors, of
    :mod:`randkern.backend.array_ops` for everything else. Other array types provide
    theirs as the attribute `array_ops`.
    """
    if is_tensor(array):
        from randkern.backend.torch_ops import TorchOps

        return TorchOps()
    if hasattr(array, "array_ops"):
        return array.array_ops
    from randkern.backend.array_ops import NumpyOps

    return NumpyOps()


def empty_on(device: str, dtype: Any) -> Any:
    """Return an empty tensor on a named device, with a NumPy dtype.

    It serves to move arrays there: ``ops_of(like).asarray(X, like)``.
    """
    torch = import_extra("torch", "computing on a device", "gpu")
    dtype = getattr(torch, np.dtype(dtype).name)
    try:
        # One number, since an empty tensor does not touch a missing device.
        return torch.zeros((1, 1), dtype=dtype, device=device)[:0, :0]
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        devices = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"device={device!r} cannot be used ({reason}); expected one of {devices}."
        ) from error
