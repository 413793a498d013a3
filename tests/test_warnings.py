"""Warnings name the line of the user's call, however deep the library issues them."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import randkern as rk
from randkern._warnings import ignoring, warn


def line_of(call, category=UserWarning):
    """Return the file of the only warning of a call."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    files = {warning.filename for warning in caught if warning.category is category}
    assert len(files) == 1
    return files.pop()


def test_the_line_is_that_of_the_caller():
    assert line_of(lambda: warn("a", UserWarning)) == __file__


def test_ignored_categories():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ignoring(ConvergenceWarning):
            warn("a", ConvergenceWarning)
            with pytest.raises(UserWarning), ignoring(RuntimeWarning):
                warn("a", UserWarning)
    with pytest.warns(ConvergenceWarning):
        warn("a", ConvergenceWarning)


FITS = {
    "svc": lambda X, y: rk.KernelSVC(max_iter=1, n_components=20, C=1e6).fit(X, y > 0),
    "svr": lambda X, y: rk.KernelSVR(
        max_iter=1, n_components=2000, C=1e6, memory_limit="12MB"
    ).fit(X, y),
    "logistic": lambda X, y: rk.KernelLogistic(max_iter=1, C=1e6).fit(X, y > 0),
    "pcg": lambda X, y: rk.KernelRidgeRegressor(
        alpha=1e-9, n_components=50, solver=rk.solvers.PCG(max_iter=1, tol=1e-9)
    ).fit(X, y),
    "pipeline": lambda X, y: make_pipeline(
        StandardScaler(), rk.KernelLogistic(max_iter=1, C=1e6, n_components=20)
    ).fit(X, y > 0),
    "folds": lambda X, y: cross_val_score(
        rk.KernelLogistic(max_iter=1, C=1e6, n_components=20), X, y > 0
    ),
}


@pytest.mark.parametrize("fit", FITS.values(), ids=FITS)
def test_fits_name_the_line_of_their_call(fit, rng):
    X = rng.normal(size=(200, 3))
    y = np.sin(3 * X[:, 0]) + 0.3 * rng.normal(size=200)
    assert line_of(lambda: fit(X, y), ConvergenceWarning) == __file__
