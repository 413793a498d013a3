"""Tables of numbers and categories: ours against trees and other kernel methods.

Every file of a folder is a table: CSV or Parquet, with a column to predict, and
optionally a column ``fold`` that groups the rows tested together; without it, a fifth
of the rows, drawn by the seed, is tested. Methods use their defaults and get columns as
their documentation recommends: trees get categories as such, kernel methods the numbers
of `TabularEncoder`. Regression errors are root mean squared errors of targets
standardised on the training rows, classification errors are shares of wrong labels.
Each fit runs in its own process. Without a folder the tables are scikit-learn's.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata, studentized_range

from ..contenders import known_names
from ..options import CommonOptions, option
from ..panels import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, RED, SKY, Style, new_figure
from ..process import Stopwatch, in_fresh_process
from ..runner import Case, Experiment, SkippedCase, grid
from ..tables import Column, TextTable, listing, number, pivot, seconds, skip_notes

__all__ = [
    "METHODS",
    "Options",
    "Tables",
    "critical_difference",
    "kind_of",
    "mean_ranks",
    "read_table",
    "table_paths",
]

METHODS: Mapping[str, Style] = {
    "tabular": Style("randkern, Tabular*", BLUE),
    "metric": Style("randkern, MetricLearner + ridge", BLUE, "D"),
    "ridge": Style("randkern, ridge CV", BLUE, "v"),
    "hgb": Style("HistGradientBoosting", RED),
    "lightgbm": Style("LightGBM", ORANGE, "s"),
    "xgboost": Style("XGBoost", PINK, "^"),
    "catboost": Style("CatBoost", GREEN, "P"),
    "forest": Style("random forest", SKY, "X"),
    "xrfm": Style("xRFM", BLACK, "*"),
    "svm": Style("scikit-learn, SVM", GREY),
    "kernel-ridge": Style("scikit-learn, kernel ridge", GREY, "v"),
}
_NEEDED = {"lightgbm", "xgboost", "catboost", "xrfm"}
_TYPES = {".csv", ".csv.gz", ".parquet"}
_BUNDLED = ("diabetes", "breast_cancer", "wine")
_TEST_SHARE = 0.2
# Numeric targets with more distinct values are regression targets.
_MOST_CLASSES = 20
_LEAST_PROBABILITY = 1e-15
# These methods need n × n numbers, so they are skipped beyond.
_MOST_KERNEL_ROWS = 20_000


@dataclass(frozen=True)
class Options(CommonOptions):
    """Options of ``randkern bench tables``."""

    folder: Path | None = option(
        None, "Folder of tables (.csv, .csv.gz, .parquet); default: scikit-learn's."
    )
    target: str = option("target", "Column to predict.")
    methods: tuple[str, ...] = option(
        tuple(METHODS),
        "Of tabular, metric, ridge, hgb, lightgbm, xgboost, catboost, forest, xrfm, "
        "svm, kernel-ridge; those that are not installed are left out.",
        quick=("tabular", "ridge", "hgb", "forest"),
    )
    time_limit: float = option(60.0, "Seconds of Tabular*.", quick=1.0)
    folds: int = option(1, "Folds to test on.")
    rows: int | None = option(None, "Training rows at most; default: all.", quick=150)


class Tables(Experiment):
    """Tables, each fitted by each method."""

    name = "tables"
    title = "Error and log loss on tables against seconds, beside trees."
    command = "bench"
    Options = Options

    def prepare(self) -> list[dict[str, Any]]:
        """List the tables."""
        known_names("method", self.options.methods, METHODS)
        self.paths = table_paths(self.options.folder)
        self.kinds: dict[str, str] = {}
        found = []
        for name in self.paths:
            X, y, _ = read_table(self._request(name, 0))
            self.kinds[name] = kind = kind_of(y)
            n, d = X.shape
            found.append({"name": name, "kind": kind, "n": n, "n_columns": d})
        return found

    def cases(self) -> Iterator[Case]:
        """Return methods by table and fold."""
        methods = [m for m in METHODS if m in self.options.methods]
        for case in grid(
            table=self.paths, fold=range(self.options.folds), method=methods
        ):
            yield case | {"kind": self.kinds[case["table"]]}

    def _request(self, name: str, fold: int) -> dict[str, Any]:
        return {
            "table": name,
            "path": self.paths[name],
            "target": self.options.target,
            "fold": fold,
            "rows": self.options.rows,
            "seed": self.options.seed,
        }

    def measure(self, case: Case) -> dict[str, Any]:
        """Run the case in its own process, which reads the table."""
        method = case["method"]
        if method in _NEEDED and find_spec(method) is None:
            raise SkippedCase(f"{method} is not installed")
        request = self._request(case["table"], case["fold"]) | case
        request["time_limit"] = self.options.time_limit
        return {"label": METHODS[method].label, **in_fresh_process(fit_table, request)}

    def conclude(self, results: dict[str, Any]) -> dict[str, Any]:
        """Return the mean ranks of the methods that fitted all tables."""
        records = results["records"]
        if not records:
            raise ValueError(f"nothing could be run: {results['skipped'][0]['reason']}")
        measures = (("regression", "test_error"), ("classification", "test_error"))
        ranks = {
            f"{kind}, {measure}": mean_ranks(records, kind, measure)
            for kind, measure in (*measures, ("classification", "log_loss"))
        }
        return {"ranks": {name: found for name, found in ranks.items() if found}}

    @classmethod
    def notes(cls, results: Mapping[str, Any]) -> list[str]:
        """Return the skipped cases."""
        return skip_notes(results, "method", "table")

    @classmethod
    def tables(cls, results: Mapping[str, Any]) -> list[TextTable]:
        """Return errors, log losses and times by table, and mean ranks."""
        headings = {name: style.label for name, style in METHODS.items()}
        made = []
        for kind, measure, title in (
            (
                "regression",
                "test_error",
                "Root mean squared error of standardised targets",
            ),
            ("classification", "test_error", "Share of wrong labels"),
            ("classification", "log_loss", "Log loss"),
            ("regression", "coverage", "Share of targets in intervals of 90 %"),
            (None, "fit_seconds", "Seconds of the fit"),
        ):
            records = [
                record
                for record in results["records"]
                if kind in (None, record["kind"]) and record[measure] is not None
            ]
            if records:
                cell = (measure, seconds if measure == "fit_seconds" else number)
                keys = "table", "method", cell
                made.append(pivot(title, records, *keys, headings=headings))
        for name, ranks in results["ranks"].items():
            wins = ranks["first_as_good"]
            rows = [
                {"method": m, "rank": rank, "wins": wins.get(m)}
                for m, rank in ranks["ranks"].items()
            ]
            first = METHODS[ranks["first"]].label
            columns: dict[str, Column] = {
                "method": lambda r: METHODS[r["method"]].label,
                "mean rank": ("rank", ".2f"),
                f"tables on which {first} is as good or better": ("wins", "d"),
            }
            caption = (
                f"{ranks['n_tables']} tables; ranks that differ by less than "
                f"{ranks['critical_difference']:.2f} may be equal (Nemenyi, 5 %)"
            )
            made.append(listing(f"Mean ranks: {name}", rows, columns, caption))
        return made

    @classmethod
    def figure(cls, results: Mapping[str, Any]) -> Any:
        """Return errors, relative to each table's smallest, against time."""
        figure = new_figure(7.2, 4.8)
        _scatter(figure.subplots(), results["records"])
        return figure


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
    import pandas as pd

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
    fold, generator = request["fold"], np.random.default_rng(request["seed"])
    if "fold" in X:
        test = (X.pop("fold") == fold).to_numpy()
    else:
        share = generator.permutation(len(X)) / len(X)
        test = (share >= fold * _TEST_SHARE) & (share < (fold + 1) * _TEST_SHARE)
    if not test.any() or test.all():
        raise ValueError(f"{request['table']} has no fold {fold} beside others.")
    if request["rows"] is not None and (~test).sum() > request["rows"]:
        train = generator.choice(np.flatnonzero(~test), request["rows"], replace=False)
        kept = np.sort(np.concatenate([train, np.flatnonzero(test)]))
        X, y, test = X.iloc[kept], y.iloc[kept], test[kept]
    return X, y.to_numpy(), test


