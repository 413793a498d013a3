"""Tables of numbers and categories: ours against trees and other kernel methods.

Every file of a folder is a table: CSV or Parquet, with a column to predict, and
optionally a column ``fold`` that groups the rows tested together; without it, a fifth
of the rows, drawn by the seed, is tested. Columns of ``--drop`` are not used, such as
the subjects whose rows a fold holds out together. Methods use their defaults and get
columns as their documentation recommends: trees get categories as such, kernel methods
the numbers of `TabularEncoder`. Regression errors are root mean squared errors of
targets standardised on the training rows, classification errors are shares of wrong
labels. Each fit runs in its own process. Without a folder the tables are
scikit-learn's.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import studentized_range
from sklearn.pipeline import make_pipeline

import randkern as rk

from ..contenders import Contender, check_any
from ..figures import logarithmic, new_figure
from ..options import CommonOptions, Names, option
from ..process import in_fresh_process
from ..runner import Case, grid, measure_all
from ..scoring import fit_and_score, misclassified
from ..tables import pivot

METHODS: Mapping[str, Contender] = {
    name: Contender(label, colour, marker, needs=tuple(needs))
    for name, label, colour, marker, *needs in (
        ("tabular", "randkern, Tabular*", "blue", "o"),
        ("ridge", "randkern, ridge CV", "blue", "v"),
        ("hgb", "HistGradientBoosting", "red", "o"),
        ("lightgbm", "LightGBM", "orange", "s", "lightgbm"),
        ("xgboost", "XGBoost", "pink", "^", "xgboost"),
        ("catboost", "CatBoost", "green", "P", "catboost"),
        ("forest", "random forest", "sky", "X"),
    )
}
_ENDINGS = {"regression": "Regressor", "classification": "Classifier"}
_TYPES = {".csv", ".csv.gz", ".parquet"}
_BUNDLED = ("diabetes", "breast_cancer", "wine")
_TEST_SHARE = 0.2
# Numeric targets with more distinct values are regression targets.
_MAX_CLASSES = 20
_MIN_PROBABILITY = 1e-15


# -- methods --------------------------------------------------------------------------

# Their modules, their names with the kind left open, and what they are asked.
_MODELS: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "tabular": ("randkern", "Tabular{}", {}),
    "ridge": ("randkern", "KernelRidge{}CV", {"fit_intercept": True}),
    "hgb": (
        "sklearn.ensemble",
        "HistGradientBoosting{}",
        {"categorical_features": "from_dtype"},
    ),
    "lightgbm": ("lightgbm", "LGBM{}", {"verbosity": -1}),
    "xgboost": ("xgboost", "XGB{}", {"enable_categorical": True}),
    "catboost": (
        "catboost",
        "CatBoost{}",
        {"verbose": 0, "allow_writing_files": False},
    ),
    "forest": ("sklearn.ensemble", "RandomForest{}", {"n_jobs": -1}),
}


def _unfitted(request: Mapping[str, Any], texts: list[str]) -> Any:
    """Return the unfitted model for rows with some columns of texts."""
    method = request["method"]
    module, name, options = _MODELS[method]
    if method == "tabular":
        options = {"time_limit": request["time_limit"]}
    if method == "catboost":
        options = {**options, "cat_features": texts}
    made = getattr(import_module(module), name.format(_ENDINGS[request["kind"]]))
    model = made(random_state=request["seed"], **options)
    encoded = method in ("ridge", "forest")
    return make_pipeline(rk.TabularEncoder(), model) if encoded else model


def _columns(X: Any, method: str) -> tuple[Any, list[str]]:
    """Return columns with categories as a method expects them, and their names."""
    texts = [name for name in X if X[name].dtype.kind not in "fiub"]
    if method in ("hgb", "lightgbm", "xgboost"):
        return X.astype(dict.fromkeys(texts, "category")), texts
    if method == "catboost":
        return X.assign(**{t: X[t].astype(object).fillna("") for t in texts}), texts
    return X, texts


def fit_table(request: Mapping[str, Any]) -> dict[str, Any]:
    """Fit and score a method on a table in this process."""
    return fit_rows(request, *read_table(request))


def fit_rows(
    request: Mapping[str, Any], X: Any, y: np.ndarray, test: np.ndarray
) -> dict[str, Any]:
    """Fit a method to the rows that are not tested, and score it on the others."""
    regression = request["kind"] == "regression"
    X, texts = _columns(X, request["method"])
    X, X_test = X[~test], X[test]
    if regression:
        mean, deviation = y[~test].mean(), y[~test].std() or 1.0
        y, y_test = (y[~test] - mean) / deviation, (y[test] - mean) / deviation
    else:
        classes, labels = np.unique(y, return_inverse=True)
        y, y_test = labels[~test], labels[test]
    model = _unfitted(request, texts)
    trial = fit_and_score(model, X, y, X_test, y_test, _rmse if regression else _wrong)
    log_loss = coverage = None
    if regression and hasattr(model, "predict_interval"):
        low, high = model.predict_interval(X_test, 0.9).T
        coverage = float(np.mean((low <= y_test) & (y_test <= high)))
    if not regression and hasattr(model, "predict_proba"):
        P = np.zeros((len(y_test), len(classes)))
        P[:, model.classes_] = model.predict_proba(X_test)
        chosen = P[np.arange(len(y_test)), y_test].clip(_MIN_PROBABILITY, 1)
        log_loss = float(-np.log(chosen).mean())
    return {
        **{"n_train": len(X), "n_test": len(X_test), "n_columns": X.shape[1]},
        **trial.record(),
        **{"log_loss": log_loss, "coverage": coverage},
        "fit_cpu_seconds": trial.fit.cpu_seconds,
    }


def _rmse(y: np.ndarray, predicted: np.ndarray) -> float:
    return float(np.sqrt(np.mean((np.ravel(predicted) - y) ** 2)))


def _wrong(y: np.ndarray, predicted: np.ndarray) -> float:
    return misclassified(y, np.ravel(predicted))


# -- tables ---------------------------------------------------------------------------


def table_paths(folder: Path | None) -> dict[str, str | None]:
    """Return the files of a folder and of its sub-folders, by table name."""
    if folder is None:
        return dict.fromkeys(_BUNDLED)
    files: dict[str, str | None] = {
        path.name.split(".")[0]: str(path)
        for path in sorted(Path(folder).rglob("*"))
        if "".join(path.suffixes) in _TYPES
    }
    if not files:
        raise ValueError(f"no table in {folder}: expected files of {sorted(_TYPES)}.")
    return files


def read_table(request: Mapping[str, Any]) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return columns, targets, and which rows are test rows."""
    path, target = request["path"], request["target"]
    if path is None:
        from sklearn import datasets

        load = getattr(datasets, f"load_{request['table']}")
        X, y = load(return_X_y=True, as_frame=True)
    else:
        table = pd.read_parquet(path) if path.endswith("t") else pd.read_csv(path)
        if target not in table:
            raise ValueError(
                f"{path} has no column {target!r}, only {list(table)}; name it by "
                "--target."
            )
        y, X = table[target], table.drop(columns=target)
        X = X.drop(columns=list(request["drop"]), errors="ignore")
    fold = request["fold"]
    if "fold" in X:
        test = (X.pop("fold") == fold).to_numpy()
    else:
        share = np.random.default_rng(request["seed"]).permutation(len(X)) / len(X)
        test = (share >= fold * _TEST_SHARE) & (share < (fold + 1) * _TEST_SHARE)
    if not test.any() or test.all():
        raise ValueError(f"{request['table']} has no fold {fold} beside others.")
    return X, y.to_numpy(), test


