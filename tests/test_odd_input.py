"""Odd input to every public estimator: the answer of plain numbers, or a named error.

Rows, targets and weights come in many kinds of values, containers and dtypes. What an
estimator takes must give what the same numbers give as a dense array of float64, and
what it refuses must be refused by an error that says why.
"""

import importlib.util
import inspect
import re
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from scipy.linalg import LinAlgError
from sklearn.base import clone, is_classifier

import randkern as rk
from _tolerance import assert_close
from randkern import optics, skeletons
from randkern.datasets import load_dataset
from randkern.exceptions import MemoryLimitError

N, D = 24, 3
SIZES: dict[str, Any] = {"n_components": 16, "random_state": 0}
BITS = optics.SimulatedOPU(8, read_noise=0, shot_noise=0, random_state=0)
# With penalties and noise of 1 the systems have conditions of at most N + 1.
ESTIMATORS = {
    "GaussianProcessClassifier": rk.GaussianProcessClassifier(optimizer=None, **SIZES),
    "GaussianProcessRegressor": rk.GaussianProcessRegressor(
        noise=1.0, optimizer=None, **SIZES
    ),
    "KernelLogistic": rk.KernelLogistic(**SIZES),
    "KernelQuantileRegressor": rk.KernelQuantileRegressor(**SIZES),
    "KernelRidgeClassifier": rk.KernelRidgeClassifier(**SIZES),
    "KernelRidgeClassifierCV": rk.KernelRidgeClassifierCV(alphas=[1.0, 10.0], **SIZES),
    "KernelRidgeRegressor": rk.KernelRidgeRegressor(**SIZES),
    "KernelRidgeRegressorCV": rk.KernelRidgeRegressorCV(alphas=[1.0, 10.0], **SIZES),
    "KernelSVC": rk.KernelSVC(**SIZES),
    "KernelSVR": rk.KernelSVR(**SIZES),
    "LocalClassifier": rk.LocalClassifier(
        rk.KernelRidgeClassifier(**SIZES), cell_rows=12, random_state=0
    ),
    "LocalRegressor": rk.LocalRegressor(
        rk.KernelRidgeRegressor(**SIZES), cell_rows=12, random_state=0
    ),
    "MetricLearner": rk.MetricLearner(n_iterations=1, **SIZES),
    "NystromFeatures": rk.NystromFeatures(**SIZES),
    "OpticalFeatures": optics.OpticalFeatures(BITS),
    "RandomFeatures": rk.RandomFeatures(**SIZES),
    "TabularClassifier": rk.TabularClassifier(time_limit=1.0, random_state=0),
    "TabularEncoder": rk.TabularEncoder(),
    "TabularRegressor": rk.TabularRegressor(time_limit=1.0, random_state=0),
    "BitPlaneEncoder": optics.BitPlaneEncoder(),
    "PixelsToAngles": skeletons.PixelsToAngles(low=-64, high=64),
    "TableToBases": skeletons.TableToBases(),
    "ThermometerEncoder": optics.ThermometerEncoder(),
    "ThresholdBinarizer": optics.ThresholdBinarizer(),
}
MODELS = [name for name, model in ESTIMATORS.items() if hasattr(model, "predict")]
TABLES = ("TabularClassifier", "TabularRegressor")
WEIGHTED = [
    name
    for name, model in ESTIMATORS.items()
    if "sample_weight" in inspect.signature(model.fit).parameters
]
# The exact kernels, which read rows in their own way.
EXACT = {
    f"{name}, exact": clone(ESTIMATORS[name]).set_params(n_components=None)
    for name in MODELS
    if name not in (*TABLES, "LocalClassifier", "LocalRegressor")
}
ALL = ESTIMATORS | EXACT
# What takes long to fit, of which every eighth case is tried, by night.
SLOW = ("MetricLearner", "LocalClassifier", "LocalRegressor", *TABLES)


def some(cases: Iterable[Any], name: str) -> list[Any]:
    """Return a fifth of the cases, which is another one for the next estimator."""
    every = 8 if name in SLOW else 5
    return list(cases)[list(ALL).index(name) % every :: every]


def named(names: Any, *, fits: bool = False) -> Any:
    """Run a test for estimators; those whose `fits` take long, by night."""
    # Every 16th case is run by day: of those that take long, none.
    names = sorted(names, key=lambda name: name not in SLOW)
    cases = [
        pytest.param(name, marks=pytest.mark.nightly if fits and name in SLOW else ())
        for name in (names[-1], *names[:-1])
    ]
    return pytest.mark.parametrize("name", cases)


# Whose loss is minimised by steps: rows that are summed in another order, or in single
# precision, give what the steps' tolerance of the objective allows, and its square root
# of the solution.
BY_STEPS = ("KernelSVC", "KernelSVR", "KernelQuantileRegressor", "KernelLogistic")
STEPS = 1e-2
SINGLE = 1e-3
# What takes no sparse rows, or whose cells differ for them.
DENSE = (
    *("LocalClassifier", "LocalRegressor", "MetricLearner"),
    *("BitPlaneEncoder", "PixelsToAngles", "TableToBases", "TabularEncoder"),
    *("ThermometerEncoder", "ThresholdBinarizer", "OpticalFeatures", *TABLES),
)
pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.usefixtures("no_deadline"),
]


def test_every_estimator_is_here():
    public = {
        name
        for home in (rk, optics, skeletons)
        for name in home.__all__
        if inspect.isclass(cls := getattr(home, name)) and hasattr(cls, "fit")
    }
    assert public == set(ESTIMATORS)


# -- plain numbers, and what holds them ----------------------------------------------


def plain(seed: int = 17) -> np.ndarray:
    """Return rows of eighths, which half precision holds, many of them 0."""
    X = np.round(np.random.default_rng(seed).normal(size=(N, D)) * 8) / 8
    X[np.abs(X) < 0.4] = 0.0
    return X


