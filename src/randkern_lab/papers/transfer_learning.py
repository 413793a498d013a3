"""Ridge on convolutional features: linear, Fourier, optical, device (Table 1).

Ohana et al. (2020), section 4.2. Features come from files, or from a layer of a
network of torchvision (:mod:`.extraction`).
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import accuracy_score
from sklearn.preprocessing import StandardScaler

import randkern
from randkern._validation import check_choice, check_count
from randkern.optics import ThermometerEncoder, ThresholdBinarizer

from .convolutional_features import LabelledFeatures, load_features
from .device_counts import acquired_counts
from .published import published_rows
from .reproductions import CommonOptions, Progress, TextTable, begin_results

__all__ = ["METHODS", "Options", "figure", "run", "tables"]

# Method: its column in the published table.
METHODS = {
    "linear": "linear",
    "fourier": "rbf_fourier",
    "optical-2": "simulated_optical",
    "optical-4": None,
    "device-2": "optical",
}
_ALPHAS = tuple(10.0 ** np.arange(-4, 2.5, 0.5))
# Of the root of the mean squared norm of the rows, and of the mean squared norm.
_LENGTHSCALES = (1.0, 1.4, 2.0)
_BIASES = (1.0, 4.0, 16.0)
_ENCODERS = ("threshold", "thermometer:2", "thermometer:4")
_SEARCH_COMPONENTS, _SEARCH_ROWS, _VALIDATION_ROWS = 2000, 16_000, 5000


@dataclass(frozen=True)
class Options(CommonOptions):
    """What ``randkern reproduce transfer-learning`` takes."""

    layer: Annotated[
        str,
        "Prefix of the files LAYER_train.npy and LAYER_test.npy in --data-dir (or its "
        "folder cifar10-squeezenet), beside labels_train.npy and labels_test.npy. With "
        "--network, a layer of Table 1, such as L1, MP2 or Final.",
    ] = "final"
    network: Annotated[
        str | None,
        "ResNet34, AlexNet or VGG16: take features of CIFAR-10, which is in "
        "--data-dir, with torchvision; they stay in --scratch.",
    ] = None
    n_components: Annotated[int, "Number of features D."] = 10_000
    transform: Annotated[str, "Before standardising: root (sign(x)·√|x|) or none."] = (
        "root"
    )
    memory_limit: Annotated[str | None, 'What a model may use, such as "4GB".'] = None
    scratch: Annotated[
        Path | None, "Directory for features and counts; by default a temporary one."
    ] = None


def run(options: Options, progress: Progress | None = None) -> dict[str, Any]:
    """Choose each method's hyperparameters, fit it on all rows, and score it.

    Parameters
    ----------
    options : Options
    progress : callable, optional

    Returns
    -------
    results : dict
        As :func:`.reproductions.begin_results`. A record has ``method``,
        ``n_components`` (None: the columns themselves), ``hyperparameters``,
        ``validation_error``, ``test_error``, ``fit_seconds`` and
        ``predict_seconds``. ``tried`` has ``method``, ``hyperparameters`` and
        ``validation_error`` of every setting of the search; ``device`` is described
        by :class:`.device_counts.DeviceCounts`. ``published`` has rows of Table 1,
        errors in percent: the layer's own, or else those of equal dimension.

    Examples
    --------
    >>> from randkern_lab.papers.transfer_learning import Options, run
    >>> results = run(Options(quick=True))
    >>> [record["method"] for record in results["records"]]
    ['linear', 'fourier', 'optical-2', 'optical-4', 'device-2']
    """
    start = time.perf_counter()
    check_count("n_components", options.n_components)
    check_choice("transform", options.transform, ("root", "none"))
    data = load_features(
        options.layer,
        options.data_dir,
        network=options.network,
        scratch=options.scratch,
        quick=options.quick,
        progress=progress,
    )
    methods = _Methods(data, options, progress)
    methods.run()
    results = begin_results("transfer-learning", options)
    results |= {
        "dataset": data.describe(),
        "records": methods.records,
        "tried": methods.tried,
        "device": methods.device,
        "published": _published(data),
        "seconds": time.perf_counter() - start,
    }
    results["notes"] = list(_notes(results))
    return results


@dataclass(frozen=True)
class _Setting:
    """Hyperparameters beside the penalty, and the map that they stand for."""

    named: dict[str, Any]
    kernel: Any = None
    encoder: Any = None


class _Methods:
    """Searches, fits and scores one method after the other."""

    def __init__(
        self, data: LabelledFeatures, options: Options, progress: Progress | None
    ) -> None:
        self.data = data
        self.options = options
        self.progress = progress
        self.n_components = min(options.n_components, 300 if options.quick else 10**9)
        self.records: list[dict[str, Any]] = []
        self.tried: list[dict[str, Any]] = []
        self.device: dict[str, Any] = {}
        self.X, self.X_test = _standardised(data, options.transform)
        rng = np.random.default_rng(options.seed)
        rows = rng.permutation(len(self.X))
        n_held_out = min(_VALIDATION_ROWS, len(rows) // 4)
        self.held_out = rows[:n_held_out]
        self.kept = rows[n_held_out : n_held_out + _SEARCH_ROWS]
        self.squared_norm = float(self.X.shape[1])  # the columns have variance 1

    def run(self) -> None:
        """Measure every method."""
        for done, method in enumerate(METHODS):
            self._say(done, f"{method}: choosing hyperparameters")
            settings = self._settings(method)
            scored = [self._score(method, setting) for setting in settings]
            best = int(np.argmin([error for error, _ in scored]))
            error, alpha = scored[best]
            self._say(done, f"{method}: fit on {len(self.X):,} rows")
            self._conclude(method, settings[best], alpha, error)
        self._say(len(METHODS), "done")

    def _say(self, done: int, doing: str) -> None:
        if self.progress is not None:
            self.progress(done, len(METHODS), doing)

    def _settings(self, method: str) -> list[_Setting]:
        family, _, degree = method.partition("-")
        if family == "linear":
            return [_Setting({}, randkern.Linear())]
        if family == "fourier":
            root = self.squared_norm**0.5
            return [
                _Setting({"lengthscale": m * root}, randkern.Gaussian(m * root))
                for m in _LENGTHSCALES
            ]
        m = int(degree)
        if family == "optical":
            biases = [share * self.squared_norm for share in _BIASES]
            return [_Setting({"bias": b}, randkern.Optical(m, b)) for b in biases]
        settings = []
        for name in _ENCODERS:
            encoder, bias = _encoder(name), 0
            bits = encoder.fit(self.X[self.kept]).transform(self.X[self.kept[:500]])
            bias = round(float(bits.sum(axis=1, dtype=np.int64).mean()))
            settings += [
                _Setting({"encoder": name, "bias": b}, encoder=encoder)
                for b in (bias, 4 * bias)
            ]
        return settings

    def _score(self, method: str, setting: _Setting) -> tuple[float, float]:
        """Return the validation error and the penalty that gives it."""
        size = min(_SEARCH_COMPONENTS, self.n_components)
        rows = np.concatenate([self.kept, self.held_out])
        if setting.encoder is not None:
            bits, y = setting.encoder.transform(self.X[rows]), self.data.y_train[rows]
            with self._counts(size, setting, [(bits, y)]) as stored:
                blocks = stored.blocks(0, size, _degree(method))
                Z = np.concatenate([block.X for block in blocks])
        elif method == "linear":
            Z = self.X[rows]
        else:
            features = randkern.RandomFeatures(
                setting.kernel, size, random_state=self.options.seed
            )
            Z = features.fit_transform(self.X[rows])
        # Penalties are relative: to features of mean squared norm 1.
        Z = Z / np.float32(_mean_norm(Z))
        n_kept = len(self.kept)
        split = [(np.arange(n_kept), np.arange(n_kept, len(rows)))]
        model = randkern.KernelRidgeClassifierCV(
            randkern.Linear(),
            _ALPHAS,
            n_components=Z.shape[1],
            scoring="accuracy",
            cv=split,
            fit_intercept=True,
        ).fit(Z, self.data.y_train[rows])
        error = float(1 - model.best_score_)
        alpha = float(model.alpha_)
        named = {**setting.named, "relative_alpha": alpha}
        self.tried.append(
            {"method": method, "hyperparameters": named, "validation_error": error}
        )
        return error, alpha

    def _counts(self, size: int, setting: _Setting, rows: Sequence[Any]) -> Any:
        return acquired_counts(
            size,
            rows,
            bias=setting.named["bias"],
            seed=self.options.seed,
            scratch=self.options.scratch,
        )

    def _conclude(
        self, method: str, setting: _Setting, relative_alpha: float, error: float
    ) -> None:
        """Fit the best setting on all rows, and score it on the test rows."""
        data = self.data
        record: dict[str, Any] = {
            "method": method,
            "n_components": None if method == "linear" else self.n_components,
            "validation_error": error,
        }
        fit = partial(self._fit, record, setting.named, relative_alpha)
        if setting.encoder is None:
            sample = self.X[:_VALIDATION_ROWS]
            size = self.X.shape[1] if method == "linear" else self.n_components
            scale = float(np.mean(setting.kernel.diag(sample)))
            train = (self.X, data.y_train)
            fit(setting.kernel, size, scale, train, [self.X_test])
            return
        encoder = setting.encoder.fit(self.X)
        parts = [
            (encoder.transform(X), y)
            for X, y in ((self.X, data.y_train), (self.X_test, data.y_test))
        ]
        with self._counts(self.n_components, setting, parts) as stored:
            self.device = stored.described
            train, test = (
                stored.blocks(part, self.n_components, _degree(method))
                for part in (0, 1)
            )
            first = next(iter(train)).X
            scale = _mean_norm(first) ** 2
            kernel, tests = randkern.Linear(), (block.X for block in test)
            fit(kernel, self.n_components, scale, (train, None), tests)

    def _fit(
        self,
        record: dict[str, Any],
        named: Mapping[str, Any],
        relative_alpha: float,
        kernel: Any,
        size: int,
        scale: float,
        train: tuple[Any, Any],
        tests: Any,
    ) -> None:
        alpha = relative_alpha * scale
        model = randkern.KernelRidgeClassifier(
            kernel,
            alpha=alpha,
            n_components=size,
            fit_intercept=True,
            memory_limit=self.options.memory_limit,
            random_state=self.options.seed,
        )
        start = time.perf_counter()
        model.fit(*train)
        fitted = time.perf_counter()
        predicted = np.concatenate([model.predict(X) for X in tests])
        self.records.append(
            record
            | {
                "hyperparameters": {**named, "alpha": alpha},
                "test_error": float(1 - accuracy_score(self.data.y_test, predicted)),
                "fit_seconds": fitted - start,
                "predict_seconds": time.perf_counter() - fitted,
            }
        )


def _degree(method: str) -> int:
    return int(method.partition("-")[2])


def _encoder(name: str) -> Any:
    kind, _, levels = name.partition(":")
    if kind == "threshold":
        # The columns are standardised: above the mean or not.
        return ThresholdBinarizer(0.0)
    return ThermometerEncoder(n_levels=int(levels))


def _mean_norm(Z: NDArray[Any]) -> float:
    """Return the root of the mean squared norm of the first rows."""
    first = Z[:1000].astype(np.float64)
    return float(np.sqrt(np.mean(np.einsum("ij,ij->i", first, first))))


def _standardised(
    data: LabelledFeatures, transform: str
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return columns of mean 0 and variance 1, after a root if asked for."""
    parts = [np.asarray(X, dtype=np.float32) for X in (data.X_train, data.X_test)]
    if transform == "root":
        parts = [np.sign(X) * np.sqrt(np.abs(X)) for X in parts]
    scaler = StandardScaler().fit(parts[0])
    train, test = (scaler.transform(X).astype(np.float32) for X in parts)
    return train, test


