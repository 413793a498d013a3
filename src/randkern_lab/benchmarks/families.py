"""Generated families of tables, on which the choices of `Tabular*` are made.

A family is a distribution of columns and of a signal computed from them. Signals have
variance 1, and noise a standard deviation of 0.4. Labels of classification tables have
two classes, whose probabilities are the logistic function of four times the signal, or,
for even seeds, four: the quarters of the noisy signal. All tables are tested on 1,000
other rows, so that errors of small tables mean something. :mod:`.scale` fits them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.special import expit

from .tables import fit_rows

# Drawn columns by name, and the signal, of n rows.
Drawn = tuple[dict[str, np.ndarray], np.ndarray]
_TEST_ROWS = 1000
_NOISE, _SLOPE = 0.4, 4.0


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


def catalogue(n: int, d: int, rng: np.random.Generator) -> Drawn:
    """Products of 20 makes: sizes, makes and a few of many options set their price.

    Numbers grow with one hidden size, two fifths of the columns are categories, and
    the signal is the price itself, with a long tail.
    """
    n_categories = max(2 * d // 5, 1)
    shares = 1 / np.arange(1, 21)
    make = rng.choice(20, n, p=shares / shares.sum())
    level = rng.normal(size=20)[make]
    size = rng.normal(size=n) + 0.6 * level
    columns: dict[str, np.ndarray] = {"make": _texts(make, "m")}
    price = 0.5 * level + 0.6 * size
    for j in range(1, n_categories):
        chances = rng.dirichlet(np.full(int(rng.integers(2, 7)), 1.5))
        option = rng.choice(len(chances), n, p=chances)
        columns[f"c{j}"] = _texts(option, "v")
        if j < 4:
            effect = 0.5 * rng.normal(size=len(chances))[option]
            price += effect * (1.0 if j < 3 else size > 0)
    for j in range(d - n_categories):
        x = rng.normal(0, 1) * size + rng.exponential(0.6) * rng.normal(size=n)
        columns[f"x{j}"] = np.exp(x / 2) if j % 3 == 0 else x
    return columns, np.exp(0.6 * price)


def answers(n: int, d: int, rng: np.random.Generator) -> Drawn:
    """Categories of two to five levels, of which three matter, in pairs and alone."""
    columns: dict[str, np.ndarray] = {}
    sizes = rng.integers(2, 6, size=d)
    codes = [rng.integers(0, size, n) for size in sizes]
    for j, code in enumerate(codes):
        columns[f"c{j}"] = _texts(code, "v")
    f = np.zeros(n)
    for first, second in ((0, 1), (1, 2)):
        pairs = sizes[first % d], sizes[second % d]
        f += rng.normal(size=pairs)[codes[first % d], codes[second % d]]
    return columns, f + rng.normal(size=sizes[0])[codes[0]]


def echoes(n: int, d: int, rng: np.random.Generator) -> Drawn:
    """Smooth spectra between 0 and 1, whose levels in three bands set the signal."""
    at = np.linspace(0, 1, d)
    similarity = np.exp(-(((at[:, None] - at) / 0.06) ** 2))
    factor = np.linalg.cholesky(similarity + 1e-6 * np.eye(d))
    Z = rng.normal(size=(n, d)) @ factor.T + rng.normal(size=(n, 1))
    bands = rng.uniform(0.1, 0.9, size=3)
    weights = np.exp(-(((at[:, None] - bands) / 0.05) ** 2))
    level = Z @ (weights / weights.sum(axis=0))
    f = level[:, 0] - level[:, 1] + 0.7 * level[:, 1] * level[:, 2]
    return _numbers(expit(1.5 * Z - 1)), f


FAMILIES: Mapping[str, Callable[[int, int, np.random.Generator], Drawn]] = {
    family.__name__: family
    for family in (
        smooth,
        rough,
        additive,
        linear,
        irrelevant,
        steps,
        interactions,
        skewed,
        spectra,
        factors,
        categories,
        levels,
        missing,
        heteroscedastic,
        catalogue,
        answers,
        echoes,
    )
}


# -- tables ---------------------------------------------------------------------------


def draw_table(
    family: str, kind: str, n: int, d: int, seed: int
) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return columns, targets, and which rows are tested, of a table of a family.

    It has n training rows and d columns.
    """
    import pandas as pd

    place = list(FAMILIES).index(family)
    rng = np.random.default_rng([seed, place, n, d])
    columns, signal = FAMILIES[family](n + _TEST_ROWS, d, rng)
    signal = (signal - signal.mean()) / signal.std()
    y = signal + _NOISE * rng.normal(size=len(signal))
    if kind == "classification" and seed % 2:
        y = (rng.random(len(signal)) < expit(_SLOPE * signal)).astype(int)
    elif kind == "classification":
        y = np.searchsorted(np.quantile(y, [0.25, 0.5, 0.75]), y)
    return pd.DataFrame(columns), y, np.arange(len(y)) >= n


def fit_generated(request: Mapping[str, Any]) -> dict[str, Any]:
    """Draw a table, and fit and score a method on it in this process."""
    names = ("family", "kind", "n", "d", "seed")
    return fit_rows(request, *draw_table(**{name: request[name] for name in names}))
