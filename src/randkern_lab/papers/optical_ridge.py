"""Ridge on binarized images: error against the number of features (Fig. 2).

Ohana et al. (2020), section 4.1, appendix D, and the public code.

The original. Fashion-MNIST with 60,000 training and 10,000 test images; a pixel is lit
above 10 of 255, a threshold chosen on validation rows (D.1). Ridge regression of labels
±1 without an intercept, on random features of D = 10, 20, ..., 100,000 columns: Fourier
features of the Gaussian kernel, cosines with random phases; simulated optical features
of degrees 2 and 4, and of degree 6 in the public code only; those of a real device, of
degrees 2 and 4, and of degree 2 with a second penalty in the public code only. The
kernels of Fourier features and of degrees 2 and 4, and the linear kernel, are fitted to
all rows. Hyperparameters of each kernel were chosen once, by a grid at D = 10,000 on
held-out rows (Fig. 4); the device ran without a bias and, for numerical stability, with
twice the simulation's penalty for degree 2. Systems were solved by Cholesky up to
D = 10,000 and beyond by conjugate gradients, for several seeds of the features, whose
number is not given; their standard deviations are called negligible (Fig. 2). Seconds
are those of GPUs, and of the device: `projection` of all 70,000 images, `regression`
from these features to the weights.

Deviations.

- The data are those of ``--data``. The full Fashion-MNIST uses the published
  hyperparameters, other data those chosen in the run;
  ``--threshold validated`` chooses a threshold other than 10 of 255.
- ``--projection auto`` draws structured matrices, whose rows are orthogonal in blocks;
  the published ones are independent (``dense``, which takes longer).
- Up to D = 10,000 there is a draw per curve and seed, not per D: each D uses its first
  D columns (:mod:`.nested_ridge`). Beyond, each D has draws of its own, fewer of them
  beyond D = 20,000; conjugate gradients end at a relative residual of 1e-4, which is
  recorded.
- ``fourier`` are the published cosines with random phases, ``fourier-pair`` pairs of
  cosine and sine, which have a lower variance.
- The exact kernels ``optical-2-dot`` and ``optical-4-dot`` add the bias to the dot
  product alone, as the published ones; ``optical-2`` and ``optical-4`` add it to the
  norms as well, so that they are the limits of the features.
- The device is simulated (8 bits, Poisson noise); its exposure and noise are not
  published, and assumed. As published, it has no bias and, for degrees 2 and 4, twice
  and once the penalty of the simulation (``device-2-own``, ``device-4-own``);
  ``device-2-new`` is the second published penalty, a tenth. There is one device, as
  published, and every D uses the first D outputs of one acquisition: the camera's
  pixels are independent and identically distributed. :mod:`.optical_device` separates
  what may cost accuracy.
- Degree 6 is published up to D = 10,000, without its kernel, and ends there; so do
  pairs of cosine and sine, which are not published.
- Seconds are those of this machine. Of a D below the largest of its draw, features are
  computed once more to be timed, and the Gram matrix is timed on 2,048 rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

import randkern
from randkern._memory import resolve_memory_limit
from randkern.data import row_blocks
from randkern.exceptions import MemoryLimitError
from randkern.optics import SimulatedOPU

from ..figures import add_legend, curves, logarithmic, name_axes, panels
from ..options import Names, Sizes, option
from ..process import Stopwatch
from ..runner import Case, measure_all
from ..scoring import TOL, class_targets, iterated_ridge, random_rows
from ..tables import listing, pivot
from .device_counts import DeviceCounts, acquired_counts, device_note
from .images import (
    HELD_OUT_ROWS,
    PIXEL_THRESHOLD,
    BinaryImageOptions,
    Images,
    load_binary_images,
)
from .nested_ridge import (
    FeaturesOf,
    class_errors,
    drawn,
    gram_seconds,
    normal_equations,
    solved,
)
from .optical_curves import (
    CURVES,
    LINEAR_BIAS,
    MOST,
    PAIRS,
    PUBLISHED_SIZES,
    explain_dashes,
    published_curves,
    shown_records,
    styles,
)
from .optical_settings import DotBiasOptical, KernelSetting, optical_settings

_DIRECT = 10_000  # features; beyond, systems are solved by conjugate gradients
_LARGE = 20_000  # features; beyond, there are fewer draws
_ERROR_TICKS = (2, 3, 5, 7, 10, 12, 15, 20, 30, 40, 60)  # in percent
_TIMED_ROWS = 4096  # features of so many rows are computed at a time
# From here on errors should differ from the published ones by less than 0.3 points.
_CLOSE_FROM, _CLOSE = 3000, 0.3


@dataclass(frozen=True)
class Options(BinaryImageOptions):
    """Options of ``randkern reproduce optical-ridge``."""

    threshold: str = option(
        "published",
        "10 of 255, as published, or chosen on held-out rows.",
        among=("published", "validated"),
    )
    n_components: Sizes = option(
        PUBLISHED_SIZES, "Numbers of features, as published.", quick=(10, 30, 100, 300)
    )
    seeds: int = option(5, "Draws of the features up to D = 20,000.", quick=1)
    large_seeds: int = option(
        3, "Draws of the features beyond D = 20,000; --seeds at most.", quick=1
    )
    curves: Names = option(tuple(CURVES), "Curves.", among=CURVES)
    projection: str = option(
        "auto", "How matrices are drawn; dense: independent entries, as published."
    )
    exact_rows: int = option(
        60_000,
        "Training rows of the exact kernels at most; 0 leaves them out.",
        quick=500,
        least=0,
    )
    memory_limit: str | None = option(
        "10GB", 'What a model may use, such as "4GB"; less recomputes exact kernels.'
    )


_THREE = ("fourier", "optical-2", "optical-4")
_DEVICE = ("device-2-own", "device-4-own", "device-2-new")
_COMPUTED = ("fourier", "fourier-pair", "optical-2", "optical-4", "optical-6")
_SHOWN = (*_THREE, "device-2-own")
_OF_D = ("fourier", "optical-2", "device-2-own", "device-2-new")
_PROJECTION, _REGRESSION = "projection_seconds", "regression_seconds"


@dataclass(frozen=True)
class Work:
    """Images and settings, and what is fitted to them.

    The counts of the device are stored in the context `stack`, on first use.
    """

    options: Options
    images: Images
    X_train: Any  # as numbers
    X_test: Any
    settings: Mapping[str, KernelSetting]
    stack: ExitStack

    @cached_property
    def counts(self) -> DeviceCounts:
        """Counts of all images, shown once to the device."""
        images = self.images
        device = SimulatedOPU(
            max(self.options.n_components), bits=8, random_state=self.options.seed
        )
        rows = [(images.X_train, images.y_train), (images.X_test, images.y_test)]
        return self.stack.enter_context(acquired_counts(device, rows))

    def measure(self, case: Case) -> Iterator[Case]:
        """Fit and score the classifiers of one draw, or one classifier."""
        name, size, seed = case["curve"], case["n_components"], case["seed"]
        device = CURVES[name].device
        described = {"described": self.counts.described} if device else {}
        if size is None:
            rows = random_rows(len(self.X_train), self.options.exact_rows, seed)
            X, y = self.X_train[rows], self.images.y_train[rows]
        if name == "linear":
            width = X.shape[1] + 1  # the bias is a column
            parts = self.features(name, width, seed, X)
            for record in self.fitted(name, [width], parts, y):
                yield record | {"n_components": None}
        elif size is None:
            record = self.iterated(name, None, seed, X, y, self.X_test)
            yield record | {"regression_seconds": record["fit_seconds"]}
        elif size > _DIRECT:
            data: Any = self.X_train, self.images.y_train, self.X_test
            if device:
                degree = self.setting(name).build().degree
                blocks = [self.counts.blocks(part, size, degree) for part in (0, 1)]
                data = blocks[0], None, [block.X for block in blocks[1]]
            yield self.iterated(name, size, seed, *data) | described
        else:
            y = self.images.y_train
            sizes = [d for d in self.options.n_components if d <= size]
            parts = self.features(name, sizes[-1], seed, self.X_train)
            for record in self.fitted(name, sizes, parts, y):
                if not device:
                    seconds = self.projection_seconds(
                        name, record["n_components"], seed
                    )
                    share = len(y) / (len(y) + len(self.X_test))
                    record["fit_seconds"] += share * seconds
                    record["projection_seconds"] = seconds
                yield record | described

    def fitted(
        self, name: str, sizes: Sequence[int], parts: Sequence[FeaturesOf], y: Any
    ) -> Iterator[Case]:
        """Yield a record for each number of columns of one draw."""
        (train, test), largest = parts, sizes[-1]
        classes = np.unique(self.images.y_train)
        Y = class_targets(y, classes)
        seconds = gram_seconds(train, Y, sizes[:-1])
        watch = Stopwatch()
        equations = normal_equations(train, Y)
        seconds[largest] = watch.lap().seconds
        fits = list(solved(equations, sizes, [self.setting(name).alpha]))
        watch = Stopwatch()
        errors = class_errors(fits, test, self.images.y_test, classes)
        predicting = watch.lap().seconds / sum(sizes)
        for fit, error in zip(fits, errors, strict=True):
            regression = seconds[fit.n_components] + fit.seconds
            yield {
                "n_components": fit.n_components,
                "n_train": len(y),
                "test_error": error,
                "fit_seconds": regression,
                "projection_seconds": None,
                "regression_seconds": regression,
                "solve_seconds": fit.seconds,
                "predict_seconds": predicting * fit.n_components,
                **fit.ended,
            }

    def iterated(self, name: str, size: int | None, seed: int, *data: Any) -> Case:
        """Fit and score one classifier by conjugate gradients."""
        kernel, limit = self.kernel(name), self.options.memory_limit
        if CURVES[name].device:
            kernel = randkern.Linear()
        rows = *data, self.images.y_test
        alpha = self.setting(name).alpha
        return iterated_ridge(kernel, alpha, size, *rows, limit=limit, seed=seed)

    def features(self, name: str, size: int, seed: int, X: Any) -> list[FeaturesOf]:
        """Return functions of slices: the features of these rows, and of the tests."""
        kernel, projection = self.kernel(name), self.options.projection
        if CURVES[name].device:
            outputs = slice(size)
            return [self.counts.features_of(i, outputs, kernel.degree) for i in (0, 1)]
        features = randkern.RandomFeatures(
            kernel,
            size,
            fourier=CURVES[name].fourier,
            projection="auto" if name == "linear" else projection,
            random_state=seed,
        )
        return drawn(features, X, self.X_test)

    def projection_seconds(self, name: str, size: int, seed: int) -> float:
        """Return the seconds to compute D features of all images."""
        parts, watch = self.features(name, size, seed, self.X_train), Stopwatch()
        for features_of, X in zip(parts, (self.X_train, self.X_test), strict=True):
            for rows in row_blocks(len(X), _TIMED_ROWS):
                features_of(rows)
        return watch.lap().seconds

    def setting(self, name: str) -> KernelSetting:
        """Return the hyperparameters of a curve."""
        curve = CURVES[name]
        setting = self.settings[curve.kernel]
        value = 0.0 if curve.device else setting.value
        return replace(setting, value=value, alpha=curve.penalty * setting.alpha)

    def kernel(self, name: str) -> Any:
        """Return the kernel of a curve."""
        if name == "linear":
            return randkern.Linear(LINEAR_BIAS)
        kernel = self.setting(name).build()
        if CURVES[name].dot_bias:
            return DotBiasOptical(kernel.degree, kernel.bias)
        return kernel

    def compile(self) -> None:
        """Fit what will be timed to a few rows."""
        X, y = self.X_train[:400], self.images.y_train[:400]
        names = self.options.curves
        for name in {"fourier", "fourier-pair", "optical-2"} & set(names):
            list(self.fitted(name, (32, 64), self.features(name, 64, 0, X), y))
        with suppress(MemoryLimitError):
            self.iterated(names[0], None, 0, X, y, self.X_test)


SKIPPED_BY = ("curve", "n_components")


def run(options: Options) -> pd.DataFrame:
    """Fit five families of features and their exact kernels to the same images."""
    resolve_memory_limit(options.memory_limit)  # raises before the work
    fixed = PIXEL_THRESHOLD if options.threshold == "published" else None
    images = load_binary_images(options.data, options.data_dir, fixed)
    kernels = list(dict.fromkeys(CURVES[name].kernel for name in options.curves))
    settings = optical_settings(images, kernels)
    with ExitStack() as stack:
        X, X_test = (X.astype(np.float32) for X in (images.X_train, images.X_test))
        work = Work(options, images, X, X_test, settings, stack)
        work.compile()
        records = measure_all(options, _cases(options), work.measure)
    described = records.pop("described").dropna() if "described" in records else []
    records.attrs["dataset"] = images.describe()
    records.attrs["hyperparameters"] = {k: s.describe() for k, s in settings.items()}
    records.attrs["device"] = list(described[:1])
    return records


def _cases(options: Options) -> Iterator[Case]:
    """Yield draws of features, exact kernels, the device, and larger D."""
    chosen = {name: CURVES[name] for name in options.curves}
    sizes = options.n_components
    direct = [d for d in sizes if d <= _DIRECT]
    by_computer = [n for n, c in chosen.items() if c.features and not c.device]
    measured = [n for n, c in chosen.items() if c.device]
    draws = range(options.seed, options.seed + options.seeds)

    def case(curve: str, size: int | None, seed: int) -> Case:
        named = {"curve": curve, "kernel": CURVES[curve].kernel, "n_components": size}
        return {**named, "seed": seed}

    for seed in draws if direct else ():
        for name in by_computer:
            yield case(name, min(direct[-1], MOST.get(name, _DIRECT)), seed)
        if seed > options.seed:
            continue
        for name, curve in chosen.items() if options.exact_rows else ():
            if curve.published_exact:
                yield case(name, None, seed)
        for name in measured:
            yield case(name, direct[-1], seed)
    for size in (d for d in sizes if d > _DIRECT):
        n_draws = len(draws) if size <= _LARGE else options.large_seeds
        for seed in draws[:n_draws]:
            # The device has one draw: its outputs are those of one acquisition.
            for name in (*by_computer, *(measured if seed == draws[0] else ())):
                if size <= MOST.get(name, size):
                    yield case(name, size, seed)


def tables(frame: pd.DataFrame) -> Iterator[Any]:
    both = compared(frame)

    def by_curve(rows: pd.DataFrame, title: str, cell: str) -> Iterator[Any]:
        return pivot(rows, title, "n_components", "curve", cell, tuple(CURVES))

    title = "{dataset[name]}, {dataset[n_train]:,} training rows: test error in %"
    yield from by_curve(frame, title, "{test_error:.2p}")
    title = "test error in %, ours / published on Fashion-MNIST"
    yield from by_curve(both, title, "{ours:.2p} / {published:.2p}")
    title = "seconds of projection, ours / published (GPUs, and the device)"
    cell = "{projection_seconds:.2f} / {projection_seconds_published:.2f}"
    yield from by_curve(both, title, cell)
    title = "seconds of regression, ours / published (GPUs)"
    cell = "{regression_seconds:.2f} / {regression_seconds_published:.2f}"
    yield from by_curve(both, title, cell)
    totals = both[_from(10_000, both) & both.fit_seconds_published.notna()]
    title = "seconds of features and fit, ours (of training rows) / published"
    cell = "{fit_seconds:.0f} / {fit_seconds_published:.0f}"
    yield from by_curve(totals[totals.curve.isin(_THREE)], title, cell)
    beyond = frame[_from(_DIRECT + 1, frame) & (frame.curve != "linear")]
    title = f"iterations of conjugate gradients to a residual of {TOL:g}"
    yield from by_curve(beyond, title, "{solver_iterations:.0f}")
    yield from listing(
        pd.DataFrame(frame.attrs["dataset"].get("threshold_errors", ())),
        "appendix D.1: validation error by threshold, in %",
        "pixels are lit above | error",
        "{above:.3g} | {validation_error:.2p}",
    )


def figure(frame: pd.DataFrame) -> Any:
    """Return errors and seconds against D, and the thresholds if they were compared.

    Published curves are dashed.
    """
    data = frame.attrs["dataset"]
    rows = f"{data['name']}, {data['n_train']:,} training rows"
    figure, axes = panels(6, 3, (4.9, 4.1), rows)
    for place, (title, y, names, least, most) in zip(
        axes,
        (
            ("(a) D ≤ 10,000", "test_error", _OF_D, 1, 10_000),
            ("(b) computed, D ≥ 1,000", "test_error", _COMPUTED, 1000, 100_000),
            ("(c) device, D ≥ 1,000", "test_error", _DEVICE, 1000, 100_000),
            ("(d) features of all images", _PROJECTION, _SHOWN, 10, 100_000),
            ("(e) from features to weights", _REGRESSION, _SHOWN, 10, 100_000),
            ("(f) both, ours of training rows", "total_seconds", _THREE, 10, 10**5),
        ),
        strict=True,
    ):
        shown = shown_records(frame, names, least, most, y == "test_error")
        look, by = styles(*names), ("curve", "source")
        curves(place, shown, "n_components", y, look, by, bars="spread")
        name_axes(place, title, ylabel="" if y == "test_error" else "seconds")
        explain_dashes(place, shown)
    logarithmic(axes[0], "y", _ERROR_TICKS)
    add_legend(figure)
    thresholds = {}
    if data.get("threshold_errors"):
        thresholds = {"thresholds.png": _thresholds(data)}
    return {"optical-ridge.png": figure, **thresholds}


def _thresholds(dataset: Mapping[str, Any]) -> Any:
    """Return the figure of the errors of thresholds."""
    figure, (axes,) = panels(1)
    errors = dataset["threshold_errors"]
    share = np.array([row["validation_error"] for row in errors])
    n_held_out = min(HELD_OUT_ROWS, dataset["n_train"] // 4)
    deviation = np.sqrt(share * (1 - share) / n_held_out)
    above = [row["above"] for row in errors]
    axes.errorbar(above, 100 * share, 100 * deviation, marker="o", capsize=3)
    title = f"{dataset['name']}: the threshold of pixels (D.1)"
    label = "validation error (%), ± standard error"
    name_axes(axes, title, "pixels are lit above, of 255", label)
    return figure


def notes(frame: pd.DataFrame) -> Iterator[str]:
    for kernel, named in frame.attrs["hyperparameters"].items():
        known = {k: v for k, v in named.items() if isinstance(v, float)}
        numbers = ", ".join(f"{k} {v:.4g}" for k, v in known.items())
        yield f"{kernel}: {numbers} ({named['origin']})"
    rows = compared(frame)
    same = rows[rows.reasons == ""]
    for curve, own in same[_from(_CLOSE_FROM, same)].groupby("curve", sort=False):
        far = own.loc[own.difference.abs().idxmax()]
        verdict = "within" if abs(far.difference) <= _CLOSE else "NOT within"
        yield (
            f"{curve}: {verdict} {_CLOSE} points of the published errors "
            f"from D = {_CLOSE_FROM:,} on; the largest difference is "
            f"{far.difference:+.2f}, of {_at(far.n_components)}"
        )
    own = same[same.n_components.between(100, 1000)].difference
    if len(own):
        projection = frame.attrs["arguments"]["projection"]
        named = {"auto": "structured", "dense": "independent"}
        yield (
            f"{named.get(projection, projection)} rows: of {len(own)} mean errors at "
            f"100 ≤ D ≤ 1,000 {sum(own < 0)} are below those published, "
            f"which are of independent rows; the mean difference is "
            f"{own.mean():+.2f} points"
        )
    ended = frame[~frame.outcome.isin(["success", "converged"])]
    for (curve, outcome), own in ended.groupby(["curve", "outcome"], sort=False):
        least = own.n_components.min()
        where = "of the exact kernel" if least != least else f"from {_at(least)} on"
        yield (
            f"solves, {curve}: {len(own)} {where} ended as "
            f"{outcome.replace('_', '-')}, with residuals of at most "
            f"{own.residual.max():.0e}"
        )
    errors, theirs = (
        rows.pivot_table("test_error", "n_components", "curve").reindex(columns=CURVES)
        for rows in (frame, published_curves())
    )
    for kind, pair in PAIRS.items():
        ours = f"{kind}: m = 4 has a smaller error than m = 2"
        published = f"(published: {_overtaking(theirs, *pair)})"
        yield f"{ours} {_overtaking(errors, *pair)} {published}"
    losses = {2: 1.5, 4: 1.0}  # published
    for (degree, about), *both in zip(losses.items(), *PAIRS.values(), strict=True):
        common = errors[both].dropna()
        if len(common):
            computed, measured = common.iloc[-1]
            yield (
                f"m = {degree}: error of the device, without a bias, minus that of "
                f"the computed features at D = {common.index[-1]:,.0f}: "
                f"{100 * (measured - computed):+.2f} points "
                f"(published: about {about} at 100,000)"
            )
    yield from map(device_note, frame.attrs["device"])


def published(frame: pd.DataFrame) -> pd.DataFrame:
    """Return what was published on Fashion-MNIST."""
    return published_curves()


def compared(frame: pd.DataFrame) -> pd.DataFrame:
    """Return published errors and seconds beside ours, and why they may differ."""
    keys = ["curve", "n_components"]
    seconds = ["projection_seconds", "regression_seconds", "fit_seconds"]
    published = published_curves().rename(columns={"test_error": "published"})
    published["fit_seconds"] = published[seconds[:2]].sum(axis=1, skipna=False)
    records = frame.astype(dict.fromkeys([*seconds, "n_components"], float))
    ours = records.groupby(keys, sort=False, dropna=False).agg(
        draws=("seed", "size"),
        ours=("test_error", "mean"),
        n_train=("n_train", "first"),
        **{name: (name, "mean") for name in seconds},
    )
    ours = ours.reset_index()
    both = published.merge(ours, on=keys, suffixes=("_published", ""))
    both["difference"] = 100 * (both.ours - both.published)
    attrs = frame.attrs
    both["reasons"] = [", ".join(_reasons(attrs, row)) for row in both.itertuples()]
    return both


def _reasons(attrs: Mapping[Any, Any], row: Any) -> Iterator[str]:
    """Yield why an error may differ from the published one."""
    dataset, curve = attrs["dataset"], CURVES[row.curve]
    if not dataset["name"].startswith("fashion-mnist") or not dataset["complete"]:
        yield "data"
    if attrs["arguments"]["threshold"] == "validated":
        yield "threshold"
    if row.n_components != row.n_components:
        if row.n_train < dataset["n_train"]:
            yield "rows"
        if curve.kernel.startswith("optical") and not curve.dot_bias:
            yield "bias in the norms"
    elif curve.device:
        yield "simulated device"


def _from(least: int, rows: pd.DataFrame) -> pd.Series:
    """Return which are of exact kernels, or from a number of features on."""
    return rows.n_components.isna() | (rows.n_components >= least)


def _at(size: float) -> str:
    return "the exact kernel" if size != size else f"D = {size:,.0f}"


def _overtaking(errors: pd.DataFrame, low: str, high: str) -> str:
    """Return from which D on degree 4 has a smaller error at every D."""
    both = errors[[low, high]].dropna()
    smaller = (both[high] < both[low])[::-1].cummin()
    smaller = smaller[smaller]
    return f"from {_at(smaller.index[-1])} on" if len(smaller) else "at no D tried"
