"""Tables of mixed types: base spaces by column beside one-hot columns and a Gaussian.

The compositional kernel reads every column on the base space of its type (numbers on a
Gaussian space, categories on a categorical one) through a pipeline; what is usual
instead are one-hot columns, standardised numbers and a Gaussian kernel. All choose
their hyperparameters on the same folds of the training rows.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_diabetes, load_wine
from sklearn.model_selection import KFold, StratifiedKFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import randkern
from randkern._validation import check_count
from randkern.models.ridge_path import DualPath
from randkern.skeletons import Exponential, TableToBases
from randkern.study.preparation import TEST_SHARE

from .reproductions import CommonOptions, Progress, TextTable, begin_results

__all__ = ["DATA", "METHODS", "Options", "figure", "run", "tables"]

METHODS: Mapping[str, str] = {
    "linear": "one-hot, linear",
    "gaussian": "one-hot, Gaussian",
    "by-type": "by type, exponential node",
    "by-type-relu": "by type, ReLU nodes",
}
_USUAL = "gaussian"
_ALPHAS = np.logspace(-6, 4, 21)
_FOLDS = 5
_LENGTHSCALES = tuple(2.0 ** np.arange(-2, 2.5, 0.5))
_BASE_SCALES = tuple(2.0 ** np.arange(-4, 2))
_SLOPES, _DEPTHS = tuple(2.0 ** np.arange(-2, 3)), (1, 2, 4, 8)
_LEVELS = (8, 3, 7)  # of the generated city, kind and day


@dataclass(frozen=True)
class Options(CommonOptions):
    """What ``randkern reproduce compositional-tables`` takes."""

    data: Annotated[str, "diabetes, wine, generated, or several with commas."] = (
        "diabetes,wine,generated"
    )
    n_components: Annotated[int, "Features, beside the exact kernels."] = 1_000
    repeats: Annotated[int, "Splits into training and test rows."] = 10
    rows: Annotated[int, "Rows of the generated table."] = 800


@dataclass(frozen=True)
class _Table:
    """Rows whose categories are numbers, and which columns hold them."""

    X: NDArray[np.float64]
    y: NDArray[Any]
    categorical: tuple[int, ...]
    classifies: bool


def _diabetes(rows: int, seed: int) -> _Table:
    X, y = load_diabetes(return_X_y=True, scaled=False)
    return _Table(X, y, (1,), False)  # column 1 is the sex


def _wine(rows: int, seed: int) -> _Table:
    X, y = load_wine(return_X_y=True)
    return _Table(X, y, (), True)


def _generated(rows: int, seed: int) -> _Table:
    """Return y = sin(2x₁ + phase of the city) + x₂·sign of the kind + noise/2.

    Columns: three normal numbers, the last without effect, a city, a kind, and a day
    that has none.
    """
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(rows, 3))
    city, kind, day = (rng.integers(k, size=rows) for k in _LEVELS)
    phase, sign = np.arange(8) * (np.pi / 4), (-1, 0, 1)
    y = np.sin(2 * numbers[:, 0] + phase[city]) + numbers[:, 1] * np.take(sign, kind)
    y += 0.5 * rng.normal(size=rows)
    return _Table(np.column_stack([numbers, city, kind, day]), y, (3, 4, 5), False)


DATA: Mapping[str, Callable[[int, int], _Table]] = {
    "diabetes": _diabetes,
    "wine": _wine,
    "generated": _generated,
}


def run(options: Options, progress: Progress | None = None) -> dict[str, Any]:
    """Measure test errors of every method on repeated splits of every table.

    Parameters
    ----------
    options : Options
    progress : callable, optional

    Returns
    -------
    results : dict
        As :func:`.reproductions.begin_results`. A record has ``data``, ``method`` (of
        :data:`METHODS`), ``n_components`` (None: exact), ``seed`` (of the split and
        the features), ``setting`` (``lengthscale`` in units of the training columns'
        own; or ``scale`` of the bases and ``a`` or ``depth``: chosen for the exact
        kernel), ``alpha`` (chosen for every number of features),
        ``validation_loss``, ``test_error`` (share of the variance that is not
        explained, or misclassified share), ``fit_seconds``. ``means`` has by ``data``,
        ``method`` and ``n_components`` the ``test_error``; ``differences`` by ``data``,
        ``method`` and ``n_components`` that from one-hot and Gaussian on the same
        splits: ``difference``, ``low`` and ``high`` (95 %), ``seeds``. ``edges`` has by
        ``data``, ``method``, ``n_components`` and ``parameter`` the share of splits
        that chose the least and the greatest value tried, ``at_least`` and
        ``at_greatest``, where one is positive.

    Examples
    --------
    >>> from randkern_lab.papers.compositional_tables import Options, run
    >>> results = run(Options(quick=True, data="wine"))
    >>> sorted({record["method"] for record in results["records"]})
    ['by-type', 'by-type-relu', 'gaussian', 'linear']
    """
    start = time.perf_counter()
    named = (name.strip() for name in options.data.split(","))
    names = list(dict.fromkeys(name for name in named if name))
    unknown = [name for name in names if name not in DATA]
    if unknown or not names:
        got = repr(unknown[0] if unknown else options.data)
        raise ValueError(f"data must be of {', '.join(DATA)}, got {got}")
    size, rows = (
        check_count("n_components", options.n_components),
        check_count("rows", options.rows),
    )
    if rows < 100 or check_count("repeats", options.repeats) < 2:
        raise ValueError(
            "rows must be 100 or more, and repeats 2 or more, got "
            f"{rows} and {options.repeats}"
        )
    repeats = options.repeats
    if options.quick:
        size, rows, repeats = min(size, 100), min(rows, 120), 2
    results = begin_results("compositional-tables", options)
    todo = [(name, options.seed + i) for name in names for i in range(repeats)]
    for done, (name, seed) in enumerate(todo):
        if progress is not None:
            progress(done, len(todo), f"{name}, split {seed}")
        table = DATA[name](rows, seed)
        for method in METHODS:
            fitted = _fitted(table, method, size, seed, options.quick)
            results["records"] += [{"data": name} | record for record in fitted]
    if progress is not None:
        progress(len(todo), len(todo), "done")
    results |= {
        "dataset": {
            "name": ", ".join(names),
            "sets": {
                name: _described(DATA[name](rows, options.seed)) for name in names
            },
        },
        "means": _means(results["records"]),
        "differences": _differences(results["records"]),
        "edges": _edges(results["records"], options.quick),
        "seconds": time.perf_counter() - start,
    }
    results["notes"] = list(_notes(results))
    return results


def _described(table: _Table) -> dict[str, Any]:
    return {
        "n_rows": len(table.X),
        "n_features": table.X.shape[1],
        "categorical": list(table.categorical),
        "metric": "misclassified share" if table.classifies else "1 - R²",
    }


# -- methods ------------------------------------------------------------------------

Setting = dict[str, float]


def _settings(method: str, quick: bool = False) -> list[Setting]:
    grid = _grid(method)
    return grid[:: -(-len(grid) // 3) if quick else 1]


def _grid(method: str) -> list[Setting]:
    if method == "linear":
        return [{}]
    if method == "gaussian":
        return [{"lengthscale": float(value)} for value in _LENGTHSCALES]
    inner = ("a", _SLOPES) if method == "by-type" else ("depth", _DEPTHS)
    return [
        {"scale": scale, inner[0]: value}
        for scale in _BASE_SCALES
        for value in inner[1]
    ]


def _prepared(table: _Table, X: NDArray[Any], method: str, setting: Setting) -> Any:
    """Return the transformer of a method, fitted, and its kernel."""
    if method in ("linear", "gaussian"):
        numbers = [j for j in range(X.shape[1]) if j not in table.categorical]
        one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
        parts = [
            ("numbers", StandardScaler(), numbers),
            ("categories", one_hot, list(table.categorical)),
        ]
        encoder = ColumnTransformer(parts).fit(X)
        if method == "linear":
            return encoder, randkern.Linear()
        own = randkern.Gaussian("scale").resolve(encoder.transform(X)).lengthscale
        return encoder, randkern.Gaussian(float(own * setting["lengthscale"]))
    to_bases = TableToBases(table.categorical, scale=setting["scale"]).fit(X)
    if method == "by-type":
        skeleton = to_bases.skeleton(Exponential(setting["a"]))
    else:
        skeleton = to_bases.skeleton("relu", depth=int(setting["depth"]))
    return to_bases, randkern.Compositional(skeleton)


def _fitted(
    table: _Table, method: str, size: int, seed: int, quick: bool
) -> Iterator[dict[str, Any]]:
    """Choose a setting on folds, and yield the test errors of both models."""
    stratify = table.y if table.classifies else None
    train, test = train_test_split(
        np.arange(len(table.y)),
        test_size=TEST_SHARE,
        stratify=stratify,
        random_state=seed,
    )
    X, y = table.X[train], table.y[train]
    found = [
        (*_validated(table, X, y, method, setting, seed), setting)
        for setting in _settings(method, quick)
    ]
    loss, alpha, setting = min(found, key=lambda choice: choice[0])
    features_loss, features_alpha = _validated(
        table, X, y, method, setting, seed, None if method == "linear" else size
    )
    transformer, kernel = _prepared(table, X, method, setting)
    # A linear kernel takes no more features than it has columns.
    for n_components in (None,) if method == "linear" else (None, size):
        if n_components is not None:
            loss, alpha = features_loss, features_alpha
        made = (
            randkern.KernelRidgeClassifier
            if table.classifies
            else randkern.KernelRidgeRegressor
        )
        model = make_pipeline(
            transformer,
            made(
                kernel,
                alpha=alpha,
                n_components=n_components,
                fit_intercept=True,
                random_state=seed,
            ),
        )
        start = time.perf_counter()
        model.fit(X, y)
        seconds = time.perf_counter() - start
        yield {
            "method": method,
            "n_components": n_components,
            "seed": seed,
            "setting": setting,
            "alpha": alpha,
            "validation_loss": loss,
            "test_error": 1 - float(model.score(table.X[test], table.y[test])),
            "fit_seconds": seconds,
        }


def _validated(
    table: _Table,
    X: NDArray[Any],
    y: NDArray[Any],
    method: str,
    setting: Setting,
    seed: int,
    size: int | None = None,
) -> tuple[float, float]:
    """Return the least mean squared error over folds, and its penalty.

    Of the exact kernel, or of `size` features.
    """
    transformer, kernel = _prepared(table, X, method, setting)
    points = transformer.transform(X)
    if size is None:
        K = np.asarray(kernel(points))
    else:
        features = randkern.RandomFeatures(kernel, size, random_state=seed)
        Z = features.fit_transform(points)
        K = Z @ Z.T
    # Classes as columns of ±1; a regression's target as it is, in units of its spread.
    if table.classifies:
        Y = 2.0 * (y[:, None] == np.unique(y)) - 1
    else:
        Y = ((y - y.mean()) / y.std())[:, None]
    splitter = StratifiedKFold if table.classifies else KFold
    losses = np.zeros(len(_ALPHAS))
    for fitting, held in splitter(_FOLDS, shuffle=True, random_state=seed).split(X, y):
        among = K[np.ix_(fitting, fitting)].astype(np.float64)
        path = DualPath.of(among, Y[fitting], None, _ALPHAS, True)
        predicted = path.predict(K[np.ix_(held, fitting)])
        losses += np.sum((predicted - Y[held]) ** 2, axis=(1, 2)) / Y.size
    best = int(losses.argmin())
    return float(losses[best]), float(_ALPHAS[best])


# -- results ------------------------------------------------------------------------

_Key = tuple[str, str, int | None]


def _errors(records: Sequence[Mapping[str, Any]]) -> dict[_Key, dict[int, float]]:
    """Return test errors by seed, of every data set, method and number of features."""
    found: dict[_Key, dict[int, float]] = {}
    for r in records:
        key = (r["data"], r["method"], r["n_components"])
        found.setdefault(key, {})[r["seed"]] = r["test_error"]
    return found


def _named(key: _Key) -> dict[str, Any]:
    return dict(zip(("data", "method", "n_components"), key, strict=True))


def _means(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        _named(key) | {"test_error": float(np.mean(list(by_seed.values())))}
        for key, by_seed in _errors(records).items()
    ]


def _differences(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return mean differences from the usual kernel, with intervals by Student's t."""
    errors = _errors(records)
    found = []
    for (data, method, size), by_seed in errors.items():
        usual = errors.get((data, _USUAL, size))
        if method == _USUAL or usual is None:
            continue
        gaps = np.array([by_seed[seed] - usual[seed] for seed in sorted(by_seed)])
        mean, n = float(gaps.mean()), len(gaps)
        half = float(student.ppf(0.975, n - 1) * gaps.std(ddof=1) / np.sqrt(n))
        found.append(
            _named((data, method, size))
            | {"difference": mean, "low": mean - half, "high": mean + half, "seeds": n}
        )
    return found


