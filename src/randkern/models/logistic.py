"""Logistic regression on random features, or on the exact kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning

from randkern._fitting import all_or_nothing, remember
from randkern._random import root_stream
from randkern._sklearn import Interval, StrOptions
from randkern._warnings import warn
from randkern.backend.namespace import ops_of
from randkern.data.columns import split_target
from randkern.data.training_data import FitData
from randkern.kernels import Kernel
from randkern.models._feature_model import FeatureModel
from randkern.models._newton import descend
from randkern.models._targets import ClassLabels
from randkern.models.calibration import LogitsOfDecisions
from randkern.models.callbacks import FitReport, with_callbacks
from randkern.models.component_search import finds_components
from randkern.models.dual_logistic import DualLogistic
from randkern.models.feature_matrix import (
    FeatureMatrix,
    GramFactor,
    add_combinations,
    features_of,
    products,
)
from randkern.models.logistic_loss import derivatives, of_label
from randkern.models.memory import (
    block_rows,
    cache_bytes,
    curvature_bytes,
)

# With the exact kernel of more rows, without an intercept, products replace a factor:
# they are faster, and of few rows neither takes long.
_FACTORISED_ROWS = 500
# Vectors of the size of all weights that a fit holds at a time.
_N_VECTORS = 12
# Second derivatives, (D, D), take about the time of D / 40 products over the features:
# they are computed after that many products, and not before `_MIN_PATIENCE`.
_COLUMNS_PER_PASS = 40
_MIN_PATIENCE = 20
# Steps are many and start far away: their systems are solved to this residual.
_MAX_RESIDUAL = 0.2
# A rarer class starts with the intercept of this share of the rows.
_MIN_SHARE = 1e-9
# Curvature of an intercept that may be rounding error.
_ROUNDING = 1e-9


class KernelLogistic(LogitsOfDecisions, ClassLabels, ClassifierMixin, FeatureModel):
    """Logistic regression on random features, or on the exact kernel.

    For two classes with signs y_i

        min ½‖w‖² + C Σ_i s_i log(1 + exp(−y_i w·z_i)),

    for more the multinomial loss with one vector of weights per class; with an
    intercept b, which is not penalised, w·z_i + b in place of w·z_i. Solved by Newton's
    method with conjugate gradients, on products with the features, which are recomputed
    for each if they do not fit `memory_limit`. When products have taken as long as the
    second derivative I + C·Σ_i s_i p_i(1 − p_i) z_i z_iᵀ would, it is computed and
    factorised, if memory allows, as a preconditioner; for more than two classes, its
    mean over classes.

    The exact kernel of more than 500 rows, without an intercept, is not factorised:
    Newton's method solves for the weights of rows by preconditioned conjugate
    gradients, and stops at the bound ½‖g‖² of `tol`.

    Parameters
    ----------
    kernel : Kernel, default=None
        None is ``Gaussian(lengthscale="scale")``.
    C : float, default=1.0
        Positive: the inverse of the penalty.
    n_components : int, sequence of int, "auto" or None, default=1000
        Number of random features D (a sequence: per term of a sum of kernels); None is
        the exact kernel. 1000 are often too few for tens of thousands of rows: "auto"
        doubles them as long as a fifth of the rows, at most 4,000, that are left out of
        these fits gain more than a standard error by it, and `memory_limit` allows.
        The attributes `n_components_` and `component_errors_` (the mean loss by number)
        say what was found.
    fit_intercept : bool, default=True
        Whether to fit an intercept. Without one, probabilities of rare classes are
        biased towards 1/2, by the penalty.
    class_weight : dict, "balanced" or None, default=None
        A factor for the rows of each class; ``"balanced"``: n_samples / (n_classes ·
        rows of the class). None: 1 for all.
    tol : float, default=1e-5
        Stop when two conditions hold: no entry of the gradient g is larger than `tol`
        times the largest at w = 0 (or than rounding errors), and ½‖g‖², an upper bound
        of the excess of the objective over its minimum, is at most `tol` times the
        objective.
    max_iter : int, default=1000
        Maximum number of products with the second derivative: each takes a pass over
        the features.
    projection : str, default="auto"
        How the random matrix is drawn: ``"dense"``, with independent rows, and stored;
        ``"streamed"``, the same, recomputed when needed; ``"orthogonal"``, in
        orthogonal blocks, for a lower variance; ``"structured"``, in such blocks by
        fast Walsh-Hadamard transforms; ``"qmc"``, from a Sobol sequence; ``"auto"``,
        by kernel and number of columns.
    features : {"random", "nystrom"}, default="random"
        ``"random"``: random features of the kernel; ``"nystrom"``: its values at
        `n_components` landmark rows, chosen by randomly pivoted Cholesky.
    fourier : {"pair", "offset"}, default="pair"
        For stationary kernels. ``"pair"``: cosines and sines of D/2 frequencies;
        ``"offset"``: cosines of D frequencies with random phases.
    memory_limit : int, str or None, default=None
        Bytes, or text like ``"4GB"``; half of it is for features. None: 2 GB.
    random_state : int, generator or None, default=None
        Seeds all random numbers.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_ : ndarray of shape (D,) or (n_classes, D)
        Weights of the features.
    intercept_ : float or ndarray of shape (n_classes,)
        0 if no intercept is fitted.
    dual_coef_ : ndarray of shape (r,) or (r, n_classes)
        Weights of the rows ``X_fit_``, for the exact kernel: as many rows as the rank r
        of its Gram matrix.
    n_iter_ : int
    kernel_, plan_
        The kernel with numbers in place of rules that depend on data, and the plan of
        its features (None for the exact kernel).

    Notes
    -----
    PyTorch tensors are processed on their own device, under
    ``sklearn.config_context(array_api_dispatch=True)``.

    Examples
    --------
    >>> import randkern as rk
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = rk.KernelLogistic(C=10.0, random_state=0).fit(X[:1000], y[:1000])
    >>> model.score(X[1000:], y[1000:]) > 0.9
    True
    >>> float(model.predict_proba(X[1000:1001]).sum())
    1.0
    """

    _needs_sums_alone: ClassVar[bool] = True
    _temperature = 1.0
    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **FeatureModel._parameter_constraints,
        "C": [Interval(Real, 0, None, closed="neither")],
        "fit_intercept": ["boolean"],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        kernel: Kernel | None = None,
        C: float = 1.0,
        n_components: int | Sequence[int] | None = 1000,
        *,
        fit_intercept: bool = True,
        class_weight: Any = None,
        tol: float = 1e-5,
        max_iter: int = 1000,
        projection: str = "auto",
        features: str = "random",
        fourier: str = "pair",
        memory_limit: Any = None,
        random_state: Any = None,
    ):
        self.kernel = kernel
        self.C = C
        self.n_components = n_components
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.tol = tol
        self.max_iter = max_iter
        self.projection = projection
        self.features = features
        self.fourier = fourier
        self.memory_limit = memory_limit
        self.random_state = random_state

    @all_or_nothing
    @finds_components
    @with_callbacks
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        target: str | None = None,
    ) -> KernelLogistic:
        """Fit to rows and their labels.

        Parameters
        ----------
        X : array, CSR matrix, dataframe, tensor, Dask collection or RowBlocks of n rows
            Rows that do not fit in memory are passed as :class:`~randkern.RowBlocks`,
            with their labels and weights; Dask collections are summed on their workers.
        y : array of shape (n,)
            Labels; None if `X` includes them.
        sample_weight : array of shape (n,), optional
            Factors of the rows' losses: 1 each by default.
        target : str, optional
            The column of a dataframe `X`, of Dask or in memory, that holds `y`.

        Raises
        ------
        randkern.exceptions.MemoryLimitError
            If the fit would need more than `memory_limit`; raised before allocating.
        """
        self._validate_params()
        X, y = split_target(X, y, target)
        report = FitReport(self, X, y, sample_weight)
        stream = root_stream(self.random_state)
        data = self._read(X, y, sample_weight, stream)
        rows, plan = data.rows, data.plan
        if self._is_by_products(data):
            self._fit_by_products(data, report)
            return self
        vectors = 8 * _N_VECTORS * rows.n_targets * data.width
        # The factor of the exact Gram matrix has a column of ones in a copy.
        cache, spare = cache_bytes(plan, rows, data.limit, vectors, squares=4)
        features = features_of(data, cache, constant=self.fit_intercept)
        loss = LogisticLoss(features, self.C, has_intercept=self.fit_intercept)
        report.begin(lambda flat: self._fitted(data, features, flat))
        # Second derivatives are computed after so many iterations, if they fit.
        D, row_bytes = features.n_components, features.width * features.dtype.itemsize
        patience = max(D // _COLUMNS_PER_PASS, _MIN_PATIENCE)
        if curvature_bytes(D, row_bytes) > spare:
            patience = 0
        weights = self._minimise(loss, report, patience)
        remember(self, self._fitted(data, features, weights))
        report.end()
        return self

    def _is_by_products(self, data: FitData) -> bool:
        """Whether products with the exact kernel of many rows replace its factor."""
        exact = data.plan is None and not self.fit_intercept
        if not exact or data.rows.n_rows <= _FACTORISED_ROWS:
            return False
        return isinstance(data.kept_rows, np.ndarray)

    def _fit_by_products(self, data: FitData, report: FitReport) -> None:
        """Fit by Newton's method on the weights of rows."""
        rows = data.rows.as_arrays()
        Y, weight = rows.targets()
        strength = self.C * (np.ones(len(Y)) if weight is None else weight)
        order = data.stream.child("solver")
        dual = DualLogistic.of(data.kernel, rows.X, Y, data.limit, order)

        no_intercept = np.zeros(Y.shape[1]) if self._many_targets else 0.0

        def fitted(weights: np.ndarray) -> dict[str, Any]:
            return {
                "X_fit_": rows.X,
                "dual_coef_": self._drop_single_target(weights),
                "intercept_": no_intercept,
            }

        report.begin(fitted)
        steps = count(1)
        solution = dual.minimise(
            strength,
            self.tol,
            self.max_iter,
            report=lambda weights: report.step(next(steps), weights),
        )
        self._keep_products(solution.n_iter, solution.gradient)
        remember(self, fitted(solution.weights))
        report.end()

    def _keep_products(self, n_iter: int, gradient: float) -> None:
        """Store the number of products; warn if there were too few."""
        self.n_iter_ = n_iter
        if gradient > self.tol and n_iter >= self.max_iter:
            warn(
                f"max_iter={self.max_iter} products with the kernel did not reach "
                f"tol={self.tol:g}: the objective may exceed its minimum by "
                f"{gradient:.2g} of it; raise either, or lower C.",
                ConvergenceWarning,
            )

    def _fitted(
        self, data: FitData, features: FeatureMatrix, weights: np.ndarray
    ) -> dict[str, Any]:
        """Return the fitted attributes for weights of features."""
        weights = weights.reshape(features.n_targets, features.n_components)
        intercept: Any = 0.0
        if self.fit_intercept:
            weights, last = weights[:, :-1], weights[:, -1]
            intercept = last if self._many_targets else float(last[0])
        if data.plan is not None:
            coef = self._as_coef(weights.T)
            return {"coef_": coef, "intercept_": intercept}
        assert isinstance(features, GramFactor)
        numbers, dual = features.rows_of(weights)
        attributes = {
            "X_fit_": data.kept_rows[numbers],
            "dual_coef_": self._drop_single_target(dual),
        }
        return attributes | {"intercept_": intercept}

    def _minimise(
        self, loss: LogisticLoss, report: FitReport, patience: int
    ) -> np.ndarray:
        """Return the minimiser of the loss, or the weights when a callback stops.

        After `patience` products a preconditioner is computed, never if it is 0.
        Gradients are scaled to order one: with an enormous C their squares overflow.
        """
        ops = ops_of(loss.features.like)
        start = loss.start()
        largest = ops.largest_or_zero(abs(loss(start)[1]))
        unit = max(1.0, largest)
        scaled = LogisticLoss(loss.features, loss.C, unit, loss.has_intercept)
        steps = count(1)
        is_stopped = False

        def report_step(flat: np.ndarray) -> bool:
            nonlocal is_stopped
            is_stopped = report.step(next(steps), flat)
            return is_stopped

        def reached(value: float, slope: np.ndarray) -> bool:
            return scaled.is_near_minimum(value, slope, self.tol, largest)

        flat, self.n_iter_ = descend(
            scaled,
            scaled.curvature,
            start,
            reached,
            int(self.max_iter),
            report_step,
            scaled.preconditioner if patience else None,
            patience,
            max_residual=_MAX_RESIDUAL,
        )
        if not reached(*scaled(flat)) and not is_stopped:
            self._warn(ops.largest_or_zero(abs(scaled(flat)[1])) * unit / largest)
        return flat

    def _warn(self, left: float) -> None:
        """Warn of the remaining gradient, as a share of that at w = 0."""
        reason = f"max_iter={self.max_iter} iterations did not reach tol={self.tol:g}"
        advice = "raise either"
        if self.n_iter_ < self.max_iter:
            reason = f"rounding errors keep the fit from tol={self.tol:g}"
            advice = "raise it, use float64 rows"
        warn(
            f"{reason}: the largest entry of the gradient is {left:.2g} of that at "
            f"w = 0; {advice}, or lower C.",
            ConvergenceWarning,
        )


