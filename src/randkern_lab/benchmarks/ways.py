"""Error against time and memory: all our methods, and common classifiers.

They are ridge on random features of the Gaussian kernel (structured or dense
projections), on optical features, on landmarks, and with the exact kernel on fewer
rows; scikit-learn's ``RBFSampler`` and ``Nystroem`` with ``RidgeClassifier``, logistic
regression on the columns, and boosted trees. All Gaussian methods use the same
lengthscale and penalty, the optical kernel has its own penalty, and peers without a
kernel use their defaults. Each fit runs in its own process, and fits 64 rows before it
is timed, to load compiled code.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import randkern

from ..options import option
from ..panels import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PINK,
    RED,
    SKY,
    Panel,
    Style,
    draw,
)
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
from .contenders import Contender
from .rows import (
    RowOptions,
    known_names,
    load_rows,
    parse_lengthscale,
    saved_rows,
    warm_up_rows,
)

__all__ = ["Options", "Ways"]

METHODS: Mapping[str, Style] = {
    "structured": Style("randkern, structured", BLUE, "s"),
    "dense": Style("randkern, dense", SKY, "o", (0, (3, 1))),
    "optical": Style("randkern, optical", PINK, "D", ":"),
    "landmarks": Style("randkern, landmarks", GREEN, "^", "-."),
    "exact": Style("randkern, exact", BLACK, "h"),
    "RBFSampler": Style("RBFSampler + ridge", RED, "v", "--"),
    "Nystroem": Style("Nystroem + ridge", ORANGE, "P", (0, (8, 3))),
    "logistic": Style("logistic regression", GREY, "X", ""),
    "trees": Style("boosted trees", GREY, "*", (0, (5, 1, 1, 1))),
}
# Meaning of a size, if it is not the number of components.
_SIZES = {"exact": "n_train", "logistic": "max_iter", "trees": "max_iter"}
_WARM_UP_SIZE = 16


@dataclass(frozen=True)
class Options(RowOptions):
    """Options of ``randkern bench ways``."""

    methods: tuple[str, ...] = option(tuple(METHODS), f"Of {', '.join(METHODS)}.")
    lengthscale: str = option("scale", "A number, scale or median.")
    alpha: float = option(1e-3, "Ridge penalty of the Gaussian kernel.")
    optical_alpha: float = option(
        1000.0, "Ridge penalty of the optical kernel of degree 2."
    )
    n_components: tuple[int, ...] = option(
        (1000, 3000, 10_000), "Numbers of random features.", quick=(100,)
    )
    landmarks: tuple[int, ...] = option(
        (1000, 3000, 10_000), "Numbers of our landmarks.", quick=(50,)
    )
    nystroem: tuple[int, ...] = option(
        (1000, 3000), "Numbers of scikit-learn's landmarks.", quick=(50,)
    )
    exact_rows: tuple[int, ...] = option(
        (5000, 10_000), "Training rows of the exact kernel.", quick=(200,)
    )
    rounds: tuple[int, ...] = option((10, 30), "Of boosting.", quick=(2,))
    memory_limit: str | None = option(None, 'Of randkern\'s models, such as "2GB".')


class Ways(Experiment):
    """Classifiers of nine kinds, each in a process of its own."""

    name = "ways"
    title = "Error against seconds and memory: all our ways, beside scikit-learn's."
    command = "bench"
    Options = Options

    def prepare(self) -> dict[str, Any]:
        """Write the rows to files for the processes."""
        known_names("method", self.options.methods, METHODS)
        rows = load_rows(self.options)
        self.n = len(rows.X_train)
        kernel = randkern.Gaussian(parse_lengthscale(self.options.lengthscale))
        resolved = kernel.resolve(rows.X_train, random_state=0)
        self.lengthscale = float(resolved.lengthscale)
        self.folder = self.resources.enter_context(rows.saved())
        return rows.description

    def cases(self) -> Iterator[Case]:
        """Return the sizes of each method."""
        options = self.options
        sizes: dict[str, tuple[int, ...]] = {
            "landmarks": options.landmarks,
            "exact": options.exact_rows,
            "Nystroem": options.nystroem,
            "logistic": (100,),
            "trees": options.rounds,
        }
        for method in known_names("method", options.methods, METHODS):
            for size in sorted(set(sizes.get(method, options.n_components))):
                case = {"method": method, "n_components": None, "n_train": self.n}
                case["max_iter"] = None
                yield case | {_SIZES.get(method, "n_components"): size}

    def measure(self, case: Case) -> dict[str, Any]:
        """Run the case in its own process."""
        if case["n_train"] > self.n:
            raise SkippedCase(f"there are {self.n:,} training rows")
        request = self.options.arguments() | case
        request |= {"lengthscale": self.lengthscale, "folder": self.folder}
        found = in_fresh_process(fit_way, request)
        gigabytes = found["peak_memory_bytes"] / 1e9
        label = METHODS[case["method"]].label
        own = {"label": label, "seed": self.options.seed, "peak_gb": gigabytes}
        return own | found

    def conclude(self, results: dict[str, Any]) -> dict[str, Any]:
        """Return the resolved lengthscale."""
        named = {"lengthscale": self.lengthscale}
        return {"arguments": results["arguments"] | named}

    @classmethod
    def notes(cls, results: Mapping[str, Any]) -> list[str]:
        """Return the skipped cases."""
        return skip_notes(results, "method", "n_train", "n_components")

    @classmethod
    def tables(cls, results: Mapping[str, Any]) -> list[TextTable]:
        """Return size, error, time and memory of every fit."""
        columns: dict[str, Column] = {
            "method": "label",
            "rows": ("n_train", count),
            "D": ("n_components", count),
            "iter.": ("max_iter", count),
            "test error": ("test_error", percent),
            "train": ("train_seconds", seconds),
            "predict": ("predict_seconds", seconds),
            "peak": ("peak_memory_bytes", megabytes),
        }
        caption = (
            "train: features and fit; peak of the whole process, with imports and data"
        )
        return [listing(_title(results), results["records"], columns, caption)]

    @classmethod
    def figures(cls, results: Mapping[str, Any]) -> dict[str, Any]:
        """Return test error against time, alone and next to error against memory."""
        panels = [
            Panel(x, "test_error", styles=METHODS, scale=100, ticks=ticks, xlabel=text)
            for x, ticks, text in (
                ("train_seconds", (0.1, 1, 10, 100), "seconds of training"),
                ("peak_gb", (0.3, 1, 3, 10), "peak memory of the process (GB)"),
            )
        ]
        title = _title(results)
        alone = replace(panels[0], extra=_legend_below)
        return {
            "ways.png": draw(results, panels, title=title, size=(4.8, 4.4)),
            "ways-seconds.png": draw(
                results, [alone], title=title, size=(4.8, 5.4), legend="inside"
            ),
        }


def _legend_below(axes: Any, results: Mapping[str, Any]) -> None:
    """Put the legend below, in two columns, for phones."""
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.45, -0.13),
        ncols=2,
        frameon=False,
        fontsize=9,
        handlelength=3.2,
    )


def _title(results: Mapping[str, Any]) -> str:
    data = results["dataset"]
    return (
        f"{data['name']}: {data['n_train']:,} training rows, {data['n_test']:,} test "
        f"rows, {results['machine']['cpu_count']} cores"
    )


def fit_way(request: Mapping[str, Any]) -> dict[str, Any]:
    """Fit and score a classifier in this process."""
    X, y, X_test, y_test = saved_rows(request["folder"], request["n_train"])
    few, watch = warm_up_rows(y), Stopwatch()
    small = {
        key: request[key] and min(request[key], _WARM_UP_SIZE)
        for key in ("n_components", "max_iter")
    }
    _model({**request, **small}).fit(X[few], y[few]).predict(X_test[:64])
    warmed = watch.lap().seconds
    model = _model(request).fit(X, y)
    trained = watch.lap()
    error = float(np.mean(model.predict(X_test) != y_test))
    return {
        "test_error": error,
        "train_seconds": trained.seconds,
        "train_cpu_seconds": trained.cpu_seconds,
        "predict_seconds": watch.lap().seconds,
        "warm_up_seconds": warmed,
    }


def _model(request: Mapping[str, Any]) -> Any:
    """Return the unfitted classifier."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression, RidgeClassifier
    from sklearn.pipeline import make_pipeline

    method, size, seed = request["method"], request["n_components"], request["seed"]
    alpha, limit = request["alpha"], request["memory_limit"]
    if method == "logistic":
        return LogisticRegression(max_iter=request["max_iter"])
    if method == "trees":
        return HistGradientBoostingClassifier(
            max_iter=request["max_iter"], random_state=seed
        )
    if method in ("RBFSampler", "Nystroem"):
        peer = Contender(
            "gaussian", "scikit-learn", method, lengthscale=request["lengthscale"]
        )
        ridge = RidgeClassifier(alpha, solver="cholesky")
        return make_pipeline(peer.build(0, size, seed), ridge)
    optical = method == "optical"
    return randkern.KernelRidgeClassifier(
        randkern.Optical(2) if optical else randkern.Gaussian(request["lengthscale"]),
        request["optical_alpha"] if optical else alpha,
        size,
        projection="dense" if method == "dense" else "auto",
        features="nystrom" if method == "landmarks" else "random",
        fit_intercept=True,
        memory_limit=limit,
        random_state=seed,
    )
