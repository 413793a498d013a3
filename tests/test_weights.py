"""A row of weight three is three rows, and one of weight zero is none."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.validation import has_fit_parameter

from _models import MODELS, TABLE, answers, assert_alike

# Leaving out a copy of a row is not leaving out the row, and landmarks are drawn.
OF_ROWS = ("CV", "landmarks")
WEIGHTED = [
    name
    for name, case in MODELS.items()
    if has_fit_parameter(case.model, "sample_weight")
    and not any(word in name for word in OF_ROWS)
]


@pytest.mark.slow
@pytest.mark.parametrize("name", WEIGHTED)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_weights_are_repetitions(name):
    case = MODELS[name]
    X, y = TABLE["X"], TABLE[case.targets]
    counts = np.random.default_rng(1).integers(0, 4, len(X))
    rows = np.repeat(np.arange(len(X)), counts)
    weighted = clone(case.model).fit(X, y, counts)
    listed = clone(case.model).fit(X[rows], y[rows])
    found, wanted = (answers(model, (X, y), X) for model in (weighted, listed))
    for name in ("score", *(["predict_proba"] if case.sampled else [])):
        found.pop(name), wanted.pop(name)
    assert_alike(found, wanted, case.tolerance)
    if hasattr(weighted, "log_marginal_likelihood"):
        theta = weighted.theta_ + 0.1
        for one, other in zip(
            weighted.log_marginal_likelihood(theta, True),
            listed.log_marginal_likelihood(theta, True),
            strict=True,
        ):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
