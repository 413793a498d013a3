"""The penalty by leave-one-out, generalised cross-validation and folds."""

import numpy as np
import pytest
import sklearn
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.linear_model import RidgeClassifierCV, RidgeCV
from sklearn.metrics import r2_score
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    ShuffleSplit,
)

import randkern as rk
from _tolerance import assert_close

N, N_TEST = 24, 9
KERNEL = rk.Gaussian(2.0)
ALPHAS = np.array([1e-3, 0.3, 30.0])
MODELS = {
    "regressor": (rk.KernelRidgeRegressorCV, rk.KernelRidgeRegressor),
    "classifier": (rk.KernelRidgeClassifierCV, rk.KernelRidgeClassifier),
}
SYSTEMS = pytest.mark.parametrize(
    "n_components", [11, 41, None], ids=["primal", "dual", "exact"]
)
INTERCEPT = pytest.mark.parametrize(
    "fit_intercept", [False, True], ids=["origin", "intercept"]
)
WEIGHTED = pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weights"])


@pytest.fixture
def data(rng):
    """Rows, two targets, weights (some of them zero), and rows to predict."""
    X = rng.normal(size=(N + N_TEST, 3))
    Y = np.column_stack([np.sin(X[:, 0]) + 4, X[:, 1] * X[:, 2]])
    Y += 0.1 * rng.normal(size=Y.shape)
    weights = rng.uniform(0.2, 3, size=N)
    weights[rng.choice(N, 4, replace=False)] = 0
    return X[:N], Y[:N], weights, X[N:]


class Recorder:
    """A scorer that keeps the predictions it is asked to judge."""

    def __init__(self):
        self.predictions = []

    def __call__(self, estimator, X, y, sample_weight=None):
        self.predictions.append(estimator.predict(X).copy())
        return r2_score(y, self.predictions[-1], sample_weight=sample_weight)


# -- leave-one-out ----------------------------------------------------------------


@pytest.mark.slow
@SYSTEMS
def test_leave_one_out_is_the_loop_of_fits(data, n_components):
    X, Y, w, _ = data
    kept = np.flatnonzero(w)
    options = {"fit_intercept": True, "random_state": 0}
    recorder = Recorder()
    model = rk.KernelRidgeRegressorCV(
        KERNEL, ALPHAS, n_components, scoring=recorder, **options
    ).fit(X, Y, sample_weight=w)
    scores = []
    for alpha, found in zip(ALPHAS, recorder.predictions, strict=True):
        single = rk.KernelRidgeRegressor(KERNEL, alpha, n_components, **options)
        loop = np.empty((len(kept), 2))
        for position, i in enumerate(kept):
            others = np.delete(np.arange(N), i)
            single.fit(X[others], Y[others], sample_weight=w[others])
            loop[position] = single.predict(X[i : i + 1])[0]
        assert_close(found, loop)
        squares = ((loop - Y[kept]) ** 2).mean(axis=1)
        scores.append(-np.average(squares, weights=w[kept]))
    model.set_params(scoring=None).fit(X, Y, sample_weight=w)
    np.testing.assert_allclose(model.cv_results_["mean_test_score"], scores, rtol=1e-7)
    assert model.alpha_ == ALPHAS[np.argmax(scores)]
    assert model.best_score_ == model.cv_results_["mean_test_score"].max()
    ranks = model.cv_results_["rank_test_score"]
    np.testing.assert_array_equal(np.argsort(ranks), np.argsort(scores)[::-1])


@pytest.mark.slow
@pytest.mark.parametrize("n_components", [11, 41], ids=["primal", "dual"])
@INTERCEPT
@WEIGHTED
def test_equals_features_and_ridge_cv(data, n_components, fit_intercept, weighted):
    X, Y, weights, X_test = data
    w = np.maximum(weights, 0.1) if weighted else None
    features = rk.RandomFeatures(KERNEL, n_components, random_state=3).fit(X)
    Z, Z_test = features.transform(X), features.transform(X_test)
    for y in (Y[:, 0], Y):
        for scoring in (None, "r2", "neg_mean_absolute_error"):
            options = {"scoring": scoring, "fit_intercept": fit_intercept}
            oracle = RidgeCV(alphas=ALPHAS, **options).fit(Z, y, sample_weight=w)
            model = rk.KernelRidgeRegressorCV(
                KERNEL, ALPHAS, n_components, random_state=3, **options
            ).fit(X, y, sample_weight=w)
            assert model.alpha_ == oracle.alpha_
            # RidgeCV divides the weighted squares by the number of rows.
            unit = 1 if scoring or w is None else N / w.sum()
            np.testing.assert_allclose(
                model.best_score_, unit * oracle.best_score_, rtol=1e-7
            )
            assert_close(model.coef_, oracle.coef_.reshape(model.coef_.shape))
            assert_close(model.predict(X_test), oracle.predict(Z_test))


