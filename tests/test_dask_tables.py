"""Dask's ordinary calls on Parquet files: the models and predictions of arrays."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone

import randkern as rk
from randkern.exceptions import RowsChangedError
from randkern.solvers import PCG

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")
pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
pytestmark = pytest.mark.filterwarnings(
    "ignore:The inplace keyword", "ignore:X does not have valid feature names"
)

COLUMNS = list("abcdefgh")
OPTIONS = {"n_components": 40, "random_state": 0}


@pytest.fixture(autouse=True)
def in_this_process(request):
    """Tests of a few rows need no cluster."""
    if "client" in request.fixturenames:
        yield
        return
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture(scope="module")
def client():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cluster = distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            env={"SCIPY_ARRAY_API": "0"},
        )
    with cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture
def frame(rng):
    frame = pd.DataFrame(rng.normal(size=(300, 8)), columns=COLUMNS)
    frame["y"] = np.sin(frame["a"]) + frame["b"]
    frame["weight"] = rng.uniform(1, 2, 300)
    frame["label"] = np.where(frame["a"] > 0, "yes", "no")
    return frame


@pytest.fixture
def table(frame, tmp_path):
    """Files in ten partitions, which Dask would merge where few columns are read."""
    dd.from_pandas(frame, npartitions=10).to_parquet(tmp_path)
    return dd.read_parquet(tmp_path)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("names", [COLUMNS, ["a", "b"], ["b", "y", "a"]])
def test_columns_of_files_are_fitted_together(names, weighted, frame, table):
    model = rk.KernelRidgeRegressor(**OPTIONS)
    weight = (frame["weight"], table["weight"]) if weighted else (None, None)
    expected = clone(model).fit(frame[names], frame["y"], weight[0])
    model.fit(table[names], table["y"], weight[1])
    np.testing.assert_allclose(
        model.predict(frame[names]), expected.predict(frame[names]), atol=1e-8
    )


def test_rows_chosen_by_a_condition(frame, table):
    few, chosen = frame[frame["a"] > 0], table[table["a"] > 0]
    model = rk.KernelRidgeRegressor(**OPTIONS).fit(chosen[COLUMNS], chosen["y"])
    expected = rk.KernelRidgeRegressor(**OPTIONS).fit(few[COLUMNS], few["y"])
    np.testing.assert_allclose(
        model.predict(frame[COLUMNS]), expected.predict(frame[COLUMNS]), atol=1e-8
    )


def test_collections_from_two_sources(frame, table, tmp_path):
    other = frame[["y"]].assign(**dict.fromkeys(COLUMNS, 1.0))
    dd.from_pandas(other, npartitions=10).to_parquet(tmp_path / "other")
    y = dd.read_parquet(tmp_path / "other")["y"]
    rows = table[["a", "b"]].map_partitions(lambda part: 2 * part)
    model = rk.KernelRidgeRegressor(**OPTIONS).fit(rows, y)
    expected = rk.KernelRidgeRegressor(**OPTIONS)
    expected.fit(2 * frame[["a", "b"]], frame["y"])
    np.testing.assert_allclose(
        model.predict(frame[["a", "b"]]), expected.predict(frame[["a", "b"]]), atol=1e-8
    )


def test_partitions_that_do_not_match(frame, table):
    model = rk.KernelRidgeRegressor(**OPTIONS)
    with pytest.raises(ValueError, match=r"10 partitions.*has 5; .*model.fit\(ddf"):
        model.fit(table[COLUMNS], table["y"].repartition(npartitions=5))
    rows = dd.from_pandas(frame[COLUMNS], npartitions=2)
    y = dd.from_pandas(frame["y"], npartitions=1).repartition(divisions=[0, 20, 299])
    with pytest.raises(ValueError, match="different divisions"):
        model.fit(rows, y)


def test_a_partition_that_is_computed_again_differs(frame, table, monkeypatch):
    monkeypatch.setattr("randkern._memory._WORKERS_SHARE", 0.0)

    def drawn(part):
        return part + np.random.default_rng().normal(size=part.shape)

    y = table["y"].map_partitions(drawn, meta=frame["y"])
    with pytest.raises(RowsChangedError, match="a partition of X, computed again"):
        rk.KernelRidgeRegressor(**OPTIONS).fit(table[COLUMNS], y)


TARGETS = [
    (rk.KernelRidgeRegressor(**OPTIONS), "y"),
    (rk.GaussianProcessRegressor(**OPTIONS, optimizer=None), "y"),
    (rk.KernelRidgeClassifier(**OPTIONS), "label"),
    (rk.KernelLogistic(**OPTIONS), "label"),
    (rk.KernelSVC(**OPTIONS), "label"),
    (rk.GaussianProcessClassifier(**OPTIONS, optimizer=None), "label"),
]


@pytest.mark.parametrize(
    ("model", "target"), TARGETS, ids=lambda item: type(item).__name__
)
def test_the_target_can_be_a_column(model, target, frame, table):
    columns = [*COLUMNS, target]
    apart = clone(model).fit(table[COLUMNS], table[target]).predict(frame[COLUMNS])
    for rows in (table[columns], frame[columns]):
        fit = clone(model).fit(rows, target=target)
        assert list(fit.feature_names_in_) == COLUMNS
        got = fit.predict(frame[COLUMNS])
        if target == "label":
            np.testing.assert_array_equal(got, apart)
        else:
            np.testing.assert_allclose(got, apart, rtol=1e-6, atol=1e-8)


def test_targets_that_are_no_columns(frame, table):
    model = rk.KernelRidgeRegressor(**OPTIONS)
    with pytest.raises(ValueError, match="no column 'z'; its columns are 'a'"):
        model.fit(table[COLUMNS], target="z")
    with pytest.raises(ValueError, match="both y and target"):
        model.fit(table, table["y"], target="y")
    with pytest.raises(TypeError, match="X is of type ndarray"):
        model.fit(np.ones((3, 2)), target="y")


# Predictions have the index and the partitions of the dataframe.


def test_predictions_are_assigned(frame, table):
    model = rk.KernelRidgeRegressor(**OPTIONS).fit(table[COLUMNS], table["y"])
    shuffled = frame.set_index(frame.index[::-1] * 7)
    rows = dd.from_pandas(shuffled, npartitions=4, sort=False)
    made = rows.assign(p=model.predict(rows[COLUMNS]))
    assert made.npartitions == rows.npartitions
    assert made.dtypes["p"] == np.float64
    computed = made.compute()
    pd.testing.assert_index_equal(computed.index, shuffled.index)
    np.testing.assert_allclose(computed["p"], model.predict(frame[COLUMNS]))


def test_results_of_several_columns(frame, table):
    rows, lazy = frame[["a", "b"]], table[["a", "b"]]
    labels = rk.KernelLogistic(**OPTIONS).fit(lazy, table["label"])
    P = labels.predict_proba(lazy)
    assert list(P.columns) == ["no", "yes"]
    np.testing.assert_allclose(P.compute(), labels.predict_proba(rows))
    assert (labels.predict(lazy).compute() == labels.predict(rows)).all()
    assert labels.predict(lazy).divisions == lazy.divisions
    targets = np.column_stack([frame["y"], frame["a"]])
    both = rk.KernelRidgeRegressor(**OPTIONS).fit(rows, targets)
    np.testing.assert_allclose(both.predict(lazy).compute(), both.predict(rows))
    with pytest.raises(ValueError, match="fit one model per target"):
        both.predict_interval(lazy)
    features = rk.RandomFeatures(**OPTIONS).fit(lazy)
    Z = features.transform(lazy)
    assert list(Z.columns) == features.get_feature_names_out().tolist()
    np.testing.assert_allclose(Z.compute(), features.transform(rows))
    model = rk.KernelRidgeRegressor(**OPTIONS).fit(rows, frame["y"])
    interval = model.predict_interval(lazy, coverage=0.8)
    assert list(interval.columns) == ["lower", "upper"]
    expected = model.predict_interval(rows, coverage=0.8)
    np.testing.assert_allclose(interval.compute(), expected)
    parts = da.from_array(rows.to_numpy(), chunks=(70, -1))
    interval = model.predict_interval(parts, coverage=0.8)
    assert interval.shape == (300, 2)
    np.testing.assert_allclose(interval.compute(), expected)


@pytest.mark.parametrize(
    ("n_targets", "likelihood"), [(1, "gaussian"), (2, "gaussian"), (1, "poisson")]
)
def test_deviations_are_lazy(n_targets, likelihood, frame, table):
    rows, lazy = frame[["a", "b"]], table[["a", "b"]]
    y = np.round(np.exp(frame[["y", "a"]].to_numpy()))[:, :n_targets]
    process = rk.GaussianProcessRegressor(
        optimizer=None, likelihood=likelihood, **OPTIONS
    ).fit(rows, y[:, 0] if n_targets == 1 else y)
    for noisy in (False, True):
        options = {"return_std": True, "include_noise": noisy}
        expected = process.predict(rows, **options)
        parts = da.from_array(rows.to_numpy(), chunks=(70, -1))
        for collection in (lazy, parts):
            made = process.predict(collection, **options)
            assert all(dask.is_dask_collection(each) for each in made)
            for each, part in zip(dask.compute(*made), expected, strict=True):
                assert each.shape == part.shape
                np.testing.assert_allclose(each, part)
    with pytest.raises(ValueError, match="True or False for a Dask collection"):
        process.predict(lazy, return_std=True, include_noise=np.ones(300))


def test_errors_name_the_partition(frame):
    def spoiled(part):
        return part.assign(a=np.where(part["b"] == frame["b"][95], np.nan, part["a"]))

    model = rk.KernelRidgeRegressor(**OPTIONS).fit(frame[["a", "b"]], frame["y"])
    lazy = dd.from_pandas(frame[["a", "b"]], npartitions=10)
    lazy = lazy.map_partitions(spoiled, meta=lazy._meta)
    with pytest.raises(ValueError, match=r"partition 3 of X: .*NaN"):
        model.predict(lazy).compute()
    X = frame[["a", "b"]].to_numpy(copy=True)
    X[95] = np.nan
    with pytest.raises(ValueError, match=r"partition 1 of X: .*NaN"):
        model.predict(da.from_array(X, chunks=(60, -1))).compute()


# Whole tables on a cluster.

REAL = {
    "diamonds": "regression",
    "kin40k": "regression",
    "adult": "classification",
}


@pytest.mark.nightly
@pytest.mark.parametrize("solver", ["cholesky", PCG(tol=1e-8)], ids=str)
@pytest.mark.parametrize("name", REAL)
def test_whole_tables_on_two_workers(name, solver, client, data_dir, tmp_path):
    kind = REAL[name]
    path = data_dir / "tables" / kind / f"{name}.csv.gz"
    table = pd.read_csv(path).drop(columns="fold")
    dd.from_pandas(table, npartitions=12).to_parquet(tmp_path)
    ddf = dd.read_parquet(tmp_path)
    numeric = table.drop(columns="target").select_dtypes("number")
    columns = list(numeric.columns)
    scale = numeric.std().to_dict()
    rows = numeric / numeric.std()
    lazy = ddf[columns].map_partitions(lambda part: part / pd.Series(scale)[columns])
    options = {"n_components": 300, "random_state": 0, "solver": solver}
    if kind == "regression":
        model = rk.KernelRidgeRegressor(fit_intercept=True, **options)
        y, lazy_y = table["target"].astype(float), ddf["target"].astype(float)
    else:
        model = rk.KernelRidgeClassifier(**options)
        y, lazy_y = table["target"], ddf["target"]
    expected = clone(model).fit(rows, y)
    model.fit(lazy, lazy_y)
    method = "predict" if kind == "regression" else "decision_function"
    values = getattr(expected, method)(rows)
    made = ddf.assign(p=getattr(model, method)(lazy))[["target", "p"]].compute()
    pd.testing.assert_series_equal(
        made["target"], table["target"], check_names=False, check_dtype=False
    )
    assert np.abs(made["p"] - values).max() < 1e-5 * np.abs(values).max()
    assert model.score(rows, y) == pytest.approx(expected.score(rows, y), abs=1e-4)
