"""Features, exact kernels and table encoders as ONNX operators, in float64.

This module walks the groups of a plan; their parts (projections, nonlinearities,
kernel formulas) are traced.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

from randkern.deployment import on_host
from randkern.kernels import Compositional, Kernel
from randkern.landmarks import Landmarks
from randkern.onnx.skeletons import skeleton_columns, skeleton_draws, skeleton_gram
from randkern.onnx.traced import ComplexPair, NoOperatorError, Traced, TracedOps
from randkern.plan import Group, Plan
from randkern.projections import Dense, Streamed
from randkern.skeletons.paths import SkeletonPaths
from randkern.tabular import TabularEncoder
from randkern.tabular.array_encoding import (
    encode_columns,
    equals,
    score_columns,
)
from randkern.tabular.target_encoding import CategoryScores

_XP = TracedOps.xp


def gram(kernel: Kernel, X: Traced, rows: Any) -> Traced:
    """Return k(X, rows), or raise a ValueError that names what has no operators."""
    rows = on_host(rows)
    total = None
    for term in kernel.terms():
        value: Any = term.weight
        for leaf in term.leaves:
            try:
                x = leaf._select(X)
                y = leaf._select(rows)
                if isinstance(leaf, Compositional):
                    factor: Any = skeleton_gram(leaf._skeleton(x.shape[1]), x, y)
                else:
                    factor = leaf._tile(x, y, False)
            except NoOperatorError as error:
                raise ValueError(
                    f"exact values of {leaf} cannot be expressed by ONNX operators "
                    f"({error}); use random features (n_components), or another "
                    "kernel."
                ) from error
            value = factor * value
        total = value if total is None else total + value
    assert total is not None
    return total


def features(plan: Plan, X: Traced) -> Traced:
    """Return features, or raise a ValueError that names what has no operators."""
    parts = []
    for group in plan.groups:
        try:
            parts.append(_columns(group, X))
        except NoOperatorError as error:
            names = ", ".join(f.projection.name for f in group.factors)
            raise ValueError(
                f"ONNX has no operators for features of the projection {names} "
                f"({error}); use another kernel."
            ) from error
    Z = _XP.concat(parts, axis=1)
    return Z if plan.triangle is None else solved(Z, plan.triangle)


def solved(Z: Traced, factor: Any) -> Traced:
    """Return Z T⁻ᵀ for a lower triangular T."""
    factor = on_host(factor)
    inverse = scipy.linalg.solve_triangular(factor, np.eye(len(factor)), lower=True)
    return Z @ inverse.T


def _columns(group: Group, X: Traced) -> Any:
    """Return the columns of one group."""
    factor = group.factors[0]
    if group.output == "columns":
        projection: Any = factor.projection
        rows = factor.inputs.apply(X)
        if isinstance(projection, Landmarks):
            return gram(projection.kernel, rows, projection.rows) * group.weight
        return skeleton_columns(projection, rows) * group.weight
    if group.output in ("mean", "centered"):
        means = (f.nonlinearity.mean_amplitude(f.inputs, X) for f in group.factors)
        mean: Any = (X[:, :1] * 0.0 + 1.0) * group.weight
        for value in means:
            mean = mean * (value[:, None] if isinstance(value, Traced) else value)
        if group.output == "mean":
            return mean
    in_pairs = group.output == "pair"
    n_draws = (group.width + 1) // 2 if in_pairs else group.width
    phase, amplitude = _polar(group, X, n_draws)
    if group.output in ("amplitude", "centered"):
        values = amplitude * group.weight
        return values if group.output == "amplitude" else values - mean
    drawn = amplitude
    if phase is not None:
        unit = ComplexPair(_XP.cos(phase), _XP.sin(phase))
        drawn = unit if amplitude is None else unit * amplitude
    drawn = drawn * group.weight
    if not in_pairs:
        return _offset(group, drawn, slice(n_draws))
    n_pairs = group.width // 2
    parts = []
    if n_pairs:
        pairs = _XP.stack([drawn.real[:, :n_pairs], drawn.imaginary[:, :n_pairs]])
        parts.append(pairs.reshape(-1, 2 * n_pairs))
    if group.width % 2:
        parts.append(_offset(group, drawn, slice(n_pairs, n_draws)))
    return _XP.concat(parts, axis=1)


def _offset(group: Group, drawn: ComplexPair, draws: slice) -> Traced:
    """Return A·cos(p + b) of some draws from A·cos p and A·sin p."""
    b = group.draw_offsets(draws.start or 0, draws.stop, np.float64)
    return drawn.real[:, draws] * np.cos(b) - drawn.imaginary[:, draws] * np.sin(b)


def _polar(group: Group, X: Traced, n_draws: int) -> tuple[Any, Any]:
    """Return the sum of the phases and the product of the amplitudes of all draws."""
    phase: Any = None
    amplitude: Any = None
    for factor in group.factors:
        block = factor.inputs.apply(X)
        projection = factor.projection
        if isinstance(projection, Streamed):  # the same, with a stored matrix
            projection = Dense(
                projection.stream,
                projection.n_draws,
                projection.width,
                projection.distribution,
            )
        if isinstance(projection, SkeletonPaths):
            drawn = skeleton_draws(projection, block)
            angle = None
            size = drawn.real if projection.skeleton.is_real else drawn
        else:
            projected = projection.phases(block, 0, n_draws)
            size, angle = factor.nonlinearity.contribute(projected, block)
        if angle is not None:
            phase = angle if phase is None else phase + angle
        if size is not None:
            amplitude = size if amplitude is None else amplitude * size
    return phase, amplitude


# -- tables ---------------------------------------------------------------------------


def encoded(
    encoder: TabularEncoder,
    inputs: list[Traced],
    scores: CategoryScores | None = None,
) -> Traced:
    """Return the encoded rows of a table with its columns, one or more per input.

    Missing numbers are NaN, missing categories empty strings; dates are days since
    1970.
    """
    columns = [x[:, [j]] for x in inputs for j in range(x.shape[1])]
    if scores is not None:
        columns += score_columns(scores, columns, scores.levels_, _is_known)
    texts = [j for j in encoder.numeric_columns if columns[j].dtype.kind in "OU"]
    if texts:
        raise ValueError(
            f"column {encoder._names[texts[0]]!r} held numbers or dates when the model "
            "was fitted, but holds texts in X. Pass rows with the types of the fit, "
            "for instance with dates from pandas.to_datetime, or omit X."
        )
    return encode_columns(encoder, columns, _is_known)


def _is_known(x: Traced, known: np.ndarray) -> Any:
    """Compare every value of a column with the known categories."""
    if x.dtype.kind in "OU":
        if "" in known and None in known:
            raise ValueError(
                "a column has both empty strings and missing values, which ONNX "
                "cannot distinguish; replace one of them before fitting."
            )
        return x == np.array(["" if v is None else v for v in known]).astype(str)
    return equals(x, np.array(known, dtype=float))