class LogisticLoss:
    """The objective, divided by a unit, as a function of all weights.

    With its derivatives; the last value is stored. Signs are the targets of features,
    one column for two classes. Features, signs and weights of rows stay on their
    devices; sums over them are moved.
    """

    def __init__(
        self,
        features: FeatureMatrix,
        C: float,
        unit: float = 1.0,
        has_intercept: bool = False,
    ):
        self.features = features
        self.C = C
        self.unit = unit
        self.has_intercept = has_intercept
        self.shape = (features.n_targets, features.n_components)
        self.size = self.shape[0] * self.shape[1]
        # The penalties of the weights.
        self.penalty = ops_of(features.like).float64_ones(self.shape[1], features.like)
        if has_intercept:
            self.penalty[-1] = 0.0
        self._last: tuple[np.ndarray, tuple[float, np.ndarray]] | None = None

    def start(self) -> np.ndarray:
        """Return zeros, and as intercepts the log odds of the classes."""
        ops = ops_of(self.features.like)
        k = self.shape[0]
        weights = ops.float64_zeros(self.shape, self.features.like)
        if self.has_intercept:
            # At 0, the loss is the total weight times log 2 (or k), and its derivative
            # in an intercept is the weight of the class.
            total, gradient = self.features.reduce(_losses, weights)
            slopes = ops.to_host(gradient[:, -1])
            total = float(total) / np.log(max(k, 2))
            shares = 0.5 - slopes / total if k == 1 else 1 / k - slopes / total
            shares = np.clip(shares, _MIN_SHARE, 1 - _MIN_SHARE)
            odds = np.log(shares)
            odds -= np.log1p(-shares) if k == 1 else odds.mean()
            weights[:, -1] = ops.float64_like(odds, weights)
        return weights.ravel()

    def __call__(self, flat: np.ndarray) -> tuple[float, np.ndarray]:
        ops = ops_of(flat)
        weights = flat.reshape(self.shape)
        if self._last is None or ops.largest_or_zero(abs(self._last[0] - flat)):
            total, gradient = self.features.reduce(_losses, weights)
            value = 0.5 * float((self.penalty * weights**2).sum()) + self.C * float(
                total
            )
            slope = (self.penalty * weights + self.C * gradient).ravel()
            self._last = flat, (value / self.unit, slope / self.unit)
        return self._last[1]

    def is_near_minimum(
        self, value: float, slope: np.ndarray, tol: float, largest: float
    ) -> bool:
        """Return whether a gradient is small beside the value and the first gradient.

        `largest` is the largest entry of the latter, before division by the unit.
        """
        ops = ops_of(slope)
        unit = self.unit
        # The curvature is at least 1, that of the penalty. With an enormous C, squares
        # of scaled gradients underflow.
        left = ops.largest_or_zero(abs(slope))
        length = left * ops.algebra.norm(slope / (left or 1.0)) * unit**0.5
        share = max(tol, ops.precision(self.features.dtype) ** 0.5)
        is_small = left <= share * largest / unit
        return is_small and 0.5 * length**2 <= tol * value

    def curvature(self, flat: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Return the function that multiplies by the second derivative."""
        weights = flat.reshape(self.shape)

        def product(vector: np.ndarray) -> np.ndarray:
            along = vector.reshape(self.shape)
            change = self.features.reduce(_curvature_product, weights, along)
            return (self.penalty * along + self.C * change).ravel() / self.unit

        return product

    def preconditioner(self, flat: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Return the product with the inverse second derivative of each class.

        For more than two classes, that of their mean.
        """
        features = self.features
        ops = ops_of(features.like)
        weights = flat.reshape(self.shape)
        (gram,) = features.reduce(
            curvature_grams, _mean_curvature, weights, features.n_components
        )
        gram *= self.C / self.unit
        # Sums of float32 have rounding errors of this size.
        rounding = ops.precision(features.dtype) * float(gram.diagonal().sum())
        # An intercept without a penalty may have no curvature left: none at all if
        # probabilities are 0 or 1 to the last digit. Gradients are of order one.
        min_curvature = _ROUNDING * float(gram[-1, -1]) or 1.0
        rounding = rounding + min_curvature * (1 - self.penalty)
        ops.algebra.add_to_diagonal(gram, self.penalty / self.unit + rounding)
        factor = ops.algebra.lower_factor(gram)
        if not ops.is_finite(factor):
            return lambda vector: vector
        solve = ops.algebra.triangular_solve

        def product(vector: np.ndarray) -> np.ndarray:
            half = solve(factor, vector.reshape(self.shape).T)
            return solve(factor, half, transposed=True).T.reshape(-1)

        return product


def curvature_grams(
    features: FeatureMatrix, curvature: Callable[[Any], Any], weights: Any, D: int
) -> tuple[Any, ...]:
    """Return Σ_i s_i h_ij z_i z_iᵀ of the first D features, for every column j of h.

    `curvature` returns h, (n, m), of the values w_c·z_i, (n, k).
    """
    ops = ops_of(features.like)
    weights = features.padded(weights)
    m = curvature(ops.float64_zeros((1, len(weights)), features.like)).shape[1]
    grams = tuple(ops.float64_zeros((D, D), features.like) for _ in range(m))
    n_rows = block_rows(features.width * features.dtype.itemsize)
    for block in features.blocks(n_rows):
        Z = block.values
        weight = 1.0 if block.weight is None else block.weight[:, None]
        roots = (weight * curvature(products(Z, weights))) ** 0.5
        for j, gram in enumerate(grams):
            ops.add_gram(Z[:, :D] * ops.asarray(roots[:, j], Z)[:, None], gram)
    return grams


def _mean_curvature(values: Any) -> Any:
    """Return p(1 - p) for two classes; (1 - Σ_c p_c²) / (k - 1) for k, (n, 1).

    The second derivative of a row has this mean over the differences of k classes.
    """
    special = ops_of(values).special
    k = values.shape[1]
    if k == 1:
        return special.expit(values) * special.expit(-values)
    chance = special.softmax(values, 1)
    return (chance * (1 - chance)).sum(axis=1)[:, None] / (k - 1)


def _losses(features: FeatureMatrix, weights: Any) -> tuple[float, Any]:
    """Return the sum of the losses of rows, and its gradient in the weights."""
    ops = ops_of(features.like)
    weights = features.padded(weights)
    total = 0.0
    gradient = ops.float64_zeros(weights.shape, weights)
    for block in features.blocks():
        losses, slopes = derivatives(products(block.values, weights), block.Y)
        if block.weight is not None:
            losses, slopes = losses * block.weight, slopes * block.weight[:, None]
        total += float(losses.sum())
        add_combinations(block.values, slopes, gradient)
    return total, gradient[:, : features.n_components]


def _curvature_product(features: FeatureMatrix, weights: Any, along: Any) -> Any:
    """Return the second derivative of the sum of losses, times some weights."""
    ops = ops_of(features.like)
    weights = features.padded(weights)
    along = features.padded(along)
    out = ops.float64_zeros(along.shape, along)
    k = len(weights)
    both = ops.xp.concat((weights, along))
    for block in features.blocks():
        found = products(block.values, both)
        values, change = found[:, :k], found[:, k:]
        if k == 1:
            chance = ops.special.expit(values) * ops.special.expit(-values)
        else:
            chance = ops.special.softmax(values, 1)
            change = change - of_label(change, block.Y)[:, None]
            change = change - (chance * change).sum(axis=1)[:, None]
        change = chance * change
        if block.weight is not None:
            change = change * block.weight[:, None]
        add_combinations(block.values, change, out)
    return out[:, : features.n_components]
