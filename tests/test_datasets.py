"""Names, bundled sets, tables, and the real files where they are."""

import dataclasses
import gzip
import json
import sys
from decimal import Decimal

import numpy as np
import pytest

from randkern import TabularEncoder
from randkern.datasets import (
    DATASET_NAMES,
    TableFormat,
    load_dataset,
    read_table,
)
from randkern.datasets.frames import (
    dataset_from_frame,
    infer_task,
    without_free_texts,
)
from randkern.datasets.tables import place_of_row
from randkern.exceptions import DataFileError

pandas = pytest.importorskip("pandas", reason="pandas is not installed")

BUNDLED = {
    "digits": (1797, 64, 10),
    "breast-cancer": (569, 30, 2),
    "diabetes": (442, 10, None),
    "wine": (178, 13, 3),
    "iris": (150, 4, 3),
}


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch):
    """Keep the caller's data folder out of these tests."""
    monkeypatch.delenv("RANDKERN_DATA", raising=False)


# ---------------------------------------------------------------- names


@pytest.mark.parametrize("name", BUNDLED)
def test_bundled(name):
    n, d, n_classes = BUNDLED[name]
    data = load_dataset(name)
    assert data.name == name and data.X_train.shape == (n, d)
    assert data.X_test is None and data.y_test is None
    assert len(data.feature_names) == d
    assert f"n = {n:,}" in data.description and f"d = {d}" in data.description
    if n_classes is None:
        assert data.task == "regression" and data.target_names is None
        assert data.y_train.dtype == np.float64
    else:
        assert data.task == "classification" and len(data.target_names) == n_classes
        assert data.y_train.dtype == np.int64
        assert set(data.y_train) == set(range(n_classes))


def test_unknown_name():
    with pytest.raises(ValueError, match="did you mean 'mnist'") as caught:
        load_dataset("MNIST")
    assert all(name in str(caught.value) for name in DATASET_NAMES)
    with pytest.raises(ValueError, match=r"ends in \.csv"):
        load_dataset("table.doc", target="y")


def test_target_and_task_that_do_not_apply():
    with pytest.raises(ValueError, match="has its own target"):
        load_dataset("iris", target="species")
    with pytest.raises(ValueError, match="is a classification"):
        load_dataset("iris", task="regression")
    assert load_dataset("iris", task="classification").task == "classification"


