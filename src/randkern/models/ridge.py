"""Kernel ridge regression and classification, on random features or exact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import unique_labels

from randkern._fitting import all_or_nothing, remember
from randkern._sklearn import StrOptions
from randkern._validation import check_has_targets, check_weights, validate_rows
from randkern.kernels import Kernel
from randkern.models._feature_model import has_components
from randkern.models._ridge import KernelRidge
from randkern.models._targets import ClassLabels, Labels, Numbers, RealTargets
from randkern.models.calibration import (
    LeaveOneOutIntervals,
    LogitsOfDecisions,
    calibrate,
)
from randkern.models.left_out import SampledRows


class RidgeRegressorMixin(LeaveOneOutIntervals, RealTargets, RegressorMixin):
    """Mixin for ridge models of real targets."""

    def _store_residuals(self, sample: SampledRows, residuals: Any) -> None:
        self._left_out_rows = sample.numbers.tolist()  # plain numbers have no device
        self._left_out_sizes = abs(residuals)
        self._left_out_weight = sample.weight


class RidgeClassifierMixin(LogitsOfDecisions, ClassLabels, ClassifierMixin):
    """Mixin for ridge models of labels, coded as ±1."""

    def _store_residuals(self, sample: SampledRows, residuals: Any) -> None:
        Y = sample.rows.Y
        self.temperature_, self.calibration_offset_ = calibrate(
            Y - residuals, Y > 0, sample.weight
        )


class KernelRidgeRegressor(RidgeRegressorMixin, KernelRidge):
    """Kernel ridge regression on random features, or on the exact kernel.

    With features z_i = φ(x_i) and weights w_i it minimises

        Σ_i w_i (y_i − z_i·W)² + α‖W‖²,

    which approaches kernel ridge regression as D grows. The normal equations are
    accumulated over blocks of rows (memory about D² float64 plus a block, never n·D);
    with more features than rows an n × n system is solved instead.

    Parameters
    ----------
    kernel : Kernel, default=None
        None is ``Gaussian(lengthscale="scale")``.
    alpha : float or array of shape (n_targets,), default=1.0
        α ≥ 0, the penalty: one number, or one for each target. Each different number
        takes a fit of its own, on the same features.
    n_components : int, sequence of int, "auto" or None, default=1000
        Number of random features D (a sequence: per term of a sum of kernels); None is
        the exact kernel. 1000 are often too few for tens of thousands of rows: "auto"
        doubles them as long as a fifth of the rows, at most 4,000, that are left out of
        these fits gain more than a standard error by it, and `memory_limit` allows.
        The attributes `n_components_` and `component_errors_` (the mean loss by number)
        say what was found.
    solver : {"auto", "cholesky", "pcg"} or PCG, default="auto"
        ``"cholesky"`` factorises the normal equations; ``"pcg"`` solves them
        by preconditioned conjugate gradients without forming them, and
        recomputes features that do not fit `memory_limit` in each iteration.
        ``randkern.solvers.PCG(tol=...)`` sets its arguments. ``"auto"`` uses
        conjugate gradients if the factorisation does not fit `memory_limit` or
        takes twice the work, for the exact kernel from 20,000 rows on.
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
    fit_intercept : bool, default=False
        Whether to fit an unpenalised constant. Without it, targets far from 0 raise a
        warning: the penalty pulls predictions towards 0.
    memory_limit : int, str or None, default=None
        Bytes, or text like ``"4GB"``: a fit that needs more raises
        :class:`~randkern.exceptions.MemoryLimitError`. None: 2 GB.
    warm_start : bool, default=False
        Whether conjugate gradients start at the weights of the last fit, for instance
        of a model that a callback has saved. Without a seed, features are drawn as in
        that fit. Weights of another kernel or penalty are a worse start, or none.
    random_state : int, generator or None, default=None
        The features are those of ``RandomFeatures(kernel, n_components,
        random_state=random_state)``.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel with numbers in place of rules that depend on data.
    plan_ : Plan or None
        The plan of the features; None for the exact kernel.
    coef_ : ndarray of shape (D,) or (n_targets, D)
        Weights of the features.
    dual_coef_ : ndarray of shape (n,) or (n, n_targets)
        Weights of the rows ``X_fit_``, for the exact kernel.
    intercept_ : float or ndarray of shape (n_targets,)
    solution_ : Solution
        The result of the linear solve, with its residual and named outcome.

    Notes
    -----
    Products of float32 features are computed in float32 over at most 2,048 rows
    and summed in float64; the system is solved in float64.

    Examples
    --------
    >>> import randkern as rk
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = rk.KernelRidgeRegressor(alpha=1.0, n_components=200, random_state=0)
    >>> round(model.set_params(fit_intercept=True).fit(X, y).score(X, y), 2)
    0.59
    """

    _parameter_constraints: ClassVar = {
        **KernelRidge._parameter_constraints,
        "alpha": [*KernelRidge._parameter_constraints["alpha"], "array-like"],
    }

    def __init__(
        self,
        kernel: Kernel | None = None,
        alpha: float | Sequence[float] = 1.0,
        n_components: int | Sequence[int] | None = 1000,
        *,
        solver: str = "auto",
        projection: str = "auto",
        features: str = "random",
        fourier: str = "pair",
        fit_intercept: bool = False,
        memory_limit: Any = None,
        warm_start: bool = False,
        random_state: Any = None,
    ):
        self.kernel = kernel
        self.alpha = alpha
        self.n_components = n_components
        self.solver = solver
        self.projection = projection
        self.features = features
        self.fourier = fourier
        self.fit_intercept = fit_intercept
        self.memory_limit = memory_limit
        self.warm_start = warm_start
        self.random_state = random_state

    @available_if(has_components)
    @all_or_nothing
    def partial_fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, solve: bool = True
    ) -> KernelRidgeRegressor:
        """Add rows to those seen by earlier calls of `partial_fit`.

        `fit` stores no statistics, so the first call after it starts over. The
        first batch determines everything that depends on data: lengthscales that
        are rules, categories, the shares of the terms of a sum. With a kernel that
        does not depend on data, the result equals `fit` on all rows at once.
        It sums the normal equations and factorises them, whatever the solver.

        Parameters
        ----------
        X : array, CSR matrix, dataframe or tensor of shape (n, d)
        y : array of shape (n,) or (n, n_targets)
            Targets.
        sample_weight : array of shape (n,), optional
            Factors of the rows' squared errors: 1 each by default.
        solve : bool, default=True
            Whether to update the weights now (a factorisation of order D³);
            otherwise call :meth:`solve` before predicting.
        """
        first = not self._has_begun
        if first:
            self._validate_params()
        X = validate_rows(self, X, reset=first)
        check_has_targets(self, y)
        if first:
            reader, Y, weight = Numbers().read(X, y, sample_weight)
            remember(self, reader.attributes)
        else:
            reader = Numbers(self._n_outputs)
            Y, weight = reader.columns(X, y, check_weights(sample_weight, X))
        self._add_rows(X, reader, Y, weight, solve)
        return self


class KernelRidgeClassifier(RidgeClassifierMixin, KernelRidge):
    """Kernel ridge classification: ridge regression on labels coded ±1.

    One column of ±1 for two classes, one per class (one against the rest) for
    more; the predicted class is that of the largest value.

    Parameters
    ----------
    kernel : Kernel, default=None
        None is ``Gaussian(lengthscale="scale")``.
    alpha : float, default=1.0
        α ≥ 0, the penalty.
    n_components : int, sequence of int, "auto" or None, default=1000
        Number of random features D (a sequence: per term of a sum of kernels); None is
        the exact kernel. 1000 are often too few for tens of thousands of rows: "auto"
        doubles them as long as a fifth of the rows, at most 4,000, that are left out of
        these fits gain more than a standard error by it, and `memory_limit` allows.
        The attributes `n_components_` and `component_errors_` (the mean loss by number)
        say what was found.
    solver : {"auto", "cholesky", "pcg"} or PCG, default="auto"
        ``"cholesky"`` factorises the normal equations, ``"pcg"`` solves them by
        preconditioned conjugate gradients without forming them.
        ``randkern.solvers.PCG(tol=...)`` sets its arguments. ``"auto"`` uses conjugate
        gradients if the factorisation does not fit `memory_limit` or takes twice the
        work, for the exact kernel from 20,000 rows on.
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
    fit_intercept : bool, default=False
        Whether to fit an unpenalised constant.
    class_weight : dict, "balanced" or None, default=None
        A factor for the rows of each class; ``"balanced"``: n_samples / (n_classes ·
        rows of the class). None: 1 for all.
    memory_limit : int, str or None, default=None
        Bytes, or text like ``"4GB"``: a fit that needs more raises
        :class:`~randkern.exceptions.MemoryLimitError`. None: 2 GB.
    warm_start : bool, default=False
        Whether conjugate gradients start at the weights of the last fit.
    random_state : int, generator or None, default=None
        Seeds all random numbers.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    temperature_, calibration_offset_ : float, float or ndarray of shape (n_classes,)
        ``decision_function(X) / temperature_ + calibration_offset_`` are the logits of
        `predict_proba`: they minimise the log loss on a twentieth of the rows (from 500
        to 5,000), each left out of the fit. `predict` follows `decision_function`, so
        that near a boundary the most probable class may be another one.
    kernel_, plan_, coef_, dual_coef_, intercept_, solution_
        The resolved kernel, the plan of its features, weights of features or of rows,
        the intercept, and the result of the solve.

    Examples
    --------
    >>> import randkern as rk
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = rk.KernelRidgeClassifier(alpha=1e-2, random_state=0)
    >>> model.fit(X[:1000], y[:1000]).score(X[1000:], y[1000:]) > 0.95
    True
    """

    _parameter_constraints: ClassVar = {
        **KernelRidge._parameter_constraints,
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }

    def __init__(
        self,
        kernel: Kernel | None = None,
        alpha: float = 1.0,
        n_components: int | Sequence[int] | None = 1000,
        *,
        solver: str = "auto",
        projection: str = "auto",
        features: str = "random",
        fourier: str = "pair",
        fit_intercept: bool = False,
        class_weight: Any = None,
        memory_limit: Any = None,
        warm_start: bool = False,
        random_state: Any = None,
    ):
        self.kernel = kernel
        self.alpha = alpha
        self.n_components = n_components
        self.solver = solver
        self.projection = projection
        self.features = features
        self.fourier = fourier
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.memory_limit = memory_limit
        self.warm_start = warm_start
        self.random_state = random_state

    @available_if(has_components)
    @all_or_nothing
    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: Any = None,
        sample_weight: Any = None,
        *,
        solve: bool = True,
    ) -> KernelRidgeClassifier:
        """Add rows to those seen by earlier calls of `partial_fit`.

        `fit` stores no statistics, so the first call after it starts over.

        Parameters
        ----------
        X : array, CSR matrix, dataframe or tensor of shape (n, d)
        y : array of shape (n,)
            Labels.
        classes : array of shape (n_classes,), optional
            All labels; required by the first call, unless the model was fitted.
        sample_weight : array of shape (n,), optional
            Factors of the rows' squared errors: 1 each by default.
        solve : bool, default=True
            Whether to update the weights now; otherwise call :meth:`solve`
            before predicting.
        """
        first = not self._has_begun
        if first:
            self._validate_params()
            if classes is None and not hasattr(self, "classes_"):
                raise ValueError(
                    "the first call of partial_fit needs all classes; pass "
                    "classes=[...]."
                )
        if self.class_weight == "balanced":
            raise ValueError(
                "class_weight='balanced' needs all labels at once; pass a dict of "
                "weights to use partial_fit, or use fit."
            )
        X = validate_rows(self, X, reset=first)
        weight = check_weights(sample_weight, X)
        known_classes = self.classes_ if classes is None else unique_labels(classes)
        if not first and known_classes.tolist() != self.classes_.tolist():
            raise ValueError(
                f"classes={classes!r} differ from those of the first call, "
                f"{self.classes_.tolist()}; pass the same classes, or None."
            )
        reader = Labels(self.class_weight).of_classes(known_classes)
        remember(self, reader.attributes)
        check_has_targets(self, y)
        Y, weight = reader.columns(X, y, weight)
        self._add_rows(X, reader, Y, check_weights(weight, X), solve)
        return self
