"""Kernel ridge regression and classification, on random features or exact."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.utils import compute_class_weight
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    column_or_1d,
)

from randkern._validation import Rows, check_weights, validate_rows
from randkern.blocks import RowBlocks
from randkern.kernels import Kernel
from randkern.models._dask import is_dask, lazily
from randkern.models._reports import FitReport, with_callbacks
from randkern.models._ridge import KernelRidge, has_components

__all__ = ["KernelRidgeClassifier", "KernelRidgeRegressor"]


class KernelRidgeRegressor(RegressorMixin, KernelRidge):
    """Kernel ridge regression on random features, or on the exact kernel.

    With features z_i = φ(x_i) and weights w_i it minimises

        Σ_i w_i (y_i − z_i·W)² + α‖W‖²,

    whose limit as D grows is kernel ridge regression. The normal equations
    are accumulated over blocks of rows (memory about D² float64 plus a block,
    never n·D); with more features than rows an n × n system is solved
    instead.

    Parameters
    ----------
    kernel : Kernel, default=None
        None is ``Gaussian(lengthscale="scale")``.
    alpha : float, default=1.0
        α ≥ 0, the penalty.
    n_components : int or None, default=1000
        Number of random features D; None is the exact kernel.
    solver : {"auto", "cholesky", "pcg"} or PCG, default="auto"
        ``"cholesky"`` factorises the normal equations; ``"pcg"`` solves them
        by preconditioned conjugate gradients without forming them, the
        features being made again in each iteration
        (``randkern.solvers.PCG(tol=...)`` sets the tolerance). ``"auto"``
        iterates where the factorisation does not fit `memory_limit` or takes
        twice the work; the exact kernel can only be factorised.
    projection : str, default="auto"
        As in :class:`~randkern.RandomFeatures`.
    fit_intercept : bool, default=False
        Whether to fit an unpenalised constant.
    memory_limit : int, str or None, default=None
        Bytes, or a text like ``"4GB"``: a fit that needs more raises
        :class:`~randkern.exceptions.MemoryLimitError` before it starts. None:
        2 GB, or a quarter of what is free.
    checkpoint : path or None, default=None
        A file that an iterative solver writes as it goes on: a fit that was
        interrupted or killed is continued by the same call of `fit`, and ends with
        the same weights. It is removed at the end. A direct solver writes none.
    random_state : int, generator or None, default=None
        The features are those of ``RandomFeatures(kernel, n_components,
        random_state=random_state)``.

    Attributes
    ----------
    kernel_ : Kernel
        The kernel with numbers for all that depended on data.
    plan_ : Plan or None
        The drawn features; None for the exact kernel.
    coef_ : ndarray of shape (D,) or (n_targets, D)
        Weights of the features.
    dual_coef_ : ndarray of shape (n,) or (n, n_targets)
        Weights of the rows ``X_fit_``, for the exact kernel.
    intercept_ : float or ndarray of shape (n_targets,)
    solution_ : Solution
        Residual and named outcome of the linear solve.

    Notes
    -----
    Products of float32 features are taken in float32 over at most 2,048 rows
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

    _parameter_constraints: ClassVar = {**KernelRidge._parameter_constraints}

    def __init__(
        self,
        kernel: Kernel | None = None,
        alpha: float = 1.0,
        n_components: int | None = 1000,
        *,
        solver: str = "auto",
        projection: str = "auto",
        fit_intercept: bool = False,
        memory_limit: Any = None,
        checkpoint: Any = None,
        random_state: Any = None,
    ):
        self.kernel = kernel
        self.alpha = alpha
        self.n_components = n_components
        self.solver = solver
        self.projection = projection
        self.fit_intercept = fit_intercept
        self.memory_limit = memory_limit
        self.checkpoint = checkpoint
        self.random_state = random_state

    @with_callbacks
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None
    ) -> KernelRidgeRegressor:
        """Fit to rows `X` and targets `y`, (n,) or (n, n_targets).

        Rows that do not fit in memory come as :class:`~randkern.RowBlocks`, with
        their targets and weights.
        """
        self._validate_params()
        if isinstance(X, RowBlocks) or is_dask(X):
            report = FitReport(self, None, None, None)
            self._fit_stream(X, y, sample_weight, report)
            report.end()
            return self
        report = FitReport(self, X, y, sample_weight)
        X = validate_rows(self, X, reset=True)
        Y = self._check_targets(X, y, reset=True)
        self._fit_targets(X, Y, check_weights(sample_weight, X), report)
        report.end()
        return self

    @available_if(has_components)
    def partial_fit(
        self, X: Any, y: Any, sample_weight: Any = None, *, solve: bool = True
    ) -> KernelRidgeRegressor:
        """Add rows to those seen by earlier calls of `partial_fit`.

        `fit` keeps no statistics, so that the first call after it starts anew.
        The first batch settles all that depends on data: lengthscales that are
        rules, categories, the shares of the terms of a sum. With a kernel that
        leaves nothing to data the result equals `fit` on all rows at once.

        Parameters
        ----------
        X, y, sample_weight : as in `fit`
        solve : bool, default=True
            Whether to update the weights now (a factorisation of order D³);
            otherwise call :meth:`solve` before predicting.
        """
        first = not self._has_begun
        if first:
            self._validate_params()
        X = validate_rows(self, X, reset=first)
        Y = self._check_targets(X, y, reset=first)
        self._partial_fit_targets(X, Y, check_weights(sample_weight, X), solve)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return predictions, (n,) or (n, n_targets)."""
        if is_dask(X):
            return lazily(self.predict, X, self._n_outputs)
        return self._predict_targets(X)

    def _seen_in(self, X: Rows, y: Any, weight: Any) -> int | None:
        y = self._targets_array(X, y)
        return None if y.ndim == 1 else y.shape[1]

    def _learn_from(self, seen: list[int | None]) -> int:
        if len(set(seen)) > 1:
            raise ValueError(
                f"blocks of y have {sorted({n or 1 for n in seen})} targets; they must "
                "all have as many."
            )
        self._n_outputs = seen[0]
        return self._n_outputs or 1

    def _targets_of(
        self, X: Rows, y: Any, weight: Any
    ) -> tuple[np.ndarray, np.ndarray | None]:
        return self._check_targets(X, y, reset=False), weight

    def _targets_array(self, X: Rows, y: Any) -> np.ndarray:
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is "
                "None."
            )
        Y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
        check_consistent_length(X, Y)
        if Y.ndim > 2:
            raise ValueError(f"y must have 1 or 2 dimensions, got {Y.ndim}.")
        return Y

    def _check_targets(self, X: Rows, y: Any, *, reset: bool) -> np.ndarray:
        Y = self._targets_array(X, y)
        n_outputs = None if Y.ndim == 1 else Y.shape[1]
        if reset:
            self._n_outputs = n_outputs
        elif n_outputs != self._n_outputs:
            raise ValueError(
                f"y has {n_outputs or 1} targets, but earlier batches had "
                f"{self._n_outputs or 1}."
            )
        return Y.reshape(len(Y), -1)

    def _error_of(self, Y: np.ndarray, predictions: np.ndarray) -> float:
        """Return the mean squared error, each target in units of its variance."""
        spread = Y.var(axis=0)
        spread[spread == 0] = 1.0
        return float(np.mean((Y - predictions) ** 2 / spread))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


class KernelRidgeClassifier(ClassifierMixin, KernelRidge):
    """Kernel ridge classification: ridge regression on labels coded ±1.

    One column of ±1 for two classes, one a class (one against the rest) for
    more; the predicted class is that of the largest value.

    Parameters
    ----------
    kernel : Kernel, default=None
        None is ``Gaussian(lengthscale="scale")``.
    alpha : float, default=1.0
        α ≥ 0, the penalty.
    n_components : int or None, default=1000
        Number of random features D; None is the exact kernel.
    solver : {"auto", "cholesky", "pcg"} or PCG, default="auto"
        As in :class:`KernelRidgeRegressor`.
    projection : str, default="auto"
        As in :class:`~randkern.RandomFeatures`.
    fit_intercept : bool, default=False
        Whether to fit an unpenalised constant.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, as in scikit-learn.
    memory_limit : int, str or None, default=None
        As in :class:`KernelRidgeRegressor`.
    checkpoint : path or None, default=None
        As in :class:`KernelRidgeRegressor`.
    random_state : int, generator or None, default=None

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    kernel_, plan_, coef_, dual_coef_, intercept_, solution_
        As in :class:`KernelRidgeRegressor`.

    Examples
    --------
    >>> import randkern as rk
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> model = rk.KernelRidgeClassifier(alpha=1e-2, random_state=0)
    >>> model.fit(X[:1000], y[:1000]).score(X[1000:], y[1000:]) > 0.95
    True
    """

    _least_loss = 0.25
    _parameter_constraints: ClassVar = {
        **KernelRidge._parameter_constraints,
        "class_weight": [dict, StrOptions({"balanced"}), None],
    }

    def __init__(
        self,
        kernel: Kernel | None = None,
        alpha: float = 1.0,
        n_components: int | None = 1000,
        *,
        solver: str = "auto",
        projection: str = "auto",
        fit_intercept: bool = False,
        class_weight: Any = None,
        memory_limit: Any = None,
        checkpoint: Any = None,
        random_state: Any = None,
    ):
        self.kernel = kernel
        self.alpha = alpha
        self.n_components = n_components
        self.solver = solver
        self.projection = projection
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.memory_limit = memory_limit
        self.checkpoint = checkpoint
        self.random_state = random_state

    @with_callbacks
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None
    ) -> KernelRidgeClassifier:
        """Fit to rows `X` and labels `y` of shape (n,).

        Rows that do not fit in memory come as :class:`~randkern.RowBlocks`, with
        their labels and weights.
        """
        self._validate_params()
        if isinstance(X, RowBlocks) or is_dask(X):
            report = FitReport(self, None, None, None)
            self._fit_stream(X, y, sample_weight, report)
            report.end()
            return self
        report = FitReport(self, X, y, sample_weight)
        X = validate_rows(self, X, reset=True)
        y = self._check_labels(X, y)
        self._set_classes(unique_labels(y))
        weights = self._weights(X, y, sample_weight)
        self._fit_targets(X, self._signs(y), weights, report)
        report.end()
        return self

    @available_if(has_components)
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

        `fit` keeps no statistics, so that the first call after it starts anew.

        Parameters
        ----------
        X, y, sample_weight : as in `fit`
        classes : array of shape (n_classes,), optional
            All labels; required by the first call, unless the model was fitted.
        solve : bool, default=True
            Whether to update the weights now; otherwise call :meth:`solve`
            before predicting.
        """
        first = not self._has_begun
        if first:
            self._validate_params()
            if self.class_weight == "balanced":
                raise ValueError(
                    "class_weight='balanced' needs all labels at once; pass "
                    "partial_fit a dict of weights, or use fit."
                )
            if classes is None and not hasattr(self, "classes_"):
                raise ValueError("the first call of partial_fit needs classes=.")
        X = validate_rows(self, X, reset=first)
        y = self._check_labels(X, y)
        if first:
            self._set_classes(
                self.classes_ if classes is None else unique_labels(classes)
            )
        elif classes is not None and not np.array_equal(
            self.classes_, unique_labels(classes)
        ):
            raise ValueError(
                f"classes={classes!r} are not those of the first call, "
                f"{self.classes_.tolist()}."
            )
        weights = self._weights(X, y, sample_weight)
        self._partial_fit_targets(X, self._signs(y), weights, solve)
        return self

    def decision_function(self, X: Any) -> np.ndarray:
        """Return fitted values, (n,) for two classes, else (n, n_classes)."""
        if is_dask(X):
            return lazily(self.decision_function, X, self._n_outputs)
        return self._predict_targets(X)

    def predict(self, X: Any) -> np.ndarray:
        """Return the labels of the largest values, shape (n,)."""
        if is_dask(X):
            return lazily(self.predict, X, None, self.classes_.dtype)
        values = self.decision_function(X)
        if values.ndim == 1:
            return self.classes_[(values > 0).astype(int)]
        return self.classes_[values.argmax(axis=1)]

    def _seen_in(self, X: Rows, y: Any, weight: Any) -> dict[Any, float]:
        y = self._check_labels(X, y)
        values, inverse = np.unique(y, return_inverse=True)
        totals = np.bincount(inverse, weights=weight)
        return dict(zip(values.tolist(), totals.tolist(), strict=True))

    def _learn_from(self, seen: list[dict[Any, float]]) -> int:
        totals: dict[Any, float] = {}
        for block in seen:
            for label, total in block.items():
                totals[label] = totals.get(label, 0.0) + total
        classes = unique_labels(np.array(list(totals)))
        self._set_classes(classes)
        self._class_weights = None
        if self.class_weight is not None:
            by_label = np.array([totals[label] for label in classes.tolist()])
            self._class_weights = self._weights_by_class(classes, by_label)
        return self._n_outputs or 1

    def _targets_of(
        self, X: Rows, y: Any, weight: Any
    ) -> tuple[np.ndarray, np.ndarray | None]:
        y = self._check_labels(X, y)
        Y = self._signs(y)
        if self._class_weights is not None:
            by_row = self._class_weights[np.searchsorted(self.classes_, y)]
            weight = by_row if weight is None else weight * by_row
        return Y, weight

    def _check_labels(self, X: Rows, y: Any) -> np.ndarray:
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is "
                "None."
            )
        y = column_or_1d(y, warn=True)
        check_consistent_length(X, y)
        check_classification_targets(y)
        return y

    def _set_classes(self, classes: np.ndarray) -> None:
        if len(classes) < 2:
            raise ValueError(
                f"{type(self).__name__} needs at least 2 classes, got 1 class: "
                f"{classes.tolist()}."
            )
        self.classes_ = classes
        self._n_outputs = None if len(classes) == 2 else len(classes)

    def _signs(self, y: np.ndarray) -> np.ndarray:
        """Return labels as columns of ±1."""
        position = np.searchsorted(self.classes_, y)
        known = position < len(self.classes_)
        known[known] = self.classes_[position[known]] == y[known]
        if not known.all():
            raise ValueError(
                f"label {np.asarray(y)[~known].tolist()[0]!r} is not among the classes "
                f"{self.classes_.tolist()}."
            )
        if len(self.classes_) == 2:
            return np.where(position == 1, 1.0, -1.0)[:, None]
        signs = np.full((len(y), len(self.classes_)), -1.0)
        signs[np.arange(len(y)), position] = 1.0
        return signs

    def _error_of(self, Y: np.ndarray, predictions: np.ndarray) -> float:
        """Return the share of labels that are wrong."""
        if Y.shape[1] == 1:
            return float(np.mean((Y[:, 0] > 0) != (predictions[:, 0] > 0)))
        return float(np.mean(Y.argmax(axis=1) != predictions.argmax(axis=1)))

    def _weights(self, X: Rows, y: np.ndarray, sample_weight: Any) -> np.ndarray | None:
        weights = check_weights(sample_weight, X)
        if self.class_weight is None:
            return weights
        by_class = self._weights_by_class(y, weights)
        by_row = by_class[np.searchsorted(self.classes_, y)]
        return check_weights(by_row if weights is None else weights * by_row, X)

    def _weights_by_class(self, y: np.ndarray, weights: Any) -> np.ndarray:
        """Return the weight of each class, given labels and their weights."""
        by_class = compute_class_weight(
            self.class_weight, classes=self.classes_, y=y, sample_weight=weights
        )
        if not np.all(np.isfinite(by_class) & (by_class >= 0)):
            raise ValueError(
                "class_weight must hold non-negative finite numbers, got "
                f"{self.class_weight}."
            )
        return by_class
