"""Dual coordinate descent for hinge losses, compiled."""

import numpy as np
from numba import njit

from randkern.backend.threads import run_over_ranges

__all__ = ["descend"]

# Gradients below this are rounding.
_TINY = 1e-12
_MULTIPLIER = np.uint64(6364136223846793005)
_INCREMENT = np.uint64(1442695040888963407)
_SHIFT = np.uint64(33)


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def _dot(row, weights):
    total = row.dtype.type(0)
    for j in range(row.shape[0]):
        total += row[j] * weights[j]
    return total


@njit(nogil=True, cache=True, fastmath={"contract"})
def _add(row, factor, weights):
    for j in range(row.shape[0]):
        weights[j] += factor * row[j]


@njit(nogil=True, cache=True)
def _descend(
    Z, rows, squares, signs, upper, alpha, weights, tolerance, most_epochs, seed
):
    """Algorithm 3 of Hsieh et al. 2008: one coordinate at a time, with shrinking."""
    n = rows.shape[0]
    index = np.arange(n)
    state = seed
    active = n
    high, low = np.inf, -np.inf
    for epoch in range(most_epochs):
        largest, smallest = -np.inf, np.inf
        for s in range(active - 1, 0, -1):
            state = state * _MULTIPLIER + _INCREMENT
            t = np.int64((state >> _SHIFT) % np.uint64(s + 1))
            index[s], index[t] = index[t], index[s]
        s = 0
        while s < active:
            i = index[s]
            row = Z[rows[i]]
            gradient = signs[i] * np.float64(_dot(row, weights)) - 1.0
            projected = gradient
            if alpha[i] == 0:
                if gradient > high:
                    active -= 1
                    index[s], index[active] = index[active], index[s]
                    continue
                projected = min(gradient, 0.0)
            elif alpha[i] == upper[i]:
                if gradient < low:
                    active -= 1
                    index[s], index[active] = index[active], index[s]
                    continue
                projected = max(gradient, 0.0)
            largest = max(largest, projected)
            smallest = min(smallest, projected)
            if abs(projected) > _TINY:
                old = alpha[i]
                if squares[i] > 0:
                    alpha[i] = min(max(old - gradient / squares[i], 0.0), upper[i])
                else:
                    alpha[i] = upper[i]  # a row of zeros costs nothing
                _add(row, weights.dtype.type((alpha[i] - old) * signs[i]), weights)
            s += 1
        if largest - smallest <= tolerance:
            if active == n:
                return epoch + 1
            active = n
            high, low = np.inf, -np.inf
            continue
        high = largest if largest > 0 else np.inf
        low = smallest if smallest < 0 else -np.inf
    return most_epochs + 1


def descend(
    Z: np.ndarray,
    rows: np.ndarray,
    signs: np.ndarray,
    upper: np.ndarray,
    alpha: np.ndarray,
    weights: np.ndarray,
    tolerance: float,
    most_epochs: int,
    seed: int = 0,
) -> int:
    r"""Minimise the dual of several support vector machines on the same rows.

    For every column t of `signs`, with :math:`w = \sum_i \alpha_i y_i z_i`,

    .. math:: \min_\alpha \tfrac12 \|w\|^2 - \sum_i \alpha_i,
              \quad 0 \le \alpha_i \le U_i.

    Parameters
    ----------
    Z : ndarray of float32 or float64, shape (N, width), rows contiguous
    rows : ndarray of int64, shape (n,)
        Which rows of `Z` take part.
    signs : ndarray of float64, shape (k, n)
        ±1, a problem a row.
    upper : ndarray of float64, shape (n,)
    alpha : ndarray of float64, shape (k, n)
        Where to start; overwritten.
    weights : ndarray of the dtype of `Z`, shape (k, width)
        The w of `alpha`, which may hold contributions of other rows; overwritten.
    tolerance : float
        Difference of the largest and the least projected gradient at the end.
    most_epochs : int
        Passes over the rows, at most.
    seed : int
        Of the orders of the rows.

    Returns
    -------
    int
        Passes that the slowest problem took; ``most_epochs + 1`` if it did not reach
        the tolerance.

    Notes
    -----
    Algorithm 3 of Hsieh, Chang, Lin, Keerthi, Sundararajan 2008, "A dual coordinate
    descent method for large-scale linear SVM". Problems run on threads of their own.

    Examples
    --------
    >>> import numpy as np
    >>> from randkern.backend import descent
    >>> Z, alpha, w = np.array([[1.0], [-2.0]]), np.zeros((1, 2)), np.zeros((1, 1))
    >>> signs = np.array([[1.0, -1.0]])
    >>> _ = descent.descend(
    ...     Z, np.arange(2), signs, np.full(2, 10.0), alpha, w, 1e-9, 100
    ... )
    >>> w
    array([[1.]])
    """
    n, k = len(rows), len(signs)
    if alpha.shape != (k, n) or weights.shape != (k, Z.shape[1]):
        raise ValueError(
            f"{k} problems on {n} rows of {Z.shape[1]} columns need alpha of shape "
            f"{(k, n)} and weights of {(k, Z.shape[1])}, got {alpha.shape} and "
            f"{weights.shape}."
        )
    if weights.dtype != Z.dtype:
        raise TypeError(f"weights must be {Z.dtype} as Z, got {weights.dtype}.")
    if n == 0 or k == 0:
        return 0
    squares = np.empty(n)
    for start in range(0, n, 1024):
        part = Z[rows[start : start + 1024]]
        squares[start : start + 1024] = np.einsum(
            "ij,ij->i", part, part, dtype=np.float64
        )
    epochs = np.zeros(k, dtype=np.int64)

    def task(start: int, stop: int) -> None:
        for t in range(start, stop):
            epochs[t] = _descend(
                Z, rows, squares, signs[t], upper, alpha[t], weights[t],
                tolerance, most_epochs, np.uint64(seed + t + 1),
            )  # fmt: skip

    run_over_ranges(task, k, 10.0 * n * Z.shape[1] * k)
    return int(epochs.max())
