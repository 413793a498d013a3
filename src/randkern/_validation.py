"""Input validation: arrays, tensors and tables as rows of numbers.

Inside the library rows are a C-ordered float array or a CSR matrix. Tables
with text or categorical columns become arrays of numbers here: equal
categories get equal codes, so a kernel that only compares categories for
equality gives the same values as on the table.
"""

from __future__ import annotations

import math
import numbers
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from reprlib import repr as shortened
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn import get_config
from sklearn.preprocessing import OrdinalEncoder
from sklearn.utils import assert_all_finite, check_array, get_tags
from sklearn.utils.validation import validate_data

from randkern._sklearn import check_sample_weight, is_pandas_na, is_scalar_nan


def is_tensor(array: Any) -> bool:
    """Return whether `array` is a PyTorch tensor, without importing PyTorch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def tensor_floats() -> tuple[Any, Any]:
    """Return the supported dtypes of tensors, the widest first."""
    torch = sys.modules["torch"]
    return torch.float64, torch.float32


# What categories may be.
_PLAIN = (str, int, float, complex, np.generic)


def is_table(X: Any) -> bool:
    """Return whether `X` is a dataframe (pandas or polars)."""
    # The shape first: asking a LazyFrame for its columns is expensive.
    return hasattr(X, "shape") and hasattr(X, "columns") and hasattr(X, "dtypes")


def column_names(X: Any) -> list[str] | None:
    """Return the column names of a dataframe if all are strings, otherwise None."""
    if not is_table(X):
        return None
    names = list(X.columns)
    if not names:
        raise ValueError(
            f"X has no columns: found 0 feature(s) (shape={X.shape}), but at least 1 "
            "is required."
        )
    twice = [name for name, n in Counter(names).items() if n > 1]
    if twice:
        raise ValueError(f"the dataframe has the column {twice[0]!r} more than once.")
    return names if all(isinstance(name, str) for name in names) else None


def is_numeric(column: Any) -> bool:
    """Return whether a dataframe's column holds numbers or booleans."""
    dtype = column.dtype
    if hasattr(dtype, "is_numeric"):  # polars
        return bool(dtype.is_numeric()) or str(dtype) == "Boolean"
    import pandas as pd

    numeric = pd.api.types.is_numeric_dtype(dtype)
    return numeric and not pd.api.types.is_complex_dtype(dtype)


def is_time(column: Any) -> bool:
    """Return whether a dataframe's column holds dates or durations."""
    dtype = str(column.dtype).lower()
    return dtype.startswith(("date", "timedelta", "duration"))


def days_of(column: Any) -> np.ndarray:
    """Return dates as days since 1970, durations as days, missing values as NaN.

    Whole days and the remainder are counted separately: int64 nanoseconds end in 2262,
    and 9999-12-31 often stands for "never".
    """
    if getattr(column.dtype, "tz", None) is not None:
        column = column.dt.tz_convert(None)
    values = np.asarray(column.to_numpy())
    if values.dtype == object:
        values = values.copy()
        values[np.asarray(column.isna(), dtype=bool)] = None
        values = values.astype("M8[us]")
    whole = values.astype(f"{values.dtype.kind}8[D]")
    days = whole.astype(np.int64) + (values - whole) / np.timedelta64(1, "D")
    return np.where(np.isnat(values), np.nan, days)


def numbers_of(column: Any) -> np.ndarray:
    """Return a column of numbers as float64, missing values as NaN."""
    if hasattr(column, "isna"):
        return np.asarray(column.to_numpy(dtype=float, na_value=np.nan))
    values = column.to_numpy()
    if values.dtype == object:  # booleans of polars with missing values
        values = np.array(column.to_list(), dtype=float)
    return np.asarray(values, dtype=float)


def check_not_infinite(name: object, values: np.ndarray) -> None:
    """Raise a ValueError that names the first row with an infinite number."""
    infinite = np.flatnonzero(np.isinf(values))
    if len(infinite):
        raise ValueError(
            f"column {name!r} contains infinity: {cell(values, infinite)}; "
            "replace it by a missing value or a large number."
        )


