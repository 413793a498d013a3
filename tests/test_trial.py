"""Odd input to all estimators: a right answer, a named error, or a warning.

Hypothesis puts together rows, targets, weights and parameters of many kinds. Each
kind says what it means in plain numbers, if anything, and whether models must take it.
What is taken must give what its plain numbers give; what is refused must be refused by
an error that says why; nothing else may come out.
"""

import importlib.util
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.linalg import LinAlgError
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline

import randkern as rk
from randkern import exceptions, optics

N_ROWS, N_COLUMNS, N_COMPONENTS = 24, 3, 16


@dataclass(frozen=True)
class Odd:
    """An argument: what it means in plain numbers, and whether it must be taken.

    `taken` is True, False, or None where either will do.
    """

    value: Any
    meaning: Any = None
    taken: bool | None = None


def good(value: Any, meaning: Any) -> Odd:
    return Odd(value, meaning, True)


def bad(value: Any) -> Odd:
    return Odd(value, None, False)


# -- rows ---------------------------------------------------------------------------


def _rng() -> np.random.Generator:
    return np.random.default_rng(17)


def _plain_rows() -> np.ndarray:
    # Eighths: no rounding in half precision, and zeros for sparse kinds.
    X = np.round(_rng().normal(size=(N_ROWS, N_COLUMNS)) * 8) / 8
    X[np.abs(X) < 0.4] = 0.0
    return X


def _read_only(X: np.ndarray) -> np.ndarray:
    X = X.copy()
    X.flags.writeable = False
    return X


def _memory_map(X: np.ndarray) -> np.ndarray:
    import tempfile

    mapped = np.memmap(tempfile.TemporaryFile(), dtype=X.dtype, shape=X.shape)
    mapped[:] = X
    return mapped


def _twice(X: np.ndarray) -> sp.csr_matrix:
    """Return rows as CSR whose entries are each given as two halves."""
    once = sp.csr_matrix(X)
    return sp.csr_matrix(
        (np.repeat(once.data / 2, 2), np.repeat(once.indices, 2), 2 * once.indptr),
        X.shape,
    )


def _unsorted(X: np.ndarray) -> sp.csr_matrix:
    once = sp.csr_matrix(X)
    for start, stop in zip(once.indptr, once.indptr[1:], strict=False):
        once.indices[start:stop] = once.indices[start:stop][::-1].copy()
        once.data[start:stop] = once.data[start:stop][::-1].copy()
    once.has_sorted_indices = False
    return once


def _with(X: np.ndarray, value: float) -> np.ndarray:
    X = X.copy()
    X[3, 1] = value
    return X


def _frame(X: np.ndarray, **options: Any) -> pd.DataFrame:
    return pd.DataFrame(X, columns=list("abc"), **options)


def _with_column(X: np.ndarray, column: Any, name: str = "b") -> pd.DataFrame:
    frame = _frame(X)
    frame[name] = column
    return frame


def _sparse_frame(X: np.ndarray, fill: float) -> pd.DataFrame:
    return _frame(X).astype(pd.SparseDtype(float, fill))


def _mixed_sparse_frame(X: np.ndarray) -> pd.DataFrame:
    return _frame(X).astype({"a": pd.SparseDtype(float, 0.0)})