def kind_of(y: np.ndarray) -> str:
    """Infer ``"regression"`` or ``"classification"`` from the targets."""
    if y.dtype.kind not in "fiu":
        return "classification"
    is_real = bool((y % 1 != 0).any()) or len(np.unique(y)) > _MAX_CLASSES
    return "regression" if is_real else "classification"


# -- summaries ------------------------------------------------------------------------


def ranks(frame: pd.DataFrame) -> dict[str, dict[str, Any]]:
    """Return mean ranks of the methods that fitted all tables of a kind, by measure.

    With them, on how many tables the first method is as good as each other one, or
    better. Errors are means over folds. There are at least two methods and two tables.
    """
    found = {}
    for kind, measure in (
        ("regression", "test_error"),
        ("classification", "test_error"),
        ("classification", "log_loss"),
    ):
        own = frame[(frame.kind == kind) & frame[measure].notna()]
        errors = own.pivot_table(measure, "table", "method").dropna(axis=1)
        errors = errors[[method for method in METHODS if method in errors]]
        n_tables, n_methods = errors.shape
        if n_methods > 1 and n_tables > 1:
            first, *others = errors
            means = errors.rank(axis=1).mean().sort_values(kind="stable")
            as_good = errors[others].ge(errors[first], axis=0).sum()
            found[f"{kind}, {measure}"] = {
                "ranks": means.to_dict(),
                "first": METHODS[first].label,
                "first_as_good": as_good.to_dict(),
                "n_tables": n_tables,
                "critical_difference": critical_difference(n_methods, n_tables),
            }
    return found


