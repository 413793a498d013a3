"""Input validation: arguments, and arrays, tensors and tables as rows of numbers.

Inside the library rows are a C-ordered float array or a CSR matrix.
"""

from __future__ import annotations

import datetime
import math
import numbers
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn import get_config
from sklearn.utils import check_array, get_tags
from sklearn.utils.validation import validate_data

from randkern._cells import check_finite, naming_cells
from randkern._sklearn import check_sample_weight
from randkern._tables import (
    TableEncoder,
    check_column_order,
    check_numeric,
    column_names,
    count_missing,
    is_table,
    is_time,
    without_sparse_columns,
)
from randkern._warnings import warn


def is_tensor(array: Any) -> bool:
    """Return whether `array` is a PyTorch tensor, without importing PyTorch."""
    # Another thread may be importing it, and no tensor is there yet.
    kind = getattr(sys.modules.get("torch"), "Tensor", None)
    return kind is not None and isinstance(array, kind)


def tensor_floats() -> tuple[Any, Any]:
    """Return the supported dtypes of tensors, the widest first."""
    torch = sys.modules["torch"]
    return torch.float64, torch.float32


def check_not_masked(array: Any, name: str) -> None:
    """Raise for masked entries, which NumPy would silently take for numbers."""
    parts = array if isinstance(array, (list, tuple)) else [array]
    n_masked = sum(map(np.ma.count_masked, filter(np.ma.is_masked, parts)))
    if n_masked:
        raise ValueError(
            f"{name} has {n_masked} masked entries, but masks are not supported; "
            "remove these rows, or impute them."
        )


def read_values(values: Any, name: str) -> Any:
    """Return rows, targets or weights unchanged, but for tensors.

    These are detached, or NumPy arrays if scikit-learn's dispatch is off. Raise for
    what NumPy would silently convert: dates, records, masked entries. Also raise for
    lists with elements of different lengths, and for sparse matrices with entries
    outside.
    """
    if is_tensor(values):
        return _read_tensor(values, name)
    check_not_masked(values, name)
    if sp.issparse(values):
        _check_positions(values, name)
    array = values
    if isinstance(values, (list, tuple)):
        try:
            array = np.asarray(values)
        except ValueError:
            raise ValueError(
                f"{name} is a {type(values).__name__} of rows of different lengths; "
                "expected equal lengths."
            ) from None
    dtype = getattr(array, "dtype", None)
    if dtype is not None and (
        is_time(array) or (isinstance(dtype, np.dtype) and dtype.kind == "V")
    ):
        raise ValueError(
            f"{name} holds {dtype} values, expected real numbers; convert them, for "
            "instance dates to days by (dates - first) / numpy.timedelta64(1, 'D')."
        )
    return values


def _read_tensor(array: Any, name: str) -> Any:
    """Return a real tensor detached, or as a NumPy array if dispatch is off.

    Half precision becomes a float64 array, as in scikit-learn. Complex numbers raise a
    ValueError; a sparse tensor, a meta tensor, or one that is not on the CPU while
    dispatch is off, a TypeError.
    """
    if array.is_complex():
        raise ValueError(
            f"Complex data not supported: {name} is a tensor of {array.dtype}; pass "
            "real and imaginary parts as columns."
        )
    if str(array.layout) != "torch.strided":
        raise TypeError(
            f"{name} is a sparse tensor ({array.layout}), which is not supported; pass "
            "tensor.to_dense(), or a scipy.sparse matrix."
        )
    array = array.detach()
    if is_device_array(array):
        if array.is_meta:
            raise TypeError(
                f"{name} is a tensor on the device meta, which has no values; pass a "
                "tensor on the CPU or a GPU."
            )
        return array
    half = array.is_floating_point() and array.dtype.itemsize < 4
    return (array.double() if half else array).numpy(force=True)


