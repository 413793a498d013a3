"""Mean functions of processes, as a term of their kernel."""

from __future__ import annotations

from typing import Any

from randkern._validation import Rows
from randkern.backend.namespace import ops_of
from randkern.kernels import Kernel, Linear

__all__ = ["with_mean"]

# The variance of what a mean has at rows of the smallest column, over the mean square
# of the targets; and how much more it may be at the largest.
_VAGUE = 1e4
_LARGEST_RATIO = 1e4


def with_mean(kernel: Kernel, mean: str, square: float, X: Rows) -> Kernel:
    """Return a kernel plus v h(x)·h(y), h being 1, or 1 and the columns.

    Parameters
    ----------
    kernel : Kernel
    mean : {"constant", "linear"}
    square : float
        The mean square of the targets.
    X : Rows
        Some of the rows, whose columns v depends on.
    """
    v: float = _VAGUE * (square or 1.0)
    columns: Any = []
    if mean == "linear":
        ops = ops_of(X)
        sizes = ops.to_host((ops.as_float64(ops.densified(X)) ** 2).mean(axis=0))
        smallest = min([1.0, *sizes[sizes > 0]])
        v /= max(smallest, (1.0 + float(sizes.sum())) / _LARGEST_RATIO)
        columns = None
    return kernel + v * Linear(1.0, columns=columns)
