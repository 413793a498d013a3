"""Ridge regression and classification of tensors, where they lie."""

import copy
import pickle
import warnings

import numpy as np
import pytest

import randkern as rk
from _tensors import DEVICES, dispatch, host, no_host_copies, tensor, torch
from randkern.exceptions import IllConditionedWarning, MemoryLimitError
from randkern.solvers import PCG, Outcome, cholesky_for

SOLVERS = {
    "cholesky": {"n_components": 60, "solver": "cholesky"},
    "dual": {"n_components": 301, "solver": "cholesky"},
    "exact": {"n_components": None, "solver": "cholesky"},
    "pcg": {"n_components": 60, "solver": PCG(tol=1e-9)},
}
each_solver = pytest.mark.parametrize("options", SOLVERS.values(), ids=SOLVERS)
each_device = pytest.mark.parametrize("device", DEVICES)


def rows(rng, n=200, d=5):
    X = rng.normal(size=(n, d))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 100.0
    return X, y, rng.uniform(size=n) * (rng.uniform(size=n) > 0.2)


@each_solver
@each_device
@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_regression_equals_that_of_arrays(
    options, device, fit_intercept, weighted, rng
):
    X, y, weight = rows(rng)
    weight = weight if weighted else None
    Y = np.column_stack([y, -3 * y**2])
    kernel = rk.Gaussian("scale") + rk.Linear()
    model = rk.KernelRidgeRegressor(
        kernel, 0.3, **options, fit_intercept=fit_intercept, random_state=0
    )
    for targets in (y, Y):
        expected = copy.deepcopy(model).fit(X, targets, sample_weight=weight)
        given = tensor(X, device)
        with dispatch():
            model.fit(
                given,
                tensor(targets, device),
                None if weight is None else tensor(weight, device),
            )
            got = model.predict(given)
            assert got.device == given.device
            score = model.score(given, tensor(targets, device))
            assert score == pytest.approx(expected.score(X, targets), rel=1e-4)
        np.testing.assert_allclose(host(got), expected.predict(X), rtol=1e-5)
        weights = model.coef_ if model.plan_ else model.dual_coef_
        assert weights.device == given.device
        assert model.solution_.residual < 1e-6


@each_device
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 2.0, 2: 0.5}])
def test_classification_equals_that_of_arrays(device, n_classes, class_weight, rng):
    X, y, weight = rows(rng)
    labels = np.digitize(y, np.quantile(y, [0.3, 0.7][: n_classes - 1])) * 2
    options = {"class_weight": class_weight, "random_state": 0, "n_components": 70}
    expected = rk.KernelRidgeClassifier(**options).fit(X, labels, weight)
    with dispatch():
        given = tensor(X, device), tensor(labels, device), tensor(weight, device)
        model = rk.KernelRidgeClassifier(**options).fit(*given)
        values = host(model.decision_function(given[0]))
        got = model.predict(given[0])
        # scikit-learn takes the accuracy of tensors in float32.
        score = model.score(*given[:2])
        assert score == pytest.approx(np.mean(host(got) == labels), rel=1e-6)
    np.testing.assert_allclose(values, expected.decision_function(X), atol=1e-6)
    assert got.dtype == torch.int64
    assert np.array_equal(host(got), expected.predict(X))


def test_labels_that_are_text(rng):
    X, y, _ = rows(rng)
    labels = np.where(y > np.median(y), "high", "low")
    with dispatch():
        model = rk.KernelRidgeClassifier(random_state=0).fit(tensor(X), labels)
        got = model.predict(tensor(X))
    assert np.mean(got == labels) > 0.9


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_single_precision(dtype, rng):
    X, y, _ = rows(rng, 3000)
    X = X.astype(dtype)
    model = rk.KernelRidgeRegressor(alpha=1e-2, n_components=100, random_state=0)
    expected = copy.deepcopy(model).fit(X, y).predict(X)
    with dispatch():
        got = model.fit(tensor(X), tensor(y)).predict(tensor(X))
    np.testing.assert_allclose(host(got), expected, rtol=1e-4)


def test_partial_fit(rng):
    X, y, _ = rows(rng)
    model = rk.KernelRidgeRegressor(rk.Gaussian(2.0), n_components=50, random_state=0)
    expected = copy.deepcopy(model).fit(X, y).predict(X)
    with dispatch():
        for part in (slice(0, 120), slice(120, 200)):
            model.partial_fit(tensor(X[part]), tensor(y[part]))
        got = model.predict(tensor(X))
    np.testing.assert_allclose(host(got), expected, rtol=1e-8)


# -- the device path --------------------------------------------------------------

#: What a fit copies to the host, and why it is small.
COPIES = {
    "cholesky": set(),
    "dual": set(),
    "exact": set(),
    # (k,) sums of targets; (D, k) blocks in every iteration, the basis (D, rank) once.
    "pcg": {"_of_block", "cross", "product", "leading_eigenpairs"},
}


@pytest.mark.parametrize("name", SOLVERS)
def test_what_a_fit_copies_to_the_host(name, monkeypatch, rng):
    X, y, weight = (tensor(array) for array in rows(rng))
    model = rk.KernelRidgeRegressor(**SOLVERS[name], random_state=0)
    with dispatch(), no_host_copies(monkeypatch) as copied:
        model.fit(X, y, weight)
        assert set(copied) == COPIES[name]
        copied.clear()
        model.predict(X)
        assert copied == []


