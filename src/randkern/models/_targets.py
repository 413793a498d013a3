"""Targets of training rows: real numbers, and labels of classes coded as ±1."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from reprlib import repr as shortened
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import (
    check_classification_targets,
    type_of_target,
    unique_labels,
)
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d

from randkern._cells import naming_cells
from randkern._validation import (
    Rows,
    check_positive,
    check_targets,
    check_weights,
    is_tensor,
    place_of,
    tensor_floats,
)
from randkern.backend.namespace import ops_of
from randkern.data.reading import predicted_rows
from randkern.data.sharded import by_partition

# Up to this many different integers count as labels if they might also be targets.
_MAX_CLASSES = 20


class RealTargets:
    """Mixin for real targets: reads `y` at once or in blocks."""

    _n_outputs: int | None
    _values: Callable[[Any], np.ndarray]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.target_tags.multi_output = True
        return tags

    def predict(self, X: Any) -> np.ndarray:
        """Return predictions, (n,) or (n, n_targets).

        Parameters
        ----------
        X : array, CSR matrix, dataframe, tensor, Dask collection or RowBlocks of n rows
            Results of Dask collections are lazy, and tensors give tensors.
        """
        return self._values(X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return R² of the predictions for rows.

        Parameters
        ----------
        X : array, CSR matrix, dataframe, tensor, Dask collection or RowBlocks of n rows
        y : array of shape (n,) or (n, n_targets)
            Targets; None if `X` includes them.
        sample_weight : array of shape (n,), optional
            Weights of the rows in the mean.
        """
        from sklearn.metrics import r2_score

        y, predictions, weight = predicted_rows(self, X, y, sample_weight)
        return float(r2_score(y, predictions, sample_weight=weight))

    def _target_reader(self) -> Numbers:
        return Numbers()


