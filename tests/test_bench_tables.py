"""The benchmark of tables: its records, ranks, tables, figures and complaints."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import friedmanchisquare

pytest.importorskip("pandas")
pytest.importorskip("matplotlib")

import pandas as pd

from _lab import COMMON, here
from randkern_lab.benchmarks import tables
from randkern_lab.benchmarks.tables import METHODS, Tables, mean_ranks, read_table

RECORD = {
    *("table", "kind", "fold", "method", "label", "n_train", "n_test", "n_columns"),
    *("test_error", "log_loss", "coverage", "fit_seconds", "fit_cpu_seconds"),
    *("predict_seconds", "process_seconds"),
    *("peak_memory_bytes", "peak_anonymous_bytes"),
}


def write(folder):
    rng = np.random.default_rng(0)
    for name, ending in (("wavy", "csv"), ("steps", "parquet"), ("sorts", "csv.gz")):
        X = pd.DataFrame({"a": rng.normal(size=90), "b": rng.choice(list("xyz"), 90)})
        y = np.sin(3 * X["a"]) + (X["b"] == "x")
        X.loc[3, "b"] = None
        X["target"] = np.where(y > 0.3, "up", "down") if name == "sorts" else 100 * y
        if name != "steps":
            X["fold"] = np.arange(90) % 3
        write = X.to_parquet if ending == "parquet" else X.to_csv
        write(folder / f"{name}.{ending}", index=False)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """All methods that are here, in this process."""
    folder = tmp_path_factory.mktemp("tables")
    write(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "in_fresh_process", here)
        options = tables.Options(folder=folder, time_limit=0.3, folds=2)
        return Tables.run(options)


@pytest.mark.nightly
def test_records(results):
    assert set(results) == COMMON | {"ranks"}
    assert json.loads(json.dumps(results, allow_nan=False)) == results
    assert all(set(record) == RECORD for record in results["records"])
    assert [item["kind"] for item in results["dataset"]] == [
        *("classification", "regression", "regression")
    ]
    assert results["arguments"]["folder"] == "DIR"
    for record in results["records"]:
        assert record["n_train"] + record["n_test"] == 90
        assert record["n_test"] == (18 if record["table"] == "steps" else 30)
        assert record["n_columns"] == 2
        assert record["test_error"] < 1.2
        tabular = record["method"] == "tabular"
        classified = record["kind"] == "classification"
        assert (record["coverage"] is None) == (not tabular or classified)
        known = classified and record["method"] != "svm"
        assert (record["log_loss"] is not None) == known
    here_ = {record["method"] for record in results["records"]}
    assert {"tabular", "metric", "ridge", "hgb", "forest", "svm"} <= here_
    for skipped in results["skipped"]:
        assert (
            "not installed" in skipped["reason"] or "no classifier" in skipped["reason"]
        )


@pytest.mark.nightly
def test_what_is_shown(results):
    shown = Tables.tables(results)
    titles = [table.title for table in shown]
    assert titles[:5] == [
        "Root mean squared error of standardised targets",
        *("Share of wrong labels", "Log loss"),
        *("Share of targets in intervals of 90 %", "Seconds of the fit"),
    ]
    assert titles[5:] == [
        "Mean ranks (and on how many tables randkern, Tabular* has no larger error)"
    ]
    assert len(shown[0].rows) == 2
    assert any("may be equal (Nemenyi, 5 %)" in note for note in results["notes"])
    ranks = {row[0]: row[1] for row in shown[-1].rows}
    assert re.fullmatch(r"\d\.\d\d", ranks[METHODS["tabular"].label])
    assert re.fullmatch(r"\d\.\d\d \([012]\)", ranks[METHODS["hgb"].label])
    (legend,) = Tables.figure(results).legends
    labels = [text.get_text() for text in legend.texts]
    assert labels[0] == METHODS["tabular"].label


def test_ranks_are_those_of_the_friedman_test():
    rng = np.random.default_rng(2)
    errors = rng.random((5, 3))
    methods = ["tabular", "hgb", "forest"]
    records = [
        {
            "kind": "regression",
            "table": t,
            "method": m,
            "test_error": errors[t, j] + shift,
        }
        for t in range(5)
        for j, m in enumerate(methods)
        for shift in (-0.01, 0.01)
    ]
    records.append(
        {"kind": "regression", "table": 0, "method": "svm", "test_error": 0.1}
    )
    result = mean_ranks(records, "regression", "test_error")
    assert set(result["ranks"]) == set(methods)
    ranks = np.array([result["ranks"][m] for m in methods])
    statistic = 12 * 5 / (3 * 4) * ((ranks - 2) ** 2).sum()
    assert statistic == pytest.approx(friedmanchisquare(*errors.T).statistic)
    assert result["first"] == "tabular"
    assert result["first_as_good"] == {
        method: int((errors[:, 0] <= errors[:, j]).sum())
        for j, method in enumerate(methods[1:], 1)
    }
    assert mean_ranks(records, "classification", "test_error") is None


def test_the_critical_difference_is_that_of_demsar():
    assert tables.critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)


def test_whole_numbers_of_few_values_are_classes():
    kinds = [
        tables.kind_of(np.array(y))
        for y in ([-1.0, 1.0], [0.5, 1.0], np.arange(21.0), ["a", "b"], [True, False])
    ]
    assert kinds == [
        *("classification", "regression", "regression"),
        *("classification", "classification"),
    ]


def test_complaints(tmp_path):
    with pytest.raises(ValueError, match="no table in"):
        Tables.run(tables.Options(folder=tmp_path))
    with pytest.raises(ValueError, match="method"):
        Tables.run(tables.Options(methods=("tree",)))
    write(tmp_path)
    request = {"table": "wavy", "path": str(tmp_path / "wavy.csv"), "target": "y"}
    request |= {"fold": 0, "rows": None, "seed": 0, "drop": ()}
    with pytest.raises(ValueError, match="no column 'y', only .*--target"):
        read_table(request)
    with pytest.raises(ValueError, match="no fold 7"):
        read_table(request | {"target": "target", "fold": 7})
    X, y, test = read_table(request | {"target": "target", "rows": 20})
    assert (len(X), len(y), test.sum()) == (50, 50, 30)


def test_dropped_columns_are_no_features(tmp_path):
    write(tmp_path)
    request = {"table": "wavy", "path": str(tmp_path / "wavy.csv"), "target": "target"}
    request |= {"fold": 0, "rows": None, "seed": 0, "drop": ("a", "elsewhere")}
    X, _, test = read_table(request)
    assert (list(X), test.sum()) == (["b"], 30)
    options = tables.Options(folder=tmp_path, drop=("a", "elsewhere"), methods=("hgb",))
    with pytest.raises(ValueError, match="no table has a column named elsewhere; --dr"):
        Tables.run(options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "in_fresh_process", here)
        results = Tables.run(replace(options, drop=("a",)))
    assert {record["n_columns"] for record in results["records"]} == {1}
    assert {table["n_columns"] for table in results["dataset"]} == {1}