SAME_ROWS: dict[str, Callable[[np.ndarray], Any]] = {
    "C order": np.ascontiguousarray,
    "Fortran order": np.asfortranarray,
    "strided": lambda X: np.repeat(np.repeat(X, 2, axis=0), 2, axis=1)[::2, ::2],
    "backwards": lambda X: X[::-1].copy()[::-1],
    "read-only": _read_only,
    "memory map": _memory_map,
    "float16": lambda X: X.astype(np.float16),
    "long double": lambda X: X.astype(np.longdouble),
    "big endian": lambda X: X.astype(">f8"),
    "objects": lambda X: X.astype(object),
    "lists": lambda X: X.tolist(),
    "tuples": lambda X: tuple(map(tuple, X)),
    "list of arrays": list,
    "nothing masked": np.ma.masked_array,
    "csr array": sp.csr_array,
    "csc": sp.csc_matrix,
    "coo": sp.coo_array,
    "bsr": sp.bsr_matrix,
    "lil": sp.lil_matrix,
    "dok": sp.dok_array,
    "dia": sp.dia_matrix,
    "csr with entries twice": _twice,
    "csr unsorted": _unsorted,
    "pandas": _frame,
    "pandas, odd index": lambda X: _frame(X, index=[7] * (len(X) - 1) + [-1]),
    "pandas nullable": lambda X: _frame(X).astype("Float64"),
    "pandas sparse": lambda X: _sparse_frame(X, 0.0),
    "pandas sparse with NaN left out": lambda X: _sparse_frame(X, np.nan),
    "pandas partly sparse": _mixed_sparse_frame,
    "pandas, numbers for names": pd.DataFrame,
    "polars": lambda X: pl.DataFrame(X, schema=list("abc")),
}
if importlib.util.find_spec("torch"):
    import torch

    SAME_ROWS["tensor"] = torch.as_tensor
    SAME_ROWS["tensor with a graph"] = lambda X: torch.tensor(X, requires_grad=True)

ROUNDED_ROWS: dict[str, Callable[[np.ndarray], Any]] = {
    "float32": lambda X: X.astype(np.float32),
    "integers": lambda X: (8 * X).astype(int),
    "int8": lambda X: (8 * X).astype(np.int8),
    "uint64": lambda X: (64 + 8 * X).astype(np.uint64),
    "booleans": lambda X: X > 0,
    "csr of booleans": lambda X: sp.csr_matrix(X > 0),
    "pandas integers": lambda X: _frame((8 * X).astype(int)),
    "pandas nullable integers": lambda X: _frame(8 * X).astype("Int64"),
    "pandas booleans": lambda X: _frame(X > 0).astype("boolean"),
}

EXTREME_ROWS: dict[str, Callable[[np.ndarray], Any]] = {
    "huge": lambda X: 1e300 * X,
    "tiny": lambda X: 1e-310 * X,
    "huge float32": lambda X: (1e37 * X).astype(np.float32),
    "tiny float32": lambda X: (1e-41 * X).astype(np.float32),
    "one huge entry": lambda X: _with(X, 1e300),
    "offset": lambda X: X + 1e12,
    "constant": lambda X: np.ones_like(X),
    "zeros": np.zeros_like,
    "sparse zeros": lambda X: sp.csr_matrix(X.shape),
    "equal rows": lambda X: np.tile(X[:1], (len(X), 1)),
    "one column": lambda X: X[:, :1],
}

OTHER_ROWS: dict[str, Callable[[np.ndarray], Any]] = {
    "categories": lambda X: _with_column(X, pd.Categorical(["u", "v"] * 12)),
    "text column": lambda X: _with_column(X, ["u", "v"] * 12),
    "text with None": lambda X: _with_column(X, ["u", None] * 12),
    "numbers as objects": lambda X: _frame(X).astype(object),
    "numbers as text": lambda X: X.astype(str),
    "polars categories": lambda X: pl.DataFrame({"a": X[:, 0], "b": ["u", "v"] * 12}),
    "mixed names": lambda X: pd.DataFrame(X, columns=["a", 1, "c"]),
    "one row": lambda X: X[:1],
    "long double beyond": lambda X: _with(
        X.astype(np.longdouble), np.longdouble("1e400")
    ),
    "two rows": lambda X: X[:2],
    "too many rows": lambda X: np.vstack([X, X]),
}

