"""What depends on the device of tensors: constants, precision, memory, tiles."""

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


def empty_on(device, dtype):
    """Return an empty tensor of a dtype of NumPy on a device, by its name."""
    dtype = getattr(torch, np.dtype(dtype).name)
    try:
        # One number, since none would be made on a device that is not there.
        return torch.zeros((1, 1), dtype=dtype, device=device)[:0, :0]
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        found = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"device={device!r} cannot be used ({reason}); there are {found}."
        ) from error


def memory_limit(like):
    """Return what a fit may take on the device of `like`: half of what is free there.

    None: what the host has.
    """
    if (device := like.device).type != "cuda":
        return None
    # PyTorch keeps blocks that it has freed for later tensors.
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return (int(torch.cuda.mem_get_info(device)[0]) + kept) // 2


def tile_rows(like):
    """Return the most rows of a tile of phases: of a GPU, enough for all its units."""
    return 1024 if like.device.type == "cpu" else 8192


def tile_size(like):
    """Return the memory and the most rows of a tile of exact values.

    A GPU takes large tiles: for each it starts some ten kernels a level.
    """
    if like.device.type == "cpu":
        return 32 * 2**20, 128
    return 128 * 2**20, 2048
