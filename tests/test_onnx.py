"""Models as files of ONNX: the same values from onnxruntime, kernel by kernel."""

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import skl2onnx
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes, load_digits
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import randkern as rk
import randkern.onnx
from _cases import KERNELS, POINTS
from _skeleton_cases import ACTIVATIONS, BASES, points, shapes
from randkern.tabular.model import Member

# Relative to the largest value. Models of rows in single precision compute in it, and
# files in double precision.
BOUNDS = {"float64": 1e-9, "float32": 1e-5}
EVERY_DTYPE = pytest.mark.parametrize("dtype", ["float64", "float32"])


def run(made, X):
    """The outputs for an array, or for the columns of a dataframe."""
    session = onnxruntime.InferenceSession(
        made.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    inputs = session.get_inputs()
    if not isinstance(X, pd.DataFrame):
        return session.run(None, {inputs[0].name: X})
    return session.run(
        None, {item.name: fed(X[item.name], item.type) for item in inputs}
    )


def assert_constants_are_read(made):
    read = {name for node in made.graph.node for name in node.input}
    assert {constant.name for constant in made.graph.initializer} <= read


def fed(column, kind):
    """A column as an input: empty text for a missing category, days for a date."""
    if kind == "tensor(string)":
        values = ["" if pd.isna(value) else str(value) for value in column]
        return np.array(values, dtype=object)[:, None]
    if str(column.dtype).startswith("date"):
        column = (column - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1)
    dtypes = {"double": float, "float": np.float32, "int64": np.int64, "bool": bool}
    return column.to_numpy().astype(dtypes[kind[7:-1]])[:, None]


def assert_equal(found, expected, dtype="float64"):
    expected = np.asarray(expected)
    assert str(found.dtype) == dtype
    error = np.abs(found.reshape(expected.shape) - expected).max()
    assert error <= BOUNDS[dtype] * max(1.0, np.abs(expected).max())


@pytest.fixture(scope="module")
def diabetes():
    X, y = load_diabetes(return_X_y=True)
    return X[:200], (y[:200] - y.mean()) / y.std()


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:300] / 16, y[:300]


REGRESSORS = {
    "ridge": rk.KernelRidgeRegressor(n_components=101, random_state=0),
    "ridge offset": rk.KernelRidgeRegressor(
        n_components=50, fourier="offset", fit_intercept=True, random_state=0
    ),
    "ridge exact": rk.KernelRidgeRegressor(n_components=None, fit_intercept=True),
    "ridge landmarks": rk.KernelRidgeRegressor(
        n_components=60, features="nystrom", random_state=0
    ),
    "ridge cv": rk.KernelRidgeRegressorCV(n_components=60, random_state=0),
    "svr": rk.KernelSVR(n_components=60, random_state=0),
    "quantile": rk.KernelQuantileRegressor(None, 1e-4, 0.5, 60, random_state=0),
    "quantiles": rk.KernelQuantileRegressor(
        None, 1e-4, (0.4, 0.5, 0.6), 60, random_state=0
    ),
    "process": rk.GaussianProcessRegressor(
        n_components=60, normalize_y=True, random_state=0
    ),
    "process exact": rk.GaussianProcessRegressor(n_components=None, optimizer=None),
}


@pytest.mark.slow
@EVERY_DTYPE
@pytest.mark.parametrize("name", REGRESSORS)
def test_regressors(name, dtype, diabetes, tmp_path):
    X, y = diabetes
    model = clone(REGRESSORS[name]).fit(X, 7.0 + 3.0 * y)
    created = rk.export_onnx(model, tmp_path / "model.onnx", dtype=dtype)
    assert (tmp_path / "model.onnx").read_bytes() == created.SerializeToString()
    X = X.astype(dtype)
    assert_equal(run(created, X)[0], model.predict(X), dtype)


CLASSIFIERS = {
    "ridge": rk.KernelRidgeClassifier(n_components=200, random_state=0),
    "ridge cv": rk.KernelRidgeClassifierCV(n_components=100, random_state=0),
    "svc": rk.KernelSVC(n_components=100, random_state=0),
    "svc exact": rk.KernelSVC(n_components=None),
    "logistic": rk.KernelLogistic(
        rk.Optical(2, bias=1.0), n_components=100, random_state=0
    ),
    "logistic exact": rk.KernelLogistic(n_components=None),
}