BAD_ROWS: dict[str, Callable[[np.ndarray], Any]] = {
    "None": lambda X: None,
    "0-d": lambda X: np.float64(1.0),
    "1-d": lambda X: X[:, 0],
    "3-d": lambda X: X[:, :, None],
    "no rows": lambda X: X[:0],
    "no columns": lambda X: X[:, :0],
    "sparse, no rows": lambda X: sp.csr_matrix((0, 3)),
    "sparse, no columns": lambda X: sp.csr_matrix((N_ROWS, 0)),
    "pandas, no columns": lambda X: _frame(X)[[]],
    "pandas, no rows": lambda X: _frame(X)[:0],
    "polars, no columns": lambda X: pl.DataFrame(),
    "empty list": lambda X: [],
    "list of empty lists": lambda X: [[]] * N_ROWS,
    "ragged": lambda X: [[1.0, 2.0], [3.0]] * 12,
    "NaN": lambda X: _with(X, np.nan),
    "infinity": lambda X: _with(X, np.inf),
    "NaN in CSR": lambda X: sp.csr_matrix(_with(X, np.nan)),
    "NaN in pandas": lambda X: _frame(_with(X, np.nan)),
    "NA in pandas": lambda X: _frame(_with(X, np.nan)).astype("Float64"),
    "NaN in polars": lambda X: pl.DataFrame(_with(X, np.nan)),
    "null in polars": lambda X: pl.DataFrame({"a": [None, *X[1:, 0]], "b": X[:, 1]}),
    "None among objects": lambda X: _with(X.astype(object), None),
    "masked": lambda X: np.ma.masked_array(X, X > 0),
    "an integer beyond": lambda X: _with(X.astype(object), 10**400),
    "complex": lambda X: X + 1j,
    "complex pandas": lambda X: _frame(X + 1j),
    "text": lambda X: np.array([["u", "v", "w"]] * N_ROWS),
    "bytes": lambda X: np.array([[b"u", b"v", b"w"]] * N_ROWS),
    "dates": lambda X: X.astype("datetime64[s]"),
    "durations": lambda X: X.astype("timedelta64[s]"),
    "dates in pandas": lambda X: _with_column(X, pd.date_range("2020", periods=N_ROWS)),
    "dates in polars": lambda X: pl.DataFrame(
        {"a": X[:, 0], "b": pd.date_range("2020", periods=N_ROWS).to_numpy()}
    ),
    "records": lambda X: np.zeros(N_ROWS, dtype=[("a", float), ("b", float)]),
    "lists in cells": lambda X: _with_column(X, [[1, 2]] * N_ROWS),
    "dicts in cells": lambda X: _with_column(X, [{"u": 1}] * N_ROWS),
    "arrays in cells": lambda X: _with_column(X, [np.ones(2)] * N_ROWS),
    "lists in polars": lambda X: pl.DataFrame({"a": X[:, 0], "b": [[1, 2]] * N_ROWS}),
    "structs in polars": lambda X: pl.DataFrame(
        {"a": X[:, 0], "b": [{"u": 2}] * N_ROWS}
    ),
    "objects in cells": lambda X: np.full(X.shape, object()),
    "lazy": lambda X: pl.DataFrame(X).lazy(),
    "names twice": lambda X: pd.DataFrame(X, columns=list("aab")),
    "a generator": lambda X: (row for row in X),
    "a set": lambda X: {1.0, 2.0},
    "a dict": lambda X: {"a": X[:, 0]},
    "a string": lambda X: "rows.csv",
    "a model": lambda X: rk.RandomFeatures(),
    "a Series": lambda X: pd.Series(X[:, 0]),
    "a polars Series": lambda X: pl.Series(X[:, 0]),
}


def _rows_of(name: str) -> Odd:
    X = _plain_rows()
    if name in SAME_ROWS:
        return good(SAME_ROWS[name](X), X)
    if name in ROUNDED_ROWS:
        value = ROUNDED_ROWS[name](X)
        dense = value.toarray() if sp.issparse(value) else np.asarray(value)
        return good(value, dense.astype(np.float32 if name == "float32" else float))
    if name in EXTREME_ROWS:
        value = EXTREME_ROWS[name](X)
        return Odd(value, value.toarray() if sp.issparse(value) else value)
    return bad(BAD_ROWS[name](X)) if name in BAD_ROWS else Odd(OTHER_ROWS[name](X))


# -- targets ------------------------------------------------------------------------


def _real() -> np.ndarray:
    X = _plain_rows()
    return X[:, 0] + np.sin(X[:, 1]) + 0.1 * _rng().normal(size=N_ROWS)


def _labels(n_classes: int = 2) -> np.ndarray:
    return np.argsort(np.argsort(_real())) * n_classes // N_ROWS


