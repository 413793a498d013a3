"""Gaussian processes on random features beside the exact one (kitchen sinks, Fig. 1).

Bonilla (2015) draws the mean and two standard errors of a Gaussian process in one
dimension, exact and on 1,000 features, in two conventions of the Fourier transform:
exp(2πi w·τ) with w ~ N(0, (2πℓ)⁻²), eqs. (1) and (12), and exp(i w·τ) with
w ~ N(0, ℓ⁻²), eqs. (16) and (19). They are the same features.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

import randkern
from randkern._validation import check_count

from .reproductions import CommonOptions, Progress, TextTable, begin_results

__all__ = ["CONVENTIONS", "Options", "figure", "run", "tables"]

# The factor τ in exp(i·factor·w·τ), the law of w being N(0, (factor·ℓ)⁻²).
CONVENTIONS: Mapping[str, float] = {"2*pi": 2 * np.pi, "1": 1.0}
_SIZES, _QUICK_SIZES = (30, 100, 300, 1000, 3000), (30, 100, 300)
_GRID = 241
# Slopes are fitted from here on: fewer features than the function has degrees of
# freedom are not yet where 1/√D holds.
_ASYMPTOTIC = 100


@dataclass(frozen=True)
class Options(CommonOptions):
    """What ``randkern reproduce kitchen-sinks-gp`` takes."""

    rows: Annotated[int, "Training rows, of one column."] = 60
    components: Annotated[int, "Number of features of the curves."] = 1000
    n_components: Annotated[
        tuple[int, ...] | None,
        "Numbers of features of the errors; default 30 to 3,000.",
    ] = None
    lengthscale: Annotated[float, "Of the Gaussian kernel."] = 0.5
    noise: Annotated[float, "Variance of the noise; that of the function is 1."] = 0.05
    repeats: Annotated[int, "Draws of each number of features."] = 20


@dataclass(frozen=True)
class _Task:
    """Rows drawn from the process itself, with a gap, and where to look."""

    X: NDArray[np.float64]
    y: NDArray[np.float64]
    grid: NDArray[np.float64]
    lengthscale: float
    noise: float

    def posterior(
        self, n_components: int | None, convention: str = "1", seed: int = 0
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return mean and standard deviation of f on the grid."""
        factor = CONVENTIONS[convention]
        model = randkern.GaussianProcessRegressor(
            randkern.Gaussian(factor * self.lengthscale),
            self.noise,
            n_components,
            optimizer=None,
            projection="dense",
            random_state=seed,
        )
        model.fit(factor * self.X, self.y)
        mean, sd = model.predict(factor * self.grid, return_std=True)
        return mean, sd

    def features(self, n_components: int, convention: str, seed: int) -> Any:
        """Return the fitted features of a convention, as `posterior` draws them."""
        factor = CONVENTIONS[convention]
        features = randkern.RandomFeatures(
            randkern.Gaussian(factor * self.lengthscale),
            n_components,
            projection="dense",
            random_state=seed,
        )
        return features.fit(factor * self.X)