def with_entry(X: np.ndarray, value: Any) -> np.ndarray:
    X = X.copy()
    X[3, 1] = value
    return X


X = plain()
REAL = X[:, 0] + np.sin(X[:, 1]) + np.linspace(0, 0.1, N)
LABELS = (np.argsort(np.argsort(REAL)) >= N // 2).astype(int)
WEIGHTS = np.linspace(0.5, 1.5, N)
TEXTS = np.array(["u", "v"])

DTYPES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "float64": lambda X: X,
    "float32": lambda X: X.astype(np.float32),
    "float16": lambda X: X.astype(np.float16),
    "long double": lambda X: X.astype(np.longdouble),
    "big endian": lambda X: X.astype(">f8"),
    "int8": lambda X: (8 * X).astype(np.int8),
    "uint64": lambda X: (64 + 8 * X).astype(np.uint64),
    "bool": lambda X: X > 0,
    "objects": lambda X: X.astype(object),
}


def read_only(X: np.ndarray) -> np.ndarray:
    X = X.copy()
    X.flags.writeable = False
    return X


def frame(X: np.ndarray, **options: Any) -> pd.DataFrame:
    return pd.DataFrame(X, columns=list("abc")[: X.shape[1]], **options)


def halved(X: np.ndarray) -> sp.csr_array:
    """Return rows as CSR in which each entry is stored twice, as two halves."""
    once = sp.csr_array(X)
    return sp.csr_array(
        (np.repeat(once.data / 2, 2), np.repeat(once.indices, 2), 2 * once.indptr),
        X.shape,
    )


def unsorted(X: np.ndarray) -> sp.csr_array:
    once = sp.csr_array(X)
    for start, stop in zip(once.indptr, once.indptr[1:], strict=False):
        once.indices[start:stop] = once.indices[start:stop][::-1].copy()
        once.data[start:stop] = once.data[start:stop][::-1].copy()
    once.has_sorted_indices = False
    return once


CONTAINERS: dict[str, Callable[[np.ndarray], Any]] = {
    "array": lambda X: X,
    "Fortran order": np.asfortranarray,
    "strided": lambda X: np.repeat(np.repeat(X, 2, axis=0), 2, axis=1)[::2, ::2],
    "backwards": lambda X: X[::-1].copy()[::-1],
    "read-only": read_only,
    "lists": lambda X: X.tolist(),
    "tuples": lambda X: tuple(map(tuple, X.tolist())),
    "list of arrays": list,
    "nothing masked": np.ma.masked_array,
    "pandas": frame,
    "pandas, odd index": lambda X: frame(X, index=[7] * (len(X) - 1) + [-1]),
    "pandas, numbers for names": pd.DataFrame,
    "pandas sparse": lambda X: frame(X).astype(pd.SparseDtype(float, 0.0)),
    "pandas partly sparse": lambda X: frame(X).astype(
        {"a": pd.SparseDtype(float, 0.0)}
    ),
    "pandas nullable": lambda X: frame(X).convert_dtypes(),
    "polars": lambda X: pl.DataFrame(X, schema=list("abc")),
    "csr": sp.csr_array,
    "csr matrix": sp.csr_matrix,
    "csr, entries twice": halved,
    "csr, unsorted": unsorted,
    "csc": sp.csc_array,
    "coo": sp.coo_array,
    "bsr": sp.bsr_array,
    "lil": sp.lil_array,
    "dok": sp.dok_array,
    "dia": sp.dia_array,
}
SPARSE = ("csr", "csc", "coo", "bsr", "lil", "dok", "dia", "pandas sparse")
# Containers are tried with float64, and these with every dtype that they can hold.
WITH_EVERY_DTYPE = {
    "array": DTYPES,
    # Columns of objects are categories.
    "pandas": DTYPES.keys() - {"float16", "long double", "big endian", "objects"},
    "csr": DTYPES.keys() - {"float16", "long double", "big endian", "objects"},
}
if importlib.util.find_spec("torch"):
    import torch

    CONTAINERS["tensor"] = torch.tensor
    CONTAINERS["tensor with a graph"] = lambda X: torch.tensor(
        X * 1.0, requires_grad=True
    )
    CONTAINERS["tensor in bfloat16"] = lambda X: torch.tensor(X, dtype=torch.bfloat16)
    WITH_EVERY_DTYPE["tensor"] = DTYPES.keys() - {
        *("long double", "big endian", "objects"),
    }
CASES = [(container, "float64") for container in CONTAINERS] + [
    (container, dtype)
    for container, dtypes in WITH_EVERY_DTYPE.items()
    for dtype in dtypes
    if dtype != "float64"
]


# -- what becomes of them ------------------------------------------------------------

# Errors that only someone who knows the code understands.
DEEP = re.compile(
    "broadcast|math domain|zero-size|out of bounds|unhashable|instances of|unsupported"
    r"|has no len\(|truth value|at least one array|not subscriptable|not iterable|not "
    "callable|overflow encountered|cannot convert float|array is "
    "too big|Maximum allowed|Unable to allocate|has no attribute|iteration over|object "
    "is not|unexpected keyword|positional argument|ufunc|not aligned|singular matrix"
    "|must be the same length|unorderable|setting an array element|Python int|on Tensor"
)


def is_named(error: Exception) -> bool:
    """Return whether an error says to a user what is wrong."""
    kinds = (ValueError, TypeError, MemoryLimitError, FloatingPointError)
    if isinstance(error, (LinAlgError, UnicodeError)) or not isinstance(error, kinds):
        return False
    return len(str(error)) > 15 and not DEEP.search(str(error))


def targets_of(name: str) -> Any:
    return LABELS if is_classifier(ALL[name]) else REAL


def suited(name: str, X: Any) -> Any:
    """Return numbers as bits for what takes nothing else."""
    if name != "OpticalFeatures" or not isinstance(X, np.ndarray):
        return X
    return (X > 0).astype(X.dtype) if X.dtype.kind in "biufO" else X


