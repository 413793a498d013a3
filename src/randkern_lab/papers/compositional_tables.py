"""Tables of mixed types: base spaces per column against one-hot columns.

Daniely, Frostig, Gupta and Singer (2017), sections 4 and 5.

The original. It has base spaces for numbers (Gaussian) and categories, composed by a
skeleton, but no experiment on tables.

Here. The compositional kernel reads every column on the base space of its type, under
one exponential node or under ReLU nodes; the usual alternative is one-hot columns,
standardised numbers and a Gaussian or linear kernel. All choose their hyperparameters
on the same five folds of the training rows, by their exact kernel; then they are fitted
exactly and with random features, for which the penalty is chosen again. Results are
means and paired differences over repeated splits.

The data are scikit-learn's diabetes (the sex is a category) and wine (numbers only),
and a generated table of three numbers, the last without effect, a city, a kind, and a
day without effect: y = sin(2x₁ + phase of the city) + x₂·sign of the kind + noise/2.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_diabetes, load_wine
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import KFold, StratifiedKFold, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import randkern
from randkern.skeletons import Exponential, TableToBases
from randkern.study.preparation import TEST_SHARE

from ..figures import BLUE, RED, add_legend, name_axes, panels
from ..options import CommonOptions, Names, option
from ..runner import Case, grid, measure_all
from ..scoring import fit_and_score
from ..tables import count, mean_interval, pivot

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
_KEYS = ["data", "method", "n_components"]
_TABLES = ("diabetes", "wine", "generated")

Setting = dict[str, float]


@dataclass(frozen=True)
class Options(CommonOptions):
    """Options of ``randkern reproduce compositional-tables``."""

    data: Names = option(_TABLES, "", among=_TABLES)
    n_components: int = option(1000, "Features, beside the exact kernels.", quick=100)
    repeats: int = option(10, "Splits into training and test rows.", quick=2, least=2)
    rows: int = option(800, "Rows of the generated table.", quick=120, least=100)


@dataclass(frozen=True)
class Table:
    """Rows with categories as numbers, and the columns that hold these."""

    X: NDArray[np.float64]
    y: NDArray[Any]
    categorical: tuple[int, ...] = ()
    classifies: bool = False


def _bundled(data: Any, *kind: Any) -> Table:
    return Table(data.data, data.target, *kind)


def _generated(rows: int, seed: int) -> Table:
    rng = np.random.default_rng(seed)
    numbers = rng.normal(size=(rows, 3))
    city, kind, day = (rng.integers(k, size=rows) for k in _LEVELS)
    phase, sign = np.arange(8) * (np.pi / 4), (-1, 0, 1)
    y = np.sin(2 * numbers[:, 0] + phase[city]) + numbers[:, 1] * np.take(sign, kind)
    y += 0.5 * rng.normal(size=rows)
    return Table(np.column_stack([numbers, city, kind, day]), y, (3, 4, 5))


# Each is a function of the number of rows and the seed of the generated table.
DATA: Mapping[str, Callable[[int, int], Table]] = {
    # Column 1 is the sex.
    "diabetes": lambda *_: _bundled(load_diabetes(scaled=False), (1,)),
    "wine": lambda *_: _bundled(load_wine(), (), True),
    "generated": _generated,
}


def run(options: Options) -> pd.DataFrame:
    """Fit every method to repeated splits of every table."""
    sets = {}
    for name in options.data:
        table = DATA[name](options.rows, options.seed)
        sets[name] = {
            "n_rows": len(table.X),
            "n_features": table.X.shape[1],
            "categorical": list(table.categorical),
            "metric": "misclassified share" if table.classifies else "1 - R²",
        }
    seeds = range(options.seed, options.seed + options.repeats)
    cases = grid(data=options.data, seed=seeds, method=METHODS)
    records = measure_all(options, cases, partial(fitted, options))
    records.attrs["dataset"] = {"name": ", ".join(sets), "sets": sets}
    return records


def fitted(options: Options, case: Case) -> Iterator[Case]:
    """Choose a setting on folds, and score the exact kernel and features."""
    method, seed = case["method"], case["seed"]
    table = DATA[case["data"]](options.rows, seed)
    split = train_test_split(
        np.arange(len(table.y)),
        test_size=TEST_SHARE,
        stratify=table.y if table.classifies else None,
        random_state=seed,
    )
    train, test = (replace(table, X=table.X[i], y=table.y[i]) for i in split)
    created: Any = randkern.KernelRidgeRegressor
    score = r2_score
    if table.classifies:
        created = randkern.KernelRidgeClassifier
        score = accuracy_score
    result = [
        (*validated(train, method, setting, seed), setting)
        for setting in settings(method, options.quick)
    ]
    loss, alpha, setting = min(result, key=lambda choice: choice[0])
    # A linear kernel has at most as many features as columns.
    sizes = [None] if method == "linear" else [None, options.n_components]
    for size in sizes:
        if size is not None:
            loss, alpha = validated(train, method, setting, seed, size)
        transformer, kernel = prepared(train, method, setting)
        ridge = created(kernel, alpha, size, fit_intercept=True, random_state=seed)
        model = make_pipeline(transformer, ridge)
        trial = fit_and_score(model, train.X, train.y, test.X, test.y, score)
        yield {
            "n_components": size,
            "setting": setting,
            "alpha": alpha,
            "validation_loss": loss,
            "fit_seconds": trial.fit.seconds,
            "test_error": 1 - float(trial.score),
        }


def tables(frame: pd.DataFrame) -> Iterator[Any]:
    by = ("data", "n_components")
    look: Mapping[str, Any] = {"headings": METHODS}
    title = "test error in %, means over {arguments[repeats]} splits"
    yield from pivot(means(frame), title, by, "method", "{test_error:.1p}", **look)
    title = (
        f"difference from '{METHODS[_USUAL]}' on the same splits in % (95 % interval)"
    )
    cell = "{difference:+.1p} ({low:+.1p} to {high:+.1p})"
    yield from pivot(differences(frame), title, by, "method", cell, **look)


def figure(frame: pd.DataFrame) -> Any:
    """Return the test errors of every split and method, and their means."""
    sets = list(frame.attrs["dataset"]["sets"])
    figure, axes = panels(len(sets), size=(3.9, 3.6))
    rows = {method: -i for i, method in enumerate(METHODS)}
    for place, data in zip(axes, sets, strict=True):
        splits = frame[frame.data == data]
        averages = means(splits)
        several = f"{averages.n_components.max():,.0f} features"
        for exact, label, colour, marker, shift in (
            (True, "exact", BLUE, "o", 0.12),
            (False, several, RED, "^", -0.12),
        ):
            look: Mapping[str, Any] = {"c": colour, "marker": marker, "linewidths": 0}
            for records, size, alpha in ((splits, 14, 0.3), (averages, 48, 1.0)):
                own = records[records.n_components.isna() == exact]
                x, y = 100 * own.test_error, own.method.map(rows) + shift
                name = label if records is averages else None
                place.scatter(x, y, s=size, alpha=alpha, label=name, **look)
        place.set_yticks(list(rows.values()), list(METHODS.values()), fontsize=8)
        place.set_xlim(left=0)
        name_axes(place, data, "test error (%)")
    add_legend(figure)
    return figure


def notes(frame: pd.DataFrame) -> Iterator[str]:
    """Yield which choices were mostly the smallest or largest of those tried."""
    quick = frame.attrs["arguments"]["quick"]
    for named, own in frame.groupby(_KEYS, sort=False, dropna=False):
        data, method, size = named
        tried: dict[str, list[float]] = {"alpha": _ALPHAS.tolist()}
        chosen = pd.DataFrame({"alpha": own.alpha})
        if size != size:  # with features, only the penalty is chosen again
            chosen = chosen.join(pd.DataFrame(list(own.setting), own.index))
            for name in chosen.columns.drop("alpha"):
                tried[name] = [setting[name] for setting in settings(method, quick)]
        for name, values in tried.items():
            ends = {"least": min(values), "greatest": max(values)}
            shares = {
                end: (chosen[name] == value).mean() for end, value in ends.items()
            }
            end = max(shares, key=lambda end: shares[end])
            # A depth cannot be less than 1.
            if shares[end] > 0.5 and (name, end) != ("depth", "least"):
                yield (
                    f"warning, {data}, {METHODS[method]}, D = {count(size)}: "
                    f"{100 * shares[end]:.0f} % of the splits chose the {end} {name} "
                    "that was tried"
                )


def settings(method: str, quick: bool = False) -> list[Setting]:
    """Return the settings to try for a method."""
    if method == "linear":
        return [{}]
    if method == "gaussian":
        result = [{"lengthscale": float(value)} for value in _LENGTHSCALES]
    else:
        name, inner = ("a", _SLOPES) if method == "by-type" else ("depth", _DEPTHS)
        result = [{"scale": s, name: value} for s in _BASE_SCALES for value in inner]
    return result[:: -(-len(result) // 3) if quick else 1]


def prepared(table: Table, method: str, setting: Setting) -> Any:
    """Return the fitted transformer of a method, and its kernel."""
    X = table.X
    if method.startswith("by-type"):
        to_bases = TableToBases(table.categorical, scale=setting["scale"]).fit(X)
        if method == "by-type":
            skeleton = to_bases.skeleton(Exponential(setting["a"]))
        else:
            skeleton = to_bases.skeleton("relu", depth=int(setting["depth"]))
        return to_bases, randkern.Compositional(skeleton)
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


def validated(
    table: Table, method: str, setting: Setting, seed: int, size: int | None = None
) -> tuple[float, float]:
    """Return the smallest mean squared error over folds, and its penalty.

    It is that of the exact kernel, or of `size` features.
    """
    transformer, kernel = prepared(table, method, setting)
    X, y = transformer.transform(table.X), table.y
    # Classes as columns of ±1; a regression target in units of its standard deviation.
    if table.classifies:
        Y = 2.0 * (y[:, None] == np.unique(y)) - 1
    else:
        Y = (y - y.mean()) / y.std()
    splitter = StratifiedKFold if table.classifies else KFold
    folds = splitter(_FOLDS, shuffle=True, random_state=seed).split(X, y)
    model = randkern.KernelRidgeRegressorCV(
        kernel,
        _ALPHAS.tolist(),
        size,
        scoring="neg_mean_squared_error",
        cv=list(folds),
        fit_intercept=True,
        random_state=seed,
    ).fit(X, Y)
    return -float(model.best_score_), float(model.alpha_)


def means(frame: pd.DataFrame) -> pd.DataFrame:
    """Return mean errors over the splits."""
    result = frame.groupby(_KEYS, sort=False, dropna=False).test_error.mean()
    result.attrs = frame.attrs
    return result.reset_index()


def differences(records: pd.DataFrame) -> pd.DataFrame:
    """Return mean differences from the usual kernel, with intervals by Student's t."""
    index = ["data", "n_components", "seed"]
    splits = records.assign(n_components=records.n_components.fillna(0))
    splits = splits.pivot(index=index, columns="method", values="test_error")
    gaps = splits.drop(columns=_USUAL).sub(splits[_USUAL], axis=0)
    rows = []
    for data, method, size in records[_KEYS].drop_duplicates().itertuples(index=False):
        if method != _USUAL:
            own = gaps.loc[data].loc[0 if size != size else size, method]
            row = {"data": data, "method": method, "n_components": size}
            row |= zip(("difference", "low", "high"), mean_interval(own), strict=True)
            rows.append(row | {"seeds": len(own)})
    return pd.DataFrame(rows)