def _check_positions(X: Any, name: str) -> None:
    """Raise if entries of a sparse matrix lie outside it.

    SciPy's products read and write there without a check.
    """
    if X.format == "coo":
        positions = list(zip(X.coords, X.shape, strict=True))
    elif X.format in ("csr", "csc", "bsr"):
        rows, columns = getattr(X, "blocksize", (1, 1))
        lines, places = X.shape[0] // rows, X.shape[1] // columns
        if X.format == "csc":
            lines, places = places, lines
        starts = X.indptr
        if (
            len(starts) != lines + 1
            or starts[0] != 0
            or (np.diff(starts) < 0).any()
            or starts[-1] > min(len(X.indices), len(X.data))
        ):
            raise ValueError(
                f"indptr of the sparse matrix {name} is invalid, expected {lines + 1} "
                f"numbers that grow from 0 to at most {len(X.indices)}, the number of "
                "indices; build the matrix again."
            )
        positions = [(X.indices[: starts[-1]], places)]
    else:
        return
    for found, n in positions:
        if len(found) and not 0 <= found.min() <= found.max() < n:
            wrong = found.max() if found.max() >= n else found.min()
            raise ValueError(
                f"an entry of the sparse matrix {name} of shape {X.shape} has the "
                f"index {wrong}, expected 0 to {n - 1}; build the matrix again."
            )


FLOATS = (np.float64, np.float32)
# Beyond this, no machine holds the features of a single row.
MAX_COMPONENTS = 10**12
# Larger weights, and products with features, leave the range of float32.
MAX_WEIGHT = 1e30
_TIMES = (datetime.date, datetime.timedelta, np.datetime64, np.timedelta64)
_NUMPY_ADVICE = "pass NumPy arrays, such as tensor.numpy(force=True)."
Rows = Any  # a 2-D float ndarray or tensor, or a scipy.sparse CSR matrix
Array = Any  # an ndarray or a tensor


