"""What tensors keep on their device: constants, copied there once."""

import weakref

import numpy as np
import torch

__all__ = ["constant", "key"]

# owner -> (name, dtype, device) -> tensor: constants live as long as their owner.
_CONSTANTS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def key(like):
    """Return what tells tensors apart that cannot stand for each other."""
    return like.dtype, like.device


def constant(owner, name, like, make):
    """Return what `make` returns on the device of `like`, reals in its dtype.

    It is copied there once, and kept as long as `owner` lives.
    """
    kept = _CONSTANTS.setdefault(owner, {})
    tensor = kept.get((name, *key(like)))
    if tensor is None:
        values = make()
        if isinstance(values, torch.Tensor):
            return values  # not constant: it may take part in a gradient
        values = torch.as_tensor(np.ascontiguousarray(values), device=like.device)
        tensor = values.to(like.dtype) if values.is_floating_point() else values
        kept[name, *key(like)] = tensor
    return tensor
