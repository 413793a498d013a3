"""Support vector machines on random Fourier features (Póczos, lecture slides).

The original. The slides treat the primal of a support vector machine on features z(x)
of a stationary kernel, min ½‖w‖² + C Σ ξ_i with y_i w·z(x_i) ≥ 1 − ξ_i and no
intercept, with hard (infinite C) and soft margins; two feature maps, cosines and sines
of D/2 frequencies (version 1, ``pair``) and cosines of D frequencies with random phases
(version 2, ``offset``); and Gaussian, Laplacian and Cauchy kernels. They claim O(n)
instead of the O(n³) of the Gram matrix. No data and no numbers are given.

Here. CPU time and accuracy against n, compared to scikit-learn's ``SVC``; accuracy
against D for both maps, compared to the exact kernels; hard margins of separable rows
with their duality gap; and the certificate that noisy rows cannot be separated by 20
features.

Deviations.

- Rows are generated, with 8 columns and two classes; with ``--data-dir`` soft margins
  are also fitted to MNIST, with 10 times the C.
- ``SVC`` has an intercept and, for several classes, one machine per pair of classes;
  randkern has one per class.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score
from sklearn.svm import SVC

import randkern
from randkern.datasets import load_dataset
from randkern.exceptions import NotSeparableError

from ..figures import DASHED, Style, add_legend, curves, name_axes, panels
from ..options import DataOptions, Sizes, option
from ..runner import Case, SkippedCase, measure_all
from ..scoring import fit_and_score
from ..tables import fitted_power, listing, pivot

KERNELS = {
    "gaussian": randkern.Gaussian,
    "laplacian": randkern.Laplacian,
    "cauchy": randkern.Cauchy,
}
METHODS = {
    "gaussian": Style("Gaussian", "blue"),
    "laplacian": Style("Laplacian", "red", "s"),
    "cauchy": Style("Cauchy", "green", "^"),
    "SVC": Style("scikit-learn's SVC", "black", "X", "--"),
}
FOURIER = ("pair", "offset")
_OFFSET: Mapping[str, Any] = {"dashes": DASHED, "filled": False}
_MAPS = {
    (name, fourier): METHODS[name]
    if fourier == "pair"  # which all other panels have
    else replace(METHODS[name], label=f"{METHODS[name].label}, offset", **_OFFSET)
    for name, fourier in product(KERNELS, FOURIER)
}
_MNIST_ROWS = (1000, 3000, 10_000, 30_000, 60_000)
_COLUMNS = 8
# Fewer features than rows, so that noisy labels cannot be separated.
_FEW = 20


@dataclass(frozen=True)
class Options(DataOptions):
    """Options of ``randkern reproduce fourier-svm``."""

    rows: Sizes = option(
        (1000, 3000, 10_000, 30_000, 100_000),
        "Numbers of generated rows.",
        quick=(200, 400, 800),
        least=20,  # so that both labels occur
    )
    n_components: Sizes = option(
        (100, 300, 1000, 3000), "Numbers of features.", quick=(20, 60)
    )
    components: int = option(1000, "Number of features while the rows vary.", quick=100)
    soft_rows: int = option(
        3000, "Rows of soft margins while features vary.", quick=300, least=20
    )
    hard_rows: int = option(400, "Rows of the hard margins.", quick=100, least=20)
    test_rows: int = option(5000, "Generated test rows.", quick=500)
    penalty: float = option(1.0, "C of the generated rows; MNIST has 10 times as much.")
    peer_rows: int = option(60_000, "Most rows of scikit-learn's SVC.")
    repeats: int = option(3, "Draws of the features of soft margins.", quick=1)


@dataclass(frozen=True)
class Task:
    """Rows, labels, the numbers of rows to use, and C."""

    X: NDArray[Any]
    y: NDArray[Any]
    X_test: NDArray[Any]
    y_test: NDArray[Any]
    sizes: tuple[int, ...] = ()
    penalty: float = np.inf


SKIPPED_BY = ("method", "dataset", "n_train")


def run(options: Options) -> pd.DataFrame:
    """Fit soft margins against n and D, hard margins, and what is not separable."""
    tasks = _tasks(options)
    X, y = generate(64, options.seed)
    for fourier, dtype in product(FOURIER, (np.float32, np.float64)):  # compiles
        for make in KERNELS.values():
            make_classifier(make(), 1.0, 32, fourier).fit(X.astype(dtype), y)

    def measure(case: Case) -> Case:
        """Fit one machine, and score it or record its certificate."""
        task, n = tasks[case["dataset"]], case["n_train"]
        name = case.get("kernel") or case["method"]
        if name == "SVC":
            if n > options.peer_rows:
                most = options.peer_rows
                raise SkippedCase(f"it was asked for up to {most:,} rows (--peer-rows)")
            kernel = randkern.Gaussian("scale").resolve(task.X[:n])
            gamma = 1 / (2 * kernel.lengthscale**2)
            return _scored(SVC(C=task.penalty, gamma=gamma, cache_size=1000), task, n)
        kernel, size = KERNELS[name]("scale"), case["n_components"]
        drawn = case.get("fourier"), case.get("seed", 0)
        model = make_classifier(kernel, task.penalty, size, *drawn)
        if case["measure"] == "certificate":
            return _certificate(model, task)
        scored = _scored(model, task, n)
        if case["measure"] != "hard":
            return scored
        signs = 2 * task.y - 1
        return scored | {
            "margin": float(model.margin_[0]),
            "gap": float(model.duality_gap_[0]),
            "least": float(np.min(signs * model.decision_function(task.X))),
            "support": len(model.support_),
        }

    soft = {name: task for name, task in tasks.items() if task.sizes}
    records = measure_all(options, _cases(options, soft), measure)
    records.attrs["dataset"] = [
        {
            "name": name,
            "n_train": len(task.X),
            "n_test": len(task.X_test),
            "n_features": task.X.shape[1],
            "n_classes": len(np.unique(task.y_test)),
            "C": task.penalty,
        }
        for name, task in soft.items()
    ]
    return records


def _tasks(options: Options) -> dict[str, Task]:
    """Generate rows, and load MNIST if there is a directory."""
    n, n_test = max(*options.rows, options.soft_rows), options.test_rows
    X, y = generate(n + n_test, options.seed)
    rows, sizes = (X[:n], y[:n], X[n:], y[n:]), options.rows
    tasks = {"generated": Task(*rows, sizes, options.penalty)}
    if options.data_dir is not None and not options.quick:
        data = load_dataset("mnist", data_dir=options.data_dir)
        order = np.random.default_rng(options.seed).permutation(len(data.X_train))
        train, test = (np.asarray(X, np.float32) for X in (data.X_train, data.X_test))
        labels = np.asarray(data.y_train)[order], np.asarray(data.y_test)
        C = 10 * options.penalty
        tasks["mnist"] = Task(train[order], labels[0], test, labels[1], _MNIST_ROWS, C)
    # float64, so that the gap is that of the optimisation, not of rounded features.
    n = options.hard_rows
    X, y = generate(n + min(2000, n_test), options.seed, clear=0.35)
    X = X.astype(np.float64)
    tasks["separable"] = Task(X[:n], y[:n], X[n:], y[n:])
    X, y = generate(n, options.seed + 1)
    tasks["noisy"] = Task(X.astype(np.float64), y, X, y)
    return tasks


def _cases(options: Options, soft: Mapping[str, Task]) -> Iterator[Case]:
    """Yield soft margins against n, then against D, then hard margins."""
    for name, task in soft.items():
        for n, method in product(task.sizes, METHODS):
            size = None if method == "SVC" else options.components
            named: Case = {"measure": "rows", "dataset": name, "method": method}
            yield named | {"n_train": n, "n_components": size}
    draws: list[Any] = [
        *product(options.n_components, FOURIER, range(options.repeats)),
        (None, None, 0),  # the exact kernel
    ]
    for name, task in soft.items():
        n = min(options.soft_rows, len(task.X))
        for kernel, (size, fourier, seed) in product(KERNELS, draws):
            named = {"measure": "soft", "dataset": name, "kernel": kernel}
            named |= {"fourier": fourier, "n_train": n, "n_components": size}
            yield named | {"seed": seed}
    n = options.hard_rows
    for kernel, fourier in product(KERNELS, (*FOURIER, None)):
        named = {"kernel": kernel, "fourier": fourier, "n_train": n}
        hard = {"measure": "hard", "dataset": "separable", **named}
        yield hard | {"n_components": 2 * n if fourier else None}
        if fourier:
            noisy = {"measure": "certificate", "dataset": "noisy", **named}
            yield noisy | {"n_components": _FEW}


def tables(frame: pd.DataFrame) -> Iterator[Any]:
    yield from pivot(
        frame.query("measure == 'rows'"),
        "{dataset}, soft margins, D = {n_components:count}: processor seconds of "
        "fit (test accuracy)",
        "n_train",
        "method",
        "{cpu_seconds:.2f} ({accuracy:.4f})",
        per="dataset",
    )
    own = by_map(frame)
    title = "{dataset}, soft margins, {n_train:,} rows: test accuracy"
    yield from pivot(
        own, title, "n_components", "{kernel}, {map}", "{accuracy:.4f}", per="dataset"
    )
    yield from listing(
        frame.query("measure == 'hard'"),
        "hard margins, {n_train:,} separable rows",
        "kernel | map | D | margin | gap | least y w·z | accuracy | CPU s",
        "{kernel} | {fourier} | {n_components:count} | {margin:.5f} | {gap:.1e} | "
        "{least:.9f} | {accuracy:.4f} | {cpu_seconds:.2f}",
    )
    yield from listing(
        frame.query("measure == 'certificate'").fillna({"error": "none: separable"}),
        "hard margins of {n_train:,} rows with noise, D = {n_components}",
        "kernel | map | D | error | least a | sum of a | rows | residual",
        "{kernel} | {fourier} | {n_components:count} | {error} | {least:.1e} | "
        "{sum:.9f} | {support} | {residual:.1e}",
    )


def figure(frame: pd.DataFrame) -> Any:
    """Return seconds and accuracy against n, and accuracy against D."""
    by_rows, soft = frame.query("measure == 'rows'"), by_map(frame)
    sets = list(by_rows.dataset.unique())
    figure, axes = panels(3 * len(sets), 3, (4.3, 4.1))
    for i, data in enumerate(sets):
        own = by_rows[by_rows.dataset == data]
        left, middle, right = axes[3 * i : 3 * i + 3]
        features, by = soft[soft.dataset == data], ("kernel", "map")
        curves(left, own, "n_train", "cpu_seconds", METHODS)
        curves(middle, own, "n_train", "accuracy", METHODS, log="x")
        curves(right, features, "n_components", "accuracy", _MAPS, by, log="x")
        name_axes(left, data)
        name_axes(middle, data, ylabel="test accuracy")
        name_axes(right, f"{data}: features", ylabel="test accuracy")
    add_legend(figure)
    return figure


def notes(frame: pd.DataFrame) -> Iterator[str]:
    for name, powers in exponents(frame).items():
        fitted = (f"{m} n^{v:.2f}" for m, v in powers.items() if v is not None)
        yield (f"{name}: processor seconds grow as {', '.join(fitted)}")
    hard = frame.query("measure == 'hard'")
    yield (
        f"hard margins: the largest gap is {hard.gap.max():.1e}, the "
        f"least y w·z is {hard.least.min():.9f}"
    )
    noisy = frame.query("measure == 'certificate'")
    raised = noisy[noisy.error.notna()]
    if len(raised):
        yield (
            f"not separable, D = {_FEW}: {len(raised)} of {len(noisy)} raised "
            f"{raised.error.iloc[0]} with a certificate, residual at most "
            f"{raised.residual.max():.1e}"
        )


def make_classifier(
    kernel: Any, C: float, n_components: int | None, fourier: str | None, seed: int = 0
) -> Any:
    """Return a machine on features of one of the two maps, or on the exact kernel."""
    return randkern.KernelSVC(
        kernel,
        C,
        n_components,
        fit_intercept=False,  # as in the paper
        fourier=fourier or "pair",
        random_state=seed,
    )


def exponents(frame: pd.DataFrame) -> dict[str, dict[str, float | None]]:
    """Return the powers of n as which the seconds of methods grow, by data set."""
    powers: dict[str, dict[str, float | None]] = {}
    rows = frame.query("measure == 'rows'")
    for (data, method), own in rows.groupby(["dataset", "method"], sort=False):
        power = fitted_power(own.n_train, own.cpu_seconds)
        powers.setdefault(data, {})[method] = power
    return powers


def by_map(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the soft margins of every map; exact kernels stand beside each of them."""
    soft = frame.query("measure == 'soft'")
    pairs = {fourier: soft.fourier.isin([fourier, None]) for fourier in FOURIER}
    maps = [soft[chosen].assign(map=fourier) for fourier, chosen in pairs.items()]
    return pd.concat(maps).sort_index(kind="stable")


