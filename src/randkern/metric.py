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
from sklearn.preprocessing import LabelBinarizer
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    check_is_fitted,
)

from randkern._fitting import all_or_nothing
from randkern._memory import check_memory, resolve_memory_limit
from randkern._random import Stream, root_stream
from randkern._readable import check_kind
from randkern._validation import (
    MOST_COMPONENTS,
    check_positive,
    check_weights,
    validate_rows,
)
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks, rows_within
from randkern.exceptions import IllConditionedWarning, NoSignalWarning
from randkern.features import fit_plan
from randkern.kernels import Gaussian, Kernel, Matern, RationalQuadratic
from randkern.kernels.default import TakesKernel
from randkern.kernels.feature_gradients import DrawSlopes
from randkern.models._predictions import predict_by_features, predict_by_rows
from randkern.models._targets import read_labels
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
_MOST_CLASSES = 20
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


# -- ridge regression on transformed rows, and its gradients ----------------------


class _Ridge:
    """f(u) = φ(u)·W + c with a plan, and Σ_i W_i k(u, u_i) + c without."""

    def __init__(self, kernel: Any, plan: Plan | None, U: Any, Y: Any, weight: Any):
        self.kernel, self.plan = kernel, plan
        self.U, self.Y, self.weight = U, Y, weight

    @cached_property
    def _equations(self) -> NormalEquations:
        assert self.plan is not None
        equations = NormalEquations.empty(self.plan.n_components, self.Y.shape[1])
        equations.add(self.plan, self.U, self.Y, self.weight)
        return equations

    @cached_property
    def _gram(self) -> np.ndarray:
        return exact_gram(self.kernel, self.U)

    def solve(self, alpha: float) -> tuple[np.ndarray, np.ndarray]:
        """Return weights, (D, k) or (n, k), and intercepts."""
        with warnings.catch_warnings():
            # Penalties that are too small are tried too.
            warnings.simplefilter("ignore", IllConditionedWarning)
            if self.plan is None:
                solution, intercept = solve_dual(
                    self._gram.copy(), self.Y, self.weight, alpha, True
                )
            else:
                solution, intercept = self._equations.solve(
                    alpha, True, overwrite=False
                )
        return solution.value, intercept

    def predict(self, weights: np.ndarray, U: np.ndarray) -> np.ndarray:
        """Return f(u) − c for the rows of U, (n, k)."""
        if self.plan is None:
            return predict_by_rows(self.kernel, self.U, weights, U)
        return predict_by_features(self.plan, weights, U)

    def outer_products(self, weights: Any, rows: np.ndarray, full: bool) -> np.ndarray:
        """Return the mean of J(u)ᵀJ(u) over some training rows, or its diagonal."""
        U = self.U[rows]
        weight = np.ones(len(U)) if self.weight is None else self.weight[rows]
        total = np.zeros((U.shape[1],) * (2 if full else 1))
        width = len(self.U) if self.plan is None else self.plan.n_components
        block = rows_within(_BLOCK_BYTES, 32 * width, at_least=16)
        for part in row_blocks(len(U), block):
            for gradient in self.gradients(weights, U[part]):
                gradient *= np.sqrt(weight[part])[:, None]
                total += gradient.T @ gradient if full else (gradient**2).sum(axis=0)
        return total / weight.sum()

    def gradients(self, weights: np.ndarray, U: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the gradients of every output at the rows of U, (n, d)."""
        if self.plan is not None:
            (group,) = self.plan.groups
            Z = evaluate(self.plan, U)
            for column in weights.T:
                slopes = DrawSlopes(group, U, Z, np.broadcast_to(column, Z.shape))
                yield slopes.phase @ self._frequencies
            return
        scale = 1.0 / self.kernel.lengthscale
        squared = ops_of(U).scaled_squared_distances(U, self.U, scale, False)
        # K = f(s) has the gradient 2 f'(s) (u − v)/ℓ².
        slope = scale**2 * self.kernel._slope(squared)
        for column in weights.T:
            weighted = slope * column
            yield weighted @ self.U - weighted.sum(axis=1)[:, None] * U

    @cached_property
    def _frequencies(self) -> np.ndarray:
        assert self.plan is not None
        ((factor,),) = (group.factors for group in self.plan.groups)
        basis = factor.inputs.apply(np.eye(self.U.shape[1]))
        return factor.projection.project(basis, 0, factor.projection.n_draws).T


# -- the search -------------------------------------------------------------------


@dataclass(frozen=True)
class _Split:
    """Standardised rows that are fitted, and those that judge the fit."""

    X: np.ndarray
    Y: np.ndarray
    weight: np.ndarray | None
    X_held: np.ndarray
    Y_held: np.ndarray
    weight_held: np.ndarray | None
    # Which rows held out are equal: they judge as one, as a row of their weight would.
    groups_held: np.ndarray

    def losses(self, residuals: np.ndarray) -> np.ndarray:
        """Return the weighted sum of squares for every different row held out."""
        losses = (residuals**2).sum(axis=1)
        if self.weight_held is not None:
            losses *= self.weight_held
        return np.bincount(self.groups_held, losses)

    @property
    def squares(self) -> _Split:
        """The same rows, the squares of the targets as targets."""
        mean = np.average(self.Y, axis=0, weights=self.weight)
        squares, held = (self.Y - mean) ** 2, (self.Y_held - mean) ** 2
        return replace(self, Y=squares, Y_held=held)


@dataclass(frozen=True)
class _Trial:
    """Fits with a metric, one per split, and their losses on the rows held out.

    `spread` and `alpha` are positions in the grids; `source` and `power` tell what the
    metric was made of.
    """

    roots: list[np.ndarray]
    fits: list[tuple[_Ridge, np.ndarray]]
    losses: np.ndarray
    spread: int
    alpha: int
    source: int = 0
    power: float = 1.0

    @property
    def error(self) -> float:
        return float(self.losses.mean())


def _applied(root: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Return X Aᵀ, A given by itself or by its diagonal."""
    return X * root if root.ndim == 1 else X @ root.T


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
    splits: Sequence[_Split]

    def ridge(self, split: _Split, root: np.ndarray, spread: int) -> tuple[Any, _Ridge]:
        """Return A, scaled so that rows vary by 2ℓ² over the spread's square."""
        U = _applied(root, split.X)
        variance = float(np.average((U**2).sum(axis=1), weights=split.weight)) or 1.0
        scale = math.sqrt(2 / variance) * self.kernel.lengthscale / _SPREADS[spread]
        plan = None
        if len(U) > self.exact_rows:
            row, stream = np.zeros((1, U.shape[1])), self.stream.child("features")
            plan = fit_plan(self.kernel, row, None, self.n_components, stream)
        return root * scale, _Ridge(self.kernel, plan, U * scale, split.Y, split.weight)

    def trial(self, roots: Sequence[Any], spread: int, alpha: int) -> _Trial:
        """Fit with some metrics, one per split, and the best penalty near `alpha`."""
        pairs = [
            self.ridge(split, root, spread)
            for split, root in zip(self.splits, roots, strict=True)
        ]

        def at(alpha: int) -> _Trial:
            fits, losses = [], []
            for split, (root, ridge) in zip(self.splits, pairs, strict=True):
                weights, intercept = ridge.solve(self.penalty(alpha))
                fits.append((ridge, weights))
                predicted = ridge.predict(weights, _applied(root, split.X_held))
                losses.append(split.losses(split.Y_held - predicted - intercept))
            scaled = [root for root, _ in pairs]
            return _Trial(scaled, fits, np.concatenate(losses), spread, alpha)

        n_alphas = len(_ALPHAS) if self.alpha is None else 1
        return _descend(at, alpha if self.alpha is None else 0, n_alphas)

    def penalty(self, alpha: int) -> float:
        return float(_ALPHAS[alpha]) if self.alpha is None else self.alpha

    def start(self) -> _Trial:
        """Fit with the identity, at the best of several lengthscales."""
        ones = [np.ones(split.X.shape[1]) for split in self.splits]
        trials = (self.trial(ones, at, _FIRST_ALPHA) for at in _FIRST_SPREADS)
        return min(trials, key=lambda trial: trial.error)

    def outer_products(self, trial: _Trial, full: bool) -> list[np.ndarray]:
        """Return G in the columns of the rows, one per split, or its diagonal."""
        out = []
        for root, (ridge, weights) in zip(trial.roots, trial.fits, strict=True):
            rows = np.arange(len(ridge.U))
            if len(rows) > _MOST_DIFFERENTIATED:
                generator = self.stream.child("gradients").generator()
                rows = generator.choice(len(rows), _MOST_DIFFERENTIATED, replace=False)
            G = ridge.outer_products(weights, rows, full or root.ndim == 2)
            if root.ndim == 2:
                G = root.T @ G @ root
            else:
                G = G * np.outer(root, root) if G.ndim == 2 else G * root**2
            out.append(G if full or G.ndim == 1 else np.diagonal(G))
        return out

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
            outer = self.outer_products(source, full)
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

    def fixed(self, roots: Sequence[Any], like: _Trial) -> _Trial:
        """Fit with some metrics at the lengthscale and the penalty of another trial."""
        search = replace(self, alpha=self.penalty(like.alpha))
        return search.trial(roots, like.spread, 0)

    @property
    def of_squares(self) -> _Search:
        """The same, the squares of the targets as targets."""
        return replace(self, splits=[split.squares for split in self.splits])

    def replay(self, path: Sequence[_Trial], squares: Any, full: bool) -> np.ndarray:
        """Return the metric that the choices of a path lead to on one split."""
        (split,) = self.splits
        roots = [np.ones(split.X.shape[1])]
        for last, following in pairwise(path):
            if following.source:
                source = self.of_squares.fixed(roots, squares)
            else:
                source = self.fixed(roots, last)
            outer = self.outer_products(source, full)
            roots = [_root(G, following.power) for G in outer]
        return self.ridge(split, roots[0], path[-1].spread)[0]

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


def _standardised(values: np.ndarray, weight: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return columns of mean 0 and variance 1, and what they were multiplied by.

    Constant columns become 0. Divided by the largest entry first, no square overflows.
    """
    centred = values - np.average(values, axis=0, weights=weight)
    constant = values.min(axis=0) == values.max(axis=0)
    centred[:, constant] = 0.0
    peak = np.abs(centred).max(axis=0)
    peak[constant] = 1.0
    centred /= peak
    deviation = np.sqrt(np.average(centred**2, axis=0, weights=weight))
    deviation[constant] = 1.0
    scale = np.where(constant, 0.0, 1.0 / (peak * deviation))
    return centred / deviation, scale


def _checked_targets(y: Any) -> np.ndarray:
    """Return labels, or one or more real targets."""
    if y is None:
        raise ValueError(
            "MetricLearner requires y to be passed, but the target y is None."
        )
    check_kind(y, "y")
    y = read_labels(y)
    if np.asarray(y).dtype.kind != "f":
        return np.asarray(y)
    return check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")


def _coded(y: Any, weight: Any) -> tuple[np.ndarray, bool]:
    """Return centred targets of variance 1 in all, and whether they are labels."""
    y = np.asarray(y)
    with np.errstate(invalid="ignore"):  # it casts numbers of any size to integers
        kind = type_of_target(y)
    labelled = kind in ("binary", "multiclass") and (
        y.dtype.kind not in "iuf" or len(np.unique(y)) <= _MOST_CLASSES
    )
    if labelled:
        Y = LabelBinarizer(neg_label=-1).fit_transform(y).astype(np.float64)
        Y -= np.average(Y, axis=0, weights=weight)
    else:
        Y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        Y = _standardised(Y.reshape(len(Y), -1), weight)[0]
    variance = np.average((Y**2).sum(axis=1), weights=weight)
    return Y / math.sqrt(variance or 1.0), labelled


def _splits(X: np.ndarray, Y: np.ndarray, weight: Any, stream: Stream) -> list[_Split]:
    """Return rows to fit and rows to judge by; equal rows are on one side."""
    rows = np.arange(len(X))
    if len(X) > _MOST_SEARCHED:
        generator = stream.child("searched").generator()
        rows = np.sort(generator.choice(len(X), _MOST_SEARCHED, replace=False))
    groups = np.unique(X[rows], axis=0, return_inverse=True)[1].ravel()
    n_folds = min(_FOLDS, int(groups.max()) + 1)
    if n_folds < 2:
        return []
    seed = int(stream.child("folds").generator().integers(2**31))
    folds = GroupKFold(n_folds, shuffle=True, random_state=seed)
    splits = []
    for train, held in folds.split(rows, groups=groups):
        parts = []
        for part in (rows[train], rows[held]):
            parts += [X[part], Y[part], None if weight is None else weight[part]]
        parts.append(np.unique(groups[held], return_inverse=True)[1])
        splits.append(_Split(*parts))
        if groups.max() >= _MOST_FOLDED:
            break
    return splits


# -- the transformer --------------------------------------------------------------


class MetricLearner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, TakesKernel):
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
        Diagonal of AᵀA times the variances of the columns, of sum 1.
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

    def _default_kernel(self) -> Kernel:
        return Matern(nu=1.5, lengthscale="scale")

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> MetricLearner:
        """Learn the map.

        Parameters
        ----------
        X : array or dataframe of shape (n, d)
        y : array of shape (n,) or (n, k)
            Labels, or one or more real targets.
        sample_weight : array of shape (n,), optional
        """
        self._validate_params()
        X, y = self._checked(X, reset=True), _checked_targets(y)
        check_consistent_length(X, y)
        if len(X) < 2:
            raise ValueError(
                "MetricLearner needs rows to learn from and rows to judge by, got "
                f"n_samples = {len(X)}; expected at least 2 rows."
            )
        weight = check_weights(sample_weight, X)
        if weight is not None:
            kept = weight > 0
            X, y, weight = X[kept], y[kept], weight[kept]
        stream = root_stream(self.random_state)
        rows, scale = _standardised(X.astype(np.float64), weight)
        Y, labelled = _coded(y, weight)
        kernel = self._resolved(rows, weight, stream)
        self._check_memory(len(rows), Y.shape[1])
        # Steps are chosen with half of the features, at a fourth of the cost.
        exact_rows = self.n_components or len(rows)
        search = _Search(
            kernel,
            (exact_rows + 1) // 2,
            exact_rows,
            None if self.alpha == "auto" else float(self.alpha),
            stream,
            _splits(rows, Y, weight, stream),
        )
        squares, full = None, False
        path: list[_Trial] = []
        if search.splits and Y.any():
            # A target may have a mean that hardly depends on x, but a variance that
            # does: its squares then tell which columns matter. Those of ±1 do not.
            squares = None if labelled else search.of_squares.start()
            kinds = self._kinds(search.splits[0])
            full, path = search.best(kinds, squares, self.n_iterations)
            path = self._judged(search.splits, path)
        if not path:
            return self._keep_identity(X, kernel)
        everything = _Split(rows, Y, weight, rows[:0], Y[:0], None, np.arange(0))
        search = replace(search, n_components=exact_rows, splits=[everything])
        root = search.replay(path, squares, full)
        self.metric_ = ("full" if full else "diagonal") if len(path) > 1 else "identity"
        self.alpha_ = search.penalty(path[-1].alpha)
        self.kernel_ = kernel
        self._root = root * scale
        self._weigh(root**2 if root.ndim == 1 else (root**2).sum(axis=0), scale)
        return self

    def _checked(self, X: Any, *, reset: bool) -> np.ndarray:
        """Return the rows, which are dense numbers."""
        X = validate_rows(self, X, reset=reset)
        encoder = self.table_encoder_
        if encoder is not None:
            names = ", ".join(repr(encoder.names[j]) for j in encoder.encoded)
            raise ValueError(
                f"MetricLearner learns scales of numbers, but {names} hold "
                "categories; encode them first, for instance by OneHotEncoder."
            )
        if sp.issparse(X):
            raise TypeError(
                "MetricLearner takes dense rows, got a sparse matrix; pass X.toarray()."
            )
        return X

    def _judged(self, splits: Sequence[_Split], path: list[_Trial]) -> list[_Trial]:
        """Return the path to the step to keep, an empty one if nothing was learned."""
        losses = []
        for split in splits:
            mean = np.average(split.Y, axis=0, weights=split.weight)
            losses.append(split.losses(split.Y_held - mean))
        constant = np.concatenate(losses)
        self.history_ = [trial.error / float(constant.mean()) for trial in path]
        kept = int(np.argmin(self.history_))
        if _gain(path[kept].losses, path[0].losses) < _LEAST_GAIN:
            kept = 0
        self.n_iter_ = kept
        learned = _has_signal(path[kept].losses, constant)
        return path[: kept + 1] if learned else []

    def _keep_identity(self, X: np.ndarray, kernel: Any) -> MetricLearner:
        warnings.warn(
            "no kernel predicted the targets clearly better than their mean on rows "
            "held out: MetricLearner keeps the columns as they are. More rows, or "
            "other columns, may help.",
            NoSignalWarning,
            stacklevel=3,
        )
        self.metric_, self.n_iter_ = "identity", 0
        self.alpha_ = float(_ALPHAS[-1]) if self.alpha == "auto" else float(self.alpha)
        self.history_ = getattr(self, "history_", [])
        self.kernel_ = clone(kernel).set_params(lengthscale="scale").resolve(X)
        self._root = np.ones(X.shape[1])
        self._weigh(X.astype(np.float64).var(axis=0), self._root)
        return self

    def _weigh(self, relevance: np.ndarray, scale: np.ndarray) -> None:
        relevance = np.where(scale > 0, relevance, 0.0)
        total = float(relevance.sum())
        equal = np.full(len(relevance), 1 / len(relevance))
        self.feature_importances_ = relevance / total if total else equal

    def _kinds(self, split: _Split) -> list[bool]:
        """Return which kinds of metric to try: False is diagonal, True is full."""
        n, d = split.X.shape
        if self.metric != "auto":
            return [self.metric == "full"]
        return (
            [False, True] if 1 < d <= min(_MOST_FULL, n / _ROWS_PER_COLUMN) else [False]
        )

    def _resolved(self, rows: np.ndarray, weight: Any, stream: Stream) -> Any:
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
        return kernel.resolve(rows, weight, seed)

    def _check_memory(self, n: int, k: int) -> None:
        """Raise before a Gram matrix of many rows is made."""
        if self.n_components is None:
            # The best fits of a step and of the one before are kept.
            needed = 4 * dual_bytes(n, k)
            what = f"learning a metric with the exact kernel of {n} rows"
            check_memory(needed, resolve_memory_limit(None), what, "Set n_components")

    @property
    def components_(self) -> np.ndarray:
        check_is_fitted(self, "_root")
        return np.diag(self._root) if self._root.ndim == 1 else self._root

    def transform(self, X: Any) -> np.ndarray:
        """Return X Aᵀ, float32 for float32 rows.

        Parameters
        ----------
        X : array or dataframe of shape (n, d)
        """
        check_is_fitted(self)
        X = self._checked(X, reset=False)
        return _applied(self._root, X).astype(X.dtype, copy=False)

    @property
    def _n_features_out(self) -> int:
        return self.n_features_in_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
