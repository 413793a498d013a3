"""Ridge on binarized images: error against the number of features (Fig. 2).

Five curves of random features and three exact kernels (Ohana et al. 2020, section
4.1): Fourier features of the Gaussian kernel; optical features of degrees 2 and 4,
computed; and the same from the counts of a simulated device.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from sklearn.metrics import accuracy_score

import randkern

from .._memory import resolve_memory_limit
from .._validation import check_count
from ..exceptions import MemoryLimitError
from .binary_images import BinaryImages, load_binary_images
from .device_counts import acquired_counts
from .optical_settings import KernelSetting, optical_settings
from .published import published_rows
from .reproductions import CommonOptions, Progress, TextTable, begin_results

__all__ = ["CURVES", "Options", "figure", "run", "tables"]

# Curve: its kernel, whether a device measures it, its published name.
CURVES: Mapping[str, tuple[str, bool, str]] = {
    "fourier": ("gaussian", False, "rbf_rff"),
    "optical-2": ("optical:2", False, "sim_opu_2"),
    "optical-4": ("optical:4", False, "sim_opu_4"),
    "device-2": ("optical:2", True, "real_opu_2"),
    "device-4": ("optical:4", True, "real_opu_4"),
}
_SIZES = (10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)
_QUICK_SIZES, _QUICK_ROWS = (10, 30, 100, 300), 500


@dataclass(frozen=True)
class Options(CommonOptions):
    """What ``randkern reproduce optical-ridge`` takes."""

    data: Annotated[
        str,
        "mnist, fashion-mnist, fashion-mnist-sample or digits; auto takes the first "
        "of fashion-mnist, mnist and fashion-mnist-sample in --data-dir.",
    ] = "auto"
    max_components: Annotated[
        int, "Largest number of features of 10, 30, 100, ..., 100,000."
    ] = 10_000
    n_components: Annotated[
        tuple[int, ...] | None, "Numbers of features, in place of --max-components."
    ] = None
    exact_rows: Annotated[
        int, "Training rows of the exact kernels; 0 leaves them out."
    ] = 10_000
    bits: Annotated[int, "Bits of a count of the device."] = 8
    memory_limit: Annotated[str | None, 'What a model may use, such as "4GB".'] = None
    scratch: Annotated[
        Path | None, "Directory for the device's counts; by default a temporary one."
    ] = None


def run(options: Options, progress: Progress | None = None) -> dict[str, Any]:
    """Measure the test error of every curve and exact kernel.

    Parameters
    ----------
    options : Options
    progress : callable, optional
        Called as ``progress(done, total, doing)`` before every fit, and at last with
        ``done == total``.

    Returns
    -------
    results : dict
        As :func:`.reproductions.begin_results`. ``hyperparameters`` has those of
        each kernel and their origin; a record has ``curve``, ``kernel``,
        ``n_components`` (None: exact), ``seed``, ``n_train``, ``test_error``,
        ``fit_seconds`` (with the features, for the device from its counts),
        ``predict_seconds``, ``solver_iterations`` and ``outcome``; ``device`` has
        ``bits`` and ``bias`` of each acquisition and its seconds; ``overtaking`` by
        kind (``optical``, ``device``) the least D from which m = 4 has the lower
        error (None: at none); ``device_loss`` by degree and D the error of the
        device less that of the computed features; ``skipped`` has ``curve``,
        ``n_components`` and ``reason``; ``seconds`` is the time of all.

    Examples
    --------
    >>> from randkern.experiments.optical_ridge import Options, run
    >>> results = run(Options(quick=True, n_components=(10, 50)))
    >>> len(results["records"]), results["records"][0]["curve"]
    (13, 'fourier')
    """
    start = time.perf_counter()
    sizes = _sizes(options)
    resolve_memory_limit(options.memory_limit)  # complains before the work
    images = load_binary_images(
        "digits" if options.quick and options.data == "auto" else options.data,
        options.data_dir,
    )
    if progress is not None:
        progress(0, 1, "choosing hyperparameters")
    found = optical_settings(images, seed=options.seed, quick=options.quick)
    settings = {setting.kernel: setting for setting in found}
    runs = _Runs(images, settings, options, sizes, progress)
    runs.run()
    results = begin_results("optical-ridge", options)
    results |= {
        "dataset": images.describe(),
        "hyperparameters": {name: s.describe() for name, s in settings.items()},
        "records": runs.records,
        "device": runs.acquisitions,
        "skipped": runs.skipped,
        "published": _published(sizes),
        "overtaking": {
            kind: _overtaking(runs.records, kind) for kind in ("optical", "device")
        },
        "device_loss": _device_loss(runs.records),
        "seconds": time.perf_counter() - start,
    }
    results["notes"] = list(_notes(results))
    return results


def _sizes(options: Options) -> list[int]:
    """Return the numbers of features, rising."""
    check_count("max_components", options.max_components)
    if options.exact_rows < 0:
        raise ValueError(
            f"exact_rows must be 0 or more, got {options.exact_rows}; 0 leaves the "
            "exact kernels out"
        )
    if options.n_components is not None:
        return sorted({check_count("n_components", d) for d in options.n_components})
    of = _QUICK_SIZES if options.quick else _SIZES
    sizes = [size for size in of if size <= options.max_components]
    return sizes or [options.max_components]


class _Runs:
    """Fits and scores one model after the other, and keeps the records."""

    def __init__(
        self,
        images: BinaryImages,
        settings: Mapping[str, KernelSetting],
        options: Options,
        sizes: Sequence[int],
        progress: Progress | None,
    ) -> None:
        self.images = images
        self.settings = settings
        self.options = options
        self.sizes = sizes
        self.progress = progress
        self.records: list[dict[str, Any]] = []
        self.skipped: list[dict[str, Any]] = []
        self.acquisitions: list[dict[str, Any]] = []
        self.X_train = images.X_train.astype(np.float32)
        self.X_test = images.X_test.astype(np.float32)
        n_exact = len(settings) if options.exact_rows else 0
        self.total = len(CURVES) * len(sizes) + n_exact
        self.done = 0

    def run(self) -> None:
        """Fit everything."""
        self._compile()
        computed = [curve for curve, (_, device, _) in CURVES.items() if not device]
        for curve in computed:
            for size in self.sizes:
                self._features(curve, size)
        if self.options.exact_rows:
            for curve in computed:
                self._exact(curve)
        measured = [curve for curve, (_, device, _) in CURVES.items() if device]
        biases = {self._setting(curve).value for curve in measured}
        for bias in sorted(biases):
            # One acquisition serves all degrees of a bias.
            curves = [c for c in measured if self._setting(c).value == bias]
            self._device(curves, int(bias))
        if self.progress is not None:
            self.progress(self.total, self.total, "done")

    def _setting(self, curve: str) -> KernelSetting:
        return self.settings[CURVES[curve][0]]

    def _say(self, doing: str) -> None:
        if self.progress is not None:
            self.progress(self.done, self.total, doing)

    def _model(self, kernel: Any, setting: KernelSetting, size: int | None) -> Any:
        return randkern.KernelRidgeClassifier(
            kernel,
            alpha=setting.alpha,
            n_components=size,
            fit_intercept=True,
            memory_limit=self.options.memory_limit,
            random_state=self.options.seed,
        )

    def _compile(self) -> None:
        """Fit what will be timed on a few rows, and forget it."""
        few = np.arange(min(400, len(self.X_train)))
        for setting, solver in product(self.settings.values(), ("cholesky", "pcg")):
            model = self._model(setting.build(), setting, 64)
            model.set_params(solver=solver)
            # Whoever exceeds the limit on a few rows will be skipped on all.
            with suppress(MemoryLimitError):
                model.fit(self.X_train[few], self.images.y_train[few])
                model.predict(self.X_test[:2])

    def _features(self, curve: str, size: int) -> None:
        self._say(f"{curve}: {size:,} features")
        setting = self._setting(curve)
        model = self._model(setting.build(), setting, size)
        self._fit(curve, size, model, self.X_train, self.images.y_train)

    def _exact(self, curve: str) -> None:
        n = len(self.X_train)
        wanted = _QUICK_ROWS if self.options.quick else self.options.exact_rows
        rows = np.arange(n)
        if wanted < n:
            rng = np.random.default_rng(self.options.seed)
            rows = np.sort(rng.permutation(n)[:wanted])
        self._say(f"{curve}: exact, {len(rows):,} rows")
        setting = self._setting(curve)
        model = self._model(setting.build(), setting, None)
        self._fit(curve, None, model, self.X_train[rows], self.images.y_train[rows])

    def _fit(
        self, curve: str, size: int | None, model: Any, X: Any, y: Any, test: Any = None
    ) -> None:
        """Add one record, or say why there is none."""
        self.done += 1
        start = time.perf_counter()
        try:
            model.fit(X, y)
            fitted = time.perf_counter()
            if test is None:
                predicted = model.predict(self.X_test)
            else:
                predicted = np.concatenate([model.predict(b.X) for b in test])
        except MemoryLimitError as error:
            note = {"curve": curve, "n_components": size, "reason": str(error)}
            self.skipped.append(note)
            return
        accuracy = accuracy_score(self.images.y_test, predicted)
        self.records.append(
            {
                "curve": curve,
                "kernel": CURVES[curve][0],
                "n_components": size,
                "seed": self.options.seed,
                "n_train": X.n_rows if y is None else len(y),
                "test_error": float(1 - accuracy),
                "fit_seconds": fitted - start,
                "predict_seconds": time.perf_counter() - fitted,
                "solver_iterations": int(model.solution_.iterations),
                "outcome": model.solution_.outcome.name.lower(),
            }
        )

    def _device(self, curves: Sequence[str], bias: int) -> None:
        """Show all images once; every D takes the first D outputs of the camera."""
        images = self.images
        self._say(f"device: counts of {len(images.X_train):,} images and of the tests")
        with acquired_counts(
            max(self.sizes),
            [(images.X_train, images.y_train), (images.X_test, images.y_test)],
            bits=self.options.bits,
            bias=bias,
            seed=self.options.seed,
            scratch=self.options.scratch,
        ) as stored:
            self.acquisitions.append(stored.described)
            for curve in curves:
                setting = self._setting(curve)
                degree = setting.build().degree
                for size in self.sizes:
                    self._say(f"{curve}: {size:,} outputs")
                    model = self._model(randkern.Linear(), setting, size)
                    train, test = (stored.blocks(part, size, degree) for part in (0, 1))
                    self._fit(curve, size, model, train, None, test)


# -- results ------------------------------------------------------------------------


def _errors(records: Sequence[Mapping[str, Any]], curve: str) -> dict[int, float]:
    return {
        r["n_components"]: r["test_error"]
        for r in records
        if r["curve"] == curve and r["n_components"] is not None
    }


def _overtaking(records: Sequence[Mapping[str, Any]], kind: str) -> int | None:
    """Return the least D from which degree 4 errs less at every D tried."""
    low, high = _errors(records, f"{kind}-2"), _errors(records, f"{kind}-4")
    found = None
    for size in sorted(set(low) & set(high), reverse=True):
        if high[size] >= low[size]:
            break
        found = size
    return found


def _device_loss(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    losses = []
    for degree in (2, 4):
        computed = _errors(records, f"optical-{degree}")
        measured = _errors(records, f"device-{degree}")
        losses += [
            {"degree": degree, "n_components": d, "loss": measured[d] - computed[d]}
            for d in sorted(set(computed) & set(measured))
        ]
    return losses


def _published(sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Return the published test errors on Fashion-MNIST at these D, and exact."""
    curve_of = {name: curve for curve, (_, _, name) in CURVES.items()}
    found = [
        {
            "curve": curve_of[row["features"]],
            "n_components": row["n_components"],
            "test_error": 1 - row["test_accuracy"],
        }
        for row in published_rows("fashion-mnist-features")
        if row["features"] in curve_of and row["n_components"] in sizes
    ]
    found += [
        {
            "curve": curve_of[row["kernel"]],
            "n_components": None,
            "test_error": 1 - row["test_accuracy"],
        }
        for row in published_rows("fashion-mnist-kernels")
        if row["kernel"] in curve_of
    ]
    return found


