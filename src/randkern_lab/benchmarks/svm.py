"""Support vector machines against scikit-learn's: accuracy against time.

With random features of the Gaussian kernel, `KernelSVC` is compared to ``RBFSampler``
and ``LinearSVC(loss="hinge", fit_intercept=False)``, on all rows; with the exact
kernel, to ``SVC``, which has an intercept and is one-vs-one. All use the same float32
rows, kernel and penalty. All iterate to an optimum: ours reports how near it is
(``duality_gap``). Each fit runs in its own process, and fits 64 rows before it is
timed, to load compiled code.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.kernel_approximation import RBFSampler
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, LinearSVC

import randkern

from ..contenders import Contender, nonempty_records
from ..options import option
from ..runner import Recorder, grid
from ..scoring import Trial
from ..tables import listing, text
from .classifiers import classifier_record, cost_figure, fit_classifier, rows_in_files
from .rows import RowOptions


def _own(request: Mapping[str, Any]) -> Any:
    return randkern.KernelSVC(
        randkern.Gaussian(request["lengthscale"]),
        request["penalty"],
        request["n_components"],
        fit_intercept=False,
        memory_limit=request["memory_limit"],
        random_state=request["seed"],
    )


def _linear_svc(request: Mapping[str, Any]) -> Any:
    size, seed = request["n_components"], request["seed"]
    return make_pipeline(
        RBFSampler(gamma=_gamma(request), n_components=size, random_state=seed),
        LinearSVC(
            C=request["penalty"], loss="hinge", fit_intercept=False, random_state=seed
        ),
    )


def _linear_bytes(n: int, d: int, n_components: int) -> int:
    """Return the bytes of features in float32, and in float64 for liblinear."""
    return 12 * n * n_components


def _svc(request: Mapping[str, Any]) -> Any:
    return SVC(C=request["penalty"], gamma=_gamma(request))


def _gamma(request: Mapping[str, Any]) -> float:
    return 1.0 / (2 * request["lengthscale"] ** 2)


METHODS: Mapping[str, Contender] = {
    name: Contender(label, colour, marker, dashes, make=make, memory=memory)
    for name, label, colour, marker, dashes, make, memory in (
        ("features", "randkern, features", "blue", "o", "-", _own, None),
        (
            "linear-svc",
            "RBFSampler + LinearSVC",
            "red",
            "v",
            "--",
            _linear_svc,
            _linear_bytes,
        ),
        ("exact", "randkern, exact", "blue", "D", "", _own, None),
        ("svc", "scikit-learn, SVC", "black", "X", "", _svc, None),
    )
}
_TITLE = (
    "{dataset[name]}, {dataset[n_test]:,} test rows: Gaussian, "
    "ℓ = {arguments[lengthscale]:.4g}, C = {arguments[C]:g}"
)
_ON_FEATURES = ("features", "linear-svc")


def machine_record(trial: Trial, warm_up: float, machine: Any) -> dict[str, Any]:
    """Return the record of a fit, with the support and the duality gap."""
    support = getattr(machine, "support_", None)
    gap = getattr(machine, "duality_gap_", None)
    return {
        "test_accuracy": 1.0 - trial.score,
        **classifier_record(trial, warm_up, machine),
        "n_support": None if support is None else len(support),
        "duality_gap": None if gap is None else float(np.max(gap)),
    }


@dataclass(frozen=True)
class Options(RowOptions):
    """Options of ``randkern bench svm``."""

    penalty: float = option(10.0, "C: what a unit of the hinge loss costs.")
    n_components: tuple[int, ...] = option(
        (300, 1000, 3000), "Numbers of features.", quick=(100, 300)
    )
    methods: tuple[str, ...] = option(tuple(METHODS), "", among=METHODS)
    exact_rows: int = option(
        5000, "Training rows of the exact kernels at most.", quick=200
    )
    memory_limit: str | None = option(None, 'Of randkern\'s models, such as "2GB".')


SKIPPED_BY = ("method", "n_components")


def fit(request: Mapping[str, Any]) -> dict[str, Any]:
    """Fit and score a machine in this process."""
    return fit_classifier(request, METHODS, machine_record)


def run(options: Options, recorder: Recorder) -> dict[str, Any]:
    """Fit machines with the hinge loss, each in a process of its own."""
    with rows_in_files(options, METHODS, fit) as rows:
        on_features = grid(
            n_components=options.n_components,
            method=[m for m in options.methods if m in _ON_FEATURES],
            n_train=[rows.n],
        )
        exact = grid(
            n_components=[None],
            method=[m for m in options.methods if m not in _ON_FEATURES],
            n_train=[min(rows.n, options.exact_rows)],
        )
        recorder.measure([*on_features, *exact], rows.measure)
    nonempty_records(recorder)
    named = {"lengthscale": rows.lengthscale, "C": options.penalty}
    return {"dataset": rows.described, "arguments": named}


def tables(results: Mapping[str, Any]) -> Iterator[Any]:
    yield from listing(
        results,
        results["records"],
        _TITLE,
        "method | rows | D | accuracy | train | CPU s | predict | support | gap | peak",
        "{label} | {n_train:,} | {n_components:,} | "
        "{test_accuracy:percent} | {train_seconds:seconds} | "
        "{train_cpu_seconds:seconds} | {predict_seconds:seconds} | "
        "{n_support:,} | {duality_gap:.0e} | {peak_memory_bytes:megabytes}",
        "train: features and fit, in seconds of the clock and of all processors; "
        "support: rows with weight; gap: the relative duality gap; peak of the "
        "whole process, with imports and data",
    )


def figure(results: Mapping[str, Any]) -> Any:
    """Return error against seconds."""
    title = text(f"{_TITLE}; labels: D, or rows", results)
    return cost_figure(results["records"], METHODS, title, (7.2, 4.8))