def _edges(records: Sequence[Mapping[str, Any]], quick: bool) -> list[dict[str, Any]]:
    """Return how often a choice was the least or the greatest of those tried."""
    found = []
    for key in dict.fromkeys(
        (r["data"], r["method"], r["n_components"]) for r in records
    ):
        own = [r for r in records if _named(key).items() <= r.items()]
        tried: dict[str, list[float]] = {"alpha": _ALPHAS.tolist()}
        chosen = {"alpha": [r["alpha"] for r in own]}
        for parameter in own[0]["setting"] if key[2] is None else ():
            tried[parameter] = [s[parameter] for s in _settings(key[1], quick)]
            chosen[parameter] = [r["setting"][parameter] for r in own]
        for parameter, values in chosen.items():
            shares = {
                "at_least": float(np.mean(np.equal(values, min(tried[parameter])))),
                "at_greatest": float(np.mean(np.equal(values, max(tried[parameter])))),
            }
            if any(shares.values()):
                found.append(_named(key) | {"parameter": parameter} | shares)
    return found


def _notes(results: Mapping[str, Any]) -> Iterator[str]:
    for d in results["differences"]:
        if d["n_components"] is None and d["method"] != "linear":
            verdict = "not told apart from"
            if d["high"] < 0:
                verdict = "better than"
            elif d["low"] > 0:
                verdict = "worse than"
            yield (
                f"{d['data']}: {METHODS[d['method']]} is {verdict} {METHODS[_USUAL]} "
                f"({100 * d['difference']:+.1f} %, {100 * d['low']:+.1f} to "
                f"{100 * d['high']:+.1f})"
            )
    for e in results["edges"]:
        share = max(e["at_least"], e["at_greatest"])
        # No depth is less than 1.
        if share > 0.5 and (e["parameter"] != "depth" or e["at_greatest"] == share):
            end = "least" if e["at_least"] == share else "greatest"
            size = e["n_components"]
            yield (
                f"{e['data']}, {METHODS[e['method']]}, "
                f"{'exact' if size is None else f'D = {size:,}'}: {100 * share:.0f} % "
                f"of the splits chose the {end} {e['parameter']} that was tried"
            )
    yield f"all in {results['seconds']:.0f} s"


