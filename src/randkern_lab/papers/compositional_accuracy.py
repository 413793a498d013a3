"""Gram matrices of compositional features: error against D (Fig. 3).

Daniely, Frostig, Gupta and Singer (2017), section 6.

The original. CIFAR-10 images are cropped to 24 × 24 × 3, with pixels in [−1, 1] mapped
to the circle by t = πx/2 (this and the following settings come from the authors' public
defaults; the paper omits them). There are two skeletons: a shallow one, whose kernel is
Gaussian, and a deep one with two convolutions of 5 × 5 windows and stride 2 and a full
connection, all ReLU. The mean absolute error, the root mean square error, the maximum
error and the correlation of Gram matrices of 128 images are plotted against
D = 1000·2^i; equal draws are merged, so more draws are made for the same D. The shallow
skeleton is compared to the features of Rahimi and Recht. There are figures, no numbers.

Here also. The gains from merging and from the closed-form constant feature, paired by
seed, and the error of a function of norm 1 in the space of the kernel,
f = Σ a_i k(x_i, ·), at the images (``function_error``): Corollary 4, whose bound
:mod:`.compositional_bounds` measures.

Deviations.

- The shallow skeleton is one exponential node over all pixels, exp(ρ − 1): a Gaussian
  of the embedded points (cos t, sin t) with lengthscale √d for d pixels.
- The features of Rahimi and Recht are pairs, dense and structured.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import randkern
from randkern.skeletons import Exponential, Skeleton, fully_connected

from ..figures import (
    BLUE,
    DASHED,
    DOTTED,
    LONG,
    Style,
    add_legend,
    curves,
    name_axes,
    panels,
)
from ..options import Sizes, option
from ..process import Stopwatch
from ..runner import Case, measure_all
from ..tables import listing, mean_interval, pivot
from .images import CircleImageOptions, build_skeleton, load_circle_images


@dataclass(frozen=True)
class Problem:
    """A kernel to approximate, with its skeleton, rows and exact values."""

    skeleton: Skeleton
    X: NDArray[np.float32]
    lengthscale: float | None
    exact: NDArray[np.float64]

    def features(self, method: str, size: int, seed: int) -> NDArray[Any]:
        """Return a method's features of all rows."""
        kernel, X = randkern.Gaussian(self.lengthscale), self.X
        if method in FOURIER:
            X = embed(X)
        else:
            kernel = randkern.Compositional(self.skeleton, **VARIANTS[method])
        projection = FOURIER.get(method, "auto")
        features = randkern.RandomFeatures(
            kernel, size, projection=projection, random_state=seed
        )
        return np.asarray(features.fit_transform(X))


KERNELS = {"shallow": "shallow (Gaussian)", "deep": "deep (convolutional)"}
METHODS = {
    "skeleton": Style("skeleton, merged, analytic constant", "blue"),
    "not-merged": Style("not merged", "sky", "s", DASHED),
    "constant-drawn": Style("constant drawn", "green", "D", "-."),
    "plain": Style("neither", "grey", "v", DOTTED),
    "rahimi-recht": Style("Rahimi-Recht, dense", "black", "X"),
    "structured": Style("Fourier, structured", "red", "^", LONG),
}
VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "skeleton": {"deduplicate": "auto", "constant": "analytic"},
    "not-merged": {"deduplicate": False, "constant": "analytic"},
    "constant-drawn": {"deduplicate": "auto", "constant": "sampled"},
    "plain": {"deduplicate": False, "constant": "sampled"},
}
FOURIER = {"rahimi-recht": "dense", "structured": "structured"}
# Variants compared with the default features.
GAINS = {
    "merging": "not-merged",
    "analytic-constant": "constant-drawn",
    "both": "plain",
}
_METHODS = [("shallow", m) for m in METHODS] + [("deep", m) for m in VARIANTS]
_MEASURES = ("mean_error", "rms_error", "max_error", "correlation", "function_error")


@dataclass(frozen=True)
class Options(CircleImageOptions):
    """Options of ``randkern reproduce compositional-accuracy``."""

    images: int = option(128, "Images of the Gram matrix.", quick=30, least=3)
    n_components: Sizes = option(
        tuple(1000 * 2**i for i in range(7)),
        "Numbers of features.",
        quick=(100, 200, 400),
    )
    repeats: int = option(5, "Seeds of every number of features.", quick=2)
    gain_seeds: int = option(24, "Seeds of the gains, paired.", quick=5, least=3)


def run(options: Options) -> pd.DataFrame:
    """Measure every kernel, method, number of features and seed."""
    images = load_circle_images(
        options.data, options.data_dir, n_train=options.images, seed=options.seed
    )
    kernels = problems(images.X_train, images.shape)
    sizes = options.n_components
    for kernel, method in _METHODS:  # compiles
        kernels[kernel].features(method, 20, options.seed)

    def cases() -> Iterator[Case]:
        """Yield draws, with more for the variants that are compared for gains."""
        compared = {"skeleton", *GAINS.values()}
        for (kernel, method), size in product(_METHODS, sizes):
            n = options.repeats
            if size in _gain_sizes(sizes) and method in compared:
                n = max(n, options.gain_seeds)
            named = {"kernel": kernel, "method": method, "n_components": size}
            seeds = range(options.seed, options.seed + n)
            yield from ({**named, "seed": seed} for seed in seeds)

    def measure(case: Case) -> Case:
        """Return errors off the diagonal, and the times of drawing and evaluating."""
        problem, watch = kernels[case["kernel"]], Stopwatch()
        Z = problem.features(case["method"], case["n_components"], case["seed"])
        seconds = watch.lap().seconds
        return gram_errors(Z, problem.exact) | {"seconds": seconds}

    records = measure_all(options, cases(), measure)
    described = {**images.describe(), "n_images": len(images.X_train)}
    records.attrs["dataset"] = described
    return records


