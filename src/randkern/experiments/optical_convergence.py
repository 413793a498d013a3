"""How optical features converge to their kernel: error and tails (appendix C).

The higher the degree m, the slower: Ohana et al. (2020) bound the tail of a product of
D features by D·exp(−C(Dt)^{1/m}). Here both are measured, beside the exact variance of
a feature, K_{2m} − K_m².
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

import randkern

from .._validation import check_count
from ..datasets import load_dataset
from .reproductions import CommonOptions, Progress, TextTable, begin_results

__all__ = ["Options", "figure", "run", "tables"]

DEGREES = (1, 2, 3, 4)
# Deviations of the tails, in standard deviations of the formula.
_DEVIATIONS = tuple(np.arange(0.0, 8.25, 0.25))
_SIZES, _QUICK_SIZES = (10, 30, 100, 300, 1000, 3000, 10_000), (10, 30, 100, 300)
# Columns that are drawn at once; every D columns of them are an estimate.
_COLUMNS = 2**20


@dataclass(frozen=True)
class Options(CommonOptions):
    """What ``randkern reproduce optical-convergence`` takes."""

    data: Annotated[
        str, "Whose rows the Gram matrix is of, scaled to norm 1; see --data-dir."
    ] = "digits"
    rows: Annotated[int, "Rows of the Gram matrix."] = 40
    n_components: Annotated[
        tuple[int, ...] | None, "Numbers of features; by default 10 to 10,000."
    ] = None
    tail_components: Annotated[int, "Number of features of the tails."] = 100
    repeats: Annotated[int, "Draws of each Gram matrix."] = 100
    tail_draws: Annotated[int, "Draws of the tails, of a pair of rows."] = 200_000


def run(options: Options, progress: Progress | None = None) -> dict[str, Any]:
    """Measure the error of Gram matrices against D, and the tails at one D.

    Parameters
    ----------
    options : Options
    progress : callable, optional

    Returns
    -------
    results : dict
        As :func:`.reproductions.begin_results`. Records have ``measure``: those of
        ``"error"`` have ``degree``, ``n_components``, ``error`` (root mean square of
        ‖ZZᵀ − K‖/‖K‖, Frobenius norms), ``predicted`` (by the variance formula),
        ``ratio`` (of the two) and ``repeats``; those of ``"tail"`` have ``degree``,
        ``n_components``, ``deviation`` (in predicted standard deviations),
        ``share`` (of the draws that exceed the kernel by more), ``normal`` (of a
        normal law) and ``draws``. ``exponents`` has the fitted power of D of each
        degree's error; ``variances``, by degree, the variance of a feature over K²
        at equal rows.

    Examples
    --------
    >>> from randkern.experiments.optical_convergence import Options, run
    >>> results = run(Options(quick=True))
    >>> {degree: round(value) for degree, value in results["variances"].items()}
    {'1': 1, '2': 5, '3': 19, '4': 69}
    >>> -0.7 < results["exponents"]["2"] < -0.3
    True
    """
    start = time.perf_counter()
    rows = check_count("rows", options.rows)
    tail_size = check_count("tail_components", options.tail_components)
    sizes = sorted(options.n_components or _default_sizes(options))
    repeats, draws = options.repeats, options.tail_draws
    if options.quick:
        rows, repeats, draws = min(rows, 20), min(repeats, 10), min(draws, 5_000)
    dataset = load_dataset(options.data, data_dir=options.data_dir)
    X = _unit_rows(np.asarray(dataset.X_train, dtype=np.float64), rows, options.seed)
    results = begin_results("optical-convergence", options)
    total = len(DEGREES) * (len(sizes) + 1)
    for done, (degree, size) in enumerate(product(DEGREES, [*sizes, None])):
        if progress is not None:
            doing = "tails" if size is None else f"{size:,} features"
            progress(done, total, f"m = {degree}: {doing}")
        seed = options.seed + done
        if size is None:
            results["records"] += _tail_records(degree, tail_size, draws, seed)
        else:
            results["records"].append(_error_record(X, degree, size, repeats, seed))
    if progress is not None:
        progress(total, total, "done")
    errors = [r for r in results["records"] if r["measure"] == "error"]
    results |= {
        "dataset": {"name": dataset.name, "n_rows": len(X), "n_features": X.shape[1]},
        "exponents": {str(m): _exponent(errors, m) for m in DEGREES},
        "variances": {str(m): _relative_variance(m) for m in DEGREES},
        "seconds": time.perf_counter() - start,
    }
    results["published"] = [
        {"degree": m, "tail_bound": f"D exp(-C (D t)^(1/{m}))"} for m in DEGREES
    ]
    results["notes"] = list(_notes(results))
    return results


def _default_sizes(options: Options) -> tuple[int, ...]:
    return _QUICK_SIZES if options.quick else _SIZES


def _unit_rows(X: NDArray[Any], n: int, seed: int) -> NDArray[np.float64]:
    """Return some rows that are not zero, over their norms."""
    norms = np.linalg.norm(X, axis=1)
    X, norms = X[norms > 0], norms[norms > 0]
    chosen = np.random.default_rng(seed).permutation(len(X))[:n]
    return np.asarray(X[chosen] / norms[chosen, None])


def _features(X: NDArray[Any], degree: int, n_columns: int, seed: int) -> NDArray[Any]:
    """Return |Ux|^m, not divided by √D: columns of independent entries."""
    features = randkern.RandomFeatures(
        randkern.Optical(degree), n_columns, projection="dense", random_state=seed
    )
    return np.asarray(features.fit_transform(X) * np.sqrt(n_columns))


def _error_record(
    X: NDArray[Any], degree: int, size: int, repeats: int, seed: int
) -> dict[str, Any]:
    """Return the error of Gram matrices of `size` features, and its formula."""
    exact = randkern.Optical(degree)(X)
    variance = randkern.Optical(2 * degree)(X) - exact**2
    squared = []
    for repeat in range(repeats):
        Z = _features(X, degree, size, seed=1000 * seed + repeat)
        squared.append(np.sum((Z @ Z.T / size - exact) ** 2))
    scale = np.linalg.norm(exact)
    error = float(np.sqrt(np.mean(squared)) / scale)
    predicted = float(np.sqrt(variance.sum() / size) / scale)
    return {
        "measure": "error",
        "degree": degree,
        "n_components": size,
        "error": error,
        "predicted": predicted,
        "ratio": error / predicted,
        "repeats": repeats,
    }


def _tail_records(
    degree: int, size: int, draws: int, seed: int
) -> list[dict[str, Any]]:
    """Return how often a product of `size` features exceeds its kernel, at x = y."""
    X = np.array([[1.0, 0.0]])  # of unit norm: the law depends on nothing else
    exact = randkern.Optical(degree)(X)[0, 0]
    variance = randkern.Optical(2 * degree)(X)[0, 0] - exact**2
    deviations: list[NDArray[Any]] = []
    at_once = max(1, _COLUMNS // size)
    for position, first in enumerate(range(0, draws, at_once)):
        n = min(at_once, draws - first)
        Z = _features(X, degree, n * size, seed=1000 * seed + position)
        estimates = (Z[0] ** 2).reshape(n, size).mean(axis=1)
        deviations.append((estimates - exact) / np.sqrt(variance / size))
    found = np.concatenate(deviations)
    return [
        {
            "measure": "tail",
            "degree": degree,
            "n_components": size,
            "deviation": float(t),
            "share": float(np.mean(found > t)),
            "normal": float(norm.sf(t)),
            "draws": draws,
        }
        for t in _DEVIATIONS
    ]


def _exponent(errors: Sequence[Mapping[str, Any]], degree: int) -> float | None:
    """Return the power of D that fits the errors best; None for a single D."""
    own = [r for r in errors if r["degree"] == degree]
    if len(own) < 2:
        return None
    sizes = np.log([r["n_components"] for r in own])
    return float(np.polyfit(sizes, np.log([r["error"] for r in own]), 1)[0])


def _relative_variance(degree: int) -> float:
    X = np.ones((1, 1))
    exact = randkern.Optical(degree)(X)[0, 0]
    return float(randkern.Optical(2 * degree)(X)[0, 0] / exact**2 - 1)


def _notes(results: Mapping[str, Any]) -> Iterator[str]:
    for degree, exponent in results["exponents"].items():
        if exponent is not None:
            variance = results["variances"][degree]
            yield (
                f"m = {degree}: the error falls as D^{exponent:.3f}; a feature's "
                f"variance at x = y is {variance:.0f} K²"
            )
    yield (
        "published: tails of at most D exp(-C (D t)^(1/m)), so that the higher the "
        "degree, the slower"
    )
    yield f"all in {results['seconds']:.0f} s"


def tables(results: Mapping[str, Any]) -> list[TextTable]:
    """Return errors over the formula by D, and shares beyond some deviations."""
    errors = [r for r in results["records"] if r["measure"] == "error"]
    tails = [r for r in results["records"] if r["measure"] == "tail"]
    columns = tuple(f"m = {degree}" for degree in DEGREES)
    described = results["dataset"]
    first = TextTable(
        f"relative error of the Gram matrix of {described['n_rows']} rows of "
        f"{described['name']} (formula)",
        ("D", *columns),
    )
    for size in sorted({r["n_components"] for r in errors}):
        own = {r["degree"]: r for r in errors if r["n_components"] == size}
        cells = (f"{own[m]['error']:.4f} ({own[m]['predicted']:.4f})" for m in DEGREES)
        first.rows.append((f"{size:,}", *cells))
    second = TextTable(
        f"share of draws above the kernel by more, D = {tails[0]['n_components']:,}, "
        f"{tails[0]['draws']:,} draws",
        ("standard deviations", "normal law", *columns),
    )
    for deviation in (1.0, 2.0, 3.0, 4.0, 6.0):
        at = {r["degree"]: r for r in tails if r["deviation"] == deviation}
        shares = (f"{at[m]['share']:.2e}" for m in DEGREES)
        second.rows.append((f"{deviation:g}", f"{at[1]['normal']:.2e}", *shares))
    return [first, second]


def figure(results: Mapping[str, Any]) -> Any:
    """Return errors against D beside their formula, and the tails."""
    from .optical_figures import plot_optical_convergence

    return plot_optical_convergence(results)