def critical_difference(n_methods: int, n_tables: int) -> float:
    """Return Nemenyi's critical difference of mean ranks at the 5 % level.

    Demšar 2006, "Statistical comparisons of classifiers over multiple data sets".
    """
    quantile = studentized_range.ppf(0.95, n_methods, np.inf) / np.sqrt(2)
    return float(quantile * np.sqrt(n_methods * (n_methods + 1) / (6 * n_tables)))


def _ranked(frame: pd.DataFrame) -> Iterator[Case]:
    """Yield the methods of each ranking, with their ranks as they are shown."""
    for name, result in ranks(frame).items():
        ranking = name.replace("test_error", "error").replace("_", " ")
        for method, rank in result["ranks"].items():
            wins = result["first_as_good"].get(method)
            shown = f"{rank:.2f}" if wins is None else f"{rank:.2f} ({wins})"
            named = {"method": METHODS[method].label, "first": result["first"]}
            yield {**named, "ranking": ranking, "shown": shown}


def dot_plot(table: pd.DataFrame) -> Any:
    """Return a figure with a row per table: errors over the least, and seconds.

    Folds are averaged (geometric means); tables of a kind are sorted by the first
    method's error.
    """
    from matplotlib.ticker import LogLocator

    least = table.groupby(["kind", "table", "fold"]).test_error.transform("min")
    table = table.assign(ratio=table.test_error / least)[least > 0]
    keys = ["kind", "table", "method"]
    logs = np.log(table.set_index(keys)[["ratio", "fit_seconds"]])
    means = np.exp(logs.groupby(level=keys).mean())
    methods = [name for name in METHODS if name in set(table.method)]
    rows: list[tuple[str, str]] = []
    for kind in ("classification", "regression"):
        own = means.query("kind == @kind and method == @methods[0]").ratio
        names = own.sort_values(ascending=False).index.get_level_values("table")
        rows += [*((kind, name) for name in names), (kind, "")] if len(names) else []
    figure = new_figure(7.2, 1.3 + 0.22 * len(rows))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[3, 2])
    for method in reversed(methods):
        style = METHODS[method]
        own = means.xs(method, level="method").reindex(pd.MultiIndex.from_tuples(rows))
        size = 8.0 if method == methods[0] else 5.0
        for axes, column in ((left, "ratio"), (right, "fit_seconds")):
            axes.plot(
                own[column],
                np.arange(len(rows)),
                linestyle="",
                color=style.colour,
                marker=style.marker,
                ms=size,
                label=style.label,
            )
    for axes in (left, right):
        logarithmic(axes, "x")
        axes.grid(color="0.9", lw=0.7)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(axis="y", length=0)
    right.xaxis.set_major_locator(LogLocator())
    left.set_yticks(np.arange(len(rows)), [name or kind for kind, name in rows])
    for label, (_, name) in zip(left.get_yticklabels(), rows, strict=True):
        label.set_fontweight("normal" if name else "bold")
    left.set_xlabel("error / least error of the table")
    right.set_xlabel("seconds of training")
    handles, labels = left.get_legend_handles_labels()
    figure.legend(
        handles[::-1],
        labels[::-1],
        loc="outside upper center",
        ncols=3,
        frameon=False,
        fontsize=9,
    )
    return figure


