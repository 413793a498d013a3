"""Checks of what users hand in, done once at the public boundary.

Inside the library rows are a C-ordered float array or a CSR matrix. Tables
with text or categorical columns become arrays of numbers here: equal
categories get equal codes, so that a kernel that only asks whether two
categories are equal sees what it would see in the table.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn import get_config
from sklearn.preprocessing import OrdinalEncoder
from sklearn.utils import check_array, get_tags
from sklearn.utils.validation import _check_sample_weight, validate_data

from randkern._tensors import is_tensor, tensor_floats

__all__ = [
    "Rows",
    "TableEncoder",
    "canonical",
    "check_block_weights",
    "check_choice",
    "check_count",
    "check_kernel_rows",
    "check_positive",
    "check_weights",
    "column_names",
    "is_dask_collection",
    "is_device_array",
    "place_of",
    "read_tensor",
    "validate_rows",
]

FLOATS = (np.float64, np.float32)
_NUMPY_ADVICE = "pass NumPy arrays, such as tensor.numpy(force=True)."
Rows = Any  # a 2-D float ndarray or tensor, or a scipy.sparse CSR matrix


def check_positive(name: str, value: Any, *, zero: bool = False) -> float:
    """Return `value` as a finite float above zero (or at it, with `zero`)."""
    bound = "non-negative" if zero else "positive"
    if (
        isinstance(value, (bool, np.bool_))
        or not isinstance(value, numbers.Real)
        or not math.isfinite(value)
        or value < 0
        or (value == 0 and not zero)
    ):
        raise ValueError(f"{name} must be a {bound} finite number, got {value!r}.")
    return float(value)


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """Return `value` if it is one of `choices`."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {list(choices)}, got {value!r}.")
    return value


def check_count(name: str, value: Any) -> int:
    """Return `value` as a positive int."""
    if (
        isinstance(value, (bool, np.bool_))
        or not isinstance(value, numbers.Integral)
        or value < 1
    ):
        raise ValueError(f"{name} must be a positive integer, got {value!r}.")
    return int(value)


def check_weights(sample_weight: Any, X: Rows) -> np.ndarray | None:
    """Return weights of the rows of X as float64, not negative and not all 0."""
    if sample_weight is None:
        return None
    weights = _check_sample_weight(
        _weights_like(sample_weight, X),
        X,
        dtype=_floats_of(X)[0],
        ensure_non_negative=True,
    )
    if not (weights != 0).any():
        raise ValueError("every sample_weight is zero: no row is left to fit.")
    return weights


def _weights_like(sample_weight: Any, X: Rows) -> Any:
    """Return a list of weights as an array of where the rows lie."""
    sample_weight = read_tensor(sample_weight, "sample_weight")
    if is_tensor(X) and isinstance(sample_weight, (list, tuple)):
        return X.new_tensor(sample_weight, dtype=_floats_of(X)[0])
    return sample_weight


def check_block_weights(sample_weight: Any, X: Rows) -> np.ndarray | None:
    """Return weights of a block of rows, which may all be 0 if others are not."""
    if sample_weight is None:
        return None
    dtype = _floats_of(X)[0]
    weights = _weights_like(sample_weight, X)
    weights = weights if is_tensor(weights) else np.asarray(weights)
    if tuple(weights.shape) == (X.shape[0],) and not weights.any():
        # scikit-learn refuses zeros only.
        if is_tensor(X):
            return X.new_zeros(len(X), dtype=dtype)
        return np.zeros(X.shape[0])
    return _check_sample_weight(weights, X, dtype=dtype, ensure_non_negative=True)


def place_of(array: Any) -> str:
    """Return where an array lies, in words."""
    return f"a tensor on {array.device}" if is_tensor(array) else "a NumPy array"


def is_device_array(X: Any) -> bool:
    """Tell whether `X` is a tensor that is computed on where it lies.

    A tensor of the CPU is read as a NumPy array unless scikit-learn's dispatch is on.

    Raises
    ------
    TypeError
        For a tensor of another device, while dispatch is off.
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
    """Return a tensor of real numbers without its graph, as an array if it is read so.

    Everything else is returned as it is. Half precision becomes float64 in an array,
    as scikit-learn makes it.

    Raises
    ------
    ValueError
        For complex numbers.
    TypeError
        For a sparse tensor, one without values, or one of another device than the
        CPU's while dispatch is off.
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


def _check_takes_tensors(estimator: Any) -> None:
    """Raise unless an estimator computes on tensors."""
    if not get_tags(estimator).array_api_support:
        raise TypeError(f"{type(estimator).__name__} takes no tensors; {_NUMPY_ADVICE}")


