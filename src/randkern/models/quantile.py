"""Quantile regression, on random features or on the exact kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from scipy.sparse import issparse
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning

from randkern._fitting import all_or_nothing
from randkern._random import Stream, root_stream
from randkern._sklearn import Interval
from randkern._warnings import warn
from randkern.data.reading import predicted_rows
from randkern.data.training_data import ArrayRows, FitData
from randkern.kernels import Kernel
from randkern.models._feature_model import FeatureModel
from randkern.models._margin import (
    Margins,
    Solution,
    check_costs,
    check_kernel_values,
    weighted_quantile,
)
from randkern.models._margin_model import check_single_target
from randkern.models._margin_newton import solve_by_newton
from randkern.models._targets import RealTargets
from randkern.models.calibration import conformal_quantile
from randkern.models.callbacks import FitReport, with_callbacks
from randkern.models.component_search import finds_components
from randkern.models.feature_matrix import (
    FeatureMatrix,
    GramFactor,
    features_of,
    longest_row,
)
from randkern.models.memory import cache_bytes, newton_bytes

# The first weight σ of the method of multipliers, in units of the width of the box: of
# 1, 3, 10 and 30 the last took the least time for penalties of 0.1 and 1.
_WEIGHT = 30.0


class KernelQuantileRegressor(RealTargets, RegressorMixin, FeatureModel):
    """Quantile regression on random features, or on the exact kernel.

    For every quantile τ, with rows z_i of features and the pinball loss
    ρ_τ(u) = max(τu, (τ − 1)u),

        min Σ_i s_i ρ_τ(y_i − b − w·z_i) + α/(2σ) ‖w‖²,

    where σ, the mean absolute deviation of the targets from their median, makes the
    penalty independent of their unit, and the intercept b is not penalised. All
    quantiles share the features. Each is solved in the dual by the method of
    multipliers and Newton's method, to a measured duality gap.

    Predictions of several quantiles never cross: they are sorted within each row
    (monotone rearrangement), which brings them no further from the true quantiles.

    Parameters
    ----------
    kernel : Kernel, default=None
        None is ``Gaussian(lengthscale="scale")``.
    alpha : float, default=1.0
        Penalty α. Positive.
    quantiles : float or sequence of float, default=(0.1, 0.5, 0.9)
        Each between 0 and 1, in increasing order. For a single number, predictions
        have the shape (n,).
    n_components : int, sequence of int, "auto" or None, default=1000
        Number of random features D (a sequence: per term of a sum of kernels); None is
        the exact kernel. 1000 are often too few for tens of thousands of rows: "auto"
        doubles them as long as a fifth of the rows, at most 4,000, that are left out of
        these fits gain more than a standard error by it, and `memory_limit` allows.
        The attributes `n_components_` and `component_errors_` (the mean loss by number)
        say what was found.
    conformal : bool, default=False
        Whether to fit to a part of the rows, and to shift every predicted quantile τ so
        that the others lie below it in the proportion τ: a new target, exchangeable
        with these, lies above the shifted quantile with probability at most 1 − τ if
        τ ≥ ½, and below it with probability at most τ if τ < ½ (split conformal
        prediction).
    validation_fraction : float, default=0.2
        Proportion of rows set aside with ``conformal=True``.
    tol : float, default=1e-4
        Stop at this duality gap, relative to the objective, in which no loss counts as
        more than a few times those of most targets for a constant.
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
        Bytes, or text like ``"4GB"``; half of it is for features, which are recomputed
        in every pass over the rows if they do not fit. None: 2 GB.
    random_state : int, generator or None, default=None
        Seeds the features, and the choice of rows that are set aside.

    Attributes
    ----------
    quantiles_ : ndarray of shape (n_quantiles,)
    coef_ : ndarray of shape (n_quantiles, D) or (D,)
        Weights of the features.
    dual_coef_ : ndarray of shape (r, n_quantiles) or (r,)
        Weights of the rows ``X_fit_``, for the exact kernel: as many rows as the rank r
        of its Gram matrix.
    intercept_ : ndarray of shape (n_quantiles,) or float
        With ``conformal=True``, including the shifts.
    duality_gap_ : ndarray of shape (n_quantiles,)
        Duality gap, relative to the objective.
    n_iter_ : int
        Largest number of Newton's steps of a quantile.
    kernel_, plan_
        The kernel with numbers in place of rules that depend on data, and the plan of
        its features (None for the exact kernel).

    Notes
    -----
    With several quantiles, predictions have one column per quantile, which is not what
    scikit-learn expects of regressors of one target: ``sklearn.base.is_regressor``
    holds for a single number alone, which also takes sparse rows (scikit-learn requires
    predictions of these to have the shape (n,)).

    With ``conformal=True``, lengthscales and landmarks are chosen from all rows of `X`;
    targets of the rows that are set aside have no part in the fit. Weights of rows
    count in the shifts as in :meth:`fit`. Among several quantiles, sorting preserves
    the guarantees of the lowest and of the highest.

    References
    ----------
    Takeuchi, Le, Sears & Smola 2006, "Nonparametric quantile estimation";
    Chernozhukov, Fernández-Val & Galichon 2010, "Quantile and probability curves
    without crossing"; Romano, Patterson & Candès 2019, "Conformalized quantile
    regression"; Li, Sun & Toh 2018, "A highly efficient semismooth Newton augmented
    Lagrangian method for solving Lasso problems".

    Examples
    --------
    >>> import randkern as rk
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = rk.KernelQuantileRegressor(n_components=200, random_state=0)
    >>> low, median, high = model.fit(X[:300], y[:300]).predict(X[300:]).T
    >>> bool((low <= median).all() and (median <= high).all())
    True
    >>> bool(0.7 < ((low < y[300:]) & (y[300:] < high)).mean() < 0.9)
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **FeatureModel._parameter_constraints,
        "alpha": [Interval(Real, 0, None, closed="neither")],
        "quantiles": [Interval(Real, 0, 1, closed="neither"), "array-like"],
        "conformal": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "tol": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        kernel: Kernel | None = None,
        alpha: float = 1.0,
        quantiles: float | Sequence[float] = (0.1, 0.5, 0.9),
        n_components: int | Sequence[int] | None = 1000,
        *,
        conformal: bool = False,
        validation_fraction: float = 0.2,
        tol: float = 1e-4,
        projection: str = "auto",
        features: str = "random",
        fourier: str = "pair",
        memory_limit: Any = None,
        random_state: Any = None,
    ):
        self.kernel = kernel
        self.alpha = alpha
        self.quantiles = quantiles
        self.n_components = n_components
        self.conformal = conformal
        self.validation_fraction = validation_fraction
        self.tol = tol
        self.projection = projection
        self.features = features
        self.fourier = fourier
        self.memory_limit = memory_limit
        self.random_state = random_state

    @all_or_nothing
    @finds_components
    @with_callbacks
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None
    ) -> KernelQuantileRegressor:
        """Fit to rows and their targets.

        Callbacks are called at its start and end.

        Parameters
        ----------
        X : array, CSR matrix, dataframe, Dask collection or RowBlocks of n rows
            CSR matrices for a single quantile. Rows that do not fit in memory are
            passed as :class:`~randkern.RowBlocks`, with their targets and weights; Dask
            collections are read one partition at a time.
        y : array of shape (n,)
            Targets; None if `X` includes them.
        sample_weight : array of shape (n,), optional
            Factors of the rows' losses: 1 each by default.

        Raises
        ------
        randkern.exceptions.MemoryLimitError
            If the fit would need more than `memory_limit`; raised before allocating.
        """
        self._validate_params()
        self.quantiles_ = _checked_quantiles(self.quantiles)
        if np.ndim(self.quantiles) and issparse(X):
            raise TypeError(
                "KernelQuantileRegressor supports sparse X only for a single quantile, "
                f"got quantiles={self.quantiles!r}; pass X.toarray(), or fit one model "
                "per quantile."
            )
        report = FitReport(self, X, y, sample_weight)
        report.begin(None)
        stream = root_stream(self.random_state)
        data = self._read(X, y, sample_weight, stream)
        rows = data.rows
        check_single_target(self, rows)
        n, width = rows.n_rows, data.width
        needed = 96 * n + 64 * width + newton_bytes(n, width)
        cache, _ = cache_bytes(data.plan, rows, data.limit, needed)
        features = features_of(data, cache, precise=True, constant=True)
        Y, weight = rows.targets()
        set_aside = self._set_aside(weight, stream)
        weight = np.array(weight)
        weight[set_aside] = 0.0
        weights, intercept = self._solve(features, Y[:, 0], weight)
        held = rows.take(set_aside) if self.conformal else None
        # From here on, the columns are those of predictions.
        self._n_outputs = len(self.quantiles_) if np.ndim(self.quantiles) else None
        self._store(features, data, weights)
        shifts = 0.0 if held is None else self._shifts(held, intercept)
        self.intercept_ = self._drop_single_target((intercept + shifts)[None])[0]
        report.end()
        return self

    def _store(
        self, features: FeatureMatrix, data: FitData, weights: np.ndarray
    ) -> None:
        """Set the weights of features, or of the rows of the exact kernel."""
        if isinstance(features, GramFactor):
            numbers, dual = features.rows_of(weights)
            self.X_fit_ = data.kept_rows[numbers]
            self.dual_coef_ = self._drop_single_target(dual)
        else:
            coef = weights[:, : features.n_components - 1]
            self.coef_ = self._as_coef(coef.T)

    def _set_aside(self, weight: np.ndarray, stream: Stream) -> np.ndarray:
        """Return the numbers of the rows for conformal shifts, in ascending order."""
        if not self.conformal:
            return np.arange(0)
        used = np.flatnonzero(weight)
        n = math.ceil(self.validation_fraction * len(used))
        generator = stream.child("validation").generator()
        numbers = np.sort(generator.choice(used, n, replace=False))
        # With too few rows the shift of the most extreme quantile is infinite.
        extreme = float(np.maximum(self.quantiles_, 1 - self.quantiles_).max())
        shifts = conformal_quantile(np.zeros((n, 1)), extreme, weight[numbers])
        if n == len(used) or not np.isfinite(shifts).all():
            raise ValueError(
                f"conformal=True holds out {n} of {len(used)} rows, which is too few "
                f"for quantiles={self.quantiles!r}, or leaves no rows to fit; pass "
                "more rows, another validation_fraction, or less extreme quantiles."
            )
        return numbers

    def _solve(
        self, features: FeatureMatrix, y: np.ndarray, weight: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return weights (k, width) and intercepts (k,) of all quantiles."""
        check_costs(weight / self.alpha, "sample_weight / alpha", "raise alpha")
        center = weighted_quantile(y, weight, 0.5)
        deviation = abs(y - center) * (weight > 0)
        size = float(deviation.max()) or 1.0
        unit = size * float(np.average(deviation / size, weights=weight)) or 1.0
        targets = (y[:, None] - center) / unit
        costs = weight[:, None] / self.alpha
        solutions: list[Solution] = []
        start = None
        self.n_iter_ = 0
        longest = longest_row(features)
        check_kernel_values(longest**2)
        for quantile in self.quantiles_:
            upper = quantile * costs
            lower = (quantile - 1) * costs
            problem = Margins(features, targets, lower, upper, longest=longest)
            fit = solve_by_newton(
                problem,
                self.tol,
                start=None if start is None else start + upper[:, 0],
                first_weight=_WEIGHT * float(costs.max()),
            )
            # Rows above this quantile, and below it, are mostly so for the next one.
            start = fit.alpha - upper[:, 0]
            solutions.append(fit.solution)
            self.n_iter_ = max(self.n_iter_, fit.n_steps)
        self.duality_gap_ = np.concatenate([fit.gap for fit in solutions])
        if self.duality_gap_.max() > self.tol:
            warn(
                f"the duality gap is {self.duality_gap_.max():.2g} of the objective, "
                f"above tol={self.tol:g}: rounding errors prevent a smaller one; raise "
                "alpha or tol.",
                ConvergenceWarning,
            )
        weights = unit * np.concatenate([fit.weights for fit in solutions])
        intercepts = np.concatenate([fit.intercept for fit in solutions])
        return weights, center + unit * intercepts

    def _shifts(self, rows: ArrayRows, intercept: np.ndarray) -> np.ndarray:
        """Return the conformal shifts (k,) from rows that were set aside."""
        self.intercept_ = self._drop_single_target(intercept[None])[0]
        values = super()._values_of(rows.X)
        residuals = rows.Y - values.reshape(len(values), -1)
        shifts = np.empty(len(self.quantiles_))
        for j, quantile in enumerate(self.quantiles_):
            # Above the quantile if it is high, below it if it is low.
            side = 1.0 if quantile >= 0.5 else -1.0
            coverage = max(quantile, 1 - quantile)
            of_side = side * residuals[:, j : j + 1]
            shifts[j] = side * conformal_quantile(of_side, coverage, rows.weight)[0]
        return shifts

    def _values_of(self, X: Any, moved: bool = False) -> np.ndarray:
        values = super()._values_of(X, moved)
        return np.sort(values, axis=1) if values.ndim == 2 else values

    def predict(self, X: Any) -> np.ndarray:
        """Return the quantiles of rows, (n, n_quantiles); (n,) for a single number.

        Parameters
        ----------
        X : array, CSR matrix, dataframe, Dask collection or RowBlocks of n rows
            Results of Dask collections are lazy.
        """
        return super().predict(X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return D², 1 for the true targets and 0 for quantiles of the targets.

        One minus the pinball loss over that of the constant quantiles of these targets,
        averaged over quantiles.

        Parameters
        ----------
        X : array, CSR matrix, dataframe, Dask collection or RowBlocks of n rows
        y : array of shape (n,)
            Targets; None if `X` includes them.
        sample_weight : array of shape (n,), optional
            Weights of the rows in the means.
        """
        from sklearn.metrics import d2_pinball_score

        y, predictions, weight = predicted_rows(self, X, y, sample_weight)
        scores = [
            d2_pinball_score(y, values, sample_weight=weight, alpha=quantile)
            for values, quantile in zip(
                predictions.reshape(len(predictions), -1).T,
                self.quantiles_,
                strict=True,
            )
        ]
        return float(np.mean(scores))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = False
        tags.array_api_support = False
        if np.ndim(self.quantiles):
            # Regressors of one target, and whatever takes sparse rows, predict an array
            # of shape (n,).
            tags.estimator_type = None
            tags.input_tags.sparse = False
        return tags


def _checked_quantiles(quantiles: Any) -> np.ndarray:
    """Return quantiles as an array; raise unless they increase from 0 to 1."""
    values = np.atleast_1d(np.asarray(quantiles, dtype=np.float64))
    valid = values.ndim == 1 and values.size and ((values > 0) & (values < 1)).all()
    if not valid or (np.diff(values) <= 0).any():
        raise ValueError(
            "quantiles must be numbers between 0 and 1 in increasing order, got "
            f"{quantiles!r}; pass for instance (0.1, 0.5, 0.9)."
        )
    return values
