"""Metrics learned from labels, by average gradient outer products.

A fitted predictor f tells which directions of x matter: those in which it varies. With
J(x) its Jacobian, G = (1/n) Σ_i J(x_i)ᵀJ(x_i) is large along them. A recursive feature
machine fits f with the kernel k(Ax, Ay), sets AᵀA to a power of G, and repeats.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import (
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    clone,
)
from sklearn.model_selection import GroupKFold
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted

from randkern._fitting import all_or_nothing
from randkern._memory import check_memory, resolve_memory_limit
from randkern._random import Stream, root_stream
from randkern._validation import MOST_COMPONENTS, check_positive
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks, rows_within
from randkern.data.reading import mapped_rows, read
from randkern.data.target_statistics import Survey
from randkern.data.training_data import ArrayRows, TrainingData
from randkern.exceptions import IllConditionedWarning, NoSignalWarning
from randkern.features import fit_plan
from randkern.kernels import Gaussian, Kernel, Matern, RationalQuadratic
from randkern.kernels.default import TakesKernel
from randkern.kernels.feature_gradients import DrawSlopes
from randkern.models._targets import TargetsOrLabels
from randkern.models.dual import exact_gram, solve_dual
from randkern.models.memory import dual_bytes
from randkern.models.normal_equations import NormalEquations
from randkern.plan import Plan, evaluate

__all__ = ["MetricLearner"]

_ALPHAS = 10.0 ** np.arange(-8, 4)
_FIRST_ALPHA = 5
# Lengthscales, in units of that of the rule "scale"; where the search begins.
_SPREADS = 2.0 ** np.arange(-4, 7)
_UNIT_SPREAD = 4
_FIRST_SPREADS = (4, 6, 8)
_POWERS = (0.5, 1.0, 2.0)
# What every column keeps of the metric, so that none is lost for good.
_FLOOR = 1e-3
_MOST_SEARCHED = 10_000
_MOST_DIFFERENTIATED = 20_000
# Up to so many rows all folds are held out in turn, beyond only one.
_MOST_FOLDED = 1000
_FOLDS = 5
# Full metrics are tried for so many columns, and so many rows per column, at least.
_MOST_FULL = 500
_ROWS_PER_COLUMN = 5
# Steps of either kind of metric before the better one goes on alone, and steps without
# a gain before it stops.
_COMPARED = 2
_PATIENCE = 2
# Standard errors by which a fit must be better than the mean of the targets, of which
# the search takes the best of many, and a step than standardised columns.
_LEAST_SIGNAL = 3.0
_LEAST_GAIN = 1.0
_BLOCK_BYTES = 64 * 10**6


# -- rows, standardised and transformed -------------------------------------------


def _applied(root: Any, X: Any) -> Any:
    """Return X Aᵀ, A given by itself or by its diagonal."""
    root = ops_of(X).float64_like(root, X)
    return X * root if root.ndim == 1 else X @ root.T


@dataclass(frozen=True)
class _Map:
    """What standardises the columns of rows, and applies a metric.

    `squared` tells whether the squares of targets take their place.
    """

    shift: np.ndarray
    scale: np.ndarray
    root: np.ndarray
    squared: bool = False

    def __call__(self, rows: ArrayRows) -> ArrayRows:
        ops = ops_of(rows.X)
        shift = ops.float64_like(self.shift, rows.X)
        X = _applied(self.scale, ops.as_float64(rows.X) - shift)
        Y = rows.Y**2 if self.squared else rows.Y
        return ArrayRows(_applied(self.root, X), Y, rows.weight)

    def blocks(self, rows: TrainingData) -> Iterator[ArrayRows]:
        """Yield rows in float64, so many at a time that they take little memory."""
        block = rows_within(_BLOCK_BYTES, 8 * len(self.shift), at_least=1024)
        return map(self, rows.blocks(block))


def _column_survey(rows: TrainingData, shift: np.ndarray, unit: np.ndarray) -> Survey:
    """Return what a pass over the columns tells, less shifts and divided by units."""
    mapped = _Map(shift, 1.0 / unit, np.ones(len(unit)))
    blocks = ((block.X, block.weight) for block in mapped.blocks(rows))
    return Survey.of(blocks, len(unit))


def _sizes(rows: TrainingData, mapped: _Map) -> np.ndarray:
    """Return the weighted sum of squared norms of rows, and that of their weights."""
    total = np.zeros(2)
    for block in mapped.blocks(rows):
        squares, (_, weight) = (block.X**2).sum(axis=1), block.targets()
        total += float(weight @ squares), float(weight.sum())
    return total


def _equations_of(
    rows: TrainingData, mapped: _Map, plan: Plan, unit: float
) -> NormalEquations:
    """Return the normal equations of features of transformed rows."""
    like = ops_of(rows.like).as_float64(rows.like)
    total = NormalEquations.empty(plan.n_components, rows.n_targets, unit, like)
    for block in mapped.blocks(rows):
        total.add(plan, block.X, block.Y, block.weight)
    return total


def _standardised(rows: TrainingData, reference: np.ndarray) -> tuple[_Map, np.ndarray]:
    """Return what gives columns mean 0 and variance 1, and their variances.

    Constant columns become 0: those that never differ from a row, the reference.
    """
    unit = np.ones(len(reference))
    survey = rows.reduce(_column_survey, reference, unit)
    if np.any(survey.target_scale != 1):  # whose squares are no numbers
        unit = survey.target_scale
        survey = rows.reduce(_column_survey, reference, unit)
    deviation = np.sqrt(survey.target_squares / survey.weight_sum)
    varies = (survey.largest_target > 0) & (deviation > 0)
    scale = np.where(varies, 1.0 / np.where(varies, deviation, 1.0), 0.0) / unit
    with np.errstate(over="ignore"):
        variances = (unit * deviation) ** 2
    shift = reference + unit * survey.target_mean
    return _Map(shift, scale, np.ones(len(unit))), variances


def _unit_targets(rows: TrainingData, labelled: bool) -> tuple[TrainingData, bool]:
    """Return rows with centred targets of variance 1 in all; whether these vary."""
    survey = rows.survey()
    if np.any(survey.target_scale != 1):
        unit = survey.target_scale
        rows = rows.rescaled(np.zeros_like(unit), unit)
        survey = rows.survey()
    squares = np.where(survey.spread > 0, survey.target_squares, 0.0)
    deviation = np.sqrt(squares / survey.weight_sum)
    each = np.where((deviation > 0) & (not labelled), deviation, 1.0)
    total = math.sqrt(((deviation / each) ** 2).sum())
    return rows.rescaled(survey.target_mean, each * (total or 1.0)), total > 0


# -- ridge regression on transformed rows, and its gradients ----------------------


class _Ridge:
    """f(u) = φ(u)·W + c with a plan, and Σ_i W_i k(u, u_i) + c without."""

    def __init__(
        self, kernel: Any, plan: Plan | None, rows: TrainingData, mapped: _Map
    ):
        self.kernel, self.plan, self.rows, self.mapped = kernel, plan, rows, mapped

    @cached_property
    def _fitted(self) -> ArrayRows:
        return self.mapped(self.rows.whole())

    @cached_property
    def _equations(self) -> NormalEquations:
        unit = self.rows.survey().weight_unit
        return self.rows.reduce(_equations_of, self.mapped, self.plan, unit)

    @cached_property
    def _gram(self) -> Any:
        return exact_gram(self.kernel, self._fitted.X)

    def solve(self, alpha: float) -> tuple[Any, Any]:
        """Return weights, (D, k) or (n, k), and intercepts."""
        with warnings.catch_warnings():
            # Penalties that are too small are tried too.
            warnings.simplefilter("ignore", IllConditionedWarning)
            if self.plan is None:
                gram, (Y, weight) = self._gram, self._fitted.targets()
                solution, intercept = solve_dual(
                    ops_of(gram).copy(gram), Y, weight, alpha, True
                )
            else:
                solution, intercept = self._equations.solve(
                    alpha, True, overwrite=False
                )
        return solution.value, intercept

    def values(self, U: Any) -> Any:
        """Return what weights multiply at the rows of U: φ(u), or k(u, u_i)."""
        if self.plan is None:
            return self.kernel._gram(U, self._fitted.X)
        return evaluate(self.plan, U)

    def outer_products(self, weights: Any, numbers: np.ndarray, full: bool) -> Any:
        """Return the mean of J(u)ᵀJ(u) over some rows, or its diagonal."""
        rows = self.mapped(self.rows.take(numbers))
        U, (_, weight) = rows.X, rows.targets()
        ops, d = ops_of(U), U.shape[1]
        total = ops.zeros((d, d) if full else (d,), U)
        width = self.rows.n_rows if self.plan is None else self.plan.n_components
        for part in row_blocks(
            len(U), rows_within(_BLOCK_BYTES, 32 * width, at_least=16)
        ):
            root = (weight[part] ** 0.5)[:, None]
            for gradient in self.gradients(weights, U[part]):
                gradient = gradient * root
                total += gradient.T @ gradient if full else (gradient**2).sum(axis=0)
        return ops.to_host(total) / (float(weight.sum()) or 1.0)

    def gradients(self, weights: Any, U: Any) -> Iterator[Any]:
        """Yield the gradients of every output at the rows of U, (n, d)."""
        ops = ops_of(U)
        if self.plan is not None:
            (group,) = self.plan.groups
            ((factor,),) = (group.factors for group in self.plan.groups)
            basis = factor.inputs.apply(ops.algebra.identity(U.shape[1], U))
            frequencies = factor.projection.project(
                basis, 0, factor.projection.n_draws
            ).T
            Z = evaluate(self.plan, U)
            for column in weights.T:
                every = ops.xp.broadcast_to(column, Z.shape)
                yield DrawSlopes(group, U, Z, every).phase @ frequencies
            return
        scale, rows = 1.0 / self.kernel.lengthscale, self._fitted.X
        squared = ops.scaled_squared_distances(U, rows, scale, False)
        # K = f(s) has the gradient 2 f'(s) (u − v)/ℓ².
        slope = scale**2 * self.kernel._slope(squared)
        for column in weights.T:
            weighted = slope * column
            yield weighted @ rows - weighted.sum(axis=1)[:, None] * U


# -- the search -------------------------------------------------------------------


@dataclass(frozen=True)
class _Split:
    """Rows that are fitted, and those that judge the fit."""

    rows: ArrayRows
    held: ArrayRows
    # Which rows held out are equal: they judge as one, as a row of their weight would.
    groups: np.ndarray

    def losses(self, residuals: Any) -> np.ndarray:
        """Return the weighted sum of squares for every different row held out."""
        losses = (residuals**2).sum(axis=1) * self.held.targets()[1]
        return np.bincount(self.groups, ops_of(losses).to_host(losses))

    @property
    def losses_of_mean(self) -> np.ndarray:
        Y, weight = self.rows.targets()
        return self.losses(self.held.Y - weight @ Y / weight.sum())


@dataclass(frozen=True)
class _Trial:
    """Fits with a metric, one per split, and their losses on the rows held out.

    `spread` and `alpha` are positions in the grids; `source` and `power` tell what the
    metric was made of.
    """

    roots: list[np.ndarray]
    fits: list[tuple[_Ridge, Any]]
    losses: np.ndarray
    spread: int
    alpha: int
    source: int = 0
    power: float = 1.0

    @property
    def error(self) -> float:
        return float(self.losses.mean())


def _root(G: np.ndarray, power: float) -> np.ndarray:
    """Return A with AᵀA = G^power + a little of the identity, G as a diagonal too."""
    if G.ndim == 1:
        return np.sqrt((G / (G.max() or 1.0)) ** power + _FLOOR)
    values, vectors = np.linalg.eigh(G)
    values = (values / (values[-1] or 1.0)).clip(min=0.0) ** power
    return (vectors * np.sqrt(values + _FLOOR)) @ vectors.T


def _descend(trial: Callable[[int], _Trial], start: int, n: int) -> _Trial:
    """Return the least of trials at neighbouring positions of a grid, from `start`."""
    best = trial(start)
    for step in (-1, 1):
        at = start
        while 0 <= at + step < n:
            at += step
            other = trial(at)
            if not other.error < best.error:
                break
            best = other
        if at != start + step:  # it went down this way
            break
    return best


def _gain(losses: np.ndarray, others: np.ndarray) -> float:
    """Return by how many standard errors a mean is below another of the same rows."""
    gain = others - losses
    error = float(gain.std()) / math.sqrt(len(gain))
    return float(gain.mean()) / error if error else 0.0


def _has_signal(losses: np.ndarray, constant: np.ndarray) -> bool:
    """Tell whether predictions are clearly better than the mean of the targets.

    Squared losses may be so heavy-tailed that no difference of means is significant:
    where half of the variance is explained, it is enough that most rows say so.
    """
    if _gain(losses, constant) > _LEAST_SIGNAL:
        return True
    share = float((losses < constant).mean())
    signs = (2 * share - 1) * math.sqrt(len(losses))
    return signs > _LEAST_SIGNAL and float(losses.mean()) < 0.5 * float(constant.mean())


@dataclass(frozen=True)
class _Search:
    """Fits and steps of the recursion, on rows in splits.

    Up to `exact_rows` rows are fitted with the exact kernel. `alpha` is None for the
    grid.
    """

    kernel: Any
    n_components: int
    exact_rows: int
    alpha: float | None
    stream: Stream
    standardised: _Map
    splits: Sequence[_Split] = ()

    def ridge(
        self, rows: TrainingData, root: np.ndarray, spread: int
    ) -> tuple[np.ndarray, _Ridge]:
        """Return A, scaled so that rows vary by 2ℓ² over the spread's square."""
        mapped = replace(self.standardised, root=root)
        squares, weight_sum = rows.reduce(_sizes, mapped)
        scale = math.sqrt(2 * weight_sum / squares) if squares else math.sqrt(2)
        root = root * (scale * self.kernel.lengthscale / _SPREADS[spread])
        plan = None
        if rows.n_rows > self.exact_rows:
            row, stream = np.zeros((1, len(root))), self.stream.child("features")
            plan = fit_plan(self.kernel, row, None, self.n_components, stream)
        return root, _Ridge(self.kernel, plan, rows, replace(mapped, root=root))

    def trial(self, roots: Sequence[Any], spread: int, alpha: int) -> _Trial:
        """Fit with some metrics, one per split, and the best penalty near `alpha`."""
        scaled, ridges = zip(
            *(
                self.ridge(split.rows, root, spread)
                for split, root in zip(self.splits, roots, strict=True)
            ),
            strict=True,
        )
        held = [
            (ridge.mapped(split.held).Y, ridge.values(ridge.mapped(split.held).X))
            for split, ridge in zip(self.splits, ridges, strict=True)
        ]

        def at(alpha: int) -> _Trial:
            fits, losses = [], []
            for split, ridge, (Y, values) in zip(
                self.splits, ridges, held, strict=True
            ):
                weights, intercept = ridge.solve(self.penalty(alpha))
                fits.append((ridge, weights))
                losses.append(split.losses(Y - values @ weights - intercept))
            return _Trial(list(scaled), fits, np.concatenate(losses), spread, alpha)

        n_alphas = len(_ALPHAS) if self.alpha is None else 1
        return _descend(at, alpha if self.alpha is None else 0, n_alphas)

    def penalty(self, alpha: int) -> float:
        return float(_ALPHAS[alpha]) if self.alpha is None else self.alpha

    def start(self) -> _Trial:
        """Fit with the identity, at the best of several lengthscales."""
        ones = [self.standardised.root for _ in self.splits]
        trials = (self.trial(ones, at, _FIRST_ALPHA) for at in _FIRST_SPREADS)
        return min(trials, key=lambda trial: trial.error)

    def gradients(
        self, root: np.ndarray, ridge: _Ridge, weights: Any, full: bool
    ) -> np.ndarray:
        """Return G of a fit in the standardised columns, or its diagonal."""
        numbers = np.arange(ridge.rows.n_rows)
        if len(numbers) > _MOST_DIFFERENTIATED:
            generator = self.stream.child("gradients").generator()
            drawn = generator.choice(len(numbers), _MOST_DIFFERENTIATED, replace=False)
            numbers = np.sort(drawn)
        G = ridge.outer_products(weights, numbers, full or root.ndim == 2)
        if root.ndim == 2:
            G = root.T @ G @ root
        else:
            G = G * np.outer(root, root) if G.ndim == 2 else G * root**2
        return G if full or G.ndim == 1 else np.diagonal(G)

    def step(self, sources: list[_Trial], full: bool) -> _Trial:
        """Return the best trial with a metric made of the gradients of another.

        The first source fits the targets; its lengthscale and penalty are where the
        search begins. Others begin where a lengthscale by the rule would be.
        """
        best: Any = None
        for number, source in enumerate(sources):
            spread, alpha = sources[0].spread, sources[0].alpha
            if number:
                spread, alpha = _UNIT_SPREAD, _FIRST_ALPHA
            outer = [
                self.gradients(root, *fit, full)
                for root, fit in zip(source.roots, source.fits, strict=True)
            ]
            for power in _POWERS:
                found = self.trial([_root(G, power) for G in outer], spread, alpha)
                if best is None or found.error < best.error:
                    best = replace(found, source=number, power=power)

        def at(spread: int) -> _Trial:
            if spread == best.spread:
                return best
            found = self.trial(best.roots, spread, best.alpha)
            return replace(found, source=best.source, power=best.power)

        return _descend(at, best.spread, len(_SPREADS))

    @property
    def of_squares(self) -> _Search:
        """The same, the squares of the targets as targets."""
        return replace(self, standardised=replace(self.standardised, squared=True))

    def replay(
        self, rows: TrainingData, path: Sequence[_Trial], squares: Any, full: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the metric that the choices of a path lead to on all rows.

        Also the G that it is made of; of the identity, that of its fit.
        """
        metric = self.standardised.root
        for last, following in pairwise(path if path[1:] else path * 2):
            search, like = (
                (self.of_squares, squares) if following.source else (self, last)
            )
            root, ridge = search.ridge(rows, metric, like.spread)
            weights, _ = ridge.solve(self.penalty(like.alpha))
            G = self.gradients(root, ridge, weights, full)
            if following is not last:
                metric = _root(G, following.power)
        return self.ridge(rows, metric, path[-1].spread)[0], G

    def best(
        self, kinds: Sequence[bool], squares: _Trial | None, n_iterations: int
    ) -> tuple[bool, list[_Trial]]:
        """Return the better kind of metric, and its path of steps from the identity."""
        start = self.start()
        paths = {full: [start] for full in kinds}
        n_first = min(_COMPARED, n_iterations) if len(paths) > 1 else n_iterations
        for full, path in paths.items():
            self.advance(path, squares, full, n_first)
        full = min(paths, key=lambda full: min(trial.error for trial in paths[full]))
        self.advance(paths[full], squares, full, n_iterations - n_first)
        return full, paths[full]

    def advance(
        self, path: list[_Trial], squares: _Trial | None, full: bool, n_steps: int
    ) -> None:
        """Take steps on a path until they no longer help."""
        for _ in range(n_steps):
            least = min(range(len(path)), key=lambda at: path[at].error)
            if len(path) - 1 - least >= _PATIENCE:
                return
            sources = [path[-1]]
            if len(path) == 1 and squares is not None:
                sources.append(squares)
            path.append(self.step(sources, full))
            # Gram matrices of fits are large, and no longer needed.
            if len(path) > 2:
                path[-2] = replace(path[-2], fits=[])


def _weighted(rows: TrainingData, exact_rows: int) -> TrainingData:
    """Return rows in memory less those of weight 0, and few rows in memory."""
    if not rows.in_memory:
        few = rows.n_rows <= exact_rows
        return rows.take(np.arange(rows.n_rows)) if few else rows
    weight = rows.whole().weight
    if weight is None or bool((weight > 0).all()):
        return rows
    return rows.take(ops_of(weight).flatnonzero(weight))


def _sample(rows: TrainingData, stream: Stream) -> ArrayRows:
    """Return the rows that the search takes, none of weight 0."""
    numbers = np.arange(rows.n_rows)
    if rows.n_rows > _MOST_SEARCHED:
        generator = stream.child("searched").generator()
        numbers = np.sort(generator.choice(rows.n_rows, _MOST_SEARCHED, replace=False))
    sample = rows.take(numbers)
    if sample.weight is None or bool((sample.weight > 0).all()):
        return sample
    if not bool((sample.weight > 0).any()):
        raise ValueError(
            "no sampled row has a weight above zero: leave out rows without weight."
        )
    return sample.take(ops_of(sample.weight).flatnonzero(sample.weight))


def _splits(rows: ArrayRows, stream: Stream) -> list[_Split]:
    """Return rows to fit and rows to judge by; equal rows are on one side."""
    X = ops_of(rows.X).to_host(rows.X)
    groups = np.unique(X, axis=0, return_inverse=True)[1].ravel()
    n_folds = min(_FOLDS, int(groups.max()) + 1)
    if n_folds < 2:
        return []
    seed = int(stream.child("folds").generator().integers(2**31))
    folds = GroupKFold(n_folds, shuffle=True, random_state=seed)
    splits = []
    for train, held in folds.split(X, groups=groups):
        inverse = np.unique(groups[held], return_inverse=True)[1]
        splits.append(_Split(rows.take(train), rows.take(held), inverse))
        if groups.max() >= _MOST_FOLDED:
            break
    return splits


# -- the transformer --------------------------------------------------------------


class MetricLearner(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, TargetsOrLabels, TakesKernel
):
    r"""A linear map of the columns that is learned from labels.

    Ridge regression with the kernel k(Ax, Ay) is fitted, the average outer product of
    its gradients, G = (1/n) Σ_i J(x_i)ᵀJ(x_i), gives AᵀA = G^p for the next fit, and so
    on. Every step is judged by rows that it has not seen, as are the lengthscale, the
    penalty, the power p and whether A is diagonal or full; the best is then made from
    all rows. The first step also looks at the gradients of a fit to the squares of the
    targets, which show columns that move their variance and not their mean.

    Parameters
    ----------
    kernel : Gaussian, Matern or RationalQuadratic, default=None
        None is ``Matern(nu=1.5)``. A Matérn kernel needs ν > 1: random features of
        others have gradients without a variance. Its lengthscale is that of the
        transformed rows; A is scaled to it.
    n_components : int or None, default=2000
        Number of random features. With no more rows than that, and for None, fits use
        the exact kernel, which costs no more then. Steps are chosen with half of them.
    metric : {"auto", "diagonal", "full"}, default="auto"
        Whether A weighs columns or may also turn them. ``"auto"`` tries both where
        there are at least 5 rows per column, and at most 500 columns.
    n_iterations : int, default=5
        Most steps.
    alpha : float or "auto", default="auto"
        The penalty; ``"auto"`` is the best of 10⁻⁸, ..., 10³ for each fit.
    random_state : int, generator or None, default=None

    Attributes
    ----------
    components_ : ndarray of shape (d, d)
        A, which includes the scales of the columns; zero for constant ones.
    metric_ : {"identity", "diagonal", "full"}
        ``"identity"``: no step was better than standardised columns by a standard
        error.
    feature_importances_ : ndarray of shape (d,)
        Mean squares of the gradients that A is made of, along standardised columns, of
        sum 1; where nothing was learned, the variances of the columns.
    kernel_ : Kernel
        The kernel for transformed rows, with its lengthscale.
    alpha_ : float
        The penalty of its fit.
    history_ : list of float
        Mean squared error of every step, on rows held out, over the variance of the
        targets. The first is that of standardised columns.
    n_iter_ : int
        Number of steps of the metric that is kept.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Warns
    -----
    randkern.exceptions.NoSignalWarning
        If no fit predicts the targets clearly better than their mean (by three standard
        errors). `components_` is then the identity.

    Notes
    -----
    Labels (text, booleans, or at most 20 different integers) are coded as columns of
    ±1, other targets standardised. The search takes a sample of at most 10,000 rows, of
    which a fifth is held out (each fifth in turn for up to 1,000 rows); equal rows are
    on one side. The metric itself takes all rows, a block of features at a time.

    References
    ----------
    Radhakrishnan, Beaglehole, Pandit & Belkin 2024, "Mechanism for feature learning in
    neural networks and backpropagation-free machine learning models", Science 383.

    Examples
    --------
    >>> import numpy as np, randkern as rk
    >>> X = np.random.default_rng(0).normal(size=(300, 6))
    >>> y = np.sin(2 * X[:, 1]) + X[:, 4] ** 2
    >>> metric = rk.MetricLearner(random_state=0).fit(X, y)
    >>> bool(metric.feature_importances_[[1, 4]].sum() > 0.95)
    True
    >>> model = rk.KernelRidgeRegressorCV(metric.kernel_, n_components=None)
    >>> model.fit(metric.transform(X), y).predict(metric.transform(X[:2])).shape
    (2,)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "kernel": "no_validation",
        "n_components": [Interval(Integral, 1, MOST_COMPONENTS, closed="both"), None],
        "metric": [StrOptions({"auto", "diagonal", "full"})],
        "n_iterations": [Interval(Integral, 1, None, closed="left")],
        "alpha": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "random_state": ["random_state", np.random.Generator],
    }

    def __init__(
        self,
        kernel: Kernel | None = None,
        n_components: int | None = 2000,
        *,
        metric: str = "auto",
        n_iterations: int = 5,
        alpha: Any = "auto",
        random_state: Any = None,
    ):
        self.kernel = kernel
        self.n_components = n_components
        self.metric = metric
        self.n_iterations = n_iterations
        self.alpha = alpha
        self.random_state = random_state

    # Fits take sums over rows and a sample of them; see randkern.data.reading.
    _needs_sums_alone: ClassVar[bool] = True
    memory_limit: ClassVar[None] = None

    def _default_kernel(self) -> Kernel:
        return Matern(nu=1.5, lengthscale="scale")

    @all_or_nothing
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> MetricLearner:
        """Learn the map.

        Parameters
        ----------
        X : array, tensor, dataframe, Dask collection or RowBlocks of n rows
            Rows that do not fit in memory come as :class:`~randkern.RowBlocks`, with
            their targets and weights; Dask collections are summed over by their
            workers, and tensors where they lie.
        y : array of shape (n,) or (n, k)
            Labels, or one or more real targets.
        sample_weight : array of shape (n,), optional
        """
        self._validate_params()
        stream = root_stream(self.random_state)
        rows, _ = read(self, X, y, sample_weight, stream)
        self._check_dense(rows.like)
        self._check_size(rows)
        # Steps are chosen with half of the features, at a fourth of the cost.
        exact_rows = self.n_components or rows.n_rows
        rows, varies = _unit_targets(_weighted(rows, exact_rows), self._labelled)
        sample = _sample(rows, stream)
        reference = ops_of(sample.X).to_host(sample.X[0]).astype(np.float64)
        standardised, variances = _standardised(rows, reference)
        kernel = self._resolved(standardised(sample), stream)
        search = _Search(
            kernel,
            (exact_rows + 1) // 2,
            exact_rows,
            None if self.alpha == "auto" else float(self.alpha),
            stream,
            standardised,
            _splits(sample, stream) if varies else [],
        )
        squares, full = None, False
        path: list[_Trial] = []
        if search.splits:
            # A target may have a mean that hardly depends on x, but a variance that
            # does: its squares then tell which columns matter. Those of ±1 do not.
            squares = None if self._labelled else search.of_squares.start()
            kinds = self._kinds(search.splits[0])
            full, path = search.best(kinds, squares, self.n_iterations)
            path = self._judged(search.splits, path)
        if not path:
            return self._keep_identity(sample.X, variances, kernel)
        search = replace(search, n_components=exact_rows, splits=())
        root, G = search.replay(rows, path, squares, full)
        self.metric_ = ("full" if full else "diagonal") if len(path) > 1 else "identity"
        self.alpha_ = search.penalty(path[-1].alpha)
        self.kernel_ = kernel
        relevance = (G if G.ndim == 1 else np.diagonal(G)) * (standardised.scale > 0)
        return self._keep(root * standardised.scale, relevance, rows.like)

    def _check_dense(self, like: Any) -> None:
        """Raise unless rows are dense numbers."""
        encoder = self.table_encoder_
        if encoder is not None:
            names = ", ".join(repr(encoder.names[j]) for j in encoder.encoded)
            raise ValueError(
                f"MetricLearner learns scales of numbers, but {names} hold "
                "categories; encode them first, for instance by OneHotEncoder."
            )
        if sp.issparse(like):
            raise TypeError(
                "MetricLearner takes dense rows, got a sparse matrix; pass X.toarray()."
            )

    def _check_size(self, rows: TrainingData) -> None:
        """Raise where there are too few rows, or too many for a Gram matrix."""
        n = rows.n_rows
        if n < 2:
            raise ValueError(
                "MetricLearner needs rows to learn from and rows to judge by, got "
                f"n_samples = {n}; expected at least 2 rows."
            )
        if self.n_components is None:
            # The best fits of a step and of the one before are kept.
            needed = 4 * dual_bytes(n, rows.n_targets)
            what = f"learning a metric with the exact kernel of {n} rows"
            check_memory(needed, resolve_memory_limit(None), what, "Set n_components")

    def _judged(self, splits: Sequence[_Split], path: list[_Trial]) -> list[_Trial]:
        """Return the path to the step to keep, an empty one if nothing was learned."""
        constant = np.concatenate([split.losses_of_mean for split in splits])
        self.history_ = [trial.error / float(constant.mean()) for trial in path]
        kept = int(np.argmin(self.history_))
        if _gain(path[kept].losses, path[0].losses) < _LEAST_GAIN:
            kept = 0
        self.n_iter_ = kept
        learned = _has_signal(path[kept].losses, constant)
        return path[: kept + 1] if learned else []

    def _keep_identity(
        self, sample: Any, variances: np.ndarray, kernel: Any
    ) -> MetricLearner:
        warnings.warn(
            "no kernel predicted the targets clearly better than their mean on rows "
            "held out: MetricLearner keeps the columns as they are. More rows, or "
            "other columns, may help.",
            NoSignalWarning,
            stacklevel=4,  # the call of fit
        )
        self.metric_, self.n_iter_ = "identity", 0
        self.alpha_ = float(_ALPHAS[-1]) if self.alpha == "auto" else float(self.alpha)
        self.history_ = getattr(self, "history_", [])
        self.kernel_ = clone(kernel).set_params(lengthscale="scale").resolve(sample)
        return self._keep(np.ones(len(variances)), variances, sample)

    def _keep(self, root: np.ndarray, relevance: np.ndarray, like: Any) -> Any:
        """Keep A, and the relevance of columns as shares, where the rows lie."""
        total, place = float(relevance.sum()), ops_of(like).float64_like
        equal = np.full(len(relevance), 1 / len(relevance))
        del self._reader, self._labelled  # what later passes over targets needed
        self._root = place(root, like)
        self.feature_importances_ = place(relevance / total if total else equal, like)
        return self

    def _kinds(self, split: _Split) -> list[bool]:
        """Return which kinds of metric to try: False is diagonal, True is full."""
        n, d = split.rows.X.shape
        if self.metric != "auto":
            return [self.metric == "full"]
        return (
            [False, True] if 1 < d <= min(_MOST_FULL, n / _ROWS_PER_COLUMN) else [False]
        )

    def _resolved(self, rows: ArrayRows, stream: Stream) -> Any:
        """Return the kernel with a number as its lengthscale."""
        if self.kernel is None:
            return Matern(nu=1.5)
        kernel: Any = self.kernel
        smooth = not isinstance(kernel, Matern) or check_positive("nu", kernel.nu) > 1
        if (
            not isinstance(kernel, (Gaussian, Matern, RationalQuadratic))
            or not smooth
            or kernel.columns is not None
            or np.ndim(kernel.lengthscale)
        ):
            raise ValueError(
                "kernel must be a Gaussian, a Matern with nu > 1 or a "
                "RationalQuadratic of all columns with one lengthscale, got "
                f"{self.kernel!r}; use for instance randkern.Matern(nu=1.5)."
            )
        seed = int(stream.child("kernel").generator().integers(2**31))
        return kernel.resolve(rows.X, rows.weight, seed)

    @property
    def components_(self) -> Any:
        check_is_fitted(self, "_root")
        root = self._root
        if root.ndim == 2:
            return root
        return root[:, None] * ops_of(root).algebra.identity(len(root), root)

    def transform(self, X: Any) -> Any:
        """Return X Aᵀ, float32 for float32 rows.

        Parameters
        ----------
        X : array, tensor, dataframe, Dask collection or RowBlocks of n rows
            A Dask collection gives a Dask array.
        """
        check_is_fitted(self)
        single = getattr(X, "dtype", None) == np.float32
        dtype = np.float32 if single else np.float64
        return mapped_rows(
            self.transform, X, self._transformed, self.n_features_in_, dtype
        )

    def _transformed(self, X: Any) -> Any:
        self._check_dense(X)
        ops = ops_of(X)
        return ops.asarray(_applied(self._root, ops.as_float64(X)), X)

    @property
    def _n_features_out(self) -> int:
        return self.n_features_in_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.array_api_support = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