def count_missing(values: Any) -> int:
    """Return the number of missing values of a column, table or object array.

    NaN in a float array does not count.
    """
    if hasattr(values, "isna"):
        return int(np.asarray(values.isna()).sum())
    if hasattr(values, "null_count"):  # polars
        found = values.null_count()
        return found if isinstance(found, int) else sum(found.row(0))
    if isinstance(values, (list, tuple)):
        values = np.asarray(values)
    if not isinstance(values, np.ndarray) or values.dtype != object:
        return 0
    return sum(is_missing(value) for value in values.ravel())


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, NaT or pandas' NA."""
    return value is None or is_pandas_na(value) or is_scalar_nan(value)


def objects_of(column: Any) -> np.ndarray:
    """Return a column of categories as an object array, missing values as None.

    Values of other types than texts, numbers and booleans that can be sorted, such as
    intervals, are texts, which model files can hold.
    """
    # Categories that are integers stay such beside missing ones.
    listed = (column.astype(object) if hasattr(column, "iloc") else column).to_list()
    values = np.fromiter(listed, dtype=object, count=len(column))
    missing = column.is_null() if hasattr(column, "is_null") else column.isna()
    values[np.asarray(missing, dtype=bool)] = None
    present = {value for value in values if value is not None and _is_hashable(value)}
    if any(not isinstance(value, _PLAIN) for value in present):
        with suppress(TypeError):  # what cannot be sorted is refused later
            sorted(present)
            values[:] = [None if value is None else str(value) for value in values]
    return values


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def check_categories(name: Any, values: np.ndarray) -> None:
    """Raise if the values of a column are not categories, or cannot be sorted."""
    types = {type(value).__name__ for value in values if value is not None}
    if len(types) > 1:
        raise ValueError(
            f"column {name!r} mixes {' and '.join(sorted(types))} values; convert it "
            "to one type."
        )
    try:
        sorted({value for value in values if value is not None})
    except TypeError:
        raise ValueError(
            f"column {name!r} holds {types.pop()} values, which are neither numbers "
            "nor categories; put what they hold into columns of their own, or drop it."
        ) from None


def cell(values: Any, rows: np.ndarray) -> str:
    """Describe the value of a column in the first of `rows`, for a message."""
    row = int(rows[0])
    (value,) = np.asarray(values)[row : row + 1].tolist()
    return f"row {row:,} holds {value!r} (the first row is 0)"


def rows_of_text(values: np.ndarray) -> np.ndarray:
    """Return the positions of values that are neither missing nor parse as numbers."""

    def is_text(value: Any) -> bool:
        try:
            float(value)
        except (TypeError, ValueError):
            return value is not None
        return False

    return np.flatnonzero([is_text(value) for value in values])


def no_numbers(column: Any) -> str:
    """Describe a non-numeric column by its first text, or its dtype."""
    values = objects_of(column)
    texts = rows_of_text(values)
    return cell(values, texts) if len(texts) else f"is {column.dtype}"


def check_numeric(X: Any, since: str, encoded: tuple[int, ...] = ()) -> None:
    """Raise if a column of a table other than those in `encoded` is not numeric.

    `since` ends the message.
    """
    for j, name in enumerate(X.columns):
        if j not in encoded and not is_numeric(X[name]):
            raise ValueError(f"column {name!r} is {X[name].dtype}{since}.")


def without_sparse_columns(X: Any, *, dense: bool = False) -> Any:
    """Return a pandas table with dense columns.

    A table whose columns are all sparse with fill value 0 is returned unchanged, to
    become a CSR matrix, unless `dense` is set.
    """
    fills = {
        name: dtype.fill_value
        for name, dtype in zip(X.columns, X.dtypes, strict=True)
        if hasattr(dtype, "fill_value")
    }
    zeros = len(fills) == X.shape[1] and all(fill == 0 for fill in fills.values())
    if not fills or (zeros and not dense):
        return X
    return X.astype({name: X[name].dtype.subtype for name in fills})


