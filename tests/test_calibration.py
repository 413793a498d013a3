"""Probabilities and intervals from rows that are left out of a fit."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, softmax
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold

import randkern as rk
from randkern.models.calibration import calibrate, conformal_quantile, temperature_of

SYSTEMS = pytest.mark.parametrize(
    "n_components", [11, 61, None], ids=["primal", "dual", "exact"]
)
KERNEL = rk.Gaussian(2.0)
MODELS = [rk.KernelRidgeRegressor, rk.KernelRidgeRegressorCV]


def data(rng, n=30, classes=0):
    X = rng.normal(size=(n, 3))
    values = np.sin(X[:, 0]) + 4 + 0.3 * rng.normal(size=n)
    if classes:
        cuts = np.quantile(values, np.arange(1, classes) / classes)
        return X, np.digitize(values, cuts)
    return X, values


def without_each(model, X, y, w, rows):
    """Return what fits without a row each predict for it."""
    made = []
    for i in rows:
        others = np.delete(np.arange(len(X)), i)
        fit = clone(model).fit(X[others], y[others], sample_weight=w[others])
        predict = getattr(fit, "decision_function", fit.predict)
        made.append(predict(X[i : i + 1])[0])
    return np.array(made)


def plain(model, fitted):
    """Return the model without a search."""
    if not hasattr(fitted, "alpha_"):
        return model
    known = model.get_params(deep=False)
    shared = {k: known[k] for k in ("n_components", "fit_intercept", "random_state")}
    name = type(model).__name__.removesuffix("CV")
    return getattr(rk, name)(fitted.kernel_, fitted.alpha_, **shared)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_components", "classes", "search"),
    [(11, 2, False), (61, 3, True), (None, 3, False)],
)
def test_temperature_is_the_best_for_decisions_left_out(
    rng, n_components, classes, search
):
    X, y = data(rng, 60, classes)
    w = rng.uniform(0.5, 2, size=60)
    name = "KernelRidgeClassifier" + "CV" * search
    model = getattr(rk, name)(KERNEL, 0.1, n_components, random_state=0)
    fitted = clone(model).fit(X, y, sample_weight=w)
    decisions = without_each(plain(model, fitted), X, y, w, range(60))
    logits = decisions if classes == 3 else np.stack([0 * decisions, decisions], 1)
    n_effective = w.sum() ** 2 / (w**2).sum()

    def loss(x):
        """Of the logarithm of the temperature, and of all offsets but the first."""
        offsets = np.concatenate([[0.0], x[1:]])
        P = np.log(softmax(logits / np.exp(x[0]) + offsets, axis=1))
        target = np.full((60, classes), 1 / classes) / (n_effective + 1)
        target[np.arange(60), y] += n_effective / (n_effective + 1)
        return -np.average((P * target).sum(axis=1), weights=w)

    free = classes if np.any(fitted.calibration_offset_) else 1
    best = np.zeros(classes)
    best[:free] = minimize(
        lambda x: loss(np.append(x, np.zeros(classes - free))), best[:free], tol=1e-12
    ).x
    assert np.log(fitted.temperature_) == pytest.approx(best[0], abs=1e-3)
    offsets = fitted.calibration_offset_
    offsets = offsets[1:] - offsets[0] if classes == 3 else [offsets]
    np.testing.assert_allclose(offsets, best[1:], atol=2e-3)
    P = fitted.predict_proba(X)
    values = fitted.decision_function(X) / fitted.temperature_
    values = values + fitted.calibration_offset_
    if classes == 2:
        np.testing.assert_allclose(P[:, 1], expit(values))
    else:
        np.testing.assert_allclose(P, softmax(values, axis=1))
    np.testing.assert_allclose(P.sum(axis=1), 1.0)
    np.testing.assert_allclose(np.log(P), fitted.predict_log_proba(X), atol=1e-9)


@pytest.mark.slow
def test_probabilities_are_calibrated_on_new_rows():
    """Within 10 % of the log loss of scikit-learn's calibration in folds."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(3000, 2))
    chance = expit(3 * np.sin(2 * X[:, 0]))
    y = (rng.random(3000) < chance).astype(int)
    model = rk.KernelRidgeClassifier(alpha=1e-3, n_components=200, random_state=0)
    P = clone(model).fit(X[:1000], y[:1000]).predict_proba(X[1000:])
    oracle = CalibratedClassifierCV(model, ensemble=False).fit(X[:1000], y[:1000])
    expected = log_loss(y[1000:], oracle.predict_proba(X[1000:]))
    assert log_loss(y[1000:], P) < 1.1 * expected


