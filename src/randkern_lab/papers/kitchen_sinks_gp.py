"""Gaussian processes on random features and the exact one (kitchen sinks, Fig. 1).

Bonilla (2015), "Understanding random kitchen sinks".

The original. A Gaussian process in one dimension and its approximation by 1,000 basis
functions are plotted as mean and two standard errors, in two conventions of the Fourier
transform: exp(2πi w·τ) with w ~ N(0, (2πℓ)⁻²), eqs. (1), (9) and (12), and exp(i w·τ)
with w ~ N(0, ℓ⁻²), eqs. (16) and (19). A basis function is a frequency with both cosine
and sine: 1,000 of them are 2,000 columns. The data are not described.

Here. The two conventions have separate code: the first is written out in NumPy (draws,
features, posterior), the second is the library. They are compared in distribution, each
with its own draws, and numerically, the first with the frequencies of the second
divided by 2π.

Deviations.

- Rows are drawn from the process itself, with a gap, so its hyperparameters are known.
- Errors of mean and standard deviation are measured against the exact process, by D;
  they must fall as 1/√D.
- Hyperparameters are also learned by the marginal likelihood, exactly and on features.
- Eqs. (14), (15) and (19) of the notes misprint the densities, which are exactly N(0,
  σ²) with σ = 1/(2πℓ) and 1/ℓ.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import scipy.linalg
from numpy.typing import NDArray

import randkern

from ..figures import BLUE, DASHED, RED, Style, curves, name_axes, panels
from ..options import CommonOptions, Sizes, option
from ..process import Stopwatch
from ..runner import Case, measure_all
from ..tables import fitted_power, listing, pivot

# The factor c in exp(i·c·w·τ), where w has the distribution N(0, (cℓ)⁻²).
CONVENTIONS: Mapping[str, float] = {"2*pi": 2 * np.pi, "1": 1.0}
_TRANSFORMS = {"2*pi": "exp(2πi w·τ)", "1": "exp(i w·τ)"}
_STYLES = {
    ("2*pi", "mean"): Style("mean, 2π", "blue"),
    ("1", "mean"): Style("mean, 1", "green", "s", DASHED),
    ("2*pi", "sd"): Style("sd, 2π", "red", "^"),
    ("1", "sd"): Style("sd, 1", "pink", "D", DASHED),
}
_GRID = np.linspace(-3, 3, 241)[:, None]  # on which posteriors are compared
# Slopes are fitted from here on: 1/√D does not hold yet with fewer features than the
# function has degrees of freedom.
_ASYMPTOTIC = 100
_SMALL = 1e-4  # phases are far below π, so the angle is the phase

Posterior = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True)
class Options(CommonOptions):
    """Options of ``randkern reproduce kitchen-sinks-gp``."""

    rows: int = option(60, "Training rows, of one column.")
    bases: int = option(
        1000, "Basis functions of the curves, of two columns each.", quick=150
    )
    n_components: Sizes = option(
        (30, 100, 300, 1000, 3000), "Columns of the errors.", quick=(30, 100, 300)
    )
    lengthscale: float = option(0.5, "Of the Gaussian kernel.")
    noise: float = option(0.05, "Variance of the noise; that of the function is 1.")
    repeats: int = option(20, "Draws of each number of columns.", quick=10)


@dataclass(frozen=True)
class Process:
    """Rows of the process, and posteriors given them, exact and on features."""

    options: Options
    X: NDArray[np.float64]
    y: NDArray[np.float64]

    @classmethod
    def drawn(cls, options: Options) -> "Process":
        """Draw rows from the process: two clusters with a gap, edges without rows."""
        n, rng = options.rows, np.random.default_rng(options.seed)
        left, right = rng.uniform(-2, 0, n - n // 2), rng.uniform(0.8, 2, n // 2)
        X = np.sort(np.concatenate([left, right]))[:, None]
        values, vectors = np.linalg.eigh(randkern.Gaussian(options.lengthscale)(X))
        f = vectors @ (np.sqrt(np.maximum(values, 0)) * rng.standard_normal(n))
        return cls(options, X, f + np.sqrt(options.noise) * rng.standard_normal(n))

    def frequencies(self, n: int, rng: np.random.Generator) -> NDArray[np.float64]:
        """Return w ~ N(0, (2πℓ)⁻²), eq. (12)."""
        return rng.standard_normal(n) / (2 * np.pi * self.options.lengthscale)

    def written_out(self, w: NDArray[np.float64]) -> Posterior:
        """Return the mean and standard deviation of f on the grid, with NumPy only."""
        Z, Z_new = basis(w, self.X), basis(w, _GRID)
        A = Z.T @ Z + self.options.noise * np.eye(Z.shape[1])
        factor = scipy.linalg.cho_factor(A)
        mean = Z_new @ scipy.linalg.cho_solve(factor, Z.T @ self.y)
        solved = scipy.linalg.cho_solve(factor, Z_new.T)
        variance = self.options.noise * np.sum(Z_new * solved.T, axis=1)
        return mean, np.sqrt(variance)

    def computed(self, n_components: int | None, seed: int = 0) -> Posterior:
        """Return the same computed by randkern, exactly or on features."""
        mean, sd = self.fitted(n_components, seed).predict(_GRID, return_std=True)
        return mean, sd

    def fitted(self, size: int | None, seed: int, optimizer: Any = None) -> Any:
        """Return the library's process, whose hyperparameters may be learned."""
        return randkern.GaussianProcessRegressor(
            randkern.Gaussian(self.options.lengthscale),
            self.options.noise,
            size,
            optimizer=optimizer,
            projection="dense",
            random_state=seed,
        ).fit(self.X, self.y)

    def learned(self, size: int | None) -> dict[str, Any]:
        """Return lengthscale and noise learned by the marginal likelihood."""
        model = self.fitted(size, self.options.seed, "l-bfgs-b")
        return {
            "n_components": size,
            "lengthscale": float(np.ravel(model.kernel_.lengthscale)[0]),
            "noise": float(model.noise_),
        }


