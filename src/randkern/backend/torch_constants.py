"""Device-dependent settings of tensors: constants, precision, memory, tiles."""

import weakref
from contextlib import nullcontext
from functools import lru_cache, wraps

import numpy as np
import torch

# owner -> (name, dtype, device) -> tensor: constants live as long as their owner.
_WIDE = {torch.float32: torch.float64, torch.complex64: torch.complex128}
_CONSTANTS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def key(like):
    """Return a key that distinguishes tensors that are not interchangeable."""
    return like.dtype, like.device


def full_precision(like):
    """Return a context in which products keep the precision of `like`.

    ``torch.autocast`` would leave phases three digits.
    """
    kind = like.device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return torch.autocast(kind, enabled=False)
    return nullcontext()


def product(X, Y):
    """Return XY with all digits of X, whatever precision products may have.

    ``torch.set_float32_matmul_precision`` allows products of three digits: of the whole
    process, so that it is not changed here, and the product is computed in float64.
    """
    wide = _WIDE.get(X.dtype)
    if wide is None or torch.get_float32_matmul_precision() == "highest":
        return X @ Y
    return (X.to(wide) @ Y.to(wide)).to(X.dtype)


def _is_traced():
    """Return whether a graph is being traced, so that new tensors hold no values."""
    return torch.compiler.is_compiling() or type(torch.empty(0)) is not torch.Tensor


def lasting(make):
    """Return what `make` returns, and whether later calls may reuse it.

    They may not if a graph is being traced (``torch.export``, ``torch.compile``).
    ``torch.inference_mode`` is left while `make` runs, so that later calls may compute
    gradients.
    """
    if _is_traced():
        return make(), False
    with torch.inference_mode(False):
        return make(), True


def cached(maxsize):
    """Return a decorator: ``functools.lru_cache`` of values that may be reused."""

    def decorate(function):
        constants = lru_cache(maxsize)(function)

        @wraps(constants)
        def call(*arguments):
            if _is_traced():
                return function(*arguments)
            with torch.inference_mode(False):
                return constants(*arguments)

        return call

    return decorate


def constant(owner, name, like, make):
    """Return what `make` returns on the device of `like`, reals in its dtype.

    It is copied there once and cached for the lifetime of `owner`.
    """
    constants = _CONSTANTS.setdefault(owner, {})
    tensor = constants.get((name, *key(like)))
    if tensor is None:
        values = make()
        if isinstance(values, torch.Tensor):
            return values  # not constant: it may be part of a gradient
        tensor, lasts = lasting(lambda: _placed(values, like))
        if lasts:
            constants[name, *key(like)] = tensor
    return tensor


def _placed(values, like):
    """Return an array on the device of `like`, reals in its dtype."""
    values = torch.as_tensor(np.ascontiguousarray(values), device=like.device)
    return values.to(like.dtype) if values.is_floating_point() else values


def memory_limit(like):
    """Return half of the memory of the device of `like`, for a fit.

    It is None for tensors of the host. What is free does not count, so that the answer
    does not depend on what else runs there.
    """
    if (device := like.device).type != "cuda":
        return None
    return int(torch.cuda.get_device_properties(device).total_memory) // 2


def tile_rows(like):
    """Return the largest number of rows of a tile of phases, enough to fill a GPU."""
    return 1024 if like.device.type == "cpu" else 8192


def tile_size(like):
    """Return the memory and largest number of rows of a tile of exact values.

    Tiles are large on a GPU, which launches some ten kernels per tile and level.
    """
    if like.device.type == "cpu":
        return 32 * 2**20, 128
    return 128 * 2**20, 2048
