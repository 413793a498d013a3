"""Ridge on convolutional features: linear, Fourier, optical, device (Table 1).

Ohana et al. (2020), section 4.2, appendix D.

The original. CIFAR-10 with 50,000 training and 10,000 test images, and features of
layers of ResNet34, AlexNet and VGG16 pretrained on ImageNet. Inputs of all methods are
binarized by a threshold, chosen per data set on held-out rows (D.1). Ridge regression
is fitted to the binarized features themselves (linear), and to D = 10,000 Fourier
features and optical features of degree 2, simulated and of the device; exact kernels
are given only for VGG16 Final. Hyperparameters of each are chosen by a grid on held-out
rows. The device loses 0.4 to 2.8 points against the simulation. Features err
less than the columns themselves for D ≫ d and more for D ≪ d (VGG16 Final), which their
exact kernels do not.

Deviations.

- Features come from files (for example of SqueezeNet), are the pixels themselves, come
  from the layers of Table 1 by torchvision, downloaded, or from wider layers of
  SqueezeNet 1.1 and of EfficientNet-Lite0, by packages of weights.
- Lengthscale or bias are chosen with 2,000 features of 16,000 rows on 5,000 others,
  the penalty with all D features on the same 5,000 rows, from the other training rows;
  it is relative to the mean squared norm of the features. A warning is issued for a
  choice at an edge of its grid.
- Systems of features are solved by Cholesky; those of exact kernels, of
  ``--exact-rows`` rows with the hyperparameters of the features, and of more than
  12,000 columns themselves, by conjugate gradients to a relative residual of 1e-4.
- Degree 4 and exact kernels are added for any layer.
- The device is simulated (8 bits, Poisson noise; :mod:`.optical_device` separates the
  causes of its loss).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import randkern
from randkern.data import RowBlocks, row_blocks
from randkern.optics import SimulatedOPU, ThresholdBinarizer

from ..figures import Style, add_legend, name_axes, panels
from ..options import DataOptions, Names, option
from ..process import Stopwatch
from ..runner import Case, grid, measure_all
from ..scoring import class_targets, held_out_error, iterated_ridge, random_rows
from ..tables import at_edges, count, edge_notes, listing
from .device_counts import acquired_counts, device_note
from .nested_ridge import (
    FeaturesOf,
    class_errors,
    drawn,
    normal_equations,
    shifted,
    solved,
)
from .networks import load_features
from .published import published_rows

# Method: its columns in the published table, of features and of the exact kernel, and
# the style of its markers.
METHODS: Mapping[str, tuple[str | None, str | None, Style]] = {
    "linear": ("linear", "linear", Style("linear", "grey", "v")),
    "fourier": ("rbf_fourier", "rbf_kernel_limit", Style("Fourier", "black", "o")),
    "optical-2": (
        "simulated_optical",
        "simulated_optical_kernel_limit",
        Style("optical, m = 2", "blue", "s"),
    ),
    "optical-4": (None, None, Style("optical, m = 4", "red", "^")),
    "device-2": ("optical", None, Style("device, m = 2", "sky", "X")),
}
_EXACT = ("fourier", "optical-2")
_ALPHAS = tuple(10.0 ** np.arange(-6, 3.5, 0.5))
# Relative to the penalty chosen with fewer features.
_AROUND = (1e-2, 1e-1, 1.0, 10.0)
_WIDE_ALPHAS = tuple((10.0 ** np.arange(-1, 2.5, 0.5)).tolist())
# Shares of a column's values below the threshold.
_SHARES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
# Relative to the root of the summed variances, and to the rows' mean squared norm.
_LENGTHSCALES = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8)
_BIASES = (0.25, 1.0, 4.0, 16.0, 64.0)
_SEARCH_COMPONENTS, _SEARCH_ROWS, _VALIDATION_ROWS = 2000, 16_000, 5000
_MOST_CHOLESKY, _BLOCK_ROWS = 12_000, 500  # columns, rows


@dataclass(frozen=True)
class Options(DataOptions):
    """Options of ``randkern reproduce transfer-learning``."""

    layer: str = option(
        "final",
        "Prefix of the files LAYER_train.npy and LAYER_test.npy in --data-dir (or its "
        "folder cifar10-squeezenet), beside labels_train.npy and labels_test.npy; or "
        "pixels, of CIFAR-10. With --network, a layer of it, such as L1, MP2 or Final.",
    )
    network: str | None = option(
        None,
        "ResNet34, AlexNet, VGG16, SqueezeNet or EfficientNet-Lite0: take features of "
        "CIFAR-10, which is in --data-dir; they stay in --scratch.",
    )
    methods: Names = option(tuple(METHODS), "", among=METHODS)
    n_components: int = option(10_000, "Number of features D.", quick=300)
    seeds: int = option(1, "Draws of the features; the first one is tuned.")
    exact_rows: int = option(
        10_000, "Training rows of exact kernels; 0 leaves them out.", quick=300, least=0
    )
    memory_limit: str | None = option(None, 'What a model may use, such as "10GB".')
    scratch: Path | None = option(
        None, "Directory for extracted features; by default a temporary one."
    )


@dataclass(frozen=True)
class Work:
    """Labelled rows of bits in a random order, the first of which are held out."""

    options: Options
    data: Any
    order: NDArray[np.intp]
    y: NDArray[Any]
    n_held_out: int
    train: Any
    test: Any
    described: dict[str, Any]  # the device, when it was used

    @classmethod
    def loaded(cls, options: Options) -> "Work":
        """Load and shuffle rows, whose numbers are no bits yet."""
        data: Any = load_features(options)
        order = np.random.default_rng(options.seed).permutation(len(data.X_train))
        held_out = min(_VALIDATION_ROWS, len(order) // 4)
        return cls(options, data, order, data.y_train[order], held_out, None, None, {})

    def above(self, threshold: float, rows: int | None = None) -> "Work":
        """Return the work with bits: which numbers are above a threshold.

        If `rows` are given, it has as many training rows.
        """
        train = _bits(self.data.X_train, self.order[:rows], threshold)
        test = _bits(self.data.X_test, np.arange(len(self.data.X_test)), threshold)
        return replace(self, train=train, test=test)

    def threshold_errors(self) -> dict[float, float]:
        """Return the errors of thresholds on the held-out rows, by optical features."""
        errors, first = {}, np.sort(self.order[:2000])
        shares = np.quantile(self.data.X_train[first].astype(np.float32), _SHARES)
        for value in np.unique(shares).tolist():
            bits = self.above(value, self.n_held_out + _SEARCH_ROWS)
            errors[value], _ = bits.searched("optical-2", bits.kernels("optical-2")[1])
        return errors

    def measure(self, case: Case) -> Iterator[Case]:
        """Choose a kernel and a penalty on held-out rows, and fit all rows."""
        options, method, first = self.options, case["method"], self.options.seed
        kernels, size = self.kernels(method), self.size(method)
        exact = {"n_components": None, "seed": first}
        if method == "linear" and size > _MOST_CHOLESKY:
            yield exact | self.wide(kernels[0])
            return
        scored = [self.searched(method, kernel) for kernel in kernels]
        best = int(np.argmin([error for error, _ in scored]))
        kernel, (error, relative) = kernels[best], scored[best]
        settings = pd.DataFrame(map(_hyperparameters, kernels))
        edges = at_edges(settings.iloc[best], settings)
        draws = 1 if method == "linear" else options.seeds
        for seed in range(first, first + draws):
            alphas = [relative * s for s in (_AROUND if seed == first else (1.0,))]
            with ExitStack() as stack:
                parts = self.features(method, kernel, size, seed, stack)
                record = self.fitted(parts, size, alphas)
            chosen = _hyperparameters(kernel) | {"alpha": record["alpha"]}
            if seed == first:
                relative, error = record["relative_alpha"], record["validation_error"]
                edges += at_edges({"alpha": relative}, {"alpha": alphas})
            named = {"at_edge": edges, "hyperparameters": chosen}
            record |= {"validation_error": error, **named}
            shown = None if method == "linear" else size
            yield {"n_components": shown, "seed": seed, **record}
        if method in _EXACT and options.exact_rows:
            fitted = self.exact(kernel, record["alpha"])
            yield exact | {"validation_error": None, **named, **fitted}

    def size(self, method: str) -> int:
        """Return the number of features: for the linear kernel columns and a bias."""
        if method == "linear":
            return int(self.train.shape[1]) + 1
        return int(self.options.n_components)

    def kernels(self, method: str) -> list[Any]:
        """Return the kernels to choose from, on the scale of the rows."""
        if method == "linear":
            return [randkern.Linear(1.0)]
        sample = self.train[self.n_held_out :][:2000].astype(np.float64)
        if method == "fourier":
            root = float(np.sqrt(sample.var(axis=0).sum()))
            return [randkern.Gaussian(multiple * root) for multiple in _LENGTHSCALES]
        squared_norm = float(np.mean(np.sum(sample**2, axis=1)))
        biases = (float(round(multiple * squared_norm)) for multiple in _BIASES)
        return [randkern.Optical(int(method[-1]), bias) for bias in biases]

    def searched(self, method: str, kernel: Any) -> tuple[float, float]:
        """Return the validation error and the relative penalty of few features."""
        size = self.size(method)
        if method != "linear":
            size = min(_SEARCH_COMPONENTS, size)
        n = self.n_held_out + _SEARCH_ROWS
        with ExitStack() as stack:
            parts = self.features(method, kernel, size, self.options.seed, stack)
            Z = parts[0](slice(0, n))
        # Penalties are relative to features of mean squared norm 1.
        Z = Z / np.float32(_mean_square(Z) ** 0.5)
        y, held_out = self.y[: len(Z)], self.n_held_out
        return held_out_error(randkern.Linear(), _ALPHAS, Z.shape[1], Z, y, held_out)

    def features(
        self, method: str, kernel: Any, size: int, seed: int, stack: ExitStack
    ) -> list[FeaturesOf]:
        """Return functions of slices: the features of training and of test rows.

        Those of a device last as long as the context.
        """
        if method == "device-2":
            device = SimulatedOPU(size, random_state=seed)
            labelled = [(self.train, self.y), (self.test, self.data.y_test)]
            acquired = acquired_counts(device, labelled, bias=int(kernel.bias))
            counts = stack.enter_context(acquired)
            self.described.update(counts.described)
            return [counts.features_of(part, slice(size), 2) for part in (0, 1)]
        features = randkern.RandomFeatures(kernel, size, random_state=seed)
        return drawn(features, self.train, self.test)

    def fitted(
        self, parts: Sequence[FeaturesOf], size: int, alphas: Sequence[float]
    ) -> Case:
        """Choose the relative penalty on the held-out rows, then fit all rows."""
        (train, test), n, classes = parts, self.n_held_out, np.unique(self.y)
        unit = _mean_square(train(slice(0, 1000)))
        Y, watch = class_targets(self.y, classes), Stopwatch()
        equations = normal_equations(shifted(train, n), Y[n:])
        seconds = watch.lap().seconds
        errors = [0.0]
        if len(alphas) > 1:
            fits = list(solved(equations, [size], [unit * alpha for alpha in alphas]))
            errors = class_errors(fits, train, self.y[:n], classes)
        relative = alphas[int(np.argmin(errors))]
        watch = Stopwatch()
        equations = normal_equations(train, Y[:n], equations)
        (fit,) = solved(equations, [size], [unit * relative])
        seconds += watch.lap().seconds
        (error,) = class_errors([fit], test, self.data.y_test, classes)
        return {
            "n_train": len(Y),
            "alpha": fit.alpha,
            "relative_alpha": relative,
            "validation_error": min(errors),
            "test_error": error,
            "fit_seconds": seconds,
            "predict_seconds": watch.lap().seconds,
            **fit.ended,
        }

    def exact(self, kernel: Any, alpha: float) -> Case:
        """Fit the exact kernel with the hyperparameters of the features."""
        rows = random_rows(len(self.train), self.options.exact_rows, self.options.seed)
        X, X_test = (X.astype(np.float32) for X in (self.train[rows], self.test))
        return self.iterated(kernel, alpha, X, self.y[rows], X_test, self.data.y_test)

    def wide(self, kernel: Any) -> Case:
        """Choose the penalty of many columns on held-out rows, and fit all rows."""
        n, unit = self.n_held_out, _mean_square(self.train) + 1

        def trial(relative: float, rows: slice, X_test: Any, y_test: Any) -> Case:
            X = RowBlocks(partial(_blocks, self.train[rows], self.y[rows]))
            tested = (block for block, _ in _blocks(X_test, y_test))
            return self.iterated(kernel, unit * relative, X, None, tested, y_test)

        held_out = self.train[:n], self.y[:n]
        errors = {
            relative: trial(relative, slice(n, None), *held_out)["test_error"]
            for relative in _WIDE_ALPHAS
        }
        best = min(errors, key=lambda relative: errors[relative])
        record = trial(best, slice(None), self.test, self.data.y_test)
        return {
            **record,
            "relative_alpha": best,
            "validation_error": errors[best],
            "at_edge": at_edges({"alpha": best}, {"alpha": list(errors)}),
            "hyperparameters": {"alpha": record["alpha"]},
        }

    def iterated(self, kernel: Any, alpha: float, *data: Any) -> Case:
        """Fit and score a kernel by conjugate gradients; the linear one by columns."""
        size = self.size("linear") if isinstance(kernel, randkern.Linear) else None
        limit, seed = self.options.memory_limit, self.options.seed
        record = iterated_ridge(kernel, alpha, size, *data, limit=limit, seed=seed)
        return {"alpha": alpha, **record}


def run(options: Options) -> pd.DataFrame:
    """Search hyperparameters of each method; fit all rows."""
    numbers = Work.loaded(options)
    errors = numbers.threshold_errors()
    best = min(errors, key=lambda value: errors[value])
    work = numbers.above(best)
    records = measure_all(options, grid(method=options.methods), work.measure)
    records.attrs["dataset"] = {
        "name": work.data.name,
        "n_train": len(work.train),
        "n_test": len(work.test),
        "n_features": work.train.shape[1],
        "metric": "misclassified share",
        "threshold": {"chosen": best, "errors": list(map(list, errors.items()))},
    }
    records.attrs["device"] = work.described or None
    return records


def tables(frame: pd.DataFrame) -> Iterator[Any]:
    yield from listing(
        pd.DataFrame(table_1(frame)),
        "Table 1: test error in %, published with D = 10,000, then ours",
        "features | d | linear | Fourier | optical, m = 2 | m = 4 | device, m = 2 "
        "| Fourier, exact | m = 2, exact",
        "{features} | {d:,} | {linear:.1f} | {fourier:.1f} | {optical-2:.1f} | "
        "{optical-4:.1f} | {device-2:.1f} | {fourier-exact:.1f} | "
        "{optical-2-exact:.1f}",
    )
    yield from listing(
        frame,
        "{dataset[name]}, {dataset[n_features]:,} columns: errors in %",
        "method | D | rows | validation | test | fit (s)",
        "{method} | {n_components:count} | {n_train:count} | {validation_error:.2p} | "
        "{test_error:.2p} | {fit_seconds:.1f}",
    )


def figure(frame: pd.DataFrame) -> Any:
    """Return a row of markers per layer; ours are filled, with their range."""
    rows = pd.DataFrame(table_1(frame))
    figure, (axes,) = panels(1, size=(8.0, 1.2 + 0.42 * len(rows)))
    for i, (method, (*_, style)) in enumerate(METHODS.items()):
        for ours, source in ((False, "published"), (True, "ours")):
            own = rows[rows.ours == ours].dropna(subset=[method])
            if own.empty:
                continue
            ends = None
            if ours:
                ((low, high),) = own[f"{method}-range"]
                ends = [own[method] - low, high - own[method]]
            axes.errorbar(
                own[method],
                own.index + 0.14 * (i - (len(METHODS) - 1) / 2),
                xerr=ends,
                marker=style.marker,
                color=style.colour,
                markerfacecolor=style.colour if ours else "white",
                markersize=6,
                linestyle="",
                label=f"{style.label}, {source}",
            )
    for place in np.arange(0.5, len(rows) - 1):
        axes.axhline(place, color="0.85", lw=0.7)
    axes.grid(axis="y", visible=False)
    names = [f"{row.features} (d = {row.d:,})" for row in rows.itertuples()]
    axes.set_yticks(range(len(rows)), names)
    axes.invert_yaxis()
    title = f"{frame.attrs['dataset']['name']} in Table 1"
    name_axes(axes, title, "test error (%); bars: least to greatest of the draws")
    add_legend(figure, "right")
    return figure


def notes(frame: pd.DataFrame) -> Iterator[str]:
    for r in frame.to_dict("records"):
        named = r["hyperparameters"].items()
        text = ", ".join(f"{key} {value:.4g}" for key, value in named)
        yield f"{r['method']}, D = {count(r['n_components'])}: {text}"
        yield from edge_notes(r["method"], r["at_edge"])
    errors = frame.query("n_components.notna()").groupby("method").test_error.mean()
    if {"device-2", "optical-2"} <= set(errors.index):
        loss = 100 * (errors["device-2"] - errors["optical-2"])
        yield (
            f"error of the device minus that of the computed features: {loss:+.2f} "
            "points (published: 0.4 to 2.8)"
        )
    if frame.attrs["device"]:
        yield device_note(frame.attrs["device"])


def published(frame: pd.DataFrame) -> pd.DataFrame:
    """Return Table 1 as published."""
    return published_rows("cifar10-transfer-learning")


def table_1(frame: pd.DataFrame) -> Iterator[Case]:
    """Yield the rows of Table 1 as published, then ours.

    Keys are methods, and ``-exact`` their kernels; errors are in %.
    """
    for row in published(frame).to_dict("records"):
        named = {"features": f"{row['architecture']} {row['layer']}", "ours": False}
        for method, (features, exact, _) in METHODS.items():
            named[method] = features and row[features]
            named[f"{method}-exact"] = exact and row[exact]
        yield named | {"d": row["dimension"]}
    data = frame.attrs["dataset"]
    exact = frame.n_components.isna() & (frame.method != "linear")
    names = frame.method + np.where(exact, "-exact", "")
    named = {"features": data["name"], "d": data["n_features"], "ours": True}
    for name, own in (100 * frame.test_error).groupby(names):
        named |= {name: own.mean(), f"{name}-range": (own.min(), own.max())}
    yield named


def _hyperparameters(kernel: Any) -> dict[str, float]:
    """Return the lengthscale or the bias of a kernel, none of the linear one."""
    name = {"Gaussian": "lengthscale", "Optical": "bias"}.get(type(kernel).__name__)
    return {name: getattr(kernel, name)} if name else {}


def _mean_square(Z: NDArray[Any]) -> float:
    """Return the mean squared norm of the first rows."""
    first = Z[:1000].astype(np.float64)
    return float(np.mean(np.einsum("ij,ij->i", first, first)))


def _bits(X: Any, order: NDArray[np.intp], threshold: float) -> NDArray[np.uint8]:
    """Return which numbers of rows of an array, or of a memory map, are above it."""
    encoder, blocks = ThresholdBinarizer(threshold), row_blocks(len(order), _BLOCK_ROWS)
    numbers = (np.asarray(X[order[rows]], dtype=np.float32) for rows in blocks)
    return np.concatenate([encoder.fit_transform(block) for block in numbers])


def _blocks(X: NDArray[Any], y: NDArray[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield blocks of rows of bits in float32, and their labels."""
    for rows in row_blocks(len(X), _BLOCK_ROWS):
        yield X[rows].astype(np.float32), y[rows]
