"""Accuracy of ridge against time, compared to other libraries.

``KernelRidgeClassifier`` is compared to scikit-learn's
``RidgeClassifier(solver="cholesky")`` on ``RBFSampler`` and ``Nystroem`` (the optical
kernel: two dense products in NumPy; the polynomial kernel: ``PolynomialCountSketch``),
to Falkon and to xGPR's discriminant, if installed. All use the same float32 rows,
kernel, penalty and intercept (Falkon and xGPR have none). Each fit runs in its own
process, so that its peak memory is its own, and fits 64 rows before it is timed;
contenders take turns, seed after seed.

scikit-learn factorises exactly, while conjugate gradients stop early. Wherever both
run, our own factorisation (``cholesky``) therefore runs too: it is added to the
solvers, and a peer is skipped if memory does not suffice.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from ..contenders import Contender, known_names
from ..options import option
from ..runner import Case, grid
from ..tables import Listing, of, percent, sentences, skip_notes, text
from . import ridge_scaling
from .classifiers import ClassifierExperiment, cost_panel, fit_classifier
from .feature_maps import FAMILIES, PEERS
from .ridge_models import (
    FalkonClassifier,
    RidgeOnFeatures,
    XGPRClassifier,
    own_ridge,
    peer_bytes,
    ridge_record,
)
from .rows import PREFIX, RowOptions, write_rows
from .summaries import aggregated

__all__ = ["METHODS", "Options", "Ridge", "summarise"]

SOLVERS = ("pcg", "cholesky", "auto")
LIBRARIES = ("falkon", "xgpr")
_pcg = partial(own_ridge, solver="pcg")
_cholesky = partial(own_ridge, solver="cholesky")
_landmarks = partial(_cholesky, features="nystrom")
_LONG, _DOTS = (0, (8, 3)), (0, (5, 1, 1, 1, 1, 1))
METHODS: Mapping[str, Contender] = {
    name: Contender(
        *(label or f"{name} + RidgeClassifier", colour, marker, dashes),
        make=make,
        needs=tuple(needs),
        landmarks=name in ("landmarks", "Nystroem", "falkon"),
        memory=peer_bytes if make is RidgeOnFeatures else None,
    )
    for name, label, colour, marker, dashes, make, *needs in (
        ("pcg", "randkern, pcg", "blue", "s", "-", _pcg),
        ("cholesky", "randkern, cholesky", "green", "^", "--", _cholesky),
        ("auto", "randkern, auto", "pink", "D", ":", own_ridge),
        ("landmarks", "randkern, landmarks", "sky", "h", "-", _landmarks),
        ("RBFSampler", "", "red", "v", _DOTS, RidgeOnFeatures),
        ("two products", "", "red", "v", _DOTS, RidgeOnFeatures),
        ("PolynomialCountSketch", "", "red", "v", _DOTS, RidgeOnFeatures),
        ("Nystroem", "", "orange", "P", _LONG, RidgeOnFeatures),
        ("falkon", "Falkon", "black", "X", _LONG, FalkonClassifier, "falkon"),
        ("xgpr", "xGPR, discriminant", "grey", "*", "--", XGPRClassifier, "xGPR"),
    )
}
_TITLE = (
    "{kernel}, alpha = {arguments[alpha]:g}: {dataset[name]}, {dataset[n_train]:,} "
    "rows, {dataset[n_test]:,} test rows"
)


def described(results: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the summary by number of features, with the kernel and the accuracy."""
    named = results["arguments"]
    parameter = "degree {degree:g}" if named["degree"] else "ℓ = {lengthscale:.4g}"
    kernel = text(f"{{kernel}}, {parameter}", named)
    for entry in sorted(results["summary"], key=lambda entry: entry["n_components"]):
        accuracy = percent(entry["test_accuracy"], entry["test_error_std"])
        yield {**entry, "kernel": kernel, "accuracy": accuracy}


