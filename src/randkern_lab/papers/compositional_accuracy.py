"""Gram matrices of features of compositional kernels: error against D.

Of images of CIFAR-10, for a shallow skeleton (a Gaussian kernel: one exponential node
over all pixels) and for a deep one (two convolutions and a full connection, ReLU), as
in the experiments of Daniely, Frostig, Gupta and Singer (2017). The shallow one also by
the features of Rahimi and Recht (2007), dense and structured.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

import randkern
from randkern._validation import check_count
from randkern.skeletons import Exponential, Skeleton, fully_connected

from .circle_images import available_images, build_skeleton, load_circle_images
from .reproductions import CommonOptions, Progress, TextTable, begin_results

__all__ = ["GAINS", "METHODS", "Options", "figure", "run", "tables"]

KERNELS = ("shallow", "deep")
# Method: (merge equal draws, constant), or a projection of Fourier features.
METHODS: Mapping[str, tuple[bool, str] | str] = {
    "skeleton": (True, "analytic"),
    "not-merged": (False, "analytic"),
    "constant-drawn": (True, "sampled"),
    "plain": (False, "sampled"),
    "rahimi-recht": "dense",
    "structured": "structured",
}
# What is compared with the features as they are by default.
GAINS: Mapping[str, str] = {
    "merging": "not-merged",
    "analytic-constant": "constant-drawn",
    "both": "plain",
}
_SIZES = tuple(1000 * 2**i for i in range(7))
_QUICK_SIZES = (100, 200, 400)
_MEASURES = ("mean_error", "rms_error", "max_error", "correlation")


@dataclass(frozen=True)
class Options(CommonOptions):
    """What ``randkern reproduce compositional-accuracy`` takes."""

    data: Annotated[
        str, "cifar10, mnist or digits; auto takes the first that is in --data-dir."
    ] = "auto"
    images: Annotated[int, "Images of the Gram matrix."] = 128
    n_components: Annotated[
        tuple[int, ...] | None, "Numbers of features; by default 1,000 to 64,000."
    ] = None
    scale: Annotated[float, "a of the shallow kernel's node exp(a²(ρ − 1))."] = 1.0
    repeats: Annotated[int, "Seeds of every number of features."] = 5
    gain_components: Annotated[
        tuple[int, ...] | None,
        "Numbers of features at which gains are measured; by default the first and "
        "the fifth.",
    ] = None
    gain_seeds: Annotated[int, "Seeds of the gains, paired."] = 24


@dataclass(frozen=True)
class _Problem:
    """A kernel to approximate: its skeleton, its rows, its exact values."""

    name: str
    skeleton: Skeleton
    X: NDArray[np.float32]
    lengthscale: float | None
    exact: NDArray[np.float64]

    def methods(self) -> list[str]:
        fourier = self.lengthscale is not None
        return [m for m, how in METHODS.items() if fourier or not isinstance(how, str)]

    def features(self, method: str, size: int, seed: int) -> NDArray[Any]:
        how = METHODS[method]
        if isinstance(how, str):
            assert self.lengthscale is not None
            fourier = randkern.RandomFeatures(
                randkern.Gaussian(self.lengthscale),
                size,
                projection=how,
                random_state=seed,
            )
            return np.asarray(fourier.fit_transform(embed(self.X)))
        merged, constant = how
        kernel = randkern.Compositional(
            self.skeleton, deduplicate="auto" if merged else False, constant=constant
        )
        features = randkern.RandomFeatures(kernel, size, random_state=seed)
        return np.asarray(features.fit_transform(self.X))


def embed(X: NDArray[Any]) -> NDArray[Any]:
    """Return the points (cos t, sin t) of angles t, of shape (n, 2d).

    Examples
    --------
    >>> import numpy as np
    >>> from randkern_lab.papers.compositional_accuracy import embed
    >>> embed(np.array([[0.0, np.pi / 2]])).round(6).tolist()
    [[1.0, 0.0, 0.0, 1.0]]
    """
    return np.concatenate([np.cos(X), np.sin(X)], axis=1)


def run(options: Options, progress: Progress | None = None) -> dict[str, Any]:
    """Measure the error of Gram matrices of features of both kernels.

    Parameters
    ----------
    options : Options
    progress : callable, optional

    Returns
    -------
    results : dict
        As :func:`.reproductions.begin_results`. A record has ``kernel``
        (``"shallow"`` or ``"deep"``), ``method`` (of :data:`METHODS`),
        ``n_components``, ``seed``, ``mean_error``, ``rms_error`` and ``max_error``
        of the entries off the diagonal, their ``correlation`` with the kernel, and
        ``seconds`` (drawing and evaluating). ``medians`` has the same by kernel,
        method and number of features, with ``seeds``; ``gains`` has ``kernel``,
        ``gain`` (of :data:`GAINS`), ``n_components``, ``ratio`` (geometric mean over
        seeds of the mean error with it over that without), ``low`` and ``high`` (its
        95 % interval) and ``seeds``; ``slopes`` the fitted power of D of the mean
        error, by kernel and method; ``complexity`` is by kernel.

    Examples
    --------
    >>> from randkern_lab.papers.compositional_accuracy import Options, run
    >>> results = run(Options(quick=True, n_components=(100,)))
    >>> [gain["gain"] for gain in results["gains"] if gain["kernel"] == "deep"]
    ['merging', 'analytic-constant', 'both']
    """
    start = time.perf_counter()
    sizes, gain_sizes = _sizes(options)
    n_images = _several("images", options.images)
    repeats = check_count("repeats", options.repeats)
    gain_seeds = _several("gain_seeds", options.gain_seeds)
    if options.quick:
        n_images, repeats = min(n_images, 30), min(repeats, 2)
        gain_seeds = min(gain_seeds, 5)
    name = options.data
    if name == "auto":
        name = available_images(options.data_dir)[0]
    images = load_circle_images(
        name, options.data_dir, n_train=n_images, seed=options.seed
    )
    results = begin_results("compositional-accuracy", options)
    problems = _problems(images.X_train, images.shape, options.scale)
    results["records"] = _records(
        problems, sizes, gain_sizes, (repeats, gain_seeds), options.seed, progress
    )
    records = results["records"]
    results |= {
        "dataset": {**images.describe(), "n_images": len(images.X_train)},
        "medians": _medians(records),
        "gains": _gains(records, gain_sizes),
        "slopes": _slopes(records),
        "complexity": {p.name: float(p.skeleton.complexity()) for p in problems},
        "seconds": time.perf_counter() - start,
    }
    results["notes"] = list(_notes(results, options.scale))
    return results


def _several(name: str, value: int) -> int:
    if check_count(name, value) < 3:
        raise ValueError(f"{name} must be 3 or more, got {value}")
    return value


def _sizes(options: Options) -> tuple[list[int], list[int]]:
    """Return the numbers of features, and those at which gains are measured."""
    if not options.scale > 0:
        raise ValueError(f"scale must be positive, got {options.scale}")
    sizes = options.n_components or (_QUICK_SIZES if options.quick else _SIZES)
    sizes = tuple(sorted({check_count("n_components", d) for d in sizes}))
    gain_sizes = options.gain_components or {sizes[0], sizes[min(4, len(sizes) - 1)]}
    return list(sizes), sorted({check_count("gain_components", d) for d in gain_sizes})


def _problems(
    X: NDArray[np.float32], shape: tuple[int, int, int], scale: float
) -> list[_Problem]:
    n = X.shape[1]
    shallow = fully_connected(n, activation=Exponential(scale))
    # a²(mean of cos(t − t') − 1) = −a²‖u − u'‖²/(2n) of the embedded points u.
    found = []
    for name, skeleton, lengthscale in (
        ("shallow", shallow, float(np.sqrt(n) / scale)),
        ("deep", build_skeleton("deep", shape), None),
    ):
        exact = randkern.Compositional(skeleton)(X.astype(np.float64))
        found.append(_Problem(name, skeleton, X, lengthscale, np.asarray(exact)))
    return found


def _records(
    problems: Sequence[_Problem],
    sizes: Sequence[int],
    gain_sizes: Sequence[int],
    seeds: tuple[int, int],
    seed: int,
    progress: Progress | None,
) -> list[dict[str, Any]]:
    """Measure every kernel, method, number of features and seed."""
    compared = {"skeleton", *GAINS.values()}
    todo: list[tuple[_Problem, str, int, int]] = []
    for problem in problems:
        methods = problem.methods()
        for method, size in product(methods, sorted({*sizes, *gain_sizes})):
            n_seeds = seeds[0] if size in sizes else 0
            if size in gain_sizes and method in compared:
                n_seeds = max(n_seeds, seeds[1])
            todo += [(problem, method, size, seed + i) for i in range(n_seeds)]
        for method in methods:
            problem.features(method, 20, seed)  # compiles what will be timed
    records = []
    for done, (problem, method, size, own) in enumerate(todo):
        if progress is not None:
            progress(done, len(todo), f"{problem.name}, {method}: {size:,} features")
        start = time.perf_counter()
        Z = problem.features(method, size, own)
        seconds = time.perf_counter() - start
        described = {
            "kernel": problem.name,
            "method": method,
            "n_components": size,
            "seed": own,
        }
        records.append(described | _errors(Z, problem.exact) | {"seconds": seconds})
    if progress is not None:
        progress(len(todo), len(todo), "done")
    return records


def _errors(Z: NDArray[Any], exact: NDArray[np.float64]) -> dict[str, float]:
    """Compare a Gram matrix off its diagonal, where features of modulus 1 are exact."""
    Z = Z.astype(np.float64)
    pairs = np.triu_indices(len(Z), 1)
    estimate, truth = (Z @ Z.T)[pairs], exact[pairs]
    error = np.abs(estimate - truth)
    spread = estimate.std() * truth.std()
    covariance = np.mean((estimate - estimate.mean()) * (truth - truth.mean()))
    return {
        "mean_error": float(error.mean()),
        "rms_error": float(np.sqrt(np.mean(error**2))),
        "max_error": float(error.max()),
        "correlation": float(covariance / spread) if spread > 0 else 0.0,
    }


# -- results ------------------------------------------------------------------------

_Key = tuple[str, str, int]


def _grouped(records: Sequence[Mapping[str, Any]]) -> dict[_Key, list[Any]]:
    groups: dict[_Key, list[Any]] = {}
    for r in records:
        groups.setdefault((r["kernel"], r["method"], r["n_components"]), []).append(r)
    return groups


def _medians(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"kernel": kernel, "method": method, "n_components": size, "seeds": len(group)}
        | {
            measure: float(np.median([r[measure] for r in group]))
            for measure in (*_MEASURES, "seconds")
        }
        for (kernel, method, size), group in _grouped(records).items()
    ]


def _gains(
    records: Sequence[Mapping[str, Any]], sizes: Sequence[int]
) -> list[dict[str, Any]]:
    """Return geometric mean ratios of errors with and without, paired by seed."""
    groups = _grouped(records)
    found = []
    for kernel, size, (gain, without) in product(KERNELS, sizes, GAINS.items()):
        errors = [
            {r["seed"]: r["mean_error"] for r in groups[kernel, method, size]}
            for method in ("skeleton", without)
        ]
        found.append(
            {"kernel": kernel, "gain": gain, "n_components": size}
            | _paired_ratio(*errors)
        )
    return found


def _paired_ratio(
    with_it: Mapping[int, float], without: Mapping[int, float]
) -> dict[str, Any]:
    """Return the geometric mean of ratios and its 95 % interval by Student's t."""
    seeds = sorted(set(with_it) & set(without))
    logs = np.log([with_it[s] / without[s] for s in seeds])
    mean = float(logs.mean())
    half = float(
        student.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) / np.sqrt(len(logs))
    )
    low, ratio, high = (float(np.exp(v)) for v in (mean - half, mean, mean + half))
    return {"ratio": ratio, "low": low, "high": high, "seeds": len(seeds)}


