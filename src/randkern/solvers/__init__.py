"""Solvers of symmetric positive definite linear systems.

Each has `init(matrix, shift)`, which builds what many right-hand sides can
share, and `solve(state, rhs)`, which returns a :class:`Solution`.
"""

from randkern.solvers._checkpoint import Checkpoint
from randkern.solvers._solution import Outcome, Solution
from randkern.solvers.cholesky import Cholesky, cholesky_bytes, mirror_upper
from randkern.solvers.pcg import PCG, Loss, Progress
from randkern.solvers.sgd import SGD

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
    "mirror_upper",
]
