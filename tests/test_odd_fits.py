"""Fits of models to rows, weights and penalties of any size: an answer or a name.

Each fit is drawn from its number, so that one that fails can be repeated alone.
"""

import signal
import warnings

import numpy as np
import pytest
from sklearn.base import is_classifier

import randkern as rk
from _answers import NAMED_ERRORS, is_raised

pytestmark = pytest.mark.skipif(
    not hasattr(signal, "setitimer"), reason="signals are those of POSIX"
)
PARTS, FITS_PER_PART = 15, 100
SECONDS = 10  # of processor time, for at most 40 rows


def draw(number):
    """Return a model, and the arguments of a fit."""
    rng = np.random.default_rng(number)
    n, d = int(rng.integers(4, 41)), int(rng.integers(1, 5))
    X = rng.normal(size=(n, d))
    y = rng.integers(0, rng.integers(2, 5), size=n)
    X[:, 0] += y
    kind = rng.integers(4)
    if kind == 1:
        X *= 10.0 ** rng.uniform(-150, 150)
    elif kind == 2:
        X *= 10.0 ** rng.uniform(-150, 150, size=d)
    elif kind == 3:
        X[rng.integers(n)] *= 10.0 ** rng.uniform(-150, 150)
    if rng.random() < 0.3:
        with np.errstate(over="ignore"):
            X = X.astype(np.float32)
    weight = None
    if rng.random() < 0.7:
        weight = 10.0 ** rng.uniform(-200, 200, size=n if rng.random() < 0.6 else 1)
        weight = weight * rng.choice([1.0, 1.0, 0.0], size=n)
    features = {
        "n_components": [None, 1, 12, 60][rng.integers(4)],
        "features": ["random", "nystrom"][rng.integers(2)],
        "random_state": 0,
    }
    kernel = [None, rk.Gaussian(), rk.Polynomial(2), rk.Optical(), rk.Matern()]
    features["kernel"] = kernel[rng.integers(len(kernel))]
    size = 10.0 ** rng.uniform(-12, 12)
    solver = ["auto", "cholesky", "pcg"][rng.integers(3)]
    has_intercept = bool(rng.integers(2))
    model = [
        lambda: rk.KernelRidgeClassifier(alpha=size, solver=solver, **features),
        lambda: rk.KernelRidgeClassifierCV(fit_intercept=has_intercept, **features),
        lambda: rk.KernelRidgeRegressor(
            alpha=size, solver=solver, fit_intercept=has_intercept, **features
        ),
        lambda: rk.KernelSVC(C=size, fit_intercept=has_intercept, **features),
        lambda: rk.KernelLogistic(C=size, fit_intercept=has_intercept, **features),
        lambda: rk.GaussianProcessClassifier(**features),
    ][rng.integers(6)]()
    return model, ((X, y) if weight is None else (X, y, weight))


class TookTooLong(BaseException):
    """Raised by the timer; no handler of errors in the library catches it."""


def stop(*_):
    raise TookTooLong


def failure_of(number):
    """Return what is wrong with a fit, or nothing."""
    model, arguments = draw(number)
    previous = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        predicted = model.fit(*arguments).predict(arguments[0])
    except TookTooLong:
        return f"took more than {SECONDS} s of processor time"
    except NAMED_ERRORS as error:
        return "" if is_raised(error) else repr(error)
    except Exception as error:
        return repr(error)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, previous)
    if not is_classifier(model):
        return "" if np.isfinite(predicted).all() else "not finite"
    return "" if np.isin(predicted, arguments[1]).all() else "unknown classes"


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(PARTS))
def test_a_fit_of_any_size_answers_or_says_why(part):
    failures = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number in range(FITS_PER_PART * part, FITS_PER_PART * (part + 1)):
            if failure := failure_of(number):
                failures[number] = f"{draw(number)[0]}: {failure}"
    assert not failures, failures