@pytest.mark.parametrize("name", sorted(set(DATASET_NAMES) - set(BUNDLED)))
def test_files_not_found(name, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"pass data_dir=.*RANDKERN_DATA"):
        load_dataset(name)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load_dataset(name, data_dir=tmp_path / "no")
    with pytest.raises(FileNotFoundError, match=f"no files of '{name}'.*looked for"):
        load_dataset(name, data_dir=tmp_path)
    monkeypatch.setenv("RANDKERN_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="looked for"):
        load_dataset(name)
    (tmp_path / "fashion-mnist-sample").mkdir()
    if name == "fashion-mnist":
        with pytest.raises(FileNotFoundError, match="load it as 'fashion-mnist-sample"):
            load_dataset(name)


# ---------------------------------------------------------------- tables


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    n = 60
    return pandas.DataFrame(
        {
            "age": rng.integers(18, 90, n),
            "income": rng.normal(size=n),
            "city": rng.choice(["Bonn", "Köln", "a, b"], n),
            "member": rng.random(n) < 0.5,
            "price": rng.normal(size=n),
            "kind": rng.choice(["x", "y", "z"], n),
            "level": rng.integers(0, 3, n),
        }
    )


def write_table(frame, path):
    if path.suffix == ".parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
        frame.to_parquet(path)
    else:
        text = frame.to_csv(index=False, sep="\t" if ".tsv" in path.name else ",")
        content = text.encode()
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


SUFFIXES = [".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet"]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(
    ("target", "task", "n_classes"),
    [
        ("price", "regression", None),
        ("kind", "classification", 3),
        ("level", "classification", 3),
        ("member", "classification", 2),
    ],
)
def test_table(suffix, target, task, n_classes, frame, tmp_path):
    path = write_table(frame, tmp_path / f"table{suffix}")
    data = load_dataset(path, target=target)
    assert data.task == task and data.X_test is None
    features = [name for name in frame.columns if name != target]
    assert list(data.X_train.columns) == list(data.feature_names) == features
    if task == "regression":  # pandas 2 reads to some units in the last place
        np.testing.assert_allclose(data.y_train, frame[target], rtol=1e-13)
    else:
        np.testing.assert_array_equal(data.y_train, frame[target].to_numpy())
    if n_classes:
        assert data.target_names == tuple(map(str, sorted(set(frame[target]))))
    types = {name: str(data.X_train[name].dtype) for name in features}
    expected = {
        "age": "int64",
        "income": "float64",
        "city": "category",
        "member": "bool",
        "price": "float64",
        "kind": "category",
        "level": "int64",
    }
    assert types == {name: expected[name] for name in features}
    for name in features:
        assert data.X_train[name].tolist() == pytest.approx(frame[name].tolist())
    assert f"table{suffix}: n = 60, d = 6" in data.description


def test_table_gzip_by_content(frame, tmp_path):
    packed = write_table(frame, tmp_path / "a.csv.gz").rename(tmp_path / "b.csv")
    assert len(load_dataset(str(packed), target="kind").y_train) == 60


def test_table_below_the_data_folder(frame, tmp_path, monkeypatch):
    write_table(frame, tmp_path / "t.csv")
    assert load_dataset("t.csv", data_dir=tmp_path, target="kind").name == "t.csv"
    monkeypatch.setenv("RANDKERN_DATA", str(tmp_path))
    assert load_dataset("t.csv", target="kind").name == "t.csv"
    with pytest.raises(FileNotFoundError, match=r"u\.csv does not exist"):
        load_dataset("u.csv", target="kind")


def test_table_task_override(frame, tmp_path):
    path = write_table(frame, tmp_path / "t.csv")
    data = load_dataset(path, target="level", task="regression")
    assert data.task == "regression" and data.y_train.dtype == np.float64
    assert load_dataset(path, target="price", task="classification").task
    with pytest.raises(ValueError, match="task='regression', but the target 'kind'"):
        load_dataset(path, target="kind", task="regression")
    with pytest.raises(ValueError, match="task='ranking', expected one of"):
        load_dataset(path, target="kind", task="ranking")


def test_table_target_errors(frame, tmp_path):
    path = write_table(frame, tmp_path / "t.csv")
    with pytest.raises(ValueError, match="pass target=") as caught:
        load_dataset(path)
    assert all(repr(name) in str(caught.value) for name in frame.columns)
    with pytest.raises(ValueError, match=r"did you mean 'price'.*'age', 'income'"):
        load_dataset(path, target="prize")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "empty"),
        ("\n\n", "empty"),
        ("a,b,y\n", "no rows"),
        ("a,b,y\n1,2,3\n1,2\n", "line 3 has 2 fields, expected 3"),
        ("a,b,y\n1,2,3\n\n1,2,3,4\n", "line 4 has 4 fields, expected 3"),
        ("a,b,y\n1,2,3,\n1,2,3,\n", "line 2 has 4 fields"),
        ("a,a,b,b,y\n1,2,3,4,5\n", "duplicate column names: a, b;"),
        ("a,y\n1,\n2,NA\n3,x\n", "2 of 3 rows have no value of the .*more than half"),
        ("a,y\n1,2.5\n", "the table has 1 row, expected at least 2"),
        ("a,y\n1,x\n2,x\n", "the target 'y' is 'x' in all 2 rows"),
        ("y\n1\n2\n", "no features"),
        (
            "Sales\na,y\n1,2\n",
            "line 2 has 2 fields, .*--skiprows N",
        ),
        ("a,y\n1,inf\n" + "".join(f"{i},{i}.5\n" for i in range(30)), "1 values .*inf"),
        ('a,y\n1,"2\n2,3\n', "cannot be read as a table|line 3|fields"),
    ],
)
def test_csv_damage(content, message, tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(content)
    with pytest.raises(DataFileError, match=message) as caught:
        load_dataset(path, target="y")
    assert "t.csv" in str(caught.value)


def test_a_series_with_an_index_of_texts_is_read(tmp_path):
    """Its first name is empty, which is not a title."""
    path = tmp_path / "series.csv"
    rows = "".join(f"text number {i},{'ham' if i % 2 else 'spam'}\n" for i in range(30))
    path.write_text(",target\n" + rows)
    with pytest.warns(UserWarning, match="column 1 has no name"):
        assert len(read_table(path)) == 30


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,y\nKöln,1\n".encode("latin1"), "not UTF-8 text.*save the table as UTF-8"),
        (b"PK\3\4\xff\xfe\xff", "zip archive"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "not a text file.*a PNG image"),
        (gzip.compress(b"a,y\n1,2\n" * 100)[:-10], "gzip stream is damaged"),
    ],
)
def test_csv_binary_damage(content, message, tmp_path):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(DataFileError, match=message):
        load_dataset(tmp_path / "t.csv", target="y")


