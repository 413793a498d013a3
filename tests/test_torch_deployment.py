"""Fitted models as modules: their predictions, and gradients in the input."""

import io

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import randkern as rk
from _tensors import DEVICES, host, tensor, torch

each_device = pytest.mark.parametrize("device", DEVICES)
MODELS = {
    "ridge": rk.KernelRidgeRegressor(n_components=41, fit_intercept=True),
    "ridge exact": rk.KernelRidgeRegressor(n_components=None, fit_intercept=True),
    "ridge landmarks": rk.KernelRidgeRegressor(n_components=20, features="nystrom"),
    "ridge cv": rk.KernelRidgeRegressorCV(n_components=30),
    "classifier": rk.KernelRidgeClassifier(n_components=30),
    "svr": rk.KernelSVR(n_components=30),
    "quantiles": rk.KernelQuantileRegressor(None, 1e-4, n_components=30),
    "quantiles exact": rk.KernelQuantileRegressor(None, 1e-4, n_components=None),
    "svc": rk.KernelSVC(n_components=None),
    "svc probable": rk.KernelSVC(n_components=30, probability=True),
    "logistic": rk.KernelLogistic(n_components=30),
    "process": rk.GaussianProcessRegressor(n_components=30, normalize_y=True),
    "process exact": rk.GaussianProcessRegressor(
        n_components=None, optimizer=None, normalize_y=True
    ),
    "features": rk.RandomFeatures(n_components=15),
    "landmarks": rk.NystromFeatures(n_components=15),
    "metric": rk.MetricLearner(n_components=30, n_iterations=1),
    "pipeline": make_pipeline(
        StandardScaler(), rk.RandomFeatures(n_components=9), rk.KernelLogistic()
    ),
}


def fitted(name, n_classes, seed=0):
    """A model of 60 rows of three columns, and 6 rows more."""
    generator = np.random.default_rng(seed)
    X = generator.normal(2.0, [0.5, 1.0, 2.0], size=(66, 3))
    y = np.sin(X).sum(axis=1) + 5.0
    model = clone(MODELS[name])
    last = model.steps[-1][1] if name == "pipeline" else model
    for part in (model.steps[1][1], last) if name == "pipeline" else (last,):
        part.set_params(random_state=0)
    if hasattr(last, "classes_") or "Class" in str(type(last).__mro__):
        y = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))
    return model.fit(X[:60], y[:60]), X[60:]


def predictions(model, X):
    for method in ("predict_proba", "decision_function", "predict", "transform"):
        if hasattr(model, method):
            return getattr(model, method)(X)


@pytest.mark.nightly
@each_device
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", MODELS)
def test_predictions_and_gradients(name, n_classes, device):
    model, X = fitted(name, n_classes)
    module = rk.to_torch(model).to(device)
    expected = predictions(model, X)
    for dtype, bound in ((torch.float64, 1e-6), (torch.float32, 1e-4)):
        result = module(tensor(X, device).to(dtype).reshape(2, 3, 3))
        assert result.dtype == dtype
        assert result.shape == (2, 3, *expected.shape[1:])
        error = np.abs(host(result).reshape(expected.shape) - expected).max()
        assert error < bound * max(1.0, np.abs(expected).max())
    x = tensor(X[:2], device).requires_grad_()
    assert torch.autograd.gradcheck(module, x, atol=1e-5)


def table_and_codes(n=80):
    """Columns of all kinds, and the same as one tensor."""
    pd = pytest.importorskip("pandas")
    generator = np.random.default_rng(0)
    table = pd.DataFrame({"number": generator.normal(size=n)})
    table["skewed"] = np.exp(generator.normal(size=n)).round(1)
    table["city"] = generator.choice(["x", "y", "zed"], n)
    table["when"] = np.datetime64("2020-01-01") + generator.integers(0, 99, n)
    table.loc[::7, "number"] = table.loc[::9, "city"] = None
    lists = {"city": ["x", "y", "zed", None]}
    columns = table.assign(
        when=(table["when"] - pd.Timestamp(0)) / pd.Timedelta(days=1),
        city=table["city"].map({"x": 0, "y": 1, "zed": 2}),
    )
    return table, torch.tensor(columns.to_numpy(float)), lists


