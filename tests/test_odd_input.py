"""Odd arguments: what is refused, by which error, and what the error says."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import randkern as rk
from randkern import optics, skeletons
from randkern.datasets import load_dataset
from randkern.exceptions import MemoryLimitError

_RNG = np.random.default_rng(3)
X = _RNG.normal(size=(30, 3))
Y = X[:, 0] + 0.1 * _RNG.normal(size=30)
LABELS = (Y > 0).astype(int)
FRAME = pd.DataFrame(X, columns=list("abc"))
BITS = (X > 0).astype(np.uint8)
SIZES = {"n_components": 20, "random_state": 0}
UINT64 = np.where(LABELS, np.uint64(2**64 - 1), np.uint64(1))


def _ridge(**options):
    return rk.KernelRidgeRegressor(**SIZES | options)


def _process(**options):
    return rk.GaussianProcessRegressor(**SIZES | options)


def _search(**options):
    return rk.KernelRidgeRegressorCV(**SIZES | options)


def _classifier(**options):
    return rk.KernelRidgeClassifier(**SIZES | options)


def _column(values):
    return FRAME.assign(b=values)


def _map(*arguments, **options):
    module = pytest.importorskip("randkern.torch")
    return module.FeatureMap(rk.Gaussian(1.0), *arguments, **options)


REFUSED = {
    # Parameters.
    "levels beyond memory": (
        lambda: optics.ThermometerEncoder(10**9).fit(X),
        (MemoryLimitError, "n_levels=1000000000 thresholds", "fewer levels"),
    ),
    "one level": (
        lambda: optics.ThermometerEncoder(1).fit(X),
        (ValueError, "at least 2, got 1", "ThresholdBinarizer"),
    ),
    "per_column": (
        lambda: optics.ThermometerEncoder(per_column="a").fit(X),
        (ValueError, "per_column must be True or False, got 'a'"),
    ),
    "infinite threshold": (
        lambda: optics.ThresholdBinarizer(np.inf).fit(X),
        (ValueError, "a finite number", "got inf"),
    ),
    "infinite thresholds": (
        lambda: optics.ThresholdBinarizer([0.0, np.inf, 0.0]).fit(X),
        (ValueError, "a finite number", "inf"),
    ),
    "true threshold": (
        lambda: optics.ThresholdBinarizer(True).fit(X),
        (ValueError, "a finite number", "got True"),
    ),
    "level": (
        lambda: optics.SimulatedOPU(10, level=2.0),
        (ValueError, "must be between 0 and 1, got 2.0"),
    ),
    "outputs": (
        lambda: optics.SimulatedOPU(2**63),
        (ValueError, "n_components", "1,000,000,000,000", str(2**63)),
    ),
    "negative time": (
        lambda: optics.SimulatedOPU(10).time_seconds(-1),
        (ValueError, "n_frames must be a non-negative", "got -1"),
    ),
    "negative energy": (
        lambda: optics.SimulatedOPU(10).energy_joules(-1),
        (ValueError, "n_frames must be a non-negative", "got -1"),
    ),
    "frame to count from": (
        lambda: optics.SimulatedOPU(10).reset(-1),
        (ValueError, "frame must be a non-negative integer, got -1"),
    ),
    "frame of a row": (
        lambda: optics.SimulatedOPU(10).transform(BITS, frame=0.5),
        (ValueError, "frame must be a non-negative integer, got 0.5"),
    ),
    "no blocks": (lambda: rk.RowBlocks([]), (ValueError, "blocks is an empty list")),
    "negative rows": (
        lambda: rk.RowBlocks(lambda: iter([X]), n_rows=-1),
        (ValueError, "n_rows must be a positive integer, got -1"),
    ),
    "half a row": (
        lambda: rk.RowBlocks(lambda: iter([X]), n_rows=2.5),
        (ValueError, "n_rows must be a positive integer, got 2.5"),
    ),
    "components": (
        lambda: _ridge().set_params(n_components=2**63).fit(X, Y),
        (ValueError, "n_components", "[1, 1000000000000]", str(2**63)),
    ),
    "features beyond memory": (
        lambda: rk.RandomFeatures(rk.Gaussian(1.0), 10**12).fit(X).transform(X),
        (MemoryLimitError, "240.0 TB", "fewer rows"),
    ),
    "layers beyond memory": (
        lambda: skeletons.fully_connected(3, 10**9),
        (MemoryLimitError, "1000000000 layers", "2.0 TB", "fewer layers"),
    ),
    "images beyond memory": (
        lambda: skeletons.convolutional((10**9, 10**9)),
        (MemoryLimitError, "1000000000 by 1000000000 pixels"),
    ),
    "windows beyond memory": (
        lambda: skeletons.convolutional(
            (500, 500), [skeletons.Conv(250), skeletons.Dense()]
        ),
        (MemoryLimitError, "Conv(window=250", "smaller images or windows"),
    ),
    "padding beyond memory": (
        lambda: skeletons.convolutional(
            (4, 4), [skeletons.Conv(10**7, padding=10**7 - 1), skeletons.Dense()]
        ),
        (MemoryLimitError, "Conv(window=10000000"),
    ),
    "no lengthscale": (
        lambda: _ridge(kernel=rk.Gaussian(None)).fit(X, Y),
        (ValueError, "must be a positive number", "'scale'"),
    ),
    "nu": (
        lambda: rk.Matern(nu=1e300)(X),
        (ValueError, "nu must be at most", "or inf", "got 1e+300"),
    ),
    "class weight of text": (
        lambda: _classifier(class_weight={0: "a"}).fit(X, LABELS),
        (ValueError, "class_weight[0] must be a non-negative finite number, got 'a'"),
    ),
    "alphas of text": (
        lambda: _search(alphas=["a"]).fit(X, Y),
        (ValueError, "alphas must be one or more positive finite", "got ['a']"),
    ),
    "true alphas": (
        lambda: _search(alphas=[True]).fit(X, Y),
        (ValueError, "alphas must be one or more positive finite", "got [True]"),
    ),
    "no splits": (
        lambda: _search(cv=[]).fit(X, Y),
        (ValueError, "cv must yield at least one pair", "[]"),
    ),
    "no pairs": (
        lambda: _search(cv=[1, 2]).fit(X, Y),
        (ValueError, "cv must yield at least one pair", "[1, 2]"),
    ),
    "pairs of numbers": (
        lambda: _search(cv=[(1, 2)]).fit(X, Y),
        (ValueError, "cv must yield at least one pair", "[(1, 2)]"),
    ),
    "rows beyond": (
        lambda: _search(cv=[(np.arange(5), np.array([99]))]).fit(X, Y),
        (ValueError, "cv must yield at least one pair", "between 0 and 29"),
    ),
    "splits as an array": (
        lambda: _search(cv=np.array([0.1, 1.0])).fit(X, Y),
        (ValueError, "cv must be None", "tolist"),
    ),
    "scoring of classes": (
        lambda: _search(scoring="roc_auc").fit(X, Y),
        (ValueError, "scoring='roc_auc' needs decision_function", "scoring='r2'"),
    ),
    "scoring of nothing": (
        lambda: _search(scoring=lambda *_: None).fit(X, Y),
        (ValueError, "scoring must return a number, got None", "make_scorer"),
    ),
    "error": (
        lambda: rk.hoeffding_n_components(1e-200),
        (ValueError, "an error of 1e-200 needs more than 1e+12 features"),
    ),
    "bound": (
        lambda: rk.hoeffding_n_components(0.1, bound=1e200),
        (ValueError, "an error of 0.1 needs more than 1e+12 features"),
    ),
    "relative error": (
        lambda: rk.suggest_n_components(rk.Gaussian(1.0), X, 1e-200),
        (ValueError, "a relative error of 1e-200 needs more than 1e+12 features"),
    ),
    "projection of a map": (
        lambda: _map(3, projection="foo"),
        (ValueError, "projection must be one of", "'structured'", "got 'foo'"),
    ),
    "map of an array": (
        lambda: _map(3, n_components=4)(X),
        (TypeError, "must be a torch.Tensor, got ndarray", "torch.as_tensor"),
    ),
    "map of a dataframe": (
        lambda: _map(3, n_components=4)(FRAME),
        (TypeError, "must be a torch.Tensor, got DataFrame"),
    ),
    # Rows.
    "dates": (
        lambda: _ridge().fit(X.astype("datetime64[s]"), Y),
        (ValueError, "X holds datetime64[s] values", "numpy.timedelta64"),
    ),
    "list of dates": (
        lambda: _ridge().fit(list(X.astype("datetime64[s]")), Y),
        (ValueError, "X holds datetime64[s] values"),
    ),
    "dates to a kernel": (
        lambda: rk.Gaussian(1.0)(X, X.astype("datetime64[s]")),
        (ValueError, "Y holds datetime64[s] values"),
    ),
    "durations to an encoder": (
        lambda: optics.BitPlaneEncoder().fit(X.astype("timedelta64[s]")),
        (ValueError, "X holds timedelta64[s] values"),
    ),
    "masked": (
        lambda: _ridge().fit(np.ma.masked_array(X, X > 0), Y),
        (ValueError, "masked array with", "impute"),
    ),
    "ragged": (
        lambda: _ridge().fit([[1.0], [1.0, 2.0]] * 15, Y),
        (ValueError, "X is a list of rows of different lengths"),
    ),
    "blocks to features": (
        lambda: rk.RandomFeatures().fit(rk.RowBlocks.from_arrays(X)),
        (TypeError, "RowBlocks cannot be converted to an array", "X of one block"),
    ),
    "lazy": (
        lambda: _ridge().fit(pl.DataFrame(X).lazy(), Y),
        (TypeError, "X is a LazyFrame", "X.collect()"),
    ),
    "lazy, to a kernel": (
        lambda: rk.Gaussian(1.0)(pl.DataFrame(X).lazy()),
        (TypeError, "X is a LazyFrame", "X.collect()"),
    ),
    "no columns": (
        lambda: _ridge().fit(FRAME[[]], Y),
        (ValueError, "X has no columns", "0 feature(s)", "(30, 0)"),
    ),
    "lists in cells": (
        lambda: _ridge().fit(_column([[1, 2]] * 30), Y),
        (ValueError, "column 'b' holds list values", "separate columns"),
    ),
    "lists in cells of polars": (
        lambda: _ridge().fit(pl.DataFrame({"a": X[:, 0], "b": [[1, 2]] * 30}), Y),
        (ValueError, "column 'b' holds list values"),
    ),
    "structs in cells of polars": (
        lambda: _ridge().fit(pl.DataFrame({"a": X[:, 0], "b": [{"u": 1}] * 30}), Y),
        (ValueError, "column 'b' holds dict values"),
    ),
    "text where numbers were": (
        lambda: _ridge().fit(FRAME, Y).predict(_column(["u"] * 30)),
        (ValueError, "column 'b' is", "held numbers when the model was"),
    ),
    "text to an encoder": (
        lambda: optics.ThermometerEncoder().fit(_column(["u"] * 30)),
        (ValueError, "column 'b' is", "expected numbers"),
    ),
    "text in an array": (
        lambda: _ridge().fit(_column([*X[1:, 1], "u"]).to_numpy(), Y),
        (ValueError, "row 29 of column 1 of X holds 'u'", "expected a number"),
    ),
    "NaN in a column": (
        lambda: _ridge().fit(_column(np.where(FRAME.index == 4, np.nan, X[:, 1])), Y),
        (ValueError, "X contains NaN", "row 4 of column 'b'", "SimpleImputer"),
    ),
    "NaN in an array": (
        lambda: _ridge().fit(np.where(np.arange(90).reshape(30, 3) == 7, np.nan, X), Y),
        (ValueError, "X contains NaN", "row 2 of column 1", "SimpleImputer"),
    ),
    "infinity in CSR": (
        lambda: _ridge().fit(sp.csr_array(np.where(X == X[4, 2], np.inf, X)), Y),
        (ValueError, "X contains infinity", "row 4 of column 2"),
    ),
    "tiny rows": (
        lambda: _ridge(solver="pcg").fit(X * 1e-310, Y),
        (ValueError, "overflows float64", "too small", "scale the input up"),
    ),
    "tiny rows in float32": (
        lambda: _ridge().fit((X * 1e-41).astype(np.float32), Y),
        (ValueError, "overflows float32", "too small"),
    ),
    # Targets and weights.
    "NA": (
        lambda: _ridge().fit(X, pd.Series([pd.NA, *Y[1:]], dtype=object)),
        (ValueError, "y contains NaN or missing values: 1 of 30"),
    ),
    "NA among labels": (
        lambda: _classifier().fit(X, pd.Series([pd.NA, *LABELS[1:]], dtype="Int64")),
        (ValueError, "y contains NaN or missing values: 1 of 30"),
    ),
    "None among text": (
        lambda: _classifier().fit(X, [None, *LABELS[1:].astype(str)]),
        (ValueError, "y contains NaN or missing values: 1 of 30"),
    ),
    "null": (
        lambda: _ridge().fit(X, pl.Series([None, *Y[1:]])),
        (ValueError, "y contains NaN or missing values: 1 of 30"),
    ),
    "targets that are dates": (
        lambda: _ridge().fit(X, Y.astype("datetime64[s]")),
        (ValueError, "datetime64[s] values"),
    ),
    "huge targets": (
        lambda: _process().fit(X, 1e200 * Y),
        (ValueError, "targets are of size", "Divide y by"),
    ),
    "weights that are durations": (
        lambda: _ridge().fit(X, Y, np.ones(30).astype("timedelta64[s]")),
        (ValueError, "sample_weight holds timedelta64[s] values"),
    ),
    "weights without a sum": (
        lambda: _ridge().fit(X, Y, np.full(30, 1e308)),
        (ValueError, "the largest sample_weight is 1e+308", "divide the weights"),
    ),
    "weights too small": (
        lambda: _ridge().fit(X, Y, np.full(30, 1e-40)),
        (ValueError, "the largest sample_weight is 1e-40", "divide the weights"),
    ),
    "rows too small for optical features": (
        lambda: _ridge(kernel=rk.Optical(0.5)).fit((X * 1e-25).astype("f4"), Y),
        (ValueError, "rows of X have norms", "underflow float32", "input up"),
    ),
    "values too large for labels": (
        lambda: rk.GaussianProcessClassifier(
            rk.Optical(degree=40), n_components=16, optimizer=None, random_state=0
        ).fit(X, LABELS),
        (ValueError, "too large for the targets", "small number"),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_refused_by_name(case):
    call, (kind, *pieces) = REFUSED[case]
    with pytest.raises(kind) as caught:
        call()
    for piece in pieces:
        assert piece in str(caught.value)
    assert type(caught.value).__name__ != "LinAlgError"


def test_a_device_that_is_not_there_is_refused_at_once():
    pytest.importorskip("torch")
    with pytest.raises(ValueError, match="'cuda:99' cannot be used.*expected one of"):
        rk.DeviceBlocks(X, device="cuda:99")


@pytest.mark.parametrize("scale", [1e90, 1e-90])
@pytest.mark.parametrize(
    "model",
    [
        lambda: _process(normalize_y=True),
        lambda: _process(normalize_y=True, n_components=None, optimizer=None),
        lambda: _search(),
        lambda: _search(cv=3, fit_intercept=True),
        lambda: _search(cv="gcv", n_components=None),
    ],
)
def test_targets_of_any_size_have_the_answer_of_usual_ones(model, scale):
    usual = model().fit(X, Y)
    scaled = model().fit(X, scale * Y)
    np.testing.assert_allclose(
        scaled.predict(X) / scale, usual.predict(X), rtol=0, atol=1e-9
    )
    assert getattr(scaled, "alpha_", 0) == getattr(usual, "alpha_", 0)


@pytest.mark.parametrize("scale", [1e-90, 1e90])
@pytest.mark.parametrize(
    ("scoring", "power"),
    [(None, 2), ("neg_mean_absolute_error", 1), ("neg_mean_squared_error", 2)],
)
@pytest.mark.parametrize("cv", [None, 3, "gcv"])
def test_scores_are_those_of_the_original_targets(cv, scoring, power, scale):
    if cv == "gcv" and scoring is not None:
        return
    usual = _search(cv=cv, scoring=scoring).fit(X, Y)
    scaled = _search(cv=cv, scoring=scoring).fit(X, scale * Y)
    if cv == 3 and scoring is None:
        power = 0  # R2
    expected = usual.best_score_ * scale**power
    np.testing.assert_allclose(scaled.best_score_, expected, rtol=1e-6)
    assert max(scaled.cv_results_["mean_test_score"]) == scaled.best_score_


HUGE = [5, 2**60, 2**60 + 1]


@pytest.mark.parametrize("dtype", ["Int64", "int64[pyarrow]", "UInt64", "int64"])
def test_integers_of_dataframes_stay_integers(dtype):
    labels = pd.Series(np.resize(HUGE, 30), dtype=dtype)
    for y in (labels, labels.to_list()):
        model = rk.KernelRidgeClassifier(n_components=8, random_state=0).fit(X, y)
        assert model.classes_.tolist() == HUGE
        assert set(model.predict(X).tolist()) <= set(HUGE)
    small = pd.Series(np.resize([3, 7], 30), dtype="Int8")
    assert rk.KernelRidgeClassifier(n_components=8).fit(X, small).classes_.dtype == "i1"


def test_integers_beyond_int64_may_come_in_a_list():
    y = [1, 2**64 - 1] * 15
    model = rk.KernelRidgeClassifier(n_components=8, random_state=0).fit(X, y)
    assert model.classes_.tolist() == [1, 2**64 - 1]
    with pytest.raises(ValueError, match="do not fit into a single integer type"):
        rk.KernelRidgeClassifier(n_components=8).fit(X, [-1, 2**64 - 1] * 15)


def test_labels_of_blocks_with_and_without_a_sign_stay_apart():
    labels = np.resize(HUGE, 30)
    parts = [(X[:15], labels[:15].astype(np.uint64)), (X[15:], labels[15:])]
    model = rk.KernelRidgeClassifier(rk.Gaussian(1.0), n_components=8, random_state=0)
    assert model.fit(rk.RowBlocks(parts)).classes_.tolist() == HUGE
    whole = clone(model).fit(X, labels)
    np.testing.assert_allclose(model.coef_, whole.coef_, atol=1e-10)
    model.partial_fit(*parts[0], classes=HUGE).partial_fit(*parts[1])
    np.testing.assert_allclose(model.coef_, whole.coef_, atol=1e-10)
    negative = (X[15:], np.resize([-1, 5], 15))
    beyond = (X[:15], np.resize(np.array([2**64 - 1, 5], dtype=np.uint64), 15))
    with pytest.raises(ValueError, match="do not fit into a single integer type"):
        model.fit(rk.RowBlocks([beyond, negative]))
    minus_one = np.full(15, 2**64 - 1, dtype=np.uint64)
    model = clone(model).partial_fit(*parts[1], classes=[-1, *HUGE])
    with pytest.raises(ValueError, match="not among the classes"):
        model.partial_fit(X[:15], minus_one)


@pytest.mark.parametrize("solver", ["cholesky", "pcg"])
@pytest.mark.parametrize("weight", [1e29, 1e-29])
def test_weights_of_any_size_count_against_the_penalty(solver, weight):
    model = _ridge(kernel=rk.Gaussian(1.0), solver=solver)
    got = model.fit(X, Y, np.full(30, weight)).predict(X)
    if weight < 1:  # all that is left of the targets
        assert np.abs(got).max() < 1e-25
        return
    expected = model.set_params(alpha=0.0, solver="cholesky").fit(X, Y).predict(X)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_labels_beyond_int64_stay_what_they_are(tmp_path, suffix):
    file = tmp_path / f"table.{suffix}"
    table = pd.DataFrame({"x": X[:, 0], "code": UINT64, "label": UINT64})
    if suffix == "csv":
        table.to_csv(file, index=False)
    else:
        table.convert_dtypes().to_parquet(file)
    data = load_dataset(file, target="label")
    assert np.array_equal(data.y_train, UINT64)
    assert data.target_names == ("1", str(2**64 - 1))
    assert np.array_equal(data.X_train["code"].astype(float), UINT64.astype(float))


@pytest.mark.parametrize("model", ["KernelRidgeClassifier", "KernelSVC"])
def test_blocks_of_labels_have_the_classes_of_all_labels(model):
    rows = rk.RowBlocks.from_arrays(X, UINT64, block_rows=7)
    fitted = getattr(rk, model)(n_components=20, random_state=0).fit(rows)
    assert fitted.classes_.dtype == np.uint64
    assert fitted.classes_.tolist() == [1, 2**64 - 1]
    assert np.isin(fitted.predict(X), UINT64).all()


def test_a_solution_shows_no_numbers_of_its_value():
    solution = _ridge().fit(X, Y).solution_
    assert "value" not in repr(solution)
    assert "SUCCESS" in repr(solution)


@pytest.mark.parametrize(
    "options",
    [
        ["--kernels", "compositional:1000000000"],
        ["--n-components", str(2**63)],
    ],
)
def test_the_command_line_refuses_what_no_memory_holds(tmp_path, options):
    testing = pytest.importorskip("typer.testing")
    from randkern.cli import _build_app

    command = ["compare", "--out", str(tmp_path / "out"), *options]
    result = testing.CliRunner().invoke(_build_app(), command)
    assert result.exit_code == 2
    assert "randkern: error: " in result.output
    assert "layers" in result.output or str(2**63) in result.output
