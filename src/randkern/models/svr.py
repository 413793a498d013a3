"""Support vector regression, on random features or on the exact kernel."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.svm import LinearSVR
from sklearn.utils import column_or_1d
from sklearn.utils._param_validation import Interval

from randkern._fitting import all_or_nothing
from randkern._memory import check_memory
from randkern._random import Stream, root_stream
from randkern._validation import is_tensor
from randkern.data.training_data import ArrayRows
from randkern.kernels import Kernel
from randkern.models._feature_model import FeatureModel
from randkern.models._svm_dual import solve_box
from randkern.models._targets import RealTargets
from randkern.models.callbacks import FitReport, with_callbacks
from randkern.models.feature_matrix import (
    FeatureMatrix,
    GramFactor,
    combined,
    scores_of,
)
from randkern.models.memory import liblinear_bytes, newton_bytes

# Residuals this close to ε, relative to the targets, may belong to dual variables
# within their bounds; the largest number of these for Newton's method, and its gap.
_NEAR, _MOST_FREE, _GAP = 1e-3, 1000, 1e-12


class KernelSVR(RealTargets, RegressorMixin, FeatureModel):
    """Support vector regression on random features, or on the exact kernel.

    With rows z_i of features and the mean ȳ of the targets it minimises

        ½‖w‖² + C Σ_i s_i max(0, |y_i − ȳ − w·z_i| − ε).

    Solved by scikit-learn's :class:`~sklearn.svm.LinearSVR` (LIBLINEAR's coordinate
    descent in the dual); the features of the exact kernel are a factor of its Gram
    matrix. If `max_iter` passes are too few, Newton's method continues from there to
    the optimum, unless memory is short or more than 1,000 residuals are close to ±ε.

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
        Stop at this size of the projected gradient, relative to that at the start.
    max_iter : int, default=1000
        Maximum number of passes over all rows; a warning is issued if they are too few.
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
    dual_coef_ : ndarray of shape (r,)
        Weights of the rows ``X_fit_``, for the exact kernel: as many rows as the rank r
        of its Gram matrix.
    intercept_ : float
        ȳ.
    n_iter_ : int
    kernel_, plan_
        The kernel with numbers in place of rules that depend on data, and the plan of
        its features (None for the exact kernel).

    References
    ----------
    Ho & Lin 2012, "Large-scale linear support vector regression".

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

        Callbacks are called at its start and end, as LIBLINEAR reports no iterations.

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
        given = self._read(X, y, sample_weight, stream)
        if not given.in_memory or is_tensor(given.like):
            raise ValueError(
                "KernelSVR is fitted to NumPy arrays in memory, got "
                f"{type(X).__name__}; use randkern.KernelRidgeRegressor for others."
            )
        self._solve(given.whole(), stream)
        report.end()
        return self

    def _read_targets(
        self, X: Any, y: Any, sample_weight: Any
    ) -> tuple[np.ndarray, np.ndarray | None]:
        Y, weight = super()._read_targets(X, y, sample_weight)
        if Y.shape[1] > 1:
            raise ValueError(
                f"KernelSVR has one target, got y with {Y.shape[1]}; use "
                "sklearn.multioutput.MultiOutputRegressor."
            )
        if self._many_targets:
            column_or_1d(Y, warn=True)
            self._n_outputs = None
        return Y, weight

    def _solve(self, rows: ArrayRows, stream: Stream) -> None:
        n = rows.n_rows
        width = n if self.plan_ is None else self.plan_.n_components
        limit = self._memory_for(rows)
        check_memory(
            liblinear_bytes(self.plan_, n, _MOST_FREE),
            limit,
            f"{n} x {width} features in float64",
            "Use fewer components, or random features",
        )
        # LIBLINEAR takes all features at once.
        features = self._feature_matrix(rows, sys.maxsize, precise=True)
        y, weight = rows.Y[:, 0], rows.weight
        self.intercept_ = float(np.average(y, weights=weight))
        solver = LinearSVR(
            epsilon=self.epsilon,
            tol=self.tol,
            C=self.C,
            fit_intercept=False,
            max_iter=int(self.max_iter),
            dual=True,
            random_state=int(stream.child("solver").generator().integers(2**31)),
        ).fit(features.cached, y - self.intercept_, weight)
        self.n_iter_ = int(np.max(solver.n_iter_))
        upper = self.C * (np.ones(n) if weight is None else weight)
        # Where LIBLINEAR has converged, Newton's method would double the time.
        fits = 8 * n * width + newton_bytes(n, width) <= limit
        gap = _GAP if fits and self.n_iter_ >= self.max_iter else np.inf
        given = y - self.intercept_, upper, self.epsilon, gap
        coef = _polished(features, *given, solver.coef_)
        if not isinstance(features, GramFactor):
            self.coef_ = coef[:width]
            return
        numbers, dual = features.rows_of(coef[None])
        self.X_fit_ = rows.X[numbers]
        self.dual_coef_ = dual[:, 0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = False
        tags.array_api_support = False
        return tags


def _polished(
    features: FeatureMatrix,
    y: np.ndarray,
    upper: np.ndarray,
    epsilon: float,
    gap: float,
    w: np.ndarray,
) -> np.ndarray:
    """Return weights nearer to the optimum, or those given if there are none.

    They are the optimum to rounding if the given weights tell which dual variables are
    within their bounds, or if the duality gap is to be at most `gap`.
    """

    def value(w: np.ndarray, scores: np.ndarray) -> float:
        return float(0.5 * w @ w + upper @ (abs(y - scores) - epsilon).clip(0.0))

    scores, longest = scores_of(features, w[None])
    residual = y - scores[:, 0]
    excess = abs(residual) - epsilon
    near = abs(excess) < _NEAR * abs(y).max(initial=0.0)
    if near.sum() > _MOST_FREE or not longest:
        return w
    used = np.flatnonzero(upper)
    part = features if len(used) == len(y) else features.part(used)
    start = np.sign(residual) * upper * np.where(near, 0.5, excess > 0)
    bounds = np.ones(len(used)), upper[used], gap, longest, start[used]
    found = solve_box(part, *bounds, y[used], epsilon)
    better = combined(part, found.alpha[:, None])[0]
    after, _ = scores_of(features, better[None])
    return better if value(better, after[:, 0]) < value(w, scores[:, 0]) else w
