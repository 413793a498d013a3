"""The base class of Gaussian processes: learning, mean functions, and draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from scipy import stats
from sklearn.utils.validation import check_is_fitted

from randkern._random import Stream
from randkern._sklearn import Interval, StrOptions
from randkern._validation import Rows, is_tensor
from randkern.backend.namespace import ops_of
from randkern.data import DeviceBlocks
from randkern.data.reading import mapped_rows
from randkern.data.training_data import ArrayRows, FitData, TrainingData
from randkern.kernels import Gaussian, Kernel, Linear, Scaled
from randkern.kernels.hyperparameters import Hyperparameters, with_kernel
from randkern.kernels.precomputed import is_precomputed
from randkern.models._feature_model import FeatureModel, check_features
from randkern.models._gp_learning import Stage, maximise
from randkern.models._gp_likelihood import Likelihood
from randkern.models._gp_rows import learning_rows, rows_of_stages
from randkern.models._gp_starts import places, search_space
from randkern.models._gp_warnings import warn_of_a_constant
from randkern.models.callbacks import FitReport
from randkern.models.left_out import distinct_rows
from randkern.plan import Plan

# The prior variance of a mean function at the smallest column, over the mean square of
# the targets.
_VAGUE = 1e4
# Largest number of rows for medians of targets.
_MEDIAN_ROWS = 100_000
# Largest ratio of the prior variance of a mean at rows to _VAGUE.
_LARGEST_RATIO = 1e4
# The name of the scale of a mean in bounds.
_OF_MEAN = {"k2__scale": "mean__scale"}


def add_mean_function(kernel: Kernel, mean: str, rows: TrainingData, X: Rows) -> Kernel:
    """Return a kernel plus v h(x)·h(y), with h = 1, or 1 and the columns.

    Targets of `rows` are in units of the fit; v also depends on the sizes of the
    columns of `X`, some of the rows. They are centred: a column far from 0 would leave
    no digits for the others and the constant.
    """
    if mean == "zero":
        return kernel
    survey = rows.survey()
    square = float(survey.all_squares.mean()) / survey.weight_sum
    v: float = _VAGUE * (square or 1.0)
    columns: Any = []
    center = None
    if mean == "linear":
        ops = ops_of(X)
        X = ops.as_float64(ops.densified(X))
        center = X.mean(axis=0)
        sizes = ops.to_host(((X - center) ** 2).mean(axis=0))
        center = ops.to_host(center)
        smallest = min([1.0, *sizes[sizes > 0]])
        v /= max(smallest, (1.0 + float(sizes.sum())) / _LARGEST_RATIO)
        columns = None
    return kernel + v * Linear(1.0, columns=columns, center=center)


def units_of(
    rows: TrainingData, *, center: bool, normalize: bool, median_stream: Stream | None
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the shifts and scales of the targets of rows.

    Plain numbers, which have no device: means and standard deviations, or medians and
    multiples of median deviations, which are robust to outliers; those of rows that
    `median_stream` samples.
    """
    if median_stream is not None and (center or normalize):
        mean, scale = _medians(rows, median_stream)
        scale = scale if normalize else np.ones_like(scale)
        return tuple(mean.tolist()), tuple(scale.tolist())
    survey = rows.survey()
    mean = np.zeros_like(survey.target_mean)
    scale = np.ones_like(survey.target_mean)
    if normalize:
        mean = survey.target_mean
        deviation = np.sqrt(survey.target_squares / survey.weight_sum)
        scale = np.where(deviation > 0, deviation, 1.0)
    elif center:
        mean = survey.target_mean
    return tuple(mean.tolist()), tuple(scale.tolist())


def _medians(rows: TrainingData, stream: Stream) -> tuple[np.ndarray, np.ndarray]:
    """Return medians of targets, and standard deviations from median deviations."""
    n = rows.n_rows
    drawn = stream.generator().choice(n, min(n, _MEDIAN_ROWS), replace=False)
    return _robust(rows.take(np.sort(drawn)))


def _robust(sample: ArrayRows) -> tuple[np.ndarray, np.ndarray]:
    """Return medians of targets, and standard deviations from median deviations."""
    to_host = ops_of(sample.Y).to_host
    Y = to_host(sample.Y)
    if sample.weight is not None and to_host(sample.weight).any():
        Y = Y[to_host(sample.weight) > 0]
    medians = np.median(Y, axis=0)
    deviations = np.median(np.abs(Y - medians), axis=0) / stats.norm.ppf(0.75)
    # More than half of the targets may be equal, or all of them.
    deviations = np.where(deviations > 0, deviations, Y.std(axis=0))
    return medians, np.where(deviations > 0, deviations, 1.0)


