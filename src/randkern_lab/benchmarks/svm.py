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

import randkern
from randkern._memory import available_memory, format_bytes, resolve_memory_limit

from ..options import option
from ..panels import BLACK, BLUE, RED, Style, new_figure, scatter_costs
from ..process import Stopwatch, in_fresh_process
from ..runner import Case, Experiment, SkippedCase
from ..tables import (
    Column,
    TextTable,
    count,
    listing,
    megabytes,
    percent,
    seconds,
    skip_notes,
)
from .rows import RowOptions, known_names, load_rows, parse_lengthscale, warm_up_rows

__all__ = ["METHODS", "Machines", "Options"]

METHODS: Mapping[str, Style] = {
    "features": Style("randkern, features", BLUE),
    "linear-svc": Style("RBFSampler + LinearSVC", RED, "v", "--"),
    "exact": Style("randkern, exact", BLUE, "D", ""),
    "svc": Style("scikit-learn, SVC", BLACK, "X", ""),
}
_ON_FEATURES = ("features", "linear-svc")
_WARM_UP_COMPONENTS = 16


@dataclass(frozen=True)
class Options(RowOptions):
    """Options of ``randkern bench svm``."""

    lengthscale: str = option("scale", "A number, scale or median.")
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


class Machines(Experiment):
    """Machines with the hinge loss, each in a process of its own."""

    name = "svm"
    title = "Accuracy of support vector machines against seconds, beside scikit-learn."
    command = "bench"
    Options = Options

    def prepare(self) -> dict[str, Any]:
        """Write the rows to files for the processes."""
        options = self.options
        known_names("method", options.methods, METHODS)
        limit = options.memory_limit
        self.limit = None if limit is None else resolve_memory_limit(limit)
        rows = load_rows(options)
        self.n = len(rows.X_train)
        kernel = randkern.Gaussian(parse_lengthscale(options.lengthscale))
        resolved = kernel.resolve(rows.X_train, random_state=0)
        self.lengthscale = float(resolved.lengthscale)
        self.folder = self.resources.enter_context(rows.saved())
        return rows.description

    def cases(self) -> Iterator[Case]:
        """Return methods on features by their number, then exact kernels."""
        methods = [m for m in METHODS if m in self.options.methods]
        exact_rows = min(self.n, self.options.exact_rows)
        for size in sorted(set(self.options.n_components)):
            for method in (m for m in methods if m in _ON_FEATURES):
                yield {"method": method, "n_components": size, "n_train": self.n}
        for method in (m for m in methods if m not in _ON_FEATURES):
            yield {"method": method, "n_components": None, "n_train": exact_rows}

    def measure(self, case: Case) -> dict[str, Any]:
        """Run the case in its own process, which reads the rows it uses."""
        size = case["n_components"]
        if case["method"] == "linear-svc":
            self._check_peer(size)
        request = {
            **case,
            "lengthscale": self.lengthscale,
            "C": self.options.penalty,
            "memory_limit": self.limit,
            "seed": self.options.seed,
            "folder": self.folder,
        }
        found = in_fresh_process(fit_machine, request)
        return {"label": METHODS[case["method"]].label, **found}

    def _check_peer(self, size: int) -> None:
        # The features in float32, and in float64 for liblinear.
        needed, free = 12 * self.n * size, available_memory()
        if free is not None and needed > free:
            raise SkippedCase(
                f"its features and their copy take about {format_bytes(needed)}; "
                f"{format_bytes(free)} are free"
            )

    def conclude(self, results: dict[str, Any]) -> dict[str, Any]:
        """Return the resolved lengthscale."""
        if not results["records"]:
            reason = results["skipped"][0]["reason"]
            raise ValueError(f"nothing could be run: {reason}")
        named = {"lengthscale": self.lengthscale, "C": self.options.penalty}
        return {"arguments": results["arguments"] | named}

    @classmethod
    def notes(cls, results: Mapping[str, Any]) -> list[str]:
        """Return the skipped cases."""
        return skip_notes(results, "method", "n_components")

    @classmethod
    def tables(cls, results: Mapping[str, Any]) -> list[TextTable]:
        """Return accuracy, time, support, gap and memory of every contender."""
        columns: dict[str, Column] = {
            "method": "label",
            "rows": ("n_train", count),
            "D": ("n_components", count),
            "accuracy": ("test_accuracy", percent),
            "train": ("train_seconds", seconds),
            "CPU s": ("train_cpu_seconds", seconds),
            "predict": ("predict_seconds", seconds),
            "support": ("n_support", count),
            "gap": ("duality_gap", ".0e"),
            "peak": ("peak_memory_bytes", megabytes),
        }
        caption = (
            "train: features and fit, in seconds of the clock and of all processors; "
            "support: rows with weight; gap: the relative duality gap; peak of the "
            "whole process, with imports and data"
        )
        return [listing(_title(results), results["records"], columns, caption)]

    @classmethod
    def figure(cls, results: Mapping[str, Any]) -> Any:
        """Return test error against training time, labelled with D."""
        figure = new_figure(7.2, 4.8)
        least = 0.5 / results["dataset"]["n_test"]
        scatter_costs(figure.subplots(), results["records"], METHODS, least)
        figure.axes[0].set_title(f"{_title(results)}; labels: D", fontsize=10)
        return figure


def _title(results: Mapping[str, Any]) -> str:
    arguments, data = results["arguments"], results["dataset"]
    return (
        f"{data['name']}, {data['n_test']:,} test rows: Gaussian, "
        f"ℓ = {arguments['lengthscale']:.4g}, C = {arguments['C']:g}"
    )


def fit_machine(request: Mapping[str, Any]) -> dict[str, Any]:
    """Fit and score a machine in this process."""
    from .rows import saved_rows

    X, y, X_test, y_test = saved_rows(request["folder"], request["n_train"])
    few = warm_up_rows(y)
    size = request["n_components"] and _WARM_UP_COMPONENTS
    small = {**request, "n_components": size, "memory_limit": None}
    watch = Stopwatch()
    _machine(small).fit(X[few], y[few]).predict(X_test[:64])
    warmed = watch.lap()
    machine = _machine(request).fit(X, y)
    fit = watch.lap()
    error = float(np.mean(machine.predict(X_test) != y_test))
    support = getattr(machine, "support_", None)
    gap = getattr(machine, "duality_gap_", None)
    return {
        "test_accuracy": 1.0 - error,
        "test_error": error,
        "train_seconds": fit.seconds,
        "train_cpu_seconds": fit.cpu_seconds,
        "predict_seconds": watch.lap().seconds,
        "warm_up_seconds": warmed.seconds,
        "n_support": None if support is None else len(support),
        "duality_gap": None if gap is None else float(np.max(gap)),
    }


def _machine(request: Mapping[str, Any]) -> Any:
    """Return the unfitted contender."""
    method, C, seed = request["method"], request["C"], request["seed"]
    size, ell = request["n_components"], request["lengthscale"]
    gamma = 1 / (2 * ell**2)
    if method == "svc":
        from sklearn.svm import SVC

        return SVC(C=C, gamma=gamma)
    if method == "linear-svc":
        from sklearn.kernel_approximation import RBFSampler
        from sklearn.pipeline import make_pipeline
        from sklearn.svm import LinearSVC

        return make_pipeline(
            RBFSampler(gamma=gamma, n_components=size, random_state=seed),
            LinearSVC(C=C, loss="hinge", fit_intercept=False, random_state=seed),
        )
    return randkern.KernelSVC(
        randkern.Gaussian(ell),
        C,
        size,
        memory_limit=request["memory_limit"],
        random_state=seed,
    )
