"""How far apart two right answers may be: a matter of the system, not of the machine.

A backward-stable solver, such as those of LAPACK, solves (A + δA) x = b exactly, where
‖δA‖ ≤ c·ε·‖A‖; x then has a relative error of c·ε·κ(A). The constant c depends on the
order in which BLAS adds numbers up, which differs between processors and numbers of
threads. The condition number κ does not.
"""

from typing import Any

import numpy as np

# Of random sums, c is about the square root of their lengths, here at most 1,000.
_GROWTH = 32.0
# Values at new rows are sums of terms that may cancel, whatever the condition.
_ROUNDING = 1e-10


def condition_of(gram: np.ndarray, alpha: float, weight: Any = None) -> float:
    """Return the condition number of ``W½ G W½ + alpha I``.

    An intercept, which centres the rows, does not increase it.
    """
    root = np.ones(len(gram)) if weight is None else np.sqrt(weight)
    return 1 + float(np.linalg.norm(root[:, None] * gram * root, 2)) / alpha


def rounding(condition: float) -> float:
    """Return the relative error of a solution of a system of this condition."""
    return _ROUNDING + _GROWTH * np.finfo(float).eps * condition


def assert_close(
    actual: Any,
    expected: Any,
    tolerance: float | None = None,
    *,
    condition: float = 1e6,
) -> None:
    """Assert equal shapes, and errors relative to the largest expected entry.

    Without a `tolerance`, the errors are those of a solution of a system of this
    `condition`.
    """
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    if tolerance is None:
        tolerance = rounding(condition)
        assert tolerance < 1e-3, f"a condition of {condition:.1e} leaves no digits"
    limit = tolerance * np.abs(expected).max()
    np.testing.assert_allclose(actual, expected, rtol=0, atol=limit)
