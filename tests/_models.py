"""Models of every kind, targets that they take, and what they say of rows.

A new model, or a new way to solve one, joins the contracts of containers, files and
devices by a line of `MODELS`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import has_fit_parameter

import randkern as rk
from _answers import as_array
from randkern.solvers import PCG

N = 230


@dataclass(frozen=True)
class Model:
    """A model, the targets that it takes, and how far apart its answers may be.

    The tolerance is a share of the largest answer: rounding where a system is solved,
    what the tolerance of the steps leaves elsewhere. `streams` tells whether it reads
    more than rows in memory, `tensors` whether it computes on them, and `copies` how
    many numbers at a time a fit may take to the host of a device: sums, and probes of
    the rows that are left out. Probabilities of iterated fits are `sampled`: their
    temperature is that of some rows.
    """

    model: Any
    targets: str = "values"
    tolerance: float = 1e-6
    streams: bool = True
    tensors: bool = True
    weighted: bool = True
    sampled: bool = False
    copies: int = 18


def _ridge(**options: Any) -> Any:
    options = {"n_components": 60, "fit_intercept": True} | options
    return rk.KernelRidgeRegressor(
        rk.Gaussian("scale") + rk.Linear(), alpha=0.5, random_state=0, **options
    )


def _of_labels(kind: type, **options: Any) -> Any:
    options = {"n_components": 40, "random_state": 0} | options
    return kind(rk.Gaussian(2.0), **options)


PRECISE = PCG(tol=1e-9)
PROCESS = {"optimizer": None, "n_components": 40, "random_state": 0}
EXACT: dict[str, Any] = {"streams": False}
MODELS = {
    "ridge": Model(_ridge(solver="cholesky")),
    "ridge without intercept": Model(
        _ridge(solver="cholesky", fit_intercept=False), weighted=False
    ),
    "ridge, n < D": Model(_ridge(solver="cholesky", n_components=301)),
    "ridge, exact": Model(_ridge(solver="cholesky", n_components=None), **EXACT),
    "ridge, pcg": Model(_ridge(solver=PRECISE), tolerance=1e-5),
    "ridge, pcg in short memory": Model(
        _ridge(solver=PCG(tol=1e-9, rank=5), memory_limit="200kB"), tolerance=1e-5
    ),
    "ridge, exact pcg": Model(
        _ridge(solver=PCG(tol=1e-9, rank=15), n_components=None, memory_limit="10MB"),
        weighted=False,
        **EXACT,
    ),
    "ridge on landmarks": Model(_ridge(features="nystrom", n_components=20), copies=N),
    "ridge classifier": Model(
        rk.KernelRidgeClassifier(
            rk.Gaussian("median"), n_components=40, fit_intercept=True, random_state=0
        ),
        "labels",
        copies=N,  # weights of pairs of rows
    ),
    "balanced ridge classifier": Model(
        _of_labels(rk.KernelRidgeClassifier, class_weight="balanced", solver=PRECISE),
        "binary",
        1e-5,
        sampled=True,
    ),
    "weighted ridge classifier": Model(
        _of_labels(rk.KernelRidgeClassifier, class_weight={0: 2.0, 2: 0.5}), "labels"
    ),
    "ridge CV": Model(
        rk.KernelRidgeRegressorCV(n_components=40, random_state=0), **EXACT
    ),
    "ridge CV of folds": Model(
        rk.KernelRidgeRegressorCV(
            rk.Gaussian("scale"), n_components=301, cv=3, random_state=0
        ),
        "value",
        weighted=False,  # a fold has no weight
        copies=4 * N,  # scores of splits
        **EXACT,
    ),
    "ridge CV, exact": Model(
        rk.KernelRidgeRegressorCV(rk.Gaussian("scale"), n_components=None, cv="gcv"),
        **EXACT,
    ),
    "ridge classifier CV": Model(
        _of_labels(rk.KernelRidgeClassifierCV, class_weight="balanced"),
        "labels",
        **EXACT,
    ),
    "process": Model(rk.GaussianProcessRegressor(**PROCESS), tolerance=1e-5),
    "process in units of the targets": Model(
        rk.GaussianProcessRegressor(
            1.5 * rk.Matern(2.2, 1.3), 0.05, normalize_y=True, **PROCESS
        ),
        tolerance=1e-5,
    ),
    "process, exact": Model(
        rk.GaussianProcessRegressor(**PROCESS | {"n_components": None}), **EXACT
    ),
    "process of counts": Model(
        rk.GaussianProcessRegressor(likelihood="poisson", **PROCESS),
        "counts",
        1e-5,
        copies=N,
    ),
    "process of labels": Model(rk.GaussianProcessClassifier(**PROCESS), "binary", 1e-5),
    "process of classes": Model(
        _of_labels(rk.GaussianProcessClassifier, class_weight="balanced", **PROCESS),
        "labels",
        1e-5,
    ),
    "process of outliers": Model(
        rk.GaussianProcessRegressor(likelihood="student-t", **PROCESS), "value", 1e-5
    ),
    "process of labels, exact": Model(
        rk.GaussianProcessClassifier(**PROCESS | {"n_components": None}),
        "binary",
        1e-5,
        **EXACT,
    ),
    "soft margin": Model(
        _of_labels(rk.KernelSVC, tol=1e-8, class_weight="balanced"), "labels", 1e-3
    ),
    "soft margin, exact": Model(
        _of_labels(rk.KernelSVC, tol=1e-8, n_components=None), "binary", 1e-3, **EXACT
    ),
    "hard margin": Model(
        _of_labels(rk.KernelSVC, C=np.inf, n_components=400),
        "binary",
        1e-3,
        copies=10**6,
    ),
    "tube": Model(_of_labels(rk.KernelSVR, tol=1e-8), "value", 1e-3, tensors=False),
    "logistic": Model(_of_labels(rk.KernelLogistic, tol=1e-9), "labels", 1e-3),
    "logistic of two classes": Model(
        _of_labels(rk.KernelLogistic, tol=1e-9), "binary", 1e-3, weighted=False
    ),
    "logistic, exact": Model(
        _of_labels(rk.KernelLogistic, tol=1e-9, n_components=None),
        "binary",
        1e-3,
        **EXACT,
    ),
    "quantiles": Model(
        _of_labels(rk.KernelQuantileRegressor), "value", 1e-2, tensors=False
    ),
}


def _table() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(20_240_607)
    X = rng.normal(size=(N, 5))
    value = np.sin(X[:, 0]) + 0.1 * rng.normal(size=N)
    labels = 2 * np.digitize(X[:, 1] * X[:, 2] + value, [-0.5, 0.5])
    weight = rng.uniform(size=N) * (rng.uniform(size=N) > 0.2)
    weight[1:101] = 0
    table = {
        "X": X,
        "values": np.column_stack([value + 100, X[:, 1] * X[:, 2]]),
        "value": value,
        "labels": labels,
        "binary": labels > 0,
        "counts": np.round(3 * np.abs(value)),
        "weight": weight,
    }
    for array in table.values():
        array.flags.writeable = False  # as those of a file: nothing is written to them
    return table


TABLE = _table()


def answers(model: Any, fit: tuple[Any, ...], rows: Any) -> dict[str, Any]:
    """Return what a fitted model says of rows, and its score, as arrays of NumPy."""
    names = ("decision_function", "predict_proba", "predict")
    found = {name: getattr(model, name)(rows) for name in names if hasattr(model, name)}
    if isinstance(model, rk.GaussianProcessRegressor):
        found["mean"], found["deviation"] = model.predict(rows, return_std=True)
    return {name: host(value) for name, value in found.items()} | {
        "score": model.score(*fit)
    }


def host(value: Any) -> np.ndarray:
    return value.cpu().numpy() if hasattr(value, "cpu") else as_array(value)


def arrays_of(name: str) -> tuple[np.ndarray, ...]:
    """Return rows, targets and weights for a model."""
    case = MODELS[name]
    arrays = TABLE["X"], TABLE[case.targets], TABLE["weight"]
    takes = case.weighted and has_fit_parameter(case.model, "sample_weight")
    return arrays if takes else arrays[:2]


def assert_alike(found: dict[str, Any], wanted: dict[str, Any], share: float) -> None:
    """Compare answers; a row between two classes may be in either."""
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        got = found[name]
        if getattr(values, "dtype", np.dtype(float)).kind != "f":
            assert got.dtype == values.dtype
            assert np.mean(got == values) > 0.99
            continue
        size = np.abs(values).max()
        np.testing.assert_allclose(
            got / size, values / size, rtol=0, atol=share, err_msg=name
        )
