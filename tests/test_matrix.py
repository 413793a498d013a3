"""Every public estimator × solver × features × size × kind of rows answers.

All that a class documents, attributes and methods, gives a finite value of the right
shape, or raises an error that the library raised on purpose and that says what it is
about. A new estimator joins by being public: cases come from ``randkern.__all__`` and
from what constructors allow.
"""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.base import is_classifier

import randkern as rk
from _answers import (
    Asked,
    ask,
    estimators,
    is_named,
    options_of,
    public_methods,
)

N_COLUMNS = 3
NAMES = list("abc")
ESTIMATORS = estimators()
#: Rows and features: few, enough for a direct solve, and so many that ``solver="auto"``
#: iterates, which matters to models that have a solver.
SIZES = {"tiny": (12, 8), "small": (200, 40), "large": (1_200, 300)}
ITERATED = (4_000, 2_000)
#: Arguments without defaults, and those that make a case cheap or complete.
ARGUMENTS = {
    "device": lambda n_components: rk.optics.SimulatedOPU(n_components, random_state=0),
    "time_limit": lambda n_components: 1,
    "probability": lambda n_components: True,
    "max_iter": lambda n_components: 200,
}


def _blocks(X, y):
    return (rk.RowBlocks.from_arrays(X, y, block_rows=-(-len(X) // 3)),)


def _parts(X):
    return da.from_array(X, chunks=(-(-len(X) // 3), -1))


@dataclass(frozen=True)
class Kind:
    """How rows are passed to `fit`, with targets, and to other methods."""

    fit: Callable[[np.ndarray, np.ndarray], tuple[Any, ...]]
    rows: Callable[[np.ndarray], Any]


def _of(rows: Callable[[np.ndarray], Any], targets: Any = np.asarray) -> Kind:
    return Kind(lambda X, y: (rows(X), targets(y)), rows)


KINDS = {
    "array": _of(np.asarray),
    "float32": _of(lambda X: X.astype(np.float32)),
    "sparse": _of(sp.csr_array),
    "pandas": _of(lambda X: pd.DataFrame(X, columns=NAMES), pd.Series),
    "polars": _of(lambda X: pl.DataFrame(X, schema=NAMES), pl.Series),
    "blocks": Kind(_blocks, lambda X: rk.RowBlocks.from_arrays(X, block_rows=7)),
    "dask": _of(_parts, lambda y: da.from_array(y, chunks=-(-len(y) // 3))),
}


MUST_BE_TAKEN = ("array", "float32", "pandas", "polars")


def _rows(cls: type, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows with a signal, and targets for the class."""
    rng = np.random.default_rng(n)
    X = np.round(rng.normal(size=(n, N_COLUMNS)) * 8) / 8  # no rounding in float32
    signal = X[:, 0] + 0.5 * X[:, 1] ** 2 + 0.1 * rng.normal(size=n)
    if "device" in cls.__init__.__annotations__:
        return (X > 0).astype(float), signal
    return X, (signal > np.median(signal)).astype(int) if is_classifier(
        cls()
    ) else signal


@dataclass(frozen=True)
class Case:
    estimator: str
    features: str | None  # None: the class has no choice; "exact": its kernel
    solver: str | None

    def __str__(self) -> str:
        return "-".join(filter(None, (self.estimator, self.features, self.solver)))

    def numbers(self, size: str) -> tuple[int, int]:
        """Return the numbers of rows and of features."""
        iterated = size == "large" and self.solver is not None
        return ITERATED if iterated else SIZES[size]

    def model(self, size: str) -> Any:
        """Return the unfitted model."""
        cls, (_, n_components) = ESTIMATORS[self.estimator], self.numbers(size)
        accepted = cls._get_param_names()
        options = {
            name: value(n_components)
            for name, value in ARGUMENTS.items()
            if name in accepted
        }
        if "n_components" in accepted:
            exact = self.features == "exact"
            options["n_components"] = None if exact else n_components
        if self.features not in (None, "exact"):
            options["features"] = self.features
        if self.solver is not None:
            options["solver"] = self.solver
        if "random_state" in accepted:
            options["random_state"] = 0
        if size != "tiny" and "optimizer" in accepted:
            options["optimizer"] = None  # learning has tests of its own
        return cls(**options)


def _cases() -> Iterator[Case]:
    for name, cls in ESTIMATORS.items():
        features = options_of(cls, "features") or [None]
        if None in options_of(cls, "n_components"):
            features = [*features, "exact"]
        for item in features:
            for solver in options_of(cls, "solver") or [None]:
                yield Case(name, item, solver)


CASES = {str(case): case for case in _cases()}


def _fitted(case: Case, size: str, kind: str) -> tuple[Any, Asked] | None:
    """Return a fitted model and what it is asked, or None if it refuses the rows."""
    X, y = _rows(ESTIMATORS[case.estimator], case.numbers(size)[0])
    asked = Asked(KINDS[kind].fit(X, y), KINDS[kind].rows(X), y)
    model = case.model(size)
    try:
        return model.fit(*asked.fit), asked
    except Exception as error:
        assert is_named(error, model), f"fit: {type(error).__name__}: {error}"
        if case.solver is None or f"solver='{case.solver}'" not in str(error):
            assert kind not in MUST_BE_TAKEN, f"fit refuses {kind}: {error}"
        return None


def _check(case: Case, size: str, kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = _fitted(case, size, kind)
        if fitted is None:
            return
        answers = list(ask(*fitted))
    failed = [f"{a.name}: {a.message}" for a in answers if a.result == "FAILED"]
    assert not failed, "\n".join(failed)
    assert {a.name for a in answers} >= set(public_methods(type(fitted[0])))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "kind"),
    # That other containers make no difference has tests of its own.
    [
        ("tiny", "array"),
        pytest.param("small", "sparse", marks=pytest.mark.nightly),
        pytest.param("small", "blocks", marks=pytest.mark.nightly),
    ],
)
@pytest.mark.parametrize("case", CASES)
def test_few_rows(case, size, kind):
    _check(CASES[case], size, kind)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["array", "blocks"])
@pytest.mark.parametrize("case", CASES)
def test_many_rows(case, kind):
    _check(CASES[case], "large", kind)


@pytest.mark.nightly
@pytest.mark.parametrize("case", CASES)
def test_methods_do_not_depend_on_size(case):
    """What there is for few rows there is for many, where the solver iterates."""
    available = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for size in SIZES:
            fitted = _fitted(CASES[case], size, "array")
            if fitted is not None:
                names = public_methods(type(fitted[0]))
                available.append([n for n in names if hasattr(fitted[0], n)])
    assert all(names == available[0] for names in available)
