"""Support vector regression, on random features or on the exact kernel."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin

from randkern._fitting import all_or_nothing, remember
from randkern._random import Stream, root_stream
from randkern._sklearn import Interval
from randkern.data.training_data import FitData
from randkern.kernels import Kernel
from randkern.models._margin import Solution, check_costs, weighted_quantile
from randkern.models._margin_model import MarginModel, check_single_target
from randkern.models._targets import RealTargets
from randkern.models.callbacks import FitReport, with_callbacks
from randkern.models.component_search import finds_components


class KernelSVR(RealTargets, RegressorMixin, MarginModel):
    """Support vector regression on random features, or on the exact kernel.

    With rows z_i of features it minimises

        ½‖w‖² + C Σ_i s_i max(0, |y_i − b − w·z_i| − ε),

    with an intercept b that is not penalised, in the dual: on features by coordinate
    descent (and the method of multipliers if C is so large that descent is slow), for
    the exact kernel by LIBSVM, as in :class:`~sklearn.svm.SVR`. Features that do not
    fit `memory_limit` are recomputed in every pass over the rows, and those of a
    working set of rows are cached.

    Parameters
    ----------
    kernel : Kernel, default=None
        None is ``Gaussian(lengthscale="scale")``.
    C : float, default=1.0
        Positive.
    n_components : int, sequence of int, "auto" or None, default=1000
        Number of random features D (a sequence: per term of a sum of kernels); None is
        the exact kernel. 1000 are often too few for tens of thousands of rows: "auto"
        doubles them as long as a fifth of the rows, at most 4,000, that are left out of
        these fits gain more than a standard error by it, and `memory_limit` allows.
        The attributes `n_components_` and `component_errors_` (the mean loss by number)
        say what was found.
    epsilon : float, default=0.1
        Errors up to ε cost nothing.
    tol : float, default=1e-4
        Stop at this duality gap, relative to the objective, in which no loss counts as
        more than a few times those of most targets for a constant.
    max_iter : int, default=1000
        Maximum number of passes over all rows (coordinate descent may take many more
        over rows that are in memory).
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
        Seeds the features and the order of rows.

    Attributes
    ----------
    coef_ : ndarray of shape (D,)
        Weights of the features.
    dual_coef_ : ndarray of shape (n_support,)
        Weights of the support vectors ``X_fit_``, for the exact kernel.
    intercept_ : float
        b.
    duality_gap_ : float
        Duality gap, relative to the objective.
    n_iter_ : int
        Number of passes over all rows.
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
        **MarginModel._parameter_constraints,
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
    @finds_components
    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> KernelSVR:
        """Fit to rows and their targets.

        Parameters
        ----------
        X : array, CSR matrix, dataframe, Dask collection or RowBlocks of n rows
            Rows that do not fit in memory are passed as :class:`~randkern.RowBlocks`,
            with their targets and weights; Dask collections are read one partition at a
            time.
        y : array of shape (n,)
            Targets; None if `X` includes them.
        sample_weight : array of shape (n,), optional
            Factors of C for the rows: 1 each by default.

        Raises
        ------
        randkern.exceptions.MemoryLimitError
            If the fit would need more than `memory_limit`; raised before allocating.
        """
        self._validate_params()
        report = FitReport(self, X, y, sample_weight)
        stream = root_stream(self.random_state)
        data = self._read(X, y, sample_weight, stream)
        check_single_target(self, data.rows)
        self._solve(data, stream.child("solver"), report)
        report.end()
        return self

    def _solve(self, data: FitData, stream: Stream, report: FitReport) -> None:
        Y, weight = data.rows.targets()
        costs = self.C * weight
        check_costs(costs, "C · sample_weight", "lower C")
        # In units of the targets, as solvers have absolute tolerances, too.
        used = weight > 0
        center = weighted_quantile(Y[used, 0], weight[used], 0.5)
        distances = abs(Y[:, 0] - center)
        wide = used & (distances > 0)
        unit = 1.0
        if wide.any():
            unit = weighted_quantile(distances[wide], weight[wide], 0.5)
        upper = costs[:, None] / unit
        report.begin(
            lambda margins: (
                self._fitted_attributes(data, margins, unit, center) if margins else {}
            )
        )
        margins = self._fit_margins(
            data,
            (Y - center) / unit,
            -upper,
            upper,
            stream,
            report,
            tube=self.epsilon / unit,
        )
        remember(self, self._fitted_attributes(data, margins, unit, center))

    def _fitted_attributes(
        self, data: FitData, margins: Solution, unit: float, center: float
    ) -> dict[str, Any]:
        """Return the fitted attributes for targets less `center` in a unit."""
        fitted: dict[str, Any] = {
            "intercept_": center + unit * float(margins.intercept[0]),
            "duality_gap_": float(margins.gap[0]),
        }
        if data.plan is not None:
            coef = unit * margins.weights[0, : data.plan.n_components]
            return fitted | {"coef_": coef}
        support = np.flatnonzero(margins.alpha[:, 0])
        dual = unit * margins.alpha[support, 0]
        return fitted | {"X_fit_": data.kept_rows[support], "dual_coef_": dual}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = False
        tags.array_api_support = False
        return tags
