"""Weights of fits: of least squares by squared errors, of probabilities by log loss."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import nnls

from randkern.tabular.presets import LEAST_WEIGHT


def blend(residuals: Sequence[np.ndarray]) -> np.ndarray:
    """Return weights ≥ 0 with sum 1 that minimise the blended residuals."""
    E = np.stack([part.ravel() for part in residuals], axis=1)
    size = float(np.linalg.norm(E[:, 0])) or 1.0
    heavy = 1e3 * size
    rows = np.vstack([E, np.full(E.shape[1], heavy)])
    weights, _ = nnls(rows, np.append(np.zeros(len(E)), heavy))
    if weights.sum() == 0:
        return np.eye(E.shape[1])[0]
    weights[weights < LEAST_WEIGHT * weights.sum()] = 0.0
    return weights / weights.sum()


def mean_log_loss(P: np.ndarray, labels: np.ndarray, weight: np.ndarray) -> float:
    """Return the mean log loss of probabilities (n, k)."""
    chosen = P[np.arange(len(labels)), labels]
    losses = -np.log(np.clip(chosen, 1e-15, None))
    return float(np.average(losses, weights=weight))


def blend_probabilities(
    parts: list[np.ndarray],
    labels: np.ndarray,
    weight: np.ndarray,
    most: int,
) -> np.ndarray:
    """Return the weights of smallest log loss, at most `most` of them nonzero."""
    chances = np.stack([P[np.arange(len(labels)), labels] for P in parts])
    chances = np.clip(chances, 1e-15, None)
    shares = weight / weight.sum()
    remaining = np.arange(len(parts))
    while True:
        mixture = _mixture_weights(chances[remaining], shares)
        is_large = mixture >= LEAST_WEIGHT
        is_large[np.argsort(-mixture, kind="stable")[most:]] = False
        if is_large.all():
            break
        remaining = remaining[is_large]  # and find the best weights without the others
    weights = np.zeros(len(parts))
    weights[remaining] = mixture
    return weights


def _mixture_weights(chances: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Return the weights of least log loss, by the EM algorithm for mixtures."""
    weights = np.full(len(chances), 1 / len(chances))
    for _ in range(300):
        weights = weights * ((chances / (weights @ chances)) @ shares)
    return weights / weights.sum()