def _notes(results: Mapping[str, Any]) -> Iterator[str]:
    for kernel, named in results["hyperparameters"].items():
        numbers = ", ".join(
            f"{k} {v:.4g}" for k, v in named.items() if k not in ("degree", "origin")
        )
        yield f"{kernel}: {numbers} ({named['origin']})"
    for kind, size in results["overtaking"].items():
        at = "at no D tried" if size is None else f"from D = {size:,} on"
        yield f"{kind}: m = 4 errs less than m = 2 {at} (published: from 20,000 on)"
    losses = results["device_loss"]
    for degree, published in ((2, 1.5), (4, 1.0)):
        own = [loss for loss in losses if loss["degree"] == degree]
        if own:
            last = own[-1]
            yield (
                f"m = {degree}: the device errs {100 * last['loss']:+.2f} points more "
                f"than the computed features at D = {last['n_components']:,} "
                f"(published: about {published} at 100,000)"
            )
    for note in results["device"]:
        yield (
            f"device: {note['n_frames']:,} frames of {note['n_components']:,} outputs, "
            f"simulated in {note['simulation_seconds']:.1f} s; the real one takes "
            f"{note['device_seconds']:.0f} s and {note['device_joules']:,.0f} J"
        )
    for note in results["skipped"]:
        size = note["n_components"]
        which = "exact" if size is None else f"D = {size:,}"
        yield f"skipped {note['curve']}, {which}: {note['reason']}"
    yield f"all in {results['seconds']:.0f} s"


