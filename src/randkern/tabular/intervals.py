"""Intervals of predictions, from the residuals of rows unknown to a fit.

Residuals are divided by their typical size at the row (normalised conformal prediction:
Papadopoulos, Gammerman & Vovk 2008; Lei, G'Sell, Rinaldo, Tibshirani & Wasserman 2018,
"Distribution-free predictive inference for regression", section 5.2): intervals are
then wider where targets are noisier. Sizes are learned from the columns and from the
prediction, because noise often grows with the level of a target.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from randkern._warnings import ignoring
from randkern.data import row_blocks, rows_within
from randkern.kernels import Gaussian, Kernel, Matern, Sum
from randkern.models.calibration import conformal_quantile
from randkern.tabular.encoder import TabularEncoder
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

_BLOCK_BYTES = 64 * 10**6
# A penalty that makes all sizes alike.
_ALIKE = 1e9


@dataclass(frozen=True)
class Spread:
    """The size of residuals as a function of rows and predictions.

    Logarithms of sizes are fitted by ridge regression. The kernel is the sum of a
    Gaussian kernel of predictions, which are replaced by the normal quantiles of their
    ranks, and a Matérn kernel of encoded rows; lengthscales are their deviations.
    """

    encoder: TabularEncoder
    ridge: ExactRidge

    @classmethod
    def learned(
        cls,
        rows: np.ndarray,
        predictions: np.ndarray,
        sizes: np.ndarray,
        weight: np.ndarray,
        folds: Folds,
    ) -> tuple[Spread, np.ndarray]:
        """Return the spread, and the size of each residual as learned without it.

        The penalty maximises the likelihood of residuals left out, of which Laplace
        distributions have these mean sizes. All sizes are alike unless a penalty
        improves the mean log likelihood by more than its standard error.
        """
        sample = np.arange(min(VALIDATION_ROWS, len(sizes)))
        part = folds.take(sample)
        out = part.predicted
        with ignoring(UserWarning):
            encoder = TabularEncoder("quantile").set_output(transform="default")
            encoder.fit(predictions)
        codes, known = encoder.transform(predictions[sample]), rows[sample]
        X, k = np.hstack([codes, known]).astype(np.float64), codes.shape[1]
        deviation = np.sqrt(float(known.var(axis=0).sum()) or 1.0)
        kernel = Gaussian(np.sqrt(k), columns=list(range(k)))
        kernel += Matern(1.5, deviation, columns=list(range(k, X.shape[1])))
        gram, own_weight = np.array(kernel._gram(X, None)), weight[sample]
        usual = np.average(sizes, axis=0, weights=weight)
        logs = np.log((sizes[sample] + SMALLEST_SIZE * usual).clip(1e-300))
        mean = np.average(logs, axis=0, weights=own_weight)
        best, gain, residuals = _ALIKE, 0.0, (logs - mean)[out]
        losses = _losses(residuals)
        for penalty in SIZE_PENALTIES:
            errors = left_out(gram, penalty / own_weight, logs, part)
            if errors is None:
                continue
            better = losses - _losses(errors)
            least = better.mean() - better.std() / np.sqrt(len(out))
            if least > gain:
                best, gain, residuals = penalty, least, errors
        spread = cls(encoder, ExactRidge(kernel, best).fit(X, logs, own_weight))
        own = spread.at(rows, predictions)
        own[out] = np.exp(logs[out] - residuals)
        return spread, own

    def at(self, rows: np.ndarray, predictions: np.ndarray) -> np.ndarray:
        """Return the size of residuals at rows with these predictions, (n, k)."""
        logs = self.ridge.predict(
            np.hstack([self.encoder.transform(predictions), rows])
        )
        return np.exp(logs).reshape(predictions.shape)


def _losses(errors: np.ndarray) -> np.ndarray:
    """Return minus the logarithms of Laplace densities, a mean per row, (n,).

    Of sizes with these errors of their logarithms, relative to means in the best unit.
    """
    sizes = np.exp(errors)
    sizes /= sizes.mean(axis=0)
    return (sizes - np.log(sizes)).mean(axis=1)


def novelty(
    kernel: Kernel,
    alpha: float,
    X: np.ndarray,
    rows: np.ndarray,
    hidden: np.ndarray | None = None,
) -> np.ndarray:
    """Return how uncertain a kernel is at rows X that are known at `rows`, (n,).

    It is √(1 − s² + α), with s the similarity of the nearest row: the standard
    deviation of a Gaussian process that knows only this row, with noise of variance α.
    A linear term is ignored. `hidden` says which of `rows` do not count for each of X.
    """
    if isinstance(kernel, Sum):
        kernel = kernel.k1
    out = np.empty(len(X))
    for block in row_blocks(len(X), rows_within(_BLOCK_BYTES, 8 * max(len(rows), 1))):
        similarity = np.array(kernel._gram(X[block], rows))
        if hidden is not None:
            similarity[hidden[block]] = 0
        nearest = similarity.max(axis=1, initial=0.0).clip(0.0, 1.0)
        out[block] = np.sqrt(1 - nearest**2 + alpha)
    return out


@dataclass(frozen=True)
class Intervals:
    """What intervals are computed from.

    Attributes
    ----------
    sizes : ndarray of shape (m, k)
        Absolute residuals of rows unknown to the fit, relative to their usual sizes.
    predictions : ndarray of shape (m, k)
        The predictions for these rows.
    weight : ndarray of shape (m,)
        The weights of these rows.
    spread : Spread
    near : ndarray of shape (n, d)
        Encoded rows, from which novelty is measured with this kernel and penalty.
    kernel : Kernel
    alpha : float
    usual_novelty, least_novelty : float
        Sizes are proportional to the novelty relative to the usual one, but at least to
        this.
    n_groups : float
        Of rows in groups or in time, the number of independent rows that tell as much.
        Infinite if rows are independent.
    """

    sizes: np.ndarray
    predictions: np.ndarray
    weight: np.ndarray
    spread: Spread
    near: np.ndarray
    kernel: Kernel
    alpha: float
    usual_novelty: float
    least_novelty: float
    n_groups: float

    @classmethod
    def of(
        cls,
        rows: np.ndarray,
        evaluated: np.ndarray,
        predictions: np.ndarray,
        residuals: np.ndarray,
        weight: np.ndarray,
        folds: Folds,
        *,
        kernel: Kernel,
        alpha: float,
    ) -> Intervals:
        """Learn from predictions and residuals (m, k) of the rows `evaluated`.

        `weight` and `folds` are those of all rows. Later rows are the farther from the
        known ones the later they are, so their residuals are relative to their novelty.
        """
        own_weight = weight[evaluated] / weight[evaluated].mean()
        near, sizes = rows[:VALIDATION_ROWS], np.abs(residuals)
        hidden = folds.is_hidden(evaluated)[:, : len(near)]
        far = novelty(kernel, alpha, rows[evaluated], near, hidden)
        usual = float(np.quantile(far, USUAL_NOVELTY))
        if folds.is_forward:
            sizes = sizes * (usual / far)[:, None]
        part = folds.take(evaluated)
        spread, own = Spread.learned(
            rows[evaluated], predictions, sizes, own_weight, part
        )
        sizes = sizes / own
        n_groups = np.inf
        if part.groups is not None:
            n_groups = _n_effective(np.copysign(sizes, residuals), part.groups)
        elif not folds.are_rows:  # all may be of one period
            codes = np.zeros(len(sizes)) if part.are_rows else part.codes
            n_groups = _n_effective(np.copysign(sizes, residuals), codes)
        return cls(
            sizes,
            predictions,
            own_weight,
            spread,
            near,
            kernel,
            alpha,
            usual,
            0.0 if folds.is_forward else 1.0,
            n_groups,
        )

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
        interpolated between their medians.
        """
        level, out = self._level(coverage), np.empty(predictions.shape)
        m = len(self.sizes)
        n_parts = max(int(m * (1 - coverage) / OUTSIDE), 1)
        if np.isfinite(self.n_groups):
            n_parts = 1
        for j, own in enumerate(self.predictions.T):
            centres, quantiles = [], []
            for part in np.array_split(np.argsort(own, kind="stable"), n_parts):
                sizes = self.sizes[part, j : j + 1]
                quantile = conformal_quantile(sizes, level, self.weight[part])
                quantiles.append(float(quantile[0]))
                centres.append(np.median(own[part]))
            out[:, j] = np.interp(predictions[:, j], centres, quantiles)
        return out

    def around(
        self, rows: np.ndarray, predictions: np.ndarray, coverage: float
    ) -> np.ndarray:
        """Return intervals around predictions (n, k) for encoded rows, (n, k, 2)."""
        far = novelty(self.kernel, self.alpha, rows, self.near) / self.usual_novelty
        width = np.maximum(far, self.least_novelty)[:, None]
        width = width * self.spread.at(rows, predictions)
        width *= self._quantiles(predictions, coverage)
        return np.stack([predictions - width, predictions + width], axis=-1)


def _n_effective(residuals: np.ndarray, codes: np.ndarray) -> float:
    """Return how many independent rows tell as much as residuals (n, k) of groups.

    With the correlation ρ of two rows of one group or period, of m rows on average, it
    is n/(1 + (m − 1)ρ) (Kish 1965, "Survey sampling"): n if groups are alike, and their
    number if rows of a group are.
    """
    n, n_groups = len(residuals), len(np.unique(codes))
    if n_groups == 1:
        return 1.0
    return n / (1 + (n / n_groups - 1) * correlation_within(residuals, codes))