SAME_TARGETS: dict[str, Callable[[np.ndarray], Any]] = {
    "array": lambda y: y,
    "list": lambda y: y.tolist(),
    "tuple": tuple,
    "read-only": _read_only,
    "strided": lambda y: np.repeat(y, 3)[::3],
    "objects": lambda y: y.astype(object),
    "pandas": pd.Series,
    "pandas, odd index": lambda y: pd.Series(y, index=[3] * N_ROWS),
    "polars": pl.Series,
}

REAL_TARGETS: dict[str, Callable[[np.ndarray], Odd]] = {
    **{name: lambda y, f=f: good(f(y), y) for name, f in SAME_TARGETS.items()},
    "nullable": lambda y: good(pd.Series(y, dtype="Float64"), y),
    "a column": lambda y: good(y[:, None], y[:, None]),
    "frame of a column": lambda y: good(pd.DataFrame({"y": y}), y[:, None]),
    "two": lambda y: good(np.c_[y, -y], np.c_[y, -y]),
    "polars frame": lambda y: good(pl.DataFrame({"y": y, "z": -y}), np.c_[y, -y]),
    "integers": lambda y: good((9 * y).astype(int), (9 * y).astype(int)),
    "booleans": lambda y: good(y > 0, (y > 0) * 1.0),
    "constant": lambda y: good(np.ones(N_ROWS), np.ones(N_ROWS)),
    "zeros": lambda y: good(np.zeros(N_ROWS), np.zeros(N_ROWS)),
    "uint64": lambda y: Odd((9e18 + 1e18 * y).astype(np.uint64), 9e18 + 1e18 * y),
    "offset": lambda y: Odd(y + 1e9, y + 1e9),
    "huge": lambda y: Odd(1e200 * y, 1e200 * y),
    "near the largest": lambda y: Odd(1e307 * y, 1e307 * y),
    "tiny": lambda y: Odd(1e-310 * y, 1e-310 * y),
    "one huge": lambda y: Odd(np.r_[1e300, y[1:]], np.r_[1e300, y[1:]]),
    "text of numbers": lambda y: Odd(y.astype(str)),
    "None": lambda y: bad(None),
    "NaN": lambda y: bad(np.r_[np.nan, y[1:]]),
    "infinity": lambda y: bad(np.r_[-np.inf, y[1:]]),
    "NA": lambda y: bad(pd.Series([pd.NA, *y[1:]], dtype="Float64")),
    "NA among objects": lambda y: bad(pd.Series([pd.NA, *y[1:]], dtype=object)),
    "null": lambda y: bad(pl.Series([None, *y[1:]])),
    "None among objects": lambda y: bad(np.array([None, *y[1:]], dtype=object)),
    "text": lambda y: bad(np.array(["u", "v"] * 12)),
    "complex": lambda y: bad(y + 1j),
    "dates": lambda y: bad(y.astype("datetime64[s]")),
    "too short": lambda y: bad(y[:-1]),
    "too long": lambda y: bad(np.r_[y, 0.0]),
    "a number": lambda y: bad(1.0),
    "3-d": lambda y: bad(y[:, None, None]),
    "no columns": lambda y: bad(np.empty((N_ROWS, 0))),
    "a generator": lambda y: bad(value for value in y),
    "lists": lambda y: bad([[1.0], [1.0, 2.0]] * 12),
}


def _text(y: np.ndarray) -> np.ndarray:
    return np.array(["u", "v", "w"])[y]