def fit_ridge(request: Mapping[str, Any]) -> dict[str, Any]:
    """Fit and score a classifier in this process."""
    return ridge_record(*fit_classifier(METHODS, request))


@dataclass(frozen=True)
class Options(RowOptions):
    """Options of ``randkern bench ridge``."""

    lengthscale: str = option("5", "Of the Gaussian kernel: a number, scale or median.")
    kernel: str = option("gaussian", "gaussian, optical or polynomial.")
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
        LIBRARIES, "Of falkon, xgpr, where they are installed."
    )
    repeats: int = option(1, "Seeds; medians are shown.")
    memory_limit: str | None = option(None, 'Of randkern\'s models, such as "3GB".')
    comparison: bool = option(True, "Measure all of the above.")
    scaling: bool = option(False, "Also measure cost against D and n.", quick=True)


class Ridge(ClassifierExperiment):
    """Ridge classifiers, each in a process of its own."""

    name = "ridge"
    title = "Accuracy of ridge against seconds, beside scikit-learn, Falkon and xGPR."
    Options = Options
    listed = (
        Listing(
            _TITLE,
            "D | method | features | fit | train | × faster | predict | accuracy | "
            "peak | iter. | residual | outcome",
            "{n_components:,} | {method} | {features_seconds:seconds} | "
            "{fit_seconds:seconds} | {train_seconds:seconds} | "
            "{speedup_over_peer:number} | {predict_seconds:seconds} | {accuracy} | "
            "{peak_memory_bytes:megabytes} | {iterations:number} | {residual:.0e} | "
            "{outcome:words}",
            "peers: features, then RidgeClassifier; medians over seeds; train is "
            "features and fit; peak is of the whole process, with imports and data",
            records=described,
        ),
        *ridge_scaling.LISTED,
    )
    panels = (cost_panel(METHODS, _TITLE, described),)
    layout: ClassVar = {"size": (7.6, 5.2), "legend": "inside"}
    contenders = METHODS
    work = staticmethod(fit_ridge)

    def prepare(self) -> dict[str, Any] | None:
        """Write the rows to files for the processes."""
        options = self.options
        known_names("kernel", [options.kernel], FAMILIES)
        if not (options.comparison or options.scaling):
            raise ValueError("--no-comparison leaves nothing to do without --scaling")
        self.sizes = ridge_scaling.QUICK if options.quick else ridge_scaling.FULL
        described = super().prepare() if options.comparison else None
        if options.scaling:
            n = ridge_scaling.most_rows(self.sizes) + ridge_scaling.TEST_ROWS
            self.say(f"writing {n:,} rows")
            self.streams = self.resources.enter_context(
                TemporaryDirectory(prefix=PREFIX)
            )
            write_rows(self.streams, n, self.sizes["d"], options.seed)
        return described

    @property
    def methods(self) -> list[str]:
        """The peers, the reference of ratios first, and our solvers."""
        options = self.options
        own = known_names("solver", options.solvers, SOLVERS) if options.solvers else []
        if not options.peers:
            return known_names("solver", own, SOLVERS)
        first, *others = (m for m in PEERS[options.kernel] if m in METHODS)
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
        options, first = self.options, self.options.seed
        if options.comparison:
            yield from grid(
                family=[options.kernel],
                seed=range(first, first + options.repeats),
                n_components=sorted(set(options.n_components)),
                method=self.methods,
            )
        if options.scaling:
            yield from ridge_scaling.cases(self.sizes)

    def measure(self, case: Case) -> dict[str, Any]:
        if "axis" in case:
            return ridge_scaling.measure(case, self.sizes, self.options, self.streams)
        found, method = super().measure(case), case["method"]
        library = PEERS[case["family"]].get(method, "randkern")
        return {
            "library": "".join(METHODS[method].needs) or library,
            "test_accuracy": 1.0 - found["test_error"],
            **found,
        }

    def conclude(self, results: dict[str, Any]) -> dict[str, Any]:
        """Return the summary, with the scaling separate from the comparison."""
        options, gaussian = self.options, self.options.kernel == "gaussian"
        records, scaled = _apart(results["records"])
        skipped, unscaled = _apart(results["skipped"])
        if options.comparison:
            super().conclude({**results, "records": records, "skipped": skipped})
        resolved = {
            "lengthscale": getattr(self, "lengthscale", None) if gaussian else None,
            "degree": None if gaussian else options.degree,
            "methods": self.methods,
            "memory_limit": self.memory_limit,
        }
        # Once, whatever the seeds.
        once = {(s["method"], s["n_components"]): s for s in reversed(skipped)}
        found = {
            "arguments": results["arguments"] | resolved,
            "records": records,
            "skipped": [
                {key: value for key, value in note.items() if key != "seed"}
                | {"method": METHODS[note["method"]].label}
                for note in reversed(once.values())
            ],
            "summary": summarise(records),
        }
        if options.scaling:
            named = {"alpha": options.alpha, "seed": options.seed}
            pcg = {"family": "gaussian", "method": METHODS["pcg"].label}
            found["scaling"] = {
                "arguments": {**self.sizes, **named},
                "records": scaled,
                "exponents": ridge_scaling.exponents(scaled),
                "skipped": [pcg | note for note in unscaled],
            }
        return found

    @classmethod
    def notes(cls, results: Mapping[str, Any]) -> Iterator[str]:
        """Return the fits that stopped early, the skipped cases, and exponents."""
        for entry in results["summary"]:
            if entry["method"] in ("pcg", "auto") and entry["outcome"] != "converged":
                beside = of(results["summary"], n_components=entry["n_components"])
                methods = {each["method"] for each in beside}
                told = "{label}, D = {n_components:,}: {outcome:words} "
                told += "at a residual of {residual:.1e}"
                if any(METHODS[m].memory for m in methods):
                    told += "; the peers' systems are solved exactly, as is ours by "
                    told += "cholesky"
                    told += ", which was skipped" * ("cholesky" not in methods)
                yield text(told, entry)
        yield from skip_notes(results, "family", "method", "n_components")
        if "scaling" in results:
            told = "skipped {method}, D = {n_components:,}, n = {n:,}: {reason}"
            yield from sentences(results["scaling"]["skipped"], told)


