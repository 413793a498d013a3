"""Support vector regression, on random features or on the exact kernel."""

from __future__ import annotations

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
from randkern.backend.namespace import ops_of
from randkern.data.training_data import ArrayRows
from randkern.kernels import Kernel
from randkern.models._feature_model import FeatureModel
from randkern.models._targets import RealTargets
from randkern.models.callbacks import FitReport, with_callbacks
from randkern.models.feature_matrix import GramFactor
from randkern.plan import evaluate

# Largest number of dual variables within their bounds for a direct solve, and its
# steps.
_MOST_FREE = 1000
_STEPS = 30
# Residuals this close to ε, relative to the targets, may belong to such a variable.
_NEAR = 1e-3


class KernelSVR(RealTargets, RegressorMixin, FeatureModel):
    """Support vector regression on random features, or on the exact kernel.

    With rows z_i of features and the mean ȳ of the targets it minimises

        ½‖w‖² + C Σ_i s_i max(0, |y_i − ȳ − w·z_i| − ε).

    Solved by scikit-learn's :class:`~sklearn.svm.LinearSVR` (LIBLINEAR's coordinate
    descent in the dual); the features of the exact kernel are a factor of its Gram
    matrix.

    Parameters
    ----------
    kernel : Kernel, default=None
        None is ``Gaussian(lengthscale="scale")``.
    C : float, default=1.0
        Positive.
    n_components : int or None, default=1000
        Number of random features D; None is the exact kernel.
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
        Bytes, or text like ``"4GB"``. None: 2 GB, or a quarter of the free memory.
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
        n_components: int | None = 1000,
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
        exact = self.plan_ is None
        width = n if exact else self._plan.n_components
        check_memory(
            8 * n * width * (3 if exact else 2),
            self._memory_for(rows),
            f"{n} x {width} features in float64",
            "Use fewer components, or random features",
        )
        X = ops_of(rows.X).as_float64(rows.X)
        factor = GramFactor(self.kernel_._gram(X, None)) if exact else None
        Z = evaluate(self._plan, X) if factor is None else factor.factor
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
        ).fit(Z, y - self.intercept_, weight)
        self.n_iter_ = int(np.max(solver.n_iter_))
        upper = self.C * (np.ones(n) if weight is None else weight)
        coef = _polished(Z, y - self.intercept_, upper, self.epsilon, solver.coef_)
        if factor is None:
            self.coef_ = coef
            return
        numbers, dual = factor.rows_of(coef[None])
        self.X_fit_ = rows.X[numbers]
        self.dual_coef_ = dual[:, 0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = False
        tags.array_api_support = False
        return tags


def _polished(
    Z: np.ndarray, y: np.ndarray, upper: np.ndarray, epsilon: float, w: np.ndarray
) -> np.ndarray:
    """Return the optimum to rounding, given weights near it; or those weights.

    With w = Σ β_i z_i, |β_i| ≤ u_i, the residual of a row exceeds ε if β_i is at its
    bound, is less than ε if it is 0, and is ±ε if it is between: a linear system for
    the latter, once they are known.
    """

    def value(w: np.ndarray) -> float:
        slack = np.maximum(abs(y - Z @ w) - epsilon, 0.0)
        return float(0.5 * w @ w + upper @ slack)

    size = abs(y).max(initial=0.0) or 1.0
    residual = y - Z @ w
    sign = np.sign(residual)
    near = abs(abs(residual) - epsilon) < _NEAR * size
    free, bound = near, ~near & (abs(residual) > epsilon)
    best, rounding = w, 1e-9 * size
    for _ in range(_STEPS):
        if free.sum() > _MOST_FREE:
            return best
        fixed = Z[bound].T @ (sign * upper)[bound]
        right = (y - sign * epsilon)[free] - Z[free] @ fixed
        beta = np.linalg.lstsq(Z[free] @ Z[free].T, right, rcond=None)[0] * sign[free]
        w = fixed + Z[free].T @ (beta * sign[free])
        if value(w) < value(best):
            best = w
        residual = y - Z @ w
        share = np.zeros(len(y))
        share[free] = beta / upper[free]
        far = abs(residual) - epsilon
        now_bound = (free & (share > 1)) | (
            bound & (residual * sign > epsilon - rounding)
        )
        now_free = (free & (share >= 0) & (share <= 1)) | (bound & ~now_bound)
        now_free |= ~free & ~bound & (far > rounding)
        sign = np.where(free | bound, sign, np.sign(residual))
        if (now_free == free).all() and (now_bound == bound).all():
            break
        free, bound = now_free, now_bound
    return best
