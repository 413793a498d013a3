"""Preconditioned conjugate gradients on several right-hand sides at once."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.linalg
from sklearn.exceptions import ConvergenceWarning

from randkern.solvers._solution import Outcome, Solution

__all__ = ["PCG", "Operator", "Progress", "SpectralPreconditioner"]

_LEAST_GAIN = 1e-5
_MOST_RANK = 1000


class Operator(Protocol):
    """A symmetric positive semi-definite matrix A known by its products."""

    @property
    def size(self) -> int:
        """Number of rows of A."""

    def matmat(self, V: np.ndarray) -> np.ndarray:
        """Return AV in float64 for V of shape (size, k)."""

    def leading_eigenpairs(self, rank: int) -> tuple[np.ndarray, np.ndarray]:
        """Return estimates of at most `rank` leading eigenpairs.

        Eigenvalues fall; eigenvectors are orthonormal columns of shape (size,
        rank), float32 or float64.
        """


@dataclass(frozen=True)
class SpectralPreconditioner:
    """P⁻¹ = I + U diag((λ_l + α)/(λ_i + α) − 1) Uᵀ.

    The leading eigenvalues are brought down to the last one that is known,
    λ_l, which stands for the rest of the spectrum: without it the iteration
    would not converge.
    """

    vectors: np.ndarray
    gains: np.ndarray

    @classmethod
    def of(
        cls, eigenvalues: np.ndarray, vectors: np.ndarray, shift: float
    ) -> SpectralPreconditioner:
        tail = float(eigenvalues[-1]) + shift
        # Vectors that are orthonormal to single precision only keep P⁻¹ positive
        # as long as no direction is shrunk by more than this.
        gains = np.maximum(tail / (eigenvalues + shift), _LEAST_GAIN)
        return cls(vectors, gains - 1.0)

    def apply(self, R: np.ndarray) -> np.ndarray:
        """Return P⁻¹R."""
        inner = (self.vectors.T @ R.astype(self.vectors.dtype)).astype(np.float64)
        inner *= self.gains[:, None]
        return R + self.vectors @ inner.astype(self.vectors.dtype)


@dataclass(frozen=True)
class PCGState:
    """An operator, its shift, and the preconditioner built for them."""

    operator: Operator
    shift: float
    preconditioner: SpectralPreconditioner | None


@dataclass(frozen=True)
class Progress:
    """Where an iteration stands: what a callback is told."""

    iteration: int
    residual: float
    seconds: float
    value: np.ndarray


class PCG:
    """Solve (A + shift·I)X = B by block conjugate gradients.

    One product with A serves all columns of B; the search directions of all
    columns are combined (O'Leary 1980, "The block conjugate gradient
    algorithm"), each block being orthonormalised so that dependent columns do
    no harm (Dubrulle 2001).

    Parameters
    ----------
    tol : float
        Stop when ‖b − Ax‖ ≤ tol·‖b‖ for every column. The error of X may be
        larger by the condition number of what the preconditioner leaves: where
        the shift is tiny, ask for less. In float32 some 1e-5 can be reached.
    max_iter : int
    rank : int or None
        Number of eigenpairs in the preconditioner; None: a twentieth of the
        size of A, at most 1,000. 0 uses none.
    callback : callable, optional
        Called with a :class:`Progress` after every iteration; returning True
        stops.
    """

    def __init__(
        self,
        tol: float = 1e-4,
        max_iter: int = 200,
        rank: int | None = None,
        callback: Callable[[Progress], Any] | None = None,
    ):
        self.tol = tol
        self.max_iter = max_iter
        self.rank = rank
        self.callback = callback

    def __repr__(self) -> str:
        return f"PCG(tol={self.tol}, max_iter={self.max_iter}, rank={self.rank})"

    def chosen_rank(self, size: int) -> int:
        """Return the rank of the preconditioner for a matrix of this size."""
        rank = size // 20 if self.rank is None else self.rank
        return min(rank, size, _MOST_RANK if self.rank is None else size)

    def init(self, operator: Operator, shift: float = 0.0) -> PCGState:
        """Build the preconditioner."""
        rank = self.chosen_rank(operator.size)
        if rank == 0:
            return PCGState(operator, shift, None)
        eigenvalues, vectors = operator.leading_eigenpairs(rank)
        if len(eigenvalues) == 0:
            return PCGState(operator, shift, None)
        return PCGState(
            operator, shift, SpectralPreconditioner.of(eigenvalues, vectors, shift)
        )

    def solve(
        self, state: PCGState, rhs: np.ndarray, start: np.ndarray | None = None
    ) -> Solution:
        """Solve for right-hand sides of shape (n,) or (n, k), from `start`."""
        B = rhs.reshape(len(rhs), -1).astype(np.float64)
        norms = np.linalg.norm(B, axis=0)
        norms[norms == 0] = 1.0
        X = np.zeros_like(B)
        R = B.copy()
        if start is not None:
            X[:] = start.reshape(B.shape)
            R -= self._product(state, X)
        residual = _largest(R, norms)
        began = time.perf_counter()
        P: np.ndarray | None = None
        Q: np.ndarray | None = None
        iteration = 0
        stopped = False
        while residual > self.tol and iteration < self.max_iter and not stopped:
            S = R if state.preconditioner is None else state.preconditioner.apply(R)
            if P is not None and Q is not None:
                # Conjugate to the last directions, of which PᵀAP = I.
                S = S - P @ (Q.T @ S)
            P = _orthonormal(S)
            if P.shape[1] == 0:
                break
            Q = self._product(state, P)
            P, Q = _normalised(P, Q)
            step = P.T @ R
            X += P @ step
            R -= Q @ step
            residual = _largest(R, norms)
            iteration += 1
            if self.callback is not None:
                seconds = time.perf_counter() - began
                stopped = bool(self.callback(Progress(iteration, residual, seconds, X)))
        return self._solution(X.reshape(rhs.shape), residual, iteration, stopped)

    @staticmethod
    def _product(state: PCGState, V: np.ndarray) -> np.ndarray:
        out = state.operator.matmat(V)
        out += state.shift * V
        return out

    def _solution(
        self, X: np.ndarray, residual: float, iterations: int, stopped: bool
    ) -> Solution:
        outcome = Outcome.SUCCESS
        if residual <= self.tol:
            outcome = Outcome.CONVERGED
        elif stopped:
            outcome = Outcome.STOPPED
        else:
            outcome = Outcome.ITERATION_LIMIT
            warnings.warn(
                f"{outcome.value} (residual {residual:.2g} after {iterations} "
                f"iterations, tolerance {self.tol:.2g}).",
                ConvergenceWarning,
                stacklevel=3,
            )
        return Solution(X, residual, iterations, outcome)


def _largest(R: np.ndarray, norms: np.ndarray) -> float:
    return float(np.max(np.linalg.norm(R, axis=0) / norms, initial=0.0))


def _orthonormal(S: np.ndarray) -> np.ndarray:
    """Return an orthonormal basis of the columns of S that are not dependent."""
    scale = np.linalg.norm(S, axis=0)
    S = S[:, scale > 0] / scale[scale > 0]
    if S.shape[1] == 0:
        return S
    q, r, _ = scipy.linalg.qr(S, mode="economic", pivoting=True, check_finite=False)
    diagonal = np.abs(np.diagonal(r))
    return q[:, : int(np.sum(diagonal > 1e-10 * diagonal[0]))]


def _normalised(P: np.ndarray, Q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rescale P and Q = AP so that PᵀQ = I."""
    inner = P.T @ Q
    values, vectors = scipy.linalg.eigh((inner + inner.T) / 2)
    kept = values > 1e-14 * max(values[-1], np.finfo(float).tiny)
    transform = vectors[:, kept] / np.sqrt(values[kept])
    return P @ transform, Q @ transform
