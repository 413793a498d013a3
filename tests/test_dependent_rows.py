"""Rows of groups, and rows in the order of time: no split, loss or interval ignores it.

Oracles are dense fits of the bordered linear system without the rows that are left out,
and rows of new groups or later times, drawn from known distributions.
"""

import json
from functools import partial

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.model_selection import GroupKFold, cross_val_predict
from typer.testing import CliRunner

import randkern as rk
from randkern import cli
from randkern.study.splitting import Splitting
from randkern.tabular import estimators
from randkern.tabular.evidence import Evidence
from randkern.tabular.exact_ridge import fit_ridge
from randkern.tabular.folds import Folds
from randkern.tabular.leave_one_out import least_penalty, leave_one_out
from randkern.tabular.rows import Table

pytestmark = pytest.mark.usefixtures("no_deadline")

RNG = np.random.default_rng(43)
N = 60
X = RNG.normal(size=(N, 3))
Y = np.sin(X)[:, :2] + 0.1 * RNG.normal(size=(N, 2))
WEIGHT = RNG.uniform(0.5, 2, N)
GROUPS, TIME = RNG.integers(7, size=N), RNG.integers(20, size=N)
FOLDS = {
    "groups": Folds.of(GROUPS, None, WEIGHT),
    "time": Folds.of(None, TIME, WEIGHT),
}
by_kind = pytest.mark.parametrize("folds", FOLDS.values(), ids=FOLDS)


def without(kernel, alpha, known, out):
    """Return predictions by a dense fit, with an intercept, to the known rows."""
    K, m = kernel(X), len(known)
    system = np.ones((m + 1, m + 1))
    alpha += least_penalty(K.diagonal())
    system[:m, :m] = K[np.ix_(known, known)] + np.diag(alpha / WEIGHT[known])
    system[m, m] = 0.0
    solved = np.linalg.solve(system, np.vstack([Y[known], np.zeros(2)]))
    return K[np.ix_(out, known)] @ solved[:m] + solved[m]


@by_kind
def test_residuals_of_folds_are_those_of_fits_without_them(folds):
    kernel = rk.Matern(1.5, np.ones(3))
    found = leave_one_out(kernel, 0.1, Table(X, Y, WEIGHT, folds=folds))
    expected = np.full_like(Y, np.nan)
    for known, out in folds.splits():
        expected[out] = Y[out] - without(kernel, 0.1, known, out)
    np.testing.assert_allclose(found, expected[folds.predicted], rtol=1e-9)


def test_groups_have_effects_of_their_own_in_coarse_folds():
    groups = FOLDS["groups"].with_effect(Y + GROUPS[:, None])
    coarse, kernel = groups.coarse(), rk.Matern(1.5, np.ones(3))
    assert groups.effect > 0.5
    assert len(np.unique(coarse.codes)) == 5 < len(np.unique(groups.codes))
    found = leave_one_out(kernel, 0.1, Table(X, Y, WEIGHT, coarse))

    def with_effects(rows):
        return kernel(rows) + groups.effect * (GROUPS[:, None] == GROUPS)

    for known, out in coarse.splits():
        assert set(GROUPS[known]).isdisjoint(GROUPS[out])
        expected = Y[out] - without(with_effects, 0.1, known, out)
        np.testing.assert_allclose(found[out], expected, rtol=1e-9)


def test_gradient_of_the_evidence_of_groups():
    encoded = [Table(X, Y, WEIGHT, folds=FOLDS["groups"].with_effect(Y))]
    goal = Evidence(rk.Matern(1.5, np.ones(3)), encoded, np.arange(3))
    theta = goal.start(0.1)
    _, gradient = goal(theta)
    steps = 1e-5 * np.eye(4)
    expected = [(goal(theta + h)[0] - goal(theta - h)[0]) / 2e-5 for h in steps]
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6)


