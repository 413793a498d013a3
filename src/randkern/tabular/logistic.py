"""The parts of a classifier: logistic regression or least squares with a kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from randkern._memory import resolve_memory_limit
from randkern._random import Stream
from randkern.kernels import Kernel, Linear
from randkern.models import KernelLogistic, KernelRidgeClassifier
from randkern.models.dual_logistic import DualLogistic, DualWeights
from randkern.models.grid_descent import descended
from randkern.tabular.combine import mean_log_loss
from randkern.tabular.learning import COMPARISON
from randkern.tabular.model import MEMORY_LIMIT, fit_quietly
from randkern.tabular.presets import Deadline
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

    `share` is the penalty of logistic regression relative to least squares, None for
    least squares; `P` are probabilities of rows that the fits do not know, with loss
    `loss`. Those of kernels that do not know the row are decisions over `temperature`,
    where it is a number, and the model that is returned has to divide by it too: its
    own temperature is that of kernels that know all rows, which overestimate how
    certain they are.
    """

    trial: Trial
    share: float | None
    P: np.ndarray
    loss: float
    temperature: float | None = None


def fitted_part(
    part: Part,
    seed: int,
    encoded: Table,
    deadline: Deadline,
) -> Any:
    """Return the model of a part, fitted to encoded rows, with its temperature."""
    kernel = part.trial.kernel
    model: Any = logistic(kernel, strength(part), seed)
    if part.share is None:
        model = KernelRidgeClassifier(
            kernel,
            part.trial.alpha,
            None,
            solver="cholesky",
            fit_intercept=True,
            memory_limit=MEMORY_LIMIT,
            random_state=seed,
        )
    fit_quietly(model, encoded.X, encoded.labels, encoded.own_weight, deadline)
    if part.temperature is not None:
        model.temperature_ = part.temperature
        model.calibration_offset_ = 0.0 * model.calibration_offset_
    return model


def strength(part: Part) -> float:
    """Return C of logistic regression, the inverse of the penalty."""
    return 1 / ((part.share or 1.0) * part.trial.alpha)


class HeldOut:
    """Logistic regressions with several penalties, of a table but its first rows.

    They start from each other, and predict the first `n_held` rows.
    """

    def __init__(self, trial: Trial, table: Table, n_held: int, seed: int):
        self.trial, self.n_held = trial, n_held
        self.labels, self.own_weight = table.labels[:n_held], table.weight[:n_held]
        self.weight = table.weight * (np.arange(len(table)) >= n_held)
        self.is_constant = len(np.unique(table.labels[n_held:])) < 2
        self.dual = DualLogistic.of(
            with_constant(trial.kernel),
            table.X,
            table.Y,
            resolve_memory_limit(MEMORY_LIMIT),
            Stream(seed),
        )
        self._last: DualWeights | None = None

    def probabilities(self, share: float, stop: Callable[[Any], bool]) -> np.ndarray:
        """Return those of the held-out rows; all equal if others are of one class."""
        weight = self.weight / (share * self.trial.alpha)
        self._last = self.dual.minimise(weight, TOL, MAX_ITER, self._last, stop)
        F = self._last.values[: self.n_held] * (not self.is_constant)
        P = expit(np.hstack([-F, F])) if F.shape[1] == 1 else softmax(F, axis=1)
        return P.clip(MIN_CHANCE)


def with_best_penalty(
    trial: Trial,
    fits: Sequence[HeldOut],
    shares: Sequence[float],
    start: int,
    deadline: Deadline,
) -> Part:
    """Return the part with the smallest log loss of held-out rows.

    Its penalty is one of `shares` of that of least squares; the search moves from the
    one at `start` to neighbours. Its probabilities are those of the held-out rows.
    """
    labels = np.concatenate([fit.labels for fit in fits])
    weight = np.concatenate([fit.own_weight for fit in fits])

    def is_late(_: Any = None) -> bool:
        return deadline.ends(COMPARISON)

    def evaluate(at: int) -> Part:
        P = np.concatenate([fit.probabilities(shares[at], is_late) for fit in fits])
        return Part(trial, shares[at], P, mean_log_loss(P, labels, weight))

    return descended(evaluate, start, len(shares), is_late)
