"""Support vector machines, on random features or on the exact kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin, clone

from randkern._fitting import all_or_nothing, forget, remember
from randkern._random import Stream, root_stream
from randkern._sklearn import Interval, Options, StrOptions, safe_indexing
from randkern._validation import is_tensor
from randkern.backend.namespace import ops_of
from randkern.data.columns import split_target
from randkern.data.training_data import FitData
from randkern.kernels import Kernel
from randkern.models._hard_margin import separate
from randkern.models._margin import Solution, bounds_of_signs
from randkern.models._margin_model import MarginModel, margin_bytes
from randkern.models._targets import ClassLabels
from randkern.models.calibration import LogitsOfDecisions, temperature_of
from randkern.models.callbacks import FitReport, with_callbacks
from randkern.models.component_search import finds_components
from randkern.models.feature_matrix import features_of

_FOLDS = 5


class KernelSVC(LogitsOfDecisions, ClassLabels, ClassifierMixin, MarginModel):
    """Support vector classification on random features, or on the exact kernel.

    For each class against the rest (once for two classes), with signs y_i and rows
    z_i of features,

        min ½‖w‖² + C Σ_i s_i max(0, 1 − y_i (w·z_i + b)),

    with an intercept b that is not penalised; ``C=inf`` requires y_i w·z_i ≥ 1 for
    every row, the hard margin, which has no intercept. The exact kernel with an
    intercept is solved by LIBSVM. All else is solved in the dual to a duality gap of
    `tol`: for finite C by coordinate descent (and the method of multipliers if C is so
    large that descent is slow), for infinite C by the point of minimum norm of a convex
    hull, on the host. Tensors use the method of multipliers for finite C. Features that
    do not fit `memory_limit` are recomputed in every pass over the rows, and those of a
    working set of rows are cached.

    Parameters
    ----------
    kernel : Kernel, default=None
        None is ``Gaussian(lengthscale="scale")``.
    C : float, default=1.0
        Positive; ``inf`` is the hard margin.
    n_components : int, sequence of int, "auto" or None, default=1000
        Number of random features D (a sequence: per term of a sum of kernels); None is
        the exact kernel. 1000 are often too few for tens of thousands of rows: "auto"
        doubles them as long as a fifth of the rows, at most 4,000, that are left out of
        these fits gain more than a standard error by it, and `memory_limit` allows.
        The attributes `n_components_` and `component_errors_` (the mean loss by number)
        say what was found.
    fit_intercept : bool, default=True
        Whether to fit an intercept, for finite C.
    class_weight : dict, "balanced" or None, default=None
        A factor of C for the rows of each class; ``"balanced"``: n_samples / (n_classes
        · rows of the class). None: 1 for all.
    tol : float, default=1e-4
        Stop at this duality gap, relative to the objective.
    probability : bool, default=False
        Whether to calibrate probabilities: decision values over `temperature_` are
        logits, with the least log loss on held-out rows of five more fits, in
        stratified folds. For rows in memory.
    max_iter : int, default=200
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
    classes_ : ndarray of shape (n_classes,)
    temperature_ : float
        The divisor of decision values, with ``probability=True``.
    coef_ : ndarray of shape (D,) or (n_classes, D)
        Weights of the features.
    intercept_ : float or ndarray of shape (n_classes,)
        0 if no intercept is fitted.
    support_ : ndarray of int
        Numbers of the rows with a non-zero dual variable for any class.
    support_coef_ : ndarray of shape (n_support,) or (n_support, n_classes)
        y_i α_i of those rows: the weights are Σ y_i α_i z_i.
    dual_coef_ : ndarray of shape (n_support,) or (n_support, n_classes)
        The same for the rows ``X_fit_``, for the exact kernel.
    margin_ : ndarray of shape (1,) or (n_classes,)
        1/‖w‖: the distance from the decision boundary at which y w·z = 1.
    duality_gap_ : ndarray of shape (1,) or (n_classes,)
        Duality gap, relative to the objective.
    n_iter_ : int
        Number of passes over all rows.
    kernel_, plan_
        The kernel with numbers in place of rules that depend on data, and the plan of
        its features (None for the exact kernel).

    Notes
    -----
    The exact kernel agrees with scikit-learn's ``SVC`` for two classes; for more, that
    fits one machine per pair of classes, and this one per class.

    PyTorch tensors are processed on their own device, under
    ``sklearn.config_context(array_api_dispatch=True)``. For finite C, each of Newton's
    steps factorises a matrix per class, with the side D or the number of dual variables
    within their bounds, and `n_iter_` counts steps. `max_iter` is then ignored, and
    features are float64.

    Features of float32 rows are recomputed in float64 for the hard margin, and, if they
    fit in memory, when rounding errors leave a gap above `tol`; a warning is issued if
    the final gap is larger.

    References
    ----------
    Hsieh, Chang, Lin, Keerthi, Sundararajan 2008, "A dual coordinate descent method
    for large-scale linear SVM"; Li, Sun & Toh 2018, "A highly efficient semismooth
    Newton augmented Lagrangian method for solving Lasso problems"; Rahimi & Recht 2007.

    Examples
    --------
    >>> import randkern as rk
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = rk.KernelSVC(C=10.0, random_state=0).fit(X[:1000], y[:1000])
    >>> model.score(X[1000:], y[1000:]) > 0.95
    True
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        **MarginModel._parameter_constraints,
        "C": [Interval(Real, 0, None, closed="neither"), Options(Real, {math.inf})],
        "fit_intercept": ["boolean"],
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "tol": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "probability": ["boolean"],
    }

    def __init__(
        self,
        kernel: Kernel | None = None,
        C: float = 1.0,
        n_components: int | Sequence[int] | None = 1000,
        *,
        fit_intercept: bool = True,
        class_weight: Any = None,
        tol: float = 1e-4,
        max_iter: int = 200,
        probability: bool = False,
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
        self.probability = probability
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
    ) -> KernelSVC:
        """Fit to rows and their labels.

        Parameters
        ----------
        X : array, CSR matrix, dataframe, tensor, Dask collection or RowBlocks of n rows
            Rows that do not fit in memory are passed as :class:`~randkern.RowBlocks`,
            with their labels and weights; Dask collections are read one partition at a
            time.
        y : array of shape (n,)
            Labels; None if `X` includes them.
        sample_weight : array of shape (n,), optional
            Factors of C for the rows: 1 each by default.
        target : str, optional
            The column of a dataframe `X`, of Dask or in memory, that holds `y`.

        Raises
        ------
        randkern.exceptions.NotSeparableError
            If C is inf and a class cannot be separated from the rest; it holds a
            certificate.
        randkern.exceptions.NarrowMarginError
            If C is inf and rounding errors hide whether there is a margin.
        randkern.exceptions.MemoryLimitError
            If the fit would need more than `memory_limit`; raised before allocating.
        """
        self._validate_params()
        X, y = split_target(X, y, target)
        report = FitReport(self, X, y, sample_weight)
        forget(self, "temperature_")
        stream = root_stream(self.random_state)
        data = self._read(X, y, sample_weight, stream)
        report.begin(
            lambda margins: self._fitted_attributes(data, margins) if margins else {}
        )
        margins = self._solve(data, stream.child("solver"), report)
        remember(self, self._fitted_attributes(data, margins))
        if self.probability:
            self.temperature_ = self._held_out_temperature(
                X, y, sample_weight, data, report
            )
        report.end()
        return self

    def _solve(self, data: FitData, order: Stream, report: FitReport) -> Solution:
        """Return the margins of a fit; what it caches is released."""
        if math.isfinite(self.C):
            margin_bytes(data, False)  # raises before targets are gathered
        signs, weight = data.rows.targets()
        if math.isinf(self.C):
            return self._fit_hard(data, signs, weight, order, report)
        lower, upper = bounds_of_signs(signs, self.C * weight)
        return self._fit_margins(
            data,
            signs,
            lower,
            upper,
            order,
            report,
            has_intercept=self.fit_intercept,
        )

    @property
    def _calibrates(self) -> bool:
        return self.probability

    @property
    def _uncalibrated(self) -> str:
        return (
            "KernelSVC has probabilities if it is fitted with probability=True; "
            "sklearn.calibration.CalibratedClassifierCV and randkern.KernelLogistic "
            "have them too."
        )

    def _held_out_temperature(
        self, X: Any, y: Any, sample_weight: Any, data: FitData, report: FitReport
    ) -> float:
        """Return the temperature of decision values for held-out folds."""
        from sklearn.model_selection import StratifiedKFold

        if not data.rows.in_memory or is_tensor(data.rows.like):
            raise ValueError(
                "probability=True fits folds of the rows and needs arrays in memory, "
                f"got {type(X).__name__}; set probability=False, or use "
                "randkern.KernelLogistic."
            )
        rows = data.rows.as_arrays()
        least = int((rows.Y > 0).sum(axis=0).min())
        if rows.n_targets == 1:
            least = min(least, rows.n_rows - least)
        if least < 2:
            raise ValueError(
                "probability=True needs at least 2 rows of each class, got a class "
                "with 1 row; use probability=False, or more rows."
            )
        # Beside what this fit keeps, and a copy of the rows of a fold.
        resident = rows.n_bytes + (data.plan.stored_bytes(8) if data.plan else 0)
        limit = max(1, data.limit - resident)
        fold = clone(self).set_params(probability=False, memory_limit=limit)
        forget(fold, "_skl_callbacks")  # callbacks receive only the folds
        decisions = np.empty(rows.Y.shape)
        folds = StratifiedKFold(min(_FOLDS, least)).split(decisions, y)
        for number, (fitted, held) in enumerate(folds, start=1):
            weight = None
            if sample_weight is not None:
                weight = safe_indexing(sample_weight, fitted)
            part = clone(fold)  # a second fit would keep the features of the first
            part.fit(safe_indexing(X, fitted), safe_indexing(y, fitted), weight)
            values = part.decision_function(safe_indexing(X, held))
            decisions[held] = values.reshape(len(held), -1)
            report.step(number, None, "fold")
        return temperature_of(decisions, rows.Y > 0, rows.weight)

    def _fit_hard(
        self, data: FitData, signs: Any, weight: Any, stream: Stream, report: FitReport
    ) -> Solution:
        """Separate each class from the rest."""
        cache_bytes, _ = margin_bytes(data, by_newton=False)
        features = features_of(data, cache_bytes, precise=True)
        ops = ops_of(signs)
        solutions = []
        columns = ops.to_host(signs).T
        usable = ops.to_host(weight) > 0
        classes = ops_of(self.classes_).to_host(self.classes_).tolist()
        for t, column in enumerate(columns):
            label = classes[t if len(columns) > 1 else 1]
            name = f"class {label!r} against the rest"
            solutions.append(separate(features, column, usable, stream.child(t), name))
            report.step(t + 1, None, "class")
        weights, alpha, gaps = zip(*solutions, strict=True)
        self.n_iter_ = 1
        weights = ops.float64_like(np.stack(weights), signs)
        signed = ops.float64_like(np.stack(alpha, axis=1), signs) * signs
        squares = ops.algebra.column_products(weights.T, weights.T)
        gaps = ops.float64_like(np.array(gaps), signs)
        return Solution(signed, weights, 0.0 * squares, squares, gaps)

    def _fitted_attributes(self, data: FitData, margins: Solution) -> dict[str, Any]:
        """Return the fitted attributes for weights and dual variables."""
        signed = margins.alpha
        ops = ops_of(signed)
        support = ops.flatnonzero((signed != 0).any(axis=1))
        with np.errstate(divide="ignore"):
            margin = 1.0 / margins.squares**0.5
        intercept: Any = margins.intercept
        if not self.fit_intercept or math.isinf(self.C):
            intercept = 0.0
        elif not self._many_targets:
            intercept = float(intercept[0])
        fitted = {
            "intercept_": intercept,
            "duality_gap_": margins.gap,
            "margin_": margin,
            "support_": support,
            "support_coef_": self._drop_single_target(signed[support]),
        }
        if data.plan is not None:
            coef = self._as_coef(margins.weights[:, : data.plan.n_components].T)
            return fitted | {"coef_": coef}
        X = data.kept_rows[support]
        return fitted | {"X_fit_": X, "dual_coef_": fitted["support_coef_"]}
