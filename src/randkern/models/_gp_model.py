"""What Gaussian processes share: hyperparameters, and learning them."""

from __future__ import annotations

from abc import abstractmethod
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from randkern._random import Stream
from randkern._validation import Rows
from randkern.data.training_data import ArrayRows
from randkern.kernels import Gaussian, Kernel, Scaled
from randkern.kernels.hyperparameters import with_kernel
from randkern.models._feature_model import FeatureModel
from randkern.models._gp_evidence import LikelihoodOfRows
from randkern.models._gp_learning import (
    bounds,
    coarse_rows,
    first_starts,
    maximise,
    smooth_rows,
)
from randkern.plan import Plan

__all__ = ["GaussianProcess"]


class GaussianProcess(FeatureModel):
    """A model whose hyperparameters maximise a log marginal likelihood."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **FeatureModel._parameter_constraints,
        "optimizer": [StrOptions({"l-bfgs-b"}), None],
        "n_restarts_optimizer": [Interval(Integral, 0, None, closed="left")],
    }

    # By how much learning may change a scale; those of regression follow the targets.
    _scale_range: ClassVar[float] = 1e10

    optimizer: str | None
    n_restarts_optimizer: int
    # The rows that hyperparameters are learned from: X, targets and weights.
    _learned_from: tuple[Rows, np.ndarray, np.ndarray | None]
    # Numbers, which have no device.
    _theta: tuple[float, ...]

    def _default_kernel(self) -> Kernel:
        return Scaled(Gaussian(lengthscale="scale"), 1.0)

    @property
    def _sample(self) -> ArrayRows:
        return ArrayRows(*self._learned_from)

    @abstractmethod
    def _evidence(self, rows: ArrayRows, plan: Plan | None) -> LikelihoodOfRows:
        """Return the log marginal likelihood of rows, on features or exact (None)."""

    @property
    @abstractmethod
    def log_marginal_likelihood_value_(self) -> float:
        """The log marginal likelihood of all rows at `theta_`."""

    def _learn(
        self, sample: ArrayRows, extra: dict[str, float], stream: Stream
    ) -> None:
        """Set θ, the kernel and its plan, learned unless `optimizer` is None.

        From the rows of the sample; `extra` holds the logarithms of hyperparameters
        beside those of the kernel.
        """
        self._learned_from = (sample.X, sample.Y, sample.weight)
        evidence = self._evidence(sample, self.plan_)
        hyper = evidence.hyper
        self.n_rows_learned_ = sample.n_rows
        self.hyperparameters_ = [*hyper.names, *extra]
        theta = np.append(hyper.theta, list(extra.values()))
        if self.optimizer is not None and len(theta):
            theta = self._maximised(sample, evidence, theta, stream)
            before, self.kernel_ = self.kernel_, hyper.at(theta[: hyper.size]).kernel
            if self.plan_ is not None:
                self.plan_ = with_kernel(self.plan_, before, self.kernel_)
        self._theta = tuple(theta.tolist())

    def _maximised(
        self,
        sample: ArrayRows,
        evidence: LikelihoodOfRows,
        theta: np.ndarray,
        stream: Stream,
    ) -> np.ndarray:
        """Return θ where the likelihood of the sample is largest."""
        names = self.hyperparameters_
        coarse = coarse_rows(sample, stream.child("coarse"))
        objectives = [evidence]
        if coarse is not sample:
            objectives.insert(0, self._evidence(coarse, self.plan_))
        smooth = None
        if self.plan_ is not None and any("lengthscale" in name for name in names):
            # Features of fixed draws have maxima of their own along lengthscales.
            rows = smooth_rows(coarse, stream.child("smooth"))
            smooth = self._evidence(rows, None)
        rescaling = np.zeros(len(theta))
        rescaling[: evidence.hyper.size] = evidence.hyper.rescaling()
        square = spread = 1.0  # of labels
        if "noise" in names:
            survey = sample.survey()
            square = float(survey.moments.all_squares.mean()) / survey.weight_sum
            spread = float(survey.target_squares.mean()) / survey.weight_sum
        variance = float(self.kernel_._diag(coarse.X).mean())
        return maximise(
            objectives,
            names,
            first_starts(names, theta, square, variance, rescaling),
            bounds(names, theta, square, spread, self._scale_range),
            int(self.n_restarts_optimizer),
            stream,
            smooth,
        )

    @property
    def theta_(self) -> np.ndarray:
        """Natural logarithms of what `hyperparameters_` names."""
        return np.array(self._theta)

    def log_marginal_likelihood(
        self, theta: Any = None, eval_gradient: bool = False
    ) -> Any:
        """Return log p(y | θ), and its gradient in θ if asked for.

        Parameters
        ----------
        theta : array, optional
            Natural logarithms of what `hyperparameters_` names. None: `theta_`, and
            the value is that of all rows unless a gradient is asked for.
        eval_gradient : bool

        Returns
        -------
        float, or (float, ndarray)
            Of the rows that hyperparameters are learned from (`n_rows_learned_`).
        """
        check_is_fitted(self)
        if theta is None and not eval_gradient:
            return self.log_marginal_likelihood_value_
        theta = self.theta_ if theta is None else np.asarray(theta, dtype=float)
        if theta.shape != self.theta_.shape or not np.all(np.isfinite(theta)):
            raise ValueError(
                f"theta must hold {len(self.theta_)} finite logarithms, of "
                f"{self.hyperparameters_}, got {theta!r}."
            )
        value, gradient = self._evidence(self._sample, self.plan_)(theta, eval_gradient)
        return (value, gradient) if eval_gradient else value
