"""Signs of leakage: groups, times, and columns that determine the target."""

import numpy as np
import pandas as pd
import pytest

from randkern.datasets import load_dataset
from randkern.datasets.registry import BUNDLED_NAMES
from randkern.tabular.leakage import suspected_leakage

N = 400


def table(seed=0):
    r = np.random.default_rng(seed)
    X = pd.DataFrame(
        {
            "a": r.normal(size=N),
            "b": r.uniform(1, 2, size=N),
            "colour": r.choice(["red", "green", "blue"], size=N),
            "count": r.poisson(3, size=N),
        }
    )
    y = X["a"] + X["count"] + (X["colour"] == "red") + 0.3 * r.normal(size=N)
    return r, X, y.to_numpy()


def found_in(X, y, task="regression", **options):
    return [(s.kind, s.columns) for s in suspected_leakage(X, y, task, **options)]


def test_an_ordinary_table_is_not_suspected():
    for seed in range(20):
        _, X, y = table(seed)
        assert found_in(X, y) == []
        assert found_in(X, y > 3, "classification") == []
        assert found_in(X, np.where(y > 3, "high", "low"), "classification") == []


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_a_column_that_names_groups(as_text, task):
    r, X, y = table()
    group = r.integers(25, size=N)
    X["centre"] = [f"c{g:02}" for g in group] if as_text else group * 7
    y = y + 10 * r.normal(size=25)[group]
    target = y if task == "regression" else y > np.median(y)
    assert found_in(X, target, task) == [("group", ("centre",))]
    # Beside a shuffled copy of it, whose values mean nothing.
    X["centre"] = r.permutation(X["centre"])
    assert found_in(X, target, task) == []


def test_weak_groups_are_suspected_if_their_column_is_called_so():
    r, X, y = table()
    group = r.integers(25, size=N)
    y = y + r.normal(size=25)[group]
    for name, expected in (("patient_id", 1), ("userId", 1), ("grid", 0), ("kid", 0)):
        X_named = X.assign(**{name: group})
        assert found_in(X_named, y) == [("group", (name,))] * expected


def test_numbers_with_a_smooth_effect_name_no_groups():
    r, X, _ = table()
    age = r.integers(18, 80, size=N)
    y = np.sin(age / 15) + 0.1 * r.normal(size=N)
    assert found_in(X.assign(age=age), y) == []
    hour = r.integers(24, size=N)
    y = np.cos(2 * np.pi * hour / 24) + 0.1 * r.normal(size=N)
    assert found_in(X.assign(hour=hour), y) == []


def test_dates_and_rows_in_the_order_of_time():
    r, X, _ = table()
    walk = np.cumsum(r.normal(size=N))
    day = pd.date_range("2025-01-01", periods=N)
    assert found_in(X.assign(day=day), walk) == [("time", ("day",))]
    days = np.arange(N) + 20089.5
    assert found_in(X.assign(day=days), walk, dates=["day"]) == [("time", ("day",))]
    assert found_in(X.assign(t=days[::-1]), walk) == [("time", ("t",))]
    # Sorted, but with targets unrelated to the order; and not sorted.
    assert found_in(X.assign(t=days), r.permutation(walk)) == []
    assert found_in(X.assign(t=r.permutation(days)), walk) == []


def test_columns_that_determine_the_target():
    _, X, y = table()
    fahrenheit = np.round(1.8 * y + 32, 2)
    assert found_in(X.assign(f=fahrenheit), y) == [("target", ("f",))]
    assert found_in(X.assign(e=np.exp(y / 5)), y) == [("target", ("e",))]


def test_columns_that_determine_classes():
    r, X, y = table()
    label = np.array(["low", "middle", "high"])[np.digitize(y, [2, 4])]
    code = pd.Series(label).map({"low": "x", "middle": "y", "high": "z"})
    assert found_in(X.assign(code=code), label, "classification") == [
        ("target", ("code",))
    ]
    assert found_in(X.assign(score=y), label, "classification") == [
        ("target", ("score",))
    ]
    # Four rows of another class may coincide with anything.
    rare = np.zeros(N, dtype=int)
    rare[:4] = 1
    assert found_in(X.assign(flag=rare), rare, "classification") == []


def test_odd_tables():
    _, X, y = table()
    assert found_in(X[:10], y[:10]) == []
    assert found_in(X, np.ones(N)) == []
    X["empty"] = np.nan
    X["mixed"] = pd.Series([1, "two", None, 4.5] * (N // 4), dtype=object)
    X["large"] = 1e300 * np.arange(N)
    assert found_in(X, np.random.default_rng(0).permutation(y)) == []
    polars = pytest.importorskip("polars")
    X = polars.DataFrame({"x": y, "s": ["a", None] * (N // 2)})
    assert found_in(X, 2 * y) == [("target", ("x",))]


@pytest.mark.parametrize("name", BUNDLED_NAMES)
def test_no_false_alarm_on_bundled_data(name):
    data = load_dataset(name)
    X = pd.DataFrame(data.X_train).add_prefix("x")
    assert suspected_leakage(X, data.y_train, data.task) == []


@pytest.mark.filterwarnings("ignore")
def test_only_the_groups_of_parkinsons_among_shared_tables(data_dir):
    paths = sorted(data_dir.glob("tables/*/*.csv.gz"))
    if not paths:
        pytest.skip("needs RANDKERN_DATA, a folder with tables")
    for path in paths:
        data = load_dataset(path, target="target")
        expected = [("group", ("group",))] * path.name.startswith("parkinsons")
        assert found_in(data.X_train, data.y_train, data.task) == expected, path
