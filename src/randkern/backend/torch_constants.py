"""What tensors keep: constants on their device, copied there once, and precision."""

import weakref
from contextlib import nullcontext
from functools import lru_cache, wraps

import numpy as np
import torch

# owner -> (name, dtype, device) -> tensor: constants live as long as their owner.
_CONSTANTS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def key(like):
    """Return what tells tensors apart that cannot stand for each other."""
    return like.dtype, like.device


def full_precision(like):
    """Return a context in which products keep the precision of `like`.

    ``torch.autocast`` would make phases of three digits.
    """
    kind = like.device.type
    if not torch.amp.is_autocast_available(kind):
        return nullcontext()
    if not torch.is_autocast_enabled(kind):
        return nullcontext()
    return torch.autocast(kind, enabled=False)


def _is_traced():
    """Tell whether a graph is being recorded: tensors made now hold no values."""
    if torch.compiler.is_compiling():
        return True
    return type(torch.empty(0)) is not torch.Tensor


def lasting(make):
    """Return what `make` returns, and whether later calls may use it too.

    Not what is made while a graph is recorded (``torch.export``, ``torch.compile``).
    Under ``torch.inference_mode`` it is made as outside, so that later calls may ask
    for gradients.
    """
    if _is_traced():
        return make(), False
    with torch.inference_mode(False):
        return make(), True


def cached(maxsize):
    """Return a decorator: ``functools.lru_cache`` of what may last."""

    def decorate(function):
        kept = lru_cache(maxsize)(function)

        @wraps(kept)
        def call(*arguments):
            if _is_traced():
                return function(*arguments)
            with torch.inference_mode(False):
                return kept(*arguments)

        return call

    return decorate


def constant(owner, name, like, make):
    """Return what `make` returns on the device of `like`, reals in its dtype.

    It is copied there once, and cached as long as `owner` lives.
    """
    kept = _CONSTANTS.setdefault(owner, {})
    tensor = kept.get((name, *key(like)))
    if tensor is None:
        values = make()
        if isinstance(values, torch.Tensor):
            return values  # not constant: it may take part in a gradient
        tensor, lasts = lasting(lambda: _placed(values, like))
        if lasts:
            kept[name, *key(like)] = tensor
    return tensor


def _placed(values, like):
    """Return an array on the device of `like`, reals in its dtype."""
    values = torch.as_tensor(np.ascontiguousarray(values), device=like.device)
    return values.to(like.dtype) if values.is_floating_point() else values
