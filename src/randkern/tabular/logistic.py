"""The parts of a classifier: logistic regression with a kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from randkern._memory import resolve_memory_limit
from randkern._random import Stream
from randkern.kernels import Kernel, Linear
from randkern.models import KernelLogistic
from randkern.models.dual_logistic import DualLogistic, DualWeights
from randkern.models.grid_descent import descended
from randkern.tabular.combine import mean_log_loss
from randkern.tabular.learning import COMPARISON
from randkern.tabular.model import MEMORY_LIMIT
from randkern.tabular.presets import STRENGTHS, Deadline
from randkern.tabular.rows import Table
from randkern.tabular.search import Trial

MIN_CHANCE = 1e-8
MAX_ITER = 300
TOL = 1e-3


def logistic(kernel: Any, C: float, seed: int) -> KernelLogistic:
    """Return an unfitted model with the exact kernel."""
    return KernelLogistic(
        with_constant(kernel),
        fit_intercept=False,
        C=C,
        n_components=None,
        tol=TOL,
        max_iter=MAX_ITER,
        memory_limit=MEMORY_LIMIT,
        random_state=seed,
    )


def with_constant(kernel: Kernel) -> Kernel:
    """Return the sum of a kernel and a constant, which acts as an intercept."""
    return kernel + Linear(1.0, columns=[])


@dataclass(frozen=True)
class Part:
    """A candidate for a member of the model.

    `P` are probabilities of rows that the fits do not know, with loss `loss`.
    """

    trial: Trial
    C: float
    P: np.ndarray
    loss: float


class HeldOut:
    """Logistic regressions with several C, of a table but its first rows.

    They start from each other, and predict the first `n_held` rows.
    """

    def __init__(self, kernel: Kernel, table: Table, n_held: int, seed: int):
        self.n_held = n_held
        self.labels, self.own_weight = table.labels[:n_held], table.weight[:n_held]
        self.weight = table.weight * (np.arange(len(table)) >= n_held)
        self.is_constant = len(np.unique(table.labels[n_held:])) < 2
        self.dual = DualLogistic.of(
            with_constant(kernel),
            table.X,
            table.Y,
            resolve_memory_limit(MEMORY_LIMIT),
            Stream(seed),
        )
        self._last: DualWeights | None = None

    def probabilities(self, C: float, stop: Callable[[Any], bool]) -> np.ndarray:
        """Return those of the held-out rows; all equal if others are of one class."""
        options = TOL, MAX_ITER, self._last, stop
        self._last = self.dual.minimise(C * self.weight, *options)
        F = self._last.values[: self.n_held] * (not self.is_constant)
        P = expit(np.hstack([-F, F])) if F.shape[1] == 1 else softmax(F, axis=1)
        return P.clip(MIN_CHANCE)


def with_best_strength(
    trial: Trial,
    fits: Sequence[HeldOut],
    start: float,
    deadline: Deadline,
    most: float = STRENGTHS[-1],
) -> Part:
    """Return the part with the smallest log loss of held-out rows.

    Its C is one of `STRENGTHS`, up to `most`; the search moves from `start` to
    neighbours. Its probabilities are those of the held-out rows.
    """
    labels = np.concatenate([fit.labels for fit in fits])
    weight = np.concatenate([fit.own_weight for fit in fits])

    def is_late(_: Any = None) -> bool:
        return deadline.ends(COMPARISON)

    def evaluate(at: int) -> Part:
        C = STRENGTHS[at]
        P = np.concatenate([fit.probabilities(C, is_late) for fit in fits])
        return Part(trial, C, P, mean_log_loss(P, labels, weight))

    n = STRENGTHS.index(most) + 1
    return descended(evaluate, STRENGTHS.index(start), n, is_late)
