r"""Logistic regression with the exact kernel of many rows, by products with the kernel.

For rows with values :math:`F = KA`, (n, k), one column for two classes and otherwise
one per class, Newton's method minimises

.. math:: \tfrac12 \operatorname{tr} A^T K A + \sum_i c_i \ell(y_i, f_i),

where :math:`c_i` is C times the weight of a row. The second derivative of the loss of
a row in its k values is :math:`R R^T`, with :math:`R = \sqrt{p(1 - p)}` for two classes
and :math:`R = (I - p 1^T) \operatorname{diag} \sqrt p` for the multinomial loss. A step
solves

.. math:: (I + S^T K S)\, u = S^+ (c\, (y - p) - A),
          \qquad A \leftarrow A + S u,

where S has the blocks :math:`\sqrt{c_i} R_i` (Rasmussen & Williams 2006, "Gaussian
processes for machine learning", sections 3.4 and 3.5), by conjugate gradients. In the
preconditioner a Nyström approximation replaces K, and the classes are separate. The
Gram matrix is computed once for any number of C and weights of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
from scipy.special import expit, softmax

from randkern._memory import check_memory
from randkern._random import Stream
from randkern.data.training_data import ArrayRows
from randkern.kernels import Kernel
from randkern.models.linear_operators import KernelOperator
from randkern.models.logistic_loss import derivatives
from randkern.models.memory import kernel_operator_bytes

# Eigenpairs of the preconditioner: a share of the rows, and the most.
_ROWS_PER_EIGENPAIR = 20
_MAX_RANK = 600
# A step is solved to this share of its first residual.
_SHARE = 0.05
# Strengths whose product with the diagonal of K is larger on average are approached in
# tenths, each minimised to this tolerance: at zero weights, where all probabilities are
# equal, second derivatives tell little of the minimum that strengths of 1e5 have.
_DIRECT, _ON_THE_WAY = 100.0, 0.1
# A step that does not reduce the objective is halved, down to this length.
_SHORTEST = 1e-6
# Curvatures are those of probabilities that differ from 0 and 1 by this much.
_MIN_CHANCE = 1e-6


def preconditioner_rank(n: int, k: int) -> int:
    """Return the number of eigenpairs for n rows and k columns of values.

    The factors of several classes together take the work of one with more.
    """
    return max(int(min(n // _ROWS_PER_EIGENPAIR, _MAX_RANK) / k**0.5), 1)


@dataclass(frozen=True)
class DualWeights:
    """Weights A of rows, (n, k), with their values F = KA.

    `n_iter` is the number of products with K, and `gradient` the bound ½‖g‖² of the
    excess of the objective over its minimum, relative to the objective.
    """

    weights: np.ndarray
    values: np.ndarray
    n_iter: int = 0
    gradient: float = np.inf


@dataclass(frozen=True)
class DualLogistic:
    """The rows of a fit, through products with their Gram matrix.

    `signs`, (n, k), are ±1; K is about `factor`, (n, r), times its transpose.
    """

    operator: KernelOperator
    factor: np.ndarray
    signs: np.ndarray

    @classmethod
    def of(
        cls,
        kernel: Kernel,
        X: np.ndarray,
        signs: np.ndarray,
        limit: int,
        stream: Stream,
    ) -> DualLogistic:
        """Prepare rows; their Gram matrix is stored as far as `limit` bytes allow."""
        n, k = signs.shape
        rank = preconditioner_rank(n, k)
        preparing, iterating = kernel_operator_bytes(X[:0], n, k + 1, rank)
        iterating += n * rank * X.dtype.itemsize + 8 * k * rank**2  # scaled; inverses
        needed = max(preparing, iterating)
        check_memory(
            needed,
            limit,
            f"conjugate gradients on the exact kernel of {n} rows",
            "Use random features (for instance n_components=10_000)",
        )
        rows = ArrayRows(X, signs)
        operator = KernelOperator(kernel, rows, stream, limit - needed, center=False)
        values, vectors = operator.leading_eigenpairs(rank)
        factor = vectors * np.sqrt(values).astype(vectors.dtype)
        return cls(operator, factor, signs)

    def minimise(
        self,
        strength: np.ndarray,
        tol: float,
        max_iter: int,
        start: DualWeights | None = None,
        report: Callable[[np.ndarray], bool] = lambda weights: False,
    ) -> DualWeights:
        """Return the weights of least objective for strengths c, (n,), of rows.

        Rows of strength 0 get values but no weight; their weight in `start` must be 0.
        The excess of the objective is at most `tol` times it, unless that takes more
        than about `max_iter` products, or `report`, which is called with the weights of
        each step, returns True to stop.
        """
        is_stopped = False

        def stops(weights: np.ndarray) -> bool:
            nonlocal is_stopped
            is_stopped = report(weights)
            return is_stopped

        goals = [(strength, tol)]
        if start is None:
            zeros = np.zeros(self.signs.shape)
            start = DualWeights(zeros, zeros)
            diagonal = self.operator.kernel._diag(self.operator.X)
            size = float(strength @ diagonal) / np.count_nonzero(strength)
            while size > _DIRECT:
                size /= 10
                goals.append((goals[-1][0] / 10, max(tol, _ON_THE_WAY)))
        current = replace(start, n_iter=0)
        for goal, tolerance in reversed(goals):
            current = self._descend(current, goal, tolerance, max_iter, stops)
            if is_stopped:
                break
        return current

    def _descend(
        self,
        current: DualWeights,
        strength: np.ndarray,
        tol: float,
        max_iter: int,
        stops: Callable[[np.ndarray], bool],
    ) -> DualWeights:
        """Take Newton steps until the excess is small enough, or it is time to end."""
        value = self._objective(current, strength)
        n_iter, is_stopped = current.n_iter, False
        while True:
            slopes = derivatives(current.values, self.signs)[1]
            gradient = current.weights + strength[:, None] * slopes
            bound = (
                0.5 * float((gradient * self.operator.product(gradient)).sum()) / value
            )
            n_iter += 1
            current = DualWeights(current.weights, current.values, n_iter, bound)
            if bound <= tol or n_iter >= max_iter or is_stopped:
                return current
            root = np.sqrt(strength)[:, None]
            full_step = self._step(current, gradient, root, max_iter)
            trial = full_step
            length = 1.0
            n_iter = full_step.n_iter
            while not (trial_value := self._objective(trial, strength)) < value:
                length /= 2
                if length < _SHORTEST:
                    return current  # rounding errors
                trial = DualWeights(
                    current.weights + length * (full_step.weights - current.weights),
                    current.values + length * (full_step.values - current.values),
                )
            current = trial
            value = trial_value
            is_stopped = stops(trial.weights)

    def _objective(self, at: DualWeights, strength: np.ndarray) -> float:
        losses = derivatives(at.values, self.signs)[0]
        return float(0.5 * (at.weights * at.values).sum() + strength @ losses)

    def _step(
        self, at: DualWeights, gradient: np.ndarray, root: np.ndarray, max_iter: int
    ) -> DualWeights:
        """Return the weights after a full step; root, (n, 1), is that of strengths."""
        curvature = _Curvature.of(at.values, root)
        precondition = self._preconditioner(curvature)
        weights = at.weights
        values = at.values
        n_iter = at.n_iter
        residual = -curvature.inverse(gradient)
        enough = _SHARE * np.linalg.norm(residual)
        direction = np.zeros_like(residual)
        square = np.inf
        while np.linalg.norm(residual) > enough and n_iter < max_iter:
            conditioned = precondition(residual)
            before = square
            square = float((residual * conditioned).sum())
            direction = conditioned + square / before * direction
            along = curvature.times(direction)
            change = self.operator.product(along)
            n_iter += 1
            product = direction + curvature.transposed_times(change)
            length = square / float((direction * product).sum())
            weights, values = weights + length * along, values + length * change
            residual = residual - length * product
        return DualWeights(weights, values, n_iter)

    def _preconditioner(
        self, curvature: _Curvature
    ) -> Callable[[np.ndarray], np.ndarray]:
        """Return the product with about (I + SᵀLLᵀS)⁻¹.

        Π(I + D LLᵀ D)⁻¹Π for S = DΠ, with D and so the inverse diagonal in classes.
        """
        scale = curvature.scale.astype(self.factor.dtype)
        factors = []
        for column in scale.T:
            scaled = column[:, None] * self.factor
            inner = (scaled.T @ scaled).astype(np.float64)
            inner.flat[:: len(inner) + 1] += 1.0
            factors.append(scipy.linalg.cho_factor(inner, overwrite_a=True))

        def product(V: np.ndarray) -> np.ndarray:
            sides = self.factor.T @ (scale * V)
            solved = [
                scipy.linalg.cho_solve(factor, side)
                for factor, side in zip(factors, sides.T, strict=True)
            ]
            solved = self.factor @ np.column_stack(solved).astype(self.factor.dtype)
            return curvature.projected(V - scale * solved)

        return product


@dataclass(frozen=True)
class _Curvature:
    """The blocks √c_i R_i of roots of second derivatives, S = DΠ.

    `chance`, (n, k), are probabilities p, and `scale`, (n, k), the diagonals of D:
    √c √(p(1 - p)) for two classes, and √c √p for more. Π is I, or projects each row
    onto the vectors orthogonal to √p.
    """

    chance: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, root: np.ndarray) -> _Curvature:
        binary = values.shape[1] == 1
        p = expit(values) if binary else softmax(values, axis=1)
        p = p.clip(_MIN_CHANCE, 1 - _MIN_CHANCE)
        if binary:
            return cls(p, root * np.sqrt(p * (1 - p)))
        p /= p.sum(axis=1, keepdims=True)
        return cls(p, root * np.sqrt(p))

    def projected(self, U: np.ndarray) -> np.ndarray:
        """Return ΠU."""
        if U.shape[1] == 1:
            return U
        axis = np.sqrt(self.chance)
        return U - axis * (axis * U).sum(axis=1, keepdims=True)

    def times(self, U: np.ndarray) -> np.ndarray:
        """Return SU."""
        return self.scale * self.projected(U)

    def transposed_times(self, U: np.ndarray) -> np.ndarray:
        """Return SᵀU."""
        return self.projected(self.scale * U)

    def inverse(self, G: np.ndarray) -> np.ndarray:
        """Return U with SU = G, whose rows sum to 0 for several classes."""
        return np.divide(G, self.scale, out=np.zeros_like(G), where=self.scale > 0)
