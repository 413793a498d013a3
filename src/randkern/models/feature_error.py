"""A warning where random features cannot distinguish the values of a kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from randkern._random import Stream
from randkern._validation import Rows, is_tensor
from randkern._warnings import warn
from randkern.backend.namespace import ops_of
from randkern.exceptions import FeatureErrorWarning
from randkern.kernels import Kernel
from randkern.kernels.factor_draws import Fourier

# Pairs of rows are those of two samples of at most, and at least, this many rows each.
# The cost is that of as many kernel values, below a thousandth of most fits.
_SAMPLE, _MIN_SAMPLE = 64, 8
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
    compared with the standard deviation of k(x, y), over pairs of different rows of a
    sample. Where the error is larger, features have more noise than information about
    which rows are alike. Rows of weight 0 are excluded.
    """
    used = np.arange(X.shape[0])
    if sample_weight is not None:
        used = ops_of(X).to_host(ops_of(X).flatnonzero(sample_weight))
    size = min(_SAMPLE, len(used) // 2)
    if size < _MIN_SAMPLE:
        return
    chosen = stream.generator().choice(used, 2 * size, replace=False)
    sample = ops_of(X).take(X, chosen)
    if is_tensor(sample):
        sample = ops_of(X).to_host(sample)
    sample = sample.astype(np.float64)
    left, right = sample[:size], sample[size:]
    values = kernel._gram(left, right)
    variance = kernel._feature_variance(left, right, n_components, fourier)
    error = math.sqrt(max(float(variance.mean()), 0.0))
    spread = float(values.std())
    if not error > max(spread, _ROUNDING * float(kernel._diag(left).mean())):
        return
    warn(
        f"kernel values between rows are {values.mean():.2g} ± {spread:.2g}, but "
        f"random features with n_components={n_components} have an error of "
        f"{error:.2g}: they hardly distinguish rows, as where rows are nearly "
        "orthogonal (text) or the lengthscale is too short. Use landmarks "
        "(features='nystrom'), the exact kernel (n_components=None), another "
        "lengthscale, or more components.",
        FeatureErrorWarning,
    )
