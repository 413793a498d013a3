"""What users do with a table in a file, through the command line."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)
from sklearn.metrics import log_loss

import randkern as rk
from randkern.datasets import read_table

from ..process import SkippedCase
from .generated import TABLES, generated_table
from .steps import (
    REFUSED,
    Steps,
    check,
    covers,
    folder_of,
    no_worse,
    randkern,
    refused,
    same,
    succeeded,
)

#: Errors may be this factor above those of gradient boosting, and this much.
_FACTOR, _MORE = 1.3, 0.03
_COVERAGE = 0.9
#: Most rows of the files with something special.
_FEW_ROWS = 1_000
#: Most categories of a column that gradient boosting takes.
_MAX_LEVELS = 250
#: Share of numbers of a column of numbers and placeholders.
_MOSTLY = 0.95
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
#: Elements of HTML that have no end.
_VOID = frozenset(
    {
        "meta",
        "br",
        "hr",
        "img",
        "link",
        "input",
        "path",
        "use",
        "rect",
        "line",
        "circle",
    }
)


def tables_of(folder: Path | None) -> list[str]:
    """Return the names of the tables of a folder, as KIND/NAME, smallest file first."""
    if folder is None:
        return []
    files = (folder / "tables").glob("*/*.csv.gz")
    return [
        f"{path.parent.name}/{path.name.removesuffix('.csv.gz')}"
        for path in sorted(files, key=lambda path: path.stat().st_size)
    ]


class _Table:
    """The training and test rows of a table, in files and in dataframes."""

    def __init__(self, request: dict[str, Any]) -> None:
        import pandas as pd

        self.folder = folder_of(request)
        name = request["data"]
        if name in TABLES:
            self.task, frame = TABLES[name][1], generated_table(name)
        else:
            self.task = name.partition("/")[0]
            frame = pd.read_csv(
                Path(request["data_dir"]) / "tables" / f"{name}.csv.gz",
                low_memory=False,
            )
        test = (frame.pop("fold") == 0).to_numpy()
        self.train, self.test = frame[~test], frame[test].reset_index(drop=True)
        self.train_file, self.test_file = self.path("train.csv"), self.path("test.csv")
        if not self.test_file.is_file():
            self.train.to_csv(self.train_file, index=False)
            self.test.to_csv(self.test_file, index=False)
        self.train = pd.read_csv(self.train_file, low_memory=False)
        self.test = pd.read_csv(self.test_file, low_memory=False)
        self.columns = [name for name in frame.columns if name != "target"]
        self.texts = [
            name
            for name in self.columns
            if not pd.api.types.is_numeric_dtype(self.train[name])
        ]
        self.y = self.test["target"].to_numpy()
        self.is_regression = self.task == "regression"

    def path(self, name: str) -> Path:
        return self.folder / name

    @property
    def model(self) -> Path:
        """The file of the fitted model."""
        path = self.path("fit") / "model.skops"
        if not path.is_file():
            raise SkippedCase("there is no model: the fit has failed")
        return path

    def asked(self) -> tuple[str, ...]:
        """Return the options of `predict` for this task."""
        if self.is_regression:
            return ("--interval", str(_COVERAGE))
        return ("--probabilities",)

    @cached_property
    def boosting(self) -> Any:
        """Gradient boosting with defaults, an independent baseline."""
        kind = HistGradientBoostingClassifier
        if self.is_regression:
            kind = HistGradientBoostingRegressor
        model = kind(random_state=0, categorical_features="from_dtype")
        return model.fit(self.typed(self.train), self.train["target"])

    def typed(self, rows: Any) -> Any:
        """Return rows as gradient boosting takes them, with texts as categories."""
        import pandas as pd

        frame = rows[self.columns].copy()
        for name in self.texts:
            levels = self.train[name].value_counts().index[:_MAX_LEVELS].astype(str)
            values = frame[name].astype(str)
            frame[name] = pd.Categorical(values, categories=levels)
        return frame

    @cached_property
    def plain(self) -> Any:
        """The predictions of a plain file of a few test rows."""
        path = self.path("plain.csv")
        self.test.head(_FEW_ROWS).to_csv(path, index=False)
        return self.predicted(path, "plain-predictions.csv")

    def predicted(self, data: Path, out: str = "out.csv") -> Any:
        """Return the table that ``randkern predict`` writes."""
        import pandas as pd

        path = self.path(out)
        path.unlink(missing_ok=True)
        succeeded("predict", self.model, data, "--out", path, *self.asked())
        return pd.read_csv(path)

    def error(self, predictions: Any) -> float:
        """Return the error of predictions of the test rows, as `compare` defines it."""
        if self.is_regression:
            residuals = self.y - np.asarray(predictions, dtype=float)
            return float(np.sqrt(np.mean(residuals**2)) / np.std(self.y))
        wrong = [
            _label(p) != _label(y) for p, y in zip(predictions, self.y, strict=True)
        ]
        return float(np.mean(wrong))


def fit(request: dict[str, Any]) -> dict[str, Any]:
    """Fit a model to the training rows, and judge it by the test rows."""
    steps, table = Steps(), _Table(request)

    def fitted() -> str:
        limit = request["time_limit"]
        ran = succeeded(
            "fit",
            table.train_file,
            "--target",
            "target",
            "--test",
            table.test_file,
            "--time-limit",
            limit,
            "--out",
            table.path("fit"),
        )
        # What predictions say of rows that belong together is read by `predict`.
        table.path("warnings.txt").write_text(ran.errors, encoding="utf-8")
        for name in ("model.skops", "report.html", "results.json"):
            check(table.path("fit").joinpath(name).is_file(), f"writes {name}")
        task = json.loads(table.path("fit").joinpath("results.json").read_text("utf-8"))
        inferred = task["arguments"]["task"]
        message = f"the task is {table.task}, inferred {inferred}"
        return check(inferred == table.task, message)

    steps.take("fit", fitted)
    return {"records": steps.records}


def predict(request: dict[str, Any]) -> dict[str, Any]:
    """Predict the test rows: as good as gradient boosting, with honest intervals."""
    steps, table = Steps(), _Table(request)
    predictions: list[Any] = []

    def complete() -> str:
        predictions.append(table.predicted(table.test_file, "test-predictions.csv"))
        check(len(predictions[0]) == len(table.y), "one prediction per row")
        error = table.error(predictions[0]["prediction"])
        theirs = table.error(table.boosting.predict(table.typed(table.test)))
        return no_worse(error, _FACTOR * theirs + _MORE, "error")

    def read() -> Any:
        if not predictions:
            raise SkippedCase("there are no predictions")
        return predictions[0]

    def sure() -> str:
        if table.is_regression:
            ends = read()[["low", "high"]].to_numpy()
            warned = table.path("warnings.txt").read_text(encoding="utf-8")
            if "name groups" in warned:
                raise SkippedCase("the fit warns that a column names groups of rows")
            return covers(table.y, ends, _COVERAGE)
        P = read().filter(like="probability of ")
        names = [name.removeprefix("probability of ") for name in P.columns]
        check(bool(np.allclose(P.sum(axis=1), 1, atol=1e-6)), "probabilities sum to 1")
        labels = [_label(value) for value in table.y]
        others = [_label(value) for value in table.boosting.classes_]
        chances = table.boosting.predict_proba(table.typed(table.test))
        theirs = log_loss(labels, chances, labels=others)
        order = np.argsort([_label(name) for name in names])
        ours = log_loss(
            labels, P.to_numpy()[:, order], labels=sorted(map(_label, names))
        )
        return no_worse(ours, _FACTOR * theirs + _MORE, "log loss")

    def loaded() -> str:
        result, model = read()["prediction"], rk.load(table.model)
        return same(result, model.predict(_rows_of(table, model)), "the model loaded")

    steps.take("predict: whole file", complete)
    steps.take("predict: intervals, probabilities", sure)
    steps.take("predict: loaded in a new process", loaded)
    return {"records": steps.records}


def files(request: dict[str, Any]) -> dict[str, Any]:
    """Predict files that are odd, or hold the same rows in another form."""
    steps, table = Steps(), _Table(request)
    for name, frame, expectation in _odd_files(table):
        steps.take(f"predict: {name}", _Odd(table, name, frame, expectation))
    return {"records": steps.records}


class _Odd:
    """Predicts a file; `expectation` says what must come out.

    ``"same"``: the predictions of the plain file; ``"refused"``: an error that names
    the missing column; ``"finite"``: any numbers or classes,
    or an error if it says so; or the name of a format.
    """

    def __init__(self, table: _Table, name: str, frame: Any, expectation: str) -> None:
        self._table, self._frame, self._expectation = table, frame, expectation
        self._stem = name.replace(" ", "-")

    def __call__(self) -> str:
        table, frame = self._table, self._frame
        path = self._written()
        if self._expectation == "refused":
            missing = next(name for name in table.columns if name not in frame.columns)
            return refused("predict", table.model, path, naming=missing)
        if self._expectation == "finite or refused":
            ran = randkern("predict", table.model, path)
            if ran.status == REFUSED:
                return f"refused: {ran.errors.strip()}"
        result = table.predicted(path)
        check(
            len(result) == len(frame), f"{len(result)} predictions of {len(frame)} rows"
        )
        if self._expectation.startswith("finite"):
            is_finite = not result["prediction"].isna().any()
            return check(is_finite, "predictions are finite")
        expected = table.plain.head(len(frame))
        for name in expected.columns:
            same(result[name], expected[name], name)
        return "equals the predictions of the plain file"

    def _written(self) -> Path:
        path = self._table.path(f"{self._stem}.csv")
        if self._expectation == ".jsonl":
            path = path.with_suffix(".jsonl")
            # pandas writes 10 decimals, which is too few for numbers of size 1e-8.
            cells = self._frame.astype(object).where(self._frame.notna(), None)
            rows = map(json.dumps, cells.to_dict("records"))
            path.write_text("\n".join(rows) + "\n", encoding="utf-8")
        elif self._expectation == ".parquet":
            path = path.with_suffix(".parquet")
            self._frame.to_parquet(path)
        else:
            self._frame.to_csv(path, index=False)
        return path


def _odd_files(table: _Table) -> Iterator[tuple[str, Any, str]]:
    plain = table.test.head(_FEW_ROWS)
    yield "one row", plain.head(1), "same"
    yield "columns reordered", plain[plain.columns[::-1]], "same"
    yield "without the target", plain[table.columns], "same"
    yield "a missing column", plain.drop(columns=table.columns[0]), "refused"
    yield "JSON lines", plain, ".jsonl"
    yield "Parquet", plain, ".parquet"
    emptied = plain.head(len(table.columns)).astype(object)
    for row in range(len(emptied)):
        emptied.iat[row, emptied.columns.get_loc(table.columns[row])] = None
    yield "empty cells", emptied, "finite or refused"
    words = [name for name in table.texts if not _is_mostly_numbers(table.train[name])]
    if words:
        text = words[0]
        yield "unseen categories", plain.assign(**{text: "never seen"}), "finite"
        yield "digits in a text column", plain.assign(**{text: "12"}), "finite"


def summary(request: dict[str, Any]) -> dict[str, Any]:
    """Summarise the model, open its report, and run it by ONNX."""
    steps, table = Steps(), _Table(request)

    def message() -> str:
        ran = succeeded("info", table.model)
        kind = "TabularRegressor" if table.is_regression else "TabularClassifier"
        check(kind in ran.output, f"info names {kind}")
        return check(table.columns[0] in ran.output, "info names the columns")

    steps.take("info", message)
    steps.take("report: well-formed", lambda: _parsed(table))
    steps.take("report: in a browser", lambda: _opened(table))
    steps.take("ONNX beside Python", lambda: _exported(table), may_refuse=True)
    return {"records": steps.records}


def studies(request: dict[str, Any]) -> dict[str, Any]:
    """Compare kernels; what is reported is what the saved model does."""
    steps, table = Steps(), _Table(request)
    train, test = ["--data", table.train_file], ["--test", table.test_file]
    common = [*train, *test, "--target", "target", "--task", table.task]
    common += ["--kernels", "gaussian"]

    def compared() -> str:
        out, saved = table.path("compare"), table.path("compare.skops")
        sizes = ("--n-components", request["components"], "--seeds", 1)
        fits = ("--features", "random", "--no-exact", "--save", saved)
        succeeded("compare", *common, *sizes, *fits, "--out", out)
        results = json.loads(out.joinpath("results.json").read_text(encoding="utf-8"))
        return _as_reported(table, saved, results["records"], results["baselines"])

    steps.take("compare", compared)
    return {"records": steps.records}


def _as_reported(table: _Table, saved: Path, records: Any, baselines: Any) -> str:
    """Check that the saved model has a reported error, better than predicting none."""
    import pandas as pd

    out = table.path("study-predictions.csv")
    succeeded("predict", saved, table.test_file, "--out", out)
    error = table.error(pd.read_csv(out)["prediction"])
    reported = [record["test_error"] for record in records]
    nearest = min(reported, key=lambda value: abs(value - error))
    check(abs(nearest - error) < 1e-6, f"reported {nearest:.6f}, is {error:.6f}")
    bound = min(item["test_error"] for item in baselines.values())
    return f"the saved model has the reported error, {error:.4f}; baseline {bound:.4f}"


def _label(value: Any) -> str:
    """Return a label as text, the same for 1, 1.0 and "1"."""
    try:
        return f"{float(value):g}"
    except ValueError:
        return str(value)


# -- reports and ONNX -----------------------------------------------------------------


class _Balance(HTMLParser):
    """Counts the elements that are open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.figures, self.wrong = 0, ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.figures += tag in ("img", "svg")
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in _VOID:
            return
        if not self.open or self.open.pop() != tag:
            self.wrong = self.wrong or f"</{tag}> at {self.getpos()}"


