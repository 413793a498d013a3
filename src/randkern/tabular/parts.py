"""The parts of a classifier: their probabilities, and the blend of least log loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from randkern.kernels import Kernel
from randkern.models import KernelRidgeClassifier
from randkern.models.calibration import temperature_of
from randkern.tabular.learning import MAX_MEMBERS
from randkern.tabular.logistic import logistic
from randkern.tabular.model import MEMORY_LIMIT, Table, fit_quietly
from randkern.tabular.search import Trial
from randkern.tabular.work import Stage

# Smallest weight of a part, and number of steps of the weights.
_MIN_WEIGHT = 0.05
_BLEND_STEPS = 300
# The share of the optimism of the learned numbers that the temperature allows for, as
# their prior keeps them from overfitting freely, and the largest optimism considered.
_OPTIMISM_SHARE, _MAX_OPTIMISM = 0.5, 0.2


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


def mean_log_loss(P: np.ndarray, labels: np.ndarray, weight: np.ndarray) -> float:
    """Return the mean log loss of probabilities (n, k)."""
    chosen = P[np.arange(len(labels)), labels]
    losses = -np.log(np.clip(chosen, 1e-15, None))
    return float(np.average(losses, weights=weight))


def blend_probabilities(
    parts: list[np.ndarray],
    handicaps: list[float],
    labels: np.ndarray,
    weight: np.ndarray,
    most: int = MAX_MEMBERS,
) -> tuple[np.ndarray, float]:
    """Return the weights, with sum 1, and the temperature of smallest log loss.

    At most `most` weights are nonzero; handicaps are added to the losses of parts.
    """
    chances = np.stack([P[np.arange(len(labels)), labels] for P in parts])
    chances = np.clip(chances, 1e-15, None) * np.exp(-np.array(handicaps))[:, None]
    shares = weight / weight.sum()
    remaining = np.arange(len(parts))
    while True:
        found = _mixture_weights(chances[remaining], shares)
        is_large = found >= _MIN_WEIGHT
        is_large[np.argsort(-found, kind="stable")[most:]] = False
        if is_large.all():
            break
        remaining = remaining[is_large]  # and find the best weights without the others
    weights = np.zeros(len(parts))
    weights[remaining] = found
    mean = np.tensordot(weights, np.stack(parts), axes=1)
    logits = np.log(np.clip(mean, 1e-15, None))
    of_class = labels[:, None] == np.arange(logits.shape[1])
    optimism = _OPTIMISM_SHARE * min(max(handicaps), _MAX_OPTIMISM)
    return weights, temperature_of(logits, of_class, weight, optimism=optimism)


def _mixture_weights(chances: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return the weights of least log loss, by the EM algorithm for mixtures."""
    weights = np.full(len(chances), 1 / len(chances))
    for _ in range(_BLEND_STEPS):
        weights = weights * ((chances / (weights @ chances)) @ shares)
    return weights / weights.sum()


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
