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


def blend_probabilities(
    chances: Sequence[np.ndarray], weight: np.ndarray
) -> np.ndarray:
    """Return weights ≥ 0 with sum 1 of the smallest log loss of a mean.

    `chances`, (n,) each, are those that the fits give to the classes of rows. The EM
    algorithm for mixtures finds the weights.
    """
    shares = weight / weight.sum()
    rows = np.stack(chances)
    weights = np.full(len(rows), 1 / len(rows))
    for _ in range(300):
        weights = weights * ((rows / (weights @ rows)) @ shares)
    weights[weights < LEAST_WEIGHT * weights.sum()] = 0.0
    return weights / weights.sum()