def _parsed(table: _Table) -> str:
    path = table.model.with_name("report.html")
    page = _Balance()
    page.feed(path.read_text(encoding="utf-8"))
    check(not page.wrong and not page.open, f"unbalanced: {page.wrong or page.open}")
    return check(page.figures > 0, f"{page.figures} figures")


def _opened(table: _Table) -> str:
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        raise SkippedCase("no chromium is installed")
    path = table.model.with_name("report.html").resolve()
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    ran = subprocess.run(
        [browser, *flags, "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    check("Uncaught" not in ran.stderr, f"the page raises: {ran.stderr[-300:]}")
    return check("</html>" in ran.stdout, "the browser shows the page")


def _exported(table: _Table) -> str:
    """Compare predictions of ONNX Runtime with those of Python."""
    import onnxruntime

    model = rk.load(table.model)
    frame = _rows_of(table, model).head(_FEW_ROWS)
    path = table.path("model.onnx")
    rk.export_onnx(model, path, frame)
    session = onnxruntime.InferenceSession(os.fspath(path))
    feed = {
        item.name: _column(frame[item.name], item.type) for item in session.get_inputs()
    }
    if table.is_regression:
        result = session.run(None, feed)[0].ravel()
        return same(result, model.predict(frame), "predictions")
    return same(session.run(None, feed)[1], model.predict_proba(frame), "probabilities")


def _is_mostly_numbers(values: Any) -> bool:
    import pandas as pd

    return bool(pd.to_numeric(values, errors="coerce").notna().mean() > _MOSTLY)


def _rows_of(table: _Table, model: Any) -> Any:
    """Return the test rows as ``randkern fit`` reads them, with dates as days."""
    import pandas as pd

    frame = read_table(table.test_file)[list(model.feature_names_in_)].copy()
    for name in table.texts:
        if name in frame and not pd.api.types.is_numeric_dtype(frame[name]):
            dates = pd.to_datetime(frame[name], format="%Y-%m-%d", errors="coerce")
            if _is_mostly_numbers(frame[name]):  # with placeholders, which are missing
                frame[name] = pd.to_numeric(frame[name], errors="coerce")
            elif dates.notna().all():
                days = dates.to_numpy().astype("datetime64[ns]").astype(np.int64)
                frame[name] = days / 86_400e9
    return frame


def _column(values: Any, type_name: str) -> np.ndarray:
    """Return a column as an input of ONNX: texts, or numbers with NaN."""
    if "string" in type_name:
        texts = [
            ["" if value is None or value != value else str(value)] for value in values
        ]
        return np.array(texts, dtype=object)
    numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
    dtypes = {"tensor(float)": "float32", "tensor(int64)": "int64"}
    return numbers.astype(dtypes.get(type_name, "float64"))[:, None]
