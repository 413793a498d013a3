"""Accuracy of ridge against time, compared to other libraries.

``KernelRidgeClassifier`` is compared to scikit-learn's
``RidgeClassifier(solver="cholesky")`` on ``RBFSampler`` and ``Nystroem`` (the optical
kernel: two dense products in NumPy; the polynomial kernel: ``PolynomialCountSketch``),
to Falkon and to xGPR's discriminant, if installed. All use the same float32 rows,
kernel, penalty and intercept (Falkon and xGPR have none). Each fit runs in its own
process, so that its peak memory is its own; contenders take turns, seed after seed.

scikit-learn factorises exactly, while conjugate gradients stop early. Wherever both
run, our own factorisation (``cholesky``) therefore runs too: it is added to the
solvers, and a peer is skipped if memory does not suffice.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import randkern
from randkern._memory import available_memory, format_bytes, resolve_memory_limit

from ..options import option
from ..panels import (
    BLUE,
    GREEN,
    ORANGE,
    PINK,
    RED,
    SKY,
    Style,
    new_figure,
    scatter_costs,
)
from ..process import in_fresh_process
from ..runner import Case, Experiment, SkippedCase
from ..tables import (
    Column,
    TextTable,
    groups,
    listing,
    megabytes,
    number,
    of,
    percent,
    seconds,
    words,
)
from . import ridge_scaling
from .contenders import FAMILIES, PEERS
from .ridge_models import (
    LIBRARIES,
    SOLVERS,
    fit_classifier,
    label,
    package,
    peer_bytes,
    why_not,
)
from .row_file import write_rows
from .rows import (
    RowOptions,
    known_names,
    load_rows,
    parse_lengthscale,
    temporary_folder,
)

__all__ = ["Options", "Ridge", "summarise"]

_FACTORISED = ("RBFSampler", "Nystroem", "two products", "PolynomialCountSketch")
_LOOKS = {
    "pcg": (BLUE, "s", "-"),
    "cholesky": (GREEN, "^", "--"),
    "auto": (PINK, "D", ":"),
    "landmarks": (SKY, "h", "-"),
    "RBFSampler": (RED, "v", (0, (5, 1, 1, 1, 1, 1))),
    "two products": (RED, "v", (0, (5, 1, 1, 1, 1, 1))),
    "PolynomialCountSketch": (RED, "v", (0, (5, 1, 1, 1, 1, 1))),
    "Nystroem": (ORANGE, "P", (0, (8, 3))),
    "falkon": ("#000000", "X", (0, (8, 3))),
    "xgpr": ("#999999", "*", "--"),
}
STYLES = {method: Style(label(method), *look) for method, look in _LOOKS.items()}


@dataclass(frozen=True)
class Options(RowOptions):
    """Options of ``randkern bench ridge``."""

    kernel: str = option("gaussian", "gaussian, optical or polynomial.")
    lengthscale: str = option("5", "Of the Gaussian kernel: a number, scale or median.")
    degree: float = option(2.0, "Of the optical or the polynomial kernel.")
    alpha: float = option(1e-3, "The ridge penalty.")
    n_components: tuple[int, ...] = option(
        (1000, 3000, 10240), "Numbers of features.", quick=(50,)
    )
    solvers: tuple[str, ...] = option(
        ("pcg", "cholesky"), "Of randkern: pcg, cholesky, auto."
    )
    peers: bool = option(True, "Beside the other libraries.")
    nystroem: bool = option(True, "Also Nystroem, and our landmarks.")
    libraries: tuple[str, ...] = option(
        tuple(LIBRARIES), "Of falkon, xgpr, where they are installed."
    )
    repeats: int = option(1, "Seeds; medians are shown.")
    memory_limit: str | None = option(None, 'Of randkern\'s models, such as "3GB".')
    comparison: bool = option(True, "Measure all of the above.")
    scaling: bool = option(False, "Also measure cost against D and n.", quick=True)


class Ridge(Experiment):
    """Ridge classifiers, each in a process of its own."""

    name = "ridge"
    title = "Accuracy of ridge against seconds, beside scikit-learn, Falkon and xGPR."
    command = "bench"
    Options = Options

    def prepare(self) -> dict[str, Any] | None:
        """Write the rows to files for the processes."""
        options = self.options
        known_names("kernel", [options.kernel], FAMILIES)
        if not (options.comparison or options.scaling):
            raise ValueError("--no-comparison leaves nothing to do without --scaling")
        self.sizes = ridge_scaling.QUICK if options.quick else ridge_scaling.FULL
        given = {"n_components": options.memory_limit, "n": self.sizes.memory_limit}
        self.limits = {axis: v and resolve_memory_limit(v) for axis, v in given.items()}
        self.methods = self._methods()
        if options.scaling:
            n = self.sizes.most_rows + ridge_scaling.TEST_ROWS
            self.say(f"writing {n:,} rows")
            self.streams = self.resources.enter_context(temporary_folder())
            write_rows(self.streams, n, self.sizes.d, options.seed)
        self.lengthscale: float | None = None
        if not options.comparison:
            return None
        rows = load_rows(options)
        self.shape = rows.X_train.shape
        if options.kernel == "gaussian":
            kernel = randkern.Gaussian(parse_lengthscale(options.lengthscale))
            resolved = kernel.resolve(rows.X_train, random_state=0)
            self.lengthscale = float(resolved.lengthscale)
        self.folder = self.resources.enter_context(rows.saved())
        return rows.description

    def _methods(self) -> list[str]:
        """Return the peers, the reference of ratios first, and our solvers."""
        options = self.options
        own = known_names("solver", options.solvers, SOLVERS) if options.solvers else []
        if not options.peers:
            known_names("solver", own, SOLVERS)
            return own
        first, *others = (m for m in PEERS[options.kernel] if m in _FACTORISED)
        peers = [first, *(others if options.nystroem else [])]
        if options.kernel == "gaussian":
            if options.libraries:
                peers += known_names("library", options.libraries, LIBRARIES)
            if options.nystroem and own:
                own.append("landmarks")
        if {"pcg", "auto"} & set(own) and "cholesky" not in own:
            own.append("cholesky")
        return [*peers, *own]

    def cases(self) -> Iterator[Case]:
        """Return contenders in turn, seed after seed, and the points of the scaling."""
        options = self.options
        seeds = range(options.seed, options.seed + options.repeats)
        for seed in seeds if options.comparison else ():
            for size in sorted(set(options.n_components)):
                for method in self.methods:
                    yield {
                        "family": options.kernel,
                        "method": method,
                        "n_components": size,
                        "seed": seed,
                    }
        if options.scaling:
            yield from self.sizes.cases()

    def measure(self, case: Case) -> dict[str, Any]:
        """Run the case in its own process."""
        options = self.options
        if "axis" in case:
            limits, sizes = self.limits, self.sizes
            return ridge_scaling.measure(case, sizes, options, limits, self.streams)
        self._check(case["method"], case["n_components"])
        request = {
            **case,
            "lengthscale": self.lengthscale or 1.0,
            "degree": options.degree,
            "alpha": options.alpha,
            "memory_limit": self.limits["n_components"],
            "folder": self.folder,
        }
        found = in_fresh_process(fit_classifier, request)
        return {
            "label": label(case["method"]),
            "library": package(case["method"], case["family"]),
            "test_accuracy": 1.0 - found["test_error"],
            **found,
        }

    def _check(self, method: str, size: int) -> None:
        """Raise if a contender must not run."""
        n, d = self.shape
        reason = why_not(method, n, size)
        if reason is not None:
            raise SkippedCase(reason)
        needed, free = peer_bytes(size, n, d), available_memory()
        if method in _FACTORISED and free is not None and needed > free:
            raise SkippedCase(
                f"its features, their copies and the Gram matrix take about "
                f"{format_bytes(needed)}; {format_bytes(free)} are free"
            )

    def conclude(self, results: dict[str, Any]) -> dict[str, Any]:
        """Return the summary, with the scaling separate from the comparison."""
        options, named = self.options, results["arguments"]
        records, scaled = _apart(results["records"])
        skipped, unscaled = _apart(results["skipped"])
        if options.comparison and not records:
            raise ValueError(f"nothing could be run: {skipped[0]['reason']}")
        gone = {(s["method"], s["n_components"]): s for s in reversed(skipped)}
        found: dict[str, Any] = {
            "records": records,
            "skipped": [
                {key: value for key, value in note.items() if key != "seed"}
                | {"method": label(note["method"])}
                for note in reversed(gone.values())
            ],
            "arguments": named
            | {
                "lengthscale": self.lengthscale,
                "degree": None if options.kernel == "gaussian" else options.degree,
                "methods": self.methods,
                "memory_limit": self.limits["n_components"],
            },
            "summary": summarise(records),
        }
        if options.scaling:
            found["scaling"] = {
                "arguments": self.sizes.describe()
                | {"alpha": options.alpha, "seed": options.seed},
                "records": scaled,
                "exponents": ridge_scaling.exponents(scaled),
                "skipped": [
                    {"family": "gaussian", "method": label("pcg")} | note
                    for note in unscaled
                ],
            }
        return found

    @classmethod
    def notes(cls, results: Mapping[str, Any]) -> Iterator[str]:
        """Return the fits that stopped early, and the skipped cases."""
        for entry in results["summary"]:
            if entry["method"] in ("pcg", "auto") and entry["outcome"] != "converged":
                beside = of(results["summary"], n_components=entry["n_components"])
                methods = {each["method"] for each in beside}
                stopped = entry["outcome"].replace("_", " ")
                told = (
                    f"{entry['label']}, D = {entry['n_components']:,}: {stopped} at a "
                    f"residual of {entry['residual']:.1e}"
                )
                if methods & set(_FACTORISED):
                    told += "; the peers' systems are solved exactly, as is ours by "
                    told += "cholesky" + ", which was skipped" * (
                        "cholesky" not in methods
                    )
                yield told
        reasons: dict[tuple[str, str], list[str]] = {}
        for note in results["skipped"]:
            place = f"{note['family']}, {note['method']}", note["reason"]
            reasons.setdefault(place, []).append(f"{note['n_components']:,}")
        for (who, reason), sizes in reasons.items():
            yield f"skipped {who}, n_components = {', '.join(sizes)}: {reason}"
        for note in results.get("scaling", {}).get("skipped", ()):
            where = f"D = {note['n_components']:,}, n = {note['n']:,}"
            yield f"skipped {note['method']}, {where}: {note['reason']}"

    @classmethod
    def tables(cls, results: Mapping[str, Any]) -> list[TextTable]:
        """Return contenders by number of features: seconds, accuracy, memory."""
        tables = (
            list(ridge_scaling.tables(results["scaling"]))
            if "scaling" in results
            else []
        )
        if not results["records"]:
            return tables
        columns: dict[str, Column] = {
            "D": ("n_components", ","),
            "method": "method",
            "features": ("features_seconds", seconds),
            "fit": ("fit_seconds", seconds),
            "train": ("train_seconds", seconds),
            "× faster": ("speedup_over_peer", number),
            "predict": ("predict_seconds", seconds),
            "accuracy": lambda e: percent(e["test_accuracy"], e["test_error_std"]),
            "peak": ("peak_memory_bytes", megabytes),
            "iter.": ("iterations", number),
            "residual": ("residual", ".0e"),
            "outcome": ("outcome", words),
        }
        caption = (
            "peers: features, then RidgeClassifier; medians over seeds; train is "
            "features and fit; peak is of the whole process, with imports and data"
        )
        summary = sorted(results["summary"], key=lambda entry: entry["n_components"])
        return [listing(_title(results), summary, columns, caption), *tables]

    @classmethod
    def figure(cls, results: Mapping[str, Any]) -> Any:
        """Return error against the time of features and fit."""
        figure = new_figure(7.6, 5.2)
        least = 0.5 / results["dataset"]["n_test"]
        scatter_costs(figure.subplots(), results["summary"], STYLES, least)
        figure.axes[0].set_title(_title(results), fontsize=10)
        return figure


def summarise(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one entry per method and number of features.

    Parameters
    ----------
    records : sequence of mapping

    Returns
    -------
    summary : list of dict
        ``family``, ``method``, ``label``, ``library``, ``n_components``, ``n_seeds``;
        medians of a record's times and of ``iterations``; the means ``test_accuracy``
        and ``test_error``, ``test_error_std`` (None for one seed); the largest
        ``residual`` and ``peak_memory_bytes``; ``outcome`` (distinct ones, separated by
        commas); relative to the family's peer at the same D, ``speedup_over_peer`` (the
        peer's median ``train_seconds`` over its own) and ``memory_of_peer`` (its own
        peak over the peer's), None without that peer.

    Examples
    --------
    >>> from randkern_lab.benchmarks.ridge import summarise
    >>> record = {"family": "gaussian", "label": "", "library": "", "n_components": 8,
    ...           "features_seconds": None, "fit_seconds": 1.0, "train_seconds": 1.0,
    ...           "predict_seconds": 0.1, "total_seconds": 1.1, "process_seconds": 3.0,
    ...           "test_error": 0.25, "test_accuracy": 0.75, "iterations": 4,
    ...           "residual": 1e-3, "outcome": "converged", "peak_memory_bytes": 10**8,
    ...           "seed": 0, "method": "pcg"}
    >>> peer = record | {"method": "RBFSampler", "train_seconds": 6.0}
    >>> [entry["speedup_over_peer"] for entry in summarise([record, peer])]
    [6.0, 1.0]
    """
    import pandas as pd

    medians = ("features", "fit", "train", "predict", "total", "process")
    summary = []
    keys = ("family", "method", "label", "library", "n_components")
    for named, own in groups(records, *keys):
        table = pd.DataFrame(own)
        found = {
            f"{m}_seconds": table[f"{m}_seconds"].astype(float).median()
            for m in medians
        }
        found["iterations"] = table.iterations.astype(float).median()
        found["test_accuracy"] = table.test_accuracy.mean()
        found["test_error"] = table.test_error.mean()
        found["test_error_std"] = table.test_error.std()
        found["residual"] = table.residual.astype(float).max()
        entry = named | {"n_seeds": len(own)}
        entry |= {k: None if np.isnan(v) else float(v) for k, v in found.items()}
        entry["peak_memory_bytes"] = int(table.peak_memory_bytes.max())
        entry["outcome"] = ", ".join(sorted(set(table.outcome)))
        summary.append(entry)
    for entry in summary:
        first = next(iter(PEERS[entry["family"]]))
        peers = of(summary, method=first, n_components=entry["n_components"])
        train, peak = (
            peers[0][k] if peers else None
            for k in ("train_seconds", "peak_memory_bytes")
        )
        entry["speedup_over_peer"] = train and train / entry["train_seconds"]
        entry["memory_of_peer"] = peak and entry["peak_memory_bytes"] / peak
    return summary


def _apart(entries: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the entries of the comparison, and those of the scaling."""
    scaled = [entry for entry in entries if "axis" in entry]
    return [entry for entry in entries if "axis" not in entry], scaled


def _title(results: Mapping[str, Any]) -> str:
    arguments, data = results["arguments"], results["dataset"]
    kernel = (
        f"gaussian, ℓ = {arguments['lengthscale']:.4g}"
        if arguments["kernel"] == "gaussian"
        else f"{arguments['kernel']}, degree {arguments['degree']:g}"
    )
    return (
        f"{kernel}, alpha = {arguments['alpha']:g}: {data['name']}, "
        f"{data['n_train']:,} rows, {data['n_test']:,} test rows"
    )
