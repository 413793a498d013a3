"""The benchmark of all our ways: its cases, records and command."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from randkern_lab.benchmarks.rows import load_rows
from randkern_lab.benchmarks.ways import METHODS, Options, Ways

pytestmark = pytest.mark.slow

RECORD = {
    *("method", "label", "n_components", "n_train", "max_iter", "seed"),
    *("test_error", "train_seconds", "train_cpu_seconds", "predict_seconds"),
    *("warm_up_seconds", "process_seconds", "peak_memory_bytes", "peak_gb"),
    "peak_anonymous_bytes",
}


@pytest.fixture(scope="module")
def results(quick):
    return quick("ways")


def test_every_way_has_its_documented_keys(results):
    assert [r["method"] for r in results["records"]] == list(METHODS)
    assert all(set(record) == RECORD for record in results["records"])
    assert not results["skipped"]


def test_sizes_are_those_of_each_way():
    bench = Ways(Options(n_components=(20, 10), landmarks=(5,), exact_rows=(50, 200)))
    bench.n = 100
    sizes = {method: [] for method in METHODS}
    for case in bench.cases():
        size = case["n_components"], case["n_train"], case["max_iter"]
        sizes[case["method"]].append(size)
    assert sizes["dense"] == [(10, 100, None), (20, 100, None)]
    assert sizes["landmarks"] == [(5, 100, None)]
    assert sizes["Nystroem"] == [(1000, 100, None), (3000, 100, None)]
    assert sizes["exact"] == [(None, 50, None), (None, 200, None)]
    assert sizes["trees"] == [(None, 100, rounds) for rounds in (10, 30)]


def test_rows_divided_by_their_norms():
    (X, _, X_test, _), described = load_rows(Options(unit_rows=True))
    (given, *_), plain = load_rows(Options())
    for rows in (X, X_test):
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, rtol=1e-6)
    unit = given / np.linalg.norm(given, axis=1, keepdims=True)
    np.testing.assert_allclose(X, unit, rtol=1e-6)
    assert described["preprocessing"] == (
        plain["preprocessing"] + ", rows divided by their norms"
    )


def test_ways_of_one_kernel_agree(results):
    """Structured, dense and scikit-learn's features have draws of their own."""
    errors = {r["method"]: r["test_error"] for r in results["records"]}
    for method in ("dense", "RBFSampler"):
        assert abs(errors["structured"] - errors[method]) < 0.06
    assert abs(errors["landmarks"] - errors["Nystroem"]) < 0.06
    assert max(errors[method] for method in METHODS if method != "trees") < 0.2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--methods", "forest"], "unknown method 'forest'; expected one or more of"),
        (["--landmarks", "0"], "positive integers"),
        (["--optical-alpha", "0"], "optical_alpha must be a positive number, got 0"),
    ],
)
def test_mistakes_are_one_line(command, arguments, message):
    result = command("ways", *arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert result.output.count("\n") == 1