def generate(
    n: int, seed: int, clear: float = 0.0
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return rows with a nonlinear boundary, noisy or with |f| above `clear`."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n if clear == 0 else 4 * n, _COLUMNS))
    f = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * np.cos(X[:, 3])
    if clear == 0:
        f = f + 0.3 * rng.standard_normal(n)
    selected = np.flatnonzero(np.abs(f) > clear)[:n]
    return X[selected].astype(np.float32), (f[selected] > 0).astype(np.int64)


def _scored(model: Any, task: Task, n: int) -> Case:
    rows = task.X[:n], task.y[:n], task.X_test, task.y_test
    trial = fit_and_score(model, *rows, accuracy_score)
    return {
        "accuracy": float(trial.score),
        **trial.fit._asdict(),
        "predict_seconds": trial.predict.seconds,
    }


def _certificate(model: Any, task: Task) -> Case:
    """Return the error that a fit raises, and what its certificate proves."""
    result: Case = dict.fromkeys(("error", "least", "sum", "support", "residual"))
    try:
        model.fit(task.X, task.y)
    except NotSeparableError as error:
        result["error"] = type(error).__name__
        if error.certificate is not None:
            a = np.asarray(error.certificate)
            result |= {"least": float(a.min()), "sum": float(a.sum())}
            result["support"] = int(np.count_nonzero(a > 1e-6 * a.max()))
            result["residual"] = error.residual and float(error.residual)
    return result