@pytest.mark.parametrize(
    ("labels", "dtype"),
    [("numbers", "float64"), ("texts", "float32"), ("booleans", "float64")],
)
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers(name, labels, dtype, digits, tmp_path):
    X, y = digits
    y = {"numbers": y, "texts": np.array(["low", "high"])[y // 5 % 2]}.get(
        labels, y > 4
    )
    model = clone(CLASSIFIERS[name]).fit(X, y)
    created = rk.export_onnx(model, tmp_path / "model.onnx", dtype=dtype)
    X = X.astype(dtype)
    label, values = run(created, X)
    expected = getattr(model, "predict_proba", model.decision_function)(X)
    if expected.ndim == 1:
        expected = np.stack([-expected, expected], axis=1)
    assert_equal(values, expected, dtype)
    assert (label == model.predict(X)).all()


PROCESSES = {
    "features": {"n_components": 60},
    "landmarks": {"n_components": 30, "features": "nystrom"},
    "exact": {"n_components": None},
}


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", PROCESSES)
def test_processes_of_classes(name, n_classes, digits, tmp_path):
    """Near the data and far from them; with deviations below and above 1."""
    X, y = digits
    for scale in (0.5, 20.0):
        model = rk.GaussianProcessClassifier(
            scale * rk.Gaussian(3.0), optimizer=None, random_state=0, **PROCESSES[name]
        ).fit(X[:150], y[:150] % n_classes)
        created = rk.export_onnx(model, tmp_path / "model.onnx")
        new = np.concatenate([X[150:], 3 * X[150:]])
        label, values = run(created, new)
        expected = model.predict_proba(new)
        assert np.abs(values - expected).max() < 1e-8
        assert (label == model.predict(new)).mean() > 0.99  # but for ties


def test_raw_scores_are_decisions(digits):
    X, y = digits
    model = rk.KernelLogistic(n_components=50, random_state=0).fit(X, y)
    randkern.onnx.register()
    options = {id(model): {"zipmap": False, "raw_scores": True}}
    created = skl2onnx.to_onnx(model, X[:1], options=options)
    assert_equal(run(created, X)[1], model.decision_function(X))


# A function of the user.
WITHOUT_VALUES = ("spectral",)


@pytest.mark.parametrize("name", KERNELS)
def test_features_of_every_kernel(name, tmp_path):
    D = 4 if name.startswith("linear") and "*" not in name else 33
    features = rk.RandomFeatures(KERNELS[name].kernel, D, random_state=0).fit(POINTS)
    created = rk.export_onnx(features, tmp_path / "model.onnx")
    assert_equal(run(created, POINTS)[0], features.transform(POINTS))


@pytest.mark.parametrize("name", KERNELS)
def test_exact_values_of_every_kernel(name, tmp_path):
    model = rk.KernelRidgeRegressor(KERNELS[name].kernel, 0.1, n_components=None)
    model.fit(POINTS, np.arange(len(POINTS)))
    path = tmp_path / "model.onnx"
    if name in WITHOUT_VALUES:
        culprit = "|".join(type(leaf).__name__ for leaf in model.kernel_.leaves())
        with pytest.raises(ValueError, match=f"exact values of ({culprit})"):
            rk.export_onnx(model, path)
        assert not path.exists()
        return
    created = rk.export_onnx(model, path)
    assert_constants_are_read(created)
    others = POINTS[::-1] + np.array([0.1, 0.2, 0.0, 0.0])
    assert_equal(run(created, others)[0], model.predict(others))


# Every base space once, and every activation.
SKELETONS = [
    *((base, "relu", "shallow") for base in BASES),
    *(("circle", activation, "deep") for activation in ACTIVATIONS),
    ("linear", "optical-4", "shallow"),  # with powers of factors
    *((base, "relu", "convolutional") for base in ("gaussian-2", "sphere-pair")),
]


@pytest.mark.parametrize(("base", "activation", "shape"), SKELETONS)
def test_skeletons(base, activation, shape, tmp_path):
    """Features with weights of their own, as factors of a product, and exact values."""
    generator = np.random.default_rng(0)
    X = points(BASES[base], 30, 9, generator)
    y, new = X.sum(axis=1), points(BASES[base], 7, 9, generator)
    if base.startswith("categorical"):
        new[::2] += BASES[base].n * (new[::2] == 0)  # n is 0, too
    skeleton = shapes(ACTIVATIONS[activation], BASES[base])[shape]
    kernel = rk.Compositional(skeleton)
    for item in (kernel, rk.Compositional(skeleton) * rk.Gaussian(2.0)):
        features = rk.RandomFeatures(item, 41, random_state=0).fit(X)
        created = rk.export_onnx(features, tmp_path / "model.onnx")
        assert_equal(run(created, new)[0], features.transform(new))
    model = rk.KernelRidgeRegressor(kernel, 0.1, n_components=None).fit(X, y)
    created = rk.export_onnx(model, tmp_path / "model.onnx")
    assert_equal(run(created, new)[0], model.predict(new))


@pytest.mark.parametrize("kernel", [rk.Matern(1.5), rk.Optical(3, 0.5)], ids=str)
@pytest.mark.parametrize(
    "projection", ["dense", "streamed", "orthogonal", "structured", "qmc"]
)
def test_projections(projection, kernel, tmp_path):
    X = np.random.default_rng(0).normal(size=(5, 70))
    features = rk.RandomFeatures(
        kernel,
        301,
        projection=projection,
        centered=isinstance(kernel, rk.Optical),
        random_state=1,
    ).fit(X)
    created = rk.export_onnx(features, tmp_path / "model.onnx")
    assert_equal(run(created, X)[0], features.transform(X))
    if projection == "structured":
        # Signs and norms, not the 301 x 70 entries of a matrix.
        assert len(created.SerializeToString()) < 8 * 301 * 70 / 2


def test_pipelines_of_skl2onnx(diabetes):
    X, y = diabetes
    table = pd.DataFrame(X[:, :3], columns=list("abc"))
    table["kind"] = np.where(y > 0, "up", "down")
    pipeline = make_pipeline(
        make_column_transformer(
            (StandardScaler(), list("abc")), (OneHotEncoder(), ["kind"])
        ),
        rk.NystromFeatures(n_components=30, random_state=0),
        rk.KernelRidgeRegressor(n_components=40, random_state=0),
    ).fit(table, y)
    randkern.onnx.register()
    created = skl2onnx.to_onnx(pipeline, table[:1])
    # One-hot columns are in single precision there.
    assert_equal(
        run(created, table)[0].astype("float32"), pipeline.predict(table), "float32"
    )


@pytest.mark.slow
def test_learned_metric(diabetes, tmp_path):
    X, y = diabetes
    metric = rk.MetricLearner(n_components=50, n_iterations=1, random_state=0)
    metric.fit(X, y)
    result = run(rk.export_onnx(metric, tmp_path / "model.onnx"), X)[0]
    assert_equal(result, metric.transform(X))


@pytest.fixture(scope="module")
def table():
    generator, n = np.random.default_rng(0), 150
    days = pd.to_timedelta(generator.integers(0, 500, n), unit="D")
    table = pd.DataFrame(
        {
            "number": generator.normal(size=n),
            "skewed": np.exp(generator.normal(size=n)).round(1),
            "count": generator.integers(0, 5, n),
            "city": generator.choice(["x", "y", "zed"], n),
            "two": generator.choice(["p", "q"], n),
            "when": pd.Timestamp("2020-01-01") + days,
            "flag": generator.random(n) < 0.3,
            "code": pd.Categorical(generator.integers(1, 4, n)),
            "many": [f"v{int(k)}" for k in generator.exponential(20, n)],
        }
    )
    table.loc[::7, "number"] = np.nan
    table.loc[::9, "city"] = None
    table.loc[1, "city"] = "rare"
    return table


@pytest.mark.slow
@pytest.mark.parametrize("numbers", ["standard", "quantile"])
def test_encoder_of_tables(numbers, table, tmp_path):
    encoder = rk.TabularEncoder(numbers).fit(table)
    new = table.copy()
    new.loc[3, "city"] = new.loc[4, "many"] = "never seen"
    new.loc[[5, 6, 7], "skewed"] = [1e6, -1.0, new["skewed"].min()]
    new.loc[8, "skewed"] = new["skewed"].median() + 0.05  # between two quantiles
    created = rk.export_onnx(encoder, tmp_path / "model.onnx", table)
    assert_constants_are_read(created)
    result, expected = run(created, new)[0], encoder.transform(new)
    assert np.abs(result - expected).max() < 1e-8


@pytest.mark.slow
@pytest.mark.parametrize(("given", "dtype"), [(True, "float64"), (False, "float32")])
@pytest.mark.usefixtures("no_deadline")
def test_models_of_tables(given, dtype, table, tmp_path):
    y = np.nan_to_num(table["number"]) + (table["city"] == "x") + 0.1 * table["skewed"]
    labels = np.where(y > 0.8, "high", np.where(y > 0.2, "middle", "low"))
    for kind, target in ((rk.TabularRegressor, y), (rk.TabularClassifier, labels)):
        model = kind(time_limit=0.3, random_state=0).fit(table, target)
        created = rk.export_onnx(
            model, tmp_path / "model.onnx", table if given else None, dtype=dtype
        )
        *label, values = run(created, table)
        rows = table
        if not given:  # what the model is fed: between two quantiles it may be another
            rows = table.astype(dict.fromkeys(("number", "skewed"), dtype))
        probable = getattr(model, "predict_proba", model.predict)
        assert_equal(values, probable(rows), "float64" if given else dtype)
        if label:
            assert (label[0] == model.predict(rows)).all()


def test_many_rows_of_columns_on_many_scales(tmp_path):
    """Models of many rows are fitted in single precision, and predict in double.

    Columns are as those of the table magic, which a gamma telescope counted.
    """
    generator, n = np.random.default_rng(0), 1500
    size, tail = generator.gamma(2.0, 25.0, n), generator.standard_t(2, (n, 3))
    columns = {"length": size, "width": 0.4 * size * generator.random(n)}
    columns |= {"size": np.log10(100 + size**2), "share": generator.random(n) ** 3}
    columns |= {f"moment {k}": 30 * tail[:, k] + size for k in range(3)}
    table = pd.DataFrame(columns).round(4)
    score = np.sin(size / 9) + columns["share"] + 0.02 * np.clip(tail[:, 0], -9, 9)
    y = np.where(score + generator.normal(0, 0.3, n) > 0.3, "gamma", "hadron")
    model = rk.TabularClassifier(time_limit=0.3, random_state=0)
    model.fit(table[:100], y[:100])
    for numbers in ("standard", "quantile"):
        encoder = rk.TabularEncoder(numbers, dtype="float32").fit(table)
        fit = rk.KernelLogistic(
            rk.Matern(3.0) + rk.Linear(bias=1.0, columns=[]),
            *(1e3, 300),
            features="nystrom",
            tol=0.01,
            random_state=0,
        ).fit(encoder.transform(table), y)
        model.model_.members = [Member(1.0, encoder, fit)]
        result = run(rk.export_onnx(model, tmp_path / "model.onnx", table), table)[1]
        assert np.abs(result - model.predict_proba(table)).max() < 1e-6


def test_inputs_have_the_names_of_columns(tmp_path):
    names = ["a b", "a_b", "größe (cm)", "kind/x", "value"]
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 5)), columns=names)
    model = rk.KernelRidgeRegressor(n_components=20, random_state=0)
    model = make_pipeline(rk.TabularEncoder(), model).fit(X, X["a b"] - X["a_b"])
    created = rk.export_onnx(model, tmp_path / "model.onnx", X)
    assert [item.name for item in created.graph.input] == names
    assert_equal(run(created, X)[0], model.predict(X))


