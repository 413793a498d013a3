"""Coregionalization: the covariance of outputs that a column tells apart."""

import pickle

import numpy as np
import pytest
import sklearn

import randkern as rk

LOADINGS = np.array([[1.0, 0.3], [-2.0, 0.0], [0.5, 0.5]])
VARIANCES = np.array([0.5, 0.0, 1.0])
B = LOADINGS @ LOADINGS.T + np.diag(VARIANCES)
OUTPUTS = rk.Coregionalization(LOADINGS, VARIANCES, columns=[2])
KERNEL = rk.Gaussian([1.0, 0.5], columns=[0, 1]) * OUTPUTS


@pytest.fixture
def rows(rng):
    return np.column_stack([rng.normal(size=(30, 2)), np.arange(30) % 3])


def gaussian(X, Y, lengthscale=(1.0, 0.5)):
    square = ((X[:, None, :2] - Y[None, :, :2]) / lengthscale) ** 2
    return np.exp(-0.5 * square.sum(axis=-1))


def test_values_are_those_of_the_formula(rows):
    t = rows[:, 2].astype(int)
    np.testing.assert_allclose(OUTPUTS(rows), B[np.ix_(t, t)], rtol=1e-14)
    expected = gaussian(rows, rows) * B[np.ix_(t, t)]
    np.testing.assert_allclose(KERNEL(rows), expected, rtol=1e-12)
    np.testing.assert_allclose(KERNEL.diag(rows), np.diag(expected), rtol=1e-12)
    single = KERNEL(rows.astype(np.float32))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, expected, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "projection"),
    [("alone", "dense"), ("product", "streamed"), ("product", "orthogonal")],
)
def test_features_have_the_kernel_as_their_mean(name, projection, rows):
    kernel = OUTPUTS if name == "alone" else KERNEL
    rows = rows[:6]
    features = rk.RandomFeatures(kernel, 20_000, projection=projection, random_state=0)
    Z = features.fit_transform(rows)
    deviation = np.sqrt(kernel.feature_variance(rows, n_components=20_000))
    # Six deviations of nearly normal means, 36 of them.
    assert np.all(np.abs(Z @ Z.T - kernel(rows)) <= 6 * deviation + 1e-12)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["alone", "product"])
def test_the_variance_is_that_of_draws(name, rows):
    kernel, rows = OUTPUTS if name == "alone" else KERNEL, rows[:6]
    draws = []
    for seed in range(2000):
        Z = rk.RandomFeatures(kernel, 20, projection="dense", random_state=seed)
        Z = Z.fit_transform(rows)
        draws.append(Z @ Z.T)
    expected = kernel.feature_variance(rows, n_components=20)
    # A kurtosis of 10 gives the ratio a deviation of 0.07.
    np.testing.assert_allclose(np.var(draws, axis=0), expected, rtol=0.4)


@pytest.mark.parametrize("D", [None, 60, 20], ids=["exact", "n < D", "n > D"])
def test_gradients_are_those_of_differences(D, rows, rng):
    kernel = KERNEL + 0.3 * rk.Coregionalization(
        [[1.0], [0.0], [2.0]], [0.1, 0.2, 0.3], columns=[2]
    )
    model = rk.GaussianProcessRegressor(
        kernel, 0.1, D, optimizer=None, random_state=0
    ).fit(rows, rng.normal(size=30))
    theta = model.theta_
    _, slopes = model.log_marginal_likelihood(theta, eval_gradient=True)
    assert len(slopes) == 2 + 6 + 3 + 1 + 3 + 3 + 1
    for step, slope in zip(1e-5 * np.eye(len(theta)), slopes, strict=True):
        high, low = map(model.log_marginal_likelihood, (theta + step, theta - step))
        assert slope == pytest.approx((high - low) / 2e-5, rel=1e-5, abs=1e-6)


@pytest.fixture
def opposite(rng):
    """Rows of which the second output is minus the first."""
    x = rng.uniform(-3, 3, 40)
    y = np.sin(2 * x) + 0.1 * rng.normal(size=40)
    t = np.arange(40) % 2
    return np.column_stack([x, t]), np.where(t == 0, y, -y)


