"""Generated families of tables: what a table needs, and which peers have it.

Every family is a law of tables: columns, a signal of them, and noise. Signals are
standardised, so that all families have the same share of noise, and so are the
targets of the training rows. Labels of classification tables are drawn with
probabilities that the signal gives, or are its quantiles for several classes. The
rows that are tested are many, so that their errors say something about small tables
too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

# Drawn columns by name, and the signal, of n rows.
Drawn = tuple[dict[str, np.ndarray], np.ndarray]
_TEST_ROWS = 1000
_SLOPE = 4.0


def _waves(X: np.ndarray, rng: np.random.Generator, frequency: float) -> np.ndarray:
    """Return a smooth function of all columns: 100 waves of random directions."""
    directions = frequency * rng.normal(size=(X.shape[1], 100))
    phases = rng.uniform(0, 2 * np.pi, 100)
    return np.cos(X @ directions + phases) @ rng.normal(size=100)


def _numbers(X: np.ndarray) -> dict[str, np.ndarray]:
    return {f"x{j}": column for j, column in enumerate(X.T)}


def _texts(codes: np.ndarray, name: str) -> np.ndarray:
    return np.array([f"{name}{code}" for code in codes], dtype=object)


def smooth(n: int, d: int, rng: np.random.Generator) -> Drawn:
    """A smooth function of five columns, with most of it in two."""
    X = rng.normal(size=(n, d))
    scales = np.resize([1.0, 1.0, 0.5, 0.3, 0.3], min(5, d))
    return _numbers(X), _waves(X[:, :5] * scales, rng, 0.8)


def rough(n: int, d: int, rng: np.random.Generator) -> Drawn:
    """A function of three columns with details of every size."""
    X = rng.uniform(-1, 1, size=(n, d))
    parts = [2.0**-k * _waves(X[:, :3], rng, 2.0**k) for k in range(4)]
    return _numbers(X), np.sum(parts, axis=0)


def additive(n: int, d: int, rng: np.random.Generator) -> Drawn:
    """A sum of functions of single columns: waves, steps, and absolute values."""
    X = rng.normal(size=(n, d))
    shapes: list[Callable[[np.ndarray], np.ndarray]] = [
        lambda x: np.sin(2 * x), lambda x: np.sign(x - 0.3), np.abs, lambda x: x,
    ]  # fmt: skip
    used = range(min(d, 8))
    f = [rng.uniform(0.5, 1.0) * shapes[j % 4](X[:, j]) for j in used]
    return _numbers(X), np.sum(f, axis=0)


def linear(n: int, d: int, rng: np.random.Generator) -> Drawn:
    """A linear function of correlated columns, with weights of many sizes."""
    X = rng.normal(size=(n, d)) + rng.normal(size=(n, 1))
    return _numbers(X), X @ (rng.normal(size=d) * rng.exponential(size=d))


def irrelevant(n: int, d: int, rng: np.random.Generator) -> Drawn:
    """A smooth function of two columns among many."""
    X = rng.normal(size=(n, d))
    return _numbers(X), _waves(X[:, :2], rng, 1.0)


def steps(n: int, d: int, rng: np.random.Generator) -> Drawn:
    """A sum of 30 trees of depth 3 that split six columns, the first most often."""
    X = rng.normal(size=(n, d))
    used = min(6, d)
    shares = 0.6 ** np.arange(used)
    f = np.zeros(n)
    for _ in range(30):
        columns = rng.choice(used, 3, p=shares / shares.sum())
        leaf = (X[:, columns] > rng.normal(size=3) * 0.7) @ np.array([1, 2, 4])
        f += rng.normal(size=8)[leaf]
    return _numbers(X), f


def interactions(n: int, d: int, rng: np.random.Generator) -> Drawn:
    """Products of pairs of columns."""
    X = rng.normal(size=(n, d))
    first, second = rng.choice(min(d, 8), size=(2, 4))
    return _numbers(X), (X[:, first] * X[:, second]) @ np.array([1, 1, 0.6, 0.6])


def skewed(n: int, d: int, rng: np.random.Generator) -> Drawn:
    """Columns with long tails, of whose logarithms the signal is smooth."""
    Z = rng.normal(size=(n, d)) + 0.5 * rng.normal(size=(n, 1))
    return _numbers(np.exp(1.5 * Z)), _waves(Z[:, :4], rng, 0.5)


def spectra(n: int, d: int, rng: np.random.Generator) -> Drawn:
    """Neighbouring columns that resemble each other, of two or more shapes."""
    at = np.linspace(0, 1, d)
    kinds = rng.integers(0, 4, n)
    centres = rng.uniform(0, 1, size=(4, 3))
    level = rng.uniform(0.5, 1.5, size=(n, 3))
    bumps = np.exp(-((at - centres[kinds][:, :, None]) ** 2) / 0.02)
    noise = np.cumsum(rng.normal(size=(n, d)), axis=1) / np.sqrt(d)
    X = (level[:, :, None] * bumps).sum(axis=1) + 0.6 * noise
    return _numbers(X), np.array([-1.0, 1.0, -0.7, 1.3])[kinds] + level[:, 0] - 1


def factors(n: int, d: int, rng: np.random.Generator) -> Drawn:
    """Numbers and categories that all follow three hidden factors, as the signal does.

    One category has 20 levels, the others two to six.
    """
    hidden = rng.normal(size=(n, 3))
    loadings = rng.normal(size=(3, d)) * rng.exponential(size=d)
    X = hidden @ loadings + rng.normal(size=(n, d))
    columns: dict[str, np.ndarray] = {}
    for j, x in enumerate(X.T):
        if j < 3 * d // 5:
            columns[f"x{j}"] = np.exp(x / 2) if j % 3 == 0 else x
        else:
            levels = 20 if j == d - 1 else int(rng.integers(2, 7))
            cuts = np.sort(rng.normal(size=levels - 1)) * x.std()
            order = rng.permutation(levels)
            columns[f"c{j}"] = _texts(order[np.searchsorted(cuts, x)], "v")
    f = hidden @ np.array([1.0, 0.6, 0.3]) + 0.4 * hidden[:, 0] * hidden[:, 1]
    return columns, f + 0.3 * hidden[:, 0] ** 2


def categories(n: int, d: int, rng: np.random.Generator) -> Drawn:
    """Categories of two to eight levels, with effects alone and in pairs."""
    columns: dict[str, np.ndarray] = {}
    f, codes = np.zeros(n), []
    for j in range(d):
        levels = int(rng.integers(2, 9))
        code = np.minimum(rng.geometric(2 / (levels + 1), n) - 1, levels - 1)
        codes.append(code)
        if j % 3 == 2:
            columns[f"x{j}"] = x = rng.normal(size=n)
            f += 0.5 * np.sin(x) if j < 9 else 0.0
            continue
        columns[f"c{j}"] = _texts(code, "v")
        if j < 9:
            f += rng.normal(size=levels)[code]
            f += 0.7 * rng.normal(size=(levels, 9))[code, codes[j // 2]]
    return columns, f


def levels(n: int, d: int, rng: np.random.Generator) -> Drawn:
    """A category of about as many levels as a tenth of the rows, and numbers."""
    size = max(20, n // 10)
    shares = 1 / np.arange(1, size + 1) ** 0.7
    code = rng.choice(size, n, p=shares / shares.sum())
    X = rng.normal(size=(n, d - 1))
    effect = rng.normal(size=size)
    f = 1.2 * effect[code] + _waves(X[:, :3], rng, 0.6) / 7
    return {"level": _texts(code, "v"), **_numbers(X)}, f


def missing(n: int, d: int, rng: np.random.Generator) -> Drawn:
    """A smooth function of columns with a fifth of the numbers missing.

    Missing numbers of the first column are larger than others.
    """
    X = rng.normal(size=(n, d)) + 0.7 * rng.normal(size=(n, 1))
    f = _waves(X[:, :4], rng, 0.5)
    hidden = rng.random(size=(n, d)) < 0.2
    hidden[:, 0] = rng.random(n) < expit(2 * X[:, 0] - 2)
    return _numbers(np.where(hidden, np.nan, X)), f


def heteroscedastic(n: int, d: int, rng: np.random.Generator) -> Drawn:
    """A smooth function with noise that depends on the second column."""
    X = rng.normal(size=(n, d))
    f = _waves(X[:, :3], rng, 0.6)
    f = (f - f.mean()) / f.std()
    return _numbers(X), f + rng.normal(size=n) * 0.8 * (X[:, 1] > 0.3)


FAMILIES: Mapping[str, Callable[[int, int, np.random.Generator], Drawn]] = {
    law.__name__: law
    for law in (
        *(smooth, rough, additive, linear, irrelevant, steps, interactions, skewed),
        *(spectra, factors, categories, levels, missing, heteroscedastic),
    )
}


@dataclass(frozen=True)
class Generated:
    """Training and test rows of one table."""

    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray


def generate(
    family: str, kind: str, n: int, d: int, seed: int, noise: float = 0.4
) -> Generated:
    """Draw a table of a family, with n training rows and d columns.

    `noise` is the deviation of noise relative to that of the signal. Of labels, an odd
    seed has two classes, an even one has four, which are quantiles of the signal.
    """
    import pandas as pd

    place = list(FAMILIES).index(family)
    rng = np.random.default_rng([seed, place, n, d])
    columns, f = FAMILIES[family](n + _TEST_ROWS, d, rng)
    f = (f - f.mean()) / f.std()
    if kind == "regression":
        y = f + noise * rng.normal(size=len(f))
    elif seed % 2:
        y = (rng.random(len(f)) < expit(_SLOPE * f)).astype(int)
    else:
        noisy = f + noise * rng.normal(size=len(f))
        y = np.searchsorted(np.quantile(noisy, [0.25, 0.5, 0.75]), noisy)
    table = pd.DataFrame(columns)
    return Generated(table[:n], y[:n], table[n:].reset_index(drop=True), y[n:])
