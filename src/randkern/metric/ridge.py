"""Ridge regression on transformed rows, and the outer products of its gradients.

The directions of x that matter are those in which a fitted predictor f varies. With
J(x) its Jacobian, G = (1/n) Σ_i J(x_i)ᵀJ(x_i) is large along them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from randkern._validation import Array
from randkern._warnings import ignoring
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks, rows_within
from randkern.data.target_statistics import TargetStatistics
from randkern.data.training_data import ArrayRows
from randkern.exceptions import IllConditionedWarning
from randkern.kernels.factor_draws import DrawSlopes
from randkern.models.dual import exact_gram, solve_dual
from randkern.models.normal_equations import NormalEquations
from randkern.plan import Plan, evaluate

_BLOCK_BYTES = 64 * 10**6


def applied(root: Array, X: Any) -> Any:
    """Return X Aᵀ, A being a matrix or the vector of its diagonal."""
    root = ops_of(X).float64_like(root, X)
    return X * root if root.ndim == 1 else X @ root.T


@dataclass(frozen=True)
class StandardisedMap:
    """Standardises the columns of rows, and applies a metric.

    With `squared`, targets are replaced by their squares.
    """

    shift: np.ndarray
    scale: np.ndarray
    root: np.ndarray
    squared: bool = False

    def __call__(self, rows: ArrayRows) -> ArrayRows:
        ops = ops_of(rows.X)
        shift = ops.float64_like(self.shift, rows.X)
        X = applied(self.scale, ops.as_float64(rows.X) - shift)
        Y = rows.Y**2 if self.squared else rows.Y
        return ArrayRows(applied(self.root, X), Y, rows.weight)


def standardised(rows: ArrayRows) -> tuple[StandardisedMap, np.ndarray]:
    """Return the map to columns of mean 0 and variance 1, and their variances.

    Columns that equal the first row everywhere are constant and become 0.
    """
    ops = ops_of(rows.X)
    reference = ops.to_host(rows.X[0]).astype(np.float64)
    with np.errstate(over="ignore"):
        X = ops.as_float64(rows.X) - ops.float64_like(reference, rows.X)
        statistics = TargetStatistics.of([(X, rows.weight)], len(reference))
    if not np.isfinite(statistics.target_squares).all():
        raise ValueError(
            f"entries of X differ by up to {statistics.largest_target.max():.3g}, the "
            "square of which overflows float64; scale the input down, for instance "
            "with sklearn.preprocessing.MaxAbsScaler."
        )
    deviation = np.sqrt(statistics.target_squares / statistics.weight_sum)
    varies = (statistics.largest_target > 0) & (deviation > 0)
    scale = np.where(varies, 1.0 / np.where(varies, deviation, 1.0), 0.0)
    shift = reference + statistics.target_mean
    return StandardisedMap(shift, scale, np.ones(len(scale))), deviation**2


def unit_targets(rows: ArrayRows, labelled: bool) -> tuple[ArrayRows, bool]:
    """Return rows with centred targets of total variance 1, and whether they vary."""
    statistics = rows.survey()
    squares = np.where(statistics.spread > 0, statistics.target_squares, 0.0)
    deviation = np.sqrt(squares / statistics.weight_sum)
    scales = np.where((deviation > 0) & (not labelled), deviation, 1.0)
    total = math.sqrt(((deviation / scales) ** 2).sum())
    return rows.rescaled(statistics.target_mean, scales * (total or 1.0)), total > 0


# -- ridge regression on transformed rows, and its gradients ----------------------


@dataclass(eq=False)
class GradientRidge:
    """f(u) = φ(u)·W + c with a plan, and Σ_i W_i k(u, u_i) + c without one."""

    kernel: Any
    plan: Plan | None
    rows: ArrayRows
    mapped: StandardisedMap

    @cached_property
    def _fitted(self) -> ArrayRows:
        return self.mapped(self.rows)

    @cached_property
    def _equations(self) -> NormalEquations:
        plan, rows = self.plan, self._fitted
        assert plan is not None
        total = NormalEquations.empty(plan.n_components, rows.n_targets, rows.like)
        total.add(plan, rows.X, rows.Y, rows.weight)
        return total

    @cached_property
    def _gram(self) -> Array:
        return exact_gram(self.kernel, self._fitted.X)

    def solve(self, alpha: float) -> tuple[Any, Any]:
        """Return weights, (D, k) or (n, k), and intercepts."""
        with ignoring(IllConditionedWarning):
            # The grid includes penalties that are too small for some kernels.
            if self.plan is None:
                gram = self._gram
                Y, weight = self._fitted.targets()
                none = np.zeros(0, dtype=int)  # no row is left out
                solution, intercept, _ = solve_dual(
                    ops_of(gram).copy(gram),
                    Y,
                    weight,
                    alpha,
                    fit_intercept=True,
                    left_out=none,
                )
            else:
                solved = self._equations.solve(
                    alpha, fit_intercept=True, overwrite=False
                )
                solution, intercept = solved.solution, solved.intercept
        return solution.value, intercept

    def values(self, U: Any) -> Any:
        """Return φ(u), or k(u, u_i), for the rows of U."""
        if self.plan is None:
            return self.kernel._gram(U, self._fitted.X)
        return evaluate(self.plan, U)

    def outer_products(self, weights: Array, full: bool) -> Any:
        """Return the mean of J(x)ᵀJ(x) over the rows, or its diagonal.

        J is the derivative with respect to the standardised columns.
        """
        rows = self.rows
        weight = rows.targets()[1]
        ops = ops_of(rows.X)
        d = rows.X.shape[1]
        total = ops.float64_zeros((d, d) if full else (d,), rows.X)
        for part, block in self.parts(rows):
            root = (weight[part] ** 0.5)[:, None]
            for gradient in self.gradients(weights, block):
                gradient = gradient * root
                total += gradient.T @ gradient if full else (gradient**2).sum(axis=0)
        return ops.to_host(total) / (float(weight.sum()) or 1.0)

    def parts(self, rows: ArrayRows) -> Iterator[tuple[slice, ArrayRows]]:
        """Yield parts of rows whose gradients take limited memory."""
        width = self.rows.n_rows if self.plan is None else self.plan.n_components
        block_rows = rows_within(_BLOCK_BYTES, 32 * width, at_least=16)
        for part in row_blocks(rows.n_rows, block_rows):
            yield part, rows.part(part.start, part.stop)

    def gradients(self, weights: Array, rows: ArrayRows) -> Iterator[Any]:
        """Yield the gradients of every output in the standardised columns, (n, d)."""
        U = self.mapped(rows).X
        ops = ops_of(rows.X)
        # The gradient in Ax, times A.
        back = ops.float64_like(self.mapped.root.T, U)
        if self.plan is not None:
            (group,) = self.plan.groups
            ((factor,),) = (group.factors for group in self.plan.groups)
            n_draws = factor.projection.n_draws
            basis = factor.inputs.apply(ops.algebra.identity(U.shape[1], U))
            frequencies = factor.projection.project(basis, 0, n_draws).T
            Z = evaluate(self.plan, U)
            for column in weights.T:
                every = ops.xp.broadcast_to(column, Z.shape)
                slopes = DrawSlopes(group, U, Z, every).phase
                yield applied(back, slopes @ frequencies)
            return
        scale, fitted = 1.0 / self.kernel.lengthscale, self._fitted.X
        squared = ops.scaled_squared_distances(U, fitted, scale, False)
        # K = f(s) has the gradient 2 f'(s) (u − v)/ℓ².
        slope = scale**2 * self.kernel._slope(squared)
        for column in weights.T:
            weighted = slope * column
            yield applied(back, weighted @ fitted - weighted.sum(axis=1)[:, None] * U)


def mean_products(
    first: tuple[GradientRidge, Any], second: tuple[GradientRidge, Any], rows: ArrayRows
) -> np.ndarray:
    """Return the mean over rows of products of two fits' gradients, per column."""
    weight = rows.targets()[1]
    total = ops_of(rows.X).float64_zeros(rows.X.shape[1], rows.X)
    for part, block in first[0].parts(rows):
        pairs = (ridge.gradients(weights, block) for ridge, weights in (first, second))
        for one, other in zip(*pairs, strict=True):
            total += weight[part] @ (one * other)
    return ops_of(total).to_host(total) / float(weight.sum())
