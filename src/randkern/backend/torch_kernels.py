"""Access to the fused kernels of :mod:`.triton_kernels` if they can run."""

import os
from functools import cache


@cache
def fused_kernels():
    """Return the module of fused kernels, None if Triton is not installed."""
    try:
        from randkern.backend import triton_kernels
    except ImportError:
        return None
    return triton_kernels


def kernels_for(*tensors):
    """Return the fused kernels if they run on these tensors, else None."""
    if not tensors[0].is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        return None
    kernels = fused_kernels()
    return kernels if kernels is not None and kernels.runs_on(*tensors) else None
