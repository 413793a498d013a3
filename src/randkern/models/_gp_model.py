"""What Gaussian processes share: learning hyperparameters, means, reach, and draws.

Reach: given many rows, D weights are known well in every direction, and so features
give a small variance even where the exact kernel says that no row has anything to tell:
on average over rows far away the D weights take d/D off the prior variance, with d = tr
ZᵀZ(ZᵀZ + σ²I)⁻¹. What the rows can tell at all is known from landmarks.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from scipy.stats import norm
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from randkern._random import Stream, root_stream
from randkern._validation import Rows, check_weights, is_tensor, validate_rows
from randkern.backend.namespace import ops_of
from randkern.data import DeviceBlocks, DeviceRows, row_blocks
from randkern.data.reading import are_in_memory, mapped_rows
from randkern.data.sample import stacked
from randkern.data.training_data import ArrayRows, TrainingData
from randkern.kernels import Gaussian, Kernel, Linear, Scaled
from randkern.kernels.draw import fit_plan
from randkern.kernels.hyperparameters import with_kernel
from randkern.landmarks import choose_landmarks, landmark_plan
from randkern.models._feature_model import (
    FeatureModel,
    check_same_device,
    predict_by_features,
)
from randkern.models._gp_evidence import LikelihoodOfRows, RowPosterior
from randkern.models._gp_laplace import LaplacePosterior, Likelihood, softmax_posteriors
from randkern.models._gp_learning import (
    Stage,
    bounds,
    coarse_rows,
    few_features,
    first_starts,
    given_bounds,
    maximise,
    places,
    smooth_rows,
    with_priors,
)
from randkern.models.callbacks import FitReport
from randkern.models.feature_matrix import GramFactor
from randkern.models.memory import float64_block_rows
from randkern.plan import Plan, evaluate

# The variance of what a mean has at rows of the smallest column, over the mean square
# of the targets; and how much more it may be at the largest.
_VAGUE = 1e4
# Rows whose targets medians are taken of, at most.
_MEDIAN_ROWS = 100_000
_LARGEST_RATIO = 1e4
# What bounds call the scale of a mean.
_OF_MEAN = {"k2__scale": "mean__scale"}


def with_mean(kernel: Kernel, mean: str, rows: TrainingData, X: Rows) -> Kernel:
    """Return a kernel plus v h(x)·h(y), h being 1, or 1 and the columns.

    Parameters
    ----------
    kernel : Kernel
    mean : {"zero", "constant", "linear"}
    rows : TrainingData
        Their targets in units of the fit.
    X : Rows
        Some of the rows, whose columns v depends on.
    """
    if mean == "zero":
        return kernel
    survey = rows.survey()
    square = float(survey.moments.all_squares.mean()) / survey.weight_sum
    v: float = _VAGUE * (square or 1.0)
    columns: Any = []
    if mean == "linear":
        ops = ops_of(X)
        sizes = ops.to_host((ops.as_float64(ops.densified(X)) ** 2).mean(axis=0))
        smallest = min([1.0, *sizes[sizes > 0]])
        v /= max(smallest, (1.0 + float(sizes.sum())) / _LARGEST_RATIO)
        columns = None
    return kernel + v * Linear(1.0, columns=columns)


def units_of(
    rows: TrainingData, *, center: bool, normalize: bool, robust: Stream | None
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return what the targets of rows are shifted and divided by.

    Numbers, which have no device: means and deviations, or medians and multiples of
    median deviations (of rows sampled by the stream `robust`), which outliers leave
    alone.
    """
    if robust is not None and (center or normalize):
        mean, scale = _medians(rows, robust)
        scale = scale if normalize else np.ones_like(scale)
        return tuple(mean.tolist()), tuple(scale.tolist())
    survey = rows.survey()
    mean = np.zeros_like(survey.target_mean)
    scale = np.ones_like(survey.target_mean)
    if normalize:
        unit = survey.target_scale
        if np.any(unit != 1):
            survey = rows.rescaled(np.zeros_like(unit), unit).survey()
        mean = survey.target_mean * unit
        deviation = np.sqrt(survey.target_squares / survey.weight_sum)
        scale = np.where(deviation > 0, deviation, 1.0) * unit
    elif np.any(survey.target_scale != 1):
        raise ValueError(
            f"the targets are of size {survey.largest_target.max():.3g}, whose "
            "squares, as variances, leave the range of floats: set normalize_y=True, "
            "or scale y."
        )
    elif center:
        mean = survey.target_mean
    return tuple(mean.tolist()), tuple(scale.tolist())


