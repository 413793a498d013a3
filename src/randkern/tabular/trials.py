"""Kernels that a search has learned, and their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from randkern.kernels import Kernel


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


class TrialLog:
    """All trials of a search in order, each reported, until a callback stops it."""

    def __init__(self, report: Callable[[Trial], bool]):
        self.report = report
        self.trials: list[Trial] = []
        self.stopped = False

    def add(self, trial: Trial) -> None:
        self.trials.append(trial)
        self.stopped = self.report(trial) or self.stopped


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
