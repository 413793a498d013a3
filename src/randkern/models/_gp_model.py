"""The base class of Gaussian processes: learning, mean functions, and draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from scipy import stats
from sklearn.utils.validation import check_is_fitted

from randkern._random import Stream, root_stream
from randkern._sklearn import Interval, StrOptions
from randkern._validation import Rows, check_weights, is_tensor, validate_rows
from randkern.backend.namespace import ops_of
from randkern.data import DeviceBlocks, row_blocks
from randkern.data.reading import are_in_memory, mapped_rows
from randkern.data.training_data import ArrayRows, TrainingData
from randkern.kernels import Gaussian, Kernel, Linear, Scaled
from randkern.kernels.draw import fit_plan
from randkern.kernels.hyperparameters import Hyperparameters, with_kernel
from randkern.models._feature_model import (
    FeatureModel,
    check_same_device,
    predict_by_features,
    predict_by_rows,
)
from randkern.models._gp_evidence import Basis, LikelihoodOfRows, RowPosterior
from randkern.models._gp_inference import Inference
from randkern.models._gp_learning import Stage, maximise
from randkern.models._gp_rows import learning_rows, most_learning_rows, rows_of_stages
from randkern.models._gp_starts import (
    Units,
    bounds,
    log_prior,
    places,
    starting_points,
)
from randkern.models._gp_warnings import warn_of_a_constant
from randkern.models.callbacks import FitReport
from randkern.models.memory import float64_block_rows
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


# Number of features for prior draws of an exact kernel.
_PATH_FEATURES = 2000


def noise_of_new_rows(model: Any, include_noise: Any, X: Any) -> Any:
    """Return the noise variance of new rows: a number, or one per row."""
    if np.ndim(include_noise) == 0:
        return model.noise_ if include_noise else 0.0
    if model.weights != "precision" or not are_in_memory(X):
        raise ValueError(
            "include_noise takes weights of rows in memory, of a process with "
            "weights='precision' and a Gaussian likelihood."
        )
    weight: Any = check_weights(include_noise, validate_rows(model, X, reset=False))
    if not bool((weight > 0).all()):
        raise ValueError(
            f"include_noise has the weight {float(weight.min()):.3g}, expected "
            "positive weights of new rows; pass only rows of positive weight."
        )
    return model.noise_ / weight


#: Values of draws of f at rows, (n, columns).
Draws = Callable[[Rows], Any]


def conditioned_paths(
    kernel: Kernel,
    rows: Rows,
    posterior: RowPosterior,
    columns: int,
    generator: np.random.Generator,
    random_state: Any,
) -> list[Draws]:
    """Return draws of the prior, and what conditions them on targets 0.

    −k(x, X)(K + σ²W⁻¹)⁻¹(f(X) + ε), Matheron's rule.
    """
    prior = _prior_paths(kernel, rows, columns, random_state)
    ops = ops_of(posterior.factor)
    root = posterior.root[:, None]
    noise = generator.normal(size=(len(root), columns))
    # In the units of B⁻¹, where the noise of a row has the variance 1.
    right = root * prior(rows) + ops.float64_like(noise, posterior.factor)
    dual = -root * ops.algebra.factor_solve(posterior.factor, right)
    return [prior, partial(predict_by_rows, kernel, rows, dual)]


def omitted_paths(
    kernel: Kernel, plan: Plan, columns: int, random_state: Any
) -> tuple[Draws, np.ndarray]:
    """Return draws of the prior, and weights of φ(x) whose values are to be subtracted.

    Those are their part in the landmarks' span, k(x, L)K(L, L)⁻¹f(L) = φ(x)·T⁻¹f(L),
    where φ(x) = T⁻¹k(L, x): the rest is a draw of the part that landmarks omit.
    """
    projection: Any = plan.groups[0].factors[0].projection
    landmarks = projection.rows
    prior = _prior_paths(kernel, landmarks, columns, random_state)
    return prior, plan.solve(prior(landmarks))


def _prior_paths(kernel: Kernel, rows: Rows, columns: int, random_state: Any) -> Draws:
    """Return draws of the prior, on random features of the kernel."""
    stream = root_stream(random_state).child("paths")
    n_features = rows.shape[1]
    widths = [term.exact_width(n_features) for term in kernel.terms()]
    exact = None if None in widths else sum(width or 0 for width in widths)
    plan = fit_plan(kernel, rows, None, exact or _PATH_FEATURES, stream)
    generator = stream.child("weights").generator()
    drawn = generator.normal(size=(plan.n_components, columns))
    return partial(predict_by_features, plan, ops_of(rows).float64_like(drawn, rows))


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
    # The rows that hyperparameters are learned from: X, targets and weights.
    _learned_from: tuple[Rows, np.ndarray, np.ndarray | None]
    # For an exact kernel whose features are those of pivots X_fit_: their factor.
    _triangle: np.ndarray | None = None
    # How the posteriors of the functions f follow from rows.
    _inference: Inference
    _posteriors: Sequence[Any]
    # Numbers, which have no device.
    _theta: tuple[float, ...]

    @property
    def _process_kernel(self) -> Kernel:
        """The kernel without the term of the mean function."""
        return self.kernel_ if self.mean == "zero" else self.kernel_.k1

    def _user_names(self, names: Iterable[str]) -> list[str]:
        """Return the names of entries of θ with paths of the kernel parameter.

        A mean function adds a second term to it.
        """
        if self.mean == "zero":
            return list(names)
        return [_OF_MEAN.get(name, name.removeprefix("k1__")) for name in names]

    def _default_kernel(self) -> Kernel:
        return Scaled(Gaussian(lengthscale="scale"), 1.0)

    @property
    def _sample(self) -> ArrayRows:
        return ArrayRows(*self._learned_from)

    @property
    def _learning_plan(self) -> Plan | None:
        """The features for learning hyperparameters; None: the exact kernel."""
        return None if self.features == "nystrom" else self.plan_

    @property
    def _has_landmarks(self) -> bool:
        """Whether the fitted features are those of landmarks."""
        return self.plan_ is not None and self.plan_.triangle is not None

    def _draw_landmarks(self, X: Rows, sample_weight: Any, stream: Stream) -> None:
        """Choose landmarks for the learned kernel, or check its random features."""
        if self.features == "nystrom":
            self._draw_features(X, sample_weight, stream)
            return
        self._check_features(X, sample_weight, stream)

    @property
    def _basis(self) -> Basis:
        """What values of f are combinations of."""
        X = getattr(self, "X_fit_", None)
        return Basis(self.kernel_, self.plan_, self._learning_plan, X, self._triangle)

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

    def _moments(self, X: Rows) -> tuple[Any, Any]:
        """Return means of every f at checked rows, (n, k), and their variances.

        The latter have one column per posterior.
        """
        posteriors = self._posteriors
        if not posteriors[0].is_joint:
            means, variance = posteriors[0].moments(ops_of(X).as_float64(X))
            return means, variance[:, None]
        factor, mean = posteriors[0].factor, posteriors[0].mean
        check_same_device(X, factor)
        basis = self._basis
        ops = ops_of(X)
        k = len(posteriors)
        means = ops.float64_zeros((X.shape[0], k * math.prod(mean.shape[1:])), X)
        variances = ops.float64_zeros((X.shape[0], k), X)
        for rows in row_blocks(len(means), float64_block_rows(len(factor))):
            part = ops.as_float64(X[rows])
            Z = basis.values(part)
            moments = [posterior.moments(Z) for posterior in posteriors]
            means[rows] = ops.hstack([mean.reshape(len(Z), -1) for mean, _ in moments])
            omitted = basis.omitted_variance(part, Z)
            for t, (_, variance) in enumerate(moments):
                variances[rows, t] = variance + omitted
        return means, variances

    def _evidence(
        self, rows: ArrayRows, plan: Plan | None, stream: Stream | None = None
    ) -> LikelihoodOfRows:
        """Return the log marginal likelihood of rows, on features or exact (None)."""
        return self._inference.evidence(
            rows, Hyperparameters(self.kernel_), plan, stream
        )

    def _infer(
        self,
        rows: TrainingData,
        sample: tuple[Rows, Any],
        stream: Stream,
        limit: int,
        report: FitReport,
    ) -> None:
        """Learn θ, and set the posteriors given rows in units of the fit.

        `sample` are the rows, with weights, that landmarks are chosen among.
        """
        basis = self._basis
        max_rows = self._inference.max_learning_rows(basis, rows)
        n_learned = 0
        if self.optimizer is not None:
            n_learned = rows.n_rows
            if self.plan_ is not None:
                most = max_rows or most_learning_rows(self.plan_.n_components)
                n_learned = min(n_learned, most)
        self._inference.check_memory(basis, rows, n_learned, limit)
        learned_from = learning_rows(rows, self.plan_, stream.child("sample"), max_rows)
        distinct = self._inference.learned_from(learned_from)
        self._learn(distinct, stream.child("restarts"), report)
        self.n_rows_learned_ = learned_from.n_rows
        self._draw_landmarks(*sample, stream)
        posteriors = self._inference.posteriors(self._basis, rows, learned_from, limit)
        self._posteriors = posteriors.of_functions
        self._triangle = posteriors.triangle
        if posteriors.X is not None:
            self.X_fit_ = posteriors.X

    @property
    def log_marginal_likelihood_value_(self) -> float:
        """The log marginal likelihood of all rows at `theta_`.

        Of labels and of other likelihoods than the Gaussian, Laplace's approximation.
        """
        check_is_fitted(self)
        return sum(posterior.evidence for posterior in self._posteriors)

    def _report(self, X: Any, y: Any, sample_weight: Any) -> FitReport:
        """Begin the report of a fit and its steps to callbacks."""
        report = FitReport(self, X, y, sample_weight)
        # A step has a new θ, but no posterior yet.
        report.begin(None if self.optimizer is None else lambda theta: {})
        return report

    def _learn(
        self,
        sample: ArrayRows,
        stream: Stream,
        report: FitReport,
    ) -> None:
        """Set θ, the kernel, its plan and the noise, learned from rows of the sample.

        Unless `optimizer` is None.
        """
        extra = self._inference.logarithms
        self._learned_from = (sample.X, sample.Y, sample.weight)
        hyper = Hyperparameters(self.kernel_)
        plan = self._learning_plan
        self.hyperparameters_ = [*hyper.names, *extra]
        names = self._user_names(self.hyperparameters_)
        held = _OF_MEAN.values()
        for what in ("bounds", "priors"):
            for key in getattr(self, what) or {}:
                places(key, [name for name in names if name not in held], what)
        theta = np.append(hyper.theta, list(extra.values()))
        if self.optimizer is not None and len(theta):
            theta = self._maximised(sample, hyper, theta, names, stream, report)
            before = self.kernel_
            self.kernel_ = hyper.at(theta[: hyper.size]).kernel
            if plan is not None:
                self.plan_ = with_kernel(plan, before, self.kernel_)
            if self.mean != "linear":
                variance = float(self._process_kernel._diag(sample.X).mean())
                noise = dict(zip(self.hyperparameters_, theta, strict=True)).get(
                    "noise"
                )
                warn_of_a_constant(variance, noise)
        self._theta = tuple(theta.tolist())
        if extra:
            self._inference = self._inference.at(math.exp(theta[-1]))

    def _starts_and_limits(
        self,
        sample: ArrayRows,
        theta: np.ndarray,
        names: list[str],
        rescaling: np.ndarray,
        signed: list[str],
    ) -> tuple[list[np.ndarray], list[tuple[float, float]], float]:
        """Return where learning starts, its bounds, and the size of the targets."""
        square = spread = level = 1.0  # for labels
        if "noise" in names:
            square, spread = _target_squares(sample, self._inference.has_outliers)
            variance = float(self._process_kernel._diag(sample.X).mean())
            level = square / (variance + math.exp(theta[names.index("noise")]))
        held = dict.fromkeys(set(_OF_MEAN.values()).intersection(names), "fixed")
        starts = starting_points(names, theta, level, rescaling, signed, sample)
        limits = bounds(
            names,
            theta,
            starts[0],
            square,
            spread,
            self._inference.scale_range,
            (self.bounds or {}) | held,
            signed,
        )
        return starts, limits, square**0.5 or 1.0

    def _maximised(
        self,
        sample: ArrayRows,
        hyper: Hyperparameters,
        theta: np.ndarray,
        names: list[str],
        stream: Stream,
        report: FitReport,
    ) -> np.ndarray:
        """Return θ that maximises the likelihood of the sample."""
        rescaling = np.zeros(len(theta))
        rescaling[: hyper.size] = hyper.rescaling()
        signed = self._user_names(hyper.signed_names)
        starts, limits, unit = self._starts_and_limits(
            sample, theta, names, rescaling, signed
        )
        low, high = np.transpose(limits)
        if np.all(low == high):
            return theta.clip(low, high)

        units = Units(np.isin(names, signed), unit)
        prior = log_prior(names, self.priors, signed)

        def stage(rows: ArrayRows, plan: Plan | None, is_sample: bool) -> Stage:
            evidence = self._evidence(rows, plan, stream)

            def objective(theta: np.ndarray, gradient: bool = True) -> Any:
                value, slope = evidence(theta, gradient)
                log, pull = prior(theta)
                return value + log, slope + pull

            def rescaled(entries: np.ndarray) -> tuple[np.ndarray, float]:
                theta = units.theta(entries)
                theta, value = evidence.rescaled(rescaling, low, high, theta)
                return units.of(theta), value + prior(theta)[0]

            return Stage.of(evidence, units.objective(objective), rescaled, is_sample)

        has_lengthscales = any("lengthscale" in name for name in names)
        parts = rows_of_stages(sample, self._learning_plan, has_lengthscales, stream)
        stages = [stage(*part, part is not parts[-1]) for part in parts]
        entries = maximise(
            stages,
            names,
            [units.of(start) for start in starts],
            list(zip(units.of(low), units.of(high), strict=True)),
            int(self.n_restarts_optimizer),
            stream,
            lambda index, entries: report.step(index, units.theta(entries)),
        )
        return units.theta(entries)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_theta")

    @property
    def theta_(self) -> np.ndarray:
        """Natural logarithms (arsinh of loadings) of `hyperparameters_`, in order."""
        return np.array(self._theta)

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
        value, gradient = self._evidence(self._sample, self._learning_plan)(
            theta, eval_gradient
        )
        return (value, gradient) if eval_gradient else value