def _medians(rows: TrainingData, stream: Stream) -> tuple[np.ndarray, np.ndarray]:
    """Return medians of targets, and deviations of normal laws of the same median."""
    n = rows.n_rows
    drawn = stream.generator().choice(n, min(n, _MEDIAN_ROWS), replace=False)
    sample = rows.take(np.sort(drawn))
    to_host = ops_of(sample.Y).to_host
    Y = to_host(sample.Y)
    if sample.weight is not None and to_host(sample.weight).any():
        Y = Y[to_host(sample.weight) > 0]
    medians = np.median(Y, axis=0)
    deviations = np.median(np.abs(Y - medians), axis=0) / norm.ppf(0.75)
    # More than half of the targets may be equal, or all of them.
    deviations = np.where(deviations > 0, deviations, Y.std(axis=0))
    return medians, np.where(deviations > 0, deviations, 1.0)


#: Makes features of rows by a plan, as :func:`randkern.plan.evaluate` does.
Evaluate = Callable[[Plan, Any], Any]
# The share that landmarks leave at this share of the rows of the fit is no sign that
# a row is far from them: there are too few landmarks, and the noise that was learned
# has taken account of what few features cannot say.
_USUAL_QUANTILE = 0.95
_MEASURED_ROWS = 2000
_LARGEST_SHARE = 1 - 1e-6


@dataclass(frozen=True)
class Reach:
    """Where values of a process at landmarks say something about its values.

    Attributes
    ----------
    kernel : Kernel
    plan : Plan
        Of the landmarks.
    usual : float
        The share of the prior variance that they leave at 95 % of other rows at most.
    """

    kernel: Kernel
    plan: Plan
    usual: float

    @classmethod
    def of(
        cls,
        kernel: Kernel,
        rows: ArrayRows,
        n_landmarks: int,
        stream: Stream,
        memory_limit: int,
    ) -> Reach:
        """Choose landmarks among the rows; measure what they leave of the others."""
        X, ops = rows.X, ops_of(rows.X)
        chosen = choose_landmarks(
            *(kernel, X, None, n_landmarks, "auto", stream, memory_limit)
        )
        plan = landmark_plan(
            *(kernel, X, None, n_landmarks, stream),
            landmarks=ops.take(X, chosen),
            memory_limit=memory_limit,
        )
        others = np.setdiff1d(np.arange(rows.n_rows), chosen)
        if len(others) > _MEASURED_ROWS:
            drawn = stream.child("measured").generator()
            others = np.sort(drawn.choice(others, _MEASURED_ROWS, replace=False))
        reach = cls(kernel, plan, 0.0)
        if not len(others):
            return reach
        X = ops.take(X, others)
        share = ops.to_host(reach.left_over(X)) / ops.to_host(kernel._diag(X))
        usual = np.quantile(np.nan_to_num(share), _USUAL_QUANTILE)
        return cls(kernel, plan, min(float(usual), _LARGEST_SHARE))

    def left_over(self, X: Rows, evaluate: Evaluate = evaluate) -> np.ndarray:
        """Return k(x, x) − k(x, L)K_LL⁻¹k(L, x), what landmarks without noise leave."""
        Z = evaluate(self.plan, X)
        return (self.kernel._diag(X) - ops_of(Z).squared_norms(Z)).clip(0.0)

    def least_variance(self, X: Rows, evaluate: Evaluate = evaluate) -> np.ndarray:
        """Return the variance that there is at least: far from all rows k(x, x)."""
        excess = self.left_over(X, evaluate) - self.usual * self.kernel._diag(X)
        return excess.clip(0.0) / (1 - self.usual)

    def left_covariance(self, X: Rows) -> np.ndarray:
        """Return k(x, y) − k(x, L)K_LL⁻¹k(L, y) of all pairs of rows."""
        Z = evaluate(self.plan, X)
        return self.kernel._gram(X, None) - Z @ Z.T

    def with_rows(self, X: Rows, n_landmarks: int) -> Reach:
        """Return that of more rows, with so many landmarks at most."""
        rows = stacked([landmarks_of(self.plan), X])
        stream = self.plan.groups[0].factors[0].projection.stream.child("more")
        plan = landmark_plan(self.kernel, rows, None, n_landmarks, stream)
        return Reach(self.kernel, plan, self.usual)


