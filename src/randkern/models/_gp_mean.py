"""What targets are shifted by: their units, and mean functions of processes."""

from __future__ import annotations

from typing import Any

import numpy as np

from randkern._validation import Rows
from randkern.backend.namespace import ops_of
from randkern.data.training_data import TrainingData
from randkern.kernels import Kernel, Linear

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


def units_of(
    rows: TrainingData, normalize: bool
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return what the targets of rows are shifted and divided by.

    Numbers, which have no device.
    """
    survey = rows.survey()
    mean = np.zeros_like(survey.target_mean)
    scale = np.ones_like(survey.target_mean)
    if normalize:
        unit = survey.target_scale
        if np.any(unit != 1):
            survey = rows.rescaled(np.zeros_like(unit), unit).survey()
        mean = survey.target_mean * unit
        deviation = np.sqrt(survey.target_squares / survey.weight_sum)
        scale = np.where(deviation > 0, deviation, 1.0) * unit
    elif np.any(survey.target_scale != 1):
        raise ValueError(
            f"the targets are of size {survey.largest_target.max():.3g}, whose "
            "squares, as variances, leave the range of floats: set normalize_y=True, "
            "or scale y."
        )
    return tuple(mean.tolist()), tuple(scale.tolist())
