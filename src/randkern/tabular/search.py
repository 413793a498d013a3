"""The search for a kernel: by its evidence, from many rows by leave-one-out errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from randkern._random import Stream
from randkern.backend.compiled_loops import working_seconds
from randkern.kernels import Gaussian, Kernel, Laplacian, Linear, Matern
from randkern.tabular.folds import Folds
from randkern.tabular.leave_one_out import (
    LENGTHSCALES,
    PENALTIES,
    Evidence,
    LeaveOneOut,
    Loss,
    OutOfTimeError,
    is_noisy,
    log_squares,
)
from randkern.tabular.trials import Trial, TrialLog, kinds_first
from randkern.tabular.work import Stage, evaluation_seconds, largest

FORMS: dict[str, Callable[[Any], Kernel]] = {
    "Matern 3/2": lambda lengthscale: Matern(1.5, lengthscale),
    "Laplacian L1": Laplacian,
    "Gaussian": Gaussian,
}
_FIRST_FORMS = ("Matern 3/2", "Laplacian L1")
_LINEAR_WEIGHT = 0.1
# Isotropic starts: lengthscales relative to the deviation of whole rows, and penalties.
_SPREADS = (0.5, 1.5, 5.0)
_ALPHAS = (1e-1, 1e-3)
# Precisions of the normal prior on the logarithms of learned numbers, centred at the
# start, for targets and for labels: without it, lengthscales overfit few rows.
_PRECISIONS = (0.3, 1.0)
# Smaller leave-one-out errors, relative to predicting the mean, are those of targets
# (almost) without noise, which kernels do not overfit. The logarithm of their squared
# errors falls without bound where a kernel predicts exactly, faster than the evidence.
NOISELESS = 0.01


@dataclass(frozen=True)
class SearchPlan:
    """How many rows, starts and steps a search uses.

    Attributes
    ----------
    first_rows, max_rows : int
        Rows of the first descents, and the most of the refined ones; from more rows,
        every step of a descent uses others.
    least_rows, fewest_rows : int
        The fewest rows of first descents, and of a comparison of isotropic kernels
        where even these would take too long.
    first_share : float
        Share of the work for the first descents.
    first_evaluations, isotropic_evaluations : int
        About how often they evaluate the objective, and how often isotropic kernels do.
    first_steps, refined_steps : int
        Steps of first descents, and of those that continue with more rows.
    n_refined : int
        How many of the first trials are continued.
    tried_steps, streamed_steps : int
        Steps of streams of rows: first ones, and those that continue them.
    relearning_steps, relearning_evaluations : int
        Steps of learning a kernel again without a fold, and about how many evaluations
        they take.
    n_kept : int
        Trials that may become part of the model.
    """

    first_rows: int = 600
    max_rows: int = 2500
    least_rows: int = 200
    fewest_rows: int = 20
    first_share: float = 0.55
    first_evaluations: int = 300
    isotropic_evaluations: int = 24
    first_steps: int = 30
    refined_steps: int = 15
    n_refined: int = 3
    tried_steps: int = 12
    streamed_steps: int = 40
    relearning_steps: int = 20
    relearning_evaluations: int = 32
    n_kept: int = 10


PLAN = SearchPlan()


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

    For each way of scaling numbers, `rows` are the encoded rows, and `blocks` the
    blocks of columns that share a lengthscale. The search ends with the work of its
    stage, or if `report`, called with every trial, says so. Up to 2,500 rows, kernels
    are learned by their evidence; from more, or of targets without noise, by the
    leave-one-out loss. Parts of a search (`within`, `by`) are searches of their own,
    with the same log.
    """

    def __init__(
        self,
        rows: dict[str, np.ndarray],
        blocks: dict[str, np.ndarray],
        Y: np.ndarray,
        weight: np.ndarray,
        stage: Stage,
        stream: Stream,
        report: Callable[[Trial], bool],
        loss: Loss = log_squares,
        folds: Folds | None = None,
    ):
        self.loss, self.precision = loss, _PRECISIONS[is_noisy(loss)]
        self.folds = folds
        few = len(Y) <= PLAN.max_rows and folds is None
        self.criterion = Evidence if few else LeaveOneOut
        self.rows, self.blocks, self.Y, self.weight = rows, blocks, Y, weight
        self.stage = stage
        self.log = TrialLog(report)
        self.order = stream.generator().permutation(len(Y))
        # Those of this criterion.
        self.trials: list[Trial] = []

    def within(self, stage: Stage) -> KernelSearch:
        """Return this search within another stage."""
        part = copy(self)
        part.stage = stage
        return part

    def by(self, criterion: type[LeaveOneOut]) -> KernelSearch:
        """Return a search by another criterion, with values that do not compare."""
        other = copy(self)
        other.criterion, other.trials = criterion, []
        return other

    # -- one descent ------------------------------------------------------------------

    def _kernel(self, form: str, numbers: str, spread: float) -> Kernel:
        base, _, linear = form.partition(" + ")
        X = self.rows[numbers]
        deviation = math.sqrt(float(X.var(axis=0).sum()) or 1.0)
        if base == "Laplacian L1":
            deviation *= math.sqrt(X.shape[1])
        kernel = FORMS[base](np.full(X.shape[1], spread * deviation))
        return kernel + _LINEAR_WEIGHT * Linear() if linear else kernel

    def _ties(self, form: str, numbers: str) -> np.ndarray:
        blocks = self.blocks[numbers]
        return np.append(blocks, blocks.max() + 1) if "+" in form else blocks

    def _objective(
        self,
        kernel: Kernel,
        form: str,
        numbers: str,
        rows: np.ndarray,
        precision: float | None = None,
    ) -> LeaveOneOut:
        return self.criterion(
            kernel,
            self.rows[numbers][rows],
            self.Y[rows],
            self.weight[rows],
            self._ties(form, numbers),
            partial(self._spend, len(rows)),
            self.loss,
            self.precision if precision is None else precision,
            None if self.folds is None else self.folds.take(rows),
        )

    def _spend(self, n: int) -> bool:
        """Charge an evaluation on n rows, and return whether there was time for it."""
        is_allowed = not self.stage.over
        self.stage.work.charge(self._seconds(n))
        return is_allowed

    def _seconds(self, n: int) -> float:
        """Return the work of an evaluation on n rows."""
        n_columns = len(self.blocks[next(iter(self.blocks))])
        return evaluation_seconds(n, n_columns, self.Y.shape[1])

    def _objective_of(
        self, trial: Trial, rows: np.ndarray, precision: float | None = None
    ) -> LeaveOneOut:
        """Return the objective of a trial's kernel on some rows."""
        kind = trial.kernel, trial.form, trial.numbers
        return self._objective(*kind, rows, precision)

    def _record(
        self,
        goal: LeaveOneOut,
        kind: tuple[str, str, str],
        began: float,
    ) -> Trial:
        """Report the best point of an objective as a trial of this kind."""
        value, theta, error = goal.best
        trial = Trial(
            *kind,
            kernel=goal.kernel(theta),
            alpha=goal.alpha(theta),
            error=error,
            n_rows=len(goal.X),
            seconds=working_seconds() - began,
            theta=theta,
            origin=goal.origin,
            objective=value,
        )
        self.trials.append(trial)
        self.log.add(trial)
        return trial

    @property
    def _over(self) -> bool:
        return self.log.stopped or self.stage.over

    def isotropic(self, form: str, numbers: str, n: int) -> Trial:
        """Return the best of some kernels with one lengthscale."""
        began = working_seconds()
        best: Any = None
        for spread in _SPREADS:
            kernel = self._kernel(form, numbers, spread)
            goal = self._objective(kernel, form, numbers, self.order[:n])
            with suppress(OutOfTimeError):
                for alpha in _ALPHAS:
                    goal(goal.start(alpha))
            if best is None or goal.best[0] < best.best[0]:
                best = goal
            if self._over and best.best[1] is not None:
                break
        best.origin = best.best[1][:-1]
        return self._record(best, (form, numbers, "none"), began)

    def descend(self, start: Trial, n: int, steps: int, form: str = "") -> Trial:
        """Learn a lengthscale per column, starting from another trial."""
        return self._descend(start, self.order[:n], steps, form)

    def _descend(
        self, start: Trial, rows: np.ndarray, steps: int, form: str = ""
    ) -> Trial:
        began, start = working_seconds(), self._in_form(start, form)
        goal = self._objective_of(start, rows)
        goal.origin = start.origin
        goal.descend(start.theta, steps)
        return self._record(goal, start.kind, began)

    def _in_form(self, start: Trial, form: str) -> Trial:
        """Return a start for another form of kernel with the same lengthscales."""
        if form in ("", start.form):
            return start
        extra = [math.log(_LINEAR_WEIGHT)] if "+" in form else []
        return replace(
            start,
            form=form,
            kernel=self._kernel(form, start.numbers, 1.0),
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
        values: list[tuple[float, float]] = []
        thetas: list[np.ndarray] = []
        for at in range(steps):
            rows = np.take(self.order, np.arange(at * n, (at + 1) * n), mode="wrap")
            goal = self._objective_of(start, rows, 0.0)
            _, gradient = goal(path.theta)
            if goal.best[1] is not None:
                values.append((goal.best[0], goal.best[2]))
                thetas.append(path.theta)
            path.step(gradient)
            if values and self._over:
                break
        half = len(values) // 2
        if not values:
            return replace(start, objective=math.inf)
        objective, error = np.mean(values[half:], axis=0).tolist()
        theta = np.mean(thetas[half:], axis=0)
        goal.best, goal.origin = (objective, theta, error), start.origin
        return self._record(goal, start.kind, began)

    def again(self, like: Trial, rows: np.ndarray) -> Trial:
        """Learn the kernel and metric of a trial from these rows only."""
        self.order, n = rows, len(rows)
        start = self.isotropic(like.form, like.numbers, n)
        if like.metric == "none":
            return start
        return self.descend(start, n, PLAN.relearning_steps)

    # -- the search -------------------------------------------------------------------

    def run(self) -> list[Trial]:
        """Return the best trials, refined ones first."""
        seconds = PLAN.first_share * self.stage.left
        trials = self._descents(seconds)
        is_exact = trials[0].error < NOISELESS and not is_noisy(self.loss)
        if self.criterion is Evidence and is_exact and not self._over:
            other = self.by(LeaveOneOut)
            exact = other._continued(other._descents(seconds))
            # Objectives of the two criteria are not comparable, but errors are.
            trials = exact if exact[0].error < trials[0].error else trials
        return kinds_first(trials)[: PLAN.n_kept]

    def _descents(self, seconds: float) -> list[Trial]:
        """Return all trials, of which the first ones take about `seconds` of work."""
        first, n = self.within(self.stage.part(seconds)), self._first_rows(seconds)
        from_rows = self._from_many if len(self.Y) > PLAN.max_rows else self._from_few
        return from_rows(first, n)

    def _continued(self, trials: list[Trial]) -> list[Trial]:
        """Continue the best descent as long as it halves the error."""
        while not self._over:
            trial = self.descend(trials[0], trials[0].n_rows, PLAN.first_steps)
            if not trial.error < trials[0].error / 2:
                break
            trials = [trial, *trials]
        return trials

    def _from_few(self, first: KernelSearch, n: int) -> list[Trial]:
        """Descend on n rows, refine the best on more, and try other starts."""
        trials: list[Trial] = []
        for form, numbers in self._first_choices():
            if trials and first._over:
                break
            start = first.isotropic(form, numbers, n)
            trials.append(first.descend(start, n, PLAN.first_steps))
        for start, form in self._relatives(trials):
            if first._over:
                break
            trials.append(first.descend(start, n, PLAN.first_steps // 2, form))
        trials.sort(key=lambda trial: trial.objective)
        more = self._planned_rows(PLAN.n_refined * PLAN.refined_steps, n)
        if more > n and not self.log.stopped:

            def refine(part: KernelSearch, trial: Trial) -> Trial:
                return part.descend(trial, more, PLAN.refined_steps)

            trials = self._best_refined(trials, refine)
        # Many lengthscales may overfit few rows.
        isotropic = [trial for trial in self.trials if trial.metric == "none"]
        trials.append(min(isotropic, key=lambda trial: trial.objective))
        return trials

    def _from_many(self, first: KernelSearch, n: int) -> list[Trial]:
        """Stream rows from isotropic starts, first with all kernels for a few steps.

        Few rows hardly distinguish kernels, and lengthscales that are too long hardly
        recover, because the gradients in their logarithms vanish.
        """
        starts: list[Trial] = []
        for form, numbers in self._first_choices():
            if not (starts and first._over):
                starts.append(first.isotropic(form, numbers, n))
        pairs = [(start, start.form) for start in starts]
        pairs += self._relatives(starts)
        steps = len(pairs) * PLAN.tried_steps + PLAN.n_refined * PLAN.streamed_steps
        n = self._planned_rows(steps, n)
        share = len(pairs) * PLAN.tried_steps / steps
        part = self.within(self.stage.part(share * self.stage.left))
        trials: list[Trial] = []
        for start, form in pairs:
            if trials and part._over:
                break
            trials.append(part.stream(start, n, PLAN.tried_steps, form))
        trials.sort(key=lambda trial: trial.objective)

        def refine(part: KernelSearch, trial: Trial) -> Trial:
            return part.stream(trial, n, PLAN.streamed_steps)

        return self._best_refined(trials, refine)

    def _first_rows(self, seconds: float) -> int:
        """Return the number of rows with which all first descents end in time.

        If even few rows take too long, there are fewer still, on which isotropic
        kernels at least can be compared.
        """
        least = largest(
            self._seconds,
            seconds / PLAN.isotropic_evaluations,
            PLAN.fewest_rows,
            PLAN.least_rows,
        )
        n = largest(
            self._seconds, seconds / PLAN.first_evaluations, least, PLAN.first_rows
        )
        return min(n, PLAN.first_rows, len(self.Y))

    def _planned_rows(self, steps: int, n: int) -> int:
        """Return the number of rows, at least n, of so many steps in what is left."""
        most = min(len(self.Y), PLAN.max_rows)
        return largest(self._seconds, self.stage.left / steps, n, most)

    def _first_choices(self) -> Iterator[tuple[str, str]]:
        for numbers in self.rows:
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
        self, trials: list[Trial], refine: Callable[[KernelSearch, Trial], Trial]
    ) -> list[Trial]:
        """Refine the best in half of the time, then the others.

        The best of each metric and scaling of numbers come first: forms of the same
        metric end near each other, and few rows hardly distinguish metrics.
        """
        refined: list[Trial] = []
        trials = kinds_first(trials)
        last = min(len(trials), PLAN.n_refined) - 1
        for position, trial in enumerate(trials[: PLAN.n_refined]):
            if refined and self._over:
                break
            # A trial that has used up its share takes no time from the next.
            seconds = self.stage.left / (1 if position == last else 2)
            refined.append(refine(self.within(self.stage.part(seconds)), trial))
        refined.sort(key=lambda trial: trial.objective)
        return refined + trials[len(refined) :]
