"""Intervals of predictions, from the residuals of rows unknown to a fit.

Residuals are divided by their typical size at the row (normalised conformal prediction:
Papadopoulos, Gammerman & Vovk 2008; Lei, G'Sell, Rinaldo, Tibshirani & Wasserman 2018,
"Distribution-free predictive inference for regression", section 5.2): intervals are
then wider where targets are noisier, and far from known rows.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import ndtri

from randkern.data import row_blocks, rows_within
from randkern.kernels import Gaussian, Kernel, Matern, Sum
from randkern.models.calibration import conformal_quantile
from randkern.tabular.exact_ridge import ExactRidge
from randkern.tabular.folds import Folds, correlation_within
from randkern.tabular.leave_one_out import left_out
from randkern.tabular.presets import (
    OUTSIDE,
    SIZE_PENALTIES,
    SMALLEST_SIZE,
    USUAL_NOVELTY,
    VALIDATION_ROWS,
)
from randkern.tabular.rows import Table

_BLOCK_BYTES = 64 * 10**6
# A penalty that makes all sizes alike, and bounds of their logarithms.
_ALIKE, _LOGS = 1e9, (-300.0, 300.0)


@dataclass(frozen=True)
class Novelty:
    """How uncertain a kernel is at rows.

    It is √(1 − s² + α), with s the similarity of the nearest of the rows `known`: the
    standard deviation of a Gaussian process that knows only this row, with noise of
    variance α; but at least `least`. A linear term is ignored.
    """

    kernel: Kernel
    alpha: float
    known: np.ndarray
    least: float = 0.0

    def at(self, X: np.ndarray, hidden: np.ndarray | None = None) -> np.ndarray:
        """Return the novelty of rows, (n, 1).

        `hidden`, (n, m), says which of the known rows do not count for each of them.
        """
        kernel = self.kernel.k1 if isinstance(self.kernel, Sum) else self.kernel
        out = np.empty((len(X), 1))
        for block in row_blocks(len(X), rows_within(_BLOCK_BYTES, 8 * len(self.known))):
            similarity = np.array(kernel._gram(X[block], self.known))
            if hidden is not None:
                similarity[hidden[block]] = 0
            nearest = similarity.max(axis=1, keepdims=True).clip(0.0, 1.0)
            out[block] = np.sqrt(1 - nearest**2 + self.alpha)
        return np.maximum(out, self.least)


def learned_sizes(
    X: np.ndarray, k: int, sizes: np.ndarray, weight: np.ndarray, folds: Folds
) -> tuple[ExactRidge, np.ndarray]:
    """Return a fit to the logarithms of sizes, (m, k), and each as learned without it.

    Rows X begin with k normal quantiles of predictions. The kernel is the sum of a
    Gaussian kernel of these and a Matérn kernel of the others; lengthscales are their
    deviations. The penalty maximises the likelihood of residuals left out, of which
    Laplace distributions have these mean sizes. With a large one, all are alike.
    """
    usual = np.average(sizes, axis=0, weights=weight)
    logs = np.log((sizes + SMALLEST_SIZE * usual).clip(1e-300))
    deviation = np.sqrt(float(X[:, k:].var(axis=0).sum()) or 1.0)
    kernel = Gaussian(np.sqrt(k), columns=list(range(k)))
    kernel += Matern(1.5, deviation, columns=list(range(k, X.shape[1])))
    gram, out = np.array(kernel._gram(X, None)), folds.predicted
    errors = {_ALIKE: (logs - np.average(logs, axis=0, weights=weight))[out]}
    for penalty in SIZE_PENALTIES:
        with suppress(np.linalg.LinAlgError):  # weights may differ by any factor
            errors[penalty] = left_out(gram, penalty / weight, logs, folds)
    best = min(errors, key=lambda penalty: _loss(errors[penalty]))
    ridge = ExactRidge(kernel, best).fit(X, logs, weight)
    own = _sizes_of(ridge, X).reshape(logs.shape)
    own[out] = np.exp(logs[out] - errors[best])
    return ridge, own


def _sizes_of(ridge: ExactRidge, X: np.ndarray) -> np.ndarray:
    """Return sizes that are learned; of weights that differ by far, within bounds."""
    return np.exp(np.clip(ridge.predict(X), *_LOGS))


def _means_of_equals(X: np.ndarray, predictions: np.ndarray) -> np.ndarray:
    """Return the mean prediction of equal rows.

    That of a row which is left out tells its target: it is the larger the smaller the
    target is.
    """
    _, codes, counts = np.unique(X, axis=0, return_inverse=True, return_counts=True)
    codes = codes.ravel()  # NumPy 2.0 has a column
    means = [np.bincount(codes, column) / counts for column in predictions.T]
    return np.stack(means, axis=1)[codes]


def _quantiles_among(known: np.ndarray, predictions: np.ndarray) -> np.ndarray:
    """Return the normal quantiles of ranks that predictions have among known ones."""
    ranks = (np.arange(len(known)) + 0.5) / len(known)
    columns = zip(predictions.T, np.sort(known, axis=0).T, strict=True)
    return ndtri(np.stack([np.interp(new, own, ranks) for new, own in columns], axis=1))


def _loss(errors: np.ndarray) -> float:
    """Return minus the mean logarithm of Laplace densities.

    Of sizes with these errors of their logarithms, relative to means in the best unit.
    """
    sizes = np.exp(errors)
    sizes /= sizes.mean(axis=0)
    return float((sizes - np.log(sizes)).mean())


@dataclass(frozen=True)
class Intervals:
    """What intervals are computed from.

    Attributes
    ----------
    novelty : Novelty
    ridge : ExactRidge
        Predicts logarithms of sizes that residuals have relative to their novelty, from
        normal quantiles of predictions and encoded rows.
    sizes : ndarray of shape (m, k)
        Absolute residuals of rows unknown to the fit, relative to both.
    predictions : ndarray of shape (m, k)
        The predictions for these rows.
    weight : ndarray of shape (m,)
        The weights of these rows.
    n_groups : float
        Of rows in groups or in time, the number of independent rows that tell as much.
        Infinite if rows are independent.
    """

    novelty: Novelty
    ridge: ExactRidge
    sizes: np.ndarray
    predictions: np.ndarray
    weight: np.ndarray
    n_groups: float

    @classmethod
    def of(
        cls,
        known: Table,
        evaluated: np.ndarray,
        residuals: np.ndarray,
        kernel: Kernel,
        alpha: float,
    ) -> Intervals:
        """Learn from the residuals (m, k) of some rows of an encoded table.

        Later rows are the farther from the known ones the later they are, but all
        others are hardly farther than those that are evaluated.
        """
        X, folds = known.X[evaluated], known.folds
        predictions = _means_of_equals(X, known.Y[evaluated] - residuals)
        weight = known.weight[evaluated] / known.weight[evaluated].mean()
        novelty = Novelty(kernel, alpha, known.X[:VALIDATION_ROWS])
        far = novelty.at(X, folds.is_hidden(evaluated)[:, :VALIDATION_ROWS])
        if not folds.is_forward:
            novelty = replace(novelty, least=float(np.quantile(far, USUAL_NOVELTY)))
        relative = residuals / np.maximum(far, novelty.least)
        both = np.hstack([_quantiles_among(predictions, predictions), X])
        k, part = predictions.shape[1], folds.take(evaluated)
        ridge, own = learned_sizes(both, k, np.abs(relative), weight, part)
        relative /= own
        n_groups = _n_effective(relative, folds.codes[evaluated])
        sizes = np.abs(relative)
        return cls(novelty, ridge, sizes, predictions, weight, n_groups)

    def _level(self, coverage: float) -> float:
        """Return the share of residuals in intervals of a row with this coverage.

        A row of a new group may have larger residuals than all of G groups: this share
        is c(1 + 1/G) (Lee, Barber & Willett 2023, "Distribution-free inference with
        hierarchical data"), or that of the largest residual, if that is less.
        """
        n = float(self.weight.sum() ** 2 / (self.weight**2).sum())
        largest = (n - 0.5) / (n + 1)
        return min(coverage * (1 + 1 / self.n_groups), max(coverage, largest))

    def _quantiles(self, predictions: np.ndarray, coverage: float) -> np.ndarray:
        """Return the quantile of relative sizes at predictions, (n, k).

        It is that of residuals at similar predictions (Mondrian conformal regression:
        Boström & Johansson 2020), as many as have some outside their intervals,
        interpolated between their medians; of all residuals if rows are dependent.
        """
        level, out = self._level(coverage), np.empty(predictions.shape)
        n_parts = 1
        if np.isinf(self.n_groups):
            n_parts = max(int(len(self.sizes) * (1 - coverage) / OUTSIDE), 1)
        for j, own in enumerate(self.predictions.T):
            parts = np.array_split(np.argsort(own, kind="stable"), n_parts)
            quantiles = [
                float(conformal_quantile(self.sizes[part, j], level, self.weight[part]))
                for part in parts
            ]
            centres = [np.median(own[part]) for part in parts]
            out[:, j] = np.interp(predictions[:, j], centres, quantiles)
        return out

    def around(
        self, rows: np.ndarray, predictions: np.ndarray, coverage: float
    ) -> np.ndarray:
        """Return intervals around predictions (n, k) for encoded rows, (n, k, 2)."""
        codes = _quantiles_among(self.predictions, predictions)
        sizes = _sizes_of(self.ridge, np.hstack([codes, rows]))
        width = self.novelty.at(rows) * sizes.reshape(predictions.shape)
        width *= self._quantiles(predictions, coverage)
        return np.stack([predictions - width, predictions + width], axis=-1)


def _n_effective(residuals: np.ndarray, codes: np.ndarray) -> float:
    """Return how many independent rows tell as much as residuals (n, k) of groups.

    With the correlation ρ of two rows of one group or period, of m rows on average, it
    is n/(1 + (m − 1)ρ) (Kish 1965, "Survey sampling"): n if groups are alike, and their
    number if rows of a group are. Infinite if no rows are of the same group.
    """
    n, n_groups = len(residuals), len(np.unique(codes))
    if n_groups in (1, n):
        return 1.0 if n_groups == 1 else np.inf
    return n / (1 + (n / n_groups - 1) * correlation_within(residuals, codes))