def tables(frame: pd.DataFrame) -> Iterator[Any]:
    own = medians(frame)
    title = (
        "{kernel} kernel, {dataset[n_images]} images of {dataset[name]}: mean "
        "|error| of the Gram matrix, medians"
    )
    yield from pivot(
        own, title, "n_components", "method", "{mean_error:.5f}", per="kernel"
    )
    largest = frame[frame.n_components == frame.n_components.max()]
    yield from listing(
        medians(largest),
        "at D = {n_components:,}",
        "kernel, method | mean | RMS | max | 1 - correlation | function",
        "{kernel}, {method} | {mean_error:.5f} | {rms_error:.5f} | {max_error:.5f} "
        "| {correlation:complement} | {function_error:.5f}",
    )
    yield from pivot(
        gains(frame),
        "error with over error without, paired by seed (95 % interval)",
        ("kernel", "n_components", "seeds"),
        "gain",
        "{ratio:.3f} ({low:.3f}-{high:.3f})",
    )


def figure(frame: pd.DataFrame) -> Any:
    """Return errors against D, and ratios of errors with their intervals."""
    figure, (*errors, right) = panels(3, size=(3.9, 4.6))
    images = frame.attrs["dataset"]["n_images"]
    for place, (kernel, title) in zip(errors, KERNELS.items(), strict=True):
        own = medians(frame[frame.kernel == kernel])
        curves(place, own, "n_components", "mean_error", METHODS)
        name_axes(place, title, ylabel=f"mean |error|, Gram matrix of {images} images")
    rows = gains(frame)[::-1]
    ends, places = [rows.ratio - rows.low, rows.high - rows.ratio], range(len(rows))
    right.errorbar(rows.ratio, places, xerr=ends, fmt="o", color=BLUE, capsize=3)
    right.axvline(1.0, color="0.4", lw=1, linestyle="--")
    labels = (
        rows.kernel + ", " + rows.n_components.map("{:,}".format) + ": " + rows.gain
    )
    right.set_yticks(places, labels, fontsize=7)
    right.set_xlim(left=0, right=max(1.1, 1.05 * float(rows.high.max())))
    xlabel = "error with / error without (95 %)"
    name_axes(right, "gains, paired by seed", xlabel)
    add_legend(figure)
    return figure


def medians(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the medians over the seeds."""
    seeds = frame.groupby(["kernel", "method", "n_components"], sort=False)
    result = seeds[[*_MEASURES, "seconds"]].median().assign(seeds=seeds.size())
    result.attrs = frame.attrs
    return result.reset_index()


def embed(X: NDArray[Any]) -> NDArray[Any]:
    """Return the points (cos t, sin t) of angles t, of shape (n, 2d)."""
    return np.concatenate([np.cos(X), np.sin(X)], axis=1)


def problems(X: NDArray[np.float32], shape: tuple[int, int, int]) -> dict[str, Problem]:
    """Return the shallow and deep kernels on some images."""
    n = X.shape[1]
    # Mean of cos(t − t') − 1 = −‖u − u'‖²/(2n) of the embedded points u.
    shallow = fully_connected(n, activation=Exponential(1.0)), float(np.sqrt(n))
    kinds = {"shallow": shallow, "deep": (build_skeleton("deep", shape), None)}
    return {
        name: Problem(
            skeleton,
            X,
            lengthscale,
            np.asarray(randkern.Compositional(skeleton)(X.astype(np.float64))),
        )
        for name, (skeleton, lengthscale) in kinds.items()
    }


def gram_errors(Z: NDArray[Any], exact: NDArray[np.float64]) -> dict[str, float]:
    """Compare a Gram matrix off its diagonal, where features of modulus 1 are exact.

    ``function_error`` is the root mean square over the rows of f̂ − f, where
    f = Σ a_i k(x_i, ·) has norm 1 and a is normal.
    """
    Z = Z.astype(np.float64)
    gram = Z @ Z.T
    pairs = np.triu_indices(len(Z), 1)
    estimate, truth = gram[pairs], exact[pairs]
    error = np.abs(estimate - truth)
    a = np.random.default_rng(0).standard_normal(len(Z))
    a /= np.sqrt(a @ exact @ a)
    return {
        "mean_error": float(error.mean()),
        "rms_error": float(np.sqrt(np.mean(error**2))),
        "max_error": float(error.max()),
        "correlation": float(np.corrcoef(estimate, truth)[0, 1]),
        "function_error": float(np.sqrt(np.mean(((gram - exact) @ a) ** 2))),
    }


def _gain_sizes(sizes: Iterable[int]) -> list[int]:
    """Return the first, the third and the fifth number of features."""
    return sorted(set(sizes))[:5:2]


def gains(records: pd.DataFrame) -> pd.DataFrame:
    """Return geometric mean ratios of errors with and without, paired by seed.

    Their 95 % intervals are by Student's t.
    """
    rows = []
    seeds = records.pivot(
        index=["kernel", "n_components", "seed"], columns="method", values="mean_error"
    )
    for kernel, size in product(KERNELS, _gain_sizes(records.n_components)):
        errors = seeds.loc[kernel, size]
        for gain, without in GAINS.items():
            logs = np.log(errors["skeleton"] / errors[without]).dropna()
            ends = np.exp(mean_interval(logs))
            rows.append((kernel, gain, size, *ends, len(logs)))
    names = ["kernel", "gain", "n_components", "ratio", "low", "high", "seeds"]
    return pd.DataFrame(rows, columns=names)