@pytest.mark.parametrize("D", [None, 200], ids=["exact", "features"])
def test_outputs_of_opposite_sign_are_learned(D, opposite):
    X, y = opposite
    signed = rk.Gaussian(1.0, columns=[0]) * rk.Coregionalization(
        [[1.0], [0.5]], [0.1, 0.1], columns=[1]
    )
    shared = 1.0 * rk.Gaussian(1.0, columns=[0]) + 0.5 * (
        rk.Gaussian(1.0, columns=[0]) * rk.Categorical(columns=[1])
    )
    fits = [
        rk.GaussianProcessRegressor(kernel, 0.05, D, random_state=0).fit(X, y)
        for kernel in (signed, shared)
    ]
    evidence = [fit.log_marginal_likelihood_value_ for fit in fits]
    # A shared part cannot say that one output is minus the other.
    assert evidence[0] > evidence[1] + 5
    outputs = fits[0].kernel_.k2
    W, v = np.asarray(outputs.loadings)[:, 0], np.asarray(outputs.variances)
    assert W[0] * W[1] / np.sqrt((W[0] ** 2 + v[0]) * (W[1] ** 2 + v[1])) < -0.95
    # What one output says of the other, where this one was not seen.
    alone = X[:, 1] == 0
    few = fits[0].set_params(optimizer=None, kernel=fits[0].kernel_)
    seen = alone | (np.abs(X[:, 0]) > 2)
    grid = np.column_stack([np.linspace(-1.5, 1.5, 20), np.ones(20)])
    mean = few.fit(X[seen], y[seen]).predict(grid)
    np.testing.assert_allclose(mean, -np.sin(2 * grid[:, 0]), atol=0.4)


def test_files_tensors_and_names(rows, rng, tmp_path):
    y = rng.normal(size=30)
    model = rk.GaussianProcessRegressor(
        KERNEL, 0.1, 50, optimizer=None, random_state=0
    ).fit(rows, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))
    pytest.importorskip("skops")
    rk.save(model, tmp_path / "model.skops")
    loaded = rk.load(tmp_path / "model.skops")
    np.testing.assert_array_equal(loaded.predict(rows), model.predict(rows))
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {"a": rows[:, 0], "b": rows[:, 1], "out": np.array([*"xyz"])[np.arange(30) % 3]}
    )
    named = rk.Gaussian([1.0, 0.5], columns=["a", "b"]) * rk.Coregionalization(
        LOADINGS, VARIANCES, columns="out"
    )
    same = rk.GaussianProcessRegressor(named, 0.1, 50, optimizer=None, random_state=0)
    np.testing.assert_allclose(same.fit(frame, y).predict(frame), model.predict(rows))
    with pytest.raises(ValueError, match="has 3 outputs"):
        same.predict(frame.assign(out="w"))


@pytest.mark.parametrize("texts", ["xz", "wxyz"])
def test_as_many_categories_as_outputs(texts, rows):
    # Of three outputs, rows of "x" and "z" alone do not say that "z" is the third.
    pd = pytest.importorskip("pandas")
    texts = np.array([*texts])[np.arange(30) % len(texts)]
    kernel = rk.Coregionalization(LOADINGS, VARIANCES, columns="out")
    frame = pd.DataFrame({"a": rows[:, 0], "out": texts})
    model = rk.GaussianProcessRegressor(kernel, n_components=50, optimizer=None)
    with pytest.raises(ValueError, match=r"'out' has [24] categories"):
        model.fit(frame, rows[:, 0])
    with pytest.raises(ValueError, match="has 3 outputs"):
        kernel(frame)