def _floats_of(X: Any) -> tuple[Any, ...]:
    """Return the dtypes of rows, those of tensors for a tensor."""
    return tensor_floats() if is_device_array(X) else FLOATS


def is_table(X: Any) -> bool:
    """Tell whether `X` is a dataframe (pandas or polars)."""
    return hasattr(X, "columns") and hasattr(X, "dtypes") and hasattr(X, "shape")


def column_names(X: Any) -> list[str] | None:
    """Return the column names of a dataframe whose names are all text."""
    if not is_table(X):
        return None
    names = list(X.columns)
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"the dataframe has the column {twice[0]!r} more than once.")
    return names if all(isinstance(name, str) for name in names) else None


def _is_numeric(column: Any) -> bool:
    """Tell whether a dataframe's column holds numbers or booleans."""
    dtype = column.dtype
    if hasattr(dtype, "is_numeric"):  # polars
        return bool(dtype.is_numeric()) or str(dtype) == "Boolean"
    import pandas as pd

    numeric = pd.api.types.is_numeric_dtype(dtype)
    return numeric and not pd.api.types.is_complex_dtype(dtype)


def _as_objects(column: Any) -> np.ndarray:
    """Return a column of categories as objects, every missing value as None."""
    values = np.asarray(column.to_numpy(), dtype=object)
    missing = np.asarray(column.is_null() if hasattr(column, "is_null") else [])
    if not missing.size:
        missing = np.asarray(column.isna()) if hasattr(column, "isna") else missing
    if missing.any():
        values = values.copy()
        values[missing] = None
    return values


def _check_one_type(name: Any, values: np.ndarray) -> None:
    """Raise if a column mixes types, which have no order."""
    types = {type(value).__name__ for value in values if value is not None}
    if len(types) > 1:
        raise ValueError(
            f"column {name!r} mixes {' and '.join(sorted(types))} values; convert it "
            "to one type."
        )


@dataclass(frozen=True)
class TableEncoder:
    """Numbers for a dataframe: text and categorical columns become codes.

    Codes are 0, 1, ... in sorted order, a missing category being one of them,
    and -1 for a category that was not there when the encoder was made.
    """

    encoded: tuple[int, ...]
    names: tuple[Any, ...]
    encoder: OrdinalEncoder | None

    @classmethod
    def of(cls, X: Any) -> TableEncoder:
        """Learn the categories of the columns of `X` that are not numbers."""
        encoded = tuple(
            j for j, name in enumerate(X.columns) if not _is_numeric(X[name])
        )
        names = tuple(X.columns)
        for j in encoded:
            dtype = str(X[names[j]].dtype).lower()
            if any(word in dtype for word in ("date", "time", "duration", "complex")):
                raise ValueError(
                    f"column {names[j]!r} holds {X[names[j]].dtype} values; convert "
                    "it to real numbers, or drop it."
                )
            _check_one_type(names[j], _as_objects(X[names[j]]))
        if not encoded:
            return cls((), names, None)
        encoder = OrdinalEncoder(
            handle_unknown="use_encoded_value",
            unknown_value=-1,
            encoded_missing_value=-2,
        ).fit(cls._objects(X, encoded))
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

    def check_known(self, X: np.ndarray) -> None:
        """Raise if encoded rows hold categories that were not there at first."""
        for j in self.encoded:
            if np.any(X[:, j] == -1):
                raise ValueError(
                    f"column {self.names[j]!r} holds categories that the first block "
                    "of rows lacks; put a row of each category into the first block."
                )

    @staticmethod
    def _objects(X: Any, columns: tuple[int, ...]) -> np.ndarray:
        names = list(X.columns)
        return np.column_stack([_as_objects(X[names[j]]) for j in columns])

    def transform(self, X: Any) -> np.ndarray:
        """Return the rows of `X` as a float64 array of the same width."""
        out = np.empty(X.shape)
        for j, name in enumerate(X.columns):
            if j in self.encoded:
                continue
            if not _is_numeric(X[name]):
                raise ValueError(
                    f"column {name!r} is {X[name].dtype} here, but held numbers "
                    "when the model was fitted."
                )
            out[:, j] = np.asarray(X[name].to_numpy(), dtype=float)
        if self.encoder is not None:
            codes = self.encoder.transform(self._objects(X, self.encoded))
            out[:, list(self.encoded)] = codes
        return out


def is_dask_collection(X: Any) -> bool:
    """Tell whether X is a Dask array or dataframe, without importing Dask."""
    return type(X).__module__.split(".")[0] in ("dask", "dask_expr")


