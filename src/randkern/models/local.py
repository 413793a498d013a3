"""Any estimator in overlapping cells of near rows, blended smoothly."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any, ClassVar, Self

import numpy as np
import scipy.sparse as sp
from joblib import effective_n_jobs
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    MetaEstimatorMixin,
    RegressorMixin,
    clone,
)
from sklearn.dummy import DummyClassifier
from sklearn.utils import get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    has_fit_parameter,
    validate_data,
)

from randkern._fitting import all_or_nothing
from randkern._random import Stream, root_stream
from randkern._sklearn import Interval, safe_indexing
from randkern._tables import is_numeric, is_table, numbers_of
from randkern._validation import (
    check_has_targets,
    check_targets,
    check_weights,
    validate_rows,
)
from randkern.backend.namespace import ops_of
from randkern.backend.tasks import map_on_threads
from randkern.data import DeviceBlocks, RowBlocks, row_blocks
from randkern.kernels import Gaussian, Kernel
from randkern.kernels.default import kernel_of
from randkern.models._targets import real_numbers, typed_labels
from randkern.models.cells import CellTree, are_wide, scaled_rows
from randkern.models.left_out import copies_of
from randkern.models.logistic import KernelLogistic
from randkern.models.ridge import KernelRidgeRegressor

# Rows assigned to cells at a time by predictions.
_PREDICTED_ROWS = 65_536
# Larger cells are fitted one after another, each on all threads.
_ROWS_OF_A_THREAD, _THREADS = 2048, 64
# Of the features that stand for the distance of kernels without lengthscales.
_STREAM = Stream(0)


def _blends_probabilities(model: Any) -> bool:
    """Whether the estimator of a classifier has probabilities."""
    return hasattr(model._base, "predict_proba")


class _LocalModel(MetaEstimatorMixin, BaseEstimator, ABC):
    """Clones of an estimator, fitted in overlapping cells."""

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "estimator": "no_validation",  # anything with fit and predict
        "cell_rows": [Interval(Integral, 1, None, closed="left")],
        "n_jobs": [Integral, None],
        "random_state": ["random_state", np.random.Generator],
    }

    estimators_: list[Any]
    estimators_samples_: list[np.ndarray]
    kernel_: Kernel
    tree_: CellTree
    # Whether the tree divides features in place of sparse rows.
    _wide: bool
    _means: np.ndarray

    def __init__(
        self,
        estimator: Any = None,
        cell_rows: int = 1000,
        *,
        n_jobs: int | None = None,
        random_state: Any = None,
    ):
        self.estimator = estimator
        self.cell_rows = cell_rows
        self.n_jobs = n_jobs
        self.random_state = random_state

    @abstractmethod
    def _default(self) -> Any:
        """Return the estimator for None."""

    @abstractmethod
    def _read_targets(self, y: Any, weight: np.ndarray | None) -> np.ndarray:
        """Return checked targets."""

    def _fitted_cell(self, estimator: Any, X: Any, y: Any, weight: Any) -> Any:
        """Return an estimator, fitted to the rows of a cell."""
        return _fitted(estimator, X, y, weight)

    @property
    def _base(self) -> Any:
        return self._default() if self.estimator is None else self.estimator

    @all_or_nothing
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Divide rows into cells, and fit a clone of the estimator to each.

        If there are several cells and the estimator takes weights, copies of a row
        with the same target are one row with the sum of their weights, so that weights
        equal repetitions. Rows of dataframes are merged only for estimators with a
        kernel of this library.

        Parameters
        ----------
        X : array, CSR matrix or dataframe of n rows
        y : array of shape (n,) or (n, n_targets)
            Targets, or labels (n,).
        sample_weight : array of shape (n,), optional
            Passed to estimators that take it. Rows of weight 0 are left out.

        Returns
        -------
        self
        """
        self._validate_params()
        self._refuse_blocks(X)
        check_has_targets(self, y)
        y = check_targets(y)
        base = clone(self._base)
        takes_weights = has_fit_parameter(base, "sample_weight")
        if sample_weight is not None and not takes_weights:
            raise ValueError(
                f"{type(base).__name__} does not take sample_weight; pass an estimator "
                "that does, or no weights."
            )
        X, numbers = self._read(X, reset=True)
        check_consistent_length(X, y)
        weight = check_weights(sample_weight, numbers)
        y = self._read_targets(y, weight)
        n = numbers.shape[0]
        used = np.arange(n)
        if weight is not None:
            used = np.flatnonzero(weight > 0)
            X, y = safe_indexing(X, used), y[used]
            numbers, weight = numbers[used], weight[used]
        if takes_weights and not is_table(X) and len(used) > self.cell_rows:
            first, group = _copies_of(X, y)
            if len(first) < len(used):
                order = np.argsort(first)
                weight, rows = np.bincount(group, weight)[order], first[order]
                X, y, used = safe_indexing(X, rows), y[rows], used[rows]
                numbers = numbers[rows]
        stream = root_stream(self.random_state)
        kernel = kernel_of(base)
        if kernel is None:
            self.kernel_ = _kernel_of_scales(numbers, weight)
        else:
            names = getattr(self, "feature_names_in_", None)
            self.kernel_ = kernel._resolve(
                numbers, weight, stream, names, self.table_encoder_
            )
            base.set_params(kernel=self.kernel_)
        self._wide = are_wide(numbers)
        scaled = self._scaled(numbers)
        self.tree_, cells = CellTree.grow(scaled, self.cell_rows)
        self.estimators_samples_ = [used[rows] for rows in cells]
        tasks = (
            (
                self._seeded(clone(base), stream.child("cell", cell)),
                safe_indexing(X, rows),
                y[rows],
                None if weight is None else weight[rows],
            )
            for cell, rows in enumerate(cells)
        )
        self.estimators_ = self._fitted_cells(tasks)
        return self

    def _fitted_cells(self, tasks: Iterator[tuple[Any, ...]]) -> list[Any]:
        """Fit cells by joblib, or, if it is not asked to, on the threads of BLAS."""
        if self.n_jobs is not None or effective_n_jobs(None) > 1:
            fit = delayed(self._fitted_cell)
            return list(Parallel(n_jobs=self.n_jobs)(fit(*task) for task in tasks))
        if self.cell_rows > _ROWS_OF_A_THREAD:
            return [self._fitted_cell(*task) for task in tasks]
        fitted = map_on_threads(lambda task: self._fitted_cell(*task), tasks, _THREADS)
        return list(fitted)

    def _read(self, X: Any, *, reset: bool) -> tuple[Any, Any]:
        """Return the rows for the estimators, and numbers that tell which are near.

        Estimators with a kernel of this library read categories of dataframes as codes
        that all cells share; others get rows as they are.
        """
        if kernel_of(self._base) is not None:
            X = validate_rows(self, X, reset=reset)
            return X, X
        if not is_table(X):
            tags = get_tags(self._base).input_tags
            X = validate_data(
                self,
                X,
                reset=reset,
                accept_sparse="csr" if tags.sparse else False,
                ensure_all_finite="allow-nan" if tags.allow_nan else True,
            )
            return X, self._without_missing(X, reset)
        validate_data(self, X, reset=reset, skip_check_array=True)
        columns = [numbers_of(X[name]) for name in X.columns if is_numeric(X[name])]
        table = np.column_stack(columns) if columns else np.zeros((len(X), 1))
        return X, self._without_missing(table, reset)

    def _refuse_blocks(self, X: Any) -> None:
        """Raise for streams of rows."""
        if isinstance(X, (RowBlocks, DeviceBlocks)):
            raise TypeError(
                f"{type(self).__name__} takes rows in memory, got {type(X).__name__}. "
                "To fit, pass X and y as arrays or dataframes, of a sample of the rows "
                "if there are too many, or fit a model with features, such as "
                "randkern.KernelRidgeRegressor, to the stream; to predict, pass the "
                "rows of one block after another."
            )

    def _scaled(self, numbers: Any) -> np.ndarray:
        """Return the rows that the tree divides, whether these are sparse or not."""
        if self._wide and not sp.issparse(numbers):
            numbers = sp.csr_array(ops_of(numbers).to_host(numbers))
        elif are_wide(numbers) and not self._wide:
            numbers = numbers.toarray()
        return scaled_rows(self.kernel_, numbers, _STREAM)

    def _without_missing(self, X: Any, reset: bool) -> Any:
        """Return rows with means of the fit in place of missing numbers."""
        if sp.issparse(X):
            missing = np.isnan(X.data)
            if reset:
                n, n_columns = X.shape
                known = np.where(missing, 0.0, X.data)
                counts = n - np.bincount(X.indices[missing], minlength=n_columns)
                totals = np.bincount(X.indices, known, n_columns)
                self._means = totals / np.maximum(counts, 1)
            if missing.any():
                X = X.copy()
                X.data[missing] = self._means[X.indices[missing]]
            return X
        if reset:
            known = np.ma.masked_invalid(X)
            self._means = known.mean(axis=0).filled(0.0)
        return np.where(np.isnan(X), self._means, X)

    def _seeded(self, estimator: Any, stream: Stream) -> Any:
        """Return an estimator with seeds that follow from `random_state`, if it is set.

        Seeds of its own are kept.
        """
        if self.random_state is None:
            return estimator
        generator = stream.generator()
        seeds = {
            name: int(generator.integers(2**31 - 1))
            for name, value in sorted(estimator.get_params().items())
            if name.endswith("random_state") and value is None
        }
        return estimator.set_params(**seeds)

    def _blend(self, X: Any, values_of: Callable[[int, Any], np.ndarray]) -> np.ndarray:
        """Return the mean of values of cells, weighted at each row.

        `values_of` returns those of a cell, (m,) or (m, k), for some rows.
        """
        check_is_fitted(self)
        self._refuse_blocks(X)
        X, numbers = self._read(X, reset=False)
        out: Any = None
        for block in row_blocks(numbers.shape[0], _PREDICTED_ROWS):
            scaled = self._scaled(numbers[block])
            for cell, members, weight in self.tree_.cells(scaled):
                rows = block.start + members
                values = np.asarray(values_of(cell, safe_indexing(X, rows)))
                if out is None:
                    out = np.zeros((numbers.shape[0], *values.shape[1:]))
                out[rows] += (weight * values.T).T
        return out

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        own, base = tags.input_tags, get_tags(self._base).input_tags
        own.sparse, own.allow_nan = base.sparse, base.allow_nan
        return tags


