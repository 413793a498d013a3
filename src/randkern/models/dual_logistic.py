r"""Logistic regression with the exact kernel of many rows, by products with the kernel.

For labels :math:`y_i` of 0 and 1 and values :math:`f = Ka`, Newton's method minimises

.. math:: \tfrac12 a^T K a + \sum_i c_i \ell(y_i, f_i),

where :math:`c_i` is C times the weight of a row. With probabilities p and curvatures
:math:`w = p(1 - p)`, a step solves

.. math:: (I + S K S)\, u = S f + \sqrt{c}\, (y - p) / \sqrt{w},
          \qquad a = S u, \qquad S = \operatorname{diag} \sqrt{c w}

(Rasmussen & Williams 2006, "Gaussian processes for machine learning", section 3.4) by
conjugate gradients from the weights of the step before. In the preconditioner a Nyström
approximation replaces K. The Gram matrix is computed once for any number of C and
weights of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from scipy.special import expit

from randkern._memory import check_memory
from randkern._random import Stream
from randkern.data.training_data import ArrayRows
from randkern.kernels import Kernel
from randkern.models.linear_operators import KernelOperator
from randkern.models.memory import kernel_operator_bytes

# Eigenpairs of the preconditioner: a share of the rows, and the most.
_ROWS_PER_EIGENPAIR = 20
_MAX_RANK = 600
# A step is solved to this share of its first residual, in so many iterations.
_SHARE = 0.05
_MAX_ITER = 50
# A step that does not reduce the objective is halved, down to this length.
_SHORTEST = 1e-6
# Curvatures are those of probabilities that differ from 0 and 1 by this much.
_MIN_CHANCE = 1e-6


@dataclass(frozen=True)
class DualWeights:
    """Weights a of rows, (n,), with their values f = Ka.

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

    `signs`, (n,), are ±1; K is about `factor`, (n, r), times its transpose.
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
        n = len(signs)
        rank = max(min(n // _ROWS_PER_EIGENPAIR, _MAX_RANK), 1)
        preparing, iterating = kernel_operator_bytes(X[:0], n, 2, rank)
        iterating += n * rank * X.dtype.itemsize  # scaled by curvatures
        needed = max(preparing, iterating)
        check_memory(
            needed,
            limit,
            f"conjugate gradients on the exact kernel of {n} rows",
            "Use random features (for instance n_components=10_000)",
        )
        rows = ArrayRows(X, signs[:, None])
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
        zeros = np.zeros(len(self.signs))
        at = DualWeights(zeros, zeros) if start is None else start
        n_iter, is_stopped = 0, False
        value = self._objective(at, strength)
        while True:
            chance = expit(at.values)
            slopes = (self.signs > 0) - chance
            gradient = at.weights - strength * slopes
            bound = 0.5 * float(gradient @ self._product(gradient)) / value
            n_iter += 1
            at = DualWeights(at.weights, at.values, n_iter, bound)
            if bound <= tol or n_iter >= max_iter or is_stopped:
                return at
            newton = self._step(at, chance, slopes, np.sqrt(strength))
            after = newton
            length = 1.0
            n_iter = newton.n_iter
            while not (lower := self._objective(after, strength)) < value:
                length /= 2
                if length < _SHORTEST:
                    return at  # rounding errors
                after = DualWeights(
                    at.weights + length * (newton.weights - at.weights),
                    at.values + length * (newton.values - at.values),
                )
            at = after
            value = lower
            is_stopped = report(after.weights)

    def _product(self, vector: np.ndarray) -> np.ndarray:
        return self.operator.product(vector[:, None])[:, 0]

    def _objective(self, at: DualWeights, strength: np.ndarray) -> float:
        losses = np.logaddexp(0.0, -self.signs * at.values)
        return float(0.5 * at.weights @ at.values + strength @ losses)

    def _step(
        self, at: DualWeights, chance: np.ndarray, slopes: np.ndarray, root: np.ndarray
    ) -> DualWeights:
        """Return the weights after a full step."""
        chance = chance.clip(_MIN_CHANCE, 1 - _MIN_CHANCE)
        unit = np.sqrt(chance * (1 - chance))
        scale = root * unit
        precondition = self._preconditioner(scale)
        weights = at.weights
        values = at.values
        n_iter = at.n_iter
        # Of the start u = S⁻¹a, whose values KSu are those of the right-hand side.
        residual = root * slopes / unit
        residual -= np.divide(weights, scale, out=np.zeros_like(scale), where=scale > 0)
        enough = _SHARE * np.linalg.norm(residual)
        direction = np.zeros_like(residual)
        square = np.inf
        for _ in range(_MAX_ITER):
            if np.linalg.norm(residual) <= enough:
                break
            conditioned = precondition(residual)
            before = square
            square = float(residual @ conditioned)
            direction = conditioned + square / before * direction
            along = scale * direction
            change = self._product(along)
            n_iter += 1
            product = direction + scale * change
            length = square / float(direction @ product)
            weights, values = weights + length * along, values + length * change
            residual = residual - length * product
        return DualWeights(weights, values, n_iter)

    def _preconditioner(self, scale: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Return the product with (I + S LLᵀ S)⁻¹."""
        scaled = scale.astype(self.factor.dtype)[:, None] * self.factor
        inner = (scaled.T @ scaled).astype(np.float64)
        inner.flat[:: len(inner) + 1] += 1.0
        factor = scipy.linalg.cho_factor(inner, overwrite_a=True)
        return lambda v: v - scaled @ scipy.linalg.cho_solve(factor, scaled.T @ v)
