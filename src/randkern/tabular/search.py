"""The search for a kernel by its evidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from operator import attrgetter
from typing import Any

import numpy as np

from randkern.backend.compiled_loops import working_seconds
from randkern.kernels import Gaussian, Kernel, Laplacian, Linear, Matern
from randkern.tabular.evidence import Evidence
from randkern.tabular.learning import Learning
from randkern.tabular.presets import (
    FIRST_ALPHA,
    LINEAR_WEIGHT,
    N_BEST,
    SPARSE_SPREAD,
    STEPS_AGAIN,
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
    """A kernel that is learned, with its penalty.

    `numbers` names the scaling of numeric columns. `loss` is what was minimised on
    `n_rows` rows, and `error` the root mean squared error of rows left out, relative to
    predicting the mean of the targets.
    """

    form: str
    numbers: str
    kernel: Kernel
    alpha: float = FIRST_ALPHA
    loss: float = math.inf
    error: float = math.inf
    n_rows: int = 0
    seconds: float = 0.0


class KernelSearch:
    """Descents from several kernels and scalings of numbers, continuing the best.

    They use the encoded sample of a fit in `order`. All trials are in `trials`. The
    search ends with the deadline of its `step`, but not before the first three kernels,
    or if `report`, called with every trial, says so: it is then `stopped`.
    """

    def __init__(
        self,
        learning: Learning,
        order: np.ndarray,
        step: str,
        report: Callable[[Trial], bool] = lambda _: False,
    ):
        self.learning, self.order, self.step = learning, order, step
        self.report = report
        self.trials: list[Trial] = []
        self.stopped = False

    # -- the search -------------------------------------------------------------------

    def run(self) -> list[Trial]:
        """Return the trials, the best of each kind first.

        All kernels are learned from the first rows, and the best few from more, but for
        fits in cells, where more follows.
        """
        plan, has_labels = self.learning.plan, self.learning.table.labels is not None
        n, steps = plan.first_rows, plan.first_steps
        is_sparse = plan.in_cells and has_labels
        spread = SPARSE_SPREAD if is_sparse else 1.0
        trials: list[Trial] = []
        for numbers, form in product(self.learning.codes, FORMS):
            if trials and self._over:
                break
            start = self.start(form, numbers, spread)
            trials.append(self.descend(start, n, steps))
        trials.sort(key=attrgetter("loss"))
        if not has_labels and not self._over:
            # Linear targets without noise are then predicted to rounding.
            start = self.start(trials[0].form + _AND_LINEAR, trials[0].numbers)
            trials.append(self.descend(start, n, steps))
            trials.sort(key=attrgetter("loss"))
        trials = kinds_first(trials)
        if plan.more_rows > n:
            steps = -(-steps // 2)
            best = [
                self.descend(trial, plan.more_rows, steps)
                for trial in trials[:N_BEST]
                if not self._over
            ]
            trials = sorted(best, key=attrgetter("loss")) + trials[len(best) :]
        return trials

    def again(self, like: Trial) -> Trial:
        """Learn the kernel of a trial from the rows of the order only."""
        start = self.start(like.form, like.numbers)
        return self.descend(start, len(self.order), STEPS_AGAIN)

    def start(self, form: str, numbers: str, spread: float = 1.0) -> Trial:
        """Return a kernel with one lengthscale, relative to the spread of rows."""
        X, name = self.learning.codes[numbers], form.removesuffix(_AND_LINEAR)
        lengthscale = spread * math.sqrt(float(X.var(axis=0).sum()) or 1.0)
        if name == "Laplacian L1":
            lengthscale *= math.sqrt(X.shape[1])
        kernel = FORMS[name](np.full(X.shape[1], lengthscale))
        if name != form:
            kernel = kernel + LINEAR_WEIGHT * Linear()
        return Trial(form, numbers, kernel)

    # -- one descent ------------------------------------------------------------------

    def descend(self, start: Trial, n: int, steps: int) -> Trial:
        """Learn a lengthscale per column from n rows, starting from another trial."""
        learning, numbers = self.learning, start.numbers
        table = replace(learning.sample, X=learning.codes[numbers])
        tables = [table.take(self.order[:n])]
        trial = learned(start, tables, learning, steps, self._is_in_time)
        self.trials.append(trial)
        self.stopped = self.report(trial) or self.stopped
        return trial

    def _is_in_time(self) -> bool:
        """Return whether there is time for an evaluation; the floor always has it."""
        return len(self.trials) < len(FORMS) or not self.learning.deadline.ends(
            self.step
        )

    @property
    def _over(self) -> bool:
        return self.stopped or not self._is_in_time()


def learned(
    start: Trial,
    tables: Sequence[Table],
    learning: Learning,
    steps: int,
    allowed: Callable[[], bool],
) -> Trial:
    """Return a trial whose kernel is learned by its evidence in encoded tables.

    They are independent processes with the same kernel and noise. The error is that in
    the first. `allowed` is asked before each evaluation but the first.
    """
    began = working_seconds()
    blocks = learning.encoders[start.numbers].blocks_
    goal = Evidence(start.kernel, tables, blocks, allowed)
    goal.descend(start.alpha, steps)
    value, theta = goal.best
    return replace(
        start,
        kernel=goal.kernel(theta),
        alpha=goal.alpha(theta),
        loss=value,
        error=goal.error(theta),
        n_rows=len(tables[0]),
        seconds=working_seconds() - began,
    )


def kinds_first(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials, with the best of each scaling of numbers and form first.

    Forms of the same scaling end near each other, and few rows hardly distinguish them.
    """
    scalings = {trial.numbers: trial for trial in reversed(trials)}
    forms = {trial.form: trial for trial in reversed(trials)}
    is_other = [
        (trial is not scalings[trial.numbers]) + (trial is not forms[trial.form])
        for trial in trials
    ]
    return [trials[at] for at in np.argsort(is_other, kind="stable")]
