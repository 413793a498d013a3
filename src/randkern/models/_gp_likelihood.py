"""The parts of a Gaussian process, which every likelihood provides.

A :class:`Likelihood` gives the :class:`Evidence` of some rows, log p(y | θ) as a
function of the hyperparameters, which is maximised; and then, for the best θ, the
posterior of f given all rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from randkern.data import row_blocks
from randkern.data.training_data import ArrayRows, FitData
from randkern.kernels import Kernel
from randkern.kernels.hyperparameters import (
    Hyperparameters,
    add_feature_gradient,
    add_gram_gradient,
    with_kernel,
)
from randkern.plan import Plan, evaluate

_ROWS = 1024


class Evidence(ABC):
    """log p(y | θ) of some rows as a function of θ, with its gradient.

    θ holds the logarithms of the kernel's numbers (see
    :class:`~randkern.kernels.hyperparameters.Hyperparameters`), then that of the noise,
    if there is one. Random draws are the same for every θ. Rows are float64, of
    positive weight; without a plan the kernel is exact.
    """

    def __init__(self, rows: ArrayRows, kernel: Kernel, plan: Plan | None):
        self.rows = rows
        self.hyper = Hyperparameters(kernel)
        self.plan = plan
        self.precise = True
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

    def _gram(
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
    """The distribution of targets given f, a dataclass, and what follows from it."""

    # The noise σ², which is learned, None without one.
    noise: float | None
    # Largest factor by which learning may change a scale.
    scale_range: ClassVar[float]
    # Whether some targets may be far from f.
    has_outliers: ClassVar[bool] = False
    # Whether weights can only count rows, so that learning merges equal ones.
    merges_rows: ClassVar[bool] = False

    def at(self, noise: float) -> Any:
        """Return the likelihood with another noise."""
        return replace(self, noise=noise)  # type: ignore[type-var]

    @abstractmethod
    def most_rows(self, plan: Plan | None, n_targets: int) -> int:
        """Return the largest number of rows to learn from, on features or not (None).

        The exact kernel, whose posterior takes all rows, is learned from all of them.
        """

    @abstractmethod
    def check_memory(self, data: FitData, n_learned: int) -> None:
        """Raise if a fit that learns from `n_learned` rows takes too much."""

    @abstractmethod
    def evidence(self, rows: ArrayRows, kernel: Kernel, plan: Plan | None) -> Evidence:
        """Return the log marginal likelihood of rows, on features or exact (None)."""

    @abstractmethod
    def posterior(self, data: FitData, sample: ArrayRows) -> Any:
        """Return the posterior given rows, or given the sample for an exact kernel.

        The sample are the rows that hyperparameters were learned from.
        """
