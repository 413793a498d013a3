"""The parts of a Gaussian process, which every likelihood provides.

A :class:`Likelihood` gives the :class:`Evidence` of some rows, log p(y | θ) as a
function of the hyperparameters, which is maximised; and then, on the :class:`Basis` for
the best θ, the :class:`Posterior` of f given all rows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from randkern._random import Stream
from randkern._validation import Rows
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.data.training_data import ArrayRows, TrainingData
from randkern.kernels import Kernel
from randkern.kernels.hyperparameters import (
    Hyperparameters,
    add_feature_gradient,
    add_gram_gradient,
    with_kernel,
)
from randkern.models._feature_model import check_same_device
from randkern.models.memory import block_rows
from randkern.plan import Plan, evaluate

_ROWS = 1024


@dataclass(frozen=True)
class Basis:
    """What values of f at rows are combinations of: features, or kernel values.

    `plan` is that of the features, None for the exact kernel, whose values with the
    rows `X` take their place; if these are pivots, `triangle` is their factor.
    """

    kernel: Kernel
    plan: Plan | None
    X: Rows | None = None
    triangle: np.ndarray | None = None

    @property
    def omits(self) -> bool:
        """Whether the features are those of landmarks or pivots, which omit a part."""
        return self.triangle is not None or (
            self.plan is not None and self.plan.triangle is not None
        )

    def values(self, X: Rows) -> np.ndarray:
        """Return the features of float64 rows, or their kernel values."""
        if self.plan is not None:
            return evaluate(self.plan, X)
        K = self.kernel._gram(X, self.X)
        if self.triangle is None:
            return K
        return ops_of(X).algebra.triangular_solve(self.triangle, K.T).T

    def omitted_variance(self, X: Rows, Z: np.ndarray) -> Any:
        """Return the variance to add to that of combinations of values Z at rows.

        k(x, x) − φ(x)·φ(x) for landmarks and pivots, 0 for random features, and that of
        the prior for kernel values, whose combinations reduce it.
        """
        if self.omits:
            omitted = self.kernel._diag(X) - ops_of(Z).float64_squared_norms(Z)
            return omitted.clip(0.0)
        return self.kernel._diag(X) if self.plan is None else 0.0


@dataclass(frozen=True)
class WeightPosterior:
    """A normal posterior of weights of features given targets."""

    # (D, k) or (D,).
    mean: np.ndarray
    # The lower triangular Cholesky factor of the precision, (D, D).
    factor: np.ndarray
    # The log marginal likelihood, or an approximation.
    evidence: float

    def half(self, Z: np.ndarray) -> np.ndarray:
        """Return V with Var f = VᵀV for the rows of features Z, (D, n)."""
        ops = ops_of(Z)
        return ops.algebra.triangular_solve(self.factor, ops.as_float64(Z).T)

    def moments(self, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and variance of f at rows of features."""
        ops = ops_of(Z)
        half = self.half(Z)
        variance = ops.algebra.column_products(half, half)
        return ops.as_float64(Z) @ self.mean, variance


@dataclass(frozen=True)
class Posterior:
    """The posterior of the functions f of a process: weights of a basis for each."""

    basis: Basis
    of_functions: Sequence[Any]

    @property
    def evidence(self) -> float:
        """The log marginal likelihood, or an approximation."""
        return sum(weights.evidence for weights in self.of_functions)

    def moments(self, X: Rows) -> tuple[Any, Any]:
        """Return means of every f at rows, (n, k), and their variances.

        The latter have one column for all targets of a likelihood.
        """
        mean, factor = self.of_functions[0].mean, self.of_functions[0].factor
        check_same_device(X, factor)
        ops = ops_of(X)
        m = len(self.of_functions)
        means = ops.float64_zeros((X.shape[0], m * math.prod(mean.shape[1:])), X)
        variances = ops.float64_zeros((X.shape[0], m), X)
        for rows in row_blocks(len(means), block_rows(8 * len(factor), at_least=16)):
            part = ops.as_float64(X[rows])
            Z = self.basis.values(part)
            moments = [weights.moments(Z) for weights in self.of_functions]
            means[rows] = ops.hstack([mean.reshape(len(Z), -1) for mean, _ in moments])
            omitted = self.basis.omitted_variance(part, Z)
            for t, (_, variance) in enumerate(moments):
                variances[rows, t] = variance + omitted
        if not (ops.is_finite(means) and ops.is_finite(variances)):
            raise ValueError(
                "predictions overflow: rows of X are too far from those of the fit "
                "for this kernel; scale the input down."
            )
        return means, variances

    def covariance(self, X: Rows) -> np.ndarray:
        """Return the covariance of f at all rows, under a normal likelihood."""
        (weights,) = self.of_functions
        check_same_device(X, weights.factor)
        X = ops_of(X).as_float64(X)
        basis = self.basis
        Z = basis.values(X)
        half = weights.half(Z)
        covariance = half.T @ half
        if basis.omits:
            return covariance + basis.kernel._gram(X, None) - Z @ Z.T
        if basis.plan is None:
            return basis.kernel._gram(X, None) - covariance
        return covariance

    def updated(self, rows: ArrayRows, likelihood: Any) -> Posterior:
        """Return the posterior given more rows, under a normal likelihood."""
        basis = self.basis
        (weights,) = self.of_functions
        updated = weights.updated(basis, rows, likelihood)
        if basis.plan is None:
            X = ops_of(rows.X).concatenate([basis.X, rows.X])
            basis = replace(basis, X=X)
        return Posterior(basis, [updated])