class LocalRegressor(RegressorMixin, _LocalModel):
    """Clones of a regressor in overlapping cells of near rows, blended smoothly.

    A binary tree divides rows at hyperplanes into cells of at most `cell_rows` rows.
    In a band around each hyperplane rows belong to both sides, whose weights change
    smoothly from 0 to 1, so that predictions are as smooth as those of single cells.
    The total number of rows in all cells is at most a multiple of that of different
    rows: the time of a fit is linear in it. In exchange, rows of distant cells do not
    inform each other.

    Parameters
    ----------
    estimator : estimator, default=None
        Any regressor with `fit` and `predict`. None is
        ``KernelRidgeRegressor(n_components=None, fit_intercept=True)``, the exact
        kernel.
    cell_rows : int, default=1000
        The largest number of rows of a cell.
    n_jobs : int, default=None
        Cells that are fitted at a time, by joblib. None: as
        ``joblib.parallel_config`` says, for instance with the backend ``"dask"``;
        otherwise small cells are fitted on as many threads as BLAS has.
    random_state : int, generator or None, default=None
        Gives the clones the seeds that they lack. None: they have those of `estimator`.

    Attributes
    ----------
    estimators_ : list of estimators
        One per cell.
    estimators_samples_ : list of ndarray
        For each cell, the numbers of its rows; of copies that are merged, the first.
    kernel_ : Kernel
        Its distance says which rows are near.
    tree_ : CellTree
        The hyperplanes.

    Notes
    -----
    If the estimator has a kernel of this library, near rows are those with a small
    distance of that kernel: columns are divided by its lengthscales. Lengthscales that
    depend on data, such as ``"scale"``, are computed on all rows, once, so that all
    cells have the same kernel. For other estimators, numeric columns are divided by
    their standard deviations; missing numbers are replaced by means, and columns that
    are not numbers are ignored.

    Examples
    --------
    >>> import numpy as np, randkern as rk
    >>> X = np.linspace(0, 100, 4000)[:, None]
    >>> ridge = rk.KernelRidgeRegressor(rk.Matern(2.5, 1.0), 1e-3, None)
    >>> model = rk.LocalRegressor(ridge, cell_rows=500).fit(X, np.sin(X[:, 0]))
    >>> len(model.estimators_)
    13
    >>> bool(abs(model.predict([[33.3]])[0] - np.sin(33.3)) < 1e-3)
    True

    A process has standard deviations:

    >>> process = rk.GaussianProcessRegressor(rk.Matern(2.5, 1.0), 1e-4, None,
    ...     optimizer=None)
    >>> local = rk.LocalRegressor(process, cell_rows=500).fit(X, np.sin(X[:, 0]))
    >>> mean, std = local.predict([[33.3]], return_std=True)
    >>> bool(0 < std[0] < 0.05)
    True
    """

    def _default(self) -> Any:
        return KernelRidgeRegressor(n_components=None, fit_intercept=True)

    def _read_targets(self, y: Any, weight: np.ndarray | None) -> np.ndarray:
        return np.asarray(real_numbers(y))

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict targets.

        Parameters
        ----------
        X : array, CSR matrix or dataframe of n rows
        return_std : bool, default=False
            Whether to return standard deviations, too, if the estimator has them. They
            are means of those of the cells, with the weights of the predictions: the
            largest that the blend may have, as errors of neighbours are not
            independent.

        Returns
        -------
        ndarray of shape (n,) or (n, n_targets), or a pair of these
        """
        if not return_std:
            return self._blend(
                X, lambda cell, rows: self.estimators_[cell].predict(rows)
            )
        moments = self._blend(
            X,
            lambda cell, rows: np.stack(
                self.estimators_[cell].predict(rows, return_std=True), axis=-1
            ),
        )
        return moments[..., 0], moments[..., 1]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = get_tags(self._base).target_tags.multi_output
        return tags


class LocalClassifier(ClassifierMixin, _LocalModel):
    """Clones of a classifier in overlapping cells of near rows, blended smoothly.

    Cells are those of :class:`LocalRegressor`. Probabilities are blended; for a
    classifier without them, votes.

    Parameters
    ----------
    estimator : estimator, default=None
        Any classifier with `fit` and `predict`. None is
        ``KernelLogistic(n_components=None)``, the exact kernel.
    cell_rows : int, default=1000
        The largest number of rows of a cell.
    n_jobs : int, default=None
        Cells that are fitted at a time, by joblib. None: as
        ``joblib.parallel_config`` says, for instance with the backend ``"dask"``;
        otherwise small cells are fitted on as many threads as BLAS has.
    random_state : int, generator or None, default=None
        Gives the clones the seeds that they lack. None: they have those of `estimator`.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    class_prior_ : ndarray of shape (n_classes,)
        The share of each class in the weights of all rows.
    estimators_, estimators_samples_, kernel_, tree_
        See :class:`LocalRegressor`. The estimator of a cell of a single class is
        scikit-learn's ``DummyClassifier``.

    Notes
    -----
    A cell of n rows that lacks some classes counts the shares of the classes in all
    rows as one more row: its probabilities are (n p + q)/(n + 1). In bands, its
    neighbours contribute theirs.

    For what rows are near, see :class:`LocalRegressor`.

    Examples
    --------
    >>> import randkern as rk
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> logistic = rk.KernelLogistic(C=10.0, n_components=None)
    >>> model = rk.LocalClassifier(logistic, cell_rows=400).fit(X[:1000], y[:1000])
    >>> model.score(X[1000:], y[1000:]) > 0.9
    True
    """

    classes_: np.ndarray
    class_prior_: np.ndarray

    def _default(self) -> Any:
        return KernelLogistic(n_components=None)

    def _read_targets(self, y: Any, weight: np.ndarray | None) -> np.ndarray:
        y = column_or_1d(typed_labels(y), warn=True)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                "a classifier needs at least 2 classes, got 1 class: "
                f"[{self.classes_[0]!r}]."
            )
        totals = np.bincount(codes, weight)
        self.class_prior_ = totals / totals.sum()
        return y

    def _fitted_cell(self, estimator: Any, X: Any, y: Any, weight: Any) -> Any:
        if (y == y[0]).all():
            return DummyClassifier().fit(np.zeros((1, 1)), y[:1])
        return _fitted(estimator, X, y, weight)

    @available_if(_blends_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return class probabilities.

        Parameters
        ----------
        X : array, CSR matrix or dataframe of n rows

        Returns
        -------
        ndarray of shape (n, n_classes)
        """
        return self._blend(X, self._probabilities)

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class, or that with most votes.

        Parameters
        ----------
        X : array, CSR matrix or dataframe of n rows

        Returns
        -------
        ndarray of shape (n,)
        """
        chances = self._blend(X, self._probabilities)
        return self.classes_[chances.argmax(axis=1)]

    def _probabilities(self, cell: int, X: Any) -> np.ndarray:
        """Return the probabilities of all classes in a cell, or its votes."""
        estimator = self.estimators_[cell]
        if _blends_probabilities(self):
            own = estimator.predict_proba(X)
        else:
            own = estimator.predict(X)[:, None] == estimator.classes_
        if len(estimator.classes_) == len(self.classes_):
            return own
        values = np.zeros((len(own), len(self.classes_)))
        values[:, np.searchsorted(self.classes_, estimator.classes_)] = own
        n = len(self.estimators_samples_[cell])
        return (n * values + self.class_prior_) / (n + 1)


def _fitted(estimator: Any, X: Any, y: Any, weight: Any) -> Any:
    """Return an estimator, fitted to rows with their weights, if there are any."""
    weights = {} if weight is None else {"sample_weight": weight}
    return estimator.fit(X, y, **weights)


def _copies_of(X: Any, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the first rows of equal entries and targets, and the place of each."""
    if y.dtype.kind not in "fiub":
        y = np.unique(y, return_inverse=True)[1]
    if X.dtype.itemsize not in (4, 8):
        X = X.astype(np.float64)
    return copies_of(X, np.asarray(y.reshape(len(y), -1), dtype=np.float64))


def _kernel_of_scales(X: Any, weight: np.ndarray | None) -> Gaussian:
    """Return a kernel whose distance is that of columns over standard deviations."""
    if sp.issparse(X) and not are_wide(X):
        X = X.toarray()
    if sp.issparse(X):
        share = np.full(X.shape[0], 1.0) if weight is None else weight
        share = share / share.sum()
        mean = X.T @ share
        square = X.multiply(X).T @ share
        scale = np.sqrt(np.maximum(square - mean**2, 0.0))
    elif weight is None:
        scale = X.std(axis=0)
    else:
        mean = np.average(X, axis=0, weights=weight)
        scale = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=weight))
    scale[~(scale > 0)] = 1.0
    return Gaussian(lengthscale=scale * np.sqrt(len(scale)))
