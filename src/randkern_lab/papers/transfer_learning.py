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

- Features come from files (for example of SqueezeNet), are the pixels themselves, or
  come from the layers of Table 1 by torchvision, downloaded.
- There are three kinds of ``inputs``. The columns are ``bits``, as published, above
  one threshold for all; ``binary`` above one threshold after sign(x)·√|x| and
  standardising; or ``real``, these standardised columns.
- Lengthscale or bias are chosen with 2,000 features of 16,000 rows on 5,000 others,
  the penalty with all D features on the same 5,000 rows, from the other training rows;
  it is relative to the mean squared norm of the features. A warning is issued for a
  choice at an edge of its grid.
- Systems of features are solved by Cholesky, those of exact kernels, of
  ``--exact-rows`` rows, by conjugate gradients to a relative residual of 1e-4, with
  the hyperparameters of the features.
- Degree 4 and exact kernels are added for any layer.
- The device is simulated (8 bits, Poisson noise; :mod:`.optical_device` separates the
  causes of its loss).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler

import randkern
from randkern._validation import check_choice
from randkern.optics import SimulatedOPU, ThresholdBinarizer
from randkern.solvers import PCG

from ..figures import Style, add_legend, name_axes, panels
from ..options import DataOptions, option
from ..process import Stopwatch
from ..runner import Case, Recorder
from ..scoring import ended, fit_and_score, held_out_error, random_rows
from ..tables import at_edges, count, edge_notes, listing, mean_of, of
from .device_counts import acquired_counts, device_note
from .extraction import LabelledFeatures, load_features
from .nested_ridge import (
    FeaturesOf,
    class_errors,
    class_targets,
    computed,
    normal_equations,
    shifted,
    solved,
)
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
INPUTS = ("bits", "binary", "real")
_ALPHAS = tuple(10.0 ** np.arange(-6, 3.5, 0.5))
# Relative to the penalty chosen with fewer features.
_AROUND = (1e-2, 1e-1, 1.0, 10.0)
# Shares of a column's values below the threshold.
_SHARES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
# Relative to the root of the summed variances, and to the rows' mean squared norm.
_LENGTHSCALES = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8)
_BIASES = (0.25, 1.0, 4.0, 16.0, 64.0)
_SEARCH_COMPONENTS, _SEARCH_ROWS, _VALIDATION_ROWS = 2000, 16_000, 5000
_TOL = 1e-4