@pytest.mark.parametrize("D", [None, 50])
def test_files_of_onnx(D, rows, rng, tmp_path):
    pytest.importorskip("skl2onnx")
    onnxruntime = pytest.importorskip("onnxruntime")
    model = rk.GaussianProcessRegressor(KERNEL, 0.1, D, optimizer=None, random_state=0)
    made = rk.export_onnx(model.fit(rows, rng.normal(size=30)), tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(made.SerializeToString())
    (values,) = session.run(None, {"X": rows})
    np.testing.assert_allclose(values[:, 0], model.predict(rows), atol=1e-12)
    with pytest.raises(Exception, match="out of data bounds"):
        session.run(None, {"X": rows + np.array([0, 0, 1])})


def test_tensors_have_the_same_values(rows, rng):
    torch = pytest.importorskip("torch")
    y = rng.normal(size=30)
    for D in (None, 50):
        options = {"optimizer": None, "random_state": 0}
        model = rk.GaussianProcessRegressor(KERNEL, 0.1, D, **options).fit(rows, y)
        with sklearn.config_context(array_api_dispatch=True):
            X = torch.asarray(rows)
            there = rk.GaussianProcessRegressor(KERNEL, 0.1, D, **options)
            values = there.fit(X, torch.asarray(y)).predict(X)
        _, slopes = there.log_marginal_likelihood(eval_gradient=True)
        _, expected = model.log_marginal_likelihood(eval_gradient=True)
        np.testing.assert_allclose(slopes, expected, rtol=1e-8, atol=1e-8)
        np.testing.assert_allclose(values.numpy(), model.predict(rows), atol=1e-9)


@pytest.mark.parametrize(
    ("loadings", "variances", "columns", "message"),
    [
        ([1.0, 2.0], [0.0, 0.0], [0], "shape \\(n_outputs, rank\\)"),
        ([[1.0], [np.nan]], [0.0, 0.0], [0], "finite numbers of shape"),
        ([[1.0], [2.0]], [0.0], [0], "variances must be 2"),
        ([[1.0], [2.0]], [0.0, -1.0], [0], "variances must be 2"),
        ([["a"], ["b"]], [0.0, 1.0], [0], "finite numbers of shape"),
        ([[1.0], [2.0]], [0.0, 1.0], None, "reads a single column"),
        ([[1.0], [2.0]], [0.0, 1.0], [0, 1], "reads a single column"),
        ([[1.0], [2.0]], [0.0, 1.0], [1], "must contain only 0, ..., 1"),
    ],
)
def test_bad_input_is_named(loadings, variances, columns, message):
    X = np.array([[0.0, 1.0], [1.0, 2.0]])
    kernel = rk.Coregionalization(loadings, variances, columns=columns)
    with pytest.raises(ValueError, match=message):
        kernel(X)
    with pytest.raises(ValueError, match=message):
        rk.RandomFeatures(kernel, 5).fit(X).transform(X)


def test_bounds_may_be_negative_and_priors_may_not(opposite):
    X, y = opposite
    kernel = rk.Gaussian(1.0, columns=[0]) * rk.Coregionalization(
        [[1.0], [-0.5]], [0.1, 0.1], columns=[1]
    )
    bounds = {"loadings[1, 0]": (-0.7, -0.4), "variances": "fixed"}
    model = rk.GaussianProcessRegressor(kernel, 0.05, None, bounds=bounds).fit(X, y)
    assert -0.7 - 1e-12 <= model.kernel_.k2.loadings[1][0] <= -0.4 + 1e-12
    np.testing.assert_allclose(model.kernel_.k2.variances, [0.1, 0.1])
    with pytest.raises(ValueError, match="priors are log-normal, but"):
        model.set_params(bounds=None, priors={"loadings": (1.0, 1.0)}).fit(X, y)


def test_units_of_targets_and_signs_do_not_matter(opposite):
    X, y = opposite
    values, size = [], 1e4
    for unit in (1.0, size):
        outputs = rk.Coregionalization([[unit], [unit]], [unit, unit], columns=[1])
        model = rk.GaussianProcessRegressor(
            rk.Gaussian(1.0, columns=[0]) * outputs, 0.01, None
        ).fit(X, size * y)
        values.append(model.log_marginal_likelihood_value_)
        W = np.ravel(model.kernel_.k2.loadings)
        assert W[0] * W[1] < 0
    assert values[0] == pytest.approx(values[1], abs=0.05)