def _refuse_dask(X: Any, reader: str) -> None:
    """Raise rather than gather a Dask collection into this process."""
    if is_dask_collection(X):
        raise TypeError(
            f"{reader} reads no Dask collections; pass X.compute() if it fits in the "
            "memory of this process."
        )


def validate_rows(estimator: Any, X: Any, *, reset: bool) -> Rows:
    """Return the rows of `X` as a float array or CSR, checked for `estimator`.

    Sets (`reset`) or compares ``n_features_in_`` and ``feature_names_in_``,
    and keeps the encoder of a table's categories as ``table_encoder_``.
    """
    if hasattr(X, "__next__"):
        raise TypeError(
            f"X is a {type(X).__name__}, which can be read only once; for rows that "
            "come in blocks pass randkern.RowBlocks(make_blocks) to fit, "
            "make_blocks being a function that starts anew."
        )
    _refuse_dask(X, type(estimator).__name__)
    X = read_tensor(X)
    if is_table(X):
        column_names(X)
        if reset:
            learned = TableEncoder.of(X)
            estimator.table_encoder_ = learned if learned.encoded else None
        encoder = getattr(estimator, "table_encoder_", None)
        if encoder is not None:
            validate_data(estimator, X, reset=reset, skip_check_array=True)
            return check_array(
                encoder.transform(X), estimator=estimator, input_name="X"
            )
    elif reset:
        estimator.table_encoder_ = None
    elif getattr(estimator, "table_encoder_", None) is not None:
        raise ValueError(
            f"{type(estimator).__name__} was fitted on a dataframe with text "
            f"columns; expected a dataframe, got {type(X).__name__}."
        )
    if is_device_array(X):
        _check_takes_tensors(estimator)
        return validate_data(estimator, X, reset=reset, dtype=list(_floats_of(X)))
    X = validate_data(
        estimator, X, reset=reset, accept_sparse="csr", dtype=list(FLOATS), order="C"
    )
    return canonical(X)


def check_kernel_rows(
    X: Any, Y: Any = None, *, tensors: bool = False
) -> tuple[Rows, Rows | None, TableEncoder | None]:
    """Return the arguments of a kernel as float arrays or CSR of one dtype.

    Tensors are let through where the caller computes on them. The third is what made
    numbers of the categories of a dataframe.
    """
    encoder = None
    for each in (X, Y):
        _refuse_dask(each, "a kernel")
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
            # Categories that X lacks share a code that no row of X has.
            Y = encoder.transform(Y)
        X = encoder.transform(X)
    if is_device_array(X):
        if not tensors:
            raise TypeError(f"this takes no tensors; {_NUMPY_ADVICE}")
        return *_check_kernel_tensors(X, Y), None
    if is_tensor(Y):
        raise ValueError(
            f"X is a {type(X).__name__}, so Y must be an array, got {place_of(Y)}."
        )
    options: dict[str, Any] = {"accept_sparse": "csr", "dtype": list(FLOATS)}
    X = canonical(check_array(X, order="C", input_name="X", **options))
    if Y is None:
        return X, None, encoder
    Y = canonical(check_array(Y, order="C", input_name="Y", **options))
    _check_widths(X, Y)
    dtype = np.result_type(X.dtype, Y.dtype)
    return X.astype(dtype, copy=False), Y.astype(dtype, copy=False), encoder


def _check_widths(X: Rows, Y: Rows) -> None:
    if X.shape[1] != Y.shape[1]:
        raise ValueError(
            f"X has {X.shape[1]} columns but Y has {Y.shape[1]}: a kernel compares "
            "rows of the same width."
        )


def _check_kernel_tensors(X: Any, Y: Any) -> tuple[Rows, Rows | None]:
    """Return the arguments of a kernel as tensors of one dtype and device."""
    options: dict[str, Any] = {"dtype": list(_floats_of(X))}
    X = check_array(X, input_name="X", **options)
    if Y is None:
        return X, None
    if not is_tensor(Y) or Y.device != X.device:
        where = Y.device if is_tensor(Y) else type(Y).__name__
        raise ValueError(
            f"X is a tensor on {X.device}, so Y must be one there too, got {where}."
        )
    Y = check_array(Y, input_name="Y", **options)
    _check_widths(X, Y)
    dtype = max(X.dtype, Y.dtype, key=lambda dtype: dtype.itemsize)
    return X.to(dtype), Y.to(dtype)


def canonical(X: Rows) -> Rows:
    """Return rows whose entries, if CSR, are sorted and each there once.

    What is repeated adds up. The matrix that was passed stays as it is.
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
