"""Intervals of predictions, from the residuals of rows unknown to a fit.

Residuals are divided by their typical size near the row (normalised conformal
prediction: Papadopoulos, Gammerman & Vovk 2008; Lei, G'Sell, Rinaldo, Tibshirani &
Wasserman 2018, "Distribution-free predictive inference for regression", section 5.2):
intervals are then wider where targets are noisier. Sizes are learned from the columns
and from the prediction, because noise often grows with the level of a target.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from randkern._warnings import ignoring
from randkern.data import row_blocks, rows_within
from randkern.kernels import Gaussian, Kernel, Matern, Sum
from randkern.models.calibration import conformal_quantile
from randkern.tabular.encoder import TabularEncoder, encoder_to_arrays
from randkern.tabular.folds import Folds, correlation_within, predicted_rows
from randkern.tabular.leave_one_out import left_out
from randkern.tabular.presets import (
    MAX_PARTS,
    NEAR_ROWS,
    NOVEL_ROWS,
    OUTSIDE,
    SIZE_PENALTIES,
    SIZE_REACH,
    SIZE_ROWS,
    SIZE_WIDTH,
    SMALLEST_SIZE,
    USUAL_NOVELTY,
)
from randkern.tabular.rows import are_equal

_BLOCK_BYTES = 64 * 10**6


@dataclass(frozen=True)
class Spread:
    r"""The size of residuals as a function of rows and predictions.

    Logarithms of sizes are fitted by ridge regression with the kernel

    .. math:: k_1(q(f), q(f')) + k_2(x, x')

    of the predictions :math:`f`, replaced by the normal quantiles of their ranks, and
    the encoded rows :math:`x`: a Gaussian kernel, and a Matérn kernel with a long
    lengthscale.

    Attributes
    ----------
    rows : ndarray of shape (m, d)
    codes : ndarray of shape (m, k)
        The encoded predictions of these rows.
    encoder : TabularEncoder
    dual : ndarray of shape (m, k), or None
        None if sizes are those of all rows alike.
    mean : ndarray of shape (k,)
    reach : float
        The lengthscale of rows.
    """

    rows: np.ndarray
    codes: np.ndarray
    encoder: TabularEncoder
    dual: np.ndarray | None
    mean: np.ndarray
    reach: float

    @classmethod
    def learned(
        cls,
        rows: np.ndarray,
        predictions: np.ndarray,
        sizes: np.ndarray,
        weight: np.ndarray,
        folds: Folds | None,
    ) -> tuple[Spread, np.ndarray]:
        """Return the spread, and the size of each residual as learned without it.

        The penalty maximises the likelihood of held-out residuals under Laplace
        distributions of these mean sizes. All sizes are equal unless a penalty improves
        the mean log likelihood by more than its standard error.
        """
        with ignoring(UserWarning):
            encoder = encoder_to_arrays("quantile").fit(predictions)
        n = min(SIZE_ROWS, len(sizes))
        sample = slice(0, n)
        known, X = sizes[sample], np.asarray(rows[sample], dtype=np.float64)
        reach = SIZE_REACH * np.sqrt(float(X.var(axis=0).sum()) or 1.0)
        mean = np.log(np.average(known, axis=0, weights=weight[sample]).clip(1e-300))
        codes = encoder.transform(predictions[sample])
        alike = cls(X, codes, encoder, None, mean, reach)
        targets = np.log(known + SMALLEST_SIZE * np.exp(mean))
        part = None if folds is None else folds.take(np.arange(n))
        out = predicted_rows(part, n)
        own = np.tile(np.exp(mean), (len(sizes), 1))
        gram, losses = alike._gram(X, codes), _losses(known[out], own[out])
        best, gain = alike, 0.0
        penalties = SIZE_PENALTIES if known.any(axis=0).all() else ()
        for penalty in penalties:
            residuals = left_out(gram, penalty / weight[sample], targets, part)
            if residuals is None:
                continue
            guessed = np.exp(targets[out] - residuals)
            unit = (known[out] / guessed).mean(axis=0)
            better = losses - _losses(known[out], unit * guessed)
            least = better.mean() - better.std() / np.sqrt(len(out))
            if least > gain:
                gain, own[out] = least, unit * guessed
                dual, intercept = _ridge(gram, penalty / weight[sample], targets)
                best = cls(X, codes, encoder, dual, intercept + np.log(unit), reach)
        if best.dual is not None and len(sizes) > n:
            own[n:] = best.at(rows[n:], predictions[n:])
        return best, own

    def at(self, rows: np.ndarray, predictions: np.ndarray) -> np.ndarray:
        """Return the size of residuals at rows with these predictions, (n, k)."""
        if self.dual is None:
            return np.tile(np.exp(self.mean), (len(rows), 1))
        codes, out = self.encoder.transform(predictions), np.empty(predictions.shape)
        for part in row_blocks(
            len(rows), rows_within(_BLOCK_BYTES, 8 * len(self.rows))
        ):
            gram = self._gram(np.asarray(rows[part], np.float64), codes[part])
            out[part] = np.exp(gram @ self.dual + self.mean)
        return out

    def _gram(self, rows: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Return the kernel of rows and predictions with those that are known."""
        width = SIZE_WIDTH * np.sqrt(codes.shape[1])
        near = Gaussian(width)._gram(codes, self.codes)
        return near + Matern(1.5, self.reach)._gram(rows, self.rows)


def _losses(sizes: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Return minus the logarithms of Laplace densities, a mean per row, (n,)."""
    return (np.log(means) + sizes / means).mean(axis=1)


def _ridge(
    gram: np.ndarray, penalty: np.ndarray, Y: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the dual weights and the intercepts of ridge regression."""
    matrix = gram + np.diag(penalty)
    solved = np.linalg.solve(matrix, np.column_stack([Y, np.ones(len(Y))]))
    intercept = solved[:, :-1].sum(axis=0) / solved[:, -1].sum()
    return solved[:, :-1] - solved[:, -1:] * intercept, intercept


def novelty(
    kernel: Kernel,
    alpha: float,
    X: np.ndarray,
    rows: np.ndarray,
    is_hidden: Callable[[slice], np.ndarray] | None = None,
) -> np.ndarray:
    """Return how uncertain a kernel is at rows X that are known at `rows`, (n,).

    It is √(1 − s² + α), with s the similarity of the nearest row: the standard
    deviation of a Gaussian process that knows only this row, with noise of variance α.
    A linear term is ignored. `is_hidden` says which of `rows` do not count for a part
    of X.
    """
    if isinstance(kernel, Sum):
        kernel = kernel.k1
    out = np.empty(len(X))
    for part in row_blocks(len(X), rows_within(_BLOCK_BYTES, 8 * max(len(rows), 1))):
        similarity = np.array(kernel._gram(X[part], rows))
        if is_hidden is not None:
            similarity[is_hidden(part)] = 0
        nearest = similarity.max(axis=1, initial=0.0).clip(0.0, 1.0)
        out[part] = np.sqrt(1 - nearest**2 + alpha)
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
    weight : ndarray of shape (m,), or None
        Their weights; None: all alike.
    spread : Spread
    near : ndarray of shape (n, d)
        Encoded rows, from which novelty is measured with this kernel and penalty.
    kernel : Kernel
    alpha : float
    usual_novelty, least_novelty : float
        Sizes are proportional to the novelty relative to the usual one, but at least to
        this.
    n_groups : float or None
        Of rows in groups, (Σ_g W_g)² / Σ_g W_g² for the sums W_g of their weights: the
        number of groups, if all are of one size. Of rows in time, the number of
        independent rows that tell as much.
    """

    sizes: np.ndarray
    predictions: np.ndarray
    weight: np.ndarray | None
    spread: Spread
    near: np.ndarray
    kernel: Kernel
    alpha: float
    usual_novelty: float
    least_novelty: float = 1.0
    n_groups: float | None = None

    @classmethod
    def of(
        cls,
        rows: np.ndarray,
        evaluated: np.ndarray,
        predictions: np.ndarray,
        residuals: np.ndarray,
        weight: np.ndarray,
        dependent: Folds | None,
        *,
        kernel: Kernel,
        alpha: float,
    ) -> Intervals:
        """Learn from predictions and residuals (m, k) of the rows `evaluated`.

        `weight` and `dependent`, the folds of rows that depend on each other, are those
        of all rows. Later rows are the farther from the known ones the later they are,
        so their residuals are relative to their novelty.
        """
        own_weight = weight[evaluated] / weight[evaluated].mean()
        part = None if dependent is None else dependent.take(evaluated)
        near = rows[:NEAR_ROWS]

        def is_hidden(block: slice) -> np.ndarray:
            own = evaluated[block]
            if dependent is None:
                return own[:, None] == np.arange(len(near))
            return dependent.is_hidden(own)[:, : len(near)]

        is_forward = dependent is not None and dependent.is_forward
        asked = rows[evaluated if is_forward else evaluated[:NOVEL_ROWS]]
        far = novelty(kernel, alpha, asked, near, is_hidden)
        usual = float(np.quantile(far, USUAL_NOVELTY))
        sizes = np.abs(residuals)
        if is_forward:
            sizes = sizes * (usual / far)[:, None]
        spread, own = Spread.learned(
            rows[evaluated], predictions, sizes, own_weight, part
        )
        sizes = sizes / np.where(own > 0, own, 1.0)
        n_groups = None if dependent is None else 1.0
        if part is not None and part.groups is not None:
            sums = np.bincount(part.groups, own_weight)
            n_groups = float(sums.sum() ** 2 / (sums**2).sum())
        elif part is not None:
            n_groups = _n_effective(np.copysign(sizes, residuals), part.codes)
        return cls(
            sizes,
            predictions,
            None if are_equal(own_weight) else own_weight,
            spread,
            near,
            kernel,
            alpha,
            usual,
            0.0 if is_forward else 1.0,
            n_groups,
        )

    def _level(self, coverage: float) -> float:
        """Return the share of residuals in intervals of a row with this coverage.

        A row of a new group may have larger residuals than all of G groups: this share
        is c(1 + 1/G) (Lee, Barber & Willett 2023, "Distribution-free inference with
        hierarchical data"), or that of the largest residual, if that is less.
        """
        if self.n_groups is None:
            return coverage
        weight = np.ones(len(self.sizes)) if self.weight is None else self.weight
        n = float(weight.sum() ** 2 / (weight**2).sum())
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
        n_parts = int(np.clip(m * (1 - coverage) / OUTSIDE, 1, MAX_PARTS))
        if self.n_groups is not None:
            n_parts = 1
        for j, own in enumerate(self.predictions.T):
            centres, quantiles = [], []
            for part in np.array_split(np.argsort(own, kind="stable"), n_parts):
                weight = None if self.weight is None else self.weight[part]
                sizes = self.sizes[part, j : j + 1]
                quantiles.append(float(conformal_quantile(sizes, level, weight)[0]))
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
    """Return how many independent rows tell as much as periods of residuals (n, k).

    With the correlation ρ of two rows of one period, of m rows on average, it is
    n/(1 + (m − 1)ρ) (Kish 1965, "Survey sampling"): n if periods are alike, and their
    number if rows of a period are.
    """
    n = len(residuals)
    m = n / len(np.unique(codes))
    return n / (1 + (m - 1) * correlation_within(residuals, codes))