@dataclass(frozen=True)
class Options(DataOptions):
    """Options of ``randkern reproduce transfer-learning``."""

    layer: str = option(
        "final",
        "Prefix of the files LAYER_train.npy and LAYER_test.npy in --data-dir (or its "
        "folder cifar10-squeezenet), beside labels_train.npy and labels_test.npy; or "
        "pixels, of CIFAR-10. With --network, a layer of Table 1, such as L1, MP2 or "
        "Final.",
    )
    network: str | None = option(
        None,
        "ResNet34, AlexNet or VGG16: take features of CIFAR-10, which is in "
        "--data-dir, with torchvision; they stay in --scratch.",
    )
    inputs: tuple[str, ...] = option(INPUTS, "Of bits, binary, real.")
    methods: tuple[str, ...] = option(
        tuple(METHODS), "Of linear, fourier, optical-2, optical-4, device-2."
    )
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
    """Labelled rows in a random order, the first of which are held out."""

    options: Options
    data: LabelledFeatures
    y: NDArray[Any]
    n_held_out: int
    rows: dict[str, tuple[Any, Any]]  # training and test rows of each kind of inputs
    described: dict[str, Any]  # the device, when it was used

    @classmethod
    def loaded(cls, options: Options, say: Callable[[str], None]) -> "Work":
        """Load and shuffle rows."""
        data = load_features(
            options.layer,
            options.data_dir,
            network=options.network,
            scratch=options.scratch,
            quick=options.quick,
            say=say,
        )
        order = np.random.default_rng(options.seed).permutation(len(data.X_train))
        real, real_test = standardised(data)
        rows = {"real": (real[order], real_test)}
        rows["binary"] = rows["real"]
        if "bits" in options.inputs:
            columns = np.asarray(data.X_train, dtype=np.float32)[order]
            rows["bits"] = columns, np.asarray(data.X_test, dtype=np.float32)
        held_out = min(_VALIDATION_ROWS, len(order) // 4)
        return cls(options, data, data.y_train[order], held_out, rows, {})

    def binarize(self, inputs: str) -> Case:
        """Replace inputs by those above the best threshold, which is returned."""
        columns, test = self.rows[inputs]
        tried = {}

        def encode(value: float) -> None:
            encoder = ThresholdBinarizer(value).fit(columns)
            self.rows[inputs] = encoder.transform(columns), encoder.transform(test)

        for value in np.unique(np.quantile(columns[:2000], _SHARES)).tolist():
            encode(value)
            kernel = self.kernels("optical-2", inputs)[1]
            tried[value] = self.searched("optical-2", inputs, kernel)[0]
        best = min(tried, key=lambda value: tried[value])
        encode(best)
        return {"chosen": best, "errors": list(map(list, tried.items()))}

    def measure(self, case: Case) -> Iterator[Case]:
        """Choose a kernel and a penalty on held-out rows, and fit all rows."""
        options, method, inputs = self.options, case["method"], case["inputs"]
        kernels = self.kernels(method, inputs)
        scored = [self.searched(method, inputs, kernel) for kernel in kernels]
        best = int(np.argmin([error for error, _ in scored]))
        kernel, (error, relative) = kernels[best], scored[best]
        settings = [_hyperparameters(kernel) for kernel in kernels]
        tried = {key: [s[key] for s in settings] for key in settings[best]}
        edges = at_edges(settings[best], tried)
        size = self.size(method, inputs)
        for seed in range(options.seed, options.seed + options.seeds):
            with ExitStack() as stack:
                parts = self.features(method, inputs, kernel, size, seed, stack)
                first = seed == options.seed
                shares = _AROUND if first else (1.0,)
                alphas = [relative * share for share in shares]
                record = self.fitted(parts, size, alphas)
            chosen = _hyperparameters(kernel) | {"alpha": record["alpha"]}
            if first:
                relative, error = record["relative_alpha"], record["validation_error"]
                edges += at_edges({"alpha": relative}, {"alpha": alphas})
            yield {
                "n_components": None if method == "linear" else size,
                "seed": seed,
                **record,
                "validation_error": error,
                "at_edge": edges,
                "hyperparameters": chosen,
            }
            if method == "linear":
                return
        if method in _EXACT and options.exact_rows:
            yield {
                "n_components": None,
                "seed": options.seed,
                "validation_error": None,
                "at_edge": edges,
                "hyperparameters": chosen,
                **self.exact(kernel, record["alpha"], inputs),
            }

    def size(self, method: str, inputs: str) -> int:
        """Return the number of features: for the linear kernel columns and a bias."""
        if method == "linear":
            return int(self.rows[inputs][0].shape[1]) + 1
        return int(self.options.n_components)

    def kernels(self, method: str, inputs: str) -> list[Any]:
        """Return the kernels to choose from, on the scale of the rows."""
        if method == "linear":
            return [randkern.Linear(1.0)]
        sample = self.rows[inputs][0][self.n_held_out :][:2000].astype(np.float64)
        if method == "fourier":
            root = float(np.sqrt(sample.var(axis=0).sum()))
            return [randkern.Gaussian(multiple * root) for multiple in _LENGTHSCALES]
        squared_norm = float(np.mean(np.sum(sample**2, axis=1)))
        biases = (float(round(multiple * squared_norm)) for multiple in _BIASES)
        return [randkern.Optical(int(method[-1]), bias) for bias in biases]

    def searched(self, method: str, inputs: str, kernel: Any) -> tuple[float, float]:
        """Return the validation error and the relative penalty of few features."""
        size = self.size(method, inputs)
        if method != "linear":
            size = min(_SEARCH_COMPONENTS, size)
        n = self.n_held_out + _SEARCH_ROWS
        with ExitStack() as stack:
            seed = self.options.seed
            parts = self.features(method, inputs, kernel, size, seed, stack)
            Z = parts[0](slice(0, n))
        # Penalties are relative to features of mean squared norm 1.
        Z = Z / np.float32(_mean_square(Z) ** 0.5)
        held_out = np.arange(self.n_held_out)
        y = self.y[: len(Z)]
        return held_out_error(randkern.Linear(), _ALPHAS, Z.shape[1], Z, y, held_out)

    def features(
        self,
        method: str,
        inputs: str,
        kernel: Any,
        size: int,
        seed: int,
        stack: ExitStack,
    ) -> tuple[FeaturesOf, FeaturesOf]:
        """Return functions of slices: the features of training and of test rows.

        Those of a device last as long as the context.
        """
        train, test = self.rows[inputs]
        if method == "device-2":
            device = SimulatedOPU(size, random_state=seed)
            labelled = [(train, self.y), (test, self.data.y_test)]
            acquired = acquired_counts(device, labelled, bias=int(kernel.bias))
            counts = stack.enter_context(acquired)
            self.described.update(counts.described)
            return counts.features_of(0, size, 2), counts.features_of(1, size, 2)
        features = randkern.RandomFeatures(kernel, size, random_state=seed)
        features.fit(train[:1].astype(np.float32))
        return computed(features, train), computed(features, test)

    def fitted(
        self, parts: tuple[FeaturesOf, FeaturesOf], size: int, alphas: Sequence[float]
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

    def exact(self, kernel: Any, alpha: float, inputs: str) -> Case:
        """Fit the exact kernel with the hyperparameters of the features."""
        train, test = (X.astype(np.float32) for X in self.rows[inputs])
        rows = random_rows(len(train), self.options.exact_rows, self.options.seed)
        model = randkern.KernelRidgeClassifier(
            kernel,
            alpha,
            n_components=None,
            solver=PCG(tol=_TOL, max_iter=2000),
            memory_limit=self.options.memory_limit,
            random_state=self.options.seed,
        )
        trial = fit_and_score(model, train[rows], self.y[rows], test, self.data.y_test)
        return {
            "n_train": len(rows),
            "alpha": alpha,
            **trial.record(),
            **ended(model.solution_),
        }


def run(options: Options, recorder: Recorder) -> Case:
    """Search hyperparameters of each method on each kind of inputs; fit all rows."""
    for name in options.inputs:
        check_choice("inputs", name, INPUTS)
    for name in options.methods:
        check_choice("methods", name, tuple(METHODS))
    work, thresholds = Work.loaded(options, recorder.say), {}
    for inputs in ("bits", "binary"):
        if inputs in options.inputs:
            recorder.say(f"choosing the threshold, {inputs}")
            thresholds[inputs] = work.binarize(inputs)
    records = recorder.measure(
        (
            {"method": method, "inputs": inputs}
            for inputs, method in product(options.inputs, options.methods)
            if method != "device-2" or inputs != "real"
        ),
        work.measure,
    )
    losses = []
    for inputs in options.inputs:
        named = {"inputs": inputs, "n_components": options.n_components}
        own = [of(records, **named, method=m) for m in ("device-2", "optical-2")]
        if all(own):
            measured, simulated = (mean_of(item, "test_error") for item in own)
            losses.append({"inputs": inputs, "loss": measured - simulated})
    return {
        "dataset": work.data.describe() | {"thresholds": thresholds},
        "device": work.described or None,
        "device_loss": losses,
        "published": published_rows("cifar10-transfer-learning"),
    }


def tables(results: Mapping[str, Any]) -> Iterator[Any]:
    yield from listing(
        results,
        table_1(results),
        "Table 1: test error in %, published with D = 10,000, then ours",
        "features | d | linear | Fourier | optical, m = 2 | m = 4 | device, m = 2 "
        "| Fourier, exact | m = 2, exact",
        "{features} | {d:,} | {linear:.1f} | {fourier:.1f} | {optical-2:.1f} | "
        "{optical-4:.1f} | {device-2:.1f} | {fourier-exact:.1f} | "
        "{optical-2-exact:.1f}",
    )
    yield from listing(
        results,
        results["records"],
        "{dataset[name]}, {dataset[n_features]:,} columns: errors in %",
        "inputs | method | D | rows | validation | test | fit (s)",
        "{inputs} | {method} | {n_components:count} | {n_train:count} | "
        "{validation_error:.2p} | {test_error:.2p} | {fit_seconds:.1f}",
    )


def figure(results: Mapping[str, Any]) -> Any:
    """Return a row of markers per layer; ours are filled, with their range."""
    rows = list(table_1(results))
    figure, (axes,) = panels(1, size=(8.0, 1.2 + 0.42 * len(rows)))
    for i, (method, (*_, style)) in enumerate(METHODS.items()):
        for ours in (False, True):
            own = [
                (row[method], place, row.get(f"{method}-range", (row[method],) * 2))
                for place, row in enumerate(rows)
                if row["ours"] == ours and row.get(method) is not None
            ]
            if not own:
                continue
            x, y, ends = map(np.array, zip(*own, strict=True))
            axes.errorbar(
                x,
                y + 0.14 * (i - (len(METHODS) - 1) / 2),
                xerr=[x - ends[:, 0], ends[:, 1] - x] if ours else None,
                marker=style.marker,
                color=style.colour,
                markerfacecolor=style.colour if ours else "white",
                markersize=6,
                linestyle="",
                label=f"{style.label}, {'ours' if ours else 'published'}",
            )
    for place in np.arange(0.5, len(rows) - 1):
        axes.axhline(place, color="0.85", lw=0.7)
    axes.grid(axis="y", visible=False)
    names = [f"{row['features']} (d = {row['d']:,})" for row in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.invert_yaxis()
    title = f"{results['dataset']['name']} in Table 1"
    name_axes(axes, title, "test error (%); bars: least to greatest of the draws")
    add_legend(figure, "right")
    return figure


def notes(results: Mapping[str, Any]) -> Iterator[str]:
    for r in results["records"]:
        named = r["hyperparameters"].items()
        text = ", ".join(f"{key} {value:.4g}" for key, value in named)
        who = f"{r['method']}, {r['inputs']}"
        yield f"{who}, D = {count(r['n_components'])}: {text}"
        yield from edge_notes(who, r["at_edge"])
    for loss in results["device_loss"]:
        yield (
            "error of the device minus that of the computed features, "
            f"{loss['inputs']}: {100 * loss['loss']:+.2f} points "
            "(published: 0.4 to 2.8)"
        )
    if results["device"]:
        yield device_note(results["device"])


def _named(row: Case) -> str:
    return f"{row['architecture']} {row['layer']}"


def table_1(results: Mapping[str, Any]) -> Iterator[Case]:
    """Yield the rows of Table 1 as published, then ours of each kind of bits.

    Keys are methods, and ``-exact`` their kernels; errors are in %.
    """
    for row in published_rows("cifar10-transfer-learning"):
        errors: Case = {}
        for method, (features, exact, _) in METHODS.items():
            errors[method] = features and row[features]
            errors[f"{method}-exact"] = exact and row[exact]
        yield {"features": _named(row), "d": row["dimension"], "ours": False} | errors
    for inputs in ("bits", "binary"):
        own = of(results["records"], inputs=inputs)
        own = [r for r in own if r.get("device", "8 bits") == "8 bits"]
        errors = {}
        for method, r in product(METHODS, own):
            if r["method"] == method:
                is_exact = r["n_components"] is None and method != "linear"
                key = f"{method}-exact" if is_exact else method
                errors.setdefault(key, []).append(100 * r["test_error"])
        if own:
            data = results["dataset"]
            named = {"features": f"{data['name']}, {inputs}", "d": data["n_features"]}
            means = {key: float(np.mean(values)) for key, values in errors.items()}
            ends = {f"{k}-range": (min(v), max(v)) for k, v in errors.items()}
            yield {**named, "ours": True, **means, **ends}


def _hyperparameters(kernel: Any) -> dict[str, float]:
    """Return the lengthscale or the bias of a kernel, none of the linear one."""
    name = {"Gaussian": "lengthscale", "Optical": "bias"}.get(type(kernel).__name__)
    return {name: getattr(kernel, name)} if name else {}


def _mean_square(Z: NDArray[Any]) -> float:
    """Return the mean squared norm of the first rows."""
    first = Z[:1000].astype(np.float64)
    return float(np.mean(np.einsum("ij,ij->i", first, first)))


def standardised(data: LabelledFeatures) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return columns of mean 0 and variance 1, after taking signed roots."""
    parts = [np.asarray(X, dtype=np.float32) for X in (data.X_train, data.X_test)]
    parts = [np.sign(X) * np.sqrt(np.abs(X)) for X in parts]
    scaler = StandardScaler().fit(parts[0])
    train, test = (scaler.transform(X).astype(np.float32) for X in parts)
    return train, test