CLASS_TARGETS: dict[str, Callable[[np.ndarray], Odd]] = {
    **{name: lambda y, f=f: good(f(y), y) for name, f in SAME_TARGETS.items()},
    "objects": lambda y: Odd(y.astype(object), y),
    "int8": lambda y: good(y.astype(np.int8), y),
    "floats": lambda y: good(y.astype(float), y),
    "negative": lambda y: good(y - 1, y),
    "booleans": lambda y: good(y > 0, y),
    "text": lambda y: good(_text(y), y),
    "list of text": lambda y: good(_text(y).tolist(), y),
    "text as objects": lambda y: good(_text(y).astype(object), y),
    "categories": lambda y: good(pd.Series(pd.Categorical(_text(y))), y),
    "pandas text": lambda y: good(pd.Series(_text(y), dtype="string"), y),
    "polars text": lambda y: good(pl.Series(_text(y).tolist()), y),
    "nullable": lambda y: good(pd.Series(y, dtype="Int64"), y),
    "uint64": lambda y: good(2**64 - 2 + y.astype(np.uint64), y),
    "a column": lambda y: Odd(y[:, None], y),
    "three": lambda y: good(_labels(3), _labels(3)),
    "all different": lambda y: Odd(np.arange(N_ROWS), np.arange(N_ROWS)),
    "one of a class": lambda y: Odd(np.r_[7, y[1:]], np.r_[7, y[1:]]),
    "dates": lambda y: Odd(y.astype("datetime64[s]"), y),
    "None": lambda y: bad(None),
    "one class": lambda y: bad(np.zeros(N_ROWS, dtype=int)),
    "one text": lambda y: bad(["u"] * N_ROWS),
    "continuous": lambda y: bad(_real()),
    "NaN": lambda y: bad(np.r_[np.nan, y[1:]]),
    "infinity": lambda y: bad(np.r_[np.inf, y[1:]]),
    "NA": lambda y: bad(pd.Series([pd.NA, *y[1:]], dtype="Int64")),
    "NA in text": lambda y: bad(pd.Series([pd.NA, *_text(y)[1:]], dtype="string")),
    "null": lambda y: bad(pl.Series([None, *y[1:].tolist()])),
    "None in text": lambda y: bad([None, *_text(y)[1:].tolist()]),
    "mixed types": lambda y: bad(np.array([1, "u"] * 12, dtype=object)),
    "complex": lambda y: bad(y + 1j),
    "too short": lambda y: bad(y[:-1]),
    "too long": lambda y: bad(np.r_[y, 0]),
    "a number": lambda y: bad(1),
    "several labels a row": lambda y: bad(np.c_[y, 1 - y]),
    "lists": lambda y: bad([[1], [1, 2]] * 12),
    "a generator": lambda y: bad(value for value in y),
}


# -- weights ------------------------------------------------------------------------


def _weights_of(name: str) -> Odd:
    w = _rng().uniform(0.5, 1.5, N_ROWS)
    return WEIGHTS[name](w)


WEIGHTS: dict[str, Callable[[np.ndarray], Odd]] = {
    "none": lambda w: good(None, None),
    "array": lambda w: good(w, w),
    "list": lambda w: good(w.tolist(), w),
    "integers": lambda w: good(np.arange(1, N_ROWS + 1), np.arange(1.0, N_ROWS + 1)),
    "pandas, odd index": lambda w: good(pd.Series(w, index=[1] * N_ROWS), w),
    "polars": lambda w: good(pl.Series(w), w),
    "a number": lambda w: good(2.0, np.full(N_ROWS, 2.0)),
    "a zero": lambda w: good(np.r_[0.0, w[1:]], np.r_[0.0, w[1:]]),
    "booleans": lambda w: Odd(w > 0.7, (w > 0.7) * 1.0),
    "one row": lambda w: Odd(np.eye(N_ROWS)[3], np.eye(N_ROWS)[3]),
    "huge": lambda w: Odd(1e300 * w, 1e300 * w),
    "too huge": lambda w: Odd(1e308 * w, 1e308 * w),
    "tiny": lambda w: Odd(1e-300 * w, 1e-300 * w),
    "least": lambda w: Odd(np.full(N_ROWS, 5e-324), np.full(N_ROWS, 5e-324)),
    "one huge": lambda w: Odd(np.r_[1e12, w[1:]], np.r_[1e12, w[1:]]),
    "zeros": lambda w: bad(0 * w),
    "zero": lambda w: bad(0.0),
    "negative": lambda w: bad(-w),
    "one negative": lambda w: bad(np.r_[-1.0, w[1:]]),
    "NaN": lambda w: bad(np.r_[np.nan, w[1:]]),
    "infinity": lambda w: bad(np.r_[np.inf, w[1:]]),
    "None inside": lambda w: bad([None, *w[1:]]),
    "NA": lambda w: bad(pd.Series([pd.NA, *w[1:]], dtype="Float64")),
    "too short": lambda w: bad(w[:-1]),
    "a column": lambda w: bad(w[:, None]),
    "text": lambda w: bad(["u"] * N_ROWS),
    "a word": lambda w: bad("balanced"),
    "complex": lambda w: bad(w + 1j),
    "durations": lambda w: bad(w.astype("timedelta64[s]")),
}