def kind_of(y: np.ndarray) -> str:
    """Infer ``"regression"`` or ``"classification"`` from the targets."""
    if y.dtype.kind not in "fiu":
        return "classification"
    is_real = bool((y % 1 != 0).any()) or len(np.unique(y)) > _MOST_CLASSES
    return "regression" if is_real else "classification"


# -- methods --------------------------------------------------------------------------


def _ours(request: Mapping[str, Any], regression: bool) -> Any:
    from sklearn.pipeline import make_pipeline

    import randkern as rk

    seed = request["seed"]
    if request["method"] == "tabular":
        made = rk.TabularRegressor if regression else rk.TabularClassifier
        return made(request["time_limit"], random_state=seed)
    ridge = rk.KernelRidgeRegressorCV if regression else rk.KernelRidgeClassifierCV
    if request["method"] == "ridge":
        model = ridge(fit_intercept=True, random_state=seed)
        return make_pipeline(rk.TabularEncoder(), model)
    # The learned metric has scaled the columns: a lengthscale of 1.
    model = ridge(rk.Gaussian(1.0), fit_intercept=True, random_state=seed)
    metric = rk.MetricLearner(random_state=seed)
    return make_pipeline(rk.TabularEncoder(), metric, model)


def _of_kernels(request: Mapping[str, Any], regression: bool, n: int) -> Any:
    from sklearn.kernel_ridge import KernelRidge
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import SVC, SVR

    from randkern import TabularEncoder

    if n > _MOST_KERNEL_ROWS:
        raise ValueError(f"{n} rows are more than {_MOST_KERNEL_ROWS}")
    if request["method"] == "svm":
        return make_pipeline(TabularEncoder(), SVR() if regression else SVC())
    if not regression:
        raise ValueError("scikit-learn's kernel ridge has no classifier")
    return make_pipeline(TabularEncoder(), KernelRidge(kernel="rbf"))


