"""What notebooks show: HTML of kernels and models, figures on axes, the report."""

import re

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris

import randkern as rk

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
pytest.importorskip("pandas")
# Fits of a second are cut short on busy machines, and few features err.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def table():
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    return X[:120], y[:120]


@pytest.fixture(scope="module")
def model(table):
    return rk.TabularRegressor(time_limit=2, random_state=0).fit(*table)


@pytest.fixture
def ax():
    from matplotlib.figure import Figure

    return Figure().subplots()


def test_kernels_are_shown_as_formulas():
    kernel = 2.5 * (rk.Gaussian(2.0) + rk.Linear()) * rk.Optical() + rk.Matern()
    formula = (
        "2.5 · (Gaussian(lengthscale=2) + Linear()) · Optical(degree=2) "
        "+ Matern(nu=1.5, lengthscale=1)"
    )
    for shown in (kernel._repr_html_(), kernel._repr_mimebundle_()["text/html"]):
        assert f"<code>k(x, y) = {formula}</code>" in shown
        assert "sk-top-container" in shown  # scikit-learn's diagram


def test_formulas_shorten_long_parameters():
    kernel = rk.Gaussian(np.linspace(0.5, 3, 20), columns=list(range(20)))
    short = "lengthscale=0.5 to 3 (20 numbers), columns=[0, 1, …, 19]"
    assert f"Gaussian({short})" in kernel._repr_html_()
    kernel = rk.Gaussian(np.array([0.5, 1.23456]), columns=["a", "b"])
    text = "Gaussian(lengthscale=[0.5, 1.235], columns=[&#x27;a&#x27;, &#x27;b&#x27;])"
    assert text in kernel._repr_html_()


def facts_of(model):
    cells = re.findall(r"<td>([^<]*)</td><td><code>([^<]*)<", model._repr_html_())
    return dict(cells)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (
            rk.KernelRidgeRegressorCV(n_components=40),
            {"random features": "40", "penalty α": "alpha_"},
        ),
        (
            rk.GaussianProcessRegressor(n_components=None),
            {"kernel values": "exact", "noise variance": "noise_"},
        ),
        (rk.KernelSVC(features="nystrom", n_components=30), {"landmarks": "30"}),
        (rk.RandomFeatures(n_components=30), {}),
    ],
)
def test_every_fitted_model_with_a_kernel_shows_what_it_has_learned(model, expected):
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = np.sin(X[:, 0]) > 0 if isinstance(model, rk.KernelSVC) else np.sin(X[:, 0])
    assert facts_of(model) == {}
    model.fit(X, y)
    expected = {
        name: f"{getattr(model, text):.4g}" if hasattr(model, text) else text
        for name, text in expected.items()
    }
    kernel = model.kernel_
    text = f"Gaussian(lengthscale={getattr(kernel, 'kernel', kernel).lengthscale:.4g})"
    if hasattr(kernel, "scale"):
        text = f"{kernel.scale:.4g} · {text}"
    assert facts_of(model) == {"kernel": text, **expected}


def test_names_in_html_are_escaped(table):
    X, y = table
    X = X.rename(columns={"bmi": "<b>bmi"})
    shown = rk.TabularRegressor(time_limit=1).fit(X, y)._repr_html_()
    assert "<td>&lt;b&gt;bmi</td>" in shown and "<td><b>" not in shown


def test_fitted_models_of_tables_are_shown_with_their_importances(model):
    shown = model._repr_html_()
    assert "randkern-summary" not in rk.TabularRegressor()._repr_html_()
    assert "Matern(" in shown or "Laplacian(" in shown or "Gaussian(" in shown
    facts = facts_of(model)
    assert facts["rows"] == "fitted to all 120 rows"
    trials = model.leaderboard_
    error = trials["error"][trials["rows"] == trials["rows"].max()].min()
    assert facts["R² of rows left out"] == f"{1 - error**2:.3f}"
    weights = [float(name[-4:]) for name in facts if "weight" in name]
    assert len(model.model_.members) == 1 or sum(weights) == pytest.approx(1, abs=0.02)
    shares = [float(text) / 100 for text in re.findall(r"></span> ([\d.]+)%", shown)]
    expected = np.sort(model.feature_importances_)[::-1][: len(shares)]
    np.testing.assert_allclose(shares, expected, atol=6e-4)


def test_importances_are_in_order(model, ax):
    rk.plots.plot_importances(model, n_columns=4, ax=ax)
    widths = [bar.get_width() for bar in ax.patches]
    np.testing.assert_array_equal(widths, np.sort(model.feature_importances_)[:-5:-1])
    assert ax.xaxis.get_major_formatter()(0.2) == "20%"
    with pytest.raises(AttributeError, match="permutation_importance"):
        rk.plots.plot_importances(rk.KernelRidgeRegressor())
    best = model.feature_names_in_[np.argmax(model.feature_importances_)]
    assert ax.get_yticklabels()[0].get_text() == best


def test_intervals_say_how_many_targets_are_inside(model, table, ax):
    X, y = table
    rk.plots.plot_intervals(model, X, y, coverage=0.5, ax=ax)
    low, high = model.predict_interval(X, coverage=0.5).T
    inside = ((low <= y) & (y <= high)).mean()
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == ["50% interval", "prediction", f"target, {inside:.0%} inside"]


def test_the_report_of_a_fitted_model(model, table, tmp_path):
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    page = rk.report(model, *table, X[120:], y[120:], path=tmp_path / "page.html")
    text = page.read_text(encoding="utf-8")
    squares = (model.predict(X[120:]) - y[120:]) ** 2
    error = np.sqrt(squares.mean())
    deviation = squares.std(ddof=0) / np.sqrt(len(squares)) / (2 * error)
    assert f"{error:.1f} ± {deviation:.1f}" in text
    assert "Predicting target" in text and "could not be drawn" not in text


def test_the_report_of_a_model_that_it_fits(tmp_path):
    X, y = load_iris(return_X_y=True, as_frame=True)
    model = rk.TabularClassifier(time_limit=1, random_state=0)
    path = rk.report(model, X, y, path=tmp_path / "page.html", title="Irises")
    text = path.read_text(encoding="utf-8")
    assert "Irises" in text and "30 rows" in text and not hasattr(model, "model_")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m, X, y: (rk.KernelRidgeRegressor(), X, y), "TabularRegressor"),
        (lambda m, X, y: (m, X.to_numpy(), y), "pandas DataFrame"),
        (lambda m, X, y: (m, X, y, X), "together"),
    ],
)
def test_what_a_report_refuses(model, table, change, message):
    with pytest.raises((TypeError, ValueError), match=message):
        rk.report(*change(model, *table))