def test_what_has_no_operators_says_so(table, tmp_path):
    mixed = table[["count", "city"]].fillna("none")
    ridge = rk.KernelRidgeRegressor(
        rk.Gaussian(columns=["count"]) * rk.Categorical(columns=["city"]),
        n_components=9,
    ).fit(mixed, np.arange(len(mixed)))
    with pytest.raises(ValueError, match="fitted to categories \\('city'\\)"):
        rk.export_onnx(ridge, tmp_path / "model.onnx")
    with pytest.raises(ValueError, match="dtype must be"):
        rk.export_onnx(ridge, tmp_path / "model.onnx", dtype="float16")


def test_texts_in_a_column_of_numbers_are_named(tmp_path):
    days = pd.date_range("2024-01-01", periods=30)
    rows = pd.DataFrame({"size": np.arange(30.0), "sold on": days})
    model = make_pipeline(rk.TabularEncoder(), rk.KernelRidgeRegressor())
    model.fit(rows, np.sin(rows["size"]))
    texts = rows.astype({"sold on": str})
    with pytest.raises(ValueError, match="column 'sold on' held numbers or dates"):
        rk.export_onnx(model, tmp_path / "model.onnx", texts)


# -- Gaussian processes -------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"mean": "constant"},
        {"mean": "linear", "normalize_y": True},
        {"mean": "constant", "n_components": None},
        {"features": "nystrom"},
        {"likelihood": "student-t", "mean": "constant"},
        {"likelihood": "poisson"},
        {"kernel": 1.0 * rk.Gaussian(2.0) + 2.0 * rk.Linear(1.0, columns=[])},
    ],
    ids=str,
)
def test_means_and_deviations_of_processes(options, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3))
    y = rng.poisson(np.exp(1 + np.sin(X[:, 0]))).astype(float)
    model = rk.GaussianProcessRegressor(n_components=30, optimizer=None, random_state=0)
    model.set_params(**options).fit(X, y)
    path = tmp_path / "model.onnx"
    made = rk.export_onnx(model, path, return_std=True)
    assert [output.name for output in made.graph.output] == ["variable", "std"]
    session = onnxruntime.InferenceSession(path)
    expected = model.predict(X, return_std=True)
    for values, right in zip(session.run(None, {"X": X}), expected, strict=True):
        np.testing.assert_allclose(values[:, 0], right, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("name", ["variable", "label"])
def test_names_of_outputs_are_not_those_of_columns(name, tmp_path):
    X = pd.DataFrame({name: [0.0, 1.0, 2.0, 3.0], "b": [1.0, 0.0, 1.0, 0.0]})
    kinds = {"variable": rk.KernelRidgeRegressor, "label": rk.KernelRidgeClassifier}
    model = kinds[name](n_components=10, random_state=0).fit(X, [0, 1, 0, 1])
    with pytest.raises(ValueError, match="has an output of this name"):
        rk.export_onnx(model, tmp_path / "model.onnx", X)