def test_rows_that_are_all_separated_leave_a_doubt():
    logits = np.repeat([[0.0, -1.0], [0.0, 1.0]], 10, axis=0)
    of_class = np.repeat([[True, False], [False, True]], 10, axis=0)
    temperature = temperature_of(logits, of_class)
    assert 0.5 / 22 < expit(-1 / temperature) < 2 / 22
    assert temperature_of(logits, of_class, np.zeros(20)) == 1.0


@pytest.mark.slow
@SYSTEMS
def test_intervals_cover(n_components):
    """2,000 new rows: 5 standard errors, and that of a quantile of 500 residuals."""
    rng = np.random.default_rng(4)
    X = rng.uniform(-2, 2, size=(2600, 2))
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=2600)
    n_components = 700 if n_components == 61 else n_components
    model = rk.KernelRidgeRegressor(rk.Gaussian(1.0), 0.1, n_components)
    model.set_params(random_state=0)
    intervals = model.fit(X[:600], y[:600]).predict_interval(X[600:], 0.9)
    assert intervals.shape == (2000, 2)
    np.testing.assert_allclose(intervals.mean(axis=1), model.predict(X[600:]))
    covered = ((intervals[:, 0] <= y[600:]) & (y[600:] <= intervals[:, 1])).mean()
    assert abs(covered - 0.9) < 5 * np.sqrt(0.09 / 2000 + 0.09 / 500)


@SYSTEMS
@pytest.mark.parametrize("cls", MODELS)
@pytest.mark.parametrize("alpha", [0.1, 1e-9])
def test_widths_are_those_of_fits_without_a_row(rng, n_components, cls, alpha):
    """Rows of weight 0 are no rows; an interval is as wide as 13 of 25 errors are."""
    X, y = data(rng)
    w = np.repeat([0.0, 1.0], [5, 25])
    options = {"n_components": n_components, "fit_intercept": cls is MODELS[0]}
    options |= {"random_state": 0}
    if cls is MODELS[0]:
        options["alpha"] = alpha
    model = cls(rk.Laplacian(1.0), **options)
    fitted = clone(model).fit(X, y, sample_weight=w)
    errors = abs(y - without_each(plain(model, fitted), X, y, w, range(30)))[5:]
    low, high = fitted.predict_interval(X[:1], coverage=0.5)[0]
    assert (high - low) / 2 == pytest.approx(np.sort(errors)[12], rel=1e-5)


def test_several_targets_have_widths_of_their_own(rng):
    X, y = data(rng)
    Y = np.stack([y, 100 * y], axis=1)
    model = rk.KernelRidgeRegressor(KERNEL, 0.1, 11, random_state=0).fit(X, Y)
    widths = np.ptp(model.predict_interval(X, 0.8), axis=2)
    np.testing.assert_allclose(widths[:, 1], 100 * widths[:, 0])
    assert np.isinf(model.predict_interval(X, 0.99)).all()
    with pytest.raises(ValueError, match="coverage must be .* got 90"):
        model.predict_interval(X, 90)


def test_models_of_batches_say_why_they_are_not_calibrated(rng):
    X, y = data(rng, 60, 2)
    fit = rk.KernelRidgeClassifier(n_components=11).fit(X, y)
    fit.partial_fit(X, y, [0, 1])
    for method in (fit.predict_proba, fit.predict_log_proba):
        with pytest.raises(NotFittedError, match=r"batches, by partial_fit.*`fit` on"):
            method(X)
    regressor = rk.KernelRidgeRegressor(n_components=11).partial_fit(X, y)
    with pytest.raises(NotFittedError, match=r"batches, by partial_fit.*`fit` on"):
        regressor.predict_interval(X)


@pytest.mark.parametrize("solver", ["cholesky", "pcg"])
def test_streams_leave_out_the_rows_that_arrays_do(rng, solver):
    """Where many rows have no weight, too."""
    X, y = data(rng, 2000, 2)
    w = rng.uniform(1, 2, 2000) * (rng.uniform(size=2000) < 0.4)
    model = rk.KernelRidgeClassifier(KERNEL, 0.1, 21, solver=solver, random_state=0)
    of_arrays = clone(model).fit(X, y, sample_weight=w)
    parts = np.arange(2000).reshape(4, 500)
    blocks = rk.RowBlocks([(X[part], y[part], w[part]) for part in parts])
    of_blocks = clone(model).fit(blocks)
    for name in ("temperature_", "calibration_offset_"):
        expected = getattr(of_arrays, name)
        np.testing.assert_allclose(getattr(of_blocks, name), expected, rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["cholesky", "pcg"])
