"""Logistic regression with an exact kernel, and its penalty by rows held out of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin

from randkern._fitting import is_late
from randkern._random import Stream
from randkern.kernels import Kernel, Linear
from randkern.kernels.default import TakesKernel
from randkern.models._feature_model import predict_by_rows
from randkern.models.calibration import LogitsOfDecisions
from randkern.models.dual_logistic import DualLogistic, DualWeights
from randkern.models.grid_descent import descended
from randkern.tabular.presets import COMPARISON, FIRST_STRENGTH, STRENGTHS, Deadline
from randkern.tabular.rows import Table
from randkern.tabular.search import Trial
from randkern.tabular.target_encoding import codes_of_targets

# A fit ends when its objective exceeds the minimum by this share at most, or after so
# many products with the kernel, of whose values so many bytes are stored.
_TOL = 1e-3
_MAX_ITER = 300
_MEMORY_LIMIT = 3 * 10**9
_MIN_CHANCE = 1e-8


def with_constant(kernel: Kernel) -> Kernel:
    """Return the sum of a kernel and a constant, which acts as an intercept."""
    return kernel + Linear(1.0, columns=[])


def dual_logistic(kernel: Kernel, X: np.ndarray, signs: np.ndarray) -> DualLogistic:
    """Return the problem of a fit to rows, for any C and weights."""
    options = _MEMORY_LIMIT, Stream(0)
    return DualLogistic.of(with_constant(kernel), X, signs, *options)


class ExactLogistic(LogitsOfDecisions, ClassifierMixin, TakesKernel):
    """Logistic regression with the exact kernel, Σ_i a_i (k(x, x_i) + 1).

    It predicts what :class:`~randkern.KernelLogistic` does with the sum of the kernel
    and a constant in place of an intercept.
    """

    X: np.ndarray
    dual: np.ndarray
    intercept: Any
    _temperature = 1.0

    def __init__(self, kernel: Kernel | None = None, C: float = 1.0):
        self.kernel = kernel
        self.C = C

    def fit(
        self, X: np.ndarray, y: np.ndarray, sample_weight: np.ndarray | None = None
    ) -> ExactLogistic:
        """Fit the rows; once it is late, with a single step."""
        self.classes_ = np.unique(y)
        weight = np.ones(len(X)) if sample_weight is None else sample_weight
        problem = dual_logistic(
            self._kernel_or_default, X, codes_of_targets(y, True, len(y))
        )
        solution = problem.minimise(
            self.C * weight, _TOL, _MAX_ITER, report=lambda _: is_late()
        )
        dual = solution.weights
        self.X, self.dual = X, dual[:, 0] if dual.shape[1] == 1 else dual
        self.intercept = self.dual.sum(axis=0)
        return self

    def _values(self, X: np.ndarray) -> np.ndarray:
        kernel = self._kernel_or_default
        return predict_by_rows(kernel, self.X, self.dual, X) + self.intercept

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


class HeldOut:
    """Fits to the known rows of a table with one C after another.

    They start from each other, and predict the rows that are held out.
    """

    def __init__(
        self, problem: DualLogistic, table: Table, known: np.ndarray, held: np.ndarray
    ):
        self.problem, self.held = problem, held
        self.labels, self.weight = table.labels[held], table.weight[held]
        self.strength = np.zeros(len(table))
        self.strength[known] = table.weight[known]
        # Rows of one class say nothing of the others.
        self.varies = len(np.unique(table.labels[known])) > 1
        self._last: DualWeights | None = None

    def chances(self, C: float, stop: Callable[[Any], bool]) -> np.ndarray:
        """Return the probabilities of the labels of rows that are held out."""
        options = _TOL, _MAX_ITER, self._last, stop
        self._last = self.problem.minimise(C * self.strength, *options)
        F = self._last.values[self.held] * self.varies
        P = expit(np.hstack([-F, F])) if F.shape[1] == 1 else softmax(F, axis=1)
        return P[np.arange(len(P)), self.labels].clip(_MIN_CHANCE)


@dataclass(frozen=True)
class Part:
    """A candidate for a member of the model.

    `chances` are the probabilities of the labels of rows that the fits do not know, of
    these weights, and `loss` is the log loss.
    """

    trial: Trial
    C: float
    chances: np.ndarray
    weight: np.ndarray
    loss: float


def with_best_strength(
    trial: Trial, fits: Sequence[HeldOut], deadline: Deadline
) -> Part:
    """Return the part with the smallest log loss of the rows that are held out."""
    weight = np.concatenate([fit.weight for fit in fits])

    def is_over(_: Any = None) -> bool:
        return deadline.ends(COMPARISON)

    def evaluate(at: int) -> Part:
        C = STRENGTHS[at]
        chances = np.concatenate([fit.chances(C, is_over) for fit in fits])
        loss = -float(np.average(np.log(chances), weights=weight))
        return Part(trial, C, chances, weight, loss)

    start, n = STRENGTHS.index(FIRST_STRENGTH), len(STRENGTHS)
    return descended(evaluate, start, n, is_over)