def _trees(request: Mapping[str, Any], regression: bool, texts: list[str]) -> Any:
    from sklearn import ensemble

    method, seed = request["method"], request["seed"]
    ending = "Regressor" if regression else "Classifier"
    options: dict[str, Any] = {"random_state": seed}
    if method == "hgb":
        options["categorical_features"] = "from_dtype"
        return getattr(ensemble, f"HistGradientBoosting{ending}")(**options)
    if method == "forest":
        from sklearn.pipeline import make_pipeline

        from randkern import TabularEncoder

        forest = getattr(ensemble, f"RandomForest{ending}")(n_jobs=-1, **options)
        return make_pipeline(TabularEncoder(), forest)
    library = import_module(method)
    if method == "lightgbm":
        return getattr(library, f"LGBM{ending}")(verbosity=-1, **options)
    if method == "xgboost":
        return getattr(library, f"XGB{ending}")(enable_categorical=True, **options)
    quiet = {"verbose": 0, "allow_writing_files": False, "cat_features": texts}
    return getattr(library, f"CatBoost{ending}")(random_seed=seed, **quiet)


class _XRFM:
    """xRFM on encoded columns, with a fifth of the rows for validation."""

    def __init__(self, seed: int, regression: bool) -> None:
        self.seed, self.regression = seed, regression

    def fit(self, X: Any, y: np.ndarray) -> Any:
        import torch
        from sklearn.model_selection import train_test_split

        from randkern import TabularEncoder

        self.encoder = TabularEncoder(dtype="float32").fit(X)
        self.classes_ = None if self.regression else np.arange(int(y.max()) + 1)
        target = y[:, None].astype(np.float32) if self.regression else y
        parts = train_test_split(
            self.encoder.transform(X), target, test_size=0.2, random_state=self.seed
        )
        rows, held, wanted, held_wanted = map(torch.as_tensor, parts)
        torch.manual_seed(self.seed)
        metric = "mse" if self.regression else "brier"
        made = import_module("xrfm").xRFM
        self.model = made(device=torch.device("cpu"), tuning_metric=metric)
        self.model.fit(rows, wanted, held, held_wanted)
        return self

    def predict(self, X: Any) -> np.ndarray:
        return np.asarray(self.model.predict(self._rows(X))).ravel()

    def predict_proba(self, X: Any) -> np.ndarray:
        return np.asarray(self.model.predict_proba(self._rows(X)))

    def _rows(self, X: Any) -> Any:
        import torch

        return torch.as_tensor(self.encoder.transform(X))


