"""Support vector regression, on random features or on the exact kernel."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import column_or_1d

from randkern._fitting import all_or_nothing
from randkern._memory import check_memory
from randkern._random import Stream, root_stream
from randkern._sklearn import Interval
from randkern._validation import is_tensor
from randkern._warnings import warn
from randkern.backend.descent import descend
from randkern.backend.namespace import ops_of
from randkern.data.training_data import ArrayRows
from randkern.kernels import Kernel
from randkern.models._feature_model import FeatureModel
from randkern.models._libsvm import fit_margin
from randkern.models._margin_newton import check_costs, solve_box
from randkern.models._targets import RealTargets
from randkern.models.callbacks import FitReport, with_callbacks
from randkern.models.feature_matrix import FeatureMatrix, combined, scores_of
from randkern.models.memory import feature_cache_bytes, newton_bytes, tube_bytes

# Residuals this close to ε, relative to the targets, may belong to dual variables
# within their bounds; the largest number of these for Newton's method, and its gap.
_NEAR = 1e-3
_MAX_FREE = 1000
_GAP = 1e-12
# The first tolerance of coordinate descent on gradients, relative to the largest
# target, and the factor to the next.
_FIRST = 0.1
_TIGHTER = 0.2


class KernelSVR(RealTargets, RegressorMixin, FeatureModel):
    """Support vector regression on random features, or on the exact kernel.

    With rows z_i of features it minimises

        ½‖w‖² + C Σ_i s_i max(0, |y_i − b − w·z_i| − ε).

    On features, the intercept b is the mean of the targets, and w is found by
    coordinate descent in the dual; if `max_iter` passes are too few, Newton's method
    continues from there to the optimum, unless memory is short or more than 1,000
    residuals are close to ±ε. For the exact kernel b is optimal as well, and LIBSVM
    solves for both, as in :class:`~sklearn.svm.SVR`.

    Parameters
    ----------
    kernel : Kernel, default=None
        None is ``Gaussian(lengthscale="scale")``.
    C : float, default=1.0
        Positive.
    n_components : int, sequence of int or None, default=1000
        Number of random features D (a sequence: per term of a sum of kernels); None is
        the exact kernel.
    epsilon : float, default=0.1
        Errors up to ε cost nothing.
    tol : float, default=1e-4
        Stop at this duality gap, relative to the objective.
    max_iter : int, default=1000
        Maximum number of passes over all rows; a warning is issued if they, and then
        Newton's method, leave a relative duality gap above `tol`.
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
        Bytes, or text like ``"4GB"``. None: 2 GB.
    random_state : int, generator or None, default=None
        Seeds the features and the order of rows.

    Attributes
    ----------
    coef_ : ndarray of shape (D,)
        Weights of the features.
    dual_coef_ : ndarray of shape (n_support,)
        Weights of the support vectors ``X_fit_``, for the exact kernel.
    intercept_ : float
        b.
    n_iter_ : int
    kernel_, plan_
        The kernel with numbers in place of rules that depend on data, and the plan of
        its features (None for the exact kernel).

    References
    ----------
    Ho & Lin 2012, "Large-scale linear support vector regression"; Hsieh, Chang, Lin,
    Keerthi, Sundararajan 2008, "A dual coordinate descent method for large-scale linear
    SVM".

    Examples
    --------
    >>> import randkern as rk
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = rk.KernelSVR(C=100.0, n_components=200, random_state=0)
    >>> model.fit(X[:300], y[:300]).score(X[300:], y[300:]) > 0.4
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **FeatureModel._parameter_constraints,
        "C": [Interval(Real, 0, None, closed="neither")],
        "epsilon": [Interval(Real, 0, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        kernel: Kernel | None = None,
        C: float = 1.0,
        n_components: int | Sequence[int] | None = 1000,
        *,
        epsilon: float = 0.1,
        tol: float = 1e-4,
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
        self.epsilon = epsilon
        self.tol = tol
        self.max_iter = max_iter
        self.projection = projection
        self.features = features
        self.fourier = fourier
        self.memory_limit = memory_limit
        self.random_state = random_state

    @all_or_nothing
    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> KernelSVR:
        """Fit to rows and their targets.

        Callbacks are called at its start and end, as no iterations are reported.

        Parameters
        ----------
        X : array, CSR matrix or dataframe of shape (n, d)
        y : array of shape (n,)
            Targets.
        sample_weight : array of shape (n,), optional
            Factors of C for the rows: 1 each by default.
        """
        self._validate_params()
        report = FitReport(self, X, y, sample_weight)
        report.begin(None)
        stream = root_stream(self.random_state)
        rows = self._read(X, y, sample_weight, stream)
        if not rows.in_memory or is_tensor(rows.like):
            raise ValueError(
                "KernelSVR is fitted to NumPy arrays in memory, got "
                f"{type(X).__name__}; use randkern.KernelRidgeRegressor for others."
            )
        self._solve(rows.as_arrays(), stream)
        report.end()
        return self

    def _read_targets(
        self, X: Any, y: Any, sample_weight: Any
    ) -> tuple[np.ndarray, np.ndarray | None]:
        Y, weight = super()._read_targets(X, y, sample_weight)
        if Y.shape[1] > 1:
            raise ValueError(
                f"KernelSVR supports a single target, got {Y.shape[1]}; use "
                "sklearn.multioutput.MultiOutputRegressor."
            )
        if self._many_targets:
            column_or_1d(Y, warn=True)
            self._n_outputs = None
        return Y, weight

    def _solve(self, rows: ArrayRows, stream: Stream) -> None:
        n = rows.n_rows
        limit = self._memory_for(rows)
        y, weight = rows.Y[:, 0], rows.weight
        mean = float(np.average(y, weights=weight))
        upper = self.C * (np.ones(n) if weight is None else weight)
        if self.plan_ is None:
            feature_cache_bytes(None, n, limit, 0, 0)  # raises if it is too much
            self._solve_exactly(rows.X, y - mean, upper)
            self.intercept_ += mean
            return
        check_costs(upper, "C · sample_weight", "lower C")
        width = self.plan_.n_components
        needed = tube_bytes(self.plan_, n, ops_of(rows.like).as_float64(rows.like))
        check_memory(
            needed, limit, f"{n} x {width} features in float64", "Use fewer components"
        )
        # Coordinate descent takes all features at once.
        features = self._feature_matrix(rows, sys.maxsize, precise=True)
        can_polish = newton_bytes(n, width) <= limit - needed
        tube = _Tube(features, y - mean, upper, self.epsilon)
        generator = stream.child("solver").generator()
        # Newton's method takes as long as a thousand passes, most of which visit only
        # the rows whose dual variables still change.
        coef = tube.descend(self.tol, int(self.max_iter), generator)
        if can_polish:
            coef = tube.polished(coef, _GAP if tube.gap > self.tol else np.inf)
        self.coef_ = coef[:width]
        self.intercept_ = mean
        self.n_iter_ = tube.n_passes
        if tube.gap > self.tol:
            warn(
                f"max_iter={self.max_iter} passes over the rows left a duality gap of "
                f"{tube.gap:.2g} of the objective, above tol={self.tol:g}; raise "
                "max_iter or tol, or lower C.",
                ConvergenceWarning,
            )

    def _solve_exactly(self, X: Any, y: np.ndarray, upper: np.ndarray) -> None:
        """Solve for dual variables on the exact Gram matrix, and an intercept."""
        gram = self.kernel_._gram(ops_of(X).as_float64(X), None)
        # LIBSVM stops at an absolute violation: targets are divided by their size.
        unit = float(np.average(abs(y), weights=upper)) or 1.0
        margin = fit_margin(
            gram,
            y / unit,
            upper / unit,
            self.tol,
            int(self.max_iter),
            self.epsilon / unit,
        )
        support = np.flatnonzero(margin.dual)
        self.X_fit_ = X[support]
        self.dual_coef_ = unit * margin.dual[support]
        self.intercept_ = unit * margin.intercept
        self.n_iter_ = margin.n_iter

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = False
        tags.array_api_support = False
        return tags


class _Tube:
    """The problem of a tube around targets, on features that are all in memory.

    The dual variables of values below and above the tube, both at most `upper`, are
    those of a margin with each row twice,

        min ½‖w‖² − Σ_i (y_i − ε) α_i − Σ_i (−y_i − ε) α'_i,  w = Σ_i (α_i − α'_i) z_i.

    `gap` is the duality gap of the last weights relative to the objective.
    """

    def __init__(
        self, features: FeatureMatrix, y: np.ndarray, upper: np.ndarray, epsilon: float
    ):
        self.features = features
        self.y = y
        self.upper = upper
        self.epsilon = epsilon
        self.n_passes = 0
        self.gap = np.inf
        self.alpha = np.zeros((1, 2 * len(y)))
        self.tolerance = _FIRST * float(abs(y).max(initial=0.0))

    def objective(self, w: np.ndarray, scores: np.ndarray) -> float:
        slack = (abs(self.y - scores) - self.epsilon).clip(0.0)
        return float(0.5 * w @ w + self.upper @ slack)

    def descend(
        self, tol: float, max_iter: int, generator: np.random.Generator
    ) -> np.ndarray:
        """Go on by coordinate descent to a gap of `tol`, and return the weights."""
        n = len(self.y)
        alpha = self.alpha
        rows = np.tile(np.arange(n), 2)
        signs = np.repeat([[1.0, -1.0]], n, axis=1)
        targets = signs * np.tile(self.y, 2) - self.epsilon
        upper = np.tile(self.upper, 2)
        while True:
            signed = alpha[0, :n] - alpha[0, n:]
            w = combined(self.features, signed[:, None])
            scores, _ = scores_of(self.features, w)
            primal = self.objective(w[0], scores[:, 0])
            dual = float(targets[0] @ alpha[0] - 0.5 * w[0] @ w[0])
            self.gap = (primal - dual) / (primal or 1.0)
            n_remaining = max_iter - self.n_passes
            if self.gap <= tol or n_remaining <= 0:
                return w[0]
            n_passes = descend(
                self.features.cached,
                rows,
                signs,
                upper,
                alpha,
                w,
                self.tolerance,
                n_remaining,
                int(generator.integers(2**31)),
                targets,
            )
            self.n_passes += min(n_passes, n_remaining)
            if n_passes <= n_remaining:
                self.tolerance *= _TIGHTER

    def polished(self, w: np.ndarray, gap: float) -> np.ndarray:
        """Return weights nearer to the optimum, or `w` if there are none.

        They are the optimum to rounding if `w` tells which dual variables are within
        their bounds, or if the gap is to be at most `gap`.
        """
        scores, longest = scores_of(self.features, w[None])
        residual = self.y - scores[:, 0]
        excess = abs(residual) - self.epsilon
        near = abs(excess) < _NEAR * abs(self.y).max(initial=0.0)
        if near.sum() > _MAX_FREE or not longest:
            return w
        used = np.flatnonzero(self.upper)
        part = self.features if len(used) == len(self.y) else self.features.part(used)
        start = np.sign(residual) * self.upper * np.where(near, 0.5, excess > 0)
        solution = solve_box(
            part,
            np.ones(len(used)),
            self.upper[used],
            gap,
            longest,
            start[used],
            self.y[used],
            self.epsilon,
            -self.upper[used],
        )
        better = combined(part, solution.alpha[:, None])[0]
        after, _ = scores_of(self.features, better[None])
        if self.objective(better, after[:, 0]) >= self.objective(w, scores[:, 0]):
            return w
        self.gap = min(self.gap, solution.gap)
        return better
