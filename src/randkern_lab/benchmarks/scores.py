"""Scores of features: the error of their Gram matrix, and of ridge on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

__all__ = ["gram_errors", "gram_matrix", "ridge_scores"]

# float32 products over so many columns are summed in float64.
_COLUMNS = 1024


def gram_matrix(Z: NDArray[Any]) -> NDArray[np.float64]:
    """Return ZZᵀ in float64, from products over at most 1,024 columns in Z's dtype.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern_lab.benchmarks.scores import gram_matrix
    >>> gram_matrix(np.array([[1.0, 2.0], [0.0, 1.0]], dtype=np.float32))
    array([[5., 2.],
           [2., 1.]])
    """
    total = np.zeros((len(Z), len(Z)))
    for start in range(0, Z.shape[1], _COLUMNS):
        block = Z[:, start : start + _COLUMNS]
        total += block @ block.T
    return total


def gram_errors(G: NDArray[Any], K: NDArray[Any]) -> tuple[float, float]:
    """Return the relative Frobenius error of an estimate G of K.

    Returns
    -------
    off_diagonal : float
        √Σ_{i≠j} (G_ij − K_ij)² / √Σ_{i≠j} K_ij². The diagonal is excluded since it is
        exact for some maps: a pair of cosine and sine has norm 1.
    overall : float
        ‖G − K‖_F / ‖K‖_F.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern_lab.benchmarks.scores import gram_errors
    >>> K = np.array([[1.0, 0.5], [0.5, 1.0]])
    >>> gram_errors(K + np.array([[0.0, 0.1], [0.1, 0.0]]), K)
    (0.2, 0.0894)
    """
    squares = np.square(G - K)
    reference = np.square(K)
    overall = squares.sum() / reference.sum()
    np.fill_diagonal(squares, 0.0)
    np.fill_diagonal(reference, 0.0)
    off_diagonal = squares.sum() / reference.sum()
    return float(np.sqrt(off_diagonal)), float(np.sqrt(overall))


def ridge_scores(
    Z: NDArray[Any], Y: NDArray[Any], Z_test: NDArray[Any], alpha: float
) -> NDArray[np.float64]:
    """Return test scores of ridge regression on features, from the smaller system.

    (ZᵀZ + αI)W = ZᵀY if D ≤ n, otherwise (ZZᵀ + αI)A = Y and W = ZᵀA; sums and solves
    are in float64.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern_lab.benchmarks.scores import ridge_scores
    >>> Z = np.array([[1.0], [2.0]])
    >>> ridge_scores(Z, np.array([[2.0], [4.0]]), np.array([[3.0]]), 1e-12)
    array([[6.]])
    """
    primal = Z.shape[1] <= len(Z)
    system = gram_matrix(Z.T if primal else Z)
    system[np.diag_indices_from(system)] += alpha
    factor = scipy.linalg.cho_factor(system, lower=True, overwrite_a=True)
    if primal:
        weights = scipy.linalg.cho_solve(factor, Z.T.astype(np.float64) @ Y)
    else:
        weights = Z.T.astype(np.float64) @ scipy.linalg.cho_solve(factor, Y)
    return np.asarray(Z_test @ weights)