def run(options: Options, progress: Progress | None = None) -> dict[str, Any]:
    """Fit the exact process and those on features, in both conventions.

    A draw in the convention exp(2πi w·τ) is that of lengthscale 2πℓ at inputs 2πx.

    Parameters
    ----------
    options : Options
    progress : callable, optional

    Returns
    -------
    results : dict
        As :func:`.reproductions.begin_results`. Records have ``convention`` (the
        factor of w·τ, ``"2*pi"`` or ``"1"``), ``n_components``, ``seed``,
        ``mean_error`` and ``sd_error`` (root mean squares over the grid of the
        difference from the exact mean and standard deviation; the prior's is 1), and
        ``seconds``. ``curves`` has ``x``, ``rows`` (``x``, ``y``) and by ``exact`` and
        convention the ``mean`` and ``sd``. ``exponents`` has, by convention, the
        fitted power of D of ``mean`` and ``sd``; ``conventions``, by convention, the
        ``expected`` and the ``found`` standard deviation of w; ``difference``, the
        largest difference between features of the conventions from the same draw
        (``features``) and between their posteriors (``posterior``).

    Examples
    --------
    >>> from randkern_lab.papers.kitchen_sinks_gp import Options, run
    >>> results = run(Options(quick=True))
    >>> results["difference"]["features"] < 1e-9
    True
    """
    start = time.perf_counter()
    size = check_count("components", options.components)
    repeats = check_count("repeats", options.repeats)
    sizes = sorted(options.n_components or _default_sizes(options))
    if options.quick:
        size, repeats = min(size, 300), min(repeats, 10)
    task = _draw_task(options)
    results = begin_results("kitchen-sinks-gp", options)
    exact = task.posterior(None)
    total = len(sizes) * len(CONVENTIONS)
    for done, (count, convention) in enumerate(product(sizes, CONVENTIONS)):
        if progress is not None:
            progress(done, total, f"{count:,} features, factor {convention}")
        # Draws of their own: the conventions then agree in law, not only in numbers.
        first = options.seed + 1 + repeats * done
        for seed in range(first, first + repeats):
            results["records"].append(_error(task, exact, count, convention, seed))
    if progress is not None:
        progress(total, total, "done")
    curves = {c: task.posterior(size, c, options.seed) for c in CONVENTIONS}
    results |= {
        "dataset": {"name": "drawn from the process", "n_rows": len(task.X)},
        "curves": {
            "x": task.grid[:, 0].tolist(),
            "rows": {"x": task.X[:, 0].tolist(), "y": task.y.tolist()},
            **{name: _curve(c) for name, c in {"exact": exact, **curves}.items()},
        },
        "n_components": size,
        "exponents": {c: _exponents(results["records"], c) for c in CONVENTIONS},
        **_compare_conventions(task, size, options.seed, curves),
    }
    results["published"] = [
        {"convention": "2*pi", "deviation": 1 / (2 * np.pi * options.lengthscale)},
        {"convention": "1", "deviation": 1 / options.lengthscale},
    ]
    results["seconds"] = time.perf_counter() - start
    results["notes"] = list(_notes(results))
    return results


def _default_sizes(options: Options) -> tuple[int, ...]:
    return _QUICK_SIZES if options.quick else _SIZES