@dataclass(frozen=True)
class Numbers:
    """Reads real targets, of shape (n,) or (n, k)."""

    # k, or None for a vector of targets.
    n_outputs: int | None = None
    labelled: ClassVar[bool] = False

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of an estimator."""
        return {"_n_outputs": self.n_outputs}

    @property
    def n_columns(self) -> int:
        """The number of columns of targets."""
        return self.n_outputs or 1

    def read(self, X: Rows, y: Any, sample_weight: Any) -> tuple[Numbers, Any, Any]:
        """Return a reader that has seen all targets, these (n, k), and weights."""
        y = self._checked(X, y)
        reader = Numbers(_width(y))
        return reader, y.reshape(len(y), -1), check_weights(sample_weight, X)

    def summary(self, X: Rows, y: Any, weight: Any) -> int | None:
        """Return what must be known of the targets of a block."""
        return _width(self._checked(X, y))

    def learned(self, summaries: list[int | None]) -> Numbers:
        """Return a reader that has seen blocks with these summaries."""
        if len(set(summaries)) > 1:
            shapes = {None: "(n,)"} | {
                k: f"(n, {k})" for k in summaries if k is not None
            }
            named_shapes = " and ".join(sorted({shapes[k] for k in summaries}))
            raise ValueError(
                f"blocks of y have inconsistent shapes, {named_shapes}; all blocks "
                "must have the same number of targets."
            )
        return Numbers(summaries[0])

    def columns(self, X: Rows, y: Any, weight: Any) -> tuple[Any, Any]:
        """Return the targets (n, k) of a block, and its weights."""
        y = self._checked(X, y)
        if _width(y) != self.n_outputs:
            raise ValueError(
                f"y has {_width(y) or 1} targets, but earlier batches had "
                f"{self.n_columns}; pass the same number of targets in all calls."
            )
        return y.reshape(len(y), -1), weight

    def _checked(self, X: Rows, y: Any) -> np.ndarray:
        """Return targets as float64 numbers, one row for each row of X."""
        y = check_targets(y)
        if is_tensor(y) and not is_tensor(X):
            raise ValueError(
                f"X is not a tensor, so y must be an array, got {place_of(y)}; pass "
                "tensor.numpy(force=True)."
            )
        Y = real_numbers(y)
        check_consistent_length(X, Y)
        Y = ops_of(X).float64_like(Y, X)
        if Y.ndim > 2:
            raise ValueError(
                f"y must have 1 or 2 dimensions, got {Y.ndim}; pass y.reshape(len(y), "
                "-1)."
            )
        return Y


def _width(y: Any) -> int | None:
    """Return the number of columns of targets, or None for a vector."""
    return None if y.ndim == 1 else y.shape[1]


def real_numbers(y: Any) -> Any:
    """Return targets that were checked as float64 numbers."""
    dtype = tensor_floats()[0] if is_tensor(y) else np.float64
    try:
        with naming_cells(y, "y"):
            return check_array(y, ensure_2d=False, dtype=dtype, input_name="y")
    except ValueError as error:
        if "could not convert" not in str(error):
            raise
        raise ValueError(
            f"y holds texts, not numbers ({error}); classifiers, such as "
            "KernelRidgeClassifier or TabularClassifier, take labels."
        ) from None


def typed_labels(y: Any) -> Any:
    """Return labels that were checked in the type that they have.

    Integers and booleans stay such, in columns of pandas, lists and arrays of objects,
    which scikit-learn would convert to floats, or refuse.
    """
    if hasattr(y, "iloc"):
        types = np.atleast_1d(np.asarray(y.dtypes, dtype=object))
        if all(getattr(entry, "kind", "") in ("i", "u", "b") for entry in types):
            return y.astype(getattr(types[0], "numpy_dtype", types[0]))
    if is_tensor(y):
        if str(y.dtype) in ("torch.uint16", "torch.uint32", "torch.uint64"):
            raise TypeError(
                f"y has dtype {y.dtype}, which PyTorch cannot sort; pass "
                "y.to(torch.int64)."
            )
        return y
    if isinstance(y, (list, tuple)):
        return _typed(np.array(y, dtype=object))
    kind = getattr(getattr(y, "dtype", None), "kind", "")
    return _typed(np.asarray(y, dtype=object)) if kind in ("O", "T") else y


def _typed(labels: np.ndarray) -> np.ndarray:
    """Return objects as booleans, integers, floats or texts if all of them are."""
    kinds = {type(label) for label in labels.ravel().tolist()}
    if not kinds:
        return labels
    if all(issubclass(kind, (bool, np.bool_)) for kind in kinds):
        return labels.astype(bool)
    if all(issubclass(kind, (int, np.integer)) for kind in kinds):
        return labels.astype(_integers_for(labels.ravel().tolist()))
    if all(issubclass(kind, numbers.Real) for kind in kinds):
        with naming_cells(labels, "y"):
            return labels.astype(np.float64)
    return labels


def _positions(classes: Any, y: Any) -> tuple[Any, Any]:
    """Return the positions of labels among the classes, and whether each is known."""
    search = ops_of(y).searchsorted
    if is_tensor(y) or {classes.dtype.kind, y.dtype.kind} != {"i", "u"}:
        return search(classes, y)
    alike = y.astype(classes.dtype)  # NumPy compares int64 and uint64 as floats
    position, known = search(classes, alike)
    return position, known & (alike == y)


def _integers_for(labels: Iterable[int]) -> type:
    """Return int64 or uint64, whichever holds all labels."""
    labels = list(labels)
    for dtype in (np.int64, np.uint64):
        limits = np.iinfo(dtype)
        if all(limits.min <= label <= limits.max for label in labels):
            return dtype
    raise ValueError(
        f"labels from {shortened(min(labels))} to {shortened(max(labels))} do not fit "
        "into a single integer type; use smaller numbers, or strings."
    )


@dataclass(frozen=True)
class LabelSummary:
    """Sums of weights per label in a block, and an empty array or tensor like them."""

    totals: dict[Any, float]
    like: Any


def _dtype_of_labels(classifier: Any) -> Any:
    classes = classifier.classes_
    return ops_of(classes).numpy_dtype(classes)


class ClassLabels:
    """Mixin for classifiers."""

    classes_: np.ndarray
    class_weight: Any = None
    decision_function: Callable[[Any], np.ndarray]
    _n_outputs: int | None

    def _target_reader(self) -> Labels:
        return Labels(self.class_weight)

    @by_partition(width=lambda model: None, dtype=_dtype_of_labels)
    def predict(self, X: Any) -> np.ndarray:
        """Return the labels of the largest values, shape (n,).

        Parameters
        ----------
        X : array, CSR matrix, dataframe, tensor, Dask collection or RowBlocks of n rows
            Results of Dask collections are lazy, and tensors give tensors.
        """
        return self._labels(self._class_values(X))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the accuracy of the predictions for rows.

        Parameters
        ----------
        X : array, CSR matrix, dataframe, tensor, Dask collection or RowBlocks of n rows
        y : array of shape (n,)
            Labels; None if `X` includes them.
        sample_weight : array of shape (n,), optional
            Weights of the rows in the mean.
        """
        from sklearn.metrics import accuracy_score

        y, predictions, weight = predicted_rows(self, X, y, sample_weight)
        labels = typed_labels(y), typed_labels(predictions)
        return float(accuracy_score(*labels, sample_weight=weight))

    def _class_values(self, X: Any) -> Any:
        """Return the values whose largest one is that of the predicted class."""
        return self.decision_function(X)

    def _labels(self, values: np.ndarray) -> np.ndarray:
        """Return the labels of the largest values, on the device of the values.

        Labels that are text are a NumPy array.
        """
        if values.ndim == 1:
            xp = ops_of(values).xp
            position = xp.astype(values > 0, xp.int64)
        else:
            position = values.argmax(axis=1)
        if is_tensor(position):
            return ops_of(position).entries_at(self.classes_, position)
        return ops_of(self.classes_).to_host(self.classes_)[position]


