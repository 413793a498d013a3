"""Solvers of symmetric positive definite linear systems.

Each follows the protocol :class:`Solver`: ``init(system, shift)`` builds what many
right-hand sides can share, ``solve(state, rhs)`` returns a :class:`Solution`.
"""

from randkern.solvers._checkpoint import Checkpoint
from randkern.solvers._solution import Outcome, Solution
from randkern.solvers.cholesky import Cholesky, cholesky_bytes, mirror_upper
from randkern.solvers.conjugate_gradients import Loss
from randkern.solvers.iteration import Callback, Progress, Solver
from randkern.solvers.pcg import PCG
from randkern.solvers.sgd import SGD

__all__ = [
    "PCG",
    "SGD",
    "Callback",
    "Checkpoint",
    "Cholesky",
    "Loss",
    "Outcome",
    "Progress",
    "Solution",
    "Solver",
    "cholesky_bytes",
    "mirror_upper",
]