# -- estimators ---------------------------------------------------------------------


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Return nothing, as no scorer should."""


KERNELS: list[Any] = [
    rk.Gaussian("median"),
    rk.Gaussian(2.0),
    rk.Gaussian([1.0, 2.0, 3.0]),
    rk.Gaussian(1e-200),
    rk.Gaussian(1e200),
    rk.Gaussian(columns=[0]),
    rk.Gaussian(columns=["a"]),
    rk.Gaussian(columns=[7]),
    rk.Gaussian(columns=[]),
    rk.Gaussian(np.nan),
    rk.Gaussian(-1.0),
    rk.Gaussian("foo"),
    rk.Gaussian(None),
    rk.Laplacian("scale"),
    rk.Cauchy(1.0),
    rk.Matern(nu=2.5),
    rk.Matern(nu=1e300),
    rk.RationalQuadratic(alpha=0.5),
    rk.RationalQuadratic(alpha=1e-300),
    rk.Linear(),
    rk.Optical(),
    rk.Optical(degree=40),
    rk.Optical(degree=1e300),
    rk.Compositional(),
    rk.Compositional(rk.skeletons.FullyConnected(10**9)),
    rk.Categorical(),
    rk.Gaussian(columns=[0, 2]) * rk.Categorical(columns=[1]),
    rk.Gaussian(2.0) + rk.Linear(),
    rk.Scaled(rk.Gaussian(2.0), 1e300),
    rk.Scaled(rk.Gaussian(2.0), 1e-300),
    1e-3 * rk.Gaussian(1.0),
    rk.Gaussian,
    "gaussian",
]
VALUES: list[Any] = [
    *(None, True, False, -1, 0, 1, 2, 5, 2**63, 10**30, -(2**63)),
    *(0.0, 0.5, 2.5, -1.0, 1e-300, 1e300, np.nan, np.inf, -np.inf),
    *("", "a", "auto", "1GB", "nan", [], [1.0], [0.0], ["a"], (), {}, {0: 1.0}),
    *({0: "a"}, {0: -1.0}, {0: np.nan}, {7: 1.0}, "balanced", "median", [np.nan]),
    *(np.float64(0.5), np.int64(3), np.array([0.1, 1.0]), np.array(2.0)),
    *(object(), _nothing, int, 1j, b"a", [(1, 2)], [1, 2]),
]
# Work that grows with a number: as many as are asked for.
ENDLESS = ("n_restarts_optimizer",)

# Whose answers are those of a search, or of few digits.
LOOSE = ("svc", "svc, exact", "process, learned")

SIZES: dict[str, Any] = {"n_components": N_COMPONENTS, "random_state": 0}
ESTIMATORS: dict[str, Callable[[], Any]] = {
    "features": lambda: rk.RandomFeatures(**SIZES),
    "landmarks": lambda: rk.NystromFeatures(**SIZES),
    "metric": lambda: rk.MetricLearner(n_iterations=1, **SIZES),
    "ridge, landmarks": lambda: rk.KernelRidgeRegressor(features="nystrom", **SIZES),
    "ridge": lambda: rk.KernelRidgeRegressor(**SIZES),
    "ridge, intercept": lambda: rk.KernelRidgeRegressor(fit_intercept=True, **SIZES),
    "ridge, many": lambda: rk.KernelRidgeRegressor(n_components=60, random_state=0),
    "ridge, exact": lambda: rk.KernelRidgeRegressor(n_components=None),
    "ridge, pcg": lambda: rk.KernelRidgeRegressor(solver="pcg", **SIZES),
    "ridge cv": lambda: rk.KernelRidgeRegressorCV(**SIZES),
    "ridge folds": lambda: rk.KernelRidgeRegressorCV(cv=3, fit_intercept=True, **SIZES),
    "classifier": lambda: rk.KernelRidgeClassifier(**SIZES),
    "classifier cv": lambda: rk.KernelRidgeClassifierCV(**SIZES),
    "svc": lambda: rk.KernelSVC(**SIZES),
    "svc, exact": lambda: rk.KernelSVC(n_components=None),
    "quantiles": lambda: rk.KernelQuantileRegressor(**SIZES),
    "svr": lambda: rk.KernelSVR(**SIZES),
    "logistic": lambda: rk.KernelLogistic(**SIZES),
    "logistic, exact": lambda: rk.KernelLogistic(n_components=None),
    "process": lambda: rk.GaussianProcessRegressor(optimizer=None, **SIZES),
    "process, learned": lambda: rk.GaussianProcessRegressor(
        rk.Linear(), normalize_y=True, n_components=3, random_state=0
    ),
    "process, exact": lambda: rk.GaussianProcessRegressor(
        optimizer=None, n_components=None
    ),
    "process of classes": lambda: rk.GaussianProcessClassifier(optimizer=None, **SIZES),
    "threshold": lambda: optics.ThresholdBinarizer(),
    "thermometer": lambda: optics.ThermometerEncoder(),
    "bit planes": lambda: optics.BitPlaneEncoder(),
    "optics": lambda: make_pipeline(
        optics.ThresholdBinarizer(0.5),
        rk.OpticalFeatures(optics.SimulatedOPU(8, random_state=0)),
    ),
}
ENCODERS = ("threshold", "thermometer", "bit planes", "optics")
# Those that `fit` shows rows alone.
OF_ROWS = (*ENCODERS, "landmarks")
CLASSIFIERS = (
    *("classifier", "classifier cv", "svc", "svc, exact"),
    *("logistic", "logistic, exact", "process of classes"),
)


def _is_large(value: Any) -> bool:
    return isinstance(value, int) and value > 5


@st.composite
def _trials(draw: Any) -> tuple[str, dict[str, Any], str, str, str]:
    """Draw an estimator, parameters, and kinds of rows, targets and weights."""
    name = draw(st.sampled_from(sorted(ESTIMATORS)))
    parameters: dict[str, Any] = {}
    odd = draw(st.sampled_from(["rows", "targets", "weights", "parameter", "all"]))
    rows, targets, weights = "C order", "array", "none"
    if odd in ("rows", "all"):
        kinds = [*SAME_ROWS, *ROUNDED_ROWS, *EXTREME_ROWS, *OTHER_ROWS, *BAD_ROWS]
        rows = draw(st.sampled_from(kinds))
    if odd in ("targets", "all"):
        kinds = CLASS_TARGETS if name in CLASSIFIERS else REAL_TARGETS
        targets = draw(st.sampled_from(list(kinds)))
    if odd in ("weights", "all"):
        weights = draw(st.sampled_from(list(WEIGHTS)))
    if odd in ("parameter", "all"):
        choices = sorted(ESTIMATORS[name]().get_params(deep=False))
        if choice := draw(st.sampled_from(choices)):
            values = KERNELS if choice == "kernel" else VALUES
            if choice in ENDLESS:
                values = [value for value in VALUES if not _is_large(value)]
            parameters[choice] = draw(st.sampled_from(values))
    return name, parameters, rows, targets, weights


# Errors that only a caller inside the library understands.
_DEEP = re.compile(
    "broadcast|math domain|zero-size|out of bounds|unhashable|instances of|unsupported"
    r"|has no len\(|truth value|at least one array|not subscriptable|not iterable|not "
    "callable|overflow encountered|cannot convert float|array is "
    "too big|Maximum allowed|Unable to allocate|has no attribute|iteration over|object "
    "is not|unexpected keyword|positional argument|ufunc|not aligned|singular matrix"
    "|must be the same length|unorderable|setting an array element|Python int"
)
_NAMED = (
    ValueError,
    TypeError,
    exceptions.MemoryLimitError,
    exceptions.NarrowMarginError,
)


def _named(error: Exception) -> bool:
    """Tell whether an error says to a user what is wrong."""
    if isinstance(error, (LinAlgError, UnicodeError)) or not isinstance(error, _NAMED):
        return False
    return len(str(error)) > 15 and not _DEEP.search(str(error))


def _outputs(model: Any, X: Any) -> np.ndarray:
    """Return what a fitted model says of rows, as numbers."""
    if hasattr(model, "decision_function"):
        return np.asarray(model.decision_function(X), dtype=float)
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(X), dtype=float)
    said = model.predict(X) if hasattr(model, "predict") else model.transform(X)
    said = said.toarray() if sp.issparse(said) else said
    return np.asarray(said, dtype=float)


def _fitted(name: str, parameters: dict[str, Any], X: Any, y: Any, w: Any) -> Any:
    model = ESTIMATORS[name]().set_params(**parameters)
    if name in OF_ROWS:
        return model.fit(X)
    if name == "features":
        return model.fit(X, sample_weight=w)
    return model.fit(X, y, sample_weight=w)


def _agrees(got: np.ndarray, expected: np.ndarray, share: float) -> bool:
    size = np.abs(expected).max(initial=1e-300)
    return got.shape == expected.shape and np.abs(got - expected).max() <= share * size


def _oracle(X: np.ndarray, y: np.ndarray, w: Any, intercept: bool) -> np.ndarray:
    """Return what scikit-learn's ridge regression on the same features predicts."""
    features = rk.RandomFeatures(**SIZES).fit(X, sample_weight=w)
    Z = features.transform(X)
    ridge = Ridge(alpha=1.0, fit_intercept=intercept, solver="cholesky")
    return ridge.fit(Z, y, sample_weight=w).predict(Z).reshape(y.shape)