@dataclass(frozen=True, eq=False)
class Labels:
    """Reads labels as columns of ±1: one for two classes, else one per class."""

    class_weight: Any = None
    classes: Any = None
    # The weight of each class, or None.
    by_class: np.ndarray | None = None
    labelled: ClassVar[bool] = True

    @property
    def n_outputs(self) -> int | None:
        """The number of columns, or None for two classes."""
        return None if len(self.classes) == 2 else len(self.classes)

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes of an estimator."""
        return {"classes_": self.classes, "_n_outputs": self.n_outputs}

    @property
    def n_columns(self) -> int:
        """The number of columns of targets."""
        return self.n_outputs or 1

    def read(self, X: Rows, y: Any, sample_weight: Any) -> tuple[Labels, Any, Any]:
        """Return a reader that has seen all labels, the signs (n, k), and weights."""
        y = self._checked(X, y)
        weight = check_weights(sample_weight, X)
        classes = unique_labels(y)
        reader = self.of_classes(classes, self._totals(classes, X, y, weight))
        Y, weight = reader._signs_of(X, y, weight)
        return reader, Y, check_weights(weight, X)

    def summary(self, X: Rows, y: Any, weight: Any) -> LabelSummary:
        """Return what must be known of the labels of a block."""
        y = self._checked(X, y)
        values = ops_of(y).unique(y)
        sums = self._totals(values, X, y, weight).tolist()
        totals = dict(zip(values.tolist(), sums, strict=True))
        return LabelSummary(totals, y[:0] if is_tensor(y) else values[:0])

    def learned(self, summaries: list[LabelSummary]) -> Labels:
        """Return a reader that has seen blocks with these summaries."""
        totals: dict[Any, float] = {}
        for block in summaries:
            for label, total in block.totals.items():
                totals[label] = totals.get(label, 0.0) + total
        like = summaries[0].like
        dtypes = {block.like.dtype for block in summaries if not is_tensor(block.like)}
        dtype: Any = np.result_type(*dtypes) if dtypes else None
        if dtypes and all(entry.kind in "iu" for entry in dtypes) and dtype.kind == "f":
            dtype = _integers_for(totals)  # int64 and uint64
        classes = unique_labels(np.array(list(totals), dtype=dtype))
        placed = ops_of(like).asarray(classes, like) if is_tensor(like) else classes
        # Labels of several types have become text: blocks show which do not match.
        totals_of_classes = [totals.get(label, 0.0) for label in classes.tolist()]
        return self.of_classes(placed, totals_of_classes)

    def of_classes(self, classes: Any, totals: Any = None) -> Labels:
        """Return a reader of these classes, whose rows have these total weights."""
        if len(classes) < 2:
            raise ValueError(
                "a classifier needs at least 2 classes, got 1 class: "
                f"{classes.tolist()}."
            )
        reader = replace(self, classes=classes)
        if self.class_weight is None:
            return reader
        totals = np.ones(len(classes)) if totals is None else np.array(totals)
        return replace(reader, by_class=reader._weights_by_class(totals))

    def columns(self, X: Rows, y: Any, weight: Any) -> tuple[Any, Any]:
        """Return the signs (n, k) of a block, and its weights."""
        return self._signs_of(X, self._checked(X, y), weight)

    def _totals(self, classes: Any, X: Rows, y: Any, weight: Any) -> np.ndarray:
        """Return the total weights of classes, zeros if there is no `class_weight`."""
        if self.class_weight is None:
            return np.zeros(len(classes))
        ops = ops_of(X)
        position = ops.placed(_positions(classes, y)[0], ops.xp.int64, X)
        return ops.to_host(ops.float64_bincount(position, weight, len(classes)))

    def _signs_of(self, X: Rows, y: Any, weight: Any) -> tuple[Any, Any]:
        """Return labels as columns of ±1 on the device of X, and weights of rows."""
        ops = ops_of(y)
        position, known = _positions(self.classes, y)
        if not known.all():
            raise ValueError(
                f"label {y[~known].tolist()[0]!r} is not among the classes "
                f"{self.classes.tolist()} of the fit; remove its rows, or fit again."
            )
        if len(self.classes) == 2:
            signs = (2.0 * ops.as_float64(position) - 1.0)[:, None]
        else:
            signs = ops.float64_zeros((len(y), len(self.classes)), y) - 1.0
            signs[ops.arange(len(y), y), position] = 1.0
        ops = ops_of(X)
        if self.by_class is not None:
            by_class = ops.float64_like(self.by_class, X)
            by_row = by_class[ops.placed(position, ops.xp.int64, X)]
            weight = by_row if weight is None else weight * by_row
        return ops.float64_like(signs, X), weight

    def _checked(self, X: Rows, y: Any) -> np.ndarray:
        y = column_or_1d(typed_labels(check_targets(y)), warn=True)
        check_consistent_length(X, y)
        check_classification_targets(y)
        return y

    def _weights_by_class(self, totals: np.ndarray) -> np.ndarray:
        """Return the weight of each class, given the total weights of their rows."""
        if isinstance(self.class_weight, dict):
            for label, value in self.class_weight.items():
                check_positive(f"class_weight[{label!r}]", value, zero=True)
        classes = ops_of(self.classes).to_host(self.classes)
        # For "balanced", a class whose rows have no weight counts as absent.
        present = totals > 0 if self.class_weight == "balanced" else totals >= 0
        by_class = np.zeros(len(classes))
        by_class[present] = compute_class_weight(
            self.class_weight,
            classes=classes[present],
            y=classes[present],
            sample_weight=totals[present],
        )
        if not np.all(np.isfinite(by_class) & (by_class >= 0)):
            raise ValueError(
                "the values of class_weight must be non-negative finite numbers, got "
                f"{self.class_weight}."
            )
        return by_class


class NumbersOrLabels:
    """Reads labels (text, booleans, or a few different integers), or real targets.

    All of `y` decides which.
    """

    def read(
        self, X: Rows, y: Any, sample_weight: Any
    ) -> tuple[Numbers | Labels, Any, Any]:
        """Return the reader for all targets, the targets (n, k), and weights."""
        summary = self.summary(X, y, check_weights(sample_weight, X))
        return self.learned([summary]).read(X, y, sample_weight)

    def summary(self, X: Rows, y: Any, weight: Any) -> tuple[LabelSummary | None, Any]:
        """Return the labels of a block, if it may hold any, and its kind.

        The kind is the number of columns of real targets, None for a vector, or the
        type of labels that are not numbers.
        """
        labels = typed_labels(check_targets(y))
        host = ops_of(labels).to_host(labels)
        numeric = host.dtype.kind in "iuf"
        n_outputs = Numbers().summary(X, y, weight) if numeric else None
        with np.errstate(invalid="ignore"):  # casts numbers of any size to integers
            discrete = type_of_target(host) in ("binary", "multiclass")
        if not discrete or host.dtype.kind in "mM":
            return None, Numbers().summary(X, y, weight)
        if numeric and len(np.unique(host)) > _MAX_CLASSES:
            return None, n_outputs
        return Labels().summary(X, y, weight), n_outputs if numeric else str(host.dtype)

    def learned(
        self, summaries: list[tuple[LabelSummary | None, Any]]
    ) -> Numbers | Labels:
        """Return the reader for blocks with these summaries."""
        labels = [entry for entry, _ in summaries if entry is not None]
        dtypes = {dtype for _, dtype in summaries if isinstance(dtype, str)}
        n_classes = len({label for entry in labels for label in entry.totals})
        labelled = len(labels) == len(summaries) and (
            bool(dtypes) or 2 <= n_classes <= _MAX_CLASSES
        )
        if labelled:
            return Labels().learned(labels)
        if dtypes:
            raise ValueError(
                f"some blocks of y have labels of type {dtypes.pop()}, others have "
                "numbers; use the same type in all blocks."
            )
        return Numbers().learned([entry for _, entry in summaries])
