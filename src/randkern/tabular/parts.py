"""The parts of a classifier: their probabilities, and the blend of least log loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from randkern.kernels import Kernel
from randkern.models import KernelRidgeClassifier
from randkern.tabular.logistic import logistic
from randkern.tabular.members import MEMORY_LIMIT, fit_quietly
from randkern.tabular.rows import Table
from randkern.tabular.trials import Trial
from randkern.tabular.work import Stage


@dataclass(frozen=True)
class Part:
    """A candidate for a member of the model.

    `share` is the penalty of logistic regression relative to least squares, None for
    least squares; `P` holds the leave-one-out probabilities, with loss `loss`. Those of
    kernels that do not know the row are decisions over `temperature`, where it is a
    number, and the model that is returned has to divide by it too: its own temperature
    is that of kernels that know all rows, which overestimate how certain they are.
    """

    trial: Trial
    share: float | None
    P: np.ndarray
    loss: float
    temperature: float | None = None


def fitted_part(
    part: Part,
    D: int | None,
    seed: int,
    max_iter: int,
    encoded: Table,
    weight: np.ndarray | None,
    stage: Stage,
) -> Any:
    """Return the model of a part, fitted to encoded rows, with its temperature."""
    model = _unfitted(part, D, seed, max_iter)
    fit_quietly(model, encoded.X, encoded.labels, weight, stage)
    if part.temperature is not None:
        model.temperature_ = part.temperature
        model.calibration_offset_ = 0.0 * model.calibration_offset_
    return model


def strength(part: Part) -> float:
    """Return C of logistic regression, the inverse of the penalty."""
    return 1 / ((part.share or 1.0) * part.trial.alpha)


def _unfitted(part: Part, D: int | None, seed: int, max_iter: int) -> Any:
    """Return the unfitted model of a part."""
    kernel = part.trial.kernel
    if part.share is None:
        return _least_squares(kernel, part.trial.alpha, D, seed)
    return logistic(kernel, strength(part), D, seed).set_params(max_iter=max_iter)


def _least_squares(
    kernel: Kernel, alpha: float, D: int | None, seed: int
) -> KernelRidgeClassifier:
    return KernelRidgeClassifier(
        kernel,
        alpha,
        D,
        solver="cholesky",
        features="random" if D is None else "nystrom",
        fit_intercept=True,
        memory_limit=MEMORY_LIMIT,
        random_state=seed,
    )
