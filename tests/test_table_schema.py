"""Files are read with the types of the columns of the fit."""

import json

import numpy as np
import pytest

pytest.importorskip("pandas")
pytest.importorskip("typer")
pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")
pytest.importorskip("skops")
pytest.importorskip("pyarrow")
import pandas as pd
from typer.testing import CliRunner

import randkern as rk
from randkern import cli
from randkern.datasets import TableFormat, load_dataset
from randkern.datasets.frames import with_dependent_rows
from randkern.exceptions import DataFileError

N = 150


def run(*arguments):
    app = cli._build_app()
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def sales():
    r = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "size": r.normal(size=N).round(3),
            "z": r.choice(["1", "2", "3", "A"], N),
            "code": r.choice(["007", "7", "010"], N),
            "grade": r.integers(1, 6, N).astype(object),
            "day": pd.date_range("2024-01-01", periods=N).strftime("%Y-%m-%d"),
            "flag": r.random(N) < 0.5,
        }
    )
    price = table["size"] + 2 * (table["z"] == "2") + 3 * (table["code"] == "007")
    table["price"] = price + table["grade"].astype(float)
    table.loc[3, "grade"], table.loc[9, "grade"] = "?", "-"
    return table


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Return a folder with a model whose column `code` was read as texts."""
    folder = tmp_path_factory.mktemp("schema")
    table = sales()
    table.to_csv(folder / "train.csv", index=False)
    digits = table[table["z"] != "A"]
    digits.head(20).to_csv(folder / "test.csv", index=False)
    result = run(
        *("fit", folder / "train.csv", "--target", "price", "--time-limit", 2),
        *("--categorical", "code", "--test", folder / "test.csv", "--out", folder),
    )
    assert result.exit_code == 0, result.output
    assert "'?', '-' in 2 rows, read as missing" in result.output
    assert "column 'day' holds dates. Rows held out at random lie" in result.output
    # Rows of which `z` and `grade` look like numbers.
    rows = digits.drop(columns="price").iloc[10:16].reset_index(drop=True)
    rows.to_csv(folder / "rows.csv", index=False)
    return folder, rows


def predicted(folder, path):
    result = run("predict", folder / "model.skops", path, "--out", folder / "p.csv")
    assert result.exit_code == 0, result.output
    return pd.read_csv(folder / "p.csv")["prediction"].to_numpy()


def test_texts_of_digits_are_the_categories_of_the_fit(fitted):
    folder, rows = fitted
    expected = predicted(folder, folder / "rows.csv")
    model = rk.load(folder / "model.skops")
    schema = model.table_schema_
    assert schema.kinds["z"] == schema.kinds["code"] == "category"
    assert schema.kinds["grade"] == schema.kinds["size"] == "number"
    assert schema.kinds["day"] == "date" and schema.kinds["flag"] == "boolean"
    # The values themselves, without files: the oracle of all others.
    X = rows.assign(
        grade=rows["grade"].astype(float),
        day=(pd.to_datetime(rows["day"]) - pd.Timestamp(0)) / pd.Timedelta("1D"),
    )
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-9)
    # Dates as pandas reads them, with parse_dates and without.
    for day in (rows["day"], pd.to_datetime(rows["day"])):
        np.testing.assert_allclose(model.predict(X.assign(day=day)), expected)
    odd = X.assign(day=["yesterday", *rows["day"][1:]])
    with pytest.raises(ValueError, match="'day' has dates.* row 0 holds 'yest"):
        model.predict(odd)
    for at in range(len(rows)):
        rows.iloc[[at]].to_csv(folder / "one.csv", index=False)
        one = predicted(folder, folder / "one.csv")
        np.testing.assert_allclose(one, expected[[at]], rtol=1e-9)


def test_columns_are_shown_as_they_were_read(fitted):
    folder, _ = fitted
    output = run("info", folder / "model.skops").output
    assert "6 columns, as they were read" in output and "--categorical" in output
    lines = [line.split(maxsplit=1) for line in output.splitlines()]
    assert ["grade", "number, 1.3% missing (also '?', '-')"] in lines
    for name, kind in (("z", "category"), ("day", "date"), ("flag", "boolean")):
        assert [name, kind] in lines
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "2 (1.3 %; &#39;?&#39;, &#39;-&#39;)" in page and "--categorical" in page
    assert "<td>date</td>" in page and "2024-01-01 / 2024-03-15 / 2024-05-29" in page


def test_durations_are_numbers(tmp_path):
    days = np.arange(40.0)
    table = pd.DataFrame({"wait": pd.to_timedelta(days, unit="D"), "y": days % 3})
    table.to_parquet(tmp_path / "waits.parquet")
    data = load_dataset(tmp_path / "waits.parquet", target="y")
    assert data.schema.kinds["wait"] == "number" and data.schema.dates == []
    np.testing.assert_array_equal(data.X_train["wait"], days)
    np.testing.assert_array_equal(data.schema.apply(table)["wait"], days)


@pytest.mark.parametrize("kind", ["reversed", "jsonl", "numbers", "texts", "tsv"])
def test_the_kind_of_file_does_not_matter(kind, fitted):
    folder, rows = fitted
    expected = predicted(folder, folder / "rows.csv")
    if kind == "reversed":
        path = folder / "rows2.csv"
        rows[rows.columns[::-1]].to_csv(path, index=False)
    elif kind == "jsonl":
        path = folder / "rows.jsonl"
        rows.to_json(path, orient="records", lines=True, double_precision=15)
    elif kind == "tsv":
        path = folder / "rows.tsv"
        rows.to_csv(path, index=False, sep="\t")
    else:
        path = folder / "rows.parquet"
        if kind == "texts":
            typed = rows.astype(str)
        else:
            typed = rows.assign(
                z=rows["z"].astype(int),
                grade=rows["grade"].astype(float),
                day=pd.to_datetime(rows["day"]),
            )
        typed.to_parquet(path)
    np.testing.assert_allclose(predicted(folder, path), expected, rtol=1e-9)


def test_cells_that_are_empty_or_hold_a_placeholder(fitted):
    folder, rows = fitted
    odd = rows.astype(object)
    odd.loc[0, ["grade", "day", "flag", "z"]] = None
    odd.to_csv(folder / "odd.csv", index=False)
    empty = predicted(folder, folder / "odd.csv")
    odd.loc[0, "grade"] = "?"
    odd.to_csv(folder / "odd.csv", index=False)
    np.testing.assert_array_equal(predicted(folder, folder / "odd.csv"), empty)
    odd.loc[0, "grade"] = "five"
    odd.to_csv(folder / "odd.csv", index=False)
    result = run("predict", folder / "model.skops", folder / "odd.csv")
    assert result.exit_code == 2
    assert "'grade'" in result.output and "line 2 holds 'five'" in result.output


def test_a_model_of_python_reads_its_own_types(tmp_path):
    r = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "x": r.normal(size=60),
            "z": r.choice(["1", "2"], 60),
            "level": pd.Categorical(r.integers(3, size=60)),
            "when": pd.date_range("2024-01-01", periods=60),
        }
    )
    model = rk.TabularRegressor(time_limit=1, random_state=0)
    model.fit(X, X["x"] + (X["z"] == "2") + X["level"].astype(int))
    rk.save(model, tmp_path / "model.skops")
    X.head(5).to_csv(tmp_path / "rows.csv", index=False)
    found = predicted(tmp_path, tmp_path / "rows.csv")
    np.testing.assert_allclose(found, model.predict(X.head(5)), rtol=1e-9)


def read(tmp_path, text, name="t.csv", **options):
    (tmp_path / name).write_text(text, encoding="utf-8")
    return load_dataset(tmp_path / name, form=TableFormat(**options), target="y")


def test_columns_are_read_as_asked(tmp_path):
    text = "a,b,c,y\n" + "".join(f"0{i % 3},{i % 4},u{i},{i / 7}\n" for i in range(40))
    text += "01,err,u,3.5\n"
    with pytest.warns(UserWarning, match="'err' in 1 row"):
        data = read(tmp_path, text, categorical=("a",), numeric=("b",), drop=("c",))
    assert list(data.X_train.columns) == ["a", "b"]
    assert set(data.X_train["a"]) == {"00", "01", "02"}
    assert data.X_train["b"].isna().sum() == 1
    assert data.schema.missing == {"b": ("err",)}
    with pytest.raises(ValueError, match=r"no column 'aa' \(did you mean 'a'\?\)"):
        read(tmp_path, text, categorical=("aa",))
    with pytest.raises(ValueError, match="no column 'e'"):
        read(tmp_path, text, drop=("e",))
    with pytest.raises(ValueError, match="a: named more than once"):
        TableFormat(categorical=("a",), drop=("a",))


@pytest.mark.parametrize(
    ("values", "said", "options"),
    [
        (["1,234", "5,678,900", "12"], "--thousands", {"thousands": ","}),
        (["1,5", "2", "1234,25"], "--decimal ','", {"decimal": ","}),
        (["1.234,5", "2,5", "7"], "--decimal ','", {"decimal": ",", "thousands": "."}),
    ],
)
@pytest.mark.parametrize("column", ["a", "y"])
def test_formats_of_numbers_are_named(values, said, options, column, tmp_path):
    numbers = {"1,234": 1234, "5,678,900": 5678900, "1,5": 1.5, "1234,25": 1234.25}
    numbers |= {"1.234,5": 1234.5, "2,5": 2.5}
    expected = [float(numbers.get(value, value)) for value in values] * 10
    other = {"a": "y", "y": "a"}[column]
    text = f"{column}\t{other}\n" + "".join(
        f"{value}\t{i}\n" for i, value in enumerate(values * 10)
    )
    with pytest.raises(DataFileError, match=f"'{column}' holds numbers .*{said}"):
        read(tmp_path, text, "t.tsv")
    data = read(tmp_path, text, "t.tsv", **options)
    found = data.X_train["a"] if column == "a" else data.y_train
    np.testing.assert_array_equal(found, expected)


def test_dates_that_begin_with_day_or_month(tmp_path):
    text = "when,y\n" + "".join(f"{1 + i % 12}/2/2026,{i / 7}\n" for i in range(40))
    with pytest.raises(DataFileError, match=r"'when' holds dates .*--dayfirst"):
        read(tmp_path, text)
    for dayfirst, expected in ((True, "2026-02-01"), (False, "2026-01-02")):
        data = read(tmp_path, text, dayfirst=dayfirst)
        days = (pd.Timestamp(expected) - pd.Timestamp(0)).days
        assert data.X_train["when"].iloc[0] == days
        assert data.schema.kinds["when"] == "date"
        again = data.schema.apply(pd.DataFrame({"when": ["01/02/2026"]}))
        assert again["when"].tolist() == [days]


def test_spaces_around_names_and_texts_are_removed(tmp_path):
    text = "a , b,y\n 1 , red ,1.5\n 2, blue,2.5\n ? ,red ,3.5\n 03,  ,4.5\n"
    with pytest.warns(UserWarning, match=r"'\?' in 1 row"):
        data = read(tmp_path, text)
    assert list(data.X_train.columns) == ["a", "b"]
    np.testing.assert_array_equal(data.X_train["a"], [1, 2, np.nan, 3])
    assert data.X_train["b"].tolist() == ["red", "blue", "red", np.nan]
    data = read(tmp_path, text, categorical=("a",))
    assert data.X_train["a"].tolist() == ["1", "2", "?", "03"]
    with pytest.raises(DataFileError, match="duplicate column names: a;"):
        read(tmp_path, "a, a,y\n1,2,3\n")


def test_ratings_are_classes_if_asked_for(tmp_path):
    text = "a,y\n" + "".join(f"{i},{0.5 + i % 10 / 2}\n" for i in range(100))
    assert read(tmp_path, text).task == "regression"
    data = load_dataset(tmp_path / "t.csv", target="y", task="classification")
    assert set(data.y_train) == {f"{0.5 + i / 2}" for i in range(10)}


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_dates_and_durations_are_refused_as_targets(suffix, tmp_path):
    days = pd.date_range("2024-01-01", periods=40)
    table = pd.DataFrame({"a": range(40), "y": days})
    if suffix == "csv":
        table.to_csv(tmp_path / "t.csv", index=False)
    else:
        table.to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataFileError, match=r"target 'y'.*days"):
        load_dataset(tmp_path / f"t.{suffix}", target="y")


def test_times_of_day_are_numbers(tmp_path):
    import datetime

    table = pd.DataFrame({"t": [datetime.time(i, 30) for i in range(20)]})
    table["y"] = np.arange(20) / 7
    table.to_parquet(tmp_path / "t.parquet")
    data = load_dataset(tmp_path / "t.parquet", target="y")
    np.testing.assert_allclose(data.X_train["t"], (np.arange(20) + 0.5) / 24)


def test_few_texts_among_numbers_are_reported(tmp_path):
    path = tmp_path / "t.csv"
    values = ["1.5", "2.5", "3.5", "broken"] + 46 * ["1.5", "2.5"]
    lines = (f"{k},{value},{k}.5" for k, value in enumerate(values))
    path.write_text("a,b,y\n" + "\n".join(lines))
    with pytest.warns(
        UserWarning, match="'b' holds numbers in 95 of 96 cells.*'broken'"
    ):
        assert load_dataset(path, target="y").X_train["b"].dtype == "category"
    form = TableFormat(numeric=("b",))
    numbers = load_dataset(path, target="y", form=form).X_train["b"]
    assert numbers.isna().sum() == 1


@pytest.mark.parametrize(
    ("name", "separator", "label"),
    [("t.csv", ",", "01"), ("t.tsv", "\t", "007"), ("t.jsonl", "", "01")],
)
def test_labels_with_leading_zeros_are_as_written(name, separator, label, tmp_path):
    path, y = tmp_path / name, [label, "2", label.lstrip("0")] * 20

    def write(y):
        lines = [json.dumps({"a": k / 3, "y": value}) for k, value in enumerate(y)]
        if separator:
            rows = (f"{k / 3}{separator}{value}" for k, value in enumerate(y))
            lines = [f"a{separator}y", *rows]
        path.write_text("\n".join(lines))

    write(y)
    table = load_dataset(path, target="y")
    assert table.y_train.tolist() == y and table.schema.kinds["y"] == "category"
    assert load_dataset(path, target="y", task="regression").y_train[1] == 2.0
    write(["1", "2", "3"] * 20)
    assert load_dataset(path, target="y").y_train.dtype == int


def test_groups_of_single_rows_warn_and_times_of_texts_raise(tmp_path):
    path = tmp_path / "visits.csv"
    pd.DataFrame(
        {
            "visit": [f"v{i}" for i in range(30)],
            "x": np.arange(30.0) % 7,
            "y": np.arange(30.0),
        }
    ).to_csv(path, index=False)
    table = load_dataset(path, target="y")
    with pytest.warns(UserWarning, match="a group of its own in column 'visit'"):
        with_dependent_rows(table, "visit", None)
    with pytest.raises(ValueError, match="--time visit: .* row 0 holds 'v0'"):
        with_dependent_rows(table, None, "visit")


def test_integers_beyond_floats_are_refused_by_their_row(tmp_path):
    table = pd.DataFrame({"a": ["1", "9" * 400, "3"] * 5, "y": np.arange(15) / 10})
    table.to_csv(tmp_path / "t.csv", index=False)
    with pytest.raises(ValueError, match="'a' contains infinity: row 1"):
        load_dataset(tmp_path / "t.csv", target="y")


@pytest.mark.parametrize("missing", [False, True])
def test_targets_of_booleans_are_booleans(tmp_path, missing):
    flags = ["true", "false"] * 10 + ["" if missing else "true"]
    table = pd.DataFrame({"a": np.arange(21.0), "y": flags})
    table.to_csv(tmp_path / "t.csv", index=False)
    y = load_dataset(tmp_path / "t.csv", target="y").y_train
    assert y.dtype == bool
    assert len(y) == 21 - missing
