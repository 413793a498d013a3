"""Draws of a process, as functions of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from randkern._random import root_stream
from randkern._validation import Rows
from randkern.backend.namespace import ops_of
from randkern.kernels import Kernel
from randkern.kernels.draw import fit_plan
from randkern.models._gp_evidence import RowPosterior
from randkern.models._gp_reach import landmarks_of
from randkern.models._predictions import predict_by_features
from randkern.plan import Plan

# Features of draws of the prior of an exact kernel.
_PATH_FEATURES = 2000


def conditioned_paths(
    kernel: Kernel,
    rows: Rows,
    posterior: RowPosterior,
    columns: int,
    generator: np.random.Generator,
    random_state: Any,
) -> tuple[tuple[Plan, np.ndarray], np.ndarray]:
    """Return draws of the prior, and weights of the rows that take them about 0.

    −(K + σ²W⁻¹)⁻¹(f(X) + ε), Matheron's rule.
    """
    prior = _prior_paths(kernel, rows, columns, random_state)
    ops, root = ops_of(posterior.factor), posterior.root[:, None]
    noise = generator.normal(size=(len(root), columns))
    # In the units of B⁻¹, where the noise of a row has the variance 1.
    right = root * predict_by_features(*prior, rows)
    right += ops.float64_like(noise, posterior.factor)
    return prior, -root * ops.algebra.factor_solve(posterior.factor, right)


def left_paths(
    kernel: Kernel, plan: Plan, columns: int, random_state: Any
) -> list[tuple[Plan, np.ndarray]]:
    """Return parts that add up to draws of what landmarks leave of the prior.

    A draw of the prior but for its part in the landmarks' span,
    k(x, L)K(L, L)⁻¹f(L) = φ(x)·T⁻¹f(L), where φ(x) = T⁻¹k(L, x).
    """
    landmarks = landmarks_of(plan)
    prior = _prior_paths(kernel, landmarks, columns, random_state)
    return [prior, (plan, -plan.solve(predict_by_features(*prior, landmarks)))]


def _prior_paths(
    kernel: Kernel, rows: Rows, columns: int, random_state: Any
) -> tuple[Plan, np.ndarray]:
    """Return random features of the kernel, and weights of draws of the prior."""
    stream = root_stream(random_state).child("paths")
    n_features = rows.shape[1]
    widths = [term.most_columns(n_features) for term in kernel.terms()]
    exact = None if None in widths else sum(width or 0 for width in widths)
    plan = fit_plan(kernel, rows, None, exact or _PATH_FEATURES, stream)
    weights = stream.child("weights").generator()
    drawn = weights.normal(size=(plan.n_components, columns))
    return plan, ops_of(rows).float64_like(drawn, rows)