def test_csv_quirks(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("\ufeffa,b,y\r\n1,,u\r\n\r\n2,'q',v\r\n3,\"r, s\",v\r\n".encode())
    data = load_dataset(path, target="y")
    assert data.feature_names == ("a", "b") and data.y_train.tolist() == ["u", "v", "v"]
    assert data.X_train["b"].isna().tolist() == [True, False, False]
    assert data.X_train["b"][2] == "r, s"
    path.write_text(",a,y\n0,1,u\n1,2,v\n")
    with pytest.warns(UserWarning, match="column 1 has no name and is kept"):
        load_dataset(path, target="y")
    path.write_text(",a,,y\n0,1,2,u\n1,2,3,v\n")
    with pytest.warns(UserWarning, match="columns 1 and 3 have no name and are kept"):
        load_dataset(path, target="y")


def test_a_decimal_comma_between_semicolons_is_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a;b;y\n1,5;2;3\n2,5;2;4\n")
    with pytest.raises(DataFileError, match="such as '1,5': say --decimal ',' and"):
        load_dataset(path, target="y")


def test_rows_without_a_target_are_left_out_with_a_warning(tmp_path):
    path = tmp_path / "t.csv"
    rows = [f"{i},{'rare' if i == 5 else 'ab'[i % 2]},{i % 7}.5" for i in range(40)]
    rows[5] = "5,rare,"
    path.write_text("a,b,y\n" + "\n".join(rows))
    with pytest.warns(UserWarning, match="1 of 40 rows has no .* first is line 7"):
        data = load_dataset(path, target="y")
    assert data.X_train["a"].tolist() == [i for i in range(40) if i != 5]
    assert list(data.X_train["b"].cat.categories) == ["a", "b"]
    np.testing.assert_array_equal(
        data.y_train, [i % 7 + 0.5 for i in range(40) if i != 5]
    )
    rows[30] = "30,a,inf"  # errors count the rows of the file
    path.write_text("a,b,y\n" + "\n".join(rows))
    with (
        pytest.warns(UserWarning, match="left out"),
        pytest.raises(DataFileError, match="row 30 holds 'inf'"),
    ):
        load_dataset(path, target="y")


def test_classes_of_whole_numbers_stay_whole_where_targets_are_missing(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,y\n" + "".join(f"{i},{i % 2}\n" for i in range(20)) + "20,\n")
    with pytest.warns(UserWarning, match="1 of 21 rows has no value"):
        data = load_dataset(path, target="y")
    assert data.target_names == ("0", "1") and data.y_train.dtype == np.int64
    labels = [*("1", "01", "2") * 10, ""]
    path.write_text("a,y\n" + "".join(f"{i},{y}\n" for i, y in enumerate(labels)))
    with pytest.warns(UserWarning, match="1 of 31 rows has no value"):
        data = load_dataset(path, target="y")
    assert data.target_names == ("01", "1", "2")


def test_files_that_are_no_tables_are_named_with_what_to_do(tmp_path):
    path = tmp_path / "c.ods"
    path.write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"\.xlsx and \.xlsm are read; save it as"):
        load_dataset(path, target="y")
    path = tmp_path / "c.doc"
    path.write_bytes(b"")
    with pytest.raises(
        ValueError, match=r"expected .csv, .tsv, .*\.zst\), or \.xlsx$"
    ) as caught:
        load_dataset(path, target="y")
    assert len(str(caught.value)) < 180 + len(str(path))


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("t.csv", 'a,b\n1,2\n\n"3\n",4\n5,6\n', "line 6"),
        ("t.tsv", "title\na\tb\n1\t2\n3\t4\n5\t6\n", "line 5"),
        ("t.jsonl", '{"a": 1}\n\n{"a": 2}\n{"a": 3}\n', "line 4"),
        ("t.parquet", "", "row 3"),
        ("t.xlsx", "", "row 5 of the sheet"),
        ("none.csv", None, "row 3"),
    ],
)
def test_places_of_rows_in_files(name, content, place, tmp_path):
    path, form = tmp_path / name, TableFormat(skiprows=int(name in ("t.tsv", "t.xlsx")))
    if content is not None:
        path.write_text(content)
    assert place_of_row(path, 2, form) == place