def summarise(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one entry per method and number of features.

    It has medians of times and ``iterations``, mean errors with ``test_error_std``
    (None for one seed), the largest ``residual`` and ``peak_memory_bytes``, distinct
    outcomes, and, relative to the family's peer at the same D, ``speedup_over_peer``
    (the peer's ``train_seconds`` over its own) and ``memory_of_peer`` (its own peak
    over the peer's), None without that peer.
    """
    keys = ("family", "method", "label", "library", "n_components")
    timed = ("features", "fit", "train", "predict", "total", "process")
    summary = aggregated(
        records,
        keys,
        median=[*(f"{each}_seconds" for each in timed), "iterations"],
        mean=["test_accuracy", "test_error"],
        std=["test_error"],
        max=["residual", "peak_memory_bytes"],
    )
    for entry in summary:
        own = of(records, **{key: entry[key] for key in keys})
        entry["outcome"] = ", ".join(sorted({record["outcome"] for record in own}))
        first, size = next(iter(PEERS[entry["family"]])), entry["n_components"]
        for peer in of(summary, method=first, n_components=size) or [{}]:
            train, peak = peer.get("train_seconds"), peer.get("peak_memory_bytes")
            entry["speedup_over_peer"] = train and train / entry["train_seconds"]
            entry["memory_of_peer"] = peak and entry["peak_memory_bytes"] / peak
    return summary


def _apart(entries: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the entries of the comparison, and those of the scaling."""
    scaled = [entry for entry in entries if "axis" in entry]
    return [entry for entry in entries if "axis" not in entry], scaled