def _slopes(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the power of D that fits the medians of the mean error best."""
    curves: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for m in _medians(records):
        point = (m["n_components"], m["mean_error"])
        curves.setdefault((m["kernel"], m["method"]), []).append(point)
    return [
        {"kernel": kernel, "method": method, "slope": fitted_power(points)}
        for (kernel, method), points in curves.items()
        if len(points) > 1
    ]


def fitted_power(points: Sequence[tuple[int, float]]) -> float:
    """Return the power p of the curve y = c·xᵖ that fits points (x, y) best.

    Examples
    --------
    >>> from randkern_lab.papers.compositional_accuracy import fitted_power
    >>> round(fitted_power([(1, 8.0), (4, 4.0), (16, 2.0)]), 6)
    -0.5
    """
    x, y = np.log(np.asarray(points, dtype=np.float64)).T
    return float(np.polyfit(x, y, 1)[0])


def _notes(results: Mapping[str, Any], scale: float) -> Iterator[str]:
    shape = " × ".join(map(str, results["dataset"]["image_shape"]))
    yield (
        f"shallow: exp(a²(ρ − 1)), a = {scale:g}, over the pixels of {shape} images; "
        "deep: convolution, convolution, full connection, all ReLU"
    )
    for kernel, factors in results["complexity"].items():
        slopes = [s for s in results["slopes"] if s["kernel"] == kernel]
        powers = ", ".join(f"{s['method']} {s['slope']:.2f}" for s in slopes)
        yield (
            f"{kernel}: a plain draw multiplies base features, {factors:.3g} on average"
            + (f"; fitted powers of D: {powers}" if powers else "")
        )
    below = [g for g in results["gains"] if g["high"] < 1]
    above = [g for g in results["gains"] if g["low"] > 1]
    yield (
        f"of {len(results['gains'])} paired gains {len(below)} lower the error beyond "
        f"their interval, {len(above)} raise it"
    )
    yield f"all in {results['seconds']:.0f} s"


def tables(results: Mapping[str, Any]) -> list[TextTable]:
    """Return mean errors and seconds by D, other measures at the last D, and gains."""
    medians = results["medians"]
    found = {(m["kernel"], m["method"], m["n_components"]): m for m in medians}
    sizes = sorted({m["n_components"] for m in medians})
    described = results["dataset"]
    of = f"{described['n_images']} images of {described['name']}"
    shown = {
        "mean |error| of the Gram matrix, medians": lambda m: f"{m['mean_error']:.5f}",
        "ms to draw and evaluate": lambda m: f"{1000 * m['seconds']:,.0f}",
    }
    return [
        *(
            _by_size(found, kernel, sizes, f"{kernel} kernel, {of}: {what}", cell)
            for kernel, (what, cell) in product(KERNELS, shown.items())
        ),
        _measure_table(found, max(sizes)),
        _gain_table(results["gains"]),
    ]


def _by_size(
    found: Mapping[_Key, Mapping[str, Any]],
    kernel: str,
    sizes: Sequence[int],
    title: str,
    cell: Callable[[Mapping[str, Any]], str],
) -> TextTable:
    methods = [m for m in METHODS if any((kernel, m, size) in found for size in sizes)]
    table = TextTable(title, ("D", *methods))
    for size in sizes:
        medians = (found.get((kernel, method, size)) for method in methods)
        cells = ("" if m is None else cell(m) for m in medians)
        table.rows.append((f"{size:,}", *cells))
    return table


def _measure_table(found: Mapping[_Key, Mapping[str, Any]], size: int) -> TextTable:
    table = TextTable(
        f"at D = {size:,}",
        ("kernel, method", "mean", "RMS", "max", "1 - correlation"),
    )
    for (kernel, method, own), m in found.items():
        if own == size:
            errors = (f"{m[key]:.5f}" for key in _MEASURES[:3])
            lost = f"{1 - m['correlation']:.2e}"
            table.rows.append((f"{kernel}, {method}", *errors, lost))
    return table


def _gain_table(gains: Sequence[Mapping[str, Any]]) -> TextTable:
    table = TextTable(
        "error with over error without, paired by seed (95 % interval)",
        ("kernel, D", *GAINS, "seeds"),
    )
    for kernel, size in dict.fromkeys((g["kernel"], g["n_components"]) for g in gains):
        own = [g for g in gains if (g["kernel"], g["n_components"]) == (kernel, size)]
        cells = (f"{g['ratio']:.3f} ({g['low']:.3f}-{g['high']:.3f})" for g in own)
        table.rows.append((f"{kernel}, {size:,}", *cells, str(own[0]["seeds"])))
    return table


def figure(results: Mapping[str, Any]) -> Any:
    """Return the mean error against D of both kernels, and the paired gains."""
    from .compositional_figures import plot_accuracy

    return plot_accuracy(results)
