"""Solvers of symmetric positive definite linear systems.

Each follows the protocol :class:`Solver`: ``init(system, shift)`` builds a state shared
by many right-hand sides, ``solve(state, rhs)`` returns a :class:`Solution`.
"""

from randkern.solvers.cholesky import (
    Cholesky,
    CholeskyState,
    cholesky_bytes,
    mirror_upper,
)
from randkern.solvers.iteration import (
    Callback,
    Checkpoint,
    Outcome,
    Progress,
    Solution,
    Solver,
)
from randkern.solvers.pcg import PCG, Loss
from randkern.solvers.sgd import SGD

__all__ = [
    "PCG",
    "SGD",
    "Callback",
    "Checkpoint",
    "Cholesky",
    "CholeskyState",
    "Loss",
    "Outcome",
    "Progress",
    "Solution",
    "Solver",
    "cholesky_bytes",
    "mirror_upper",
]
