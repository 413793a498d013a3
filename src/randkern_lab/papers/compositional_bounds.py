"""The bounds of random feature schemes, beside what they bound.

Daniely, Frostig, Gupta and Singer (2017), Theorem 3, Corollary 4 and Theorem 6.

The original. q draws of a C-bounded scheme, |ψ_ω(x)| ≤ C, give an entry of the Gram
matrix within ε with probability 1 − δ if q ≥ 2C⁴ log(2/δ)/ε² (Theorem 3), and each
value of a function f in the space of the kernel with a mean square error of at most
C²‖f‖²/q (Corollary 4). No scheme for the inner products of the sphere S^{n−1} is
C-bounded with C < √(n/2), which √(n/2)(x_j ± i x_{j+1}) attains (Theorem 6). These are
theorems; nothing is measured.

Here. ``entry`` is a quantile of the error of entries and the ε of Theorem 3;
``function`` the mean square errors of functions f = Σ a_i k(x_i, ·) of norm 1 at the
x_i: their mean over x and f, and the largest, with its standard error over the draws.
Both use a mean over spheres S^{n−1}, whose scheme in the library is √(n/2)-bounded.

``norm`` is the bound of a scheme. A scheme of the sphere is linear, ψ(x) = z·x with
complex z and E Re z z* = I, and the greatest |z·x| of unit vectors x is the greatest
singular value of (Re z, Im z), at least ‖z‖/√2; as E‖z‖² = n, some z reaches √(n/2).
The schemes are those of the library, normal z, random planes, and finite sets of z and
their conjugates with E Re z z* = I: the least bound of many such sets drawn at random,
and that of a set which is brought near √(n/2) step by step.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import randkern
from randkern.skeletons import fully_connected, sphere

from ..figures import DASHED, DOTTED, Style, curves, name_axes, panels
from ..options import CommonOptions, Sizes, option
from ..runner import Case, grid, measure_all
from ..tables import listing, pivot

_DELTA, _POINTS, _NODES, _FUNCTIONS = 0.05, 40, 4, 20
_STEPS = 200  # that bring a set near the bound
# What is measured beside its bound.
_BOUNDED = {"entry": "quantile", "function": "largest"}
# Schemes of the library, then others, with the style of their curves.
SCHEMES: Mapping[str, Style] = {
    "pair": Style("pair: √(n/2)(x_j ± i x_{j+1})", "blue"),
    "coordinate": Style("coordinate: √n x_j", "red", "^"),
    "direction": Style("direction: √n w·x", "orange", "X"),
    "plane": Style("random planes", "sky", "s", DASHED),
    "normal": Style("normal z, largest draw", "#8C564B", "v", DOTTED),
    "random set": Style("least of random sets", "green", "D"),
    "balanced set": Style("a set, balanced step by step", "pink", "P", DASHED),
}


@dataclass(frozen=True)
class Options(CommonOptions):
    """Options of ``randkern reproduce compositional-bounds``."""

    spheres: Sizes = option(
        (3, 4, 8), "n of the spheres of entries and functions: C² = n/2.", least=2
    )
    n_components: Sizes = option(
        (500, 1000, 2000, 4000), "Numbers of features.", quick=(100, 200)
    )
    seeds: int = option(200, "Draws of the features.", quick=30, least=2)
    dimensions: Sizes = option(
        (3, 4, 8, 16, 32, 64), "n of the spheres of the norms.", quick=(3, 8), least=2
    )
    draws: int = option(10_000, "Draws of z of a scheme.", quick=1000)
    sets: int = option(300, "Random sets of 4n vectors z.", quick=10)


def run(options: Options) -> pd.DataFrame:
    """Measure entries and functions on means over spheres, then norms of schemes."""

    def measure(case: Case) -> Any:
        n, seed = case["n"], options.seed
        if case["measure"] == "approximation":
            return approximation(n, case["n_components"], options.seeds, seed)
        rng = np.random.default_rng([seed, n])
        norm = scheme_norm(case["scheme"], n, options.draws, options.sets, rng)
        least = (n / 2) ** 0.5
        return {"norm": norm, "bound": least, "ratio": norm / least}

    spheres, sizes = options.spheres, options.n_components
    cases = [
        *grid(measure=["approximation"], n=spheres, n_components=sizes),
        *grid(measure=["norm"], n=options.dimensions, scheme=SCHEMES),
    ]
    return measure_all(options, cases, measure)


def tables(frame: pd.DataFrame) -> Iterator[Any]:
    yield from listing(
        frame.query("measure == 'entry'"),
        f"Theorem 3: {1 - _DELTA:.0%} quantile of |error| of an entry, its bound",
        "C² | draws | measured | bound",
        "{C2:g} | {draws:,} | {quantile:.4f} | {bound:.4f}",
    )
    yield from listing(
        frame.query("measure == 'function'"),
        "Corollary 4: mean square error of functions of norm 1, and its bound",
        "C² | draws | mean | largest | standard error | bound",
        "{C2:g} | {draws:,} | {mean_square:.6f} | {largest:.6f} | "
        "{standard_error:.6f} | {bound:.6f}",
    )
    own = frame.query("measure == 'norm'")
    title = "Theorem 6: the bound of schemes of the sphere over √(n/2)"
    yield from pivot(
        own, title, "n", "scheme", "{ratio:.4f}", headings=tuple(SCHEMES), label=str
    )


def figure(frame: pd.DataFrame) -> Any:
    """Return errors beside their bounds, and the bounds of schemes."""
    figure, axes = panels(3, size=(4.4, 4.2))
    styles = {
        (n / 2, kind): Style(f"C² = {n / 2:g}, {kind}", colour, *look)
        for n, colour in ((3, "#B5B5B5"), (4, "#757575"), (8, "#202020"))
        for kind, look in (("measured", ("o",)), ("bound", ("", DASHED)))
    }
    for place, (measure, key) in zip(axes, _BOUNDED.items(), strict=False):
        own = frame.query(f"measure == '{measure}'")
        own = own.assign(measured=own[key])
        own = own.melt(["C2", "draws"], ["measured", "bound"], "kind")
        curves(place, own, "draws", "value", styles, ("C2", "kind"))
    quantile = f"{1 - _DELTA:.0%} quantile of |error|"
    name_axes(axes[0], "Theorem 3: an entry", "draws q", quantile)
    title = "Corollary 4: a function of norm 1"
    name_axes(axes[1], title, "draws q", "largest mean square error")
    norms = frame.query("measure == 'norm'")
    curves(axes[2], norms, "n", "ratio", SCHEMES, "scheme", log="x")
    title, label = "Theorem 6: no scheme is below 1", "bound of the scheme / √(n/2)"
    name_axes(axes[2], title, "dimension n", label)
    for place, room in zip(axes, (6, 6, 1.7), strict=True):
        place.set_ylim(top=room * place.get_ylim()[1])
        # A legend each: colours of the panels have different meanings.
        place.legend(frameon=False, fontsize=8, handlelength=3.2)
    return figure


def notes(frame: pd.DataFrame) -> Iterator[str]:
    for measure, key in _BOUNDED.items():
        own = frame.query(f"measure == '{measure}'")
        shares = own[key] / own.bound
        yield (
            f"{measure}: measured is {shares.min():.2f} to {shares.max():.2f} of the "
            f"bound, which holds in {sum(shares <= 1)} of {len(shares)} cases"
        )
    norms = frame.query("measure == 'norm'")
    least, below = norms.loc[norms.ratio.idxmin()], sum(norms.ratio < 1 - 1e-9)
    yield (
        f"norm: {below} of {len(norms)} schemes are below √(n/2); the least ratio "
        f"is {least.ratio:.6f} ({least.scheme}, n = {least.n:.0f})"
    )


def approximation(n: int, size: int, seeds: int, seed: int) -> Iterator[Case]:
    """Yield the errors of entries and of functions on a mean over spheres S^{n−1}.

    A draw of the scheme has two columns, its real and its imaginary part.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((_POINTS, _NODES, n))
    X /= np.linalg.norm(X, axis=2, keepdims=True)
    rows = X.reshape(_POINTS, -1)
    skeleton = fully_connected(_NODES, activation="identity", base=sphere(n))
    kernel = randkern.Compositional(skeleton, deduplicate=False, constant="sampled")
    exact = np.asarray(kernel(rows))
    A = rng.standard_normal((_POINTS, _FUNCTIONS))
    A /= np.sqrt(np.sum(A * (exact @ A), axis=0))  # norm 1 in the space of the kernel
    entries, squares = [], []
    pairs = np.triu_indices(_POINTS, 1)
    for draw_seed in range(seed, seed + seeds):
        features = randkern.RandomFeatures(kernel, size, random_state=draw_seed)
        Z = np.asarray(features.fit_transform(rows))
        error = Z @ Z.T - exact
        entries.append(np.abs(error)[pairs])
        squares.append((error @ A) ** 2)
    draws, C2 = size // 2, n / 2
    mean = np.mean(squares, axis=0)
    place = np.unravel_index(mean.argmax(), mean.shape)
    deviation = np.std(squares, axis=0, ddof=1)[place]
    named = {"C2": C2, "draws": draws}
    yield named | {
        "measure": "entry",
        "delta": _DELTA,
        "quantile": float(np.quantile(entries, 1 - _DELTA)),
        "bound": float(C2 * np.sqrt(2 * np.log(2 / _DELTA) / draws)),
    }
    yield named | {
        "measure": "function",
        "mean_square": float(mean.mean()),
        "largest": float(mean[place]),
        "standard_error": float(deviation / np.sqrt(seeds)),
        "bound": C2 / draws,
    }