def _draw_task(options: Options) -> _Task:
    """Draw rows from the process: two clusters with a gap, and edges without rows."""
    n = check_count("rows", options.rows)
    for name in ("lengthscale", "noise"):
        value = getattr(options, name)
        if not 0 < value < np.inf:
            raise ValueError(f"{name} must be a positive number, got {value}")
    rng = np.random.default_rng(options.seed)
    X = np.sort(
        np.concatenate([rng.uniform(-2, 0, n - n // 2), rng.uniform(0.8, 2, n // 2)])
    )
    grid = np.linspace(-3, 3, _GRID)[:, None]
    gram = randkern.Gaussian(options.lengthscale)(X[:, None])
    values, vectors = np.linalg.eigh(gram)
    f = vectors @ (np.sqrt(np.maximum(values, 0)) * rng.standard_normal(n))
    y = f + np.sqrt(options.noise) * rng.standard_normal(n)
    return _Task(X[:, None], y, grid, options.lengthscale, options.noise)


def _error(
    task: _Task, exact: tuple[Any, Any], size: int, convention: str, seed: int
) -> dict[str, Any]:
    start = time.perf_counter()
    found = task.posterior(size, convention, seed)
    seconds = time.perf_counter() - start
    mean_error, sd_error = (
        float(np.sqrt(np.mean((a - b) ** 2))) for a, b in zip(found, exact, strict=True)
    )
    return {
        "convention": convention,
        "n_components": size,
        "seed": seed,
        "mean_error": mean_error,
        "sd_error": sd_error,
        "seconds": seconds,
    }


def _curve(posterior: tuple[NDArray[Any], NDArray[Any]]) -> dict[str, list[float]]:
    mean, sd = posterior
    return {"mean": mean.tolist(), "sd": sd.tolist()}


def _root_mean_square(
    records: list[dict[str, Any]], convention: str, size: int, key: str
) -> float:
    own = [
        r[key]
        for r in records
        if r["convention"] == convention and r["n_components"] == size
    ]
    return float(np.sqrt(np.mean(np.square(own))))


def _exponents(
    records: list[dict[str, Any]], convention: str
) -> dict[str, float | None]:
    """Return the powers of D that fit the errors best; None for a single D."""
    sizes = sorted({r["n_components"] for r in records})
    sizes = [size for size in sizes if size >= _ASYMPTOTIC] or sizes
    if len(sizes) < 2:
        return {"mean": None, "sd": None}
    found: dict[str, float | None] = {}
    for key in ("mean", "sd"):
        errors = [
            _root_mean_square(records, convention, size, f"{key}_error")
            for size in sizes
        ]
        found[key] = float(np.polyfit(np.log(sizes), np.log(errors), 1)[0])
    return found


def _compare_conventions(
    task: _Task, size: int, seed: int, curves: Mapping[str, Any]
) -> dict[str, Any]:
    """Return how far features of the same draw differ, and the laws of w."""
    small = 1e-4  # its phases are far below π, so that the angle is the phase
    Z, laws = {}, {}
    for convention, factor in CONVENTIONS.items():
        features = task.features(size, convention, seed)
        Z[convention] = features.transform(factor * task.X)
        pairs = features.transform(np.full((1, 1), factor * small))[0, : size // 2 * 2]
        w = np.arctan2(pairs[1::2], pairs[::2]) / (factor * small)
        laws[convention] = {
            "expected": 1 / (factor * task.lengthscale),
            "found": float(np.sqrt(np.mean(w**2))),
        }
    first, second = CONVENTIONS
    difference = {
        "features": float(np.abs(Z[first] - Z[second]).max()),
        "posterior": float(np.abs(np.subtract(curves[first], curves[second])).max()),
    }
    return {"conventions": laws, "difference": difference}


def _notes(results: Mapping[str, Any]) -> Iterator[str]:
    for convention, law in results["conventions"].items():
        transform = "exp(2πi w·τ)" if convention == "2*pi" else "exp(i w·τ)"
        yield (
            f"{transform}: w of standard deviation {law['found']:.3f}, expected "
            f"{law['expected']:.3f}"
        )
    difference = results["difference"]
    yield (
        f"the same draw in both conventions: features differ by "
        f"{difference['features']:.1e}, posteriors by {difference['posterior']:.1e}"
    )
    for convention, exponents in results["exponents"].items():
        if exponents["mean"] is not None:
            yield (
                f"factor {convention}: errors fall as D^{exponents['mean']:.3f} (mean) "
                f"and D^{exponents['sd']:.3f} (sd), from D = {_ASYMPTOTIC} on"
            )
    yield f"all in {results['seconds']:.0f} s"


def tables(results: Mapping[str, Any]) -> list[TextTable]:
    """Return errors of mean and standard deviation by D and convention."""
    records = results["records"]
    repeats = sum(
        r["n_components"] == records[0]["n_components"]
        and r["convention"] == records[0]["convention"]
        for r in records
    )
    table = TextTable(
        f"root mean square error against the exact process, {repeats} draws each",
        (
            "D",
            *("exp(2πi w·τ): mean", "sd", "√D × mean"),
            *("exp(i w·τ): mean", "sd", "√D × mean"),
        ),
    )
    for size in sorted({r["n_components"] for r in records}):
        cells = []
        for convention in CONVENTIONS:
            mean, sd = (
                _root_mean_square(records, convention, size, key)
                for key in ("mean_error", "sd_error")
            )
            cells += [f"{mean:.4f}", f"{sd:.4f}", f"{mean * size**0.5:.2f}"]
        table.rows.append((f"{size:,}", *cells))
    return [table]


def figure(results: Mapping[str, Any]) -> Any:
    """Return the posteriors of both conventions side by side, and errors against D."""
    from .fourier_figures import plot_kitchen_sinks

    return plot_kitchen_sinks(results)
