"""A warning where random features cannot distinguish the values of a kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from randkern._random import Stream
from randkern._validation import Rows, is_tensor
from randkern._warnings import warn
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks, rows_within
from randkern.data.training_data import stored_bytes
from randkern.exceptions import FeatureErrorWarning
from randkern.kernels import Kernel
from randkern.kernels.factor_draws import Fourier

# Pairs of rows are those of two samples of at most, and at least, this many rows each.
# The cost is that of as many kernel values, below a thousandth of most fits.
_SAMPLE = 64
_MIN_SAMPLE = 8
# Memory of the rows of one sample that are compared at a time, if that is not too few.
_PART_BYTES = 2**19
# Errors below this share of k(x, x) are rounding errors.
_ROUNDING = 1e-6


def warn_of_feature_error(
    kernel: Kernel,
    X: Rows,
    sample_weight: np.ndarray | None,
    n_components: int | Sequence[int],
    fourier: Fourier,
    stream: Stream,
) -> None:
    """Warn if the errors of kernel values exceed the spread of these values.

    The root of the mean variance of φ(x)·φ(y) for independent draws, in closed form, is
    compared with the standard deviation of k(x, y), over pairs of different rows of two
    samples (for wide rows, of corresponding parts of them). Where the error is larger,
    features have more noise than information about which rows are alike. Rows of weight
    0 are excluded.
    """
    used = np.arange(X.shape[0])
    if sample_weight is not None:
        used = ops_of(X).to_host(ops_of(X).flatnonzero(sample_weight))
    size = min(_SAMPLE, len(used) // 2)
    if size < _MIN_SAMPLE:
        return
    sampled = stream.generator().choice(used, 2 * size, replace=False)
    values = []
    variances = []
    diagonals = []
    row_bytes = stored_bytes(X) // X.shape[0] * 8 // X.dtype.itemsize
    at_once = rows_within(_PART_BYTES, row_bytes, at_least=_MIN_SAMPLE)
    for part in row_blocks(size, at_once):
        left, right = (_sampled(X, half[part]) for half in np.split(sampled, 2))
        values.append(kernel._gram(left, right).ravel())
        variance = kernel._feature_variance(left, right, n_components, fourier)
        variances.append(variance.ravel())
        diagonals.append(kernel._diag(left))
    mean = np.mean(np.concatenate(values))
    spread = np.std(np.concatenate(values))
    error = math.sqrt(max(float(np.concatenate(variances).mean()), 0.0))
    if not error > max(spread, _ROUNDING * np.concatenate(diagonals).mean()):
        return
    warn(
        f"kernel values between rows are {mean:.2g} ± {spread:.2g}, but random "
        f"features with n_components={n_components} have an error of {error:.2g}: they "
        "hardly distinguish rows. This happens if rows are nearly orthogonal (text) or "
        "the lengthscale is too short. Use landmarks (features='nystrom'), the exact "
        "kernel (n_components=None), another lengthscale, or more components.",
        FeatureErrorWarning,
    )


def _sampled(X: Rows, numbers: np.ndarray) -> Rows:
    """Return rows in float64, on the host."""
    sample = ops_of(X).take(X, numbers)
    sample = ops_of(X).to_host(sample) if is_tensor(sample) else sample
    return sample.astype(np.float64)