def scheme_norm(
    scheme: str, n: int, draws: int, sets: int, rng: np.random.Generator
) -> float:
    """Return the greatest |ψ(x)| of a scheme over unit vectors x and its draws."""
    if scheme == "random set":
        return min(
            float(norms(whitened(_vectors(4 * n, n, rng))).max()) for _ in range(sets)
        )
    if scheme == "balanced set":
        return float(norms(balanced_set(_vectors(4 * n, n, rng))).max())
    return float(norms(drawn(scheme, n, draws, rng)).max())


def norms(Z: NDArray[Any]) -> NDArray[np.float64]:
    """Return the greatest |z·x| of unit vectors x for every row z, complex."""
    parts = np.stack([Z.real, Z.imag], axis=1)
    return np.asarray(np.linalg.norm(parts, ord=2, axis=(1, 2)))


def drawn(scheme: str, n: int, draws: int, rng: np.random.Generator) -> NDArray[Any]:
    """Return draws of z as rows: those of the library, or others."""
    if scheme == "normal":
        return _vectors(draws, n, rng) / np.sqrt(2)
    if scheme == "plane":  # an orthonormal pair, which may be turned either way
        pairs = np.linalg.qr(rng.standard_normal((draws, n, 2)))[0]
        signs = rng.choice([-1j, 1j], (draws, 1))
        return np.sqrt(n / 2) * (pairs[:, :, 0] + signs * pairs[:, :, 1])
    skeleton = fully_connected(1, activation="identity", base=sphere(n, scheme))
    kernel = randkern.Compositional(skeleton, deduplicate=False, constant="sampled")
    size = 2 * draws if scheme == "pair" else draws
    features = randkern.RandomFeatures(
        kernel, size, random_state=int(rng.integers(2**31))
    )
    Z = np.sqrt(draws) * np.asarray(features.fit_transform(np.eye(n))).T
    return Z[::2] + 1j * Z[1::2] if scheme == "pair" else Z


def _vectors(m: int, n: int, rng: np.random.Generator) -> NDArray[Any]:
    return rng.standard_normal((m, n)) + 1j * rng.standard_normal((m, n))


def whitened(Z: NDArray[Any]) -> NDArray[Any]:
    """Return a set of vectors whose mean of Re z z* is I.

    With their conjugates, whose mean of Im z z* is the opposite, they are a scheme.
    """
    moment = (Z.T @ Z.conj()).real / len(Z)
    factor = np.linalg.cholesky(moment)
    return np.asarray(np.linalg.solve(factor, Z.T).T)


def balanced_set(Z: NDArray[Any]) -> NDArray[Any]:
    """Return a scheme near the bound: planes of equal size, whitened repeatedly."""
    n = Z.shape[1]
    for _ in range(_STEPS):
        parts = np.stack([Z.real, Z.imag], axis=2)
        left, _, right = np.linalg.svd(parts, full_matrices=False)
        parts = np.sqrt(n / 2) * left @ right
        Z = whitened(parts[:, :, 0] + 1j * parts[:, :, 1])
    return Z