@by_kind
def test_residuals_of_the_last_fit_leave_out_folds(folds):
    kernel, order = rk.Matern(1.5, np.ones(3)), RNG.permutation(N)
    fit = fit_ridge(kernel, 0.1, Table(X, Y, WEIGHT, folds=folds), order)
    expected = np.full_like(Y, np.nan)
    for known, out in folds.splits():
        expected[out] = Y[out] - without(kernel, 0.1, known, out)
    np.testing.assert_allclose(
        fit.residuals, expected[order[fit.evaluated]], rtol=1e-6, atol=1e-8
    )


REFUSED = {
    "both": (GROUPS, TIME, "at most one"),
    "length": (GROUPS[:-1], None, "59 values"),
    "one": (np.zeros(N), None, "same value for all rows"),
    "one time": (None, np.ones(N), "same value for all rows"),
    "missing": (np.where(np.arange(N) == 3, np.nan, GROUPS), None, "row|missing in 1"),
    "mixed": (np.array([1, "a"] * (N // 2), dtype=object), None, "int and str"),
    "no dates": (None, np.array(["soon"] * N), "not dates"),
}


@pytest.mark.parametrize(("groups", "time", "message"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("kind", [rk.TabularRegressor, rk.TabularClassifier])
def test_groups_and_times_that_are_refused(groups, time, message, kind):
    y = Y[:, 0] if kind is rk.TabularRegressor else Y[:, 0] > 0
    with pytest.raises(ValueError, match=message):
        kind(time_limit=1).fit(X, y, groups=groups, time=time)


# -- what is learned and reported --------------------------------------------------


def draw(n_groups, rng, size=8):
    """Rows whose columns but one identify their group, which others do not know."""
    group = np.repeat(np.arange(n_groups), size)
    near = rng.normal(size=(n_groups, 4))[group]
    near = near + 0.05 * rng.normal(size=near.shape)
    x = rng.normal(size=len(group))
    y = rng.normal(size=n_groups)[group] + 0.35 * x + 0.1 * rng.normal(size=len(group))
    table = pd.DataFrame(near, columns=list("abcd")).assign(x=x)
    return table, y, group


def r2(errors, y):
    return 1 - (errors**2).mean() / y.var()


@pytest.fixture(scope="module")
def grouped():
    rng = np.random.default_rng(0)
    table, y, group = draw(60, rng)
    model = rk.TabularRegressor(time_limit=10, random_state=0)
    return model.fit(table, y, groups=group), draw(150, rng)


@pytest.mark.slow
def test_errors_of_left_out_groups_are_those_of_new_groups(grouped):
    """At random, rows have R² near .98, and new groups at most .11."""
    model, (table, y, _) = grouped
    best = 0.35**2 / (1 + 0.35**2 + 0.1**2)
    # R² of n = 60 independent groups has the variance 4 R² (1 − R²)²/n.
    error = 2 * (1 - best) * np.sqrt(best / 60)
    assert model.leaderboard_["error"].iloc[0] > np.sqrt(1 - best - 3 * error)
    # The mean effect of 60 groups and of 150 others differ by √(1/60 + 1/150).
    assert best - 0.1 < r2(model.predict(table) - y, y) < best + 0.1
    assert model.feature_importances_[4] > 0.7


@pytest.mark.slow
def test_intervals_cover_new_groups(grouped):
    model, (table, y, group) = grouped
    low, high = model.predict_interval(table, coverage=0.9).T
    by_group = pd.Series((low <= y) & (y <= high)).groupby(group).mean()
    # Rows of a group are covered together: 150 groups count, and 60 set the width.
    error = np.sqrt(0.9 * 0.1 * (1 / 150 + 1 / 60))
    assert abs(by_group.mean() - 0.9) < 3 * error


@pytest.mark.nightly
def test_few_groups_tell_little_of_columns_that_vary_only_between_them():
    """As n independent values they would report .41 of the error of a new group."""
    reported, errors = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        group = np.repeat(np.arange(7), 60)
        between, within = rng.normal(size=(7, 4))[group], rng.normal(size=(420, 2))
        y = rng.normal(size=7)[group] + np.sin(within[:, 0])
        y += 0.3 * rng.normal(size=420)
        X, known = np.hstack([between, within]), group < 6
        model = rk.TabularRegressor(1.0, random_state=0)
        model.fit(X[known], y[known], groups=group[known])
        reported.append(model.leaderboard_["error"].iloc[0] * y[known].std())
        errors.append(np.sqrt(np.mean((model.predict(X[~known]) - y[~known]) ** 2)))
    # One of the six groups lies far outside of the others, where a line is off by 4.
    assert np.median(reported) > 0.8 * np.median(errors)


@pytest.mark.slow
def test_intervals_widen_with_the_horizon():
    """Quantiles of the known dates would be equal at all later ones."""
    rng = np.random.default_rng(0)
    day, y = np.arange(160.0)[:, None], rng.normal(size=120).cumsum()
    model = rk.TabularRegressor(time_limit=0.5, random_state=0)
    model.fit(day[:120], y, time=day[:120, 0])
    widths = np.diff(model.predict_interval(day[120:])).ravel()
    assert (np.diff(widths) > 0).all()
    assert widths[-1] > 2 * widths[0]


@pytest.mark.nightly
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_a_series_is_predicted_forward(noise):
    """A random walk by its date: neighbours tell all, the past little of the future."""
    rng = np.random.default_rng(1)
    covered, errors = [], []
    for _ in range(6):
        y = rng.normal(size=420).cumsum() + noise * rng.normal(size=420)
        day = pd.DataFrame({"day": np.arange(420.0)})
        model = rk.TabularRegressor(time_limit=5, random_state=0)
        model.fit(day[:350], y[:350], time=day["day"][:350])
        low, high = model.predict_interval(day[350:], coverage=0.9).T
        covered.append(((low <= y[350:]) & (y[350:] <= high)).mean())
        errors.append(model.leaderboard_["error"].iloc[0])
    # At random, errors are .1 and intervals cover a seventh of what comes.
    assert np.mean(errors) > 0.4
    # The share of one walk has a deviation of .3.
    assert np.mean(covered) > 0.9 - 2 * 0.3 / np.sqrt(6), covered


@pytest.mark.nightly
@pytest.mark.parametrize("walks", [False, True])
def test_intervals_of_later_rows_count_independent_periods(walks):
    """Rows of a period of a random walk are off together: by rows, .78 are covered."""
    covered = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = np.column_stack([np.arange(280), rng.normal(size=(280, 2))])
        level = 0.3 * np.cumsum(rng.normal(size=280)) if walks else 0.0
        y = level + np.sin(X[:, 1]) + 0.3 * rng.normal(size=280)
        model = rk.TabularRegressor(0.5, random_state=0)
        model.fit(X[:240], y[:240], time=X[:240, 0])
        low, high = model.predict_interval(X[240:]).T
        covered.append(((low <= y[240:]) & (y[240:] <= high)).mean())
    # Of 40 independent rows the share has a deviation of .05, of a walk some .2.
    error = (0.2 if walks else 0.05) / np.sqrt(12)
    assert abs(np.mean(covered) - 0.9) < 2 * error


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["groups", "time"])
def test_many_rows_are_held_out_in_whole_folds(kind, planned, monkeypatch):
    """Held-out rows know nothing of those fitted; later rows are fitted in the end."""
    planned(cell_rows=100)
    table, y, group = draw(20, np.random.default_rng(7))
    seen = []

    plain = estimators._split

    def spied(*rows_and_plan):
        split = plain(*rows_and_plan)
        seen.append((split.rows.X.index, split.apart.X.index))
        return split

    monkeypatch.setattr(estimators, "_split", spied)
    model = rk.TabularRegressor(time_limit=2, random_state=0)
    values = group if kind == "groups" else np.arange(len(y)) // 4
    model.fit(table, y, **{kind: values})
    ((known, apart),) = seen
    assert set(values[known]).isdisjoint(values[apart])
    assert len(apart) >= len(y) // 20
    if kind == "groups":  # a fifth of them, up to ten
        assert len(known) + len(apart) == len(y)
        assert len(np.unique(group[apart])) == 4
    if kind == "time":
        assert values[known].max() < values[apart].min()
        assert model.fit_report_["rows_used"] == len(y)
        assert model.fit_report_["rows_held_out"] == 0
    assert (np.diff(model.predict_interval(table)) > 0).all()


@pytest.mark.nightly
@pytest.mark.parametrize("n_classes", [2, 3])
def test_probabilities_are_those_of_new_groups(n_classes):
    excess = []
    for seed in range(2, 8):  # fifty groups tell little of others
        rng = np.random.default_rng(seed)

        def labelled(n_groups, rng=rng):
            table, value, group = draw(n_groups, rng)
            edges = np.linspace(-0.7, 0.7, n_classes - 1) if n_classes > 2 else [0.0]
            return table, np.digitize(value, edges), group

        table, labels, group = labelled(50)
        new, truth, new_group = labelled(200)
        model = rk.TabularClassifier(time_limit=10, random_state=0)
        P = model.fit(table, labels, groups=group).predict_proba(new)
        losses = -np.log(P[np.arange(len(truth)), truth])
        shares = np.bincount(labels) / len(labels)
        own = pd.Series(losses + np.log(shares[truth])).groupby(new_group).mean()
        excess += own.tolist()
    # No worse than the shares of classes, up to the error of a mean of 1,200 groups.
    assert np.mean(excess) < 3 * np.std(excess) / np.sqrt(1200)


@pytest.mark.slow
def test_a_search_does_not_know_later_rows():
    """A fit with time is that to the rows in any order."""
    table, y, _ = draw(20, np.random.default_rng(3))
    time = np.arange(len(y))
    fit = partial(rk.TabularRegressor(time_limit=2, random_state=0).fit)
    one = fit(table, y, time=time).predict(table)
    dates = np.datetime64("2026-01-01") + time
    assert np.array_equal(one, fit(table, y, time=dates).predict(table))


@pytest.mark.nightly
def test_groups_reach_fits_and_splits_in_scikit_learn():
    table, y, group = draw(20, np.random.default_rng(4))
    model = rk.TabularRegressor(time_limit=1, random_state=0)
    with sklearn.config_context(enable_metadata_routing=True):
        model.set_fit_request(groups=True)
        found = cross_val_predict(
            model, table, y, cv=GroupKFold(2), params={"groups": group}
        )
    expected = np.empty_like(y)
    for known, out in GroupKFold(2).split(table, y, group):
        fit = model.fit(table.iloc[known], y[known], groups=group[known])
        expected[out] = fit.predict(table.iloc[out])
    np.testing.assert_array_equal(found, expected)


# -- the command line --------------------------------------------------------------


def run(*arguments):
    app = cli._build_app()
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    return result.exit_code, result.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a table of groups, and what `fit --groups` writes of it."""
    folder = tmp_path_factory.mktemp("groups")
    table, y, group = draw(60, np.random.default_rng(5))
    table = table.drop(columns="x").assign(patient=group, value=y)
    table.to_csv(folder / "table.csv", index=False)
    code, output = run(
        *("fit", folder / "table.csv", "--target", "value", "--groups", "patient"),
        *("--time-limit", 20, "--out", folder),
    )
    assert code == 0, output
    (folder / "output.txt").write_text(output)
    return folder


@pytest.mark.slow
def test_fit_holds_out_whole_groups(folder):
    results = json.loads((folder / "results.json").read_text())
    output = (folder / "output.txt").read_text()
    assert results["arguments"]["groups"] == "patient"
    assert "patient" not in results["importances"]
    assert results["n_test"] == 96
    assert results["scores"]["r2"] < 0.3
    assert "all of 12 groups" in output
    assert "no better than the mean" in " ".join(output.split())
    assert "seems to name groups" not in output
    report = (folder / "report.html").read_text()
    assert "no better than the mean" in report
    assert "all of 12 groups" in report


@pytest.mark.slow
def test_predict_ignores_the_column_of_groups(folder):
    code, output = run("predict", folder / "model.skops", folder / "table.csv")
    assert code == 0, output
    assert len(output.splitlines()) == 1 + 480


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--groups", "patients"], "did you mean 'patient'"),
        (["--groups", "patient", "--time", "a"], "got both --groups and --time"),
        (["--time", "value"], "no column 'value'"),
    ],
)
def test_columns_of_groups_and_time_that_are_refused(folder, options, message):
    arguments = ["fit", folder / "table.csv", "--target", "value", *options]
    code, output = run(*arguments, "--out", folder / "refused")
    assert code == 2
    assert message in " ".join(output.split())


@pytest.mark.slow
def test_studies_hold_out_whole_groups(folder, tmp_path):
    options = ["--n-components", "20", "--kernels", "gaussian", "--out", tmp_path]
    options += ["--no-exact", "--seeds", 1, "--features", "random"]
    code, output = run(
        *("compare", "--data", folder / "table.csv", "--target", "value"),
        *("--groups", "patient", *options),
    )
    assert code == 0, output
    results = json.loads((tmp_path / "results.json").read_text())
    assert "groups" in results["dataset"]["split"]
    assert min(record["test_error"] for record in results["records"]) > 0.8


@pytest.mark.parametrize("kind", ["groups", "time"])
@pytest.mark.parametrize("task", ["regression", "classification"])
def test_splits_of_studies(kind, task):
    values = np.repeat(np.arange(25), 8)
    y = RNG.integers(3, size=200).astype(float)
    splitting = Splitting.of(**{"groups": None, "time": None, kind: values})
    splits = [splitting.held_out(y, task, 0.25, 0)[:2]]
    splits += splitting.folds(y, task, 4, 0)
    splits += Folds.of(splitting.groups, splitting.time, np.ones(200)).splits()
    for known, out in splits:
        assert set(values[known]).isdisjoint(values[out])
        if kind == "time":
            assert values[known].max() < values[out].min()
    assert 35 <= len(splits[0][1]) <= 65


@pytest.mark.nightly
@pytest.mark.parametrize("n_groups", [4, 30])
def test_intervals_of_large_tables_cover_new_groups(n_groups, no_deadline):
    """Groups that are held out of cells are few: intervals know that."""
    n, r = 5000, np.random.default_rng(0)
    groups, rows = r.integers(0, n_groups, n), r.normal(size=(n, 4))
    y = np.sin(rows[:, 0]) + r.normal(size=n_groups)[groups] + 0.3 * r.normal(size=n)
    model = rk.TabularRegressor(time_limit=2, random_state=0)
    model.fit(rows, y, groups=groups)
    assert model.fit_report_["plan"]["cell_rows"]
    rows = r.normal(size=(n, 4))
    y = np.sin(rows[:, 0]) + r.normal(size=n) + 0.3 * r.normal(size=n)
    low, high = model.predict_interval(rows).T
    assert np.mean((low <= y) & (y <= high)) > 0.75


@pytest.mark.slow
def test_a_last_period_of_few_rows_in_cells(planned, no_deadline):
    """Kernels are learned from more rows than those of the last times."""
    planned(cell_rows=300, fitted_rows=1500, learned_rows=200)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 2))
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=4000)
    time = (np.arange(4000) >= 3996).astype(int)
    model = rk.TabularRegressor(time_limit=3, random_state=0).fit(X, y, time=time)
    assert model.fit_report_["rows_used"] == 1500
    new = rng.normal(size=(500, 2))
    assert np.std(model.predict(new) - np.sin(2 * new[:, 0])) < 0.2


def test_a_missing_time_in_a_list():
    times = [pd.NaT, *pd.date_range("2024", periods=19)]
    with pytest.raises(ValueError, match="time is missing in 1 of 20 rows"):
        rk.TabularRegressor(time_limit=1).fit(np.eye(20), np.arange(20.0), time=times)