def check_positive(name: str, value: Any, *, zero: bool = False) -> float:
    """Return `value` as a finite positive float (or 0, with `zero`)."""
    bound = "non-negative" if zero else "positive"
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not real or not (0 < value < math.inf or (zero and value == 0)):
        raise ValueError(f"{name} must be a {bound} finite number, got {value!r}.")
    return float(value)


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """Return `value` if it is one of `choices`."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {list(choices)}, got {value!r}.")
    return value


def check_count(name: str, value: Any, *, at_most: float = math.inf) -> int:
    """Return `value` as a positive int."""
    is_integer = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not is_integer or not 1 <= int(value) <= at_most:
        limit = "" if at_most == math.inf else f" of at most {at_most:,}"
        raise ValueError(f"{name} must be a positive integer{limit}, got {value!r}.")
    return int(value)


def check_components(value: Any) -> int | tuple[int, ...]:
    """Return the number of features, or one number per term of a sum of kernels."""
    if np.ndim(value) != 1 or isinstance(value, (set, dict)):
        return check_count("n_components", value, at_most=MAX_COMPONENTS)
    widths = tuple(check_count("every number in n_components", n) for n in value)
    check_count("the sum of n_components", sum(widths), at_most=MAX_COMPONENTS)
    return widths


def check_has_targets(estimator: Any, y: Any) -> None:
    """Raise if there are no targets, with the message that scikit-learn expects."""
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is "
            "None."
        )


def check_targets(y: Any) -> Any:
    """Return targets or labels; tensors are read, and the rest is unchanged.

    Raise for missing values, and for kinds of values that are neither real numbers nor
    labels, or not of one kind.
    """
    if type(y).__name__ == "LazyFrame":
        raise TypeError(
            "y is a LazyFrame, expected an array or a dataframe; pass y.collect()."
        )
    y = read_values(y, "y")
    objects = np.array(y, dtype=object) if isinstance(y, (list, tuple)) else y
    if n_missing := count_missing(objects):
        raise ValueError(
            f"Input y contains NaN or missing values: {n_missing} of {len(y)}; remove "
            "the rows without a target."
        )
    if str(getattr(objects, "dtype", "")) == "object":
        _check_objects(np.ravel(objects).tolist())
    return y


def _check_objects(values: list[Any]) -> None:
    """Raise if values are no numbers or labels, or cannot be compared."""
    kinds = {type(value) for value in values}
    named = ", ".join(sorted(kind.__name__ for kind in kinds))
    if any(issubclass(kind, tuple) for kind in kinds):
        raise ValueError(
            "y contains tuples, expected one number or label per row; join the parts "
            "of each tuple into a string."
        )
    if 0 < sum(issubclass(kind, str) for kind in kinds) < len(kinds):
        raise ValueError(
            f"y has values of different types, {named}; convert all of them to "
            "strings, or all to numbers."
        )
    if any(issubclass(kind, _TIMES) for kind in kinds):
        raise ValueError(
            f"y has {named} values, expected real numbers or labels; convert them, for "
            "instance dates to days with (dates - first) / numpy.timedelta64(1, 'D')."
        )


def check_weights(
    sample_weight: Any, X: Rows, *, of_block: bool = False, bounded: bool = True
) -> np.ndarray | None:
    """Return the weights of the rows of X as float64, non-negative.

    They must not all be 0, unless the rows are a block of others (`of_block`). If they
    are `bounded`, the largest must be neither too large nor too small.
    """
    if sample_weight is None:
        return None
    weights = read_values(sample_weight, "sample_weight")
    dtype = (tensor_floats() if is_device_array(X) else FLOATS)[0]
    if is_tensor(X) and isinstance(weights, (list, tuple)):
        weights = X.new_tensor(weights, dtype=dtype)
    if of_block:
        weights = weights if is_tensor(weights) else np.asarray(weights)
        if tuple(weights.shape) == (X.shape[0],) and not weights.any():
            # scikit-learn refuses weights that are all 0.
            n = X.shape[0]
            return X.new_zeros(n, dtype=dtype) if is_tensor(X) else np.zeros(n)
    with naming_cells(weights, "sample_weight"):
        weights = check_sample_weight(weights, X, dtype=dtype, ensure_non_negative=True)
    largest = float(weights.max())
    if largest == 0:
        raise ValueError(
            "every sample_weight is zero; at least one row needs a positive weight."
        )
    # The weights of a block may be small beside those of others.
    too_small = largest < 1 / MAX_WEIGHT and not of_block
    if bounded and (largest > MAX_WEIGHT or too_small):
        raise ValueError(
            f"the largest sample_weight is {largest:.3g}, expected a number from "
            f"{1 / MAX_WEIGHT:g} to {MAX_WEIGHT:g}; divide the weights by their mean, "
            "and alpha as well (or multiply C by it)."
        )
    return weights


def place_of(array: Any) -> str:
    """Describe the device of an array, for a message."""
    return f"a tensor on {array.device}" if is_tensor(array) else "a NumPy array"


def is_device_array(X: Any) -> bool:
    """Return whether `X` is a tensor to compute on, on its own device.

    A CPU tensor is read as a NumPy array unless scikit-learn's dispatch is on.
    One on another device raises a TypeError while dispatch is off.
    """
    if not is_tensor(X):
        return False
    if get_config()["array_api_dispatch"]:
        return True
    if X.device.type != "cpu":
        raise TypeError(
            f"got a tensor on {X.device}: to compute there, set the environment "
            "variable SCIPY_ARRAY_API=1 before SciPy or scikit-learn is imported, and "
            "call under sklearn.config_context(array_api_dispatch=True); or pass "
            "tensor.cpu()."
        )
    return False


def is_dask_collection(X: Any) -> bool:
    """Return whether X is a Dask array or dataframe, without importing Dask."""
    return type(X).__module__.split(".")[0] in ("dask", "dask_expr")


def refuse_dask(X: Any, name: str) -> None:
    """Raise rather than gather a Dask collection into this process."""
    if is_dask_collection(X):
        raise TypeError(
            f"{name} is a Dask {type(X).__name__}, which is not supported here; pass "
            f"{name}.compute() if it fits in the memory of this process."
        )


def readable_rows(X: Any, name: str = "X", estimator: Any = None) -> Any:
    """Return rows that hold numbers, as an array, matrix, table or tensor.

    Raise if they can be read only once, or not here, or if the estimator takes no
    tensors.
    """
    kind = type(X).__name__
    if hasattr(X, "__next__"):
        raise TypeError(
            f"{name} is a {kind}, which can be read only once; for rows that come in "
            "blocks pass randkern.RowBlocks(make_blocks) to fit, where make_blocks() "
            "returns a new iterator over blocks."
        )
    if kind == "LazyFrame":
        raise TypeError(
            f"{name} is a LazyFrame, expected a DataFrame; pass {name}.collect()."
        )
    if type(X).__module__.startswith("pyarrow"):
        raise TypeError(f"{name} is a pyarrow {kind}; pass {name}.to_pandas().")
    refuse_dask(X, name)
    X = read_values(X, name)
    X = np.asarray(X) if isinstance(X, (list, tuple)) else X
    if estimator is not None and is_device_array(X):
        if not get_tags(estimator).array_api_support:
            owner = type(estimator).__name__
            raise TypeError(f"{owner} does not support tensors; {_NUMPY_ADVICE}")
    return X


def validate_rows(
    estimator: Any, X: Any, *, reset: bool, own_dtype: bool = False, sparse: bool = True
) -> Rows:
    """Return the rows of `X` as a float array or CSR, checked for `estimator`.

    Sets (`reset`) or compares ``n_features_in_`` and ``feature_names_in_``, and stores
    the encoder of a table's categories as ``table_encoder_``. With `own_dtype` integers
    and booleans stay such, and tables must hold numbers.
    """
    X = readable_rows(X, estimator=estimator)
    check_column_order(estimator, X, reset=reset)
    names = None
    if is_table(X):
        column_names(X)  # raises for names that are there twice
        names = list(X.columns)
    encoder = None
    if not own_dtype:
        if reset:
            learned = None if names is None else TableEncoder.of(X)
            estimator.table_encoder_ = learned if learned and learned.levels else None
        encoder = getattr(estimator, "table_encoder_", None)
    if encoder is not None and names is None:
        raise ValueError(
            f"{type(estimator).__name__} was fitted on a dataframe with text "
            f"columns; expected a dataframe, got {type(X).__name__}."
        )
    check = partial(validate_data, estimator, reset=reset)
    if encoder is not None:
        check(X, skip_check_array=True)
        return _finite_rows(encoder.transform(X), check_array, names=names)
    if names is not None:
        if own_dtype:
            check_numeric(X, ", expected numbers")
        else:
            check_numeric(X)
        X = without_sparse_columns(X, dense=not sparse)
    return _finite_rows(X, check, names=names, own_dtype=own_dtype, sparse=sparse)


class TableInput:
    """Mixin of estimators that take tables with texts and missing values."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags


