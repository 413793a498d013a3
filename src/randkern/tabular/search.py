"""The search for a kernel: by its evidence, from many rows by leave-one-out errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
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
    N_KEPT,
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
_FIRST_FORMS = ("Matern 3/2", "Laplacian L1")


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

    @property
    def kind(self) -> tuple[str, str, str]:
        """The form, the scaling of numbers and the metric of what starts from it."""
        return self.form, self.numbers, "diagonal"


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
    """Descents from several kernels and column encodings, refining the best.

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
        if folds is not None:  # of labels of 50 new groups, log loss would be .03 more
            by_evidence = folds.is_forward or not is_noisy(loss)
        self.criterion: type[Objective] = Evidence if by_evidence else LeaveOneOut

    # -- one descent ------------------------------------------------------------------

    def _kernel(self, form: str, numbers: str) -> Kernel:
        """Return a kernel with one lengthscale, the deviation of whole rows."""
        base, _, linear = form.partition(" + ")
        X = self.codes[numbers]
        deviation = math.sqrt(float(X.var(axis=0).sum()) or 1.0)
        if base == "Laplacian L1":
            deviation *= math.sqrt(X.shape[1])
        kernel = FORMS[base](np.full(X.shape[1], deviation))
        return kernel + LINEAR_WEIGHT * Linear() if linear else kernel

    def _objective(
        self,
        kernel: Kernel,
        form: str,
        numbers: str,
        rows: np.ndarray,
        origin: np.ndarray | None = None,
    ) -> Objective:
        """Return what is minimised for the rows at some positions of the sample."""
        table, ties = self.table, self.blocks[numbers]
        if "+" in form:
            ties = np.append(ties, ties.max() + 1)
        folds = None if table.folds is None else table.folds.take(rows)
        X, Y, weight = self.codes[numbers][rows], table.Y[rows], table.weight[rows]
        encoded = Table(X, Y, weight, folds=folds)
        is_in_time = self._is_in_time
        return self.criterion(kernel, encoded, ties, self.loss, is_in_time, origin)

    def _is_in_time(self) -> bool:
        """Return whether there is time for an evaluation; the floor always has it."""
        return len(self.trials) < FLOOR or not self.deadline.ends(self.step)

    def _objective_of(
        self, trial: Trial, rows: np.ndarray, origin: np.ndarray | None = None
    ) -> Objective:
        """Return the objective of a trial's kernel on some rows."""
        return self._objective(trial.kernel, trial.form, trial.numbers, rows, origin)

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
            n_rows=len(goal.X),
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
        began, kernel = working_seconds(), self._kernel(form, numbers)
        goal = self._objective(kernel, form, numbers, self.order[:n])
        n_scales = len(np.unique(self.blocks[numbers]))
        with suppress(OutOfTimeError):
            for spread, alpha in product(SPREADS, ALPHAS):
                theta = goal.start(alpha)
                theta[:n_scales] += math.log(spread)
                goal(theta)
        goal.origin = goal.best[1][:-1]
        return self._record(goal, (form, numbers, "none"), began)

    def descend(self, start: Trial, n: int, steps: int, form: str = "") -> Trial:
        """Learn a lengthscale per column, starting from another trial."""
        began, start = working_seconds(), self._in_form(start, form)
        goal = self._objective_of(start, self.order[:n], start.origin)
        goal.descend(start.theta, steps)
        return self._record(goal, start.kind, began)

    def _in_form(self, start: Trial, form: str) -> Trial:
        """Return a start for another form of kernel with the same lengthscales."""
        if form in ("", start.form):
            return start
        extra = [math.log(LINEAR_WEIGHT)] if "+" in form else []
        return replace(
            start,
            form=form,
            kernel=self._kernel(form, start.numbers),
            theta=np.concatenate([start.theta[:-1], extra, start.theta[-1:]]),
            origin=np.append(start.origin, extra),
        )

    def started(self, trial: Trial) -> Trial:
        """Return a trial with the θ of its kernel, which may have changed since."""
        goal = self._objective_of(trial, self.order[:2])
        return replace(trial, theta=goal.start(trial.alpha))

    def stream(self, start: Trial, n: int, steps: int, form: str = "") -> Trial:
        """Learn lengthscales from many rows, n different ones per step.

        `Adam` minimises the leave-one-out loss of n rows per step (Owhadi & Yoo 2019,
        "Kernel flows"); the result is the mean of the second half. There is no prior:
        lengthscales cannot overfit rows that are new in every step.
        """
        began, start = working_seconds(), self._in_form(start, form)
        low, high = (np.full_like(start.theta, b) for b in np.log(LENGTHSCALES))
        low[-1], high[-1] = np.log(PENALTIES)
        path = Adam(start.theta, low, high, steps)
        values: list[float] = []
        thetas: list[np.ndarray] = []
        for at in range(steps):
            rows = np.take(self.order, np.arange(at * n, (at + 1) * n), mode="wrap")
            goal = self._objective_of(start, rows)  # without an origin, no prior
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
        return self._record(goal, start.kind, began)

    def again(self, like: Trial) -> Trial:
        """Learn the kernel and metric of a trial from the rows of the order only."""
        n = len(self.order)
        start = self.isotropic(like.form, like.numbers, n)
        if like.metric == "none":
            return start
        return self.descend(start, n, RELEARNING_STEPS)

    # -- the search -------------------------------------------------------------------

    def run(self, plan: Plan) -> list[Trial]:
        """Return the best trials, refined ones first."""
        descents = (
            self._from_many if len(self.table) > SEARCHED_ONCE else self._from_few
        )
        trials = descents(plan)
        return kinds_first(trials)[:N_KEPT]

    def _from_few(self, plan: Plan) -> list[Trial]:
        """Descend on some rows, and refine the best on more."""
        trials: list[Trial] = []
        n, steps = plan.first_rows, plan.first_steps
        for form, numbers in self._first_choices():
            if trials and self._over:
                break
            trials.append(self.descend(self.isotropic(form, numbers, n), n, steps))
        for start, form in self._relatives(trials):
            if self._over:
                break
            trials.append(self.descend(start, n, -(-steps // 2), form))
        trials.sort(key=lambda trial: trial.objective)
        if plan.more_rows > n and not self.stopped:
            steps = -(-steps // 2)
            trials = self._best_refined(
                trials, lambda trial: self.descend(trial, plan.more_rows, steps)
            )
        # Many lengthscales may overfit few rows.
        isotropic = [trial for trial in self.trials if trial.metric == "none"]
        trials.append(min(isotropic, key=lambda trial: trial.objective))
        return trials

    def _from_many(self, plan: Plan) -> list[Trial]:
        """Stream rows from isotropic starts, first with all kernels for a few steps.

        Few rows hardly distinguish kernels, and lengthscales that are too long hardly
        recover, because the gradients in their logarithms vanish.
        """
        starts: list[Trial] = []
        for form, numbers in self._first_choices():
            if not (starts and self._over):
                starts.append(self.isotropic(form, numbers, plan.first_rows))
        pairs = [(start, start.form) for start in starts]
        trials: list[Trial] = []
        n = plan.more_rows
        for start, form in pairs + self._relatives(starts):
            if trials and self._over:
                break
            trials.append(self.stream(start, n, TRIED_STEPS, form))
        trials.sort(key=lambda trial: trial.objective)
        return self._best_refined(
            trials, lambda trial: self.stream(trial, n, STREAMED_STEPS)
        )

    def _first_choices(self) -> Iterator[tuple[str, str]]:
        for numbers in self.codes:
            for form in _FIRST_FORMS:
                yield form, numbers

    @staticmethod
    def _relatives(trials: Sequence[Trial]) -> list[tuple[Trial, str]]:
        """Return other forms of kernels, and the trials that they start from."""
        radial = [trial for trial in trials if trial.form == "Matern 3/2"]
        source = min(radial, key=lambda trial: trial.objective)
        best = min(trials, key=lambda trial: trial.objective)
        others = [(best, f"{best.form} + linear")]
        return others + [(source, form) for form in FORMS if form not in _FIRST_FORMS]

    def _best_refined(
        self, trials: list[Trial], refine: Callable[[Trial], Trial]
    ) -> list[Trial]:
        """Refine the best trials.

        The best of each metric and scaling of numbers come first: forms of the same
        metric end near each other, and few rows hardly distinguish metrics.
        """
        refined: list[Trial] = []
        trials = kinds_first(trials)
        for trial in trials[:N_REFINED]:
            if refined and self._over:
                break
            refined.append(refine(trial))
        refined.sort(key=lambda trial: trial.objective)
        return refined + trials[len(refined) :]


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