def tables(results: Mapping[str, Any]) -> list[TextTable]:
    """Return the errors in percent, published ones in parentheses, and the seconds."""
    described, records = results["dataset"], results["records"]
    published = {
        (row["curve"], row["n_components"]): row["test_error"]
        for row in results["published"]
    }
    found = {(r["curve"], r["n_components"]): r for r in records}
    columns = ("D", *CURVES)
    errors = TextTable(
        f"{described['name']}, {described['n_train']:,} training rows: test error in % "
        "(published, Fashion-MNIST)",
        columns,
    )
    seconds = TextTable("seconds of fit, features included", columns)
    sizes = sorted({size for _, size in found if size is not None})
    for size in [*sizes, None]:
        label = "exact" if size is None else f"{size:,}"
        cells, times = [], []
        for curve in CURVES:
            record = found.get((curve, size))
            other = published.get((curve, size))
            cell = "" if record is None else f"{100 * record['test_error']:.2f}"
            cells.append(cell + ("" if other is None else f" ({100 * other:.2f})"))
            times.append("" if record is None else f"{record['fit_seconds']:.2f}")
        if size is None and any(times):
            n = next(r["n_train"] for r in records if r["n_components"] is None)
            label = f"exact, n = {n:,}"
        errors.rows.append((label, *cells))
        if any(times):
            seconds.rows.append((label, *times))
    return [errors, seconds]


def figure(results: Mapping[str, Any]) -> Any:
    """Return error against D, with the exact kernels as level lines."""
    from .optical_figures import plot_optical_ridge

    return plot_optical_ridge(results)