def validate_table(estimator: Any, X: Any, *, reset: bool, least_rows: int = 1) -> Any:
    """Return a valid dataframe unchanged, anything else as an array of floats.

    Numbers may be missing. Columns that a fitted estimator does not know are left out,
    with a warning.
    """
    X = readable_rows(X, estimator=estimator)
    if is_table(X) and not reset:
        X = _known_columns(estimator, X)
    check_column_order(estimator, X, reset=reset)
    if is_table(X):
        if 0 in X.shape:
            raise ValueError(
                f"X has {X.shape[0]} rows and {X.shape[1]} columns; at least one of "
                "each is needed."
            )
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        return X
    with naming_cells(X):
        return validate_data(
            estimator,
            X,
            reset=reset,
            dtype=np.float64,
            ensure_all_finite="allow-nan",
            ensure_min_samples=least_rows,
        )


def _known_columns(estimator: Any, X: Any) -> Any:
    """Return a table without the columns that an estimator was not fitted to.

    A table that also lacks columns is left to scikit-learn's error.
    """
    names = {*getattr(estimator, "feature_names_in_", X.columns)}
    others = [name for name in X.columns if name not in names]
    if not others or not names <= {*X.columns}:
        return X
    shown = ", ".join(map(repr, others[:5])) + ", ..." * (len(others) > 5)
    warn(
        f"ignored columns of X that {type(estimator).__name__} was not fitted to: "
        f"{shown}",
        UserWarning,
    )
    return X[[name for name in X.columns if name in names]]


