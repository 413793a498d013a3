"""Error against time and memory: all our methods, and common classifiers.

They are ridge on random features of the Gaussian kernel (structured or dense
projections), on optical features, on landmarks, and with the exact kernel on fewer
rows; scikit-learn's ``RBFSampler`` and ``Nystroem`` with ``RidgeClassifier``, logistic
regression on the columns, and boosted trees. All Gaussian methods use the same
lengthscale and penalty, and the optical kernel has its own penalty. Peers without a
kernel use their defaults, but boosted trees get 10 and 30 rounds (``--rounds``), not
100. Each fit runs in its own process, and fits 64 rows before it is timed, to load
compiled code.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from sklearn.linear_model import LogisticRegression

from ..contenders import Contender, nonempty_records
from ..figures import add_legend, curves, panels
from ..options import option
from ..runner import Case, Recorder, SkippedCase
from ..tables import listing, text
from .classifiers import classifier_record, fit_classifier, rows_in_files
from .ridge_models import RidgeOnFeatures, own_ridge
from .rows import RowOptions

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def _logistic(request: Mapping[str, Any]) -> Any:
    return LogisticRegression(max_iter=request["max_iter"])


def _trees(request: Mapping[str, Any]) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier as Boosting

    return Boosting(max_iter=request["max_iter"], random_state=request["seed"])


_dense = partial(own_ridge, projection="dense")
_optical = partial(own_ridge, family="optical", alpha="optical_alpha")
_landmarks = partial(own_ridge, features="nystrom")
METHODS: Mapping[str, Contender] = {
    name: Contender(label, colour, marker, dashes, make=make)
    for name, label, colour, marker, dashes, make in (
        ("structured", "randkern, structured", "blue", "s", "-", own_ridge),
        ("dense", "randkern, dense", "sky", "o", (0, (3, 1)), _dense),
        ("optical", "randkern, optical", "pink", "D", ":", _optical),
        ("landmarks", "randkern, landmarks", "green", "^", "-.", _landmarks),
        ("exact", "randkern, exact", "black", "h", "-", own_ridge),
        ("RBFSampler", "RBFSampler + ridge", "red", "v", "--", RidgeOnFeatures),
        ("Nystroem", "Nystroem + ridge", "orange", "P", (0, (8, 3)), RidgeOnFeatures),
        ("logistic", "logistic regression", "grey", "X", "", _logistic),
        ("trees", "boosted trees", "grey", "*", (0, (5, 1, 1, 1)), _trees),
    )
}
# The curves of the figure with few, and on which side of its end the name of each is.
_FEW = {
    "structured": "right",
    "landmarks": "right",
    "RBFSampler": "center",
    "trees": "right",
}
_TITLE = (
    "{dataset[name]:upper}: {dataset[n_train]:,} training rows, {dataset[n_test]:,} "
    "test rows, {machine[cpu_count]} cores"
)


def _finish_few(axes: "Axes", records: list[Any]) -> None:
    """Write the names of curves at their ends, and an arrow to where it is better."""
    drawn = [s for name, s in _FEW.items() if any(r["method"] == name for r in records)]
    for line, side in zip(axes.containers, drawn, strict=True):
        x, y = line.lines[0].get_data()
        axes.annotate(
            line.get_label(),
            (x[-1], y[-1]),
            xytext=(-8 * (side == "right"), -6),
            textcoords="offset points",
            color=line.lines[0].get_color(),
            fontsize=10,
            ha=side,
            va="top",
        )
        line.set_label("_nolegend_")
    axes.annotate(
        "better",
        xy=(0.03, 0.05),
        xytext=(0.16, 0.22),
        xycoords="axes fraction",
        color="0.2",
        arrowprops={"arrowstyle": "-|>", "color": "0.2", "lw": 2},
    )
    axes.margins(x=0.17, y=0.1)


@dataclass(frozen=True)
class Options(RowOptions):
    """Options of ``randkern bench ways``."""

    methods: tuple[str, ...] = option(tuple(METHODS), "", among=METHODS)
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


SKIPPED_BY = ("method", "n_train", "n_components")


def fit(request: Mapping[str, Any]) -> dict[str, Any]:
    """Fit and score a classifier in this process."""
    return fit_classifier(request, METHODS, classifier_record)


def run(options: Options, recorder: Recorder) -> dict[str, Any]:
    """Fit classifiers of nine kinds, each in a process of its own."""
    sizes: dict[str, tuple[str, tuple[int, ...]]] = {
        "landmarks": ("n_components", options.landmarks),
        "exact": ("n_train", options.exact_rows),
        "Nystroem": ("n_components", options.nystroem),
        "logistic": ("max_iter", (100,)),
        "trees": ("max_iter", options.rounds),
    }
    with rows_in_files(options, METHODS, fit) as rows:

        def cases() -> Iterator[Case]:
            for method in options.methods:
                key, values = sizes.get(method, ("n_components", options.n_components))
                for size in values:
                    case = {"method": method, "n_components": None, "n_train": rows.n}
                    yield case | {"max_iter": None, key: size}

        def measure(case: Case) -> dict[str, Any]:
            if case["n_train"] > rows.n:
                raise SkippedCase(f"there are {rows.n:,} training rows")
            result = rows.measure(case)
            gigabytes = result["peak_memory_bytes"] / 1e9
            return {"seed": options.seed, "peak_gb": gigabytes, **result}

        recorder.measure(cases(), measure)
    nonempty_records(recorder)
    lengthscale = {"lengthscale": rows.lengthscale}
    return {"dataset": rows.described, "arguments": lengthscale}


def tables(results: Mapping[str, Any]) -> Iterator[Any]:
    yield from listing(
        results,
        results["records"],
        _TITLE,
        "method | rows | D | iter. | test error | train | predict | peak",
        "{label} | {n_train:,} | {n_components:,} | {max_iter:,} | "
        "{test_error:percent} | {train_seconds:seconds} | "
        "{predict_seconds:seconds} | {peak_memory_bytes:megabytes}",
        "train: features and fit; peak of the whole process, with imports and data",
    )


def figure(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return test error against time and memory, and few curves against time."""
    title, records = text(_TITLE, results), results["records"]
    seconds, ticks = "seconds of training", (0.1, 1, 10, 100)
    both, (left, right) = panels(2, size=(4.8, 4.4), title=title)
    for place, x, label, at in (
        (left, "train_seconds", seconds, ticks),
        (right, "peak_gb", "peak memory of the process (GB)", (0.3, 1, 3, 10)),
    ):
        curves(place, records, x, "test_error", METHODS, xlabel=label, ticks=at)
    add_legend(both)
    alone, (axes,) = panels(1, size=(4.8, 4.4), title=title)
    few = {name: METHODS[name] for name in _FEW}
    curves(
        axes,
        records,
        "train_seconds",
        "test_error",
        few,
        xlabel=seconds,
        ticks=ticks,
    )
    _finish_few(axes, records)
    return {"ways.png": both, "ways-seconds.png": alone}
