"""``randkern fit``, ``predict`` and ``info``: from a table to predictions."""

import gzip
import io
import json
import re
import subprocess
import sys
import warnings
from html.parser import HTMLParser

import numpy as np
import pytest

pytest.importorskip("pandas")
pytest.importorskip("typer")
pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")
pytest.importorskip("skops")
pytest.importorskip("pyarrow")
import pandas as pd
import pyarrow
from typer.testing import CliRunner

import randkern as rk
from randkern import cli
from randkern.cli import console, tables
from randkern.reporting.baseline_models import baselines
from randkern.reporting.deadline import Deadline
from randkern.reporting.scores import evaluate
from randkern.reporting.summary import summarise

pytestmark = pytest.mark.usefixtures("whole_reports")
QUICK = ("--time-limit", "2")


def run(*arguments, **options):
    app = cli._build_app()
    return CliRunner().invoke(app, [str(argument) for argument in arguments], **options)


def table(n=120):
    rng = np.random.default_rng(0)
    weight, colour = rng.uniform(1, 5, n), rng.choice(["red", "green", "blue"], n)
    return pd.DataFrame(
        {
            "weight": weight,
            "colour": colour,
            "count": rng.integers(0, 9, n),
            "price": 10 * weight + 3 * (colour == "red") + rng.normal(0, 0.1, n),
            "sold": np.where(weight > 3, "yes", "no"),
        }
    )


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Return the folder of a fit to prices, and what the command printed."""
    folder = tmp_path_factory.mktemp("fit")
    table().drop(columns="sold").to_csv(folder / "sales.csv", index=False)
    where = ("--target", "price", "--out", folder / "out")
    result = run("fit", folder / "sales.csv", *where, *QUICK)
    assert result.exit_code == 0, result.output
    return folder, result.output


class References(HTMLParser):
    """Collects what a page refers to, and how deep its headings are."""

    def __init__(self):
        super().__init__()
        self.targets, self.headings, self.open = [], [], []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.targets += [found[key] for key in ("src", "href") if found.get(key)]
        self.targets += re.findall(r"url\(([^)]*)\)", found.get("style") or "")
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))


@pytest.mark.slow
def test_fit_writes_a_model_a_report_and_results(fitted):
    folder, output = fitted
    assert "because it has 120 different numbers; --task" in output.replace("\n", "")
    results = json.loads((folder / "out" / "results.json").read_text())
    assert set(results) == {
        *("command", "arguments", "n_train", "n_test", "scores", "standard_error"),
        *("baselines", "leaderboard", "importances", "fit_seconds"),
        *("peak_memory_bytes", "model_bytes", "model"),
    }
    assert (results["n_train"], results["n_test"]) == (96, 24)
    assert results["scores"]["rmse"] < 0.2 * results["baselines"]["mean"]["rmse"]
    assert results["importances"]["weight"] > 0.5
    model = rk.load(folder / "out" / "model.skops")
    rows = table().drop(columns=["sold", "price"])
    # All rows were fitted in the end, with the kernels that were judged.
    assert len(model.model_.members[0].fit.X) == len(rows)
    assert len(model.leaderboard_) <= 3
    # The page and the results are those of the search, which the last fit has not.
    tried = len(results["leaderboard"])
    assert f"the best {min(tried, 8)} of {tried} kernels tried" in output
    page = (folder / "out" / "report.html").read_text(encoding="utf-8")
    assert page.count("<tr><td>") == min(tried, 12)
    assert "model.skops is fitted to all 120 rows." in page
    assert results["model"] == "fitted to all 120 rows"


def test_reports_need_no_other_file(fitted):
    page = (fitted[0] / "out" / "report.html").read_text(encoding="utf-8")
    found = References()
    found.feed(page)
    assert all(target.startswith("#") for target in found.targets), found.targets
    assert "@import" not in page
    assert "url(http" not in page
    assert found.headings[0] == 1
    steps = np.diff(found.headings)
    assert steps.max() <= 1  # no level is left out
    for text in ("weight", "colour", "Residuals", "KernelRidgeRegressor", "mean"):
        assert text in page


def test_predictions_are_those_of_the_model(fitted, tmp_path):
    folder, _ = fitted
    path = folder / "out" / "model.skops"
    model = rk.load(path)
    rows = table()  # in another order, with columns that the model does not know
    rows[rows.columns[::-1]].to_json(
        tmp_path / "new.jsonl", orient="records", lines=True, double_precision=15
    )
    result = run(
        "predict",
        path,
        tmp_path / "new.jsonl",
        "--interval",
        0.8,
        "--out",
        tmp_path / "out.csv",
    )
    assert result.exit_code == 0, result.output
    got = pd.read_csv(tmp_path / "out.csv")
    X = rows[["weight", "colour", "count"]]
    np.testing.assert_allclose(got["prediction"], model.predict(X), rtol=1e-9)
    bounds = model.predict_interval(X, coverage=0.8)
    np.testing.assert_allclose(got[["low", "high"]], bounds, rtol=1e-9)


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("p.txt", "takes a .csv or .parquet file"),
        ("nowhere/p.csv", "the folder of --out"),
        ("folder.csv", "is a folder"),
    ],
)
def test_where_predictions_go_is_checked_first(
    out, message, fitted, tmp_path, monkeypatch
):
    (tmp_path / "folder.csv").mkdir()
    monkeypatch.setattr(rk, "load", None)
    given = (fitted[0] / "out" / "model.skops", fitted[0] / "sales.csv")
    refused = run("predict", *given, "--out", tmp_path / out)
    assert refused.exit_code == 2
    assert message in refused.output


def written_to(method, **options):
    """What a method of a dataframe writes to a file."""

    def content(frame):
        file = io.BytesIO()
        getattr(frame, method)(file, **options)
        return file.getvalue()

    return content


FORMATS = {
    "csv": written_to("to_csv", index=False),
    "tsv": written_to("to_csv", index=False, sep="\t"),
    "jsonl": written_to("to_json", orient="records", lines=True, double_precision=15),
    "parquet": written_to("to_parquet"),
}
PACKED = {
    "": bytes,
    ".gz": gzip.compress,
    ".zst": lambda content: pyarrow.Codec("zstd").compress(content, asbytes=True),
}


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_from_a_file_and_from_standard_input(kind, packed, fitted, tmp_path):
    rows, model = table().head(30), fitted[0] / "out" / "model.skops"
    content = PACKED[packed](FORMATS[kind](rows))
    path = tmp_path / f"rows.{kind}{packed}"
    path.write_bytes(content)
    expected = rk.load(model).predict(rows[["weight", "colour", "count"]])
    for given, options in ((path, {}), ("-", {"input": content})):
        result = run("predict", model, given, **options)
        assert result.exit_code == 0, result.output
        found = pd.read_csv(io.StringIO(result.stdout))["prediction"]
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    path.write_bytes(content[:-20])
    if packed or kind == "parquet":
        refused = run("predict", model, path)
        assert refused.exit_code == 2
        assert re.search("damaged|not a readable", refused.output)


@pytest.mark.parametrize("kind", FORMATS)
def test_models_are_fitted_to_standard_input(kind, tmp_path):
    content = FORMATS[kind](table().drop(columns="sold"))
    options = ("--kernels", "gaussian", "--n-components", 20, "--no-exact")
    result = run(
        *("compare", "--data", "-", "--target", "price", *options),
        *("--seeds", 1, "--out", tmp_path),
        input=content,
    )
    assert result.exit_code == 0, result.output
    assert "n = 120, d = 3 (1 categorical), regression of 'price'" in result.output


def test_standard_input_is_read_once(tmp_path):
    result = run("fit", "-", "--target", "price", "--test", "-", input="")
    assert result.exit_code == 2
    assert "standard input can be read only once" in result.output


@pytest.mark.parametrize("of_test", [False, True])
def test_standard_input_is_named_in_messages(of_test, tmp_path):
    rows = table(12).drop(columns="sold")
    rows.to_csv(tmp_path / "rows.csv", index=False)
    rows.insert(0, "", 1)
    content = rows.to_csv(index=False) + "1,2,red,3\n"  # a row that is too short
    data = [tmp_path / "rows.csv", "--test", "-"] if of_test else ["-"]
    result = run("fit", *data, "--target", "price", input=content)
    assert result.exit_code == 2
    assert "error: standard input: line 14 has 4 fields" in result.output
    content = rows.to_csv(index=False) + "1,inf,red,3,5\n"
    result = run("fit", *data, "--target", "price", input=content)
    assert "warning: standard input: column 1 has no name" in result.output
    assert "line 14 holds inf" in result.output
    assert str(tmp_path.parent.parent) not in result.output


def test_info_prints_an_estimator_of_the_model(fitted):
    result = run("info", fitted[0] / "out" / "model.skops")
    assert result.exit_code == 0, result.output
    assert "3 columns, as they were read" in result.output
    assert "  weight  number" in result.output and "  colour  category" in result.output
    assert "Pipeline(steps=[('tabularencoder'" in result.output
    assert max(map(len, result.output.splitlines())) < 200
    # As the user said it, not as the command divided it for the refit.
    assert (
        "TabularRegressor(random_state=0, text_columns=[], time_limit=2.0)"
        in result.output
    )
    assert "time limit: 2 s" in result.output


def test_the_time_limit_of_a_fit_is_that_of_all(monkeypatch, tmp_path):
    given = []
    quick = rk.TabularRegressor.fit

    def spend(model, X, y, **dependence):
        given.append(model.time_limit)
        assert model.warm_start == (len(given) == 2)
        quick(model.set_params(time_limit=0.3), X, y, **dependence)
        model.fit_report_["cut"] = ["the search"] * (len(given) == 2)

    monkeypatch.setattr(rk.TabularRegressor, "fit", spend)
    monkeypatch.setattr("randkern.reporting.page.panels", lambda *_: [])
    table().drop(columns="sold").to_csv(tmp_path / "sales.csv", index=False)
    where = ("--target", "price", "--out", tmp_path / "out")
    result = run("fit", tmp_path / "sales.csv", *where)
    assert result.exit_code == 0, result.output
    assert 40 < sum(given) < 55 and given[0] > given[1]
    assert "--time-limit 60 ended the search early" in result.output
    saved = rk.load(tmp_path / "out" / "model.skops")
    assert (saved.time_limit, saved.warm_start) == (60, False)
    whole = sum(given)
    given.clear()
    run("fit", tmp_path / "sales.csv", *where, "--no-refit")
    assert given == [pytest.approx(whole)]


def test_a_second_fit_needs_time(monkeypatch, tmp_path):
    table().drop(columns="sold").to_csv(tmp_path / "sales.csv", index=False)
    monkeypatch.setattr(Deadline, "seconds_of_fits", lambda *_, **__: (0.5, 0.0))
    where = ("--target", "price", "--out", tmp_path / "out", "--time-limit", 2)
    result = run("fit", tmp_path / "sales.csv", *where)
    assert result.exit_code == 0, result.output
    assert "--time-limit 2 leaves no time for a second fit" in result.output
    assert "model.skops is fitted to the 96 rows that train it" in result.output


@pytest.mark.parametrize(
    ("command", "column", "value", "options", "message"),
    [
        ("fit", "weight", np.inf, (), "'weight' contains infinity: line 9 holds inf"),
        ("compare", "weight", np.inf, (), "contains infinity: line 9 holds inf"),
        ("fit", "price", "?", (), "line 9 holds '?'; say --numeric price"),
        ("compare", "price", "?", ("--task", "regression"), "line 9 holds '?'"),
        ("fit", "price", np.inf, (), "line 9 holds 'inf'"),
        ("test", "weight", "#", (), "odd.csv line 9 holds"),
        ("test", "weight", np.inf, (), "contains infinity: line 9 holds inf"),
        (
            "predict",
            "weight",
            "#",
            (),
            "table that the model was fitted to, but line 9",
        ),
        ("predict", "weight", np.inf, (), "line 9 holds inf"),
    ],
)
def test_odd_cells_are_named_by_their_line(
    command, column, value, options, message, fitted, tmp_path
):
    """Also after an empty line."""
    frame = table(60).drop(columns="sold").astype({column: object})
    frame.loc[6, column] = value
    lines = frame.to_csv(index=False).splitlines()
    odd = tmp_path / "odd.csv"
    odd.write_text("\n".join([*lines[:3], "", *lines[3:]]))
    given = [command, odd, "--target", "price", *options, "--out", tmp_path / "out"]
    if command == "test":
        given = ["fit", fitted[0] / "sales.csv", "--test", *given[1:]]
    elif command == "predict":
        given = ["predict", fitted[0] / "out" / "model.skops", odd]
    result = run(*given)
    assert result.exit_code == 2, result.output
    assert message in result.output.replace("\n", " ")
    assert f"{odd}: " in result.output or (command == "predict" and value is np.inf)


def test_a_model_needs_its_columns(fitted, tmp_path):
    table().drop(columns="weight").to_csv(tmp_path / "new.csv", index=False)
    result = run("predict", fitted[0] / "out" / "model.skops", tmp_path / "new.csv")
    assert result.exit_code == 2
    assert "lacks 1 of the 3 columns" in result.output


def with_dates_and_texts(n=250):
    frame = table(n).drop(columns="sold")
    days = pd.date_range("2020-01-01", periods=n, freq="12h")
    frame["when"] = days.astype(str)
    frame["price"] += 0.5 * np.arange(n)  # on dates alone
    frame["note"] = [f"note {i}" for i in range(n)]
    return frame


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_dates_are_read_and_free_texts_left_out(suffix, tmp_path):
    frame = with_dates_and_texts()
    frame.loc[3, "when"] = None
    path = tmp_path / f"sales.{suffix}"
    if suffix == "csv":
        frame.to_csv(path, index=False)
    else:
        frame.assign(when=pd.to_datetime(frame["when"], format="ISO8601")).to_parquet(
            path
        )
    result = run(
        *("fit", path, "--target", "price", *QUICK, "--no-refit", "--out", tmp_path)
    )
    assert result.exit_code == 0, result.output
    assert (
        "dropped columns of strings that rarely repeat: 'note' (250 diff"
        in result.output
    )
    results = json.loads((tmp_path / "results.json").read_text())
    assert set(results["importances"]) == {"weight", "colour", "count", "when"}
    assert results["importances"]["when"] > 0.3
    # Texts or dates, the days are the same; and so are they in Python.
    with_dates_and_texts().to_csv(tmp_path / "new.csv", index=False)
    found = run("predict", tmp_path / "model.skops", tmp_path / "new.csv")
    got = pd.read_csv(io.StringIO(found.stdout))["prediction"]
    rows = with_dates_and_texts().drop(columns=["price", "note"])
    rows["when"] = pd.to_datetime(rows["when"], format="ISO8601")
    model = rk.load(tmp_path / "model.skops")
    # Prices without noise have large weights of both signs, whose rounding errors show.
    np.testing.assert_allclose(got, model.predict(rows), rtol=1e-7)
    rows["when"] = rows["when"].astype(str)
    rows.loc[5, "when"] = "yesterday"
    rows.to_csv(tmp_path / "odd.csv", index=False)
    refused = run("predict", tmp_path / "model.skops", tmp_path / "odd.csv")
    assert refused.exit_code == 2
    assert "'when' has dates, except in 1 rows: line 7 holds 'yest" in refused.output


def test_few_rows_and_rare_classes(tmp_path):
    """An area under a curve that is not defined is none in JSON."""
    table(9).to_csv(tmp_path / "few.csv", index=False)
    result = run("fit", tmp_path / "few.csv", "--target", "sold", "--out", tmp_path)
    assert result.exit_code == 2
    assert "9 rows; at least 10 are needed" in result.output
    frame = table(60).drop(columns="price")
    frame.loc[0, "sold"] = "perhaps"
    frame.to_csv(tmp_path / "rare.csv", index=False)
    result = run(
        *("fit", tmp_path / "rare.csv", "--target", "sold", *QUICK, "--no-refit"),
        *("--out", tmp_path),
    )
    assert result.exit_code == 0, result.output
    assert json.loads((tmp_path / "results.json").read_text())["scores"]["auc"] is None
    assert "undefined" in result.output


def test_summary_warns_of_columns_that_look_wrong():
    n = 40
    y = np.arange(n, dtype=float)
    X = pd.DataFrame(
        {
            "id": [f"row {i}" for i in range(n)],
            "constant": 1,
            "empty": np.nan,
            "rare": [1.0, *[np.nan] * (n - 1)],
            "copy": y,
            "fine": np.arange(n) % 7,
        }
    )
    summary = summarise(X, y, "regression")
    assert summary.columns[1].values == "1 / 1 / 1"
    found = "\n".join(summary.warnings)
    for name in ("id", "constant", "empty", "rare", "copy"):
        assert f"{name!r}" in found
    assert "fine" not in found
    twice = pd.concat([X[["fine"]]] * 2)
    labels = np.r_[np.zeros(2 * n - 1), 1]
    found = summarise(twice, labels, "classification").warnings
    assert any("repeat" in line for line in found)
    assert any("Classes of fewer than 10 rows: 1.0" in line for line in found)


def test_scores_are_those_of_scikit_learn():
    from sklearn.metrics import log_loss, roc_auc_score, root_mean_squared_error

    frame = table(200)
    X, half = frame[["weight", "colour"]], slice(0, 100)
    for task, y in (("regression", frame["price"]), ("classification", frame["sold"])):
        y = y.to_numpy()
        model = list(baselines(X[half], y[half], task).values())[1]
        got = evaluate(model, X[100:], y[100:]).scores
        if task == "regression":
            expected = root_mean_squared_error(y[100:], model.predict(X[100:]))
            assert got["rmse"] == pytest.approx(expected)
            assert got["r2"] == pytest.approx(model.score(X[100:], y[100:]))
            continue
        P = model.predict_proba(X[100:])
        assert got["error"] == pytest.approx(1 - model.score(X[100:], y[100:]))
        assert got["log_loss"] == pytest.approx(log_loss(y[100:], P))
        assert got["auc"] == pytest.approx(roc_auc_score(y[100:] == "yes", P[:, 1]))


def test_a_class_that_was_not_fitted_has_the_least_probability():
    from sklearn.dummy import DummyClassifier

    model = DummyClassifier(strategy="prior").fit([[0], [0]], ["a", "b"])
    got = evaluate(model, np.zeros((2, 1)), np.array(["a", "c"])).scores
    floor = -np.log(np.finfo(float).eps)
    assert got["log_loss"] == pytest.approx((np.log(2) + floor) / 2)
    assert np.isnan(got["auc"])


def test_with_test_rows_the_saved_model_is_the_one_that_was_scored(tmp_path):
    """A second fit to the same rows, in less time, would be another model."""
    frame = table(200)
    frame.head(150).to_csv(tmp_path / "train.csv", index=False)
    frame.tail(50).to_csv(tmp_path / "test.csv", index=False)
    options = ("--test", tmp_path / "test.csv", *QUICK, "--out", tmp_path)
    result = run("fit", tmp_path / "train.csv", "--target", "price", *options)
    assert result.exit_code == 0, result.output
    results = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert results["arguments"]["refit"] is False
    test = pd.read_csv(tmp_path / "test.csv")
    rows = test.drop(columns="price")
    predictions = rk.load(tmp_path / "model.skops").predict(rows)
    rmse = np.sqrt(np.mean((test["price"] - predictions) ** 2))
    assert results["scores"]["rmse"] == pytest.approx(rmse)


def test_a_warning_is_raised_once(capsys):
    with console.user_messages():
        warnings.simplefilter("always")
        for _ in range(3):
            warnings.warn("few rows", UserWarning, stacklevel=1)
            warnings.warn("few columns", UserWarning, stacklevel=1)
    told = capsys.readouterr().err.splitlines()
    assert told == ["randkern: warning: few rows", "randkern: warning: few columns"]


def test_errors_of_files_have_no_numbers_of_the_system(tmp_path):
    result = run("predict", tmp_path / "none.skops", tmp_path / "none.csv")
    assert result.exit_code == 2
    assert f"{tmp_path / 'none.skops'}: no such file" in result.output
    assert "Errno" not in result.output


def test_readers_of_predictions_may_stop(fitted, tmp_path):
    rows = pd.concat([table().drop(columns="sold")] * 100)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    command = [sys.executable, "-c", "from randkern.cli import main; main()", "predict"]
    command += [str(fitted[0] / "out" / "model.skops"), str(tmp_path / "rows.csv")]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == console.PIPE_CLOSED


def test_values_that_the_fit_has_not_seen_are_named(fitted, tmp_path):
    model = fitted[0] / "out" / "model.skops"
    rows = table(8).drop(columns=["price", "sold"])
    rows.loc[0, "colour"] = "mauve"
    rows.loc[1:2, "weight"] = np.nan
    rows.to_csv(tmp_path / "new.csv", index=False)
    result = run("predict", model, tmp_path / "new.csv")
    assert result.exit_code == 0, result.output
    assert (
        "column 'colour': 1 of 8 rows has a category that the model has not seen "
        "('mauve')" in result.output
    )
    assert "column 'weight': 2 of 8 rows have no value, and none was" in result.output
    rows.rename(columns=str.upper).to_csv(tmp_path / "upper.csv", index=False)
    result = run("predict", model, tmp_path / "upper.csv")
    assert "the names differ only in upper and lower case" in result.output


def test_a_file_without_a_target_lists_its_columns(tmp_path):
    table().to_csv(tmp_path / "sales.csv", index=False)
    for command in ("fit", "compare"):
        result = run(command, tmp_path / "sales.csv")
        assert result.exit_code == 2
        assert "--target), one of " in result.output and "'price'" in result.output


def test_a_target_of_names_is_refused(tmp_path):
    frame = table(30).assign(name=[f"name {i}" for i in range(30)])
    frame.to_csv(tmp_path / "names.csv", index=False)
    result = run("fit", tmp_path / "names.csv", "--target", "name")
    assert result.exit_code == 2
    assert "30 different texts in 30 rows" in result.output
    colours = tables.load(str(tmp_path / "names.csv"), "colour", None)
    assert tables.described(colours, None).endswith("because it holds text")


@pytest.mark.slow
def test_copies_of_rows_add_no_certainty(tmp_path):
    """The standard error is that of different rows, not of five copies of each."""
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(rng.normal(size=(200, 2)), columns=["a", "b"])
    rows["y"] = np.where(rows["a"] + rng.normal(size=200) > 0, "yes", "no")
    rows.loc[np.repeat(np.arange(200), 5)].to_csv(tmp_path / "t.csv", index=False)
    out = tmp_path / "o"
    result = run("fit", tmp_path / "t.csv", "--target", "y", *QUICK, "--out", out)
    assert result.exit_code == 0, result.output
    (share, error), *_ = re.findall(r"([\d.]+)% ± ([\d.]+)%", result.output)
    n_held = int(re.search(r"on (\d+) rows held out", result.output)[1]) / 5
    p = float(share) / 100
    assert float(error) / 100 > 0.7 * np.sqrt(p * (1 - p) / n_held)


def test_a_single_group_has_the_error_of_its_rows():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 1)), rng.normal(size=60)
    model = rk.KernelRidgeRegressor(rk.Gaussian(1.0), n_components=None).fit(X, y)
    alone = evaluate(model, X, y)
    grouped = evaluate(model, X, y, groups=np.zeros(60))
    assert grouped.standard_error == alone.standard_error > 0
