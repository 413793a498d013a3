"""Ridge on binarized images: error against the number of features (Fig. 2).

Ohana et al. (2020), section 4.1, appendix D.

The original. Fashion-MNIST with 60,000 training and 10,000 test images; a pixel is lit
above 10 of 255, a threshold chosen on validation rows (D.1). Ridge regression of labels
±1 on random features of D = 10, 20, ..., 100,000 columns: Fourier features of the
Gaussian kernel; simulated optical features of degrees 2 and 4, and of degree 6 in the
public code only; those of a real device, of degrees 2 and 4. The kernels of Fourier
features and of degrees 2 and 4, and the linear kernel, are fitted to all rows.
Hyperparameters of each kernel were chosen once, by a grid at D = 10,000 on held-out
rows (Fig. 4); the device ran without a bias and, for numerical stability, with twice
the simulation's penalty for degree 2. Systems were solved by Cholesky up to D = 10,000
and beyond by conjugate gradients, for several seeds of the features, whose number is
not given; their standard deviations are called negligible (Fig. 2).

Deviations.

- The data are those of ``--data``. The full Fashion-MNIST uses the published
  hyperparameters, MNIST ours, other data those chosen in the run;
  ``--threshold validated`` chooses a threshold other than 10 of 255.
- The device is simulated (8 bits, Poisson noise). It runs with our bias and penalty
  (``device-2``, ``device-4``) and with its own (``device-2-own``, ``device-4-own``):
  bias 0 and, for degrees 2 and 4, twice and once our penalty, the published ratios.
  `overtaking` and `device_loss` are those of the latter. Every D uses the first D
  outputs of one acquisition per bias: the camera's pixels are independent and
  identically distributed.
- Fourier features are pairs of cosine and sine, which have a lower variance than the
  published cosines with random phases.
- Exact kernels also add the bias to the norms, so that they are the limits of the
  features; the published ones add it only to the dot product.
- An intercept is fitted, for which the published bias of the features substitutes.
- ``solved`` uses conjugate gradients at every D, to a relative residual of 1e-4, which
  is recorded. ``stopped``, for the first draw of computed features up to
  D = 20,000, is the library's default: below D = 3,000 (for ten classes) a direct
  solve, from there conjugate gradients until the loss is within 2 % of the labels'
  variance of its minimum. No rows are held out.
- There are three draws (``--seeds``) up to D = 20,000, and one beyond to save time: the
  cost of a solve grows with D.
- Degree 6 is published up to D = 10,000, without its kernel, and ends there.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, ClassVar

import numpy as np

import randkern
from randkern._memory import resolve_memory_limit
from randkern._validation import check_choice
from randkern.exceptions import MemoryLimitError
from randkern.optics import SimulatedOPU
from randkern.solvers import PCG

from ..options import DataOptions, option
from ..panels import DASHED, Panel, Style
from ..runner import Case, Experiment
from ..scoring import fit_and_score, solution, some_rows
from ..tables import Listing, Pivot, edge_notes, groups, mean_of, of, skip_notes
from .device_counts import DeviceCounts, acquired_counts, device_note
from .images import PIXEL_THRESHOLD, load_binary_images
from .optical_settings import DEVICE_PENALTIES, KernelSetting, optical_settings
from .published import published_rows

_OUR = (DASHED, False)  # dashes, and markers that are not filled
# Curve: its kernel, its published name, its style.
CURVES: Mapping[str, tuple[str, str, Style]] = {
    "fourier": ("gaussian", "rbf_rff", Style("Fourier", "black")),
    "optical-2": ("optical:2", "sim_opu_2", Style("optical, m = 2", "blue", "s")),
    "optical-4": ("optical:4", "sim_opu_4", Style("optical, m = 4", "red", "^")),
    "optical-6": ("optical:6", "sim_opu_6", Style("optical, m = 6", "pink", "D")),
    "linear": ("linear", "linear", Style("linear", "grey", "v")),
    "device-2": (
        "optical:2",
        "",
        Style("device, m = 2, our bias", "blue", "s", *_OUR),
    ),
    "device-4": ("optical:4", "", Style("device, m = 4, our bias", "red", "^", *_OUR)),
    "device-2-own": (
        "optical:2",
        "real_opu_2",
        Style("device, m = 2, no bias", "blue", "x", ":"),
    ),
    "device-4-own": (
        "optical:4",
        "real_opu_4",
        Style("device, m = 4, no bias", "red", "+", ":"),
    ),
}
COMPUTED = ("fourier", "optical-2", "optical-4", "optical-6")
EXACT = ("fourier", "optical-2", "optical-4", "linear")
MEASURED = ("device-2", "device-4", "device-2-own", "device-4-own")
# Features of degrees 2 and 4 to compare; the published device has no bias.
_PAIRS = {
    "optical": ("optical-2", "optical-4"),
    "device": ("device-2-own", "device-4-own"),
}
_MOST = {"optical-6": 10_000}  # features
_SEVERAL = 20_000  # features; beyond, there is only one draw, by the rule "solved"
_TOL = 1e-4


@dataclass(frozen=True)
class Options(DataOptions):
    """Options of ``randkern reproduce optical-ridge``."""

    data: str = option(
        "auto",
        "mnist, fashion-mnist, fashion-mnist-sample or digits; auto takes the first "
        "of fashion-mnist, mnist and fashion-mnist-sample in --data-dir.",
        quick="digits",
    )
    threshold: str = option(
        "published", "published (10 of 255), or validated: chosen on held-out rows."
    )
    n_components: tuple[int, ...] = option(
        (10, 30, 100, 300, 1000, 3000, 10_000),
        "Numbers of features; the paper goes to 100,000.",
        quick=(10, 30, 100, 300),
    )
    seeds: int = option(3, "Draws of the features.", quick=1)
    exact_rows: int = option(
        10_000,
        "Training rows of the exact kernels; 0 leaves them out.",
        quick=500,
        least=0,
    )
    memory_limit: str | None = option(None, 'What a model may use, such as "4GB".')


def _errors(records: list[Case], curve: str) -> dict[Any, float]:
    """Return mean test errors by D, for the first available rule."""
    own = of(records, curve=curve)
    own = [r for r in own if r.get("rule") == own[0].get("rule")]
    return {
        named["n_components"]: mean_of(same, "test_error")
        for named, same in groups(own, "n_components")
    }


def _beside_published(results: Mapping[str, Any]) -> Iterator[Case]:
    """Yield published errors with ours, the difference in points, and its reasons."""
    for row in results["published"]:
        ours = _errors(results["records"], row["curve"]).get(row["n_components"])
        if ours is not None:
            difference = 100 * (ours - row["test_error"])
            reasons = ", ".join(_reasons(results, row))
            yield {**row, "ours": ours, "difference": difference, "reasons": reasons}


def _reasons(results: Mapping[str, Any], row: Case) -> Iterator[str]:
    """Yield why an error may differ from the published one."""
    dataset, curve = results["dataset"], row["curve"]
    if not dataset["name"].startswith("fashion-mnist") or not dataset["complete"]:
        yield "data"
    if row["n_components"] is None:
        exact = of(results["records"], curve=curve, n_components=None)
        if exact[0]["n_train"] < dataset["n_train"]:
            yield "rows"
        if curve != "fourier":
            yield "bias in the norms"
    elif curve == "fourier":
        yield "pairs for phases"
    elif curve in MEASURED:
        yield "simulated device"


class OpticalRidge(Experiment):
    """Five families of features and their exact kernels, on the same images."""

    name = "optical-ridge"
    title = "Error against D on binarized images (Ohana et al., Fig. 2)."
    Options = Options
    listed = (
        Pivot(
            "{dataset[name]}, {dataset[n_train]:,} training rows: test error in %, "
            "{rule}",
            "n_components",
            "curve",
            "test_error",
            tuple(CURVES),
            per="rule",
        ),
        Pivot(
            "seconds of fit, features included",
            "n_components",
            "curve",
            "fit_seconds",
            tuple(CURVES),
        ),
        Listing(
            "test error in %, published on Fashion-MNIST, and the difference in points",
            "curve, D | ours | published | difference | reasons",
            "{curve}, {n_components:count} | {ours:.2p} | {test_error:.2p} | "
            "{difference:+.2f} | {reasons}",
            records=_beside_published,
        ),
    )
    panels = (
        Panel(
            "n_components",
            "test_error",
            "curve",
            {curve: style for curve, (*_, style) in CURVES.items()},
            "{dataset[name]}, binarized\n{dataset[n_train]:,} training rows",
            where={"rule": itemgetter(0)},
        ),
    )
    layout: ClassVar = {"size": (7.6, 4.6), "legend": "right"}

    def prepare(self) -> Case:
        options = self.options
        check_choice("threshold", options.threshold, ("published", "validated"))
        resolve_memory_limit(options.memory_limit)  # raises before the work
        self.sizes = sorted(set(options.n_components))
        fixed = PIXEL_THRESHOLD if options.threshold == "published" else None
        self.images = load_binary_images(options.data, options.data_dir, fixed)
        self.say("choosing hyperparameters")
        kernels = list(dict.fromkeys(kernel for kernel, *_ in CURVES.values()))
        self.settings = optical_settings(
            self.images, kernels, seed=options.seed, quick=options.quick
        )
        self.X_train = self.images.X_train.astype(np.float32)
        self.X_test = self.images.X_test.astype(np.float32)
        self.counts: DeviceCounts | None = None
        # The models to be timed are fitted to a few rows, so that all code is compiled.
        X, y = self.X_train[:400], self.images.y_train[:400]
        for rule in sorted({case["rule"] for case in self.cases()}):
            for setting in (self.settings["gaussian"], self.settings["optical:2"]):
                case = {"n_components": 64, "seed": 0, "rule": rule}
                # Models that exceed the limit on a few rows will be skipped on all.
                with suppress(MemoryLimitError):
                    self._trial(setting.build(), setting.alpha, case, X, y, self.X_test)
        return self.images.describe()

    def cases(self) -> Iterator[Case]:
        """Return features, exact kernels, then the device, bias by bias."""
        options = self.options
        seeds = range(options.seed, options.seed + options.seeds)
        for curve in COMPUTED:
            for size in (d for d in self.sizes if d <= _MOST.get(curve, d)):
                several = size <= _SEVERAL
                for seed in seeds if several else seeds[:1]:
                    yield _case(curve, size, seed)
                if several and not options.quick:
                    yield _case(curve, size, options.seed, "stopped")
        for curve in EXACT if options.exact_rows else ():
            yield _case(curve, None, options.seed)
        # One acquisition serves both degrees with the same bias.
        for curve in sorted(MEASURED, key=lambda c: self._setting(c).value or 0.0):
            for size in self.sizes:
                yield _case(curve, size, options.seed)

    def measure(self, case: Case) -> Case:
        """Fit and score one classifier."""
        curve, size = case["curve"], case["n_components"]
        setting = self._setting(curve)
        kernel, X, y = setting.build(), self.X_train, self.images.y_train
        if curve in MEASURED:
            stored = self._acquired(int(setting.value or 0))
            train, test = (stored.blocks(part, size, kernel.degree) for part in (0, 1))
            tests = [block.X for block in test]
            settings = randkern.Linear(), setting.alpha, case, train, None, tests
            return self._trial(*settings) | {"described": stored.described}
        if size is None:
            rows = some_rows(len(X), self.options.exact_rows, case["seed"])
            X, y = X[rows], y[rows]
        return self._trial(kernel, setting.alpha, case, X, y, self.X_test)

    def _setting(self, curve: str) -> KernelSetting:
        setting = self.settings[CURVES[curve][0]]
        if not curve.endswith("own"):
            return setting
        alpha = DEVICE_PENALTIES[setting.kernel] * setting.alpha
        return replace(setting, value=0.0, alpha=alpha)

    def _trial(
        self, kernel: Any, alpha: float, case: Case, X: Any, y: Any, X_test: Any
    ) -> Case:
        model = randkern.KernelRidgeClassifier(
            kernel,
            alpha,
            case["n_components"],
            solver=PCG(tol=_TOL, max_iter=2000) if case["rule"] == "solved" else "auto",
            fit_intercept=True,
            memory_limit=self.options.memory_limit,
            random_state=case["seed"],
        )
        trial = fit_and_score(model, X, y, X_test, self.images.y_test)
        n = X.n_rows if y is None else len(y)
        return {"n_train": n, **trial.record(), **solution(model)}

    def _acquired(self, bias: int) -> DeviceCounts:
        """Show all images once for a bias; drop the counts of another bias."""
        if self.counts is None or self.counts.described["bias"] != bias:
            self.say(f"device: counts of {len(self.X_train):,} images and of the tests")
            self.resources.close()
            images, seed = self.images, self.options.seed
            device = SimulatedOPU(max(self.sizes), bits=8, random_state=seed)
            rows = [(images.X_train, images.y_train), (images.X_test, images.y_test)]
            acquiring = acquired_counts(device, rows, bias=bias)
            self.counts = self.resources.enter_context(acquiring)
        return self.counts

    def conclude(self, results: Case) -> Case:
        records, sizes = results["records"], (None, *self.sizes)
        described = [r.pop("described") for r in records if "described" in r]
        return {
            "hyperparameters": {k: s.describe() for k, s in self.settings.items()},
            "device": list({item["bias"]: item for item in described}.values()),
            "overtaking": {
                kind: _overtaking(*(_errors(records, curve) for curve in pair))
                for kind, pair in _PAIRS.items()
            },
            "device_loss": _device_loss(records),
            "published": [r for r in _published() if r["n_components"] in sizes],
        }

    @classmethod
    def notes(cls, results: Mapping[str, Any]) -> Iterator[str]:
        for kernel, named in results["hyperparameters"].items():
            known = {k: v for k, v in named.items() if isinstance(v, float)}
            numbers = ", ".join(f"{k} {v:.4g}" for k, v in known.items())
            yield f"{kernel}: {numbers} ({named['origin']})"
            yield from edge_notes(kernel, named.get("at_edge", ()))
        for kind, size in results["overtaking"].items():
            at = "at no D tried" if size is None else f"from D = {size:,} on"
            theirs = _overtaking(*(_errors(_published(), c) for c in _PAIRS[kind]))
            ours = f"{kind}: m = 4 errs less than m = 2 {at}"
            yield f"{ours} (published: from {theirs:,} on)"
        for degree, published in ((2, 1.5), (4, 1.0)):
            own = of(results["device_loss"], degree=degree)
            if own:
                yield (
                    f"m = {degree}: the device, without a bias, errs "
                    f"{100 * own[-1]['loss']:+.2f} points more than the computed "
                    f"features at D = {own[-1]['n_components']:,} (published: about "
                    f"{published} at 100,000)"
                )
        yield from map(device_note, results["device"])
        yield from skip_notes(results, "curve", "n_components")


def _case(curve: str, size: int | None, seed: int, rule: str = "solved") -> Case:
    named = {"curve": curve, "kernel": CURVES[curve][0], "n_components": size}
    return {**named, "seed": seed, "rule": rule}


def _overtaking(low: Mapping[Any, float], high: Mapping[Any, float]) -> int | None:
    """Return the smallest D from which degree 4 has a smaller error at every D."""
    result = None
    for size in sorted((low.keys() & high.keys()) - {None}, reverse=True):
        if high[size] >= low[size]:
            break
        result = size
    return result


def _device_loss(records: list[Case]) -> list[Case]:
    losses = []
    for degree, *curves in zip((2, 4), *_PAIRS.values(), strict=True):
        computed, measured = (_errors(records, curve) for curve in curves)
        losses += [
            {"degree": degree, "n_components": d, "loss": measured[d] - computed[d]}
            for d in sorted(computed.keys() & measured.keys())
        ]
    return losses


def _published() -> list[Case]:
    """Return the published test errors on Fashion-MNIST, by D and exact."""
    curve_of = {name: curve for curve, (_, name, _) in CURVES.items() if name}
    rows = published_rows("fashion-mnist-features")
    result = []
    for row in (*rows, *published_rows("fashion-mnist-kernels")):
        name = row.get("features") or row["kernel"]
        if name in curve_of:
            named = {"curve": curve_of[name], "n_components": row.get("n_components")}
            result.append(named | {"test_error": 1 - row["test_accuracy"]})
    return result
