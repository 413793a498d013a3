"""Support vector machines on random Fourier features (Póczos' slides).

The primal of the slides, hard and soft margins without an intercept, on both feature
maps: cosines and sines of D/2 frequencies ("pair", version 1 of the slides), and
cosines of D frequencies with random phases ("offset", version 2). Against the number
of rows the cost is O(n) instead of that of scikit-learn's ``SVC``.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

import randkern
from randkern._validation import check_count
from randkern.datasets import load_dataset
from randkern.exceptions import NotSeparableError

from .reproductions import CommonOptions, Progress, TextTable, begin_results

__all__ = [
    "FOURIER",
    "KERNELS",
    "Options",
    "figure",
    "make_classifier",
    "run",
    "tables",
]

KERNELS: Mapping[str, Callable[..., Any]] = {
    "gaussian": randkern.Gaussian,
    "laplacian": randkern.Laplacian,
    "cauchy": randkern.Cauchy,
}
FOURIER = ("pair", "offset")
_ROWS, _QUICK_ROWS = (1000, 3000, 10_000, 30_000, 100_000), (200, 400, 800)
_MNIST_ROWS = (1000, 3000, 10_000, 30_000, 60_000)
_SIZES, _QUICK_SIZES = (100, 300, 1000, 3000), (20, 60)
_TEST_ROWS, _COLUMNS = 5000, 8
# Fewer features than rows, so that noisy labels cannot be separated.
_FEW = 20
# Generated rows of one label only would not make a task.
_FEWEST_ROWS = 20
# |f| is above this on the separable rows.
_CLEAR = 0.35


@dataclass(frozen=True)
class Options(CommonOptions):
    """What ``randkern reproduce fourier-svm`` takes."""

    rows: Annotated[
        tuple[int, ...] | None, "Numbers of generated rows; default 1,000 to 100,000."
    ] = None
    n_components: Annotated[
        tuple[int, ...] | None, "Numbers of features; default 100 to 3,000."
    ] = None
    components: Annotated[int, "Number of features while the rows vary."] = 1000
    soft_rows: Annotated[int, "Rows of the soft margins while features vary."] = 3000
    hard_rows: Annotated[int, "Rows of the hard margins."] = 400
    penalty: Annotated[
        float, "C of the generated rows; MNIST has 10 times as much."
    ] = 1.0
    peer_rows: Annotated[int, "Most rows of scikit-learn's SVC."] = 10_000
    repeats: Annotated[int, "Draws of the features of soft margins."] = 3


@dataclass(frozen=True)
class _Task:
    """Rows, labels, the largest of the numbers of rows, and C."""

    name: str
    X: NDArray[Any]
    y: NDArray[Any]
    X_test: NDArray[Any]
    y_test: NDArray[Any]
    sizes: tuple[int, ...]
    penalty: float

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "n_train": len(self.X),
            "n_test": len(self.X_test),
            "n_features": self.X.shape[1],
            "n_classes": len(np.unique(self.y_test)),
            "C": self.penalty,
        }


def make_classifier(
    kernel: Any, C: float, n_components: int | None, fourier: str, seed: int
) -> Any:
    """Return a support vector machine on features of one of the two maps.

    Offset features, which the estimator does not draw itself, are made first, and
    separated by the linear kernel of theirs.

    Examples
    --------
    >>> import randkern as rk
    >>> from randkern_lab.papers.fourier_svm import make_classifier
    >>> model = make_classifier(rk.Cauchy(), 1.0, 50, "offset", 0)
    >>> model[-1].kernel
    Linear()
    """
    if fourier == "pair" or n_components is None:
        return randkern.KernelSVC(kernel, C, n_components, random_state=seed)
    features = randkern.RandomFeatures(
        kernel, n_components, fourier=fourier, random_state=seed
    )
    linear = randkern.KernelSVC(randkern.Linear(), C, n_components, random_state=seed)
    return make_pipeline(features, linear)


def run(options: Options, progress: Progress | None = None) -> dict[str, Any]:
    """Fit soft margins against n and D, hard margins, and one that cannot be.

    Parameters
    ----------
    options : Options
        With `data_dir`, soft margins also of MNIST.
    progress : callable, optional

    Returns
    -------
    results : dict
        As :func:`.reproductions.begin_results`. Records have ``measure`` and
        ``dataset``: those of ``"rows"`` ``method`` (a kernel, or ``"SVC"``),
        ``n_train``, ``n_components`` (None for SVC), ``accuracy``, ``seconds`` of fit,
        ``cpu_seconds`` (the same in processor time, of all threads) and
        ``predict_seconds``; of ``"soft"`` ``kernel``, ``fourier`` (None for the
        exact kernel), ``n_train``, ``n_components``, ``seed``, ``accuracy``
        and seconds as before; of ``"hard"`` ``kernel``, ``fourier``, ``n_components``,
        ``margin`` (1/‖w‖), ``gap`` (of duality, relative), ``least`` (the least
        y w·z of the training rows), ``accuracy`` and seconds; of ``"certificate"``
        ``kernel``, ``fourier``, ``n_components``, ``n_train``, ``error``, ``least``
        and ``sum`` of the certificate, its number of rows ``support`` and its
        ``residual``. ``exponents`` has, by data set and method, the fitted power of n
        of ``cpu_seconds``; ``skipped`` ``dataset``, ``method``, ``n_train`` and
        ``reason``.
    """
    start = time.perf_counter()
    _check(options)
    results = begin_results("fourier-svm", options) | {"skipped": []}
    tasks = _tasks(options)
    _warm_up(options.seed)
    steps = [
        *(step for task in tasks for step in _row_steps(task, options, results)),
        *(step for task in tasks for step in _soft_steps(task, options)),
        *_hard_steps(options),
    ]
    for done, (doing, measure) in enumerate(steps):
        if progress is not None:
            progress(done, len(steps), doing)
        results["records"].append(measure())
    if progress is not None:
        progress(len(steps), len(steps), "done")
    results |= {
        "dataset": [task.describe() for task in tasks],
        "exponents": {t.name: _exponents(results["records"], t.name) for t in tasks},
        "seconds": time.perf_counter() - start,
    }
    results["published"] = [
        {"claim": "features take O(n) where the Gram matrix takes up to O(n^3)"}
    ]
    results["notes"] = list(_notes(results))
    return results


def _check(options: Options) -> None:
    """Raise where an option has a value that no fit can be made of."""
    for name in ("components", "soft_rows", "hard_rows", "peer_rows", "repeats"):
        check_count(name, getattr(options, name))
    fewest = {"soft_rows": (options.soft_rows,), "hard_rows": (options.hard_rows,)}
    for name, sizes in (fewest | {"rows": options.rows or ()}).items():
        if min(sizes, default=_FEWEST_ROWS) < _FEWEST_ROWS:
            raise ValueError(
                f"{name} must be at least {_FEWEST_ROWS}, so that the rows have both "
                f"labels, got {min(sizes)}."
            )
    if min(options.n_components or (1,)) < 1:
        raise ValueError(
            f"n_components must be positive, got {min(options.n_components or ())}."
        )
    if not 0 < options.penalty < np.inf:
        raise ValueError(
            f"penalty must be a positive number, the C of soft margins, got "
            f"{options.penalty}."
        )


def _tasks(options: Options) -> list[_Task]:
    """Return the generated rows, and MNIST where there is a directory."""
    default = _QUICK_ROWS if options.quick else _ROWS
    sizes = tuple(sorted(options.rows or default))
    n_test = 500 if options.quick else _TEST_ROWS
    X, y = _generate(max(*sizes, options.soft_rows) + n_test, options.seed)
    rows = X[:-n_test], y[:-n_test], X[-n_test:], y[-n_test:]
    tasks = [_Task("generated", *rows, sizes, options.penalty)]
    if options.data_dir is not None and not options.quick:
        data = load_dataset("mnist", data_dir=options.data_dir)
        order = np.random.default_rng(options.seed).permutation(len(data.X_train))
        assert data.X_test is not None and data.y_test is not None
        images = [np.asarray(X, dtype=np.float32) for X in (data.X_train, data.X_test)]
        labels = np.asarray(data.y_train)[order]
        tasks.append(
            _Task(
                *("mnist", images[0][order], labels, images[1]),
                *(np.asarray(data.y_test), _MNIST_ROWS, 10 * options.penalty),
            )
        )
    return tasks


def _generate(
    n: int, seed: int, clear: float = 0.0
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return rows of a nonlinear boundary, noisy, or with |f| above `clear`."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n if clear == 0 else 4 * n, _COLUMNS))
    f = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * np.cos(X[:, 3])
    if clear == 0:
        f = f + 0.3 * rng.standard_normal(n)
    kept = np.flatnonzero(np.abs(f) > clear)[:n]
    return X[kept].astype(np.float32), (f[kept] > 0).astype(np.int64)


def _warm_up(seed: int) -> None:
    """Load compiled code, so that the first fit is not charged with it."""
    X, y = _generate(64, seed)
    for dtype in (np.float32, np.float64):
        for kernel in (randkern.Gaussian(), randkern.Laplacian()):
            make_classifier(kernel, 1.0, 32, "offset", 0).fit(X.astype(dtype), y)
            make_classifier(kernel, 1.0, 32, "pair", 0).fit(X.astype(dtype), y)


_Step = tuple[str, Callable[[], dict[str, Any]]]


def _scored(model: Any, task: _Task, n: int) -> dict[str, Any]:
    start, cpu_start = time.perf_counter(), time.process_time()
    model.fit(task.X[:n], task.y[:n])
    fitted, cpu_fitted = time.perf_counter(), time.process_time()
    accuracy = float(np.mean(model.predict(task.X_test) == task.y_test))
    end = time.perf_counter()
    return {
        "dataset": task.name,
        "n_train": n,
        "accuracy": accuracy,
        "seconds": fitted - start,
        "cpu_seconds": cpu_fitted - cpu_start,
        "predict_seconds": end - fitted,
    }


def _row_steps(task: _Task, options: Options, results: Any) -> Iterator[_Step]:
    """Yield soft margins against n: three kernels on features, and SVC."""
    size = min(options.components, 100) if options.quick else options.components
    for n, (name, kernel) in product(task.sizes, KERNELS.items()):
        named = {"measure": "rows", "method": name, "n_components": size}
        model = make_classifier(kernel("scale"), task.penalty, size, "pair", 0)
        yield f"{task.name}, {n:,} rows: {name}", _step(named, model, task, n)
    for n in task.sizes:
        if n > options.peer_rows:
            skipped = {"dataset": task.name, "method": "SVC", "n_train": n}
            reason = f"it was asked for up to {options.peer_rows:,} rows (--peer-rows)"
            results["skipped"].append(skipped | {"reason": reason})
            continue
        named = {"measure": "rows", "method": "SVC", "n_components": None}
        lengthscale = randkern.Gaussian("scale").resolve(task.X[:n]).lengthscale
        model = SVC(C=task.penalty, gamma=1 / (2 * lengthscale**2), cache_size=1000)
        yield f"{task.name}, {n:,} rows: SVC", _step(named, model, task, n)


def _soft_steps(task: _Task, options: Options) -> Iterator[_Step]:
    """Yield soft margins against D: kernels, both maps, and the exact kernels."""
    sizes = options.n_components or (_QUICK_SIZES if options.quick else _SIZES)
    n = min(options.soft_rows, 300) if options.quick else options.soft_rows
    n = min(n, len(task.X))
    repeats = 1 if options.quick else options.repeats
    draws = product(sorted(sizes), FOURIER, range(repeats))
    cases = [*draws, (None, None, 0)]
    for (name, kernel), (size, fourier, seed) in product(KERNELS.items(), cases):
        named = {
            "measure": "soft",
            "kernel": name,
            "fourier": fourier,
            "n_components": size,
            "seed": seed,
        }
        model = make_classifier(
            kernel("scale"), task.penalty, size, fourier or "", seed
        )
        doing = f"{task.name}, {name}: " + (f"D = {size:,}" if size else "exact kernel")
        yield doing, _step(named, model, task, n)


def _step(
    named: dict[str, Any], model: Any, task: _Task, n: int
) -> Callable[[], dict[str, Any]]:
    return lambda: named | _scored(model, task, n)


def _hard_steps(options: Options) -> Iterator[_Step]:
    """Yield hard margins of separable rows, and of rows with noise in their labels."""
    n = min(options.hard_rows, 100) if options.quick else options.hard_rows
    n_test = 200 if options.quick else 2000
    # float64: the gap is then that of the programme, not of rounded features.
    X, y = _generate(n + n_test, options.seed, _CLEAR)
    X = X.astype(np.float64)
    rows = X[:n], y[:n], X[n:], y[n:]
    clear = _Task("separable", *rows, (n,), np.inf)
    X, y = _generate(n, options.seed + 1)
    noisy = _Task("noisy", X.astype(np.float64), y, X, y, (n,), np.inf)
    size = 2 * n
    for (name, kernel), fourier in product(KERNELS.items(), (*FOURIER, None)):
        wide = size if fourier else None
        model = make_classifier(kernel("scale"), np.inf, wide, fourier or "", 0)
        named = {"kernel": name, "fourier": fourier, "n_components": wide}
        yield f"hard margin, {name}", _hard_step(named, model, clear)
        if fourier:
            model = make_classifier(kernel("scale"), np.inf, _FEW, fourier, 0)
            named = named | {"n_components": _FEW}
            yield f"not separable, {name}", _certificate_step(named, model, noisy)


def _hard_step(named: dict[str, Any], model: Any, task: _Task) -> Any:
    def measure() -> dict[str, Any]:
        scored = _scored(model, task, len(task.X))
        last = model[-1] if named["fourier"] == "offset" else model
        signs = 2 * task.y - 1
        return {
            "measure": "hard",
            **named,
            **scored,
            "margin": float(last.margin_[0]),
            "gap": float(last.duality_gap_[0]),
            "least": float(np.min(signs * model.decision_function(task.X))),
            "support": len(last.support_),
        }

    return measure


def _certificate_step(named: dict[str, Any], model: Any, task: _Task) -> Any:
    def measure() -> dict[str, Any]:
        record = {
            "measure": "certificate",
            "dataset": task.name,
            "n_train": len(task.X),
            **named,
            **{"error": None, "least": None, "sum": None},
            **{"support": None, "residual": None},
        }
        try:
            model.fit(task.X, task.y)
        except NotSeparableError as error:
            record["error"] = type(error).__name__
            if error.certificate is not None:
                a = np.asarray(error.certificate)
                record |= {"least": float(a.min()), "sum": float(a.sum())}
                record["support"] = int(np.count_nonzero(a > 1e-6 * a.max()))
                record["residual"] = error.residual and float(error.residual)
        return record

    return measure


def _exponents(records: list[dict[str, Any]], name: str) -> dict[str, float | None]:
    """Return the powers of n that fit the processor time best, for each method."""
    own = [r for r in records if r["measure"] == "rows" and r["dataset"] == name]
    found: dict[str, float | None] = {}
    for method in dict.fromkeys(r["method"] for r in own):
        points = [
            (r["n_train"], r["cpu_seconds"]) for r in own if r["method"] == method
        ]
        sizes, seconds = np.log(np.transpose(points))
        several = len(set(sizes)) > 1
        found[method] = float(np.polyfit(sizes, seconds, 1)[0]) if several else None
    return found


def _notes(results: Mapping[str, Any]) -> Iterator[str]:
    for name, exponents in results["exponents"].items():
        fitted = (f"{m} n^{v:.2f}" for m, v in exponents.items() if v is not None)
        yield f"{name}: processor seconds grow as {', '.join(fitted)}"
    hard = [r for r in results["records"] if r["measure"] == "hard"]
    yield (
        f"hard margins: the largest gap is {max(r['gap'] for r in hard):.1e}, the "
        f"least y w·z is {min(r['least'] for r in hard):.9f}"
    )
    named = [r for r in results["records"] if r["measure"] == "certificate"]
    residuals = [r["residual"] for r in named if r["residual"] is not None]
    raised = [r["error"] for r in named if r["error"]]
    if raised:
        worst = f", residual at most {max(residuals):.1e}" if residuals else ""
        yield (
            f"not separable, D = {_FEW}: {len(raised)} of {len(named)} raised "
            f"{raised[0]} with a certificate{worst}"
        )
    for skipped in results["skipped"]:
        yield (
            f"skipped {skipped['method']}, {skipped['dataset']}, "
            f"{skipped['n_train']:,} rows: {skipped['reason']}"
        )
    yield f"all in {results['seconds']:.0f} s"


def tables(results: Mapping[str, Any]) -> list[TextTable]:
    """Return soft margins by n and by D, hard margins, and certificates."""
    records = results["records"]
    found = []
    for name in results["exponents"]:
        own = [r for r in records if r["dataset"] == name]
        found += [_row_table(name, own), _soft_table(name, own)]
    hard = [r for r in records if r["measure"] == "hard"]
    table = TextTable(
        f"hard margins, {hard[0]['n_train']:,} separable rows",
        ("kernel", "map", "D", "margin", "gap", "least y w·z", "accuracy", "CPU s"),
    )
    for r in hard:
        size = "exact" if r["n_components"] is None else f"{r['n_components']:,}"
        numbers = (f"{r['margin']:.5f}", f"{r['gap']:.1e}", f"{r['least']:.9f}")
        scores = (f"{r['accuracy']:.4f}", f"{r['cpu_seconds']:.2f}")
        table.rows.append((r["kernel"], r["fourier"] or "", size, *numbers, *scores))
    return [*found, table, _certificate_table(records)]


def _row_table(name: str, records: list[Any]) -> TextTable:
    own = [r for r in records if r["measure"] == "rows"]
    methods = tuple(dict.fromkeys(r["method"] for r in own))
    size = max(r["n_components"] or 0 for r in own)
    table = TextTable(
        f"{name}, soft margins, D = {size:,}: processor seconds of fit (test accuracy)",
        ("n", *methods),
    )
    for n in sorted({r["n_train"] for r in own}):
        at = {r["method"]: r for r in own if r["n_train"] == n}
        cells = (
            f"{at[m]['cpu_seconds']:.2f} ({at[m]['accuracy']:.4f})" if m in at else ""
            for m in methods
        )
        table.rows.append((f"{n:,}", *cells))
    return table


def _soft_table(name: str, records: list[Any]) -> TextTable:
    own = [r for r in records if r["measure"] == "soft"]
    table = TextTable(
        f"{name}, soft margins, {own[0]['n_train']:,} rows: test accuracy",
        ("D", *(f"{kernel}, {fourier}" for kernel in KERNELS for fourier in FOURIER)),
    )
    for size in [*sorted({r["n_components"] or 0 for r in own} - {0}), None]:
        cells = []
        for kernel, fourier in product(KERNELS, FOURIER):
            values = [
                r["accuracy"]
                for r in own
                if r["kernel"] == kernel
                and r["n_components"] == size
                and r["fourier"] in (fourier, None)
            ]
            cells.append(f"{np.mean(values):.4f}")
        table.rows.append((f"{size:,}" if size else "exact", *cells))
    return table


def _certificate_table(records: list[Any]) -> TextTable:
    own = [r for r in records if r["measure"] == "certificate"]
    table = TextTable(
        f"hard margins of {own[0]['n_train']:,} rows with noise, D = {_FEW}",
        ("kernel", "map", "error", "least a", "sum of a", "rows", "residual"),
    )
    for r in own:
        if r["sum"] is None:
            cells = (r["error"] or "none: separable", "", "", "", "")
        else:
            residual = "" if r["residual"] is None else f"{r['residual']:.1e}"
            sums = (f"{r['least']:.1e}", f"{r['sum']:.9f}", f"{r['support']}")
            cells = (r["error"], *sums, residual)
        table.rows.append((r["kernel"], r["fourier"], *cells))
    return table


def figure(results: Mapping[str, Any]) -> Any:
    """Return seconds and accuracy against n, and accuracy against D."""
    from .fourier_figures import plot_fourier_svm

    return plot_fourier_svm(results)
