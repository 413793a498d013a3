"""How rows are fitted exactly: by a factor, by iterations, or with landmarks."""

from __future__ import annotations

from randkern.tabular.work import RATE, factorising_seconds, landmark_seconds, largest

# Largest number of rows whose Gram matrix is factorised, and multiplied by: beyond, it
# does not fit in MEMORY_LIMIT in 16 bits, and every product would recompute it.
MAX_FACTORISED = 16_000

MAX_ITERATED = 38_000

ALWAYS_FACTORISED = 2000

# Operations of conjugate gradients per n²: the Gram matrix and the preconditioner, and
# each iteration.
_PREPARING, _ITERATION = 600.0, 10.0

# The most iterations, and the fewest for which the exact kernel is worth its matrix.
MAX_ITER, _MIN_ITER = 60, 10

_FEATURES = (500, 8000)


def plan_of(n: int, seconds: float) -> tuple[str, int]:
    """Choose how to fit n rows in about `seconds`, and the number of features.

    The method is ``"factorise"`` or ``"iterate"`` with the exact kernel, or
    ``"features"``.
    """
    if n <= ALWAYS_FACTORISED:
        return "factorise", 0
    if n <= MAX_FACTORISED and factorising_seconds(n) < seconds:
        return "factorise", 0
    if n <= MAX_ITERATED and iterating_seconds(n, _MIN_ITER) < seconds:
        return "iterate", 0
    return "features", largest(lambda D: landmark_seconds(n, D), seconds, *_FEATURES)


def iterations_within(n: int, seconds: float) -> int:
    """Return the number of iterations of conjugate gradients in about `seconds`."""
    return largest(lambda n_iter: iterating_seconds(n, n_iter), seconds, 1, MAX_ITER)


def iterating_seconds(n: int, n_iter: int) -> float:
    """Return the work of iterations of conjugate gradients with the exact kernel."""
    return (_PREPARING + _ITERATION * n_iter) * n**2 / RATE