@pytest.mark.parametrize("numbers", ["standard", "quantile"])
def test_encoded_tables(numbers):
    table, x, lists = table_and_codes()
    pipeline = make_pipeline(
        rk.TabularEncoder(numbers), rk.KernelRidgeRegressor(n_components=20)
    ).fit(table[:60], np.arange(60.0))
    module = rk.to_torch(pipeline)
    assert module[0].categories == lists
    np.testing.assert_allclose(host(module(x)), pipeline.predict(table), atol=1e-6)
    x[table["city"].isna().to_numpy(), 2] = lists["city"].index(None)
    np.testing.assert_allclose(host(module(x)), pipeline.predict(table), atol=1e-6)
    table.loc[3, "city"], x[3, 2] = "never seen", 17.0
    result = host(module[0](x.reshape(2, 40, 4))).reshape(80, -1)
    np.testing.assert_allclose(result, pipeline[0].transform(table), atol=1e-9)


def test_models_of_tables():
    """Rows of which the last were not fitted."""
    table, x, lists = table_and_codes()
    y = x[:, 1].numpy() + (table["city"] == "x")
    labels = np.digitize(y, np.quantile(y, [0.3, 0.6]))
    for kind, target in (
        (rk.TabularRegressor, y),
        (rk.TabularRegressor, np.stack([y, -y], axis=1)),
        (rk.TabularClassifier, labels),
    ):
        model = kind(time_limit=0.3, random_state=0).fit(table[:60], target[:60])
        module = rk.to_torch(model)
        assert module.categories == lists
        expected = getattr(model, "predict_proba", model.predict)(table)
        result = module(x.requires_grad_())
        assert result.shape == expected.shape
        np.testing.assert_allclose(host(result), expected, atol=1e-6)
        (slope,) = torch.autograd.grad(result.pow(2).sum(), x)
        assert torch.isfinite(slope[:, 1]).all()


def skeleton(activation):
    return rk.Compositional(
        rk.skeletons.fully_connected(3, 2, activation=activation, base="gaussian")
    )


FLAT = [
    rk.Matern(0.5),
    rk.Matern(0.7),
    rk.ArcCosine(0),
    rk.Optical(1),
    skeleton("step"),
]
SMOOTH = [
    *(rk.Matern(nu, 1.3) for nu in (2.0, 2.5, 3.5)),
    *(rk.ArcCosine(1), rk.ArcCosine(2), skeleton("relu"), skeleton("hermite2")),
]


@pytest.mark.parametrize("kernel", [*FLAT, *SMOOTH], ids=str)
def test_derivatives_at_a_row_of_the_fit(kernel):
    """Central differences of predictions; at a cusp, they are 0, and so is the slope.

    Differences of h = 1e-3 have errors of order h², or h at a weak singularity, and of
    rounding, 1e-16/h².
    """
    X = np.random.default_rng(0).normal(size=(12, 3))
    model = rk.KernelRidgeRegressor(kernel, alpha=0.1, n_components=None)
    model.fit(X, np.sin(X[:, 0]))
    module, at, h = rk.to_torch(model), X[2], 1e-3
    steps = h * np.eye(3)
    up, down = (model.predict(at + sign * steps) for sign in (1, -1))
    x = torch.tensor(at, requires_grad=True)
    (slope,) = torch.autograd.grad(module(x), x)
    scale = max(1.0, abs(up - down).max() / h)
    np.testing.assert_allclose(slope, (up - down) / (2 * h), atol=1e-3 * scale)
    if kernel in FLAT:
        return
    curvature = torch.autograd.functional.hessian(module, torch.tensor(at))
    expected = np.zeros((3, 3))
    for a in (1, -1):
        for b in (1, -1):
            points = at + a * steps[:, None] + b * steps
            values = model.predict(points.reshape(9, 3)).reshape(3, 3)
            expected += a * b * values / (4 * h**2)
    np.testing.assert_allclose(curvature, expected, atol=2e-3 * abs(expected).max())
    if isinstance(kernel, rk.Compositional):  # sparse products lack forward derivatives
        return
    of_functions = torch.func.hessian(module)(torch.tensor(at))
    np.testing.assert_allclose(of_functions, curvature, rtol=1e-9, atol=1e-12)


