"""What costs a device accuracy: bias, penalty, exposure, saturation, noise and bits.

Ohana et al. (2020), section 4.1, and the public code.

The original. On Fashion-MNIST at D = 100,000, the error of the real device is 1.5
points (m = 2) and 1.0 points (m = 4) above that of the simulation. The paper ascribes
this to hyperparameters chosen for numerical stability and, for a small part, to the
camera's eight bits. A second run with a twentieth of the penalty (m = 2) has a smaller
error.

Here each cause is varied alone, at every D and penalty: computed features with and
without the bias; the simulated device (8 bits, Poisson noise, a mean count of 16 of
255); the same without noise, with fewer bits, with brighter light, which saturates, and
with less light, whose counts are rounded and noisy. ``lit-other-norm`` is what the
public code does with its stored outputs: they are measured with 16 more lit bits, and
divided by the norms of the images without these.

Deviations.

- Exposure and noise of the real device are not published. Its losses, and those of
  devices of each mean count at the same penalty, are compared with the computed
  features at the simulation's penalty: what changes add together is not their sum.
- With several ``--windows``, the outputs of one acquisition are divided into so many
  windows, which are draws: the camera's pixels are independent. The mean count is then
  fitted to the losses of both published runs, which are of one draw each, and what
  it leaves unexplained is compared with the standard deviation of the draws.
- Each D uses the first D outputs of its window.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

import randkern
from randkern.optics import SimulatedOPU, mean_count_per_bit

from ..figures import (
    DASHED,
    DOTTED,
    Style,
    add_legend,
    curves,
    logarithmic,
    name_axes,
    panels,
)
from ..options import Names, Sizes, option
from ..runner import Case, measure_all
from ..scoring import class_targets
from ..tables import listing, pivot
from .device_counts import acquired_counts
from .images import BinaryImageOptions, load_binary_images
from .nested_ridge import FeaturesOf, class_errors, drawn, normal_equations, solved
from .optical_settings import optical_settings
from .published import published_rows

# Variant: the bits that are lit in every row as a multiple of the bias, the device's
# arguments (None: computed features; a level is a share of 255), and the curve's style.
VARIANTS: Mapping[str, tuple[int, dict[str, Any] | None, Style]] = {
    "computed": (1, None, Style("computed, with bias", "black")),
    "computed-no-bias": (0, None, Style("computed", "grey", "s")),
    "device": (0, {}, Style("device, mean count 16", "blue", "D")),
    "no-noise": (
        0,
        {"read_noise": 0.0, "shot_noise": 0.0},
        Style("without noise", "sky", "v", DOTTED),
    ),
    "4-bits": (0, {"bits": 4}, Style("4 bits", "pink", "P", DASHED)),
    "2-bits": (0, {"bits": 2}, Style("2 bits", "pink", "X", DOTTED)),
    "count-64": (
        0,
        {"level": 64 / 255},
        Style("mean count 64, saturated", "orange", "^"),
    ),
    "count-8": (0, {"level": 8 / 255}, Style("mean count 8", "green", "s")),
    "count-4": (0, {"level": 4 / 255}, Style("mean count 4", "green", "<")),
    "count-2": (0, {"level": 2 / 255}, Style("mean count 2", "green", ">")),
    "count-1": (0, {"level": 1.1 / 255}, Style("mean count 1", "green", "o")),
    "lit-other-norm": (1, {}, Style("lit bits, norms without", "red", "d", DASHED)),
}
# By degree and penalty relative to the simulation's: the published features.
_PUBLISHED = {
    (2, 1.0): "sim_opu_2",
    (2, 2.0): "real_opu_2",
    (2, 0.1): "real_opu_2_new_param",
    (4, 1.0): "real_opu_4",
}
_RUN = Style("published; at 1 times, the simulation", "#000000", "*", DASHED, False)
# Devices by their light, the brightest first; the published runs at twice and at a
# tenth of the penalty.
_LIGHT = {
    "mean count 16": "device",
    "mean count 8": "count-8",
    "mean count 4": "count-4",
    "mean count 2": "count-2",
    "mean count 1": "count-1",
}
_RUNS = {2.0: "real_opu_2", 0.1: "real_opu_2_new_param"}
_COUNTED_ROWS = 1000
_NAMES = ["variant", "mean_count", "saturated"]


@dataclass(frozen=True)
class Options(BinaryImageOptions):
    """Options of ``randkern reproduce optical-device``."""

    degree: int = option(2, "Degree of the features: 2 or 4 are published.")
    n_components: Sizes = option(
        (300, 1000, 3000, 10_000), "Numbers of features.", quick=(30, 100)
    )
    variants: Names = option(tuple(VARIANTS), "Variants.", among=VARIANTS)
    windows: int = option(1, "Draws: windows of the outputs of one device.", quick=3)


def run(options: Options) -> pd.DataFrame:
    """Solve one Gram matrix of each variant and window for every D and penalty."""
    images = load_binary_images(options.data, options.data_dir)
    kernel = f"optical:{options.degree}"
    setting = optical_settings(images, [kernel])[kernel]
    sizes, classes = options.n_components, np.unique(images.y_train)
    penalties = (1.0, 2.0, 0.1) if options.degree == 2 else (1.0,)

    def errors(train: FeaturesOf, test: FeaturesOf, **light: Any) -> Iterator[Case]:
        equations = normal_equations(train, class_targets(images.y_train, classes))
        alphas = [penalty * setting.alpha for penalty in penalties]
        fits = list(solved(equations, sizes, alphas))
        wrong = class_errors(fits, test, images.y_test, classes)
        for fit, error in zip(fits, wrong, strict=True):
            yield {
                "n_components": fit.n_components,
                "penalty": penalties[alphas.index(fit.alpha)],
                "alpha": fit.alpha,
                "mean_count": None,
                "saturated": None,
                "test_error": error,
                "outcome": fit.ended["outcome"],
                **light,
            }

    def measure(case: Case) -> Iterator[Case]:
        """Fit one variant with every window, number of features and penalty."""
        multiple, device, _ = VARIANTS[case["variant"]]
        bias, size, degree = (
            multiple * int(setting.value or 0),
            sizes[-1],
            options.degree,
        )
        if device is None:
            for window in range(options.windows):
                seed = options.seed + window
                kernel = randkern.Optical(degree, bias)
                features = randkern.RandomFeatures(kernel, size, random_state=seed)
                parts = drawn(features, images.X_train, images.X_test)
                yield from errors(*parts, bias=bias, window=window)
            return
        simulated = SimulatedOPU(
            size * options.windows, random_state=options.seed, **device
        )
        rows = [(images.X_train, images.y_train), (images.X_test, images.y_test)]
        with acquired_counts(simulated, rows, bias=bias) as stored:
            first = np.asarray(stored.counts[0][:_COUNTED_ROWS])
            if multiple:
                lit = images.X_train[:_COUNTED_ROWS].sum(axis=1, dtype=np.int64)
                stored = replace(stored, scale=mean_count_per_bit(first, lit))
            for window in range(options.windows):
                outputs = slice(window * size, (window + 1) * size)
                yield from errors(
                    *(stored.features_of(i, outputs, degree) for i in (0, 1)),
                    bias=bias,
                    mean_count=stored.described["mean_count"],
                    saturated=float(np.mean(first == simulated.full_scale)),
                    window=window,
                )

    cases = [{"variant": name, "seed": options.seed} for name in options.variants]
    records = measure_all(options, cases, measure)
    records.attrs["dataset"] = images.describe()
    records.attrs["hyperparameters"] = setting.describe()
    return records


def tables(frame: pd.DataFrame) -> Iterator[Any]:
    title = (
        "{dataset[name]}, degree {arguments[degree]}: test error in %, {penalty:g} "
        "times the penalty"
    )
    named = frame.assign(named=[_named(*row) for row in frame[_NAMES].to_numpy()])
    named = named.sort_values(_NAMES[1:], kind="stable")  # by light
    look: Mapping[str, Any] = {"per": "penalty", "corner": "variant"}
    error = "{test_error:.2p}"
    yield from pivot(named, title, "named", "n_components", error, **look)
    title = "published on Fashion-MNIST: errors in %, {penalty:g} times the penalty"
    theirs, look = published(frame), {"per": "penalty", "corner": "published"}
    yield from pivot(theirs, title, "variant", "n_components", error, **look)
    title = (
        "together: points added by the device and its penalty at D = "
        "{n_components:,}, beside the published runs"
    )
    look = {"corner": "times the penalty", "label": "{:g}".format}
    added = pd.DataFrame(_together(frame))
    yield from pivot(added, title, "penalty", "what", "{added:+.2f}", **look)
    yield from listing(
        pd.DataFrame(exposures(frame)),
        "exposure: the mean count that explains the points added in a published run, "
        "and the one that explains both runs best",
        "D | times the penalty | published | mean count of this run | of both | ours "
        "| standard deviation | unexplained",
        "{n_components:,} | {penalty:g} | {published:+.2f} | {alone:.1f} | {both:.1f} "
        "| {ours:+.2f} | {deviation:.2f} | {unexplained:+.2f}",
    )


def _named(variant: str, mean: float, saturated: float) -> str:
    if pd.isna(mean):
        return variant
    return f"{variant} (mean count {mean:.1f}, {100 * saturated:.2g} % saturated)"


def figure(frame: pd.DataFrame) -> Any:
    """Return errors against D at each penalty, with those of the published runs."""
    data, rows = frame.attrs["dataset"], pd.concat([frame, published(frame)])
    penalties = sorted(rows.penalty.unique(), key=[1, 2, 0.1].index)
    figure, axes = panels(len(penalties), size=(4.2, 4.2))
    styles = {name: style for name, (*_, style) in VARIANTS.items()}
    styles |= dict.fromkeys(_PUBLISHED.values(), _RUN)
    for place, penalty in zip(axes, penalties, strict=True):
        own, x, y = rows[rows.penalty == penalty], "n_components", "test_error"
        curves(place, own, x, y, styles, "variant", bars="spread")
        name_axes(place, f"{penalty:g} times the penalty of the simulation")
    low, high = zip(*(place.get_ylim() for place in axes), strict=True)
    for place in axes:
        place.set_ylim(min(low), max(high))
        logarithmic(place, "y")
    title = f"{data['name']}, {data['n_train']:,} training rows"
    figure.suptitle(f"{title}, degree {frame.attrs['arguments']['degree']}")
    add_legend(figure, "right")
    return figure


def notes(frame: pd.DataFrame) -> Iterator[str]:
    for loss in losses(frame):
        yield (
            f"{loss['cause']}: {100 * loss['loss']:+.2f} points at "
            f"D = {loss['n_components']:,}"
        )


def published(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the published errors of the same degree and D, as records."""
    runs = {
        name: penalty
        for (degree, penalty), name in _PUBLISHED.items()
        if degree == frame.attrs["arguments"]["degree"]
    }
    rows = published_rows("fashion-mnist-features").rename(
        columns={"features": "variant"}
    )
    rows = pd.concat([rows[rows.variant == name] for name in runs])
    rows = rows[rows.n_components.isin(frame.n_components)]
    return rows.assign(
        penalty=rows.variant.map(runs), test_error=1 - rows.test_accuracy
    )


