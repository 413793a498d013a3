"""Estimates the size of residuals near a row with a model's learned kernel."""

from __future__ import annotations

from typing import Any

import numpy as np

from randkern.data import row_blocks, rows_within
from randkern.kernels import Gaussian, Kernel, Sum
from randkern.models import KernelRidgeRegressorCV
from randkern.tabular.folds import Folds
from randkern.tabular.model import fit_quietly

_BLOCK_BYTES = 64 * 10**6
# Powers of the similarity; with higher ones, only nearer rows count.
_POWERS = (1.0, 4.0, 16.0, 64.0)
# The overall mean size has the weight of this many equal rows.
_PRIOR_ROWS = 2.0
_MIN_ROWS = 40
# Smallest reduction of the mean negative log-likelihood by a power.
_MIN_GAIN = 0.01
# Landmarks of a fit to the sizes of many rows: at most so many, and one for so many
# rows. Penalties that it chooses from: the logarithms of sizes are mostly noise.
LANDMARKS_OF_SIZES, _ROWS_PER_LANDMARK = 300, 20
_PENALTIES = np.logspace(-1, 4, 11).tolist()
# Smaller residuals, in medians, count as such: the logarithm has no bound.
_LEAST_SIZE = 0.01


def local_sizes(
    kernel: Kernel,
    power: float,
    X: np.ndarray,
    rows: np.ndarray,
    sizes: np.ndarray,
    own: bool = False,
    folds: Folds | None = None,
) -> np.ndarray:
    """Return weighted means (n, k) of the sizes (m, k) of residuals near rows X.

    The weight of a row is a power of its similarity, between 0 and 1 (Nadaraya &
    Watson 1964); with power 0 all weights are equal. If `own`, X are the rows of the
    residuals, and each is excluded from its own mean, with what `folds` hides from it.
    """
    mean = sizes.mean(axis=0)
    out = np.tile(mean, (len(X), 1))
    if not power:
        return out
    largest = np.sqrt(np.maximum(kernel._diag(rows), 1e-300))
    for part in row_blocks(len(X), rows_within(_BLOCK_BYTES, 8 * len(rows))):
        here = np.sqrt(np.maximum(kernel._diag(X[part]), 1e-300))
        weight = kernel._gram(X[part], rows) / (here[:, None] * largest)
        weight = np.clip(weight, 0.0, 1.0) ** power
        if own:
            weight[_hidden(part, folds)] = 0.0
        total = weight.sum(axis=1, keepdims=True) + _PRIOR_ROWS
        out[part] = (weight @ sizes + _PRIOR_ROWS * mean) / total
    return out


def sizes_of_many(
    kernel: Kernel, rows: np.ndarray, sizes: np.ndarray, weight: Any, seed: int
) -> KernelRidgeRegressorCV:
    """Return a regression of the logarithms of the sizes (m, k) of residuals.

    The learned kernel knows the columns that matter for the mean; a Gaussian kernel of
    all columns stands beside it, as others may matter for the sizes.
    """
    middle = np.median(sizes, axis=0)
    least = _LEAST_SIZE * np.where(middle > 0, middle, 1.0)
    model = KernelRidgeRegressorCV(
        kernel + Gaussian(),
        _PENALTIES,
        min(LANDMARKS_OF_SIZES, len(rows) // _ROWS_PER_LANDMARK + 1),
        features="nystrom",
        fit_intercept=True,
        random_state=seed,
    )
    fit_quietly(model, rows, np.log(np.maximum(sizes, least)), weight)
    return model


def novelty(
    kernel: Kernel,
    alpha: float,
    X: np.ndarray,
    rows: np.ndarray,
    own: bool = False,
    folds: Folds | None = None,
) -> np.ndarray:
    """Return how uncertain a kernel is at rows X that are known at `rows`, (n,).

    It is √(1 − s² + α), with s the similarity of the nearest row: the standard
    deviation of a Gaussian process that knows only this row, with noise of variance α.
    A linear term is ignored. If `own`, X are the rows, and each is excluded, with what
    `folds` hides from it.
    """
    if isinstance(kernel, Sum):
        kernel = kernel.k1
    out = np.empty(len(X))
    for part in row_blocks(len(X), rows_within(_BLOCK_BYTES, 8 * max(len(rows), 1))):
        similarity = np.array(kernel._gram(X[part], rows))
        if own:
            similarity[_hidden(part, folds)] = 0
        nearest = similarity.max(axis=1, initial=0.0).clip(0.0, 1.0)
        out[part] = np.sqrt(1 - nearest**2 + alpha)
    return out


def _hidden(part: slice, folds: Folds | None) -> Any:
    """Return the places, (m, n), of rows that are unknown where some are predicted."""
    if folds is not None:
        return folds.is_hidden(part)
    rows = np.arange(part.start, part.stop)
    return rows - part.start, rows


def chosen_power(
    kernel: Kernel, rows: np.ndarray, sizes: np.ndarray, folds: Folds | None = None
) -> float:
    """Return the power with the best leave-one-out sizes, or 0 if none helps.

    The criterion is the likelihood of the residuals under Laplace laws with these mean
    sizes.
    """
    if len(sizes) < _MIN_ROWS or not (sizes.mean(axis=0) > 0).all():
        return 0.0

    def loss(power: float) -> float:
        local = local_sizes(kernel, power, rows, rows, sizes, True, folds)
        return float((np.log(local) + sizes / local).mean())

    least, best = loss(0.0) - _MIN_GAIN, 0.0
    for power in _POWERS:
        found = loss(power)
        if found < least:
            least, best = found, power
    return best