def check_kind(array: Any, name: str) -> None:
    """Raise for what NumPy would silently convert: dates, records, masked entries.

    Also raise for lists with elements of different lengths.
    """
    if np.ma.is_masked(array):
        raise ValueError(
            f"{name} is a masked array with {np.ma.count_masked(array)} masked "
            "entries, whose mask is not read; leave such rows out, or impute."
        )
    if isinstance(array, (list, tuple)):
        try:
            array = np.asarray(array)
        except ValueError:
            raise ValueError(
                f"{name} is a {type(array).__name__} of parts of different lengths, "
                "expected as many numbers in each."
            ) from None
    dtype = getattr(array, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype.kind in "mMV":
        raise ValueError(
            f"{name} holds {dtype} values, expected real numbers; convert them, for "
            "instance dates to days by (dates - first) / numpy.timedelta64(1, 'D')."
        )


def check_readable(X: Any) -> None:
    """Raise if `X` holds no rows of numbers, or can be read only once."""
    if hasattr(X, "__next__"):
        raise TypeError(
            f"X is a {type(X).__name__}, which can be read only once; for rows that "
            "come in blocks pass randkern.RowBlocks(make_blocks) to fit, "
            "make_blocks being a function that starts anew."
        )
    if type(X).__name__ == "LazyFrame":
        raise TypeError("X is a LazyFrame, which holds no rows yet; pass X.collect().")
    if type(X).__module__.startswith("pyarrow"):
        raise TypeError(f"X is a {type(X).__name__} of pyarrow; pass X.to_pandas().")
    refuse_dask(X, "X")
    check_kind(X, "X")


@contextmanager
def naming_cells(X: Any) -> Iterator[None]:
    """Name the first entry of an object or string array that is not a number."""
    try:
        yield
    except (TypeError, ValueError, OverflowError) as error:
        if is_tensor(X):
            raise
        array = X if isinstance(X, np.ndarray) else np.array(X, dtype=object)
        if array.ndim != 2 or array.dtype.kind not in "OUS":
            raise
        for (i, j), value in np.ndenumerate(array):
            try:
                float(value)
            except (TypeError, ValueError, OverflowError) as cause:
                kind = TypeError if isinstance(cause, TypeError) else ValueError
                raise kind(
                    f"row {i} of column {j} of X holds {shortened(value)}, expected a "
                    f"number: {cause}. Pass a dataframe if columns hold text."
                ) from error
        raise


class NotFiniteError(ValueError):
    """An entry of X is missing or infinite; `row` is the number of its row."""

    row: int


def check_finite(X: Any, names: Sequence[Any] | None = None) -> None:
    """Raise for missing and infinite numbers, naming the position of the first."""
    try:
        assert_all_finite(X, input_name="X")
    except ValueError as error:
        if sp.issparse(X):
            entries = X.tocoo()
            bad = np.flatnonzero(~np.isfinite(entries.data))[0]
            row, column = int(entries.row[bad]), int(entries.col[bad])
        else:
            row, column = np.argwhere(~np.isfinite(X))[0].tolist()
        where = column if names is None else repr(names[column])
        advice = ""
        if "NaN" in str(error):
            advice = " Leave such rows out, or impute, as sklearn.impute.SimpleImputer."
        located = NotFiniteError(
            f"{error} The first is in row {row} of column {where}.{advice}"
        )
        located.row = row
        raise located from None


FLOATS = (np.float64, np.float32)
# Beyond this, no machine holds the features of a single row.
MAX_COMPONENTS = 10**12
_NUMPY_ADVICE = "pass NumPy arrays, such as tensor.numpy(force=True)."
_CHANGED = " here, but held numbers when the model was fitted"
Rows = Any  # a 2-D float ndarray or tensor, or a scipy.sparse CSR matrix


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
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or not 1 <= int(value) <= at_most:
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


def check_given(estimator: Any, y: Any) -> None:
    """Raise if there are no targets, with the message that scikit-learn expects."""
    if y is None:
        raise ValueError(
            f"{type(estimator).__name__} requires y to be passed, but the target y is "
            "None."
        )


def check_weights(
    sample_weight: Any, X: Rows, *, of_block: bool = False
) -> np.ndarray | None:
    """Return the weights of the rows of X as float64, non-negative.

    They must not all be 0, unless the rows are a block of others (`of_block`).
    """
    if sample_weight is None:
        return None
    weights: Any = read_tensor(sample_weight, "sample_weight")
    check_kind(weights, "sample_weight")
    dtype = _floats_of(X)[0]
    if is_tensor(X) and isinstance(weights, (list, tuple)):
        weights = X.new_tensor(weights, dtype=dtype)
    if of_block:
        weights = weights if is_tensor(weights) else np.asarray(weights)
        if tuple(weights.shape) == (X.shape[0],) and not weights.any():
            # scikit-learn refuses weights that are all 0.
            n = X.shape[0]
            return X.new_zeros(n, dtype=dtype) if is_tensor(X) else np.zeros(n)
    weights = check_sample_weight(weights, X, dtype=dtype, ensure_non_negative=True)
    with np.errstate(over="ignore"):
        total = float(weights.sum())
    if not math.isfinite(total):
        raise ValueError(
            f"sample_weight of up to {float(weights.max()):.3g} adds up to more than "
            "the largest float; divide the weights by a number, and alpha as well (or "
            "multiply C by it)."
        )
    if not (weights != 0).any():
        raise ValueError("every sample_weight is zero: no row is left to fit.")
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


def read_tensor(array: Any, name: str = "X") -> Any:
    """Return a real tensor detached, or as a NumPy array if dispatch is off.

    Everything else is returned unchanged. Half precision becomes a float64 array, as
    in scikit-learn. Complex numbers raise a ValueError; a sparse tensor, a meta tensor,
    or one that is not on the CPU while dispatch is off, a TypeError.
    """
    if not is_tensor(array):
        return array
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
            raise TypeError(f"{name} is a tensor on meta, which holds no values.")
        return array
    half = array.is_floating_point() and array.dtype.itemsize < 4
    return (array.double() if half else array).numpy(force=True)


def _floats_of(X: Any) -> tuple[Any, ...]:
    """Return the supported dtypes for rows like X."""
    return tensor_floats() if is_device_array(X) else FLOATS


def _columns_of_objects(X: Any, columns: tuple[int, ...]) -> np.ndarray:
    return np.column_stack([objects_of(X[X.columns[j]]) for j in columns])


@dataclass(frozen=True)
class TableEncoder:
    """Encodes a dataframe as numbers: text and categorical columns become codes.

    Codes are 0, 1, ... in sorted order, with one for a missing category, and -1
    for a category that was not in the table the encoder learned from.
    """

    encoded: tuple[int, ...]
    names: tuple[Any, ...]
    encoder: OrdinalEncoder | None

    @classmethod
    def of(cls, X: Any) -> TableEncoder:
        """Learn the categories of the columns of `X` that are not numeric."""
        names = tuple(X.columns)
        encoded = tuple(j for j, name in enumerate(names) if not is_numeric(X[name]))
        for j in encoded:
            dtype = str(X[names[j]].dtype).lower()
            if any(word in dtype for word in ("date", "time", "duration", "complex")):
                raise ValueError(
                    f"column {names[j]!r} holds {X[names[j]].dtype} values; convert "
                    "it to real numbers, or drop it."
                )
            check_categories(names[j], objects_of(X[names[j]]))
        if not encoded:
            return cls((), names, None)
        encoder = OrdinalEncoder(
            handle_unknown="use_encoded_value",
            unknown_value=-1,
            encoded_missing_value=-2,
        ).fit(_columns_of_objects(X, encoded))
        return cls(encoded, names, encoder)

    def check_numbers(self, columns: tuple[int, ...], reader: Any) -> None:
        """Raise if `reader`, which needs numbers, reads categories."""
        text = sorted(set(columns) & set(self.encoded))
        if text:
            raise ValueError(
                f"column {self.names[text[0]]!r} holds categories, but {reader} needs "
                "numbers; restrict the kernel with columns=, and use "
                "Categorical(columns=...) for the others."
            )

    def n_categories(self, column: int) -> int | None:
        """Return the number of categories of a column, not counting a missing one.

        None for a numeric column.
        """
        if column not in self.encoded or self.encoder is None:
            return None
        categories = self.encoder.categories_[self.encoded.index(column)]
        return sum(category is not None for category in categories)

    def check_known(self, X: np.ndarray) -> None:
        """Raise if encoded rows hold unknown categories."""
        for j in self.encoded:
            if np.any(X[:, j] == -1):
                raise ValueError(
                    f"column {self.names[j]!r} holds categories that the first block "
                    "of rows lacks; put a row of each category into the first block."
                )

    def transform(self, X: Any) -> np.ndarray:
        """Return the rows of `X` as a float64 array of the same width."""
        check_numeric(X, _CHANGED, self.encoded)
        out = np.empty(X.shape)
        for j, name in enumerate(X.columns):
            if j not in self.encoded:
                out[:, j] = numbers_of(X[name])
        if self.encoder is not None:
            self._check_texts(X)
            objects = _columns_of_objects(X, self.encoded)
            out[:, list(self.encoded)] = self.encoder.transform(objects)
        return out

    def _check_texts(self, X: Any) -> None:
        """Raise if a column of texts holds numbers: all would be unknown categories."""
        assert self.encoder is not None
        names = list(X.columns)
        for j, known in zip(self.encoded, self.encoder.categories_, strict=True):
            column = X[names[j]]
            texts = [value for value in known if value is not None]
            if not is_numeric(column) or not all(isinstance(v, str) for v in texts):
                continue
            # A column of missing values may have any dtype.
            if texts and not all(v is None for v in objects_of(column)):
                raise ValueError(
                    f"column {names[j]!r} is {column.dtype} here, but held text when "
                    "the model was fitted; convert it to text."
                )


def is_dask_collection(X: Any) -> bool:
    """Return whether X is a Dask array or dataframe, without importing Dask."""
    return type(X).__module__.split(".")[0] in ("dask", "dask_expr")


def refuse_dask(X: Any, name: str) -> None:
    """Raise rather than gather a Dask collection into this process."""
    if is_dask_collection(X):
        raise TypeError(
            f"{name} is a Dask {type(X).__name__}, but no Dask collections are read "
            f"here; pass {name}.compute() if it fits in the memory of this process."
        )


def check_column_order(estimator: Any, X: Any, *, reset: bool) -> None:
    """Store or compare the names of a dataframe's columns if some are no strings.

    scikit-learn compares names only if all are strings; others, such as the integers
    of ``pd.DataFrame(array)``, would be taken by position.
    """
    names = [str(name) for name in X.columns] if is_table(X) else None
    if reset:
        vars(estimator).pop("_column_names", None)
        if names is not None and not all(isinstance(name, str) for name in X.columns):
            estimator._column_names = names
        return
    fitted = getattr(estimator, "_column_names", None)
    if fitted is None or names is None or names == fitted:
        return
    others = [name for name in names if name not in fitted]
    if others:
        problem = f"has columns that it lacked, such as {others[0]!r}"
    elif len(names) < len(fitted):
        problem = "lacks some of its columns"
    else:
        problem = "has its columns in another order"
    raise ValueError(
        f"X {problem}: {type(estimator).__name__} was fitted to the columns "
        f"{', '.join(fitted[:10])}; pass X[columns] with these, in this order."
    )


def validate_rows(estimator: Any, X: Any, *, reset: bool) -> Rows:
    """Return the rows of `X` as a float array or CSR, checked for `estimator`.

    Sets (`reset`) or compares ``n_features_in_`` and ``feature_names_in_``,
    and stores the encoder of a table's categories as ``table_encoder_``.
    """
    check_readable(X)
    X = read_tensor(X)
    names = None
    check_column_order(estimator, X, reset=reset)
    if is_table(X):
        column_names(X)  # raises for names that are there twice
        if reset:
            learned = TableEncoder.of(X)
            estimator.table_encoder_ = learned if learned.encoded else None
        encoder = getattr(estimator, "table_encoder_", None)
        if encoder is not None:
            validate_data(estimator, X, reset=reset, skip_check_array=True)
            X = check_array(encoder.transform(X), ensure_all_finite=False)
            check_finite(X, encoder.names)
            return X
        names = list(X.columns)
        check_numeric(X, _CHANGED)
        X = without_sparse_columns(X)
    elif reset:
        estimator.table_encoder_ = None
    elif getattr(estimator, "table_encoder_", None) is not None:
        raise ValueError(
            f"{type(estimator).__name__} was fitted on a dataframe with text "
            f"columns; expected a dataframe, got {type(X).__name__}."
        )
    if is_device_array(X):
        if not get_tags(estimator).array_api_support:
            raise TypeError(
                f"{type(estimator).__name__} takes no tensors; {_NUMPY_ADVICE}"
            )
        return validate_data(estimator, X, reset=reset, dtype=list(_floats_of(X)))
    options: dict[str, Any] = {"accept_sparse": "csr", "dtype": list(FLOATS)}
    with naming_cells(X):
        X = validate_data(
            estimator, X, reset=reset, order="C", ensure_all_finite=False, **options
        )
    check_finite(X, names)
    return canonical(X)


def validate_numbers(
    estimator: Any, X: Any, *, reset: bool, sparse: bool = False
) -> Any:
    """Return rows in their own numeric dtype, as an array or (`sparse`) CSR.

    Sets or compares the attributes as `validate_rows` does; tables must be numeric.
    """
    check_readable(X)
    X, names = read_tensor(X), None
    check_column_order(estimator, X, reset=reset)
    if is_table(X):
        column_names(X)
        check_numeric(X, ", expected numbers")
        names = list(X.columns)
        X = without_sparse_columns(X, dense=not sparse)
    accepted = "csr" if sparse else False
    options: dict[str, Any] = {"accept_sparse": accepted, "dtype": "numeric"}
    with naming_cells(X):
        X = validate_data(estimator, X, reset=reset, ensure_all_finite=False, **options)
    if X.dtype == np.longdouble:
        with np.errstate(over="ignore"):  # overflows become infinite
            X = X.astype(np.float64)
    check_finite(X, names)
    if X.dtype.kind == "c":
        raise ValueError(f"Complex data not supported, got {X.dtype}.")
    return canonical(X)


def check_kernel_rows(
    X: Any, Y: Any = None, *, tensors: bool = False
) -> tuple[Rows, Rows | None, TableEncoder | None]:
    """Return the arguments of a kernel as float arrays or CSR of one dtype.

    With `tensors`, tensors are accepted. The third value is the encoder of the
    categories of a dataframe.
    """
    encoder = None
    check_readable(X)
    refuse_dask(Y, "Y")
    check_kind(Y, "Y")
    X, Y = read_tensor(X), read_tensor(Y, "Y")
    if is_table(X):
        encoder = TableEncoder.of(X)
        if Y is not None:
            if not is_table(Y):
                raise ValueError(
                    f"X is a dataframe, so Y must be one too, got {type(Y).__name__}."
                )
            if list(Y.columns) != list(X.columns):
                raise ValueError(
                    f"X has the columns {list(X.columns)}, but Y has "
                    f"{list(Y.columns)}; they must be the same, in the same order."
                )
            # Categories that X lacks share the code -1, which no row of X has.
            Y = encoder.transform(Y)
        X = encoder.transform(X)
    options: dict[str, Any] = {"dtype": list(_floats_of(X))}
    if is_device_array(X):
        if not tensors:
            raise TypeError(f"this takes no tensors; {_NUMPY_ADVICE}")
        if Y is not None and (not is_tensor(Y) or Y.device != X.device):
            where = Y.device if is_tensor(Y) else type(Y).__name__
            raise ValueError(
                f"X is a tensor on {X.device}, so Y must be one there too, got {where}."
            )
    else:
        options |= {"accept_sparse": "csr", "order": "C"}
        if is_tensor(Y):
            raise ValueError(
                f"X is a {type(X).__name__}, so Y must be an array, got {place_of(Y)}."
            )
    with naming_cells(X):
        X = canonical(check_array(X, input_name="X", **options))
    if Y is None:
        return X, None, encoder
    Y = canonical(check_array(Y, input_name="Y", **options))
    if X.shape[1] != Y.shape[1]:
        raise ValueError(
            f"X has {X.shape[1]} columns but Y has {Y.shape[1]}: a kernel compares "
            "rows of the same width."
        )
    dtype = max(X.dtype, Y.dtype, key=lambda dtype: dtype.itemsize)
    if is_tensor(X):
        return X.to(dtype), Y.to(dtype), None
    return X.astype(dtype, copy=False), Y.astype(dtype, copy=False), encoder


def canonical(X: Rows) -> Rows:
    """Return rows whose entries, if CSR, are sorted and without duplicates.

    Duplicates are summed. The matrix that was passed is not changed.
    """
    if sp.issparse(X) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
        if X.dtype.kind == "f" and not np.isfinite(X.data).all():
            raise ValueError(
                "Input X contains infinity: entries that are there more than once "
                f"add up to more than {X.dtype} holds; scale X down."
            )
    return X


def densify(X: Rows) -> np.ndarray:
    """Return rows as a dense array."""
    return X.toarray() if sp.issparse(X) else X