def write_json_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_json_lines_are_read_as_csv(tmp_path):
    """Texts that are numbers, and columns of texts and numbers."""
    path, first = tmp_path / "t.jsonl", {"a": "3.5", "b": 1.0, "c": "x", "y": "1"}
    rest = [{"a": "", "b": "2.5", "c": "7", "y": "0"}, {"a": "1e3", "y": "1"}]
    write_json_lines(path, [first, *rest])
    data = load_dataset(path, target="y")
    kinds = data.X_train.dtypes.astype(str).to_dict()
    assert kinds == {"a": "float64", "b": "float64", "c": "category"}
    np.testing.assert_array_equal(data.X_train["a"], [3.5, np.nan, 1000])
    np.testing.assert_array_equal(data.X_train["b"], [1, 2.5, np.nan])
    assert data.X_train["c"].tolist()[:2] == ["x", "7"]
    assert data.y_train.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("#", "'a' is numeric, except for '#' in 1 row, read as missing"),
        (True, "'a' is numeric, except for 'True' in 1 row, read as missing"),
        ([1, 2], r"'a' \(object\): row 5 holds \[1, 2\]"),
    ],
)
@pytest.mark.parametrize("kind", [str, float])
def test_odd_values_of_json_lines_are_named(kind, value, message, tmp_path):
    rows = [{"a": kind(i / 7), "y": i % 2} for i in range(60)]
    rows[5]["a"] = value
    write_json_lines(tmp_path / "t.jsonl", rows)
    path = tmp_path / "t.jsonl"
    if isinstance(value, list):
        with pytest.raises(ValueError, match=message):
            load_dataset(path, target="y")
    else:
        with pytest.warns(UserWarning, match=message):
            load_dataset(path, target="y")


