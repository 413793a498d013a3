"""Scores of penalties, by leave-one-out in closed form or on validation rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, reduce
from numbers import Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin

from randkern._random import Stream
from randkern.backend.namespace import ops_of
from randkern.data.training_data import ArrayRows
from randkern.kernels import Linear
from randkern.kernels.draw import fit_plan
from randkern.models.memory import block_rows
from randkern.models.normal_equations import NormalEquations, normal_equations_of
from randkern.models.ridge_path import DualPath, PrimalPath
from randkern.plan import Plan, evaluate
from randkern.solvers import mirror_upper

Split = tuple[np.ndarray, np.ndarray]
# Slices of rows, and their predictions at every penalty, (n_alphas, m, k).
Predictions = Iterator[tuple[slice, Any]]


# -- scores -----------------------------------------------------------------------


def squared_error(predictions: Predictions, Y: Any, weight: Any) -> np.ndarray:
    """Return the negative mean of w_i (y_i − ŷ_i)², (n_alphas,)."""
    ops = ops_of(Y)
    total = 0.0
    weight = ops.float64_ones(len(Y), Y) if weight is None else weight
    for rows, values in predictions:
        total = total + ((Y[rows] - values) ** 2).sum(axis=2) @ weight[rows]
    return -ops.to_host(total) / (float(weight.sum()) * Y.shape[1])


def scores_by(
    scorer: Callable[..., float],
    values: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray | None,
    classes: np.ndarray | None,
) -> np.ndarray:
    """Return a scikit-learn scorer's scores, (n_alphas,).

    `values` are predictions, or values of a decision function if there are classes,
    (n_alphas, n) or (n_alphas, n, k); `y` are the user's targets or labels.
    """
    weighted = {} if weight is None else {"sample_weight": weight}
    predictor = _Predictor() if classes is None else _LabelPredictor(classes)
    scores = [scorer(predictor, item, y, **weighted) for item in values]
    if not all(isinstance(score, Real) for score in scores):
        raise ValueError(
            f"scoring must return a number, got {scores[0]!r}; pass a scorer, for "
            "instance from sklearn.metrics.make_scorer."
        )
    return np.array(scores, dtype=float)


class _Predictor(RegressorMixin, BaseEstimator):
    """An estimator for scorers, whose rows are its predictions."""

    def predict(self, X: np.ndarray) -> np.ndarray:
        return X


class _LabelPredictor(ClassifierMixin, BaseEstimator):
    """A classifier whose rows are the values of its decision function."""

    def __init__(self, classes: np.ndarray):
        self.classes = self.classes_ = classes

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        return X

    def predict(self, X: np.ndarray) -> np.ndarray:
        if X.ndim == 1:
            return self.classes_[(X > 0).astype(int)]
        return self.classes_[X.argmax(axis=1)]


# -- more rows than features ------------------------------------------------------


class PrimalSearch:
    """The normal equations of D features at every penalty.

    Weights are positive. `spare` bytes are for cached features, in addition to
    :func:`primal_search_bytes`.
    """

    def __init__(
        self,
        plan: Plan,
        rows: ArrayRows,
        alphas: np.ndarray,
        fit_intercept: bool,
        spare: int,
    ):
        self.alphas = alphas
        self.fit_intercept = fit_intercept
        # Cached, plus a copy for the rows of a fold.
        cached_bytes = 2 * rows.n_rows * plan.n_components * rows.dtype.itemsize
        if cached_bytes <= spare:
            # Features as rows, and the plan of a linear kernel, which copies them.
            Z = evaluate(plan, rows.X)
            plan = fit_plan(Linear(), Z, None, plan.n_components, Stream(0))
            rows = ArrayRows(Z, rows.Y, rows.weight)
            spare = spare - cached_bytes
        self.plan = plan
        self.rows = rows
        self.spare = spare

    @cached_property
    def total(self) -> NormalEquations:
        """The statistics of all rows."""
        return normal_equations_of(self.rows, self.plan)

    def leave_one_out(self) -> Predictions:
        """Yield the prediction for each row by a fit without it."""
        path = self._path(self.total.copied())
        for block in self._blocks(self.rows):
            Z = evaluate(self.plan, block.X)
            yield block.rows, path.leave_one_out(Z, block.Y, block.weight)

    def generalised(self) -> np.ndarray:
        """Return minus the generalised cross-validation scores."""
        path = self._path(self.total.copied())
        rows = self.rows
        n = self.rows.n_rows
        D = self.plan.n_components
        score = squared_error(self._predicted(path, rows), rows.Y, rows.weight)
        return _penalised(score, (n - D + path.freedom) / n)

    def held_out(self, splits: list[Split]) -> Iterator[Predictions]:
        """Yield the predictions of each split."""
        training = self._training(splits)
        for (_, test), statistics in zip(splits, training, strict=True):
            yield self._predicted(self._path(statistics), self.rows.take(test))

    def _predicted(self, path: PrimalPath, rows: ArrayRows) -> Predictions:
        for block in self._blocks(rows):
            yield block.rows, path.predict(evaluate(self.plan, block.X))

    def _training(self, splits: list[Split]) -> Iterator[NormalEquations]:
        """Yield the statistics of each split's training rows, which may be overwritten.

        Those of a fold's rows are never subtracted from the total: if a held-out row
        outweighs all others, all digits of the difference would be lost.
        """
        needed = 8 * self.plan.n_components**2 * (2 + len(splits))
        if not _are_folds(splits, self.rows.n_rows) or needed > self.spare:
            for train, _ in splits:
                yield normal_equations_of(self.rows.take(train), self.plan)
            return
        parts = [
            normal_equations_of(self.rows.take(test), self.plan) for _, test in splits
        ]
        self.total = _added(parts)
        for fold in range(len(parts)):
            yield _added(parts[:fold] + parts[fold + 1 :])

    def _path(self, statistics: NormalEquations) -> PrimalPath:
        return PrimalPath.of(statistics, self.alphas, fit_intercept=self.fit_intercept)

    def _blocks(self, rows: ArrayRows) -> Iterator[ArrayRows]:
        """Yield blocks of rows whose features fit a block in float64."""
        width = self.plan.n_components + len(self.alphas) * rows.n_targets
        return rows.blocks(block_rows(8 * width, at_least=16))


def _added(parts: list[NormalEquations]) -> NormalEquations:
    """Return the sum of statistics."""
    return reduce(NormalEquations.absorb, parts[1:], parts[0].copied())


# -- more features than rows, or the exact kernel ---------------------------------


class DualSearch:
    """An n × n system at every penalty.

    `gram` is the upper triangle of the Gram matrix; the search overwrites it.
    """

    def __init__(
        self, gram: Any, rows: ArrayRows, alphas: np.ndarray, fit_intercept: bool
    ):
        self.gram = gram
        self.Y = rows.Y
        self.weight = rows.weight
        self.alphas = alphas
        self.fit_intercept = fit_intercept

    def leave_one_out(self) -> Predictions:
        """Yield the prediction for each row by a fit without it."""
        yield slice(0, len(self.Y)), self._path().leave_one_out()

    def generalised(self) -> np.ndarray:
        """Return minus the generalised cross-validation scores."""
        path = self._path()
        predictions = iter([(slice(0, len(self.Y)), self.Y - path.residuals())])
        score = squared_error(predictions, self.Y, self.weight)
        return _penalised(score, path.freedom / len(self.Y))

    def held_out(self, splits: list[Split]) -> Iterator[Predictions]:
        """Yield the predictions of each split."""
        gram = mirror_upper(self.gram)
        for train, test in splits:
            weight = None if self.weight is None else self.weight[train]
            among = gram[np.ix_(train, train)]
            path = DualPath.of(
                among,
                self.Y[train],
                weight,
                self.alphas,
                fit_intercept=self.fit_intercept,
            )
            predictions = path.predict(gram[np.ix_(test, train)])
            yield iter([(slice(0, len(test)), predictions)])

    def _path(self) -> DualPath:
        gram = ops_of(self.gram).copy(self.gram)
        return DualPath.of(
            gram, self.Y, self.weight, self.alphas, fit_intercept=self.fit_intercept
        )


def _penalised(score: np.ndarray, freedom: np.ndarray) -> np.ndarray:
    """Return the mean squared residuals over the squared share of freedom."""
    return score / np.maximum(freedom, np.finfo(float).eps) ** 2


def _are_folds(splits: list[Split], n: int) -> bool:
    """Return whether each row is tested once, by a fit on all rows not tested."""

    def divide(parts: Sequence[np.ndarray]) -> bool:
        """Return whether each row is in exactly one part, once."""
        return bool(np.all(np.bincount(np.concatenate(parts), minlength=n) == 1))

    return divide([test for _, test in splits]) and all(map(divide, splits))