def tables(results: Mapping[str, Any]) -> list[TextTable]:
    """Return mean test errors, and their differences from the usual kernel."""
    n_seeds = len({r["seed"] for r in results["records"]})
    errors = TextTable(
        f"test error in %, means over {n_seeds} splits",
        ("data, D", *METHODS.values()),
    )
    usual = METHODS[_USUAL]
    gaps = TextTable(
        f"difference from '{usual}' on the same splits in % (95 % interval)",
        ("data, D", *(label for label in METHODS.values() if label != usual)),
    )
    keys = dict.fromkeys((m["data"], m["n_components"]) for m in results["means"])
    for data, size in keys:
        label = f"{data}, {'exact' if size is None else f'{size:,}'}"
        here = [
            {r["method"]: r for r in results[kind] if _is_of(r, data, size)}
            for kind in ("means", "differences")
        ]
        means, differences = here
        errors.rows.append(
            (label, *(_mean_cell(means.get(method)) for method in METHODS))
        )
        others = (method for method in METHODS if method != _USUAL)
        gaps.rows.append(
            (label, *(_gap_cell(differences.get(method)) for method in others))
        )
    return [errors, gaps]


def _is_of(record: Mapping[str, Any], data: str, size: int | None) -> bool:
    return (record["data"], record["n_components"]) == (data, size)


def _mean_cell(mean: Mapping[str, Any] | None) -> str:
    return "" if mean is None else f"{100 * mean['test_error']:.1f}"


def _gap_cell(gap: Mapping[str, Any] | None) -> str:
    if gap is None:
        return ""
    low, high = 100 * gap["low"], 100 * gap["high"]
    return f"{100 * gap['difference']:+.1f} ({low:+.1f} to {high:+.1f})"


def figure(results: Mapping[str, Any]) -> Any:
    """Return test errors of every split, method and table."""
    from .compositional_figures import plot_tables

    return plot_tables(results)
