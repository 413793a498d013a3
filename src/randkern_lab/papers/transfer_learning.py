"""Ridge on convolutional features: linear, Fourier, optical, device (Table 1).

Ohana et al. (2020), section 4.2, appendix D.

The original. CIFAR-10 with 50,000 training and 10,000 test images, and features of
layers of ResNet34, AlexNet and VGG16 pretrained on ImageNet. Inputs of all methods are
binarized by a threshold, chosen per data set on held-out rows (D.1). Ridge regression
is fitted to the binarized features themselves (linear), and to D = 10,000 Fourier
features and optical features of degree 2, simulated and of the device; exact kernels
are given only for VGG16 Final. Hyperparameters of each are chosen by a grid on held-out
rows. The device loses 0.4 to 2.8 points against the simulation.

Deviations.

- Features come from files (for example of SqueezeNet) or from the layers of Table 1 by
  torchvision, downloaded; published rows are the layer's own, or those of equal
  dimension.
- Columns are transformed by sign(x)·√|x| and standardised before the threshold, which
  is one number for all of them. There are three kinds of ``inputs``: binary, as in the
  paper; real, standardised columns; and thermometer, four levels of one bit each.
- Hyperparameters are chosen with 2,000 features of 16,000 rows on 5,000 others; the
  penalty is relative to the mean squared norm of the features. A warning is issued for
  a choice at an edge of its grid.
- Fits are the library's default, those of the paper exact: with 3,000 features or more
  (for ten classes) conjugate gradients stop when the loss is within 2 % of the labels'
  variance of its minimum. Linear and exact kernels are solved directly.
- Degree 4 and exact kernels (of ``--exact-rows`` rows) are added for any layer.
- The device is simulated; `device` distinguishes variants: no noise at all, fewer and
  more bits, half the exposure. They do not separate the causes of its loss: bias and
  penalty are chosen again for each, and their losses lie near the standard error of an
  error of 10,000 test rows, 0.45 points at 28 %.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import StandardScaler

import randkern
from randkern.optics import SimulatedOPU, ThermometerEncoder, ThresholdBinarizer

from ..options import DataOptions, option
from ..panels import RED, Panel, Style
from ..runner import Case, Experiment
from ..scoring import fit_and_score, held_out_error, some_rows
from ..tables import Listing, TextTable, at_edges, count, edge_notes, of, render
from .device_counts import acquired_counts, device_note
from .extraction import LabelledFeatures, load_features
from .published import published_rows

# Method: its columns in the published table, of features and of the exact kernel, and
# the style of its bar.
METHODS: Mapping[str, tuple[str | None, str | None, Style]] = {
    "linear": ("linear", "linear", Style("linear", "grey")),
    "fourier": ("rbf_fourier", "rbf_kernel_limit", Style("Fourier", "black")),
    "optical-2": (
        "simulated_optical",
        "simulated_optical_kernel_limit",
        Style("optical, m = 2", "blue"),
    ),
    "optical-4": (None, None, Style("optical, m = 4", "red")),
    "device-2": ("optical", None, Style("device, m = 2", "sky")),
}
_EXACT = ("fourier", "optical-2")
INPUTS = ("binary", "real", "thermometer")
DEVICES: Mapping[str, Mapping[str, float]] = {
    "8 bits": {},
    "8 bits, no noise": {"read_noise": 0.0, "shot_noise": 0.0},
    "4 bits": {"bits": 4},
    "12 bits": {"bits": 12},
    "half the exposure": {"level": 1 / 32},
}
_ALPHAS = tuple(10.0 ** np.arange(-6, 3.5, 0.5))
_THRESHOLDS = (-0.5, -0.25, 0.0, 0.25, 0.5, 1.0)
# Relative to the root of the summed variances, and to the rows' mean squared norm.
_LENGTHSCALES = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8)
_BIASES = (0.25, 1.0, 4.0, 16.0, 64.0)
_SEARCH_COMPONENTS, _SEARCH_ROWS, _VALIDATION_ROWS = 2000, 16_000, 5000


@dataclass(frozen=True)
class Options(DataOptions):
    """Options of ``randkern reproduce transfer-learning``."""

    layer: str = option(
        "final",
        "Prefix of the files LAYER_train.npy and LAYER_test.npy in --data-dir (or its "
        "folder cifar10-squeezenet), beside labels_train.npy and labels_test.npy. With "
        "--network, a layer of Table 1, such as L1, MP2 or Final.",
    )
    network: str | None = option(
        None,
        "ResNet34, AlexNet or VGG16: take features of CIFAR-10, which is in "
        "--data-dir, with torchvision; they stay in --scratch.",
    )
    n_components: int = option(10_000, "Number of features D.", quick=300)
    exact_rows: int = option(
        10_000, "Training rows of exact kernels; 0 leaves them out.", quick=300, least=0
    )
    memory_limit: str | None = option(None, 'What a model may use, such as "4GB".')
    scratch: Path | None = option(
        None, "Directory for extracted features; by default a temporary one."
    )


def _layer(row: Case) -> str:
    return f"{row['architecture']} {row['layer']}"


def _beside(results: Mapping[str, Any]) -> Iterator[Case]:
    """Yield the records with the published errors of their methods."""
    for record in results["records"]:
        device = record.get("device", "8 bits")
        name = record["method"] + f", {device}" * (device != "8 bits")
        D = "" if record["method"] == "linear" else count(record["n_components"])
        beside = {_layer(row): _error(row, record) for row in results["published"]}
        yield {**record, "features": name, "D": D, **beside}


def _error(row: Case, record: Case) -> float | None:
    """Return the published error of a method in a row of Table 1."""
    features, exact, _ = METHODS[record["method"]]
    column = exact if record["n_components"] is None else features
    return row[column] if column else None


def _bars(axes: Any, results: Mapping[str, Any]) -> None:
    """Draw test errors as bars, and published ones as markers."""
    records = [r for r in results["shown"] if r.get("device", "8 bits") == "8 bits"]
    styles = [METHODS[r["method"]][-1] for r in records]
    exact = [r["n_components"] is None and r["method"] != "linear" for r in records]
    places = range(len(records))
    bars = axes.bar(
        places,
        [100 * r["test_error"] for r in records],
        0.62,
        color=[style.colour for style in styles],
        zorder=2,
    )
    axes.bar_label(bars, fmt="%.1f", fontsize=9, padding=2)
    labels = (s.label + ", exact" * e for s, e in zip(styles, exact, strict=True))
    axes.set_xticks(places, list(labels), fontsize=7)
    for row, marker in zip(results["published"], "ovsDP", strict=False):
        errors = [(place, _error(row, r)) for place, r in enumerate(records)]
        axes.plot(
            *np.transpose([pair for pair in errors if pair[1]]),
            marker=marker,
            color=RED,
            markerfacecolor="white",
            linestyle="",
            label=f"{_layer(row)}, published",
            zorder=3,
        )


class TransferLearning(Experiment):
    """Each method searches its hyperparameters, then fits all rows."""

    name = "transfer-learning"
    title = "Ridge on convolutional features of CIFAR-10 (Ohana et al., Table 1)."
    Options = Options
    panels = (
        Panel(
            title="{dataset[name]}, d = {dataset[n_features]:,}, {dataset[n_train]:,} "
            "training rows, binary inputs",
            xlabel=" ",
            ylabel="test error (%)",
            extra=_bars,
            where={"inputs": "binary"},
        ),
    )
    layout: ClassVar = {"size": (7.6, 4.4)}

    def prepare(self) -> Case:
        """Load and standardise features, hold out rows, choose the threshold."""
        options = self.options
        self.data = load_features(
            options.layer,
            options.data_dir,
            network=options.network,
            scratch=options.scratch,
            quick=options.quick,
            say=self.say,
        )
        self.X, self.X_test = standardised(self.data)
        rows = np.random.default_rng(options.seed).permutation(len(self.X))
        n_held_out = min(_VALIDATION_ROWS, len(rows) // 4)
        self.held_out = rows[:n_held_out]
        self.search_rows = rows[n_held_out : n_held_out + _SEARCH_ROWS]
        thermometer = ThermometerEncoder(n_levels=4).fit(self.X)
        self.encoders: dict[str, Any] = {"thermometer": thermometer}
        self.say("choosing the threshold")
        case, errors = {"method": "optical-2", "inputs": "binary"}, {}
        for threshold in _THRESHOLDS:
            self.encoders["binary"] = ThresholdBinarizer(threshold).fit(self.X)
            errors[threshold], _ = self._score(case, self._kernels(**case)[1])
        best = min(errors, key=lambda threshold: errors[threshold])
        self.encoders["binary"] = ThresholdBinarizer(best).fit(self.X)
        tried = [list(pair) for pair in errors.items()]
        return self.data.describe() | {"threshold": best, "threshold_errors": tried}

    def cases(self) -> Iterator[Case]:
        """Return methods by inputs, exact kernels, then variants of the device."""
        size = self.options.n_components
        first, *variants = DEVICES
        for inputs in INPUTS:
            for method in METHODS:
                named = {"method": method, "inputs": inputs, "n_components": size}
                if method == "linear":
                    yield named | {"n_components": None}
                elif method != "device-2":
                    yield named
                elif inputs != "real":
                    yield named | {"device": first}
            for method in _EXACT if self.options.exact_rows else ():
                yield {"method": method, "inputs": inputs, "n_components": None}
        named = {"method": "device-2", "inputs": "binary", "n_components": size}
        yield from (named | {"device": device} for device in variants)

    def measure(self, case: Case) -> Case:
        """Choose a kernel on held-out rows, fit it on all rows, and score it."""
        named = {"method": case["method"], "inputs": case["inputs"]}
        kernels = self._kernels(**named)
        scored = [self._score(case, kernel) for kernel in kernels]
        best = int(np.argmin([error for error, _ in scored]))
        settings = [
            _hyperparameters(kernel) | {"relative_alpha": alpha}
            for kernel, (_, alpha) in zip(kernels, scored, strict=True)
        ]
        tried: dict[str, Any] = {"relative_alpha": _ALPHAS}
        for key in _hyperparameters(kernels[best]):
            tried[key] = [item[key] for item in settings]
        fitted = self._fit(case, kernels[best], settings[best]["relative_alpha"])
        chosen = _hyperparameters(kernels[best]) | {"alpha": fitted.pop("alpha")}
        return {
            "validation_error": scored[best][0],
            "at_edge": at_edges(settings[best], tried),
            "tried": [
                {**named, "hyperparameters": setting, "validation_error": error}
                for setting, (error, _) in zip(settings, scored, strict=True)
            ],
            "hyperparameters": chosen,
            **fitted,
        }

    def _rows(self, inputs: str, X: NDArray[Any]) -> NDArray[Any]:
        """Return rows in the form a method uses: real, or bits."""
        return X if inputs == "real" else self.encoders[inputs].transform(X)

    def _kernels(self, method: str, inputs: str) -> list[Any]:
        """Return the kernels to choose from, on the scale of the rows."""
        if method == "linear":
            return [randkern.Linear()]
        sample = self._rows(inputs, self.X[self.search_rows[:2000]]).astype(np.float64)
        if method == "fourier":
            root = float(np.sqrt(sample.var(axis=0).sum()))
            return [randkern.Gaussian(multiple * root) for multiple in _LENGTHSCALES]
        squared_norm = float(np.mean(np.sum(sample**2, axis=1)))
        biases = (float(round(multiple * squared_norm)) for multiple in _BIASES)
        return [randkern.Optical(int(method[-1]), bias) for bias in biases]

    def _score(self, case: Case, kernel: Any) -> tuple[float, float]:
        """Return the validation error and the penalty that gives it."""
        size = min(_SEARCH_COMPONENTS, self.options.n_components)
        rows = np.concatenate([self.search_rows, self.held_out])
        X, y = self._rows(case["inputs"], self.X[rows]), self.data.y_train[rows]
        if case["method"] == "linear":
            Z = X.astype(np.float32)
        elif case["method"] == "device-2":
            with self._counts(size, case, kernel, [(X, y)]) as stored:
                Z = np.concatenate([block.X for block in stored.blocks(0, size, 2)])
        else:
            seed = self.options.seed
            features = randkern.RandomFeatures(kernel, size, random_state=seed)
            Z = features.fit_transform(X.astype(np.float32))
        # Penalties are relative to features of mean squared norm 1.
        Z = Z / np.float32(_mean_norm(Z))
        held_out = np.arange(len(self.search_rows), len(rows))
        return held_out_error(randkern.Linear(), _ALPHAS, Z.shape[1], Z, y, held_out)

    def _counts(self, size: int, case: Case, kernel: Any, rows: Any) -> Any:
        kind: dict[str, Any] = {"bits": 8, **DEVICES[case["device"]]}
        device = SimulatedOPU(size, random_state=self.options.seed, **kind)
        return acquired_counts(device, rows, bias=int(kernel.bias))

    def _fit(self, case: Case, kernel: Any, relative: float) -> Case:
        """Fit all rows with a penalty relative to the rows' mean squared norm."""
        inputs, size, y = case["inputs"], case["n_components"], self.data.y_train
        X, X_test = self._rows(inputs, self.X), self._rows(inputs, self.X_test)
        if case["method"] == "device-2":
            parts = [(X, y), (X_test, self.data.y_test)]
            with self._counts(size, case, kernel, parts) as stored:
                train, test = (stored.blocks(part, size, 2) for part in (0, 1))
                alpha = relative * _mean_norm(next(iter(train)).X) ** 2
                tests = (block.X for block in test)
                result = self._trial(randkern.Linear(), size, alpha, train, None, tests)
            return result | {"described": stored.described}
        X, X_test = X.astype(np.float32), X_test.astype(np.float32)
        if case["method"] == "linear":
            size = X.shape[1]
        elif size is None:
            rows = some_rows(len(X), self.options.exact_rows, self.options.seed)
            X, y = X[rows], y[rows]
        alpha = relative * float(np.mean(kernel.diag(X[:_VALIDATION_ROWS])))
        return self._trial(kernel, size, alpha, X, y, X_test)

    def _trial(
        self, kernel: Any, size: Any, alpha: float, X: Any, y: Any, X_test: Any
    ) -> Case:
        model = randkern.KernelRidgeClassifier(
            kernel,
            alpha,
            size,
            fit_intercept=True,
            memory_limit=self.options.memory_limit,
            random_state=self.options.seed,
        )
        trial = fit_and_score(model, X, y, X_test, self.data.y_test)
        n = X.n_rows if y is None else len(y)
        return {"n_train": n, "alpha": alpha, **trial.record()}

    def conclude(self, results: Case) -> Case:
        records = results["records"]
        described = [r.pop("described") for r in records if "described" in r]
        computed = of(records, method="optical-2", inputs="binary")
        error = next(r["test_error"] for r in computed if r["n_components"] is not None)
        # The layer's own row of Table 1, or those of equal dimension.
        rows, data = published_rows("cifar10-transfer-learning"), self.data
        own = of(rows, architecture=data.architecture, layer=data.layer)
        return {
            "tried": [tried for r in records for tried in r.pop("tried")],
            "device": described[0],
            "device_loss": [
                {"device": r["device"], "loss": r["test_error"] - error}
                for r in of(records, method="device-2", inputs="binary")
            ],
            "published": own or of(rows, dimension=data.X_train.shape[1]),
        }

    @classmethod
    def notes(cls, results: Mapping[str, Any]) -> Iterator[str]:
        for r in results["records"]:
            named = r["hyperparameters"].items()
            text = ", ".join(f"{key} {value:.4g}" for key, value in named)
            who = f"{r['method']}, {r['inputs']}"
            yield f"{who}: {text}"
            yield from edge_notes(who, r["at_edge"])
        for loss in results["device_loss"]:
            yield (
                f"device, {loss['device']}: errs {100 * loss['loss']:+.2f} points more "
                "than the computed features on the same bits (published: 0.4 to 2.8)"
            )
        yield device_note(results["device"])

    @classmethod
    def tables(cls, results: Mapping[str, Any]) -> list[TextTable]:
        published = "".join(f" | {_layer(row)}" for row in results["published"])
        beside = "".join(f" | {{{_layer(row)}:.1f}}" for row in results["published"])
        listed = Listing(
            "{dataset[name]}, {dataset[n_features]:,} columns, {inputs} inputs: test "
            "error in %, published beside (binary inputs)",
            "features | D | rows | validation | test | fit (s)" + published,
            "{features} | {D} | {n_train:count} | {validation_error:.2p} | "
            "{test_error:.2p} | {fit_seconds:.1f}" + beside,
            records=_beside,
            per="inputs",
        )
        return render(results, [listed])


def _hyperparameters(kernel: Any) -> dict[str, float]:
    """Return the lengthscale or the bias of a kernel, none of the linear one."""
    name = {"Gaussian": "lengthscale", "Optical": "bias"}.get(type(kernel).__name__)
    return {name: getattr(kernel, name)} if name else {}


def _mean_norm(Z: NDArray[Any]) -> float:
    """Return the root of the mean squared norm of the first rows."""
    first = Z[:1000].astype(np.float64)
    return float(np.sqrt(np.mean(np.einsum("ij,ij->i", first, first))))


def standardised(data: LabelledFeatures) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return columns of mean 0 and variance 1, after taking signed roots."""
    parts = [np.asarray(X, dtype=np.float32) for X in (data.X_train, data.X_test)]
    parts = [np.sign(X) * np.sqrt(np.abs(X)) for X in parts]
    scaler = StandardScaler().fit(parts[0])
    train, test = (scaler.transform(X).astype(np.float32) for X in parts)
    return train, test