def _made(request: Mapping[str, Any], regression: bool, n: int, texts: Any) -> Any:
    method = request["method"]
    if method in ("tabular", "metric", "ridge"):
        return _ours(request, regression)
    if method in ("svm", "kernel-ridge"):
        return _of_kernels(request, regression, n)
    if method == "xrfm":
        return _XRFM(request["seed"], regression)
    return _trees(request, regression, texts)


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
    X, y, test = read_table(request)
    regression = request["kind"] == "regression"
    X, texts = _columns(X, request["method"])
    X, X_test = X[~test], X[test]
    if regression:
        mean, deviation = y[~test].mean(), y[~test].std() or 1.0
        y, y_test = (y[~test] - mean) / deviation, (y[test] - mean) / deviation
    else:
        classes, labels = np.unique(y, return_inverse=True)
        y, y_test = labels[~test], labels[test]
    model = _made(request, regression, len(X), texts)
    watch = Stopwatch()
    model.fit(X, y)
    fit = watch.lap()
    predictions = np.ravel(model.predict(X_test))
    predicted = watch.lap()
    log_loss = coverage = None
    if regression:
        error = float(np.sqrt(np.mean((predictions - y_test) ** 2)))
        if hasattr(model, "predict_interval"):
            low, high = model.predict_interval(X_test, 0.9).T
            coverage = float(np.mean((low <= y_test) & (y_test <= high)))
    else:
        error = float(np.mean(predictions != y_test))
        if hasattr(model, "predict_proba"):
            P = np.full((len(y_test), len(classes)), _LEAST_PROBABILITY)
            P[:, model.classes_] = model.predict_proba(X_test)
            chosen = P[np.arange(len(y_test)), y_test].clip(_LEAST_PROBABILITY, 1)
            log_loss = float(-np.log(chosen).mean())
    return {
        **{"n_train": len(X), "n_test": len(X_test), "n_columns": X.shape[1]},
        **{"test_error": error, "log_loss": log_loss, "coverage": coverage},
        "fit_seconds": fit.seconds,
        "fit_cpu_seconds": fit.cpu_seconds,
        "predict_seconds": predicted.seconds,
    }


# -- summaries ------------------------------------------------------------------------


def mean_ranks(
    records: Sequence[Mapping[str, Any]], kind: str, measure: str
) -> dict[str, Any] | None:
    """Return mean ranks of the methods that fitted all tables of a kind.

    With them, on how many tables the first method is as good as each other one, or
    better. Errors are means over folds. None unless there are two such methods and two
    tables.
    """
    own: dict[str, dict[str, list[float]]] = {}
    for r in records:
        if r["kind"] == kind and r[measure] is not None:
            own.setdefault(r["table"], {}).setdefault(r["method"], []).append(
                r[measure]
            )
    methods = [m for m in METHODS if own and all(m in each for each in own.values())]
    if len(methods) < 2 or len(own) < 2:
        return None
    errors = np.array([[np.mean(each[m]) for m in methods] for each in own.values()])
    ranks = rankdata(errors, axis=1).mean(axis=0)
    wins = (errors[:, :1] <= errors).sum(axis=0)
    return {
        "ranks": dict(sorted(zip(methods, ranks.tolist(), strict=True), key=_second)),
        "first": methods[0],
        "first_as_good": dict(zip(methods[1:], wins[1:].tolist(), strict=True)),
        "n_tables": len(own),
        "critical_difference": critical_difference(len(methods), len(own)),
    }


def _second(pair: tuple[str, float]) -> float:
    return pair[1]


def critical_difference(n_methods: int, n_tables: int) -> float:
    """Return Nemenyi's critical difference of mean ranks at the 5 % level.

    Demšar 2006, "Statistical comparisons of classifiers over multiple data sets".

    Examples
    --------
    >>> from randkern_lab.benchmarks.tables import critical_difference
    >>> round(critical_difference(4, 14), 2)
    1.25
    """
    quantile = studentized_range.ppf(0.95, n_methods, np.inf) / np.sqrt(2)
    return float(quantile * np.sqrt(n_methods * (n_methods + 1) / (6 * n_tables)))


def _scatter(axes: Any, records: Sequence[Mapping[str, Any]]) -> None:
    """Draw errors, relative to each table's smallest, against time."""
    best: dict[Any, float] = {}
    for r in records:
        place = r["table"], r["fold"]
        best[place] = min(best.get(place, np.inf), r["test_error"])
    for method, style in METHODS.items():
        own = [r for r in records if r["method"] == method]
        ratios = [
            (r["fit_seconds"], r["test_error"] / best[r["table"], r["fold"]])
            for r in own
            if best[r["table"], r["fold"]] > 0
        ]
        if not ratios:
            continue
        times, errors = np.log(ratios).T
        look: dict[str, Any] = {"color": style.colour, "marker": style.marker}
        axes.plot(*np.exp([times, errors]), linestyle="", alpha=0.25, **look)
        middle = np.exp([[times.mean()], [errors.mean()]])
        axes.plot(*middle, linestyle="", markersize=10, label=style.label, **look)
    axes.set(xscale="log", yscale="log")
    axes.set_xlabel("seconds of the fit (large: geometric means)")
    axes.set_ylabel("error over the least of the table")
    axes.legend(fontsize=8)