_ERROR = "Root mean squared error of standardised targets"
_COVERAGE = "Share of targets in intervals of 90 %"
_MEASURES = (
    ("regression", "test_error", ".3f", _ERROR),
    ("classification", "test_error", ".3f", "Share of wrong labels"),
    ("classification", "log_loss", ".3f", "Log loss"),
    ("regression", "coverage", ".3f", _COVERAGE),
    ("", "fit_seconds", "seconds", "Seconds of the fit"),
)


# -- the benchmark -------------------------------------------------------------------


@dataclass(frozen=True)
class Options(CommonOptions):
    """Options of ``randkern bench tables``."""

    folder: Path | None = option(
        None, "Folder of tables (.csv, .csv.gz, .parquet); default: scikit-learn's."
    )
    target: str = option("target", "Column to predict.")
    drop: Names = option((), "Columns of the tables that are no features.")
    methods: Names = option(
        tuple(METHODS),
        "Those that are not installed are left out.",
        among=METHODS,
        quick=("tabular", "ridge", "hgb", "forest"),
    )
    time_limit: float = option(60.0, "Seconds of Tabular*.", quick=1.0)
    folds: int = option(1, "Folds to test on.")


SKIPPED_BY = ("method", "table")


def run(options: Options) -> pd.DataFrame:
    """Fit each method to each table, in processes that read them."""
    paths = table_paths(options.folder)

    def requested(name: str, fold: int) -> dict[str, Any]:
        asked = options.arguments()
        return {**asked, "table": name, "path": paths[name], "fold": fold}

    described, columns = {}, set[str]()
    for name in paths:
        X, y, _ = read_table({**requested(name, 0), "drop": ()})
        columns.update(X)
        n_columns = len(X.columns.difference(options.drop))
        own = {"name": name, "kind": kind_of(y), "n": len(X), "n_columns": n_columns}
        described[name] = own
    unknown = sorted(set(options.drop) - columns)
    if unknown:
        raise ValueError(
            f"no table has a column named {' or '.join(unknown)}; --drop takes names "
            "of columns, separated by commas."
        )

    def measure(case: Case) -> dict[str, Any]:
        contender = METHODS[case["method"]]
        contender.check()
        request = requested(case["table"], case["fold"]) | case
        return {"label": contender.label, **in_fresh_process(fit_table, request)}

    cases = grid(table=paths, fold=range(options.folds), method=options.methods)
    named = (c | {"kind": described[c["table"]]["kind"]} for c in cases)
    records = measure_all(options, named, measure)
    check_any(records)
    records.attrs["dataset"] = list(described.values())
    return records


def tables(frame: pd.DataFrame) -> Iterator[Any]:
    for kind, measure, form, title in _MEASURES:
        own = frame[frame[measure].notna()]
        yield from pivot(
            own[own.kind == kind] if kind else own,
            title,
            "table",
            "method",
            f"{{{measure}:{form}}}",
            {name: style.label for name, style in METHODS.items()},
        )
    own = pd.DataFrame(_ranked(frame))
    title = "Mean ranks (and on how many tables {first} has no larger error)"
    yield from pivot(
        own, title, "method", "ranking", lambda own: own.shown.iloc[0], label=str
    )


def figure(frame: pd.DataFrame) -> Any:
    return dot_plot(frame)


def notes(frame: pd.DataFrame) -> Iterator[str]:
    for name, result in ranks(frame).items():
        yield (
            f"{name}: {result['n_tables']} tables; ranks that differ by less than "
            f"{result['critical_difference']:.2f} may be equal (Nemenyi, 5 %)"
        )