def test_csv_formulas_stay_text(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,y\n=1+1,u\n__import__('os'),v\n")
    values = load_dataset(path, target="y").X_train["a"]
    assert values.tolist() == ["=1+1", "__import__('os')"]


def test_parquet_damage(frame, tmp_path):
    path = write_table(frame, tmp_path / "t.parquet")
    content = path.read_bytes()
    for damaged in (content[:-40], content[100:], b"", b"<html>404</html>"):
        path.write_bytes(damaged)
        with pytest.raises(DataFileError, match="not a readable Parquet file"):
            load_dataset(path, target="kind")


def test_parquet_types(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = {
        "nullable": pandas.array([1, None, 3], dtype="Int64"),
        "exact": [Decimal("1.5"), Decimal("2.25"), None],
        "small": np.array([1, 2, 3], dtype=np.int8),
        "single": np.array([1, 2, 3], dtype=np.float32),
        "group": pandas.Categorical(["u", "v", "u"], categories=["v", "u", "w"]),
        "flag": pandas.array([True, None, False], dtype="boolean"),
        "y": pandas.array([0, 1, 1], dtype="Int64"),
    }
    path = tmp_path / "t.parquet"
    pandas.DataFrame(table).to_parquet(path)
    data = load_dataset(path, target="y")
    types = data.X_train.dtypes.astype(str).to_dict()
    assert types == {
        "nullable": "float64",
        "exact": "float64",
        "small": "int8",
        "single": "float32",
        "group": "category",
        "flag": "float64",
    }
    assert data.y_train.dtype == np.int64
    assert list(data.X_train["group"].cat.categories) == ["v", "u", "w"]
    odd = {"lists": [[1], [2]], "when": pandas.to_datetime(["2020", "2021"])}
    pandas.DataFrame({**odd, "y": [0, 1]}).to_parquet(path)
    with pytest.raises(DataFileError, match=r"'lists'.*convert or drop"):
        load_dataset(path, target="y")
    with pytest.raises(DataFileError, match="target 'when' is of type datetime"):
        load_dataset(path, target="when")
    columns = [pyarrow.array([1, 2])] * 3
    parquet.write_table(pyarrow.table(columns, names=["a", "a", "y"]), path)
    with pytest.raises(DataFileError, match="duplicate column names: a;"):
        load_dataset(path, target="y")


@pytest.mark.parametrize(
    "dtype",
    ["text", "object", "M8[s]", "M8[us]", "datetime64[us, UTC]", "date", "arrow"],
)
def test_dates_that_nanoseconds_have_no_room_for(dtype):
    pandas = pytest.importorskip("pandas")
    times = np.array(["2020-01-01", "9999-12-31", "0001-01-01", "1969-12-31T12"], "M8")
    column = pandas.Series(times.astype("M8[us]").astype(object))
    if dtype == "text":
        column = pandas.Series([*map(str, times[:3]), "1969-12-31T13:00+01:00"])
    elif dtype in ("date", "arrow"):
        column = column.map(lambda time: time.date())
        if dtype == "arrow":
            column = column.astype("date32[day][pyarrow]")
    elif dtype != "object":
        values = pandas.Series(times.astype("M8[s]" if dtype == "M8[s]" else "M8[us]"))
        column = values.dt.tz_localize("UTC") if "UTC" in dtype else values
    days = [18262, 2932896, -719162, -1 if dtype in ("date", "arrow") else -0.5]
    table = pandas.DataFrame({"when": column})
    np.testing.assert_array_equal(days_of(table)[:4], days)
    if dtype not in ("text", "object", "date"):
        rows = TabularEncoder().fit_transform(table)[:, 0]
        expected = (days - np.mean(days)) / np.std(days)
        np.testing.assert_allclose(rows, expected, rtol=1e-12)
    column = column.mask([False, True, False, False])
    gone = days_of(pandas.DataFrame({"when": column}))
    np.testing.assert_array_equal(gone[:4], [days[0], np.nan, *days[2:]])


def days_of(table):
    """Return the column `when` as a data set reads it."""
    table = pandas.concat([table] * 5, ignore_index=True)
    y = np.arange(float(len(table)))
    return dataset_from_frame(
        table.assign(y=y, x=y), "y", name="t", source="t"
    ).X_train["when"]


def test_remarks_that_begin_with_dates_are_texts():
    remarks = [None] * 40 + ["2026-01-02"] * 2 + ["2026-01-02: see there", "none"] * 4
    kept = days_of(pandas.DataFrame({"when": remarks}))
    assert kept.tolist()[40:50] == remarks[40:]
    remarks[42:] = ["2026-01-03"] * 8
    days = days_of(pandas.DataFrame({"when": remarks}))
    np.testing.assert_array_equal(days[40:50], [20455.0] * 2 + [20456.0] * 8)
    assert days[:40].isna().all()


def test_free_texts_are_left_out_of_training_and_test_rows():
    pandas = pytest.importorskip("pandas")
    notes = [f"note {row}" for row in range(300)]
    rows = pandas.DataFrame({"x": np.arange(300.0), "note": notes})
    data = dataset_from_frame(
        rows.assign(y=rows["x"]), "y", name="sales", source="sales.csv"
    )
    with pytest.warns(UserWarning, match="dropped columns.*'note'"):
        left = without_free_texts(dataclasses.replace(data, X_test=data.X_train))
    assert list(left.X_train.columns) == list(left.X_test.columns) == ["x"]
    assert "d = 2 (1 categorical)" in data.description
    assert "d = 1 (0 categorical)" in left.description


@pytest.mark.parametrize(
    "amounts", [["$326", "$1,200"], ["1.200,5 €", "-5€"], ["7 kg", "1,200 kg"]]
)
def test_amounts_with_separated_thousands_are_named(amounts, tmp_path):
    table = pandas.DataFrame({"x": range(50), "y": amounts * 25, "z": range(50)})
    table.to_csv(tmp_path / "t.csv", index=False)
    for target in ("y", "z"):
        with pytest.raises(ValueError, match=r"'y' holds numbers with .*--(th|dec)"):
            load_dataset(tmp_path / "t.csv", target=target)
    classes = load_dataset(tmp_path / "t.csv", target="y", task="classification")
    assert classes.target_names == tuple(sorted(amounts))


@pytest.mark.parametrize(
    ("y", "task"),
    [
        (np.linspace(0, 1, 100), "regression"),
        (np.array([0.5, 1.5, 2.5, 3.5]), "regression"),
        (np.tile([0.5, 1.5], 50), "classification"),
        (np.tile([0.0, 1.0], 50), "classification"),
        (np.arange(150), "regression"),
        (np.arange(150.0), "regression"),
        (np.arange(1000) % 26, "classification"),
        (1 + np.arange(1000) % 26, "classification"),
        (17 + np.arange(1000) % 26, "regression"),  # ages
        (2 * (np.arange(1000) % 26), "regression"),
        (np.append(np.arange(1000) % 26, 26), "regression"),  # counts, few large ones
        (np.array(["a", "b"], dtype=object), "classification"),
        (np.array([True, False]), "classification"),
    ],
)
def test_infer_task(y, task):
    assert infer_task(y) == task


# ---------------------------------------------------------------- extras


@pytest.mark.parametrize("module", ["pandas", "pyarrow", "PIL.Image"])
def test_missing_extra_is_named(module, frame, tmp_path, monkeypatch):
    (tmp_path / "train" / "airplane").mkdir(parents=True)
    path = write_table(frame, tmp_path / "t.parquet")
    monkeypatch.setitem(sys.modules, module, None)  # import_module then raises.
    with pytest.raises(ImportError, match=r'pip install "randkern\[data\]"'):
        if module == "PIL.Image":
            load_dataset("cifar10", data_dir=tmp_path)
        else:
            load_dataset(path, target="kind")


# ---------------------------------------------------------------- the real files


@pytest.mark.parametrize("task", [None, "regression"])
def test_texts_among_targets_with_units_are_named(tmp_path, task):
    values = [f"{10 + i / 10:.1f} MPa" for i in range(100)]
    values[3] = "broken"
    rows = [f"{i},{value}" for i, value in enumerate(values)]
    (tmp_path / "t.csv").write_text("\n".join(["a,t", *rows]))
    with pytest.raises(DataFileError, match=r"row 3 holds .broken.*; say --numeric t"):
        load_dataset(tmp_path / "t.csv", target="t", task=task)
    table = load_dataset(tmp_path / "t.csv", target="t", task="classification")
    assert len(set(table.y_train)) == 100


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet", "xlsx"])
def test_numbers_stand_for_missing_values_in_files_of_every_kind(tmp_path, suffix):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("openpyxl")
    frame = pandas.DataFrame({"a": [1, -999, 3, 4], "b": [0.5, 1.5, -999.0, 2.5]})
    path = tmp_path / f"t.{suffix}"
    write = {
        "csv": lambda: frame.to_csv(path, index=False),
        "jsonl": lambda: frame.to_json(path, orient="records", lines=True),
        "parquet": lambda: frame.to_parquet(path),
        "xlsx": lambda: frame.to_excel(path, index=False),
    }
    write[suffix]()
    read = read_table(path, TableFormat(na_values=("-999",)))
    assert np.isnan(read.astype(float)).to_numpy().tolist() == [
        [False, False],
        [True, False],
        [False, True],
        [False, False],
    ]