def landmarks_of(plan: Plan) -> Any:
    """Return the rows that a plan of Nyström features has as landmarks."""
    projection: Any = plan.groups[0].factors[0].projection
    return projection.rows


# Features of draws of the prior of an exact kernel.
_PATH_FEATURES = 2000


def new_noise(model: Any, include_noise: Any, X: Any) -> Any:
    """Return the variance of the noise of new rows: a number, or one of each."""
    if np.ndim(include_noise) == 0:
        return model.noise_ if include_noise else 0.0
    if model.weights != "precision" or not are_in_memory(X):
        raise ValueError(
            "include_noise takes weights of rows in memory, of a process with "
            "weights='precision' and a Gaussian likelihood."
        )
    weight: Any = check_weights(include_noise, validate_rows(model, X, reset=False))
    if not bool((weight > 0).all()):
        raise ValueError("weights of new rows must be positive.")
    return model.noise_ / weight


def conditioned_paths(
    kernel: Kernel,
    rows: Rows,
    posterior: RowPosterior,
    columns: int,
    generator: np.random.Generator,
    random_state: Any,
) -> tuple[tuple[Plan, np.ndarray], np.ndarray]:
    """Return draws of the prior, and weights of the rows that take them about 0.

    −(K + σ²W⁻¹)⁻¹(f(X) + ε), Matheron's rule.
    """
    prior = _prior_paths(kernel, rows, columns, random_state)
    ops, root = ops_of(posterior.factor), posterior.root[:, None]
    noise = generator.normal(size=(len(root), columns))
    # In the units of B⁻¹, where the noise of a row has the variance 1.
    right = root * predict_by_features(*prior, rows)
    right += ops.float64_like(noise, posterior.factor)
    return prior, -root * ops.algebra.factor_solve(posterior.factor, right)


def left_paths(
    kernel: Kernel, plan: Plan, columns: int, random_state: Any
) -> list[tuple[Plan, np.ndarray]]:
    """Return parts that add up to draws of what landmarks leave of the prior.

    A draw of the prior but for its part in the landmarks' span,
    k(x, L)K(L, L)⁻¹f(L) = φ(x)·T⁻¹f(L), where φ(x) = T⁻¹k(L, x).
    """
    landmarks = landmarks_of(plan)
    prior = _prior_paths(kernel, landmarks, columns, random_state)
    return [prior, (plan, -plan.solve(predict_by_features(*prior, landmarks)))]


def _prior_paths(
    kernel: Kernel, rows: Rows, columns: int, random_state: Any
) -> tuple[Plan, np.ndarray]:
    """Return random features of the kernel, and weights of draws of the prior."""
    stream = root_stream(random_state).child("paths")
    n_features = rows.shape[1]
    widths = [term.most_columns(n_features) for term in kernel.terms()]
    exact = None if None in widths else sum(width or 0 for width in widths)
    plan = fit_plan(kernel, rows, None, exact or _PATH_FEATURES, stream)
    weights = stream.child("weights").generator()
    drawn = weights.normal(size=(plan.n_components, columns))
    return plan, ops_of(rows).float64_like(drawn, rows)


# Rows that hyperparameters are learned from under Laplace's approximation, at most and
# at least; between them as many as a number of operations takes, of order n³ per
# column of targets.
_MOST_LAPLACE_ROWS = 1000
_LEAST_LAPLACE_ROWS = 300
_LAPLACE_OPERATIONS = 1e9


