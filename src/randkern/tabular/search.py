"""The search for a kernel: by its evidence, from many rows by leave-one-out errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from randkern.backend.compiled_loops import working_seconds
from randkern.kernels import Gaussian, Kernel, Laplacian, Linear, Matern
from randkern.tabular.objectives import (
    LENGTHSCALES,
    PENALTIES,
    Evidence,
    LeaveOneOut,
    Loss,
    Objective,
    OutOfTimeError,
    is_noisy,
)
from randkern.tabular.presets import (
    ALPHAS,
    FLOOR,
    LINEAR_WEIGHT,
    N_REFINED,
    RELEARNING_STEPS,
    SEARCHED_ONCE,
    SPREADS,
    STREAMED_STEPS,
    TRIED_STEPS,
    Deadline,
    Plan,
)
from randkern.tabular.rows import Table

FORMS: dict[str, Callable[[Any], Kernel]] = {
    "Matern 3/2": lambda lengthscale: Matern(1.5, lengthscale),
    "Laplacian L1": Laplacian,
    "Gaussian": Gaussian,
}
_AND_LINEAR = " + linear"


@dataclass(frozen=True)
class Trial:
    """A kernel with its penalty, and its leave-one-out error.

    `error` is the root mean squared error relative to predicting the mean of the
    targets.
    """

    form: str
    numbers: str
    metric: str
    kernel: Kernel
    alpha: float
    error: float
    n_rows: int
    seconds: float
    theta: np.ndarray
    origin: np.ndarray
    objective: float


class Adam:
    """The path of Adam (Kingma & Ba 2015) in θ, between bounds.

    Steps have about the length 0.15, in logarithms, which changes a lengthscale by a
    sixth; in the second half of the path they get shorter. Running means of gradients
    and of their squares decay as usual, but the squares faster (0.99), as a path has
    some 40 steps.
    """

    def __init__(
        self, theta: np.ndarray, low: np.ndarray, high: np.ndarray, steps: int
    ):
        self.theta, self.low, self.high, self.steps = theta, low, high, steps
        self._slope, self._square, self._taken = 0.0 * theta, 0.0 * theta, 0

    def step(self, gradient: np.ndarray) -> None:
        """Move θ against the gradient of a loss there."""
        left = min(1.0, 2 * (1 - self._taken / self.steps))
        self._taken += 1
        self._slope += (1 - 0.9) * (gradient - self._slope)
        self._square += (1 - 0.99) * (gradient**2 - self._square)
        size = np.sqrt(self._square / (1 - 0.99**self._taken)) + 1e-12
        step = self._slope / (1 - 0.9**self._taken) / size
        self.theta = np.clip(self.theta - 0.15 * left * step, self.low, self.high)


class KernelSearch:
    """Descents from several kernels and column encodings, continuing the best.

    For each way of scaling numbers, `codes` are the encoded rows of `table`, and
    `blocks` the blocks of columns that share a lengthscale. The rows are used in
    `order`. All trials are in `trials`. The search ends with the deadline of its
    `step`, but not before the first three kernels, or if `report`, called with every
    trial, says so: it is then `stopped`. Up to 2,500 rows, and targets of groups or in
    time, are learned by their evidence; more, and labels of groups, by the
    leave-one-out loss.
    """

    def __init__(
        self,
        codes: dict[str, np.ndarray],
        blocks: dict[str, np.ndarray],
        table: Table,
        order: np.ndarray,
        loss: Loss,
        deadline: Deadline,
        step: str,
        report: Callable[[Trial], bool] = lambda _: False,
    ):
        self.codes, self.blocks, self.table, self.order = codes, blocks, table, order
        self.loss, self.deadline = loss, deadline
        self.step, self.report = step, report
        self.trials: list[Trial] = []
        self.stopped = False
        folds, by_evidence = table.folds, len(table) <= SEARCHED_ONCE
        if not folds.are_rows:  # of labels of 50 new groups, log loss would be .03 more
            by_evidence = folds.is_forward or not is_noisy(loss)
        self.criterion: type[Objective] = Evidence if by_evidence else LeaveOneOut

    # -- one descent ------------------------------------------------------------------

    def _kernel(self, form: str, numbers: str) -> Kernel:
        """Return a kernel with one lengthscale, the deviation of whole rows."""
        X = self.codes[numbers]
        deviation = math.sqrt(float(X.var(axis=0).sum()) or 1.0)
        name = form.removesuffix(_AND_LINEAR)
        if name == "Laplacian L1":
            deviation *= math.sqrt(X.shape[1])
        kernel = FORMS[name](np.full(X.shape[1], deviation))
        return kernel if name == form else kernel + LINEAR_WEIGHT * Linear()

    def _objective(
        self,
        kernel: Kernel,
        numbers: str,
        rows: np.ndarray,
        origin: np.ndarray | None = None,
    ) -> Objective:
        """Return what is minimised for the rows at some positions of the sample."""
        encoded = [replace(self.table, X=self.codes[numbers]).take(rows)]
        blocks, is_in_time = self.blocks[numbers], self._is_in_time
        return self.criterion(kernel, encoded, blocks, self.loss, is_in_time, origin)

    def _is_in_time(self) -> bool:
        """Return whether there is time for an evaluation; the floor always has it."""
        return len(self.trials) < FLOOR or not self.deadline.ends(self.step)

    def _record(
        self, goal: Objective, kind: tuple[str, str, str], began: float
    ) -> Trial:
        """Report the best point of an objective as a trial of this kind."""
        value, theta = goal.best
        trial = Trial(
            *kind,
            kernel=goal.kernel(theta),
            alpha=goal.alpha(theta),
            error=goal.error(theta),
            n_rows=len(goal.tables[0]),
            seconds=working_seconds() - began,
            theta=theta,
            origin=goal.origin,
            objective=value,
        )
        self.trials.append(trial)
        self.stopped = self.report(trial) or self.stopped
        return trial

    @property
    def _over(self) -> bool:
        return self.stopped or not self._is_in_time()

    def isotropic(self, form: str, numbers: str, n: int) -> Trial:
        """Return the best of some kernels with one lengthscale."""
        began = working_seconds()
        goal = self._objective(self._kernel(form, numbers), numbers, self.order[:n])
        n_lengthscales = self.blocks[numbers].max(initial=-1) + 1
        with suppress(OutOfTimeError):
            for spread, alpha in product(SPREADS, ALPHAS):
                theta = goal.start(alpha)
                theta[:n_lengthscales] += math.log(spread)
                goal(theta)
        goal.origin = goal.best[1][:-1]
        return self._record(goal, (form, numbers, "none"), began)

    def descend(self, start: Trial, n: int, steps: int) -> Trial:
        """Learn a lengthscale per column, starting from another trial."""
        began = working_seconds()
        goal = self._objective(
            start.kernel, start.numbers, self.order[:n], start.origin
        )
        goal.descend(start.theta, steps)
        return self._record(goal, (start.form, start.numbers, "diagonal"), began)

    def stream(self, start: Trial, n: int, steps: int) -> Trial:
        """Learn lengthscales from many rows, n different ones per step.

        `Adam` minimises the leave-one-out loss of n rows per step (Owhadi & Yoo 2019,
        "Kernel flows"); the result is the mean of the second half. There is no prior:
        lengthscales cannot overfit rows that are new in every step.
        """
        began = working_seconds()
        low, high = (np.full_like(start.theta, b) for b in np.log(LENGTHSCALES))
        low[-1], high[-1] = np.log(PENALTIES)
        path = Adam(start.theta, low, high, steps)
        values: list[float] = []
        thetas: list[np.ndarray] = []
        for at in range(steps):
            rows = np.take(self.order, np.arange(at * n, (at + 1) * n), mode="wrap")
            goal = self._objective(start.kernel, start.numbers, rows)
            _, gradient = goal(path.theta)
            if goal.best[1] is not None:
                values.append(goal.best[0])
                thetas.append(path.theta)
            path.step(gradient)
            if values and self._over:
                break
        half = len(values) // 2
        if not values:
            return replace(start, objective=math.inf)
        goal.best = float(np.mean(values[half:])), np.mean(thetas[half:], axis=0)
        goal.origin = start.origin
        return self._record(goal, (start.form, start.numbers, "diagonal"), began)

    def again(self, like: Trial) -> Trial:
        """Learn the kernel and metric of a trial from the rows of the order only."""
        n = len(self.order)
        start = self.isotropic(like.form, like.numbers, n)
        if like.metric == "none":
            return start
        return self.descend(start, n, RELEARNING_STEPS)

    # -- the search -------------------------------------------------------------------

    def run(self, plan: Plan) -> list[Trial]:
        """Return the best trials, those that were continued first."""
        few = len(self.table) <= SEARCHED_ONCE
        return kinds_first(self._from_few(plan) if few else self._from_many(plan))

    def _from_few(self, plan: Plan) -> list[Trial]:
        """Descend on some rows, and continue the best on more."""
        n, steps = plan.first_rows, plan.first_steps
        trials: list[Trial] = []
        for numbers, form in product(self.codes, FORMS):
            if trials and self._over:
                break
            trials.append(self.descend(self.isotropic(form, numbers, n), n, steps))
        trials.sort(key=lambda trial: trial.objective)
        if not (is_noisy(self.loss) or self._over):
            # Linear targets without noise are then predicted to rounding.
            start = self.isotropic(trials[0].form + _AND_LINEAR, trials[0].numbers, n)
            trials.append(self.descend(start, n, steps))
            trials.sort(key=lambda trial: trial.objective)
        if plan.more_rows > n and not self.stopped:
            steps = -(-steps // 2)
            trials = self._continued(
                trials, lambda trial: self.descend(trial, plan.more_rows, steps)
            )
        # Many lengthscales may overfit few rows.
        isotropic = [trial for trial in self.trials if trial.metric == "none"]
        return [*trials, min(isotropic, key=lambda trial: trial.objective)]

    def _from_many(self, plan: Plan) -> list[Trial]:
        """Stream rows from isotropic starts, first with all kernels for a few steps.

        Few rows hardly distinguish kernels, and lengthscales that are too long hardly
        recover, because the gradients in their logarithms vanish.
        """
        n = plan.more_rows
        trials: list[Trial] = []
        for numbers, form in product(self.codes, FORMS):
            if trials and self._over:
                break
            start = self.isotropic(form, numbers, plan.first_rows)
            trials.append(self.stream(start, n, TRIED_STEPS))
        trials.sort(key=lambda trial: trial.objective)
        return self._continued(
            trials, lambda trial: self.stream(trial, n, STREAMED_STEPS)
        )

    def _continued(
        self, trials: list[Trial], learn: Callable[[Trial], Trial]
    ) -> list[Trial]:
        """Continue the best trials.

        The best of each scaling of numbers come first: forms of the same scaling end
        near each other, and few rows hardly distinguish scalings.
        """
        continued: list[Trial] = []
        trials = kinds_first(trials)
        for trial in trials[:N_REFINED]:
            if continued and self._over:
                break
            continued.append(learn(trial))
        continued.sort(key=lambda trial: trial.objective)
        return continued + trials[len(continued) :]


def kinds_first(trials: Sequence[Trial]) -> list[Trial]:
    """Return first the best of each scaling with a metric, and of each form, first."""
    firsts = {(trial.numbers, trial.metric): trial for trial in reversed(trials)}
    forms = {trial.form: trial for trial in reversed(trials)}
    is_other = [
        (trial is not firsts[trial.numbers, trial.metric])
        + (trial is not forms[trial.form])
        for trial in trials
    ]
    return [trials[at] for at in np.argsort(is_other, kind="stable")]
