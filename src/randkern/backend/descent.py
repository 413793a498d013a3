"""Dual coordinate descent for margins, compiled."""

import numpy as np
from numba import get_num_threads, njit

from randkern.backend.compiled_loops import run_over_ranges

# Smaller gradients are rounding errors.
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


@njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def _square(row):
    total = 0.0
    for j in range(row.shape[0]):
        total += np.float64(row[j]) * np.float64(row[j])
    return total


@njit(nogil=True, cache=True, fastmath={"contract"})
def _add(row, factor, weights):
    for j in range(row.shape[0]):
        weights[j] += factor * row[j]


@njit(nogil=True, cache=True)
def _shuffle(order, state):
    for s in range(len(order) - 1, 0, -1):
        state = state * _MULTIPLIER + _INCREMENT
        t = np.int64((state >> _SHIFT) % np.uint64(s + 1))
        order[s], order[t] = order[t], order[s]
    return state


@njit(nogil=True, cache=True)
def _descend(
    Z, rows, targets, lower, upper, tube, a, weights, intercepts, sums,
    spring, moves, tol, max_epochs, seed, used,
):  # fmt: skip
    """Run algorithm 3 of Hsieh et al. 2008 for problems that visit rows together.

    A row is read from memory once for all problems. Each shrinks its own set of active
    rows and stops on its own, after the epochs `used`: no problem depends on another.
    """
    k, n = targets.shape
    width = weights.shape[1]
    squares = np.empty(n)
    for i in range(n):
        squares[i] = _square(Z[rows[i], :width])
    order = np.arange(n)
    moving = np.ones((n, k), dtype=np.bool_)
    n_moving = np.full(k, n)
    high, low = np.full(k, np.inf), np.full(k, -np.inf)
    largest, smallest = np.empty(k), np.empty(k)
    ended = np.zeros(k, dtype=np.bool_)
    state = seed
    for epoch in range(max_epochs):
        largest[:], smallest[:] = -np.inf, np.inf
        state = _shuffle(order, state)
        for i in order:
            row = Z[rows[i], :width]
            for t in range(k):
                if ended[t] or not moving[i, t]:
                    continue
                score = np.float64(_dot(row, weights[t]))
                score += intercepts[t] + spring * sums[t]
                slope = score - targets[t, i]
                old = a[t, i]
                # The derivatives to the right and to the left, which differ at 0.
                right = slope + (tube if old >= 0 else -tube)
                left = slope + (tube if old > 0 else -tube)
                can_rise, can_fall = old < upper[t, i], old > lower[t, i]
                if not (can_rise and right <= high[t]) and not (
                    can_fall and left >= low[t]
                ):
                    moving[i, t] = False
                    n_moving[t] -= 1
                    continue
                projected = 0.0
                if can_rise and right < 0:
                    projected = right
                elif can_fall and left > 0:
                    projected = left
                largest[t] = max(largest[t], projected)
                smallest[t] = min(smallest[t], projected)
                if abs(projected) > _TINY:
                    if squares[i] + spring > 0:
                        new = old - slope / (squares[i] + spring)
                        reach = tube / (squares[i] + spring)
                        new -= min(max(new, -reach), reach)
                        new = min(max(new, lower[t, i]), upper[t, i])
                    else:  # a row of zeros costs the same, whatever the weights
                        new = upper[t, i] if projected < 0 else lower[t, i]
                    a[t, i] = new
                    sums[t] += new - old
                    _add(row, weights.dtype.type(new - old), weights[t])
        for t in range(k):
            if ended[t]:
                continue
            near = largest[t] - smallest[t] <= tol
            move = spring * sums[t] if moves else 0.0
            intercepts[t] += move
            if near and n_moving[t] == n and abs(move) <= tol:
                ended[t] = True
                used[t] = epoch + 1
            elif near:
                moving[:, t] = True
                n_moving[t] = n
                high[t], low[t] = np.inf, -np.inf
            else:
                high[t] = largest[t] if largest[t] > 0 else np.inf
                low[t] = smallest[t] if smallest[t] < 0 else -np.inf
        if np.all(ended):
            return


def descend(
    Z: np.ndarray,
    rows: np.ndarray,
    targets: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    tube: float,
    alpha: np.ndarray,
    weights: np.ndarray,
    *,
    intercepts: np.ndarray | None = None,
    sums: np.ndarray | None = None,
    spring: float = 0.0,
    moves: bool = True,
    tolerance: float,
    max_epochs: int,
    seed: int = 0,
) -> int:
    r"""Minimise the duals of several margins on the same rows.

    For each of k problems, with :math:`w = \sum_i a_i z_i`,

    .. math:: \min_a \tfrac12 \|w\|^2 - \sum_i t_i a_i + \varepsilon \sum_i |a_i|,
              \quad l_i \le a_i \le u_i.

    `rows` are the n rows of Z to use; `targets` t, the bounds `lower` l and `upper` u,
    and the starting point `alpha` have shape (k, n), and `tube` is ε. `weights`
    (k, width), of the dtype of Z, is the w of the starting point on the first columns
    of Z, possibly with contributions of other rows. `alpha` and `weights` are
    overwritten.

    With `intercepts` b (k,), the targets are t − b, and the objective gets the term
    :math:`\sigma (\sum_i a_i)^2/2`, with σ the `spring`. If it `moves`, b rises by
    :math:`\sigma \sum_i a_i` after each pass, which leads to a sum of 0 (the method of
    multipliers). `sums` (k,) are those of the starting point; both are overwritten.

    A problem stops when its largest and smallest projected gradients differ by the
    tolerance, and b changes by no more. Returns the passes over the rows of the slowest
    one, or ``max_epochs + 1`` if it did not reach the tolerance.

    It is algorithm 3 of Hsieh, Chang, Lin, Keerthi, Sundararajan 2008, "A dual
    coordinate descent method for large-scale linear SVM", and for a tube that of Ho &
    Lin 2012, "Large-scale linear support vector regression". All problems visit rows in
    the same order, drawn from the seed, those of one thread together, so that a row is
    read once for all of them.
    """
    n, k = len(rows), len(targets)
    width = weights.shape[1]
    if alpha.shape != (k, n) or len(weights) != k or width > Z.shape[1]:
        raise ValueError(
            f"{k} problems on {n} rows of {Z.shape[1]} columns need alpha of shape "
            f"{(k, n)} and weights of at most {(k, Z.shape[1])}, got {alpha.shape} and "
            f"{weights.shape}."
        )
    if weights.dtype != Z.dtype:
        raise TypeError(
            f"weights must have the dtype of Z, {Z.dtype}, got {weights.dtype}."
        )
    if n == 0 or k == 0:
        return 0
    if intercepts is None or sums is None:
        intercepts, sums = np.zeros(k), np.zeros(k)
    epochs = np.full(k, max_epochs + 1)

    def task(start: int, stop: int) -> None:
        part = slice(start, stop)
        _descend(
            Z, rows, targets[part], lower[part], upper[part], tube,
            alpha[part], weights[part], intercepts[part], sums[part], spring,
            moves, tolerance, max_epochs, np.uint64(seed + 1), epochs[part],
        )  # fmt: skip

    together = -(-k // get_num_threads())
    run_over_ranges(task, k, 10.0 * n * Z.shape[1] * k, together)
    return int(epochs.max())
