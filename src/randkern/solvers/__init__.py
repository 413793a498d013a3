"""Solvers of symmetric positive definite linear systems.

Each has `init(matrix, shift)`, which builds what many right-hand sides can
share, and `solve(state, rhs)`, which returns a :class:`Solution`.
"""

from randkern.solvers._checkpoint import Checkpoint
from randkern.solvers._solution import Outcome, Solution
from randkern.solvers.cholesky import Cholesky
from randkern.solvers.pcg import PCG, Loss, Progress
from randkern.solvers.sgd import SGD
from randkern.solvers.tensor_cholesky import cholesky_bytes, cholesky_for

__all__ = [
    "PCG",
    "SGD",
    "Checkpoint",
    "Cholesky",
    "Loss",
    "Outcome",
    "Progress",
    "Solution",
    "cholesky_bytes",
    "cholesky_for",
]
