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

from ..contenders import Contender
from ..options import option
from ..runner import Case
from ..scoring import Trial
from ..tables import TextTable, listing, text
from .classifiers import ClassifierExperiment, classifier_record, cost_figure
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
    methods: tuple[str, ...] = option(
        tuple(METHODS), "Of features, linear-svc, exact, svc."
    )
    exact_rows: int = option(
        5000, "Training rows of the exact kernels at most.", quick=200
    )
    memory_limit: str | None = option(None, 'Of randkern\'s models, such as "2GB".')


class Machines(ClassifierExperiment):
    """Machines with the hinge loss, each in a process of its own."""

    name = "svm"
    title = "Accuracy of support vector machines against seconds, beside scikit-learn."
    Options = Options
    contenders = METHODS
    record = staticmethod(machine_record)

    def cases(self) -> Iterator[Case]:
        """Return methods on features by their number, then exact kernels."""
        methods = [m for m in METHODS if m in self.methods]
        for size in sorted(set(self.options.n_components)):
            for method in (m for m in methods if m in _ON_FEATURES):
                yield {"method": method, "n_components": size, "n_train": self.n}
        n = min(self.n, self.options.exact_rows)
        for method in (m for m in methods if m not in _ON_FEATURES):
            yield {"method": method, "n_components": None, "n_train": n}

    def conclude(self, results: dict[str, Any]) -> dict[str, Any]:
        result = super().conclude(results)
        return {"arguments": result["arguments"] | {"C": self.options.penalty}}

    @classmethod
    def tables(cls, results: Mapping[str, Any]) -> Iterator[TextTable]:
        """Yield the tables to print."""
        yield from listing(
            results,
            results["records"],
            _TITLE,
            "method | rows | D | accuracy | train | CPU s | predict | support | gap | "
            "peak",
            "{label} | {n_train:,} | {n_components:,} | "
            "{test_accuracy:percent} | {train_seconds:seconds} | "
            "{train_cpu_seconds:seconds} | {predict_seconds:seconds} | "
            "{n_support:,} | {duality_gap:.0e} | {peak_memory_bytes:megabytes}",
            "train: features and fit, in seconds of the clock and of all processors; "
            "support: rows with weight; gap: the relative duality gap; peak of the "
            "whole process, with imports and data",
        )

    @classmethod
    def figure(cls, results: Mapping[str, Any]) -> Any:
        """Return error against seconds."""
        title = text(f"{_TITLE}; labels: D", results)
        return cost_figure(results["records"], METHODS, title, (7.2, 4.8))
