"""Generated families of tables, and the benchmark that draws them."""

import json

import numpy as np
import pytest

pytest.importorskip("pandas")
pytest.importorskip("matplotlib")

import pandas as pd

from _lab import COMMON, here
from randkern_lab.benchmarks import families
from randkern_lab.benchmarks.families import FAMILIES, Families, draw_table


@pytest.mark.parametrize("kind", ["regression", "classification"])
@pytest.mark.parametrize("family", FAMILIES)
def test_tables_of_a_family(family, kind):
    X, y, test = draw_table(family, kind, 200, 12, 1)
    again, same, _ = draw_table(family, kind, 200, 12, 1)
    pd.testing.assert_frame_equal(X, again)
    assert np.array_equal(y, same)
    assert X.shape == (1200, 12) and test.sum() == 1000 and not test[:200].any()
    assert not X.equals(draw_table(family, kind, 200, 12, 2)[0])
    if kind == "classification":
        assert set(y) == {0, 1} and 0.2 < y.mean() < 0.8
        labels = draw_table(family, kind, 200, 12, 2)[1]
        np.testing.assert_allclose(np.bincount(labels), 300, atol=1)
    else:
        # The signal has variance 1, and noise 0.16; the sample has 1,200 rows.
        assert y.var() == pytest.approx(1.16, abs=0.15)


def test_noise_is_what_the_signal_leaves():
    """Of steps of known columns, by the spread within groups of equal signals."""
    n = 4000
    X, y, _ = draw_table("linear", "regression", n, 3, 1)
    A = np.column_stack([np.ones(len(X)), X.to_numpy()])
    left = y - A @ np.linalg.lstsq(A, y, rcond=None)[0]
    # The deviation of an estimated deviation is 0.4/√(2n).
    assert left.std() == pytest.approx(0.4, abs=5 * 0.4 / np.sqrt(2 * n))


@pytest.mark.nightly
def test_records(tmp_path, monkeypatch):
    monkeypatch.setattr(families, "in_fresh_process", here)
    options = families.Options(
        families=("steps", "categories"),
        sizes=("40x6",),
        methods=("hgb", "ridge"),
        tables=2,
    )
    results = Families.run(options)
    assert set(results) == COMMON | {"ranks"}
    assert json.loads(json.dumps(results, allow_nan=False)) == results
    assert len(results["records"]) == 2 * 2 * 2 * 2
    for record in results["records"]:
        assert record["n_train"] == 40 and record["n_test"] == 1000
        assert record["n_columns"] == 6 and record["size"] == "40x6"
    assert [each["name"] for each in results["dataset"]] == ["steps", "categories"]
    assert "trees of depth 3" in results["dataset"][0]["description"]
    titles = [table.title for table in Families.tables(results)]
    assert "Log loss" in titles
    # Tables of both kinds have the same names, but errors that do not compare: each
    # table has one method with a ratio of 1.
    lines = Families.figure(results).axes[0].get_lines()
    ratios = [line.get_ydata() for line in lines if len(line.get_ydata()) == 8]
    assert len(ratios) == 2
    np.testing.assert_array_equal(np.min(ratios, axis=0), 1.0)


def test_unknown_families_are_named():
    with pytest.raises(ValueError, match="unknown family 'stairs'"):
        Families.run(families.Options(families=("stairs",)))