def basis(w: NDArray[np.float64], X: NDArray[Any]) -> NDArray[np.float64]:
    """Return cos(2πw·x) and sin(2πw·x) divided by √(number of w), eq. (9)."""
    phases = 2 * np.pi * X * w
    return np.hstack([np.cos(phases), np.sin(phases)]) / np.sqrt(len(w))


def _root(values: NDArray[Any]) -> float:
    return float(np.sqrt(np.mean(values**2)))


def run(options: Options) -> pd.DataFrame:
    """Measure errors by D in both conventions; draw curves; learn hyperparameters."""
    process = Process.drawn(options)
    exact = process.computed(None)

    def cases() -> Iterator[Case]:
        pairs = product(options.n_components, CONVENTIONS)
        # Each convention has its own draws: they agree in distribution.
        for position, (size, convention) in enumerate(pairs):
            first = options.seed + 1 + options.repeats * position
            for seed in range(first, first + options.repeats):
                yield {"convention": convention, "n_components": size, "seed": seed}

    def measure(case: Case) -> Case:
        """Return the root mean square errors of mean and standard deviation."""
        watch = Stopwatch()
        if case["convention"] == "1":
            result = process.computed(case["n_components"], case["seed"])
        else:
            rng = np.random.default_rng(case["seed"])
            w = process.frequencies(case["n_components"] // 2, rng)
            result = process.written_out(w)
        mean, sd = (_root(a - b) for a, b in zip(result, exact, strict=True))
        seconds = watch.lap().seconds
        return {"mean_error": mean, "sd_error": sd, "seconds": seconds}

    size, ell = 2 * options.bases, options.lengthscale
    maps = randkern.RandomFeatures(
        randkern.Gaussian(ell), size, projection="dense", random_state=options.seed
    ).fit(process.X)
    # ω of the library's features, from their phases at a small x.
    phases = maps.transform(np.full((1, 1), _SMALL))[0]
    w = np.asarray(np.arctan2(phases[1::2], phases[::2]) / _SMALL)
    own = process.frequencies(options.bases, np.random.default_rng(options.seed))
    posteriors = {
        "exact": exact,
        "2*pi": process.written_out(own),
        "1": process.computed(size, options.seed),
    }
    Z = maps.transform(process.X)
    pairs = np.hstack([Z[:, ::2], Z[:, 1::2]])
    same = basis(w / (2 * np.pi), process.X)
    beside = process.written_out(w / (2 * np.pi)), posteriors["1"]
    features, posterior = np.abs(same - pairs).max(), np.abs(np.subtract(*beside)).max()
    parts: dict[str, Any] = {
        "error": measure_all(options, cases(), measure),
        "row": {"x": process.X[:, 0], "y": process.y},
        "posterior": [
            {"convention": name, "x": x, "mean": mean, "sd": sd}
            for name, curve in posteriors.items()
            for x, mean, sd in zip(_GRID[:, 0], *curve, strict=True)
        ],
        "frequency": [
            {"convention": name, "expected": 1 / (c * ell), "found": _root(drawn)}
            for (name, c), drawn in zip(CONVENTIONS.items(), (own, w), strict=True)
        ],
        "difference": [{"features": features, "posterior": posterior}],
        "learned": [process.learned(None), process.learned(size)],
    }
    frame = pd.concat(pd.DataFrame(rows).assign(measure=n) for n, rows in parts.items())
    frame.attrs["dataset"] = {"name": "drawn from the process", "n_rows": options.rows}
    return frame


def tables(frame: pd.DataFrame) -> Iterator[Any]:
    own = shown_roots(frame)
    title = (
        "root mean square error against the exact process, {arguments[repeats]} "
        "draws each"
    )
    yield from pivot(own, title, "n_components", "{transform}: {what}", "{root:.4f}")
    yield from listing(
        frame.query("measure == 'learned'"),
        "hyperparameters of the marginal likelihood",
        "D | lengthscale | noise",
        "{n_components:count} | {lengthscale:.3f} | {noise:.4f}",
    )


def figure(frame: pd.DataFrame) -> Any:
    """Return a posterior of each convention, and errors against D."""
    figure, axes = panels(3, size=(4.4, 4.0))
    bases = frame.attrs["arguments"]["bases"]
    for place, (convention, name) in zip(axes, _TRANSFORMS.items(), strict=False):
        _posterior(place, frame, convention)
        ylabel = "f(x): mean ± 2 standard errors"
        name_axes(place, f"{name}, {bases:,} bases", "x", ylabel)
    own, by = shown_roots(frame), ("convention", "what")
    curves(axes[-1], own, "n_components", "root", _STYLES, by)
    name_axes(axes[-1], "against the exact process", ylabel="root mean square error")
    for place in axes:
        place.legend(frameon=False, fontsize=8, handlelength=3.2)
    return figure


def notes(frame: pd.DataFrame) -> Iterator[str]:
    for own in frame.query("measure == 'frequency'").itertuples():
        yield (
            f"{_TRANSFORMS[own.convention]}: w of standard deviation {own.found:.3f}, "
            f"expected {own.expected:.3f}"
        )
    (own,) = frame.query("measure == 'difference'").itertuples()
    yield (
        "the same frequencies in both conventions: features differ by "
        f"{own.features:.1e}, posteriors by {own.posterior:.1e}"
    )
    for convention, powers in exponents(frame).items():
        if powers["mean"] is not None:
            yield (
                f"factor {convention}: errors fall as D^{powers['mean']:.3f} "
                f"(mean) and D^{powers['sd']:.3f} (sd), from D = {_ASYMPTOTIC} on"
            )


def roots(frame: pd.DataFrame) -> pd.DataFrame:
    """Return root mean square errors of mean and deviation, by convention and D."""
    errors = frame.query("measure == 'error'")
    draws = errors.groupby(["convention", "n_components"], sort=False)
    errors = draws[["mean_error", "sd_error"]].agg(_root)
    return errors.set_axis(["mean", "sd"], axis=1).reset_index()


def shown_roots(frame: pd.DataFrame) -> pd.DataFrame:
    """Return them and √D times the mean's, one a row, with the transform's name."""
    errors = roots(frame)
    errors["transform"] = errors.convention.map(_TRANSFORMS)
    errors["√D × mean"] = errors.n_components**0.5 * errors["mean"]
    keys = ["convention", "transform", "n_components"]
    shown = errors.melt(keys, var_name="what", value_name="root", ignore_index=False)
    shown.attrs = frame.attrs
    return shown.sort_index(kind="stable")


def _posterior(axes: Any, frame: pd.DataFrame, convention: str) -> None:
    """Draw a posterior on features, the exact one, and the rows."""
    curves = frame.query("measure == 'posterior'")
    own, exact = (curves[curves.convention == name] for name in (convention, "exact"))
    low, high = own["mean"] - 2 * own.sd, own["mean"] + 2 * own.sd
    axes.fill_between(own.x, low, high, color=BLUE, alpha=0.22, lw=0)
    columns = f"{2 * frame.attrs['arguments']['bases']:,} columns"
    axes.plot(own.x, own["mean"], color=BLUE, lw=1.8, label=columns)
    look = {"color": RED, "lw": 1.4, "linestyle": "--"}
    axes.plot(exact.x, exact["mean"], **look, label="exact")
    look |= {"lw": 1.0, "linestyle": ":"}
    for sign, label in ((-2, "exact ± 2 sd"), (2, None)):
        axes.plot(exact.x, exact["mean"] + sign * exact.sd, **look, label=label)
    rows = frame.query("measure == 'row'")
    axes.plot(rows.x, rows.y, ".", color="black", ms=4, label="rows")
    low, high = axes.get_ylim()
    axes.set_ylim(low - 0.18 * (high - low), high)  # room for the legend


def exponents(frame: pd.DataFrame) -> dict[str, dict[str, float | None]]:
    """Return the powers of D that best fit the errors; None for a single D."""
    powers: dict[str, dict[str, float | None]] = {}
    for convention, own in roots(frame).groupby("convention", sort=False):
        last = own[own.n_components >= _ASYMPTOTIC]
        own = own if last.empty else last
        fits = {key: fitted_power(own.n_components, own[key]) for key in ("mean", "sd")}
        powers[str(convention)] = fits
    return powers