@pytest.mark.parametrize("class_weight", [None, {"a": 3.0}], ids=["plain", "weights"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_equals_features_and_ridge_classifier_cv(data, class_weight, n_classes):
    X, Y, _, X_test = data
    y = np.array(["a", "b", "c"])[np.digitize(Y[:, 1], [-0.2, 0.5][: n_classes - 1])]
    for n_components in (11, 41):
        model = rk.KernelRidgeClassifierCV(
            KERNEL, ALPHAS, n_components, class_weight=class_weight, random_state=0
        ).fit(X, y)
        features = rk.RandomFeatures(KERNEL, n_components, random_state=0).fit(X)
        oracle = RidgeClassifierCV(
            ALPHAS, fit_intercept=False, class_weight=class_weight
        ).fit(features.transform(X), y)
        assert model.alpha_ == oracle.alpha_
        assert_close(
            model.decision_function(X_test),
            oracle.decision_function(features.transform(X_test)),
        )
        np.testing.assert_array_equal(
            model.predict(X_test), oracle.predict(features.transform(X_test))
        )


def test_a_penalty_near_zero_is_scored(data):
    """Interpolation: residuals and 1 − H_ii both vanish, their ratio does not."""
    X, Y, weights, _ = data
    for n_components in (41, None):
        for fit_intercept in (False, True):
            recorder = Recorder()
            rk.KernelRidgeRegressorCV(
                rk.Laplacian(3.0),
                [1e-8],
                n_components,
                scoring=recorder,
                fit_intercept=fit_intercept,
                random_state=0,
            ).fit(X, Y[:, 0])
            single = rk.KernelRidgeRegressor(
                rk.Laplacian(3.0),
                1e-8,
                n_components,
                fit_intercept=fit_intercept,
                random_state=0,
            )
            loop = [
                single.fit(np.delete(X, i, 0), np.delete(Y[:, 0], i)).predict(
                    X[i : i + 1]
                )[0]
                for i in range(0, N, 6)
            ]
            assert_close(recorder.predictions[0][::6], loop, 1e-5)


# -- generalised cross-validation -------------------------------------------------


@SYSTEMS
@INTERCEPT
def test_generalised_score_from_the_hat_matrix(data, n_components, fit_intercept):
    X, Y, w, _ = data
    model = rk.KernelRidgeRegressorCV(
        KERNEL,
        ALPHAS,
        n_components,
        cv="gcv",
        fit_intercept=fit_intercept,
        random_state=0,
    ).fit(X, Y, sample_weight=w)
    kept = np.flatnonzero(w)
    n = len(kept)
    single = rk.KernelRidgeRegressor(
        KERNEL, 1.0, n_components, fit_intercept=fit_intercept, random_state=0
    )
    for alpha, score in zip(ALPHAS, model.cv_results_["mean_test_score"], strict=True):
        single.set_params(alpha=alpha).fit(X[kept], np.eye(n), sample_weight=w[kept])
        hat = single.predict(X[kept])  # predictions are linear in the targets
        squares = np.average(
            ((Y[kept] - hat @ Y[kept]) ** 2).mean(axis=1), weights=w[kept]
        )
        np.testing.assert_allclose(
            score, -squares / (1 - np.trace(hat) / n) ** 2, rtol=1e-6
        )


# -- folds ------------------------------------------------------------------------

FIXED = [(np.arange(16), np.arange(16, 22)), (np.arange(9, 24), np.arange(5))]
CV = {"int": 4, "mostly tested": ShuffleSplit(2, test_size=0.7, random_state=0)}


@pytest.mark.slow
@pytest.mark.parametrize("cv", [*CV.values(), FIXED], ids=[*CV, "fixed"])
@SYSTEMS
def test_folds_equal_grid_search(data, cv, n_components):
    X, Y, _, X_test = data
    # Stratified folds are those of an int, which only the classifier makes.
    for name in MODELS if cv == 4 else ("regressor",):
        chooses, fixed = MODELS[name]
        y = Y[:, 0] if name == "regressor" else np.digitize(Y[:, 1], [-0.2, 0.5])
        options = {
            "n_components": n_components,
            "fit_intercept": True,
            "random_state": 0,
        }
        search = GridSearchCV(fixed(KERNEL, **options), {"alpha": ALPHAS}, cv=cv)
        search.fit(X, y)
        model = chooses(KERNEL, ALPHAS, cv=cv, **options).fit(X, y)
        assert model.alpha_ == search.best_params_["alpha"]
        np.testing.assert_allclose(model.best_score_, search.best_score_, rtol=1e-7)
        found = set(model.cv_results_)
        assert found == {key for key in search.cv_results_ if "score" in key} - {
            key for key in search.cv_results_ if "time" in key
        } | {"param_alpha"}
        for key in found - {"rank_test_score"}:
            np.testing.assert_allclose(
                np.asarray(model.cv_results_[key], dtype=float),
                np.asarray(search.cv_results_[key], dtype=float),
                atol=1e-7,
                err_msg=key,
            )
        if name == "regressor":
            assert_close(model.predict(X_test), search.predict(X_test))
        else:
            expected = search.decision_function(X_test)
            assert_close(model.decision_function(X_test), expected)


@SYSTEMS
def test_weighted_folds_by_hand(data, n_components):
    X, Y, weights, _ = data
    cv = KFold(3, shuffle=True, random_state=1)
    model = rk.KernelRidgeRegressorCV(
        KERNEL, ALPHAS, n_components, cv=cv, fit_intercept=True, random_state=0
    ).fit(X, Y, sample_weight=weights)
    for a, alpha in enumerate(ALPHAS):
        single = rk.KernelRidgeRegressor(
            KERNEL, alpha, n_components, fit_intercept=True, random_state=0
        )
        for position, (train, test) in enumerate(cv.split(X)):
            single.fit(X[train], Y[train], sample_weight=weights[train])
            expected = r2_score(
                Y[test], single.predict(X[test]), sample_weight=weights[test]
            )
            found = model.cv_results_[f"split{position}_test_score"][a]
            np.testing.assert_allclose(found, expected, rtol=1e-7)


# -- the fitted model -------------------------------------------------------------


@pytest.mark.parametrize(("n", "dtype"), [(30, np.float32), (90, np.float64)])
@pytest.mark.parametrize("n_components", [60, None], ids=["features", "exact"])
def test_rounding_errors_are_not_amplified_at_tiny_penalties(
    n_components, n, dtype, rng
):
    """The fit approaches that of least norm.

    Where the eigenvalues of a Gram matrix are zero, it has some of either sign of 10⁻⁸
    (float32) or 10⁻¹⁶ of the largest one.
    """
    X = (rng.standard_normal((n, 60)) + 3).astype(dtype)
    X_new = (rng.standard_normal((20, 60)) + 3).astype(dtype)
    y = rng.standard_normal(n)
    scale = float(np.linalg.norm(X)) ** 2
    mean = X.mean(axis=0, dtype=float)
    least = np.linalg.lstsq(X - mean, y - y.mean(), rcond=1e-6)[0]
    expected = (X_new - mean) @ least + y.mean()
    for share in (1e-20, 1e-14, 1e-10):
        model = rk.KernelRidgeRegressorCV(
            rk.Linear(), [scale * share], n_components, cv="gcv", fit_intercept=True
        ).fit(X, y)
        apart = np.abs(model.predict(X_new) - expected).max()
        assert apart < 0.15 * np.abs(expected).max()


@pytest.mark.slow
@settings(max_examples=12)
@given(st.integers(-98, 98), st.sampled_from([11, 41, None]), st.booleans())
def test_only_the_ratio_of_weights_and_penalty_counts(power, n_components, gcv):
    rng = np.random.default_rng(0)
    X, y, w = rng.normal(size=(30, 2)), rng.normal(size=30), rng.uniform(1, 2, 30)
    cv = "gcv" if gcv else None
    model = rk.KernelRidgeRegressorCV(
        KERNEL, ALPHAS, n_components, cv=cv, fit_intercept=True, random_state=0
    )
    expected = model.fit(X, y, sample_weight=w).cv_results_["mean_test_score"]
    best = model.alpha_
    factor = 2.0**power
    model.set_params(alphas=ALPHAS * factor).fit(X, y, sample_weight=w * factor)
    np.testing.assert_allclose(model.cv_results_["mean_test_score"], expected)
    assert model.alpha_ == best * factor


@pytest.mark.slow
@pytest.mark.parametrize(("cv", "n_components"), [(None, 11), (None, None), (3, 41)])
def test_the_default_kernel_is_that_of_the_best_lengthscale(data, n_components, cv):
    X, Y, weights, X_test = data
    options = {"alphas": ALPHAS, "n_components": n_components, "cv": cv}
    options |= {"random_state": 3, "fit_intercept": True}
    y = np.sin(6 * X[:, 0])  # which a quarter of the scale follows best
    model = rk.KernelRidgeRegressorCV(**options).fit(X, y, sample_weight=weights)
    scale = rk.Gaussian("scale").resolve(X, weights).lengthscale
    table = model.cv_results_
    found = []
    for position, factor in enumerate((1.0, 0.5, 2.0, 0.25, 4.0)):
        single = rk.KernelRidgeRegressorCV(rk.Gaussian(factor * scale), **options)
        single.fit(X, y, sample_weight=weights)
        found.append(single)
        part = slice(3 * position, 3 * position + 3)
        np.testing.assert_allclose(table["param_lengthscale"][part], factor * scale)
        np.testing.assert_array_equal(table["param_alpha"][part], ALPHAS)
        expected = single.cv_results_["mean_test_score"]
        np.testing.assert_allclose(table["mean_test_score"][part], expected)
    best = max(found, key=lambda single: single.best_score_)
    assert model.best_score_ == pytest.approx(best.best_score_)
    assert model.kernel_.lengthscale == pytest.approx(best.kernel_.lengthscale)
    assert model.alpha_ == best.alpha_
    assert_close(model.predict(X_test), best.predict(X_test))
    fixed = rk.KernelRidgeRegressorCV(rk.Gaussian("scale"), **options)
    fixed.fit(X, y, sample_weight=weights)
    assert fixed.kernel_.lengthscale == scale
    assert "param_lengthscale" not in fixed.cv_results_


def test_equal_scores_keep_the_first_penalty(data):
    X, _, _, _ = data
    model = rk.KernelRidgeRegressorCV(KERNEL, [3.0, 1.0, 2.0], 11)
    assert model.fit(X, np.zeros(N)).alpha_ == 3.0
    assert list(model.cv_results_["rank_test_score"]) == [1, 1, 1]


# -- what is refused --------------------------------------------------------------


@pytest.mark.parametrize(
    "alphas",
    [[], [1.0, -1.0], [np.nan], [[1.0, 2.0]], 0, "many"],
    ids=repr,
)
def test_bad_penalties(data, alphas):
    X, Y, _, _ = data
    with pytest.raises(ValueError, match="alphas"):
        rk.KernelRidgeRegressorCV(KERNEL, alphas, 11).fit(X, Y)


def test_bad_arguments(data):
    X, Y, _, _ = data
    model = rk.KernelRidgeRegressorCV(KERNEL, n_components=11)
    with pytest.raises(ValueError, match="cv='gcv' does not support scoring"):
        clone(model).set_params(cv="gcv", scoring="r2").fit(X, Y)
    with pytest.raises(ValueError, match="cv"):
        clone(model).set_params(cv="loo").fit(X, Y)
    with pytest.raises(ValueError, match="scoring"):
        clone(model).set_params(scoring="best").fit(X, Y)
    with pytest.raises(ValueError, match="n_samples = 1"):
        model.fit(X[:1], Y[:1])
    with pytest.raises(ValueError, match="n_samples = 1"):
        model.fit(X, Y, sample_weight=np.eye(N)[0])
    with pytest.raises(ValueError, match="no training rows of positive weight"):
        clone(model).set_params(cv=2).fit(
            X, Y, sample_weight=np.repeat([1.0, 0.0], N // 2)
        )
    with pytest.raises(ValueError, match="overflow"):
        rk.KernelRidgeRegressorCV(rk.Linear(), n_components=3).fit(
            np.full((N, 3), 5e18, dtype=np.float32), Y
        )


def test_blocks_of_rows_are_refused(data):
    X, Y, _, _ = data
    blocks = rk.RowBlocks.from_arrays(X, Y)
    with pytest.raises(ValueError, match="needs all rows in memory"):
        rk.KernelRidgeRegressorCV(KERNEL, n_components=11).fit(blocks)


@pytest.mark.parametrize("cv", [GroupKFold(3), LeaveOneGroupOut()])
def test_groups_are_routed_to_the_splitter(cv, rng):
    """As the same splits, and as in a search that routes them on."""
    X, y = rng.normal(size=(30, 3)), rng.normal(size=30)
    groups = np.arange(30) % 6
    model = rk.KernelRidgeRegressorCV(KERNEL, ALPHAS, 11, cv=cv, random_state=0)
    splits = list(cv.split(X, y, groups))
    expected = clone(model).set_params(cv=splits).fit(X, y)
    with pytest.raises(ValueError, match="groups only by metadata routing"):
        clone(model).fit(X, y, groups=groups)
    with sklearn.config_context(enable_metadata_routing=True):
        found = clone(model).fit(X, y, groups=groups)
        search = GridSearchCV(model, {"fit_intercept": [True, False]}, cv=cv)
        search.fit(X, y, groups=groups)
        with pytest.raises(TypeError, match="shoe"):
            clone(model).fit(X, y, shoe=groups)
    for name, scores in expected.cv_results_.items():
        np.testing.assert_array_equal(found.cv_results_[name], scores)
    assert found.alpha_ == expected.alpha_
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