# -- results ------------------------------------------------------------------------


def _published(data: LabelledFeatures) -> list[dict[str, Any]]:
    """Return the layer's own row of Table 1, or those of equal dimension."""
    rows = published_rows("cifar10-transfer-learning")
    own = [
        row
        for row in rows
        if (row["architecture"], row["layer"]) == (data.architecture, data.layer)
    ]
    width = data.X_train.shape[1]
    return own or [row for row in rows if row["dimension"] == width]


def _notes(results: Mapping[str, Any]) -> Iterator[str]:
    for record in results["records"]:
        named = ", ".join(
            f"{k} {v}" if isinstance(v, str) else f"{k} {v:.4g}"
            for k, v in record["hyperparameters"].items()
        )
        yield f"{record['method']}: {named}"
    device = results["device"]
    yield (
        f"device: {device['n_frames']:,} frames of {device['n_components']:,} outputs, "
        f"simulated in {device['simulation_seconds']:.1f} s; the real one takes "
        f"{device['device_seconds']:.0f} s and {device['device_joules']:,.0f} J"
    )
    yield f"all in {results['seconds']:.0f} s"


def tables(results: Mapping[str, Any]) -> list[TextTable]:
    """Return test errors in percent beside published ones of other networks."""
    described = results["dataset"]
    published = results["published"]
    table = TextTable(
        f"{described['name']}, {described['n_features']:,} columns, "
        f"{described['n_train']:,} training rows: test error in %, published beside",
        (
            "features",
            "D",
            "validation",
            "test",
            "fit (s)",
            *(f"{row['architecture']} {row['layer']}" for row in published),
        ),
    )
    for record in results["records"]:
        size = record["n_components"]
        column = METHODS[record["method"]]
        others = [None if column is None else row[column] for row in published]
        table.rows.append(
            (
                record["method"],
                "" if size is None else f"{size:,}",
                f"{100 * record['validation_error']:.2f}",
                f"{100 * record['test_error']:.2f}",
                f"{record['fit_seconds']:.1f}",
                *("" if other is None else f"{other:.1f}" for other in others),
            )
        )
    return [table]


def figure(results: Mapping[str, Any]) -> Any:
    """Return test errors as bars, the published ones as marks."""
    from .optical_figures import plot_transfer_learning

    return plot_transfer_learning(results)
