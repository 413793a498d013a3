"""The benchmarks of tests and quantiles: what is drawn, how often, and their tables."""

import numpy as np
import pytest
from scipy.stats import kstest, norm, t

pytest.importorskip("matplotlib")
pytest.importorskip("pandas")

from randkern_lab.benchmarks import hypothesis_tests as tests
from randkern_lab.benchmarks.quantiles import Quantiles


@pytest.mark.parametrize("truth", ["same", "correlated", "tails", "independent"])
def test_columns_of_the_second_sample_have_their_distribution(truth, rng):
    """Correlated columns are normal: tests of single columns see no difference."""
    _, Y = tests.samples(truth, 4_000, rng)
    scale = np.sqrt(2 / 3)  # of Student's distribution of 6 degrees of freedom
    expected = t(6, scale=scale) if truth == "tails" else norm()
    pvalues = [kstest(column, expected.cdf).pvalue for column in Y.T]
    assert min(pvalues) > 0.001 / Y.shape[1]
    correlation = np.corrcoef(Y[:, 0], Y[:, 1])[0, 1]
    # Six standard errors of a correlation of 0: 1/√n.
    assert abs(correlation - 0.6 * (truth == "correlated")) < 6 / np.sqrt(4_000)


def test_the_square_is_no_correlation(rng):
    X, Y = tests.samples("square", 4_000, rng)
    assert abs(np.corrcoef(X[:, 0], Y[:, 0])[0, 1]) < 0.15
    assert np.corrcoef(X[:, 0] ** 2, Y[:, 0])[0, 1] > 0.5  # √0.5/√1.5 = 0.577


@pytest.mark.parametrize(
    ("method", "n", "trials"),
    [
        *(("columns", 100, 400), ("columns", 1_000, 400), ("columns", 10_000, 40)),
        *(("exact", 300, 100), ("exact", 1_000, 30), ("columns", 10**6, 1)),
    ],
)
def test_fewer_samples_are_drawn_of_more_rows(method, n, trials, monkeypatch):
    seen = []
    contender = tests.METHODS["columns"]
    never = contender.__class__(
        contender.label, "grey", "o", make=lambda *_: seen.append(1) or 0.01
    )
    monkeypatch.setitem(tests.METHODS, method, never)
    monkeypatch.setattr(tests, "samples", lambda truth, n, rng: (None, None))
    case = {"question": "two samples", "method": method, "n": n, "truth": "same"}
    record = tests.HypothesisTests(tests.Options()).measure(case)
    assert (record["trials"], len(seen), record["rejected"]) == (trials, trials, 1.0)


def test_shares_have_intervals_that_few_samples_widen():
    common = {"question": "two samples", "label": "a", "truth": "same", "n": 100}
    records = [
        {**common, "trials": trials, "rejected": 0.0, "seconds": 1.0}
        for trials in (4, 400)
    ]
    (table,) = tests.HypothesisTests.tables({"records": records})
    place = table.columns.index("95 % interval")
    # Wilson's interval of no rejection is from 0 to z²/(n + z²).
    highest = [1.96**2 / (n + 1.96**2) for n in (4, 400)]
    assert [row[place] for row in table.rows] == [
        f"0.0 to {100 * share:.1f}" for share in highest
    ]


def test_quantiles_are_means_over_data_sets():
    scores = {"pinball": 0.2, "coverage": 0.9, "crossing": 0.0}
    records = [
        {"label": "ours", "n": n, "seed": seed, "rmse": n + seed, **scores}
        | {"train_cpu_seconds": 1.0}
        for n in (1, 5)
        for seed in (0, 1, 2)
    ]
    (table,) = Quantiles.tables({"records": records})
    assert [row[:3] for row in table.rows] == [
        ("ours", "1", "2.000 ± 1.000"),
        ("ours", "5", "6.000 ± 1.000"),
    ]
