"""Draws of the functions of a Gaussian process, as functions of rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from randkern._random import root_stream
from randkern._validation import Rows
from randkern.backend.namespace import ops_of
from randkern.kernels import Kernel
from randkern.kernels.draw import fit_plan
from randkern.models._feature_model import predict_by_features, predict_by_rows
from randkern.models._gp_posterior import Posterior

# Number of features for prior draws of an exact kernel.
_PRIOR_FEATURES = 2000

#: Values of draws of f at float64 rows, (n, columns).
Draws = Callable[[Rows], Any]


def posterior_paths(posterior: Posterior, columns: int, random_state: Any) -> Draws:
    """Return draws of f − E f from the joint posterior of a normal likelihood.

    On features they are combinations of these, with what landmarks omit of a draw of
    the prior: that is f(x) − k(x, L)K(L, L)⁻¹f(L) = f(x) − φ(x)·T⁻¹f(L), where
    φ(x) = T⁻¹k(L, x). For the exact kernel they are draws of the prior, less
    k(x, X)(K + σ²W⁻¹)⁻¹(f(X) + ε): Matheron's rule.
    """
    (factor,) = posterior.factors
    ops = ops_of(factor)
    generator = root_stream(random_state).child("sample_y").generator()
    drawn = ops.float64_like(generator.normal(size=(len(factor), columns)), factor)
    parts: list[Draws] = []
    kernel, plan = posterior.kernel, posterior.plan
    if plan is None:
        X: Any = posterior.X
        prior = _prior_paths(kernel, X, columns, random_state)
        (root,) = posterior.roots or ()
        root = root[:, None]
        # In the units of B⁻¹, where the noise of a row has the variance 1.
        right = root * prior(X) + drawn
        dual = -root * ops.algebra.factor_solve(factor, right)
        parts = [prior, partial(predict_by_rows, kernel, X, dual)]
    else:
        own = ops.algebra.triangular_solve(factor, drawn, transposed=True)
        if plan.triangle is not None:
            projection: Any = plan.groups[0].factors[0].projection
            prior = _prior_paths(kernel, projection.rows, columns, random_state)
            own = own - plan.solve(prior(projection.rows))
            parts = [prior]
        parts.append(partial(predict_by_features, plan, own))
    return lambda rows: sum(part(rows) for part in parts)


def _prior_paths(kernel: Kernel, rows: Rows, columns: int, random_state: Any) -> Draws:
    """Return draws of the prior, on random features of the kernel."""
    stream = root_stream(random_state).child("paths")
    n_features = rows.shape[1]
    widths = [term.exact_width(n_features) for term in kernel.terms()]
    exact = None if None in widths else sum(width or 0 for width in widths)
    plan = fit_plan(kernel, rows, None, exact or _PRIOR_FEATURES, stream)
    generator = stream.child("weights").generator()
    drawn = generator.normal(size=(plan.n_components, columns))
    return partial(predict_by_features, plan, ops_of(rows).float64_like(drawn, rows))
