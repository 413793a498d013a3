"""Directions in which a fit varies, along which a kernel learns its lengthscales.

They are those of a full metric, in which a combination of columns may matter, not only
columns alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from randkern.backend.blas import short_on_one_thread
from randkern.tabular.leave_one_out import inverse, least_penalty, thread_operations

# The smallest weight of a direction, so that no lengthscale is infinite.
_FLOOR = 1e-3


@short_on_one_thread(lambda kernel, alpha, X, Y, weight: thread_operations(len(X)))
def directions_of(
    kernel: Any, alpha: float, X: np.ndarray, Y: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the directions in which a fit varies, (d, d), and how much, at most 1.

    They are the eigenvectors of the mean outer product of gradients of the fit, for
    columns divided by their lengthscales (Radhakrishnan et al. 2024, Science 383).
    """
    gram = np.array(kernel._gram(X, None))
    P = inverse(gram, (alpha + least_penalty(gram.diagonal())) / weight)
    if P is None:
        return None
    U = X / kernel.lengthscale
    # K = f(s) of a squared distance s has the gradient 2 f'(s) (u − v).
    slope = kernel._slope(cdist(U, U, "sqeuclidean"))
    outer = np.zeros((U.shape[1], U.shape[1]))
    for dual in (P @ Y).T:
        weighted = slope * dual
        gradient = weighted.sum(axis=1)[:, None] * U - weighted @ U
        outer += gradient.T @ (gradient * weight[:, None])
    values, vectors = np.linalg.eigh(outer)
    if not values[-1] > 0:
        return None
    return vectors / kernel.lengthscale[:, None], (values / values[-1]).clip(0.0)


def lengthscales_along(relevance: np.ndarray) -> Iterator[np.ndarray]:
    """Yield lengthscales to start from, shorter where the fit varies more.

    The data tell how much shorter, and how long all of them are: there are nine sets,
    with which rows divided by their lengthscales have three deviations.
    """
    for power in (0.25, 0.5, 1.0):
        root = np.sqrt(relevance**power + _FLOOR)
        root *= math.sqrt(len(root) / float(root @ root))
        for spread in (0.5, 1.0, 2.0):
            yield spread / root