class Evidence(ABC):
    """log p(y | θ) of some rows as a function of θ, with its gradient.

    θ holds the logarithms of the kernel's numbers (see
    :class:`~randkern.kernels.hyperparameters.Hyperparameters`), then that of the noise,
    if there is one. Random draws are the same for every θ. Rows are float64, of
    positive weight; without a plan the kernel is exact. Unless `precise`, values and
    gradients may be estimates, which is for optimisation.
    """

    precise = True

    def __init__(self, rows: ArrayRows, kernel: Kernel, plan: Plan | None):
        self.rows = rows
        self.hyper = Hyperparameters(kernel)
        self.plan = plan
        _, self._weight = rows.targets()

    @abstractmethod
    def __call__(
        self, theta: np.ndarray, gradient: bool = True
    ) -> tuple[float, np.ndarray]:
        """Return the value at θ and its gradient (zeros if not requested)."""

    def rescaled(
        self,
        direction: np.ndarray,
        low: np.ndarray,
        high: np.ndarray,
        theta: np.ndarray,
    ) -> tuple[np.ndarray, float]:
        """Return θ with the best scale, along a direction, and noise; and the value.

        `direction` multiplies the kernel by e. Here, where they are not cheap to find,
        θ is returned.
        """
        value, _ = self(theta, False)
        return theta, value

    @property
    def operations(self) -> float:
        """The approximate number of operations of an evaluation with its gradient."""
        n = self.rows.n_rows
        D = n if self.plan is None else self.plan.n_components
        return 4.0 * n * D * min(n, D)

    def _covariance(
        self, hyper: Hyperparameters
    ) -> tuple[np.ndarray, Callable[[np.ndarray, np.ndarray], None]]:
        """Return the Gram matrix, and a function that adds to a gradient.

        It is called with the derivatives in the matrix, and the gradient to add to.
        """
        X = self.rows.X
        if self.plan is None:

            def add_exact(slopes: np.ndarray, out: np.ndarray) -> None:
                for part in row_blocks(len(slopes), _ROWS):
                    add_gram_gradient(hyper, X[part], X, slopes[part], out)

            return hyper.kernel._gram(X, None), add_exact
        plan = with_kernel(self.plan, self.hyper.kernel, hyper.kernel)
        Z = evaluate(plan, X)

        def add(slopes: np.ndarray, out: np.ndarray) -> None:
            add_feature_gradient(hyper, plan, X, Z, 2 * (slopes @ Z), out)

        return Z @ Z.T, add


class Likelihood(ABC):
    """The distribution of targets given f, and what follows from it."""

    # The noise σ², which is learned, None without one.
    noise: float | None
    # Largest factor by which learning may change a scale.
    scale_range: ClassVar[float]
    # Whether some targets may be far from f.
    has_outliers: ClassVar[bool] = False
    # Whether weights can only count rows, so that learning merges equal ones.
    merges_rows: ClassVar[bool] = False

    def at(self, noise: float) -> Any:
        """Return the likelihood with another noise, if it has one."""
        return self

    @abstractmethod
    def most_rows(self, plan: Plan | None, n_targets: int) -> int:
        """Return the largest number of rows to learn from, on features or not (None).

        The exact kernel, whose posterior takes all rows, is learned from all of them.
        """

    @abstractmethod
    def check_memory(
        self, plan: Plan | None, rows: TrainingData, n_learned: int, limit: int
    ) -> None:
        """Raise if a fit, learning from `n_learned` rows, takes more than the limit."""

    @abstractmethod
    def evidence(
        self, rows: ArrayRows, kernel: Kernel, plan: Plan | None, stream: Stream
    ) -> Evidence:
        """Return the log marginal likelihood of rows, on features or exact (None).

        The stream is for estimates of its gradient.
        """

    @abstractmethod
    def posterior(
        self, basis: Basis, rows: TrainingData, sample: ArrayRows, limit: int
    ) -> Any:
        """Return the posterior given rows, or given the sample for an exact kernel.

        The sample are the rows that hyperparameters were learned from.
        """