def _added(rows: pd.DataFrame, variant: str, base: str, penalty: float) -> Any:
    """Return the points that draws of a variant add to the mean error of the base.

    The base has the simulation's penalty.
    """
    simulated = rows[(rows.penalty == 1.0) & (rows.variant == base)].test_error
    measured = rows[(rows.penalty == penalty) & (rows.variant == variant)].test_error
    return 100 * (measured - simulated.mean()).dropna()


def _together(frame: pd.DataFrame) -> Iterator[Case]:
    """Yield what devices of less and less light add to the computed features' error.

    These have a bias and the simulation's penalty, as the published ones; the device
    has neither.
    """
    size, theirs = int(frame.n_components.max()), published(frame)
    names = {"published": "real_opu_2", "published again": "real_opu_2_new_param"}
    for penalty in _RUNS:
        for rows, base, shown in (
            (frame, "computed", _LIGHT),
            (theirs, "sim_opu_2", names),
        ):
            own = rows[rows.n_components == size]
            for what, name in shown.items():
                added = _added(own, name, base, penalty)
                if len(added):
                    row = {"penalty": penalty, "n_components": size, "what": what}
                    yield {**row, "added": added.mean()}


def exposures(frame: pd.DataFrame) -> Iterator[Case]:
    """Yield the mean counts whose losses are nearest to those of the published runs.

    Losses of mean counts between those measured are interpolated linearly in the
    logarithm of the count. ``alone`` is fitted to one run, ``both`` to the two by least
    squares, in units of the standard deviation of the draws if there are several.
    """
    for size, runs in published(frame).groupby("n_components"):
        ours = frame[frame.n_components == size]
        means = ours.groupby("variant").mean_count.mean()
        light = [name for name in reversed(_LIGHT.values()) if name in means]
        counts = [means[name] for name in light]
        if len(counts) < 2:
            continue
        tried = np.geomspace(counts[0], counts[-1], 401)
        fitted = []
        for penalty, run in _RUNS.items():
            theirs = _added(runs, run, "sim_opu_2", penalty)
            added = [_added(ours, name, "computed", penalty) for name in light]
            if len(theirs) and all(map(len, added)):
                losses = [points.mean() for points in added]
                curve = np.interp(np.log(tried), np.log(counts), losses)
                spread = None
                if min(map(len, added)) > 1:
                    spread = float(np.sqrt(np.mean([p.var() for p in added])))
                loss = float(theirs.iloc[0])
                misfit = ((curve - loss) / (spread or 1.0)) ** 2
                fitted.append((penalty, loss, curve, spread, misfit))
        for penalty, loss, curve, spread, misfit in fitted:
            best = int(np.argmin(sum(other[-1] for other in fitted)))
            yield {
                "n_components": size,
                "penalty": penalty,
                "published": loss,
                "alone": float(tried[np.argmin(misfit)]),
                "both": float(tried[best]),
                "ours": float(curve[best]),
                "deviation": spread,
                "unexplained": loss - float(curve[best]),
            }


def losses(records: pd.DataFrame) -> Iterator[Case]:
    """Yield what each change alone adds to the error, at the largest D.

    The bias and the penalty are those of computed features, the others are compared
    with the device at the simulation's penalty.
    """
    size = int(records.n_components.max())
    records = records[records.n_components == size]
    plain = "computed-no-bias"
    changes = [
        ("no bias", plain, "computed", 1.0),
        ("the device", "device", plain, 1.0),
        *((name, name, "device", 1.0) for name in list(VARIANTS)[3:]),
        *((f"{p:g} times the penalty", plain, plain, p) for p in _RUNS),
    ]
    for cause, changed, base, penalty in changes:
        added = _added(records, changed, base, penalty)
        if len(added):
            yield {"cause": cause, "n_components": size, "loss": added.mean() / 100}