def _target_squares(rows: ArrayRows, has_outliers: bool) -> tuple[float, float]:
    """Return the mean square of targets, and their variance, of all columns.

    If they may have outliers, those of a normal distribution with their median and
    median deviation.
    """
    if has_outliers:
        medians, deviations = _robust(rows)
        spread = float((deviations**2).mean())
        return spread + float((medians**2).mean()), spread
    survey = rows.survey()
    square = float(survey.all_squares.mean()) / survey.weight_sum
    return square, float(survey.target_squares.mean()) / survey.weight_sum


def _learning_plan(plan: Plan | None) -> Plan | None:
    """Return the features for learning hyperparameters; None: the exact kernel."""
    return None if plan is None or plan.triangle is not None else plan


class GaussianProcess(FeatureModel):
    """A model whose hyperparameters maximise a log marginal likelihood."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **FeatureModel._parameter_constraints,
        "optimizer": [StrOptions({"l-bfgs-b"}), None],
        "n_restarts_optimizer": [Interval(Integral, 0, None, closed="left")],
        "bounds": [dict, None],
        "priors": [dict, None],
    }

    _needs_sums_alone: ClassVar[bool] = True
    _chooses_kernel = True

    optimizer: str | None
    n_restarts_optimizer: int
    bounds: dict[str, Any] | None
    priors: dict[str, Any] | None
    mean: str = "zero"
    # The distribution of targets given f, with the learned noise.
    _likelihood: Likelihood
    # The rows that hyperparameters are learned from: X, targets and weights.
    _learned_from: tuple[Rows, np.ndarray, np.ndarray | None]
    _posterior: Any
    # Numbers, which have no device.
    _theta: tuple[float, ...]

    def _user_names(self, names: Iterable[str]) -> list[str]:
        """Return the names of entries of θ with paths of the kernel parameter.

        A mean function adds a second term to it.
        """
        if self.mean == "zero":
            return list(names)
        return [_OF_MEAN.get(name, name.removeprefix("k1__")) for name in names]

    def _default_kernel(self) -> Kernel:
        return Scaled(Gaussian(lengthscale="scale"), 1.0)

    # -- fitting --------------------------------------------------------------

    def _report(self, X: Any, y: Any, sample_weight: Any) -> FitReport:
        """Begin the report of a fit and its steps to callbacks."""
        report = FitReport(self, X, y, sample_weight)
        # A step has a new θ, but no posterior yet.
        report.begin(None if self.optimizer is None else lambda theta: {})
        return report

    def _infer(self, data: FitData, likelihood: Likelihood, report: FitReport) -> None:
        """Learn θ, and set the posterior given rows in units of the fit."""
        if self.optimizer is not None and is_precomputed(data.kernel):
            raise ValueError(
                "Precomputed() has no hyperparameters to learn, got optimizer="
                f"{self.optimizer!r}; use optimizer=None."
            )
        rows = data.rows
        most = None
        if data.plan is not None:
            most = likelihood.most_rows(_learning_plan(data.plan), rows.n_targets)
        n_learned = min(rows.n_rows, most or rows.n_rows)
        likelihood.check_memory(data, 0 if self.optimizer is None else n_learned)
        sample = learning_rows(rows, most, data.stream.child("sample"))
        self.n_rows_learned_ = sample.n_rows
        if likelihood.merges_rows:
            sample = distinct_rows(sample)
        hyper = Hyperparameters(data.kernel)
        theta = hyper.theta
        self.hyperparameters_ = hyper.names
        if likelihood.noise is not None:
            theta = np.append(theta, math.log(likelihood.noise))
            self.hyperparameters_ = [*hyper.names, "noise"]
        self._check_names()
        if self.optimizer is not None and len(theta):
            theta = self._learned(data, likelihood, sample, hyper, theta, report)
            kernel = hyper.at(theta[: hyper.size]).kernel
            plan = data.plan
            if plan is not None and plan.triangle is None:
                plan = with_kernel(plan, data.kernel, kernel)
            data = replace(data, kernel=kernel, plan=plan)
            if likelihood.noise is not None:
                likelihood = likelihood.at(math.exp(theta[-1]))
            if self.mean != "linear":
                variance = self._process_variance(kernel, sample)
                warn_of_a_constant(variance, likelihood.noise)
        if self.features == "nystrom":  # for the learned kernel
            data = replace(data, plan=self._plan_of(data))
        else:
            check_features(data)
        self.kernel_, self.plan_ = data.kernel, data.plan
        self._theta = tuple(theta.tolist())
        self._learned_from = (sample.X, sample.Y, sample.weight)
        self._likelihood = likelihood
        self._posterior = likelihood.posterior(data, sample)

    def _check_names(self) -> None:
        """Raise if bounds or priors name what is not learned."""
        names = self._user_names(self.hyperparameters_)
        learned = [name for name in names if name not in _OF_MEAN.values()]
        for what in ("bounds", "priors"):
            for key in getattr(self, what) or {}:
                places(key, learned, what)

    def _learned(
        self,
        data: FitData,
        likelihood: Likelihood,
        sample: ArrayRows,
        hyper: Hyperparameters,
        theta: np.ndarray,
        report: FitReport,
    ) -> np.ndarray:
        """Return θ that maximises the likelihood of the sample, starting from θ."""
        names = self._user_names(self.hyperparameters_)
        sizes = None  # of labels
        if likelihood.noise is not None:
            variance = self._process_variance(data.kernel, sample)
            sizes = (*_target_squares(sample, likelihood.has_outliers), variance)
        held = [name for name in names if name in _OF_MEAN.values()]
        space, starts = search_space(
            hyper,
            names,
            theta,
            sample,
            sizes,
            likelihood.scale_range,
            (self.bounds or {}) | dict.fromkeys(held, "fixed"),
            self.priors,
        )
        if np.all(space.low == space.high):
            return theta.clip(space.low, space.high)
        has_lengthscales = any("lengthscale" in name for name in names)
        plan, stream = _learning_plan(data.plan), data.stream.child("restarts")
        *samples, whole = [
            likelihood.evidence(rows, data.kernel, plan)
            for rows, plan in rows_of_stages(sample, plan, has_lengthscales, stream)
        ]
        stages = [Stage.of(evidence, space, is_sample=True) for evidence in samples]
        stages.append(Stage.of(whole, space, is_sample=False))
        n_restarts = int(self.n_restarts_optimizer)
        return maximise(stages, space, starts, n_restarts, stream, report.step)

    def _process_variance(self, kernel: Kernel, rows: ArrayRows) -> float:
        """Return the mean prior variance of f at rows, without the mean function."""
        process = kernel if self.mean == "zero" else kernel.k1
        return float(process._diag(rows.X).mean())

    # -- what was learned -----------------------------------------------------

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_theta")

    @property
    def theta_(self) -> np.ndarray:
        """Natural logarithms (arsinh of loadings) of `hyperparameters_`, in order."""
        return np.array(self._theta)

    @property
    def log_marginal_likelihood_value_(self) -> float:
        """The log marginal likelihood of all rows at `theta_`.

        Of labels and of other likelihoods than the Gaussian, Laplace's approximation.
        """
        check_is_fitted(self)
        return self._posterior.evidence

    def log_marginal_likelihood(
        self, theta: Any = None, eval_gradient: bool = False
    ) -> Any:
        """Return log p(y | θ), and optionally its gradient in θ.

        Parameters
        ----------
        theta : array, optional
            In the form of `theta_`. None: `theta_`, and the value is that of all rows
            unless the gradient is requested.
        eval_gradient : bool

        Returns
        -------
        float, or (float, ndarray)
            For the rows that hyperparameters are learned from (`n_rows_learned_`).
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
        rows = ArrayRows(*self._learned_from)
        evidence = self._likelihood.evidence(
            rows, self.kernel_, _learning_plan(self.plan_)
        )
        value, gradient = evidence(theta, eval_gradient)
        return (value, gradient) if eval_gradient else value

    # -- prediction -----------------------------------------------------------

    def _mapped(
        self,
        method: Any,
        X: Any,
        function: Callable[[Rows], Any],
        width: int | None,
        like: Any,
    ) -> Any:
        """Return `function` of rows of any kind.

        Rows on devices are moved to the device of `like`, a part of the posterior, and
        the results are moved back.
        """

        def on_its_device(rows: Any) -> Any:
            to_host = ops_of(rows).to_host
            back = ops_of(rows).float64_like
            moved = rows.to(like.device) if is_tensor(like) else to_host(rows)
            values = function(moved)
            if isinstance(values, tuple):
                return tuple(back(part, rows) for part in values)
            return back(values, rows)

        moves = isinstance(X, DeviceBlocks)
        return mapped_rows(method, X, on_its_device if moves else function, width)
