"""The parts of a classifier: logistic regression or least squares with a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from randkern.kernels import Kernel, Linear
from randkern.models import KernelLogistic, KernelRidgeClassifier
from randkern.tabular.members import MEMORY_LIMIT, fit_quietly
from randkern.tabular.presets import Deadline
from randkern.tabular.rows import Table
from randkern.tabular.trials import Trial

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


def predicted(
    kernel: Kernel, C: float, known: Table, X: np.ndarray, P: np.ndarray
) -> np.ndarray:
    """Return probabilities of rows by a fit to others, P if these are of one class."""
    if len(np.unique(known.labels)) < 2:
        return P
    model = logistic(kernel, C, 0)
    fit_quietly(model, known.X, known.labels, known.weight)
    P = np.full_like(P, MIN_CHANCE)
    P[:, model.classes_] = np.maximum(model.predict_proba(X), MIN_CHANCE)
    return P


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
    weight: np.ndarray | None,
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
    fit_quietly(model, encoded.X, encoded.labels, weight, deadline)
    if part.temperature is not None:
        model.temperature_ = part.temperature
        model.calibration_offset_ = 0.0 * model.calibration_offset_
    return model


def strength(part: Part) -> float:
    """Return C of logistic regression, the inverse of the penalty."""
    return 1 / ((part.share or 1.0) * part.trial.alpha)