def check_kernel_rows(
    X: Any, Y: Any = None, *, tensors: bool = False
) -> tuple[Rows, Rows | None, TableEncoder | None]:
    """Return the arguments of a kernel as float arrays or CSR of one dtype.

    With `tensors`, tensors are accepted. The third value is the encoder of the
    categories of a dataframe.
    """
    X = readable_rows(X)
    Y = None if Y is None else readable_rows(Y, "Y")
    encoder, names = None, None
    if is_table(X):
        encoder = TableEncoder.of(X)
        names = list(X.columns)
        if Y is not None:
            if not is_table(Y):
                raise ValueError(
                    "Y must be a dataframe, as X is one, got "
                    f"{type(Y).__name__}; pass two dataframes or two arrays."
                )
            if list(Y.columns) != names:
                raise ValueError(
                    f"the columns of Y must be those of X, {names}, in this order, got "
                    f"{list(Y.columns)}; pass Y[X.columns]."
                )
            # Categories that X lacks share the code -1, which no row of X has.
            Y = encoder.transform(Y)
        X = encoder.transform(X)
    if is_device_array(X):
        if not tensors:
            raise TypeError(f"tensors are not supported here; {_NUMPY_ADVICE}")
        if Y is not None and (not is_tensor(Y) or Y.device != X.device):
            location = Y.device if is_tensor(Y) else type(Y).__name__
            raise ValueError(
                f"X is a tensor on {X.device}, so Y must be a tensor on the same "
                f"device, got {location}."
            )
    elif is_tensor(Y):
        raise ValueError(
            f"X is a {type(X).__name__}, so Y must be an array, got {place_of(Y)}."
        )
    X = _finite_rows(X, partial(check_array, input_name="X"), names=names)
    if Y is None:
        return X, None, encoder
    Y = _finite_rows(Y, partial(check_array, input_name="Y"), name="Y", names=names)
    if X.shape[1] != Y.shape[1]:
        raise ValueError(
            f"X has {X.shape[1]} columns but Y has {Y.shape[1]}: a kernel compares "
            "rows of the same width."
        )
    dtype = max(X.dtype, Y.dtype, key=lambda dtype: dtype.itemsize)
    if is_tensor(X):
        return X.to(dtype), Y.to(dtype), None
    return X.astype(dtype, copy=False), Y.astype(dtype, copy=False), encoder


def _finite_rows(
    X: Any,
    check: Callable[..., Any],
    *,
    name: str = "X",
    names: Sequence[Any] | None = None,
    own_dtype: bool = False,
    sparse: bool = True,
) -> Rows:
    """Return finite rows, a float array, tensor or canonical CSR matrix.

    `check` is scikit-learn's `check_array`, or `validate_data` of an estimator; `name`
    and `names`, of the columns, are for errors.
    """
    if is_device_array(X):
        return check(X, dtype=list(tensor_floats()))
    with naming_cells(X, name):
        X = check(
            X,
            accept_sparse="csr" if sparse else False,
            dtype="numeric" if own_dtype else list(FLOATS),
            order=None if own_dtype else "C",
            ensure_all_finite=False,
        )
    if X.dtype == np.longdouble:
        with np.errstate(over="ignore"):  # overflows become infinite
            X = X.astype(np.float64)
    check_finite(X, names, name)
    if X.dtype.kind == "c":
        raise ValueError(f"Complex data not supported, got {X.dtype}.")
    return canonical(X, name)


def canonical(X: Rows, name: str = "X") -> Rows:
    """Return rows whose entries, if CSR, are sorted and without duplicates.

    Duplicates are summed. The matrix that was passed is not changed.
    """
    if sp.issparse(X) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
        if X.dtype.kind == "f" and not np.isfinite(X.data).all():
            raise ValueError(
                f"Input {name} contains infinity: duplicate entries overflow "
                f"{X.dtype}; scale {name} down."
            )
    return X


def densify(X: Rows) -> np.ndarray:
    """Return rows as a dense array."""
    return X.toarray() if sp.issparse(X) else X