def fitted(name: str, X: Any, y: Any = None, weight: Any = None, **params: Any) -> Any:
    model = clone(ALL[name]).set_params(**params)
    y = targets_of(name) if y is None else y
    return model.fit(X, y) if weight is None else model.fit(X, y, sample_weight=weight)


def outputs(model: Any, X: Any) -> np.ndarray:
    """Return what a fitted estimator makes of rows, as numbers."""
    methods = ("decision_function", "predict_proba", "predict", "transform")
    method = next(method for method in methods if hasattr(model, method))
    result = getattr(model, method)(X)
    result = result.toarray() if sp.issparse(result) else result
    return np.asarray(result, dtype=float)


def problem(call: Callable[[], np.ndarray], expected: Any = None, tolerance=0.0) -> str:
    """Return what is wrong with the outcome of a call, nothing if it is right.

    Without anything expected, the answer must be finite, or the error named.
    """
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            result = call()
        except Exception as error:
            shown = f"{type(error).__name__}: {error}"
            if expected is not None:
                return f"refused: {shown}"
            return "" if is_named(error) else f"not named: {shown}"
    if inside := [str(w.message) for w in said if w.category is RuntimeWarning]:
        return f"a warning from inside: {inside}"
    if expected is None:
        return "" if np.isfinite(result).all() else "not finite"
    try:
        assert_close(result, expected, tolerance or None)
    except AssertionError as error:
        return f"another answer: {str(error)[:300]}"
    return ""