def test_curvatures_of_a_sum_of_absolute_differences():
    X = np.random.default_rng(0).normal(size=(12, 3))
    model = rk.KernelRidgeRegressor(rk.Laplacian(2.0), n_components=None)
    model.fit(X, np.sin(X[:, 0]))
    at, h = X[2] + 0.3, 1e-3
    up, middle, down = (model.predict([at + s * h * np.eye(3)[0]]) for s in (1, 0, -1))
    curvature = torch.autograd.functional.hessian(rk.to_torch(model), torch.tensor(at))
    expected = (up - 2 * middle + down) / h**2
    np.testing.assert_allclose(curvature[0, 0], expected[0], rtol=1e-3)


@pytest.mark.parametrize("kernel", [rk.Optical(1), rk.Optical(2)])
def test_slopes_at_a_row_of_zeros_are_finite(kernel):
    X = np.random.default_rng(0).normal(size=(12, 3))
    model = rk.KernelRidgeRegressor(kernel, n_components=None).fit(X, X[:, 0])
    x = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(rk.to_torch(model)(x), x)
    np.testing.assert_array_equal(slope, 0)


@pytest.mark.parametrize("fourier", ["pair", "offset"])
@pytest.mark.parametrize("kernel", [rk.Polynomial(2), rk.Polynomial(1) * rk.Gaussian()])
def test_slopes_where_a_projection_is_zero(kernel, fourier):
    """Of the sums ±0.5 ± 0.25 ± 0.25, some are 0."""
    X = np.random.default_rng(0).normal(size=(12, 3))
    model = rk.KernelRidgeRegressor(
        kernel, n_components=60, fourier=fourier, random_state=0
    )
    model.fit(X, np.sin(X[:, 0]))
    at, h = np.array([0.5, 0.25, 0.25]), 1e-5
    up, down = (model.predict(at + s * h * np.eye(3)) for s in (1, -1))
    x = torch.tensor(at, requires_grad=True)
    (slope,) = torch.autograd.grad(rk.to_torch(model)(x), x)
    np.testing.assert_allclose(slope, (up - down) / (2 * h), rtol=1e-6, atol=1e-8)
    curvature = torch.autograd.functional.hessian(rk.to_torch(model), torch.tensor(at))
    assert torch.isfinite(curvature).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [{"n_components": 30}, {"n_components": None}, {"features": "nystrom"}],
)
def test_a_process_of_counts_gives_its_rate(settings):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = rng.poisson(np.exp(1 + X[:, 0]))
    model = rk.GaussianProcessRegressor(
        **{"n_components": 20} | settings,
        likelihood="poisson",
        optimizer=None,
        random_state=0,
    ).fit(X, y)
    new = rng.normal(size=(5, 2))
    x = torch.tensor(new, requires_grad=True)
    rate = rk.to_torch(model)(x)
    np.testing.assert_allclose(rate.detach(), model.predict(new), rtol=1e-9)
    (slope,) = torch.autograd.grad(rate.sum(), x)
    step = 1e-5 * np.eye(2)[0]
    expected = (model.predict(new + step) - model.predict(new - step)) / 2e-5
    np.testing.assert_allclose(slope[:, 0], expected, rtol=1e-5, atol=1e-6)


def test_nearest_rows_are_no_module():
    X = np.random.default_rng(0).normal(size=(30, 2))
    model = rk.GaussianProcessRegressor(
        n_components=None, n_neighbors=5, optimizer=None
    ).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="n_neighbors"):
        rk.to_torch(model)


def test_what_was_learned_is_in_the_state_and_in_a_file():
    model, X = fitted("ridge exact", 2)
    module = rk.to_torch(model)
    assert set(module.state_dict()) == {"weights", "constant", "rows"}
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    x = torch.tensor(X)
    assert torch.equal(again(x), module(x))


def test_others_are_named():
    X, y = np.zeros((4, 2)), np.arange(4.0)
    process = rk.GaussianProcessClassifier(n_components=20, optimizer=None)
    with pytest.raises(TypeError, match="got GaussianProcessClassifier"):
        rk.to_torch(process.fit(X, y > 1))
    with pytest.raises(TypeError, match="got Ridge"):
        rk.to_torch(Ridge().fit(X, y))
    with pytest.raises(ValueError, match="not fitted"):
        rk.to_torch(rk.KernelRidgeRegressor())