def test_what_a_classifier_copies_to_the_host(monkeypatch, rng):
    X, y, _ = (tensor(array) for array in rows(rng))
    labels = (y > y.median()).to(torch.int64)
    model = rk.KernelRidgeClassifier(n_components=20, random_state=0)
    with dispatch(), no_host_copies(monkeypatch) as copied:
        got = model.fit(X, labels).predict(X)
    assert copied == []
    assert float((got == labels).double().mean()) > 0.8


# -- the boundary -----------------------------------------------------------------


def test_predictions_are_made_where_the_model_is(rng):
    X, y, _ = rows(rng)
    model = rk.KernelRidgeRegressor(random_state=0).fit(X, y)
    with dispatch():
        with pytest.raises(ValueError, match="fitted on a NumPy array, but got X on a"):
            model.predict(tensor(X))
        model.fit(tensor(X), tensor(y))
        with pytest.raises(ValueError, match="fitted on a tensor on cpu"):
            model.predict(X)
        again = pickle.loads(pickle.dumps(model))
        assert torch.equal(again.predict(tensor(X)), model.predict(tensor(X)))


def test_targets_may_be_arrays(rng):
    X, y, _ = rows(rng)
    with dispatch():
        model = rk.KernelRidgeRegressor(alpha=0.1, fit_intercept=True, random_state=0)
        assert model.fit(tensor(X), y).score(tensor(X), tensor(y)) > 0.9


@pytest.mark.parametrize(
    "options", [{"solver": "sgd"}, {"solver": "pcg", "n_components": None}], ids=str
)
def test_what_takes_no_tensors(options, rng):
    X, y, _ = rows(rng)
    with dispatch(), pytest.raises(ValueError, match="takes no tensors"):
        rk.KernelRidgeRegressor(**options).fit(tensor(X), tensor(y))


@pytest.mark.parametrize(
    "model",
    [rk.KernelRidgeRegressorCV(), rk.KernelRidgeClassifierCV()],
    ids=lambda model: type(model).__name__,
)
def test_models_that_take_no_tensors(model, rng):
    X, y, _ = rows(rng)
    with dispatch(), pytest.raises(TypeError, match=r"takes no tensors; pass NumPy"):
        model.fit(tensor(X), tensor(y) > 100)


def test_blocks_of_tensors(rng):
    X, y, _ = rows(rng)
    blocks = rk.RowBlocks(lambda: iter([(tensor(X), y)]))
    with dispatch(), pytest.raises(TypeError, match="blocks of rows are NumPy arrays"):
        rk.KernelRidgeRegressor().fit(blocks)


@pytest.mark.parametrize(
    "model",
    [
        rk.RandomFeatures(n_components=20, random_state=0),
        rk.KernelRidgeRegressor(n_components=20, random_state=0),
        rk.KernelRidgeClassifier(n_components=20, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_scikit_learn_finds_the_array_api_respected(model):
    checks = pytest.importorskip("sklearn.utils.estimator_checks")
    for dtype in ("float32", "float64"):
        checks.check_array_api_input(
            type(model).__name__, copy.deepcopy(model), "torch", "cpu", dtype
        )


def test_bad_targets(rng):
    X, y, _ = rows(rng)
    with dispatch():
        with pytest.raises(ValueError, match="inconsistent"):
            rk.KernelRidgeRegressor().fit(tensor(X), tensor(y[:-1]))
        with pytest.raises(ValueError, match="at least 2 classes"):
            rk.KernelRidgeClassifier().fit(tensor(X), torch.ones(len(X)))
        y[0] = np.nan
        with pytest.raises(ValueError, match="NaN"):
            rk.KernelRidgeRegressor().fit(tensor(X), tensor(y))
        with pytest.raises(ValueError, match=r"[Nn]egative"):
            rk.KernelRidgeRegressor().fit(
                tensor(X), tensor(X[:, 0]), sample_weight=-torch.ones(len(X))
            )
        with pytest.raises(MemoryLimitError, match="normal equations"):
            rk.KernelRidgeRegressor(
                n_components=20, memory_limit=1000, solver="cholesky"
            ).fit(tensor(X), tensor(X[:, 0]))


# -- the factorisation ------------------------------------------------------------


@pytest.mark.parametrize("spread", [1.0, 1e-6])
def test_cholesky_of_tensors(spread, rng):
    A = rng.normal(size=(30, 30))
    A = A @ np.diag(np.geomspace(1, spread, 30)) @ A.T
    b = rng.normal(size=(30, 2))
    solver = cholesky_for(tensor(A))
    state = solver.init(tensor(np.triu(A)), shift=0.1)
    solution = solver.solve(state, tensor(b))
    expected = np.linalg.solve(A + 0.1 * np.eye(30), b)
    np.testing.assert_allclose(host(solution.value), expected, rtol=1e-8)
    assert solution.outcome is Outcome.SUCCESS


def test_singular_matrices_are_named(rng):
    a = rng.normal(size=(20, 3))
    b = rng.normal(size=(20, 1))
    outcomes = []
    for matrix in (a @ a.T, tensor(a @ a.T)):
        solver = cholesky_for(matrix, first_jitter=2.0**-26)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IllConditionedWarning)
            outcomes.append(solver.init(matrix).outcome)
    assert outcomes == [Outcome.JITTERED, Outcome.JITTERED]
    solver = cholesky_for(tensor(a))
    with pytest.raises(ValueError, match="not finite"):
        solver.init(torch.full((2, 2), torch.inf, dtype=torch.float64))
    with pytest.raises(np.linalg.LinAlgError, match="far from positive definite"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IllConditionedWarning)
            solver.init(-torch.eye(3, dtype=torch.float64))
    with pytest.raises(ValueError, match="the right-hand side 2"):
        state = solver.init(torch.eye(3, dtype=torch.float64))
        solver.solve(state, tensor(b[:2]))
