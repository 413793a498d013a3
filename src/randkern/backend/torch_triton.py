"""Fused kernels for GPUs, in Triton.

They give what :mod:`randkern.backend.torch_hadamard`,
:mod:`randkern.backend.torch_trig` and :mod:`randkern.backend.torch_random` give, to
rounding; these take over where Triton is not installed, for sizes that do not fit, and
where a gradient is wanted.

With ``TRITON_INTERPRET=1`` in the environment Triton interprets the kernels on the
processor: slowly, for tests.
"""

import os

import torch

from randkern.backend.triton_elementary import cos_sin_features
from randkern.backend.triton_hadamard import (
    COSINES,
    MODULUS,
    PAIRS,
    PROJECT,
    hadamard_features,
    takes_block,
)
from randkern.backend.triton_product import generated_product, product_precision

__all__ = [
    "COSINES",
    "MODULUS",
    "PAIRS",
    "PROJECT",
    "cos_sin_features",
    "generated_product",
    "hadamard_features",
    "product_precision",
    "runs_on",
    "takes_block",
]

_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


def runs_on(*tensors):
    """Tell whether the kernels run on these tensors, none of which is tracked."""
    tracked = torch.is_grad_enabled() and any(each.requires_grad for each in tensors)
    on_gpu = all(each.is_cuda for each in tensors) or _INTERPRETED
    return on_gpu and not tracked and all(e.dtype == torch.float32 for e in tensors)
