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
    IterativeSolver,
    Outcome,
    Progress,
    Solution,
    Solver,
)
from randkern.solvers.pcg import PCG
from randkern.solvers.stopping import Loss

__all__ = [
    "ITERATIVE",
    "PCG",
    "Callback",
    "Cholesky",
    "CholeskyState",
    "IterativeSolver",
    "Loss",
    "Outcome",
    "Progress",
    "Solution",
    "Solver",
    "cholesky_bytes",
    "mirror_upper",
]

#: The iterative solvers by their names.
ITERATIVE: dict[str, type[IterativeSolver]] = {PCG.name: PCG}