def test_only_ratios_of_weights_matter(solver):
    """Equal weights, and a penalty in proportion, change nothing."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(1300, 3))
    y = np.sin(2 * X[:, 0]) + 0.5 * rng.normal(size=1300)
    new, covered, losses = slice(300, None), [], []
    for w in (1, 2.0001, 100):
        options = {"alpha": 0.1 * w, "n_components": 200, "solver": solver}
        options |= {"random_state": 0}
        weight = np.full(300, float(w))
        model = rk.KernelRidgeRegressor(rk.Gaussian(1.0), **options)
        ends = model.fit(X[:300], y[:300], weight).predict_interval(X[new])
        covered.append(np.mean((ends[:, 0] <= y[new]) & (y[new] <= ends[:, 1])))
        model = rk.KernelRidgeClassifier(rk.Gaussian(1.0), **options)
        P = model.fit(X[:300], y[:300] > 0, weight).predict_proba(X[new])
        losses.append(log_loss(y[new] > 0, P))
    np.testing.assert_allclose(covered, covered[0], atol=0.002)
    np.testing.assert_allclose(losses, losses[0], rtol=0.002)
    assert abs(covered[0] - 0.9) < 5 * np.sqrt(0.09 / 1000 + 0.09 / 300)


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["cholesky", "pcg"])
@pytest.mark.parametrize("n_components", [50, None])
def test_rows_of_negligible_weight_do_not_widen_intervals(solver, n_components):
    """A third of the rows has 20 times the noise, and the weight 1e-6."""
    rng = np.random.default_rng(7)
    X = rng.uniform(-2, 2, size=(3600, 2))
    noise = np.where(np.arange(3600) % 3 == 0, 6.0, 0.3)
    y = np.sin(2 * X[:, 0]) + noise * rng.normal(size=3600)
    weight = np.where(noise > 1, 1e-6, 1.0)
    model = rk.KernelRidgeRegressor(
        rk.Gaussian(1.0), 0.1, n_components=n_components, solver=solver, random_state=0
    )
    model.fit(X[:1200], y[:1200], weight[:1200])
    new = (np.arange(3600) >= 1200) & (noise < 1)
    ends = model.predict_interval(X[new])
    covered = np.mean((ends[:, 0] <= y[new]) & (y[new] <= ends[:, 1]))
    assert abs(covered - 0.9) < 5 * np.sqrt(0.09 / 1600 + 0.09 / 500)


def test_calibration_of_weights_and_of_nothing():
    rng = np.random.default_rng(9)
    logits = rng.normal(size=(300, 3))
    of_class = np.eye(3, dtype=bool)[rng.choice(3, 300, p=[0.6, 0.3, 0.1])]
    weight = rng.uniform(size=300)
    temperature, offset = calibrate(logits, of_class, weight)
    P = softmax(logits / temperature + offset, axis=1)
    n = weight.sum() ** 2 / (weight**2).sum()
    shares = np.average(of_class, axis=0, weights=weight)
    smoothed = (n * shares + 1 / 3) / (n + 1)
    np.testing.assert_allclose(np.average(P, axis=0, weights=weight), smoothed, 1e-5)
    scaled = calibrate(logits, of_class, 1e200 * weight)
    np.testing.assert_allclose(scaled[0], temperature, rtol=1e-6)
    assert calibrate(logits, of_class, np.zeros(300))[0] == 1.0
    assert calibrate(logits[:0, :1], of_class[:0, :1]) == (1.0, 0.0)


@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_of_support_vector_machines(rng, classes):
    X, y = data(rng, 60, classes)
    w = rng.uniform(0.5, 2, size=60)
    model = rk.KernelSVC(KERNEL, 1.0, 20, random_state=0)
    assert not hasattr(model, "predict_proba")
    assert hasattr(clone(model).set_params(probability=True), "predict_proba")
    plain = clone(model).fit(X, y, sample_weight=w)
    with pytest.raises(AttributeError) as caught:
        plain.predict_proba(X)
    assert "probability=True" in str(caught.value.__cause__)
    fit = clone(model).set_params(probability=True).fit(X, y, sample_weight=w)
    np.testing.assert_array_equal(fit.coef_, plain.coef_)
    decisions = np.zeros((60, classes) if classes > 2 else 60)
    for train, held in StratifiedKFold(5).split(X, y):
        fold = clone(model).fit(X[train], y[train], sample_weight=w[train])
        decisions[held] = fold.decision_function(X[held])
    if classes == 2:
        decisions = np.stack([0 * decisions, decisions], axis=1)
    of_class = y[:, None] == np.arange(classes)
    expected = temperature_of(decisions, of_class, w)
    assert fit.temperature_ == pytest.approx(expected, rel=1e-3)
    P = fit.predict_proba(X)
    np.testing.assert_array_equal(P.argmax(axis=1), fit.predict(X))
    with pytest.raises(ValueError, match="rows of each class, got a class with 1"):
        clone(fit).fit(X, np.arange(60) == 3)
    with pytest.raises(ValueError, match="arrays in memory, got RowBlocks"):
        clone(fit).fit(rk.RowBlocks.from_arrays(X, y))


def test_quantiles_count_weights():
    """A weighted quantile is that of repeated values, up to the size of the sample."""
    rng = np.random.default_rng(5)
    sizes, weight = abs(rng.normal(size=(400, 2))), rng.integers(1, 5, size=400)
    for coverage in (0.5, 0.8, 0.9):
        found = conformal_quantile(sizes, coverage, weight.astype(float))
        # As if the new row had the weight of a typical row, as often as it counts.
        total, new = weight.sum(), (weight**2).sum() / weight.sum()
        expected = np.quantile(
            np.repeat(sizes, weight, axis=0),
            coverage * (1 + new / total),
            axis=0,
            method="inverted_cdf",
        )
        np.testing.assert_array_equal(found, expected)
        for factor in (1e-200, 1 / 3, 1e200):
            scaled = conformal_quantile(sizes, coverage, factor * weight)
            np.testing.assert_array_equal(scaled, found)
    same = conformal_quantile(sizes, 0.9, np.full(400, 0.1))
    np.testing.assert_array_equal(same, conformal_quantile(sizes, 0.9))
    assert np.isinf(conformal_quantile(sizes, 0.9, np.zeros(400))).all()


def test_offsets_are_zero_where_they_change_nothing():
    """The most probable class is then the predicted one, as scikit-learn checks."""
    rng = np.random.default_rng(0)
    half = rng.normal(size=(200, 1))
    positive = rng.random((200, 1)) < expit(2 * half)
    logits, of_class = np.vstack([half, -half]), np.vstack([positive, ~positive])
    assert calibrate(logits, of_class)[1] == 0.0
    assert abs(calibrate(logits - 1.5, of_class)[1]) > 0.5


@pytest.mark.parametrize("n_components", [20, 200, None])
def test_weights_count_copies(n_components):
    """Copies are left out together: a row of weight w is w rows."""
    rng = np.random.default_rng(1)
    X, y = data(rng, 80, 2)
    weight = rng.integers(0, 4, size=80)
    model = rk.KernelRidgeClassifier(KERNEL, 0.1, n_components, random_state=0)
    weighted = clone(model).fit(X, y, sample_weight=weight)
    repeated = clone(model).fit(np.repeat(X, weight, axis=0), np.repeat(y, weight))
    np.testing.assert_allclose(
        weighted.predict_proba(X), repeated.predict_proba(X), rtol=1e-5
    )


def test_one_class_with_logits_of_very_different_sizes():
    """Steps of Newton's method are refused where the Hessian has vanished."""
    rng = np.random.default_rng(0)
    of_class = np.eye(5, dtype=bool)[np.zeros(32, dtype=int)]
    smoothed = np.where(of_class, 1 - 4 / 5 / 33, 1 / 5 / 33)
    for _ in range(40):
        logits = rng.normal(size=(32, 5)) * 10.0 ** rng.integers(-4, 5, size=(32, 1))
        temperature, offset = calibrate(logits, of_class)
        log_probabilities = log_softmax(logits / temperature + offset, axis=1)
        highest = np.exp(7) * np.median(abs(logits[:, -1]))
        at_highest = log_softmax(logits / highest, axis=1)
        assert -(smoothed * log_probabilities).sum() < -(smoothed * at_highest).sum()
