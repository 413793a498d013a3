"""Files as people write them: each is read as it is meant."""

import json
import os
import subprocess
import sys
import warnings

import numpy as np
import pytest

import randkern as rk
from randkern.datasets import TableFormat, load_dataset, read_table
from randkern.datasets.frames import without_free_texts
from randkern.exceptions import DataFileError

pandas = pytest.importorskip("pandas", reason="pandas is not installed")

N = 60


def load(
    tmp_path, a, y=None, name="t.csv", encoding="utf-8", sep=",", task=None, **options
):
    """Return a data set whose column `a` has some values, repeated."""
    values = [a[i % len(a)] for i in range(N)] if isinstance(a, list) else a
    y = [i + 0.5 for i in range(N)] if y is None else y
    lines = [f"a{sep}y", *(f"{x}{sep}{t}" for x, t in zip(values, y, strict=True))]
    path = tmp_path / name
    path.write_bytes("\n".join(lines).encode(encoding))
    form = TableFormat(**options)
    return load_dataset(path, target="y", form=form, task=task)


def numbers(n=N):
    return [f"{i / 7:.3f}" for i in range(n)]


# Booleans


def test_booleans_may_be_missing_and_have_one_spelling(tmp_path):
    data = load(tmp_path, ["true", "", "FALSE", "True", "false"])
    assert data.schema.kinds["a"] == "boolean"
    np.testing.assert_array_equal(data.X_train["a"][:5], [1, np.nan, 0, 1, 0])
    again = data.schema.apply(pandas.DataFrame({"a": [True, None, "FALSE"]}))
    np.testing.assert_array_equal(again["a"], [1, np.nan, 0])
    for words in (["TRUE", "false"], ["true", "False"]):
        data = load(tmp_path, words)
        assert data.X_train["a"].tolist() == [True, False] * (N // 2)


# Numbers


@pytest.mark.parametrize(
    ("written", "value"),
    [("−2.5", -2.5), ("<0.5", np.nan), ("—", np.nan), ("not measured", np.nan)],
)
def test_columns_of_mostly_numbers_are_numbers(written, value, tmp_path):
    values = numbers()
    values[::3] = [written] * len(values[::3])
    if np.isnan(value):
        with pytest.warns(UserWarning, match=rf"'a' is numeric.*'{written}' in 20 row"):
            data = load(tmp_path, values)
        assert data.schema.missing == {"a": (written,)}
    else:
        data = load(tmp_path, values)
    assert data.schema.kinds["a"] == "number"
    expected = [value if i % 3 == 0 else round(i / 7, 3) for i in range(N)]
    np.testing.assert_allclose(data.X_train["a"], expected)
    data = load(tmp_path, values, categorical=("a",))
    assert data.schema.kinds["a"] == "category"


@pytest.mark.parametrize(
    ("pattern", "unit", "factor"),
    [
        *(("{} kg", "kg", 1), ("${}", "$", 1), ("USD {}", "USD", 1), ("{} %", "%", 1)),
        *(("{} EUR", "EUR", 1), ("{}K", "K", 1), ("{} m²", "m²", 1)),
    ],
)
@pytest.mark.parametrize("column", ["a", "y"])
def test_numbers_may_have_a_unit(pattern, unit, factor, column, tmp_path):
    values = [pattern.format(i * 3) for i in range(N)]
    if column == "a":
        data = load(tmp_path, values)
        found = data.X_train["a"]
        # Another file may leave the unit out, but not have another one.
        again = data.schema.apply(pandas.DataFrame({"a": ["7", values[5]]}))
        assert again["a"].tolist() == [7, 15]
        with pytest.raises(DataFileError, match="is in 'lb', but it was in"):
            data.schema.apply(pandas.DataFrame({"a": ["7 lb", "8 lb"]}))
    else:
        data = load(tmp_path, numbers(), values)
        assert data.task == "regression" and f"of 'y' in {unit}" in data.description
        found = data.y_train
    np.testing.assert_array_equal(found, factor * 3 * np.arange(N))
    assert data.schema.units == {column: unit}


@pytest.mark.parametrize("column", ["a", "y"])
def test_numbers_of_which_some_lack_the_unit_of_others_are_warned_of(column, tmp_path):
    values = numbers()
    values[:10] = [f"{14 + i / 7:.2f} psi" for i in range(10)]
    with pytest.warns(UserWarning, match=f"'{column}' has the unit 'psi' in 10 of 60"):
        load(tmp_path, *(values, numbers())[:: 1 if column == "a" else -1])


def test_a_text_that_is_no_code_makes_no_categories_of_numbers(tmp_path):
    values = numbers()
    values[3] = "about 5"
    with pytest.warns(UserWarning, match="'a' is numeric, except for 'about 5' in 1"):
        data = load(tmp_path, values)
    assert data.schema.kinds["a"] == "number"


def test_thousands_and_millions_beside_each_other(tmp_path):
    data = load(tmp_path, ["12K", "3.5M", "900"])
    assert data.X_train["a"][:3].tolist() == [12_000, 3_500_000, 900]


def test_codes_and_keys_are_texts(tmp_path):
    keys = [f"{i % 7}_{i % 5}" for i in range(N)]
    assert load(tmp_path, keys).schema.kinds["a"] == "category"
    codes = [f"V{i % 9}" if i % 4 == 0 else f"{i % 30}" for i in range(N)]
    assert load(tmp_path, codes).schema.kinds["a"] == "category"


def test_codes_keep_their_zeros(tmp_path):
    codes = [f"{1000 + 500 * (i % 20):05}" for i in range(N)]  # "01000" to "10500"
    with pytest.warns(UserWarning, match="begins? with a zero, such as '01000'"):
        data = load(tmp_path, codes)
    assert data.schema.kinds["a"] == "category"
    assert data.X_train["a"].tolist() == codes
    data = load(tmp_path, codes, numeric=("a",))
    assert data.X_train["a"].tolist() == list(map(int, codes))
    path = tmp_path / "t.jsonl"
    lines = [json.dumps({"a": code, "y": i / 7}) for i, code in enumerate(codes)]
    path.write_text("\n".join(lines))
    with pytest.warns(UserWarning, match="begin with a zero"):
        data = load_dataset(path, target="y")
    assert data.X_train["a"].tolist() == codes
    hours = [f"{i % 24:02}" for i in range(N)]
    with pytest.warns(UserWarning, match="'00'"):
        assert load(tmp_path, hours).schema.kinds["a"] == "category"
    assert load(tmp_path, ["1", "2", "03", ""]).schema.kinds["a"] == "number"
    plain = load(tmp_path, ["0", "0.5", "10", "-3", ""])
    assert plain.schema.kinds["a"] == "number"
    days = [f"{1 + i % 28:02}012020" for i in range(N)]
    assert load(tmp_path, days, date_format="%d%m%Y").schema.kinds["a"] == "date"


def test_numbers_with_a_unit_are_no_classes(tmp_path):
    data = load(tmp_path, numbers(), [f"{20 + i % 6} kg" for i in range(N)])
    assert data.task == "regression" and "of 'y' in kg" in data.description
    data = load(tmp_path, numbers(), [f"{20 + i % 6}" for i in range(N)])
    assert data.task == "classification"


def test_targets_of_numbers_as_texts_are_numbers(tmp_path):
    pytest.importorskip("pyarrow")
    values = [f"{i / 7:.3f}" for i in range(N)]
    frame = pandas.DataFrame({"a": numbers(), "y": values})
    frame.to_parquet(tmp_path / "t.parquet")
    data = load_dataset(tmp_path / "t.parquet", target="y")
    assert data.task == "regression" and data.X_train["a"].dtype == float
    np.testing.assert_array_equal(data.y_train, np.array(values, dtype=float))


def test_numbers_asked_for_in_a_target_leave_other_rows_out(tmp_path):
    values = numbers()
    values[7] = "broken"
    with pytest.raises(DataFileError, match="row 7 holds 'broken'"):
        load(tmp_path, numbers(), values)
    with pytest.warns(UserWarning, match="'broken' in 1 row"):
        data = load(tmp_path, numbers(), values, numeric=("y",))
    assert data.task == "regression" and len(data.y_train) == N - 1


def test_a_class_of_its_own_for_each_row_is_refused(tmp_path):
    names = [f"name {i}" for i in range(N)]
    with pytest.raises(DataFileError, match="60 different texts in 60 rows"):
        load(tmp_path, numbers(), names)


def test_units_that_are_mixed_in_a_target_are_named(tmp_path):
    prices = [f"USD {300 + i}" for i in range(N)]
    prices[5:7] = ["", "326 EUR"]
    with pytest.raises(
        DataFileError, match="mixes units: 'USD', .*1 of 60 rows 'EUR'.*row 6"
    ):
        load(tmp_path, numbers(), prices)
    with pytest.warns(UserWarning, match="'326 EUR' in 1 row, read as missing"):
        data = load(tmp_path, numbers(), prices, numeric=("y",))
    assert data.task == "regression" and len(data.y_train) == N - 2
    repeated = [f"USD {300 + i % 29}" for i in range(N - 1)] + ["326 EUR"]
    for task in (None, "regression"):
        with pytest.raises(DataFileError, match="mixes units"):
            load(tmp_path, numbers(), repeated, task=task)
    assert (
        load(tmp_path, numbers(), repeated, task="classification").task
        == "classification"
    )
    ranks = ["1st", "2nd", "3rd"] * (N // 3)
    assert load(tmp_path, numbers(), ranks).task == "classification"


def test_codes_that_are_left_out_are_warned_of_once(tmp_path):
    codes = [f"{7 * i:05}" for i in range(300)]
    frame = pandas.DataFrame({"code": codes, "a": range(300), "y": np.arange(300) / 7})
    frame.to_csv(tmp_path / "t.csv", index=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        without_free_texts(load_dataset(tmp_path / "t.csv", target="y"))
    (told,) = [str(item.message) for item in caught]
    assert told.startswith("dropped columns") and "--numeric code reads '00000'" in told


# Dates

DAYS = pandas.date_range("2026-07-07", periods=N)


@pytest.mark.parametrize(
    "spelling",
    [
        *("%d-%b-%y", "%d/%m/%y", "%m/%d/%y", "%d %B %Y", "%Y/%m/%d", "%b %d, %Y"),
        *("%d.%m.%Y", "%Y-%m-%d %H:%M", "%a %d %b %Y", "%d/%m/%Y %I:%M %p"),
    ],
)
def test_dates_in_usual_spellings(spelling, tmp_path):
    data = load(tmp_path, [f'"{day.strftime(spelling)}"' for day in DAYS])
    assert data.schema.kinds["a"] == "date"
    first = (DAYS[0] - pandas.Timestamp(0)).days
    np.testing.assert_array_equal(data.X_train["a"], first + np.arange(N))
    again = data.schema.apply(pandas.DataFrame({"a": ["2026-07-08", "09-Jul-26"]}))
    assert again["a"].tolist() == [first + 1, first + 2]


def test_dates_in_mixed_spellings_and_of_a_format(tmp_path):
    spellings = ("%Y-%m-%d", "%d %B %Y", "%d/%m/%y")
    mixed = [day.strftime(spellings[i % 3]) for i, day in enumerate(DAYS)]
    data = load(tmp_path, mixed)
    first = (DAYS[0] - pandas.Timestamp(0)).days
    np.testing.assert_array_equal(data.X_train["a"], first + np.arange(N))
    odd = [day.strftime("%d_%m~%Y") for day in DAYS]
    data = load(tmp_path, odd, date_format="%d_%m~%Y")
    np.testing.assert_array_equal(data.X_train["a"], first + np.arange(N))


def test_dates_without_signs(tmp_path):
    dates = [f"2026{1 + i % 12:02}{1 + i % 28:02}" for i in range(N)]
    data = load(tmp_path, dates)
    assert data.schema.kinds["a"] == "date"
    start = np.datetime64("2026-01-01").astype(int)
    expected = pandas.to_datetime(dates).to_numpy().astype("M8[D]").astype(int)
    np.testing.assert_array_equal(data.X_train["a"], expected)
    later = data.schema.apply(pandas.DataFrame({"a": [20270101, 19000101]}))
    assert later["a"].tolist() == [start + 365, np.datetime64("1900-01-01").astype(int)]
    assert load(tmp_path, dates, numeric=("a",)).schema.kinds["a"] == "number"
    none = [*dates[:-1], "20260230"]
    assert load(tmp_path, none).schema.kinds["a"] == "number"


def test_what_is_no_date_is_missing(tmp_path):
    values = DAYS.strftime("%Y-%m-%d").tolist()
    values[3], values[5] = "unknown", "0000-00-00"
    with pytest.warns(
        UserWarning, match="'a' is of dates, except for 'unknown', '0000"
    ):
        data = load(tmp_path, values)
    assert np.flatnonzero(data.X_train["a"].isna()).tolist() == [3, 5]


# Files


def test_the_separator_divides_lines_into_equal_fields(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('a;"size, in m";y\n' + "".join(f"u;{i}.5;{i}\n" for i in range(9)))
    assert list(read_table(path)) == ["a", "size, in m", "y"]
    path.write_bytes(b"a,b\r1,2\r3,4\r")
    assert read_table(path).to_dict("list") == {"a": [1, 3], "b": [2, 4]}
    path.write_text("a~b\n1~2\n")
    form = TableFormat(sep="~")
    assert read_table(path, form).to_dict("list") == {"a": [1], "b": [2]}


def test_titles_are_skipped_and_names_may_be_missing(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("Sales of 2026\n\na,b\n1,2\n")
    with pytest.raises(DataFileError, match="--skiprows N"):
        read_table(path)
    for form in (TableFormat(skiprows=2), TableFormat(skiprows=1)):
        assert read_table(path, form).to_dict("list") == {"a": [1], "b": [2]}
    path.write_text("1,2\n3,4\n")
    found = read_table(path, TableFormat(header=None))
    assert found.to_dict("list") == {"0": [1, 3], "1": [2, 4]}


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-16-le"])
def test_encodings(encoding, tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("name,y\nKöln,1\n".encode(encoding))
    if encoding != "utf-16":
        with pytest.raises(DataFileError, match="--encoding"):
            read_table(path)
    form = TableFormat(encoding=None if encoding == "utf-16" else encoding)
    assert read_table(path, form)["name"].tolist() == ["Köln"]
    with pytest.raises(ValueError, match="unknown encoding: utf-9"):
        read_table(path, TableFormat(encoding="utf-9"))


def test_missing_values_may_be_named(tmp_path):
    data = load(tmp_path, ["1", "-999", "3"], na_values=("-999",))
    np.testing.assert_array_equal(data.X_train["a"][:3], [1, np.nan, 3])


def test_spreadsheets_are_read(tmp_path):
    pytest.importorskip("openpyxl")
    frame = pandas.DataFrame(
        {"a": numbers(), "day": DAYS, "flag": [True, False] * 30, "y": range(N)}
    )
    frame.to_excel(tmp_path / "t.xlsx", index=False)
    data = load_dataset(tmp_path / "t.xlsx", target="y")
    assert data.schema.kinds == {
        **{"a": "number", "day": "date", "flag": "boolean", "y": "number"}
    }
    (tmp_path / "t.xlsx").write_bytes(b"PK")
    with pytest.raises(DataFileError, match="not a readable spreadsheet"):
        load_dataset(tmp_path / "t.xlsx", target="y")


def test_odd_lines_of_json_are_named(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"a": 1}\n{"a": ' + "9" * 400 + "}\n")
    assert read_table(path)["a"].tolist() == [1, np.inf]
    path.write_text('{"a": 1}\n{"a": ' + "[" * 100_000 + "]" * 100_000 + "}\n")
    with pytest.raises(DataFileError, match="line 2 is not JSON"):
        read_table(path)


# Commands


@pytest.fixture(scope="module")
def sales(tmp_path_factory):
    """Return a folder with a table whose names are odd, and a model fitted to it."""
    pytest.importorskip("typer")
    pytest.importorskip("jinja2")
    pytest.importorskip("skops")
    folder = tmp_path_factory.mktemp("sales")
    r = np.random.default_rng(0)
    frame = pandas.DataFrame(
        {
            "id": [f"{i:03}" for i in range(80)],
            "size [/m]": r.normal(size=80).round(3),
            "a,b": r.integers(1000, size=80),
            "at": 1_751_900_000_000 + r.integers(1_000_000, size=80),
            "member": r.choice(["true", "", "FALSE"], 80),
        }
    )
    frame["rate [/min]"] = 5 * frame["size [/m]"] + (frame["at"] % 1_000_000) / 1e5
    frame.to_csv(folder / "sales.csv", index=False)
    result = run(
        *("fit", folder / "sales.csv", "--target", "rate [/min]", "--drop", 'id,"a,b"'),
        *("--time-limit", 4, "--out", folder / "o [v2]"),
    )
    assert result.exit_code == 0, result.output
    return folder, result.output


def run(*arguments):
    from typer.testing import CliRunner

    from randkern import cli

    return CliRunner().invoke(cli._build_app(), [str(each) for each in arguments])


@pytest.mark.slow
def test_brackets_and_commas_in_names(sales):
    folder, output = sales
    assert "regression of 'rate [/min]'" in output and "o [v2]/report.html" in output
    assert "bug of randkern" not in output
    model = folder / "o [v2]" / "model.skops"
    info = run("info", model).output
    assert "size [/m]" in info and "a,b" not in info and "member" in info
    page = (folder / "o [v2]" / "report.html").read_text(encoding="utf-8")
    assert "could not be drawn" not in page


@pytest.mark.slow
def test_predictions_may_carry_columns_of_the_rows(sales):
    folder, _ = sales
    model, out = folder / "o [v2]" / "model.skops", folder / "p.csv"
    for options in (["--id", "id"], ["--keep"], []):
        result = run("predict", model, folder / "sales.csv", "--out", out, *options)
        assert result.exit_code == 0, result.output
        found = pandas.read_csv(out, dtype={"id": str})
        assert len(found) == 80 and found.columns[-1] == "prediction"
        assert (
            len(found.columns) == {"--id": 2, "--keep": 7, "": 1}[(options or [""])[0]]
        )
        if "--id" in options:
            assert found["id"].tolist() == [f"{i:03}" for i in range(80)]
    more = pandas.read_csv(folder / "sales.csv").assign(added=1)
    more.to_csv(folder / "more.csv", index=False)
    result = run("predict", model, folder / "more.csv", "--out", out)
    assert result.output.count("was not fitted to: 'added'\n") == 1
    result = run("predict", model, folder / "more.csv", "--out", out, "--id", "added")
    assert "not fitted to" not in result.output
    refused = run("predict", model, folder / "sales.csv", "--id", "key")
    assert refused.exit_code == 2 and "no column 'key'" in refused.output


@pytest.mark.nightly
def test_a_closed_pipe_and_letters_that_cannot_be_encoded(sales, tmp_path):
    """The files are written all the same."""
    folder, _ = sales
    frame = pandas.read_csv(folder / "sales.csv").rename(columns={"at": "время"})
    frame.to_csv(tmp_path / "t.csv", index=False)
    fit = [sys.executable, "-c", "from randkern.cli import main; main()", "fit"]
    fit += ["t.csv", "--target", "rate [/min]", "--time-limit", "1", "--no-refit"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    process = subprocess.Popen(
        [*fit, "--out", "closed"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    process.stdout.close()
    assert process.wait() == 141
    assert (tmp_path / "closed" / "results.json").exists()
    done = subprocess.run(
        [*fit, "--out", "ascii"], cwd=tmp_path, env=environment, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    assert b"? one standard error" in done.stdout


def test_names_do_not_write_to_the_terminal(tmp_path):
    pytest.importorskip("typer")
    import randkern

    name = "a\x1b[2J\x07"
    frame = pandas.DataFrame({name: np.arange(30.0), "b": np.arange(30.0) % 7})
    model = randkern.KernelRidgeRegressor().fit(frame, frame["b"])
    randkern.save(model, tmp_path / "m.skops")
    shown = run("info", tmp_path / "m.skops").output
    assert "\x1b" not in shown and "\x07" not in shown and "\\x1b[2J" in shown


def test_a_baseline_that_fails_is_left_out(monkeypatch):
    from sklearn.linear_model import RidgeCV

    from randkern.reporting.baseline_models import baselines

    def fail(*_):
        raise ValueError("no")

    monkeypatch.setattr(RidgeCV, "fit", fail)
    frame = pandas.DataFrame({"a": np.arange(30.0)})
    with pytest.warns(UserWarning, match="ridge regression could not be fitted"):
        fitted = baselines(frame, np.arange(30.0), "regression")
    assert list(fitted) == ["mean", "boosted trees"]


def test_what_is_no_file_is_named(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    for path, message in (
        (tmp_path / "pipe.csv", "is a named pipe"),
        ("https://example.org/t.csv", "is an address; download"),
        (tmp_path / "no.csv", "does not exist"),
    ):
        with pytest.raises(FileNotFoundError, match=message):
            read_table(path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe is a named pipe, not a file"):
        load_dataset(tmp_path / "pipe", target="y")


# Scores that mislead


@pytest.mark.slow
def test_copies_of_rows_are_held_out_together(tmp_path):
    r = np.random.default_rng(0)
    rows = pandas.DataFrame(r.normal(size=(120, 3)), columns=["a", "b", "c"])
    rows["y"] = r.normal(size=120)  # which nothing predicts
    pandas.concat([rows] * 6).to_csv(tmp_path / "t.csv", index=False)
    result = run(
        *("fit", tmp_path / "t.csv", "--target", "y", "--time-limit", 1),
        *("--no-refit", "--out", tmp_path),
    )
    assert "600 of 720 rows are copies of others" in result.output
    found = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))
    assert found["scores"]["r2"] < 0.3


def test_intervals_that_miss_later_rows_are_reported():
    from randkern.reporting.scores import EvaluatedModel, Evaluation

    y = np.arange(100.0)

    def warning(coverage):
        evaluation = Evaluation(y, {"rmse": 1.0, "coverage": coverage}, 0.1)
        rows = pandas.DataFrame({"a": y})
        return EvaluatedModel(
            None, (rows, y), (rows, y), evaluation, {}
        ).coverage_warning

    assert "4% of the held-out targets are inside their 90%" in warning(0.04)
    assert warning(0.8) is None


@pytest.mark.slow
def test_the_logarithm_of_a_skewed_target_is_tried(tmp_path):
    r = np.random.default_rng(4)
    rows = pandas.DataFrame(r.normal(size=(160, 2)), columns=["a", "b"])
    rows["y"] = np.exp(2 * rows["a"] + 5 + 0.3 * r.normal(size=160))
    rows.to_csv(tmp_path / "t.csv", index=False)
    fit = ["fit", tmp_path / "t.csv", "--target", "y", "--no-refit", "--out", tmp_path]
    advice = "its logarithm is easier to fit"
    assert advice in run(*fit, "--time-limit", 20).output
    assert advice in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert advice not in run(*fit, "--log-target", "--time-limit", 20).output
    rows["y"] = rows["a"] + r.standard_t(1.5, 160)  # skewed at most by chance
    rows.to_csv(tmp_path / "t.csv", index=False)
    assert advice not in run(*fit, "--time-limit", 20).output


def test_counts_are_not_below_zero():
    r = np.random.default_rng(0)
    X = r.normal(size=(120, 2))
    model = rk.TabularRegressor(time_limit=1, random_state=0)
    y = r.poisson(np.exp(X[:, 0]))
    low, high = model.fit(X, y).predict_interval(X).T
    predicted = model.predict(X)
    assert low[predicted >= 0].min() == 0 and (low < high).all()
    # Rounding errors may part a prediction from the bound that it is.
    assert (low <= predicted + 1e-9).all() and (predicted <= high).all()
    assert model.fit(X, y - 0.5).predict_interval(X).min() < -0.5


@pytest.mark.parametrize(
    "last, is_warned",
    [
        (("Total", 66, 10.0, 1.0), True),
        (("x9", 66, 10.0, 1.0), True),
        (("x9", 12, 1.5, 1.0), False),
    ],
)
def test_a_row_of_totals_is_named(tmp_path, last, is_warned):
    rows = [(f"x{i}", i, 2.5 if i == 11 else 0.75, float(i % 3)) for i in range(1, 12)]
    frame = pandas.DataFrame([*rows, last], columns=["key", "n", "weight", "y"])
    frame.to_csv(tmp_path / "rows.csv", index=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        load_dataset(tmp_path / "rows.csv", target="y", task="regression")
    assert any("the last row" in str(item.message) for item in caught) == is_warned


def test_a_column_that_the_fit_lacked_is_ignored_in_python_too():
    rng = np.random.default_rng(0)
    X = pandas.DataFrame(rng.normal(size=(40, 2)), columns=["a", "b"])
    model = rk.TabularRegressor(time_limit=1, random_state=0).fit(X, X["a"])
    more = X.assign(id=range(40))[["id", "a", "b"]]
    with pytest.warns(UserWarning, match="ignored columns of X .* not fitted to: 'id'"):
        found = model.predict(more)
    np.testing.assert_array_equal(found, model.predict(X))
    with pytest.raises(ValueError, match="missing"):
        model.predict(more[["id", "a"]])
