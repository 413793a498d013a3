"""Grids of hyperparameters on binarized images, beside the published ones (Fig. 4).

Ohana et al. (2020), appendix D.2: penalty, feature scale, and bias or lengthscale of
optical and Fourier features, on validation rows.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from randkern._validation import check_count
from randkern.study.tune import preference, tune

from .binary_images import load_binary_images
from .optical_settings import KERNELS
from .published import published_rows
from .reproductions import CommonOptions, Progress, TextTable, begin_results

__all__ = ["Options", "figure", "run", "tables"]

_TABLES = {
    "gaussian": "fashion-mnist-grid-gaussian",
    "optical:2": "fashion-mnist-grid-optical-2",
    "optical:4": "fashion-mnist-grid-optical-4",
}
_QUICK_COMPONENTS, _QUICK_ROWS = 60, 300
_QUICK_FIRST, _QUICK_SETTINGS = 2, 2


@dataclass(frozen=True)
class Options(CommonOptions):
    """What ``randkern reproduce optical-hyperparameters`` takes."""

    data: Annotated[
        str,
        "mnist, fashion-mnist, fashion-mnist-sample or digits; auto takes the first "
        "of fashion-mnist, mnist and fashion-mnist-sample in --data-dir.",
    ] = "auto"
    n_components: Annotated[int, "Number of features; published is 10,000."] = 2000
    rows: Annotated[int, "Training rows, a quarter of which is held out."] = 20_000
    memory_limit: Annotated[str | None, 'What a model may use, such as "4GB".'] = None


def run(options: Options, progress: Progress | None = None) -> dict[str, Any]:
    """Score the published grid of every kernel on these data.

    Parameters
    ----------
    options : Options
    progress : callable, optional

    Returns
    -------
    results : dict
        As :func:`.reproductions.begin_results`. Records and ``published`` have
        ``kernel``, ``hyperparameters`` (``alpha``, ``scale``, and ``lengthscale`` or
        ``bias``) and ``validation_error``, the published ones ``test_error``, too;
        solves that failed are left out there. ``best`` has by kernel the
        record of the least validation error with its ``test_error`` and ``at_edge``
        (:func:`.tune.tune`), ``published_best`` the published one, ``skipped`` what
        exceeded the memory.

    Examples
    --------
    >>> from randkern_lab.papers.optical_hyperparameters import Options, run
    >>> results = run(Options(quick=True))
    >>> list(results["best"])
    ['gaussian', 'optical:2', 'optical:4']
    """
    start = time.perf_counter()
    size = check_count("n_components", options.n_components)
    n_rows = check_count("rows", options.rows)
    data = "digits" if options.quick and options.data == "auto" else options.data
    images = load_binary_images(data, options.data_dir)
    if options.quick:
        size, n_rows = min(size, _QUICK_COMPONENTS), min(n_rows, _QUICK_ROWS)
    rows = np.random.default_rng(options.seed).permutation(len(images.X_train))
    dataset = images.dataset(rows[:n_rows])
    results = begin_results("optical-hyperparameters", options)
    results |= {"best": {}, "published_best": {}, "skipped": []}
    for position, kernel in enumerate(KERNELS):
        published = _published(kernel)
        opens = _opens(kernel)
        values = _distinct(published, opens)
        if options.quick:
            values = values[_QUICK_FIRST : _QUICK_FIRST + _QUICK_SETTINGS]

        def say(done: int, total: int, doing: str, before: int = position) -> None:
            if progress is not None:
                progress(before * total + done, len(KERNELS) * total, doing)

        found = tune(
            dataset,
            kernel,
            n_components=size,
            alphas=_distinct(published, "alpha"),
            scales=_distinct(published, "scale"),
            lengthscales=values if opens == "lengthscale" else None,
            biases=values if opens == "bias" else None,
            validation="holdout",
            memory_limit=options.memory_limit,
            random_state=options.seed,
            progress=say,
        )
        results["records"] += found["records"]
        results["best"] |= found["best"]
        results["skipped"] += found["skipped"]
        results["published"] += published
        results["published_best"][kernel] = min(published, key=preference)
    results["dataset"] = images.describe() | {
        "n_train": len(dataset.X_train),
        "n_components": size,
        "validation": "25% of the training rows",
    }
    results["seconds"] = time.perf_counter() - start
    results["notes"] = list(_notes(results))
    return results


def _opens(kernel: str) -> str:
    return "lengthscale" if kernel == "gaussian" else "bias"


def _published(kernel: str) -> list[dict[str, Any]]:
    """Return the published grid in our terms, without the solves that failed."""
    found = []
    for row in published_rows(_TABLES[kernel]):
        if not row["val_score"]:
            continue
        if kernel == "gaussian":
            # exp(−γ‖x − y‖²) with γ = 1/(2ℓ²).
            own = {"lengthscale": float(f"{(2 * row['gamma']) ** -0.5:.6g}")}
        else:
            own = {"bias": float(row["bias"] ** 2)}  # what was appended is √ν
        found.append(
            {
                "kernel": kernel,
                "hyperparameters": {
                    **own,
                    "scale": float(row["scale"]),
                    "alpha": float(row["alpha"]),
                },
                "validation_error": 1 - row["val_score"],
                "test_error": 1 - row["test_score"],
            }
        )
    return found


def _distinct(records: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return sorted({record["hyperparameters"][name] for record in records})


def _notes(results: Mapping[str, Any]) -> Iterator[str]:
    for kernel, best in results["best"].items():
        if best["at_edge"]:
            yield (
                f"{kernel}: the best {' and '.join(best['at_edge'])} is at the edge of "
                "the published grid"
            )
    for note in results["skipped"]:
        named = ", ".join(f"{k} {v:.4g}" for k, v in note["hyperparameters"].items())
        yield f"skipped {note['kernel']}, {named}: {note['reason']}"
    yield (
        f"published: Fashion-MNIST, D = 10,000; here D = "
        f"{results['dataset']['n_components']:,}"
    )
    yield f"all in {results['seconds']:.0f} s"


def tables(results: Mapping[str, Any]) -> list[TextTable]:
    """Return the best setting of each kernel, here and published."""
    described = results["dataset"]
    table = TextTable(
        f"{described['name']}, {described['n_train']:,} training rows, "
        f"D = {described['n_components']:,}: the best of each grid, errors in %",
        ("kernel", "", "ℓ or ν", "scale", "alpha", "validation", "test"),
    )
    for kernel in KERNELS:
        for source in ("here", "published"):
            best = results["best" if source == "here" else "published_best"]
            if kernel not in best:
                continue
            named = best[kernel]["hyperparameters"]
            table.rows.append(
                (
                    kernel,
                    source,
                    f"{named[_opens(kernel)]:.4g}",
                    f"{named['scale']:.3g}",
                    f"{named['alpha']:.3g}",
                    f"{100 * best[kernel]['validation_error']:.2f}",
                    f"{100 * best[kernel]['test_error']:.2f}",
                )
            )
    return [table]


def figure(results: Mapping[str, Any]) -> Any:
    """Return the grids as heatmaps, the published one below each.

    Lengthscales and biases for which a third of the published solves failed are left
    out.
    """
    from randkern.plots import plot_tune

    records, best = [], {}
    for kernel in KERNELS:
        shown = _mostly_solved(results["published"], kernel)
        for key, label in (("records", kernel), ("published", f"{kernel} (pub.)")):
            records += [
                {**record, "kernel": label}
                for record in results[key]
                if record["kernel"] == kernel
                and record["hyperparameters"][_opens(kernel)] in shown
            ]
        best[kernel] = results["best"].get(kernel, {})
        best[f"{kernel} (pub.)"] = results["published_best"][kernel]
    return plot_tune(
        records,
        best=best,
        dataset=f"{results['dataset']['name']}; published: Fashion-MNIST",
        percent=True,
    )


def _mostly_solved(records: Sequence[Mapping[str, Any]], kernel: str) -> set[float]:
    """Return the lengthscales or biases with two thirds of the largest grid."""
    own = [
        r["hyperparameters"][_opens(kernel)] for r in records if r["kernel"] == kernel
    ]
    counts = {value: own.count(value) for value in set(own)}
    return {v for v, count in counts.items() if 3 * count >= 2 * max(counts.values())}