def _outcome(trial: tuple[str, dict[str, Any], str, str, str]) -> str:
    """Return what is wrong with what a trial came to, nothing if it is right."""
    name, parameters, rows, targets, weights = trial
    X, w = _rows_of(rows), _weights_of(weights)
    kinds, plain_y = REAL_TARGETS, _real()
    if name in CLASSIFIERS:
        kinds, plain_y = CLASS_TARGETS, _labels()
    y = kinds[targets](plain_y)
    read = [X]
    if name not in OF_ROWS:
        read += [w] if name == "features" else [w, y]
    taken = {part.taken for part in read}
    # Encoders take no sparse rows; learned metrics no categories, either; support
    # vector regression one target.
    if parameters or name == "metric" or (name in ENCODERS and sp.issparse(X.value)):
        taken.add(None)
    if name == "svr" and np.ndim(y.meaning) == 2:
        taken.add(None)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            model = _fitted(name, parameters, X.value, y.value, w.value)
            got = _outputs(model, X.value)
        except Exception as error:
            shown = f"{type(error).__name__}: {error}"
            if not _named(error):
                return f"not named: {shown}"
            return f"refused: {shown}" if taken == {True} else ""
    if False in taken:
        return "taken, but to be refused"
    if not np.isfinite(got).all() or got.shape[0] != len(_rows(X.value)):
        return f"not finite, or of another length: {got.shape}"
    warned = [str(w.message) for w in said if issubclass(w.category, RuntimeWarning)]
    if warned:
        return f"a warning from inside: {warned}"
    return _difference(name, got, X, y, w) if taken == {True} else ""


def _difference(name: str, got: np.ndarray, X: Odd, y: Odd, w: Odd) -> str:
    """Return what is wrong with answers, given plain numbers and given an oracle."""
    loose = X.meaning.dtype == np.float32 or name in LOOSE
    share = 1e-3 if loose else 1e-6
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = _fitted(name, {}, X.meaning, y.meaning, w.meaning)
        if not _agrees(got, _outputs(plain, X.meaning), share):
            return "another answer than that of plain numbers"
        if name in ("ridge", "ridge, intercept"):
            expected = _oracle(X.meaning, y.meaning, w.meaning, "intercept" in name)
            if not _agrees(got, expected, share):
                return "another answer than that of scikit-learn's Ridge"
    return ""


def _rows(X: Any) -> Any:
    return range(X.shape[0]) if hasattr(X, "shape") else X


@settings(
    max_examples=6 * settings().max_examples,  # 300, or some thousand by night
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(_trials())
def test_odd_input_is_answered_right_or_refused_by_name(tmp_path, monkeypatch, trial):
    assert _outcome(trial) == ""