def refusal(call: Callable[[], Any], words: str = "") -> str:
    """Return what is wrong with the refusal of what must be refused."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call()
    except Exception as error:
        shown = f"{type(error).__name__}: {error}"
        if not is_named(error):
            return f"not named: {shown}"
        return "" if re.search(words, str(error)) else f"lacks {words!r}: {shown}"
    return "taken"


def assert_right(found: dict[Any, str]) -> None:
    """Assert that nothing was found wrong with any case."""
    wrong = [f"{case}: {text}" for case, text in found.items() if text]
    assert not wrong, "\n".join(wrong)


# -- rows ----------------------------------------------------------------------------


def _takes_sparse(name: str, container: str) -> bool:
    several = name.startswith("KernelQuantileRegressor")
    return not (container.startswith(SPARSE) and (name in DENSE or several))


@named(ALL, fits=True)
def test_rows_of_any_kind_give_the_answer_of_dense_numbers(name):
    found, expected = {}, {}
    for container, dtype in some(CASES, name):
        values = suited(name, DTYPES[dtype](X))
        rows = CONTAINERS[container](values)
        if dtype not in expected:
            dense = np.asarray(values, dtype=float)
            expected[dtype] = outputs(fitted(name, dense), dense)
        # Pixels of few bits become angles in single precision.
        in_single = name == "PixelsToAngles" and dtype == "int8"
        tolerance = SINGLE if dtype == "float32" or in_single else 0.0
        if (tolerance or container.startswith(SPARSE)) and name.startswith(BY_STEPS):
            tolerance = STEPS
        found[container, dtype] = problem(
            lambda rows=rows: outputs(fitted(name, rows), rows),
            expected[dtype] if _takes_sparse(name, container) else None,
            tolerance,
        )
    assert_right(found)


def with_column(X: np.ndarray, column: Any) -> pd.DataFrame:
    return frame(X).assign(b=column)


def outside(make: Callable[[np.ndarray], Any], index: int) -> Any:
    """Return sparse rows, one of whose entries lies outside them."""
    matrix = make(plain())
    (matrix.coords[1] if matrix.format == "coo" else matrix.indices)[4] = index
    return matrix


def unordered() -> sp.csr_array:
    matrix = sp.csr_array(plain())
    matrix.indptr[3] = 10**6
    return matrix


# Whatever these rows are, an answer is finite, and an error is named.
ODD_ROWS: dict[str, Callable[[], Any]] = {
    "huge": lambda: 1e300 * X,
    "tiny": lambda: 1e-310 * X,
    "huge float32": lambda: (1e37 * X).astype(np.float32),
    "tiny float32": lambda: (1e-41 * X).astype(np.float32),
    "one huge entry": lambda: with_entry(X, 1e300),
    "offset": lambda: X + 1e12,
    "constant": lambda: np.ones_like(X),
    "zeros": lambda: np.zeros_like(X),
    "sparse zeros": lambda: sp.csr_array(X.shape),
    "equal rows": lambda: np.tile(X[:1], (N, 1)),
    "one column": lambda: X[:, :1],
    "categories": lambda: with_column(X, pd.Categorical(["u", "v"] * 12)),
    "text column": lambda: with_column(X, ["u", "v"] * 12),
    "text with None": lambda: with_column(X, ["u", None] * 12),
    "numbers as objects": lambda: frame(X).astype(object),
    "numbers as text": lambda: X.astype(str),
    "numbers as StringDType": lambda: X.astype(str).astype(np.dtypes.StringDType()),
    "polars categories": lambda: pl.DataFrame({"a": X[:, 0], "b": ["u", "v"] * 12}),
    "names of two kinds": lambda: pd.DataFrame(X, columns=["a", 1, "c"]),
    "beyond float64": lambda: with_entry(
        X.astype(np.longdouble), np.longdouble("1e400")
    ),
}
# What no estimator can take, and what the error must name.
BAD_ROWS: dict[str, tuple[Callable[[], Any], str]] = {
    "None": (lambda: None, ""),
    "0-d": (lambda: np.float64(1.0), ""),
    "1-d": (lambda: X[:, 0], ""),
    "3-d": (lambda: X[:, :, None], ""),
    "no rows": (lambda: X[:0], "0 sample"),
    "no columns": (lambda: X[:, :0], "0 feature"),
    "sparse, no rows": (lambda: sp.csr_array((0, 3)), ""),
    "sparse, no columns": (lambda: sp.csr_array((N, 0)), ""),
    "pandas, no columns": (lambda: frame(X)[[]], "column"),
    "pandas, no rows": (lambda: frame(X)[:0], "0"),
    "polars, no columns": (lambda: pl.DataFrame(), ""),
    "empty list": (lambda: [], ""),
    "list of empty lists": (lambda: [[]] * N, ""),
    "ragged": (lambda: [[1.0, 2.0], [3.0]] * 12, "different lengths"),
    "masked": (lambda: np.ma.masked_array(X, X > 0), "mask"),
    "list of masked rows": (lambda: list(np.ma.masked_array(X, X > 0)), "mask"),
    "an integer beyond": (lambda: with_entry(X.astype(object), 10**400), "row 3|float"),
    "a list with one": (lambda: with_entry(X.astype(object), 10**400).tolist(), ""),
    "complex": (lambda: X + 1j, "[Cc]omplex"),
    "text": (lambda: np.array([["u", "v", "w"]] * N), ""),
    "bytes": (lambda: np.array([[b"u", b"v", b"w"]] * N), ""),
    "dates": (lambda: X.astype("datetime64[s]"), "datetime64"),
    "durations": (lambda: X.astype("timedelta64[s]"), "timedelta64"),
    "records": (lambda: np.zeros(N, dtype=[("a", float), ("b", float)]), ""),
    "lists in cells": (lambda: with_column(X, [[1, 2]] * N), "'b'"),
    "dicts in cells": (lambda: with_column(X, [{"u": 1}] * N), "'b'"),
    "arrays in cells": (lambda: with_column(X, [np.ones(2)] * N), "'b'"),
    "objects in cells": (lambda: np.full(X.shape, object()), ""),
    "lazy": (lambda: pl.DataFrame(X).lazy(), "collect"),
    "names twice": (lambda: pd.DataFrame(X, columns=list("aab")), "'a'"),
    "a generator": (lambda: (row for row in X), "only once"),
    "a set": (lambda: {1.0, 2.0}, ""),
    "a dict": (lambda: {"a": X[:, 0]}, ""),
    "a string": (lambda: "rows.csv", ""),
    "a model": (lambda: rk.RandomFeatures(), ""),
    "a Series": (lambda: pd.Series(X[:, 0]), ""),
    "a polars Series": (lambda: pl.Series(X[:, 0]), ""),
}
OUTSIDE: dict[str, Callable[[], Any]] = {
    "csr beyond": lambda: outside(sp.csr_array, 99),
    "csr below": lambda: outside(sp.csr_array, -1),
    "csc beyond": lambda: outside(sp.csc_array, 99),
    "coo beyond": lambda: outside(sp.coo_array, 99),
    "bsr beyond": lambda: outside(sp.bsr_array, 99),
    "csr, starts beyond": unordered,
}
# Table models take missing numbers.
NOT_FINITE: dict[str, tuple[Callable[[], Any], str]] = {
    "NaN": (lambda: with_entry(X, np.nan), "NaN.*row 3 of column 1"),
    "NaN in CSR": (lambda: sp.csr_array(with_entry(X, np.nan)), "NaN|[Ss]parse"),
    "NaN in pandas": (
        lambda: frame(with_entry(X, np.nan)),
        "NaN.*row 3 of column 'b'",
    ),
    "NA in pandas": (lambda: frame(with_entry(X, np.nan)).astype("Float64"), "NaN"),
    "null in polars": (
        lambda: pl.DataFrame({"a": [None, *X[1:, 0]], "b": X[:, 1]}),
        "NaN",
    ),
    "None among objects": (lambda: with_entry(X.astype(object), None), ""),
}
INFINITE = {"infinity": (lambda: with_entry(X, np.inf), "infin")}


@named(ALL, fits=True)
def test_odd_rows_have_finite_answers_or_named_errors(name):
    found = {}
    for kind, make in some(ODD_ROWS.items(), name):
        rows = suited(name, make())
        found[kind] = problem(lambda rows=rows: outputs(fitted(name, rows), rows))
    assert_right(found)


@named(ALL)
def test_what_are_no_rows_is_refused_by_name(name):
    kinds = BAD_ROWS | INFINITE
    if name not in (*TABLES, "TabularEncoder"):
        kinds = kinds | NOT_FINITE | {k: (f, "") for k, f in OUTSIDE.items()}
    model, found = None, {}
    for kind, (make, words) in kinds.items():
        words = "" if name == "OpticalFeatures" else words  # are they bits at all?
        found["fit", kind] = refusal(lambda make=make: fitted(name, make()), words)
    if name not in TABLES:
        model = fitted(name, suited(name, X))
        for kind, (make, _) in kinds.items():
            call = lambda make=make: outputs(model, make())  # noqa: E731
            found["use", kind] = refusal(call)
    assert_right(found)


def test_kernels_and_tests_refuse_entries_outside_sparse_matrices():
    found = {}
    for kind, make in OUTSIDE.items():
        found["kernel", kind] = refusal(
            lambda make=make: rk.Gaussian()(make()), "matrix X"
        )
        found["Y", kind] = refusal(
            lambda make=make: rk.Gaussian()(X, make()), "matrix Y"
        )
        found["mmd", kind] = refusal(lambda make=make: rk.mmd_test(X, make()))
    assert_right(found)


# -- targets -------------------------------------------------------------------------


def masked(y: np.ndarray) -> np.ma.MaskedArray:
    """Return targets of which two, of a label of their own, are masked."""
    hidden = np.arange(N) < 2
    return np.ma.masked_array(np.where(hidden, 99, y), hidden)


def record(y: np.ndarray) -> np.ndarray:
    return np.array([(value,) for value in y], dtype=[("y", float)])


# Of real targets and of labels alike.
SAME_TARGETS: dict[str, Callable[[np.ndarray], Any]] = {
    "list": lambda y: y.tolist(),
    "tuple": tuple,
    "read-only": read_only,
    "strided": lambda y: np.repeat(y, 3)[::3],
    "objects": lambda y: y.astype(object),
    "nothing masked": np.ma.masked_array,
    "pandas": pd.Series,
    "pandas, odd index": lambda y: pd.Series(y, index=[3] * N),
    "pandas objects": lambda y: pd.Series(y, dtype=object),
    "pandas nullable": lambda y: pd.Series(y).convert_dtypes(),
    "polars": pl.Series,
}
if "tensor" in CONTAINERS:
    SAME_TARGETS["tensor"] = torch.tensor
# The same labels by other names: as classes 0 and 1.
SAME_LABELS: dict[str, Callable[[np.ndarray], Any]] = SAME_TARGETS | {
    "int8": lambda y: y.astype(np.int8),
    "floats": lambda y: y.astype(float),
    "negative": lambda y: y - 1,
    "uint64": lambda y: 2**64 - 2 + y.astype(np.uint64),
    "booleans": lambda y: y > 0,
    "booleans as objects": lambda y: (y > 0).astype(object),
    "list of booleans": lambda y: (y > 0).tolist(),
    "pandas booleans": lambda y: pd.Series(y > 0, dtype="boolean"),
    "floats as objects": lambda y: y.astype(float).astype(object),
    "text": lambda y: TEXTS[y],
    "list of text": lambda y: TEXTS[y].tolist(),
    "text as objects": lambda y: TEXTS[y].astype(object),
    "StringDType": lambda y: TEXTS[y].astype(np.dtypes.StringDType()),
    "categories": lambda y: pd.Series(pd.Categorical(TEXTS[y])),
    "pandas text": lambda y: pd.Series(TEXTS[y], dtype="string"),
    "polars text": lambda y: pl.Series(TEXTS[y].tolist()),
}
SAME_NUMBERS: dict[str, Callable[[np.ndarray], Any]] = SAME_TARGETS | {
    "long double": lambda y: y.astype(np.longdouble),
    "big endian": lambda y: y.astype(">f8"),
}
ODD_NUMBERS: dict[str, Callable[[np.ndarray], Any]] = {
    "a column": lambda y: y[:, None],
    "two": lambda y: np.c_[y, -y],
    "constant": np.ones_like,
    "zeros": np.zeros_like,
    "integers beyond int64": lambda y: [10**30 * int(9 * v) for v in y],
    "uint64": lambda y: (9e18 + 1e18 * y).astype(np.uint64),
    "offset": lambda y: y + 1e9,
    "huge": lambda y: 1e200 * y,
    "near the largest": lambda y: 1e307 * y,
    "tiny": lambda y: 1e-310 * y,
    "one huge": lambda y: np.r_[1e300, y[1:]],
    "text of numbers": lambda y: y.astype(str),
}
ODD_LABELS: dict[str, Callable[[np.ndarray], Any]] = {
    "a column": lambda y: y[:, None],
    "all different": lambda y: np.arange(N),
    "one of a class": lambda y: np.r_[7, y[1:]],
}
BAD_TARGETS: dict[str, tuple[Callable[[np.ndarray], Any], str]] = {
    "None": (lambda y: None, "y"),
    "NaN": (lambda y: np.r_[np.nan, y[1:]], "NaN"),
    "infinity": (lambda y: np.r_[-np.inf, y[1:]], ""),
    "NA": (lambda y: pd.Series([pd.NA, *y[1:]], dtype="Float64"), "NaN"),
    "NA among objects": (lambda y: pd.Series([pd.NA, *y[1:]], dtype=object), "NaN"),
    "null": (lambda y: pl.Series([None, *y[1:].tolist()]), "NaN"),
    "None among objects": (lambda y: np.array([None, *y[1:]], dtype=object), "NaN"),
    "None in a list": (lambda y: [None, *y[1:]], "NaN"),
    "masked": (masked, "mask"),
    "list of masked": (lambda y: list(masked(y)), "mask"),
    "masked objects": (lambda y: masked(y).astype(object), "mask"),
    "record": (record, r"\('y', '<f8'\)"),
    "texts and numbers": (lambda y: ["u", *y[1:].tolist()], "str"),
    "integers beyond float64": (lambda y: [10**400, *map(int, y[1:])], "1000"),
    "complex": (lambda y: y + 1j, ""),
    "dates": (lambda y: y.astype("datetime64[s]"), "datetime64"),
    "dates in pandas": (
        lambda y: pd.Series(pd.date_range("2020", periods=N, tz="UTC")),
        "datetime64",
    ),
    "dates as objects": (
        lambda y: pd.date_range("2020", periods=N).to_pydatetime(),
        "datetime",
    ),
    "too short": (lambda y: y[:-1], f"{N - 1}"),
    "too long": (lambda y: np.r_[y, 0], f"{N + 1}"),
    "a number": (lambda y: 1.0, ""),
    "3-d": (lambda y: y[:, None, None], ""),
    "no columns": (lambda y: np.empty((N, 0)), ""),
    "a generator": (lambda y: (value for value in y), ""),
    "lists": (lambda y: [[1.0], [1.0, 2.0]] * 12, "different lengths"),
    "tuples as objects": (lambda y: pd.Series([(1, 2)] * N), "tuple"),
    "a lazy frame": (lambda y: pl.DataFrame({"y": y}).lazy(), "collect"),
}
BAD_NUMBERS = BAD_TARGETS | {
    "text": (lambda y: TEXTS[LABELS], "texts"),
    "StringDType": (lambda y: TEXTS[LABELS].astype(np.dtypes.StringDType()), "texts"),
}
BAD_LABELS = BAD_TARGETS | {
    "one class": (lambda y: np.zeros(N, dtype=int), "(1|one) class"),
    "one text": (lambda y: ["u"] * N, "(1|one) class"),
    "continuous": (lambda y: REAL, "continuous"),
    "two columns": (lambda y: np.c_[y, y], ""),
    "NA in text": (lambda y: pd.Series([pd.NA, *TEXTS[y][1:]], dtype="string"), "NaN"),
    "NaN among text": (lambda y: [np.nan, *TEXTS[y][1:]], "NaN"),
}


@named([*MODELS, *EXACT], fits=True)
def test_targets_of_any_kind_give_the_answer_of_plain_ones(name):
    y = targets_of(name)
    kinds = SAME_LABELS if is_classifier(ALL[name]) else SAME_NUMBERS
    expected = outputs(fitted(name, X), X)
    found = {}
    for kind, make in some(kinds.items(), name):
        found[kind] = problem(
            lambda make=make: outputs(fitted(name, X, make(y)), X), expected
        )
    assert_right(found)


@named([*MODELS, *EXACT], fits=True)
def test_odd_targets_have_finite_answers_or_named_errors(name):
    y = targets_of(name)
    kinds = ODD_LABELS if is_classifier(ALL[name]) else ODD_NUMBERS
    found = {}
    for kind, make in some(kinds.items(), name):
        found[kind] = problem(lambda make=make: outputs(fitted(name, X, make(y)), X))
    assert_right(found)


@named([*MODELS, *EXACT])
def test_what_are_no_targets_is_refused_by_name(name):
    y = targets_of(name)
    kinds = BAD_LABELS if is_classifier(ALL[name]) else BAD_NUMBERS
    found = {}
    for kind, (make, words) in kinds.items():
        call = lambda make=make: clone(ALL[name]).fit(X, make(y))  # noqa: E731
        found[kind] = refusal(call, words)
    assert_right(found)


# -- weights -------------------------------------------------------------------------

SAME_WEIGHTS: dict[str, Callable[[np.ndarray], Any]] = SAME_NUMBERS | {
    "a number": lambda w: 2.0,
}
ODD_WEIGHTS: dict[str, Callable[[np.ndarray], Any]] = {
    "a zero": lambda w: np.r_[0.0, w[1:]],
    "booleans": lambda w: w > 0.7,
    "one row": lambda w: np.eye(N)[3],
    "huge": lambda w: 1e300 * w,
    "too huge": lambda w: 1e308 * w,
    "tiny": lambda w: 1e-300 * w,
    "least": lambda w: np.full(N, 5e-324),
    "one huge": lambda w: np.r_[1e12, w[1:]],
}
BAD_WEIGHTS: dict[str, tuple[Callable[[np.ndarray], Any], str]] = {
    "zeros": (lambda w: 0 * w, "zero"),
    "zero": (lambda w: 0.0, "zero"),
    "negative": (lambda w: -w, "egative"),
    "one negative": (lambda w: np.r_[-1.0, w[1:]], "egative"),
    "NaN": (lambda w: np.r_[np.nan, w[1:]], "NaN"),
    "infinity": (lambda w: np.r_[np.inf, w[1:]], "infin"),
    "None inside": (lambda w: [None, *w[1:]], ""),
    "NA": (lambda w: pd.Series([pd.NA, *w[1:]], dtype="Float64"), ""),
    "masked": (masked, "mask"),
    "list of masked": (lambda w: list(masked(w)), "mask"),
    "record": (record, r"\('y', '<f8'\)"),
    "dates": (lambda w: w.astype("datetime64[s]"), "datetime64"),
    "durations": (lambda w: w.astype("timedelta64[s]"), "timedelta64"),
    "dates in pandas": (
        lambda w: pd.Series(pd.date_range("2020", periods=N, tz="UTC")),
        "datetime64",
    ),
    "integers beyond float64": (lambda w: [10**400] * N, "1000"),
    "too short": (lambda w: w[:-1], "sample_weight"),
    "a column": (lambda w: w[:, None], ""),
    "text": (lambda w: ["u"] * N, "'u'"),
    "a word": (lambda w: "balanced", ""),
    "complex": (lambda w: w + 1j, ""),
}


@named([*WEIGHTED, *EXACT], fits=True)
def test_weights_of_any_kind_give_the_answer_of_plain_ones(name):
    found = {}
    for kind, make in some(SAME_WEIGHTS.items(), name):
        weight = np.full(N, 2.0) if kind == "a number" else WEIGHTS
        expected = outputs(fitted(name, X, weight=weight), X)
        found[kind] = problem(
            lambda make=make: outputs(fitted(name, X, weight=make(WEIGHTS)), X),
            expected,
        )
    for kind, make in some(ODD_WEIGHTS.items(), name):
        found[kind] = problem(
            lambda make=make: outputs(fitted(name, X, weight=make(WEIGHTS)), X)
        )
    assert_right(found)


@named([*WEIGHTED, *EXACT])
def test_what_are_no_weights_is_refused_by_name(name):
    found = {}
    for kind, (make, words) in BAD_WEIGHTS.items():
        call = lambda make=make: fitted(name, X, weight=make(WEIGHTS))  # noqa: E731
        found[kind] = refusal(call, words)
    assert_right(found)


@named(["KernelSVC", "KernelRidgeClassifier", "KernelLogistic"])
@pytest.mark.parametrize(
    "labels",
    [
        np.arange(N) % 2 == 0,
        np.arange(N) % 2,
        np.array(["a", "b"])[np.arange(N) % 2].astype(np.dtypes.StringDType()),
    ],
    ids=["booleans", "integers", "texts"],
)
def test_labels_that_are_fitted_are_scored(name, labels):
    labels = labels.astype(object) if labels.dtype.kind != "T" else labels
    model = clone(ALL[name]).fit(X, labels)
    assert model.score(X, labels) == np.mean(model.predict(X) == labels)


@named([*MODELS, *EXACT])
def test_scores_refuse_masks(name):
    if name in TABLES or name.startswith("Local"):
        return  # scores are scikit-learn's
    model, y = fitted(name, X), targets_of(name)
    assert not refusal(lambda: model.score(X, masked(y)), "mask")
    assert not refusal(lambda: model.score(X, y, masked(WEIGHTS)), "mask")


# -- parameters ----------------------------------------------------------------------

ODD_VALUES: list[Any] = [
    *(None, True, -1, 0, 2.5, 1e-300, 1e300, np.nan, -np.inf, 10**30),
    *("", "a", [], [np.nan], ["a"], {}, {0: "a"}, {7: 1.0}, np.array(2.0)),
    *(object(), int, 1j, b"a", [(1, 2)]),
]
ODD_KERNELS: list[Any] = [
    *(rk.Gaussian, "rbf", 3.0, rk.Gaussian(-1.0), rk.Gaussian("foo")),
    *(rk.Gaussian(None), rk.Gaussian([1.0, 2.0]), rk.Gaussian(np.nan)),
    *(rk.Gaussian(1e-200), rk.Gaussian(1e200), rk.Gaussian(columns=[7])),
    *(rk.Gaussian(columns=[]), rk.Gaussian(columns=["a"]), rk.Matern(nu=1e300)),
    *(rk.RationalQuadratic(alpha=1e-300), rk.Linear(), rk.Categorical()),
    *(rk.Optical(degree=0), rk.Optical(degree=40)),
    *(rk.Optical(bias=-1.0), rk.Sum(rk.Gaussian(), "linear")),
    *(rk.Scaled(rk.Gaussian(), 1e300), rk.Scaled(rk.Gaussian(), 1e-300)),
    rk.Compositional(skeletons.FullyConnected(10**9)),
]


# Numbers of steps, and tolerances that no step may reach: work without an end.
STEPS_OF_WORK = ("max_iter", "n_iterations", "n_restarts_optimizer", "tol")


def _takes_long(parameter: str, value: Any) -> bool:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return parameter in STEPS_OF_WORK and is_number and not 1e-12 < value < 1e9


@named(["KernelSVC", "KernelSVR", "KernelLogistic"])
def test_steps_without_an_end_are_no_error(name):
    model = fitted(name, X, max_iter=10**30)
    assert not problem(lambda: outputs(model, X))


@pytest.mark.nightly
@named(ALL)
def test_odd_parameters_have_finite_answers_or_named_errors(
    name, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)  # a file may be called "a"
    found = {}
    # What scikit-learn and joblib check.
    parameters = ALL[name].get_params(deep=False).keys() - {"estimator", "n_jobs"}
    for parameter in sorted(parameters):
        values = ODD_KERNELS if parameter == "kernel" else ODD_VALUES
        for value in values if name not in TABLES else values[::8]:
            if _takes_long(parameter, value):
                continue
            params = {parameter: value}
            found[parameter, repr(value)] = problem(
                lambda params=params: outputs(
                    fitted(name, suited(name, X), **params), suited(name, X)
                )
            )
    assert_right(found)


# -- what errors of arguments name ---------------------------------------------------

SMALL: dict[str, Any] = {"n_components": 20, "random_state": 0}


def _search(**options):
    return rk.KernelRidgeRegressorCV(**SMALL | options)


def _map(*arguments, **options):
    module = pytest.importorskip("randkern.torch")
    return module.FeatureMap(rk.Gaussian(1.0), *arguments, **options)


REFUSED = {
    # Parameters.
    "levels beyond memory": (
        lambda: optics.ThermometerEncoder(10**9).fit(X),
        (MemoryLimitError, "n_levels=1000000000 thresholds", "fewer levels"),
    ),
    "one level": (
        lambda: optics.ThermometerEncoder(1).fit(X),
        (ValueError, "at least 2, got 1", "ThresholdBinarizer"),
    ),
    "per_column": (
        lambda: optics.ThermometerEncoder(per_column="a").fit(X),
        (ValueError, "per_column must be True or False, got 'a'"),
    ),
    "infinite thresholds": (
        lambda: optics.ThresholdBinarizer([0.0, np.inf, 0.0]).fit(X),
        (ValueError, "a finite number", "inf"),
    ),
    "outputs": (
        lambda: optics.SimulatedOPU(2**63),
        (ValueError, "n_components", "1,000,000,000,000", str(2**63)),
    ),
    "negative time": (
        lambda: optics.SimulatedOPU(10).time_seconds(-1),
        (ValueError, "n_frames must be a non-negative", "got -1"),
    ),
    "frame of a row": (
        lambda: optics.SimulatedOPU(10).transform(X > 0, frame=0.5),
        (ValueError, "frame must be a non-negative integer, got 0.5"),
    ),
    "no blocks": (lambda: rk.RowBlocks([]), (ValueError, "blocks is an empty list")),
    "negative rows": (
        lambda: rk.RowBlocks(lambda: iter([X]), n_rows=-1),
        (ValueError, "n_rows must be a positive integer, got -1"),
    ),
    "components": (
        lambda: rk.KernelRidgeRegressor().set_params(n_components=2**63).fit(X, REAL),
        (ValueError, "n_components", "[1, 1000000000000]", str(2**63)),
    ),
    "features beyond memory": (
        lambda: rk.RandomFeatures(rk.Gaussian(1.0), 10**12).fit(X).transform(X),
        (MemoryLimitError, "192.0 TB", "fewer rows"),
    ),
    "layers beyond memory": (
        lambda: skeletons.fully_connected(3, 10**9),
        (MemoryLimitError, "1000000000 layers", "2.0 TB", "fewer layers"),
    ),
    "images beyond memory": (
        lambda: skeletons.convolutional((10**9, 10**9)),
        (MemoryLimitError, "1000000000 by 1000000000 pixels"),
    ),
    "windows beyond memory": (
        lambda: skeletons.convolutional(
            (500, 500), [skeletons.Conv(250), skeletons.Dense()]
        ),
        (MemoryLimitError, "Conv(window=250", "smaller images or windows"),
    ),
    "no lengthscale": (
        lambda: rk.KernelRidgeRegressor(kernel=rk.Gaussian(None)).fit(X, REAL),
        (ValueError, "must be a positive finite number", "'scale'"),
    ),
    "nu": (
        lambda: rk.Matern(nu=1e300)(X),
        (ValueError, "nu must be at most", "or inf", "got 1e+300"),
    ),
    "class weight of text": (
        lambda: rk.KernelRidgeClassifier(class_weight={0: "a"}).fit(X, LABELS),
        (ValueError, "class_weight[0] must be a non-negative finite number, got 'a'"),
    ),
    "alphas of text": (
        lambda: _search(alphas=["a"]).fit(X, REAL),
        (ValueError, "alphas must be one or more positive finite", "got ['a']"),
    ),
    "no pairs": (
        lambda: _search(cv=[1, 2]).fit(X, REAL),
        (ValueError, "cv must yield at least one pair", "[1, 2]"),
    ),
    "rows beyond": (
        lambda: _search(cv=[(np.arange(5), np.array([99]))]).fit(X, REAL),
        (ValueError, "cv must yield at least one pair", "between 0 and 23"),
    ),
    "splits as an array": (
        lambda: _search(cv=np.array([0.1, 1.0])).fit(X, REAL),
        (ValueError, "cv must be None", "tolist"),
    ),
    "scoring of classes": (
        lambda: _search(scoring="roc_auc").fit(X, REAL),
        (ValueError, "scoring='roc_auc' needs decision_function", "scoring='r2'"),
    ),
    "scoring of nothing": (
        lambda: _search(scoring=lambda *_: None).fit(X, REAL),
        (ValueError, "scoring must return a number, got None", "make_scorer"),
    ),
    "error": (
        lambda: rk.hoeffding_n_components(1e-200),
        (ValueError, "an error of 1e-200 needs more than 1e+12 features"),
    ),
    "relative error": (
        lambda: rk.suggest_n_components(rk.Gaussian(1.0), X, 1e-200),
        (ValueError, "a relative error of 1e-200 needs more than 1e+12 features"),
    ),
    "projection of a map": (
        lambda: _map(3, projection="foo"),
        (ValueError, "projection must be one of", "'structured'", "got 'foo'"),
    ),
    "map of an array": (
        lambda: _map(3, n_components=4)(X),
        (TypeError, "must be a torch.Tensor, got ndarray", "torch.as_tensor"),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_refused_by_name(case):
    call, (kind, *pieces) = REFUSED[case]
    with pytest.raises(kind) as caught:
        call()
    for piece in pieces:
        assert piece in str(caught.value)
    assert type(caught.value).__name__ != "LinAlgError"


def test_a_device_that_is_not_there_is_refused_at_once():
    pytest.importorskip("torch")
    with pytest.raises(ValueError, match="'cuda:99' cannot be used.*expected one of"):
        rk.DeviceBlocks(X, device="cuda:99")


# -- labels stay what they are --------------------------------------------------------

UINT64 = np.where(LABELS, np.uint64(2**64 - 1), np.uint64(1))
HUGE = [5, 2**60, 2**60 + 1]


@pytest.mark.parametrize("dtype", ["Int64", "int64[pyarrow]", "UInt64", "int64"])
def test_integers_of_dataframes_stay_integers(dtype):
    labels = pd.Series(np.resize(HUGE, N), dtype=dtype)
    for y in (labels, labels.to_list()):
        model = rk.KernelRidgeClassifier(n_components=8, random_state=0).fit(X, y)
        assert model.classes_.tolist() == HUGE
        assert set(model.predict(X).tolist()) <= set(HUGE)
    small = pd.Series(np.resize([3, 7], N), dtype="Int8")
    assert rk.KernelRidgeClassifier(n_components=8).fit(X, small).classes_.dtype == "i1"


def test_integers_beyond_int64_may_come_in_a_list():
    y = [1, 2**64 - 1] * 12
    model = rk.KernelRidgeClassifier(n_components=8, random_state=0).fit(X, y)
    assert model.classes_.tolist() == [1, 2**64 - 1]
    with pytest.raises(ValueError, match="do not fit into a single integer type"):
        rk.KernelRidgeClassifier(n_components=8).fit(X, [-1, 2**64 - 1] * 12)


def test_labels_of_blocks_with_and_without_a_sign_stay_apart():
    labels = np.resize(HUGE, N)
    parts = [(X[:12], labels[:12].astype(np.uint64)), (X[12:], labels[12:])]
    model = rk.KernelRidgeClassifier(rk.Gaussian(1.0), n_components=8, random_state=0)
    assert model.fit(rk.RowBlocks(parts)).classes_.tolist() == HUGE
    whole = clone(model).fit(X, labels)
    np.testing.assert_allclose(model.coef_, whole.coef_, atol=1e-10)
    model.partial_fit(*parts[0], classes=HUGE).partial_fit(*parts[1])
    np.testing.assert_allclose(model.coef_, whole.coef_, atol=1e-10)
    negative = (X[12:], np.resize([-1, 5], 12))
    beyond = (X[:12], np.resize(np.array([2**64 - 1, 5], dtype=np.uint64), 12))
    with pytest.raises(ValueError, match="do not fit into a single integer type"):
        model.fit(rk.RowBlocks([beyond, negative]))
    minus_one = np.full(12, 2**64 - 1, dtype=np.uint64)
    model = clone(model).partial_fit(*parts[1], classes=[-1, *HUGE])
    with pytest.raises(ValueError, match="not among the classes"):
        model.partial_fit(X[:12], minus_one)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_labels_beyond_int64_stay_what_they_are(tmp_path, suffix):
    file = tmp_path / f"table.{suffix}"
    table = pd.DataFrame({"x": X[:, 0], "code": UINT64, "label": UINT64})
    if suffix == "csv":
        table.to_csv(file, index=False)
    else:
        table.convert_dtypes().to_parquet(file)
    data = load_dataset(file, target="label")
    assert np.array_equal(data.y_train, UINT64)
    assert data.target_names == ("1", str(2**64 - 1))
    assert np.array_equal(data.X_train["code"].astype(float), UINT64.astype(float))