class GaussianProcess(FeatureModel):
    """A model whose hyperparameters maximise a log marginal likelihood."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **FeatureModel._parameter_constraints,
        "optimizer": [StrOptions({"l-bfgs-b"}), None],
        "n_restarts_optimizer": [Interval(Integral, 0, None, closed="left")],
        "bounds": [dict, None],
        "priors": [dict, None],
        "far_variance": [StrOptions({"features", "prior"})],
    }

    _needs_sums_alone: ClassVar[bool] = True
    # Rows of a fit on landmarks whose exact likelihood is maximised.
    _most_exact_rows: ClassVar[int] = 1000
    # By how much learning may change a scale: log odds, and logarithms of rates, of a
    # deviation of 10 times that at the start say all there is to say; beyond, Laplace's
    # approximation fails. Scales of real targets follow these.
    _scale_range: float = 1e2

    optimizer: str | None
    n_restarts_optimizer: int
    bounds: dict[str, Any] | None
    priors: dict[str, Any] | None
    far_variance: str
    # None: the variance is that of the features.
    _reach: Reach | None
    # The rows that hyperparameters are learned from: X, targets and weights.
    _learned_from: tuple[Rows, np.ndarray, np.ndarray | None]
    # Of an exact kernel under Laplace's approximation: a factor for the rows X_fit_.
    _triangle: np.ndarray
    # Numbers, which have no device.
    _theta: tuple[float, ...]

    @property
    def _process_kernel(self) -> Kernel:
        """The kernel without the term of a mean."""
        return self.kernel_

    @property
    def _all_bounds(self) -> dict[str, Any]:
        """The bounds that are given, and those of what is never learned."""
        return self.bounds or {}

    def _given(self, names: Iterable[str]) -> list[str]:
        """Return names of entries of θ as they are for the kernel that was given.

        A mean is a second term beside it.
        """
        if self._process_kernel is self.kernel_:
            return list(names)
        return [_OF_MEAN.get(name, name.removeprefix("k1__")) for name in names]

    def _default_kernel(self) -> Kernel:
        return Scaled(Gaussian(lengthscale="scale"), 1.0)

    @property
    def _sample(self) -> ArrayRows:
        return ArrayRows(*self._learned_from)

    @property
    def _learning_plan(self) -> Plan | None:
        """The features that hyperparameters are learned on; None: the exact kernel."""
        return None if self.features == "nystrom" else self.plan_

    def _draw_landmarks(
        self, X: Rows, sample_weight: Any, stream: Stream, limit: int
    ) -> None:
        """Choose landmarks for the learned kernel, if there are any."""
        self._reach = None
        if self.features == "nystrom":
            self._draw_features(X, sample_weight, stream)
        elif self.plan_ is not None and self.far_variance == "prior":
            D, stream = self.plan_.n_components, stream.child("reach")
            self._reach = Reach.of(self._process_kernel, self._sample, D, stream, limit)

    def _left_out(
        self, X: Rows, Z: Any, variance: Any, evaluate: Evaluate = evaluate
    ) -> Any:
        """Return what is added to the variance that features Z of rows have.

        k(x, x) − φ(x)·φ(x) of landmarks and pivots; of random features what they lack
        far from the data.
        """
        if self.plan_ is None or self.features == "nystrom":
            return (self.kernel_._diag(X) - ops_of(Z).squared_norms(Z)).clip(0.0)
        if self._reach is None:
            return 0.0
        return (self._reach.least_variance(X, evaluate) - variance).clip(0.0)

    def _laplace(
        self,
        rows: TrainingData,
        sample: ArrayRows,
        likelihood: Likelihood | None,
        limit: int,
    ) -> list[LaplacePosterior]:
        """Return Laplace's approximation given every column of targets.

        Without a likelihood these are classes, whose softmax is taken.
        """
        exact = self.plan_ is None
        features = self._feature_matrix(sample if exact else rows, limit // 4)
        D = features.n_components
        if isinstance(features, GramFactor):
            D = len(features.pivots)
            self.X_fit_ = sample.X[features.pivots]
            self._triangle = features.triangle
        if likelihood is None:
            evidence = self._evidence(self._sample, self._learning_plan)
            value, _ = evidence(self.theta_, False)
            return softmax_posteriors(features, D, value)
        return [
            LaplacePosterior.of(features, D, likelihood, target)
            for target in range(rows.n_targets)
        ]

    def _features_of(self, X: Rows) -> np.ndarray:
        """Return features of rows, of the exact kernel those of its pivots."""
        if self.plan_ is not None:
            return evaluate(self.plan_, X)
        ops = ops_of(X)
        K = self.kernel_._gram(ops.as_float64(X), self.X_fit_)
        return ops.algebra.triangular_solve(self._triangle, K.T).T

    def _mapped(
        self,
        method: Any,
        X: Any,
        function: Callable[[Rows], Any],
        width: int | None,
        like: Any,
    ) -> Any:
        """Return what `function` makes of rows, wherever they are.

        Those of devices go where `like`, a part of the posterior, lies, and what is
        made of them comes back.
        """

        def there(rows: Any) -> Any:
            to_host = ops_of(rows).to_host
            made = function(rows.to(like.device) if is_tensor(like) else to_host(rows))
            several = made if isinstance(made, tuple) else (made,)
            back = tuple(ops_of(rows).float64_like(each, rows) for each in several)
            return back if isinstance(made, tuple) else back[0]

        moves = isinstance(X, (DeviceBlocks, DeviceRows))
        return mapped_rows(method, X, there if moves else function, width)

    def _laplace_moments(
        self, X: Rows, posteriors: list[LaplacePosterior]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return means and variances of every f at checked rows, (n, k)."""
        check_same_device(X, posteriors[0].mean)
        ops, width = ops_of(X), len(posteriors[0].mean)
        means = ops.zeros((X.shape[0], len(posteriors)), X)
        variances = ops.zeros(means.shape, X)
        for rows in row_blocks(len(means), float64_block_rows(width)):
            Z = self._features_of(X[rows])
            for t, posterior in enumerate(posteriors):
                means[rows, t], variance = posterior.moments(Z)
                variances[rows, t] = variance + self._left_out(X[rows], Z, variance)
        return means, variances

    @abstractmethod
    def _evidence(self, rows: ArrayRows, plan: Plan | None) -> LikelihoodOfRows:
        """Return the log marginal likelihood of rows, on features or exact (None)."""

    @property
    @abstractmethod
    def log_marginal_likelihood_value_(self) -> float:
        """The log marginal likelihood of all rows at `theta_`."""

    def _report(self, X: Any, y: Any, sample_weight: Any) -> FitReport:
        """Return what tells callbacks of a fit that begins, and of its steps."""
        report = FitReport(self, X, y, sample_weight)
        # A step has another θ, but no posterior yet.
        report.begin(None if self.optimizer is None else lambda theta: {})
        return report

    def _learn(
        self,
        sample: ArrayRows,
        extra: dict[str, float],
        stream: Stream,
        report: FitReport,
    ) -> None:
        """Set θ, the kernel and its plan, learned unless `optimizer` is None.

        From the rows of the sample; `extra` holds the logarithms of hyperparameters
        beside those of the kernel.
        """
        self._learned_from = (sample.X, sample.Y, sample.weight)
        plan = self._learning_plan
        evidence = self._evidence(sample, plan)
        hyper = evidence.hyper
        self.n_rows_learned_ = sample.n_rows
        self.hyperparameters_ = [*hyper.names, *extra]
        held = _OF_MEAN.values()
        learned = [n for n in self._given(self.hyperparameters_) if n not in held]
        for what in ("bounds", "priors"):
            for key in getattr(self, what) or {}:
                places(key, learned, what)
        theta = np.append(hyper.theta, list(extra.values()))
        if self.optimizer is not None and len(theta):
            theta = self._maximised(sample, evidence, theta, stream, report)
            before, self.kernel_ = self.kernel_, hyper.at(theta[: hyper.size]).kernel
            if plan is not None:
                self.plan_ = with_kernel(plan, before, self.kernel_)
        self._theta = tuple(theta.tolist())

    def _maximised(
        self,
        sample: ArrayRows,
        evidence: LikelihoodOfRows,
        theta: np.ndarray,
        stream: Stream,
        report: FitReport,
    ) -> np.ndarray:
        """Return θ where the likelihood of the sample is largest."""
        names = self.hyperparameters_
        rescaling = np.zeros(len(theta))
        rescaling[: evidence.hyper.size] = evidence.hyper.rescaling()
        square = spread = 1.0  # of labels
        if "noise" in names:
            survey = sample.survey()
            square = float(survey.moments.all_squares.mean()) / survey.weight_sum
            spread = float(survey.target_squares.mean()) / survey.weight_sum
        variance = float(self._process_kernel._diag(sample.X).mean())
        signed = evidence.hyper.signed_names
        usual = bounds(names, theta, square, spread, self._scale_range, signed)
        given, free = self._given(names), self._given(signed)
        limits = given_bounds(usual, theta, given, self._all_bounds, free)
        low, high = np.transpose(limits)
        if np.all(low == high):
            return theta.clip(low, high)
        return maximise(
            self._stages(sample, stream),
            names,
            first_starts(names, theta, square, variance, rescaling),
            limits,
            int(self.n_restarts_optimizer),
            stream,
            report.step,
        )

    def _stages(self, sample: ArrayRows, stream: Stream) -> list[Stage]:
        """Return what is climbed one after the other: of few rows, more, and all.

        Features of fixed draws have maxima of their own along lengthscales: of few rows
        the exact kernel's likelihood is climbed first, then that of few features, which
        have no better use for short lengthscales than many.
        """
        plan = self._learning_plan
        coarse = coarse_rows(sample, stream.child("coarse"))
        fewest = smooth_rows(coarse, stream.child("smooth"))
        smooth = any("lengthscale" in name for name in self.hyperparameters_)
        first = None if smooth else plan
        few = plan
        if plan is not None and few_features(plan.n_components) < plan.n_components:
            size = few_features(plan.n_components)
            few = self._plan_of(coarse, size, stream.child("few"))
        ladder = [(fewest, first), (coarse, few), (sample, plan)]
        stages: list[Stage] = []
        exact = False
        given = self._given(self.hyperparameters_)
        for (rows, features), later in zip(ladder, [*ladder[1:], None], strict=True):
            if (rows, features) != later:
                evidence = self._evidence(rows, features)
                signed = self._given(evidence.hyper.signed_names)
                objective = with_priors(evidence, given, self.priors, signed)
                fewer = exact and features is not None
                stages.append(Stage.of(evidence, objective, later is None, fewer))
                exact = features is None
        return stages

    def _plan_of(self, rows: ArrayRows, n_components: int, stream: Stream) -> Plan:
        """Draw other features of the kernel, as the model does."""
        return fit_plan(
            *(self.kernel_, rows.X, rows.weight, n_components, stream),
            projection=self.projection,
            fourier=self.fourier,
        )

    @property
    def theta_(self) -> np.ndarray:
        """Natural logarithms (arsinh of loadings) of what `hyperparameters_` names."""
        return np.array(self._theta)

    def log_marginal_likelihood(
        self, theta: Any = None, eval_gradient: bool = False
    ) -> Any:
        """Return log p(y | θ), and its gradient in θ if asked for.

        Parameters
        ----------
        theta : array, optional
            Of the form of `theta_`. None: `theta_`, and the value is that of all rows
            unless a gradient is asked for.
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
        value, gradient = self._evidence(self._sample, self._learning_plan)(
            theta, eval_gradient
        )
        return (value, gradient) if eval_gradient else value


def laplace_rows(n_targets: int) -> int:
    """Return how many rows learning by Laplace's approximation takes at most."""
    affordable = round((_LAPLACE_OPERATIONS / n_targets) ** (1 / 3))
    return max(_LEAST_LAPLACE_ROWS, min(_MOST_LAPLACE_ROWS, affordable))
