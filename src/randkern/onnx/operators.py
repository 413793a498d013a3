"""Features, exact kernels and table encoders as ONNX operators, in float64.

This module walks the groups of a plan; their parts (projections, nonlinearities,
kernel formulas) are traced.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from randkern.backend.namespace import ops_of
from randkern.kernels import Compositional, Kernel
from randkern.kernels.base import Leaf
from randkern.landmarks import Landmarks
from randkern.onnx.skeletons import skeleton_columns, skeleton_draws, skeleton_gram
from randkern.onnx.traced import (
    ComplexPair,
    NoOperatorError,
    Traced,
    TracedOps,
)
from randkern.plan import Group, Plan
from randkern.projections import Dense, Projection, Streamed
from randkern.skeletons.paths import SkeletonPaths
from randkern.tabular import TabularEncoder
from randkern.tabular.array_encoding import (
    as_float64,
    encode_columns,
    equals,
    levels_of,
)

__all__ = ["encoded", "features", "gram", "on_host", "solved"]

_XP = TracedOps.xp


def on_host(values: Any) -> np.ndarray:
    """Return numbers of a model, from any device, as a dense NumPy array."""
    values = values.toarray() if sp.issparse(values) else values
    return np.asarray(ops_of(values).to_host(values), dtype=np.float64)


def gram(kernel: Kernel, X: Traced, rows: Any) -> Traced:
    """Return the exact values k(X, rows).

    Raises
    ------
    ValueError
        If the kernel has no ONNX operators; the message names it.
    """
    rows, total = on_host(rows), None
    for term in kernel.terms():
        value: Any = term.weight
        for leaf in term.leaves:
            try:
                value = _exact(leaf, leaf._select(X), leaf._select(rows)) * value
            except NoOperatorError as error:
                raise ValueError(
                    f"ONNX has no operators for exact values of {leaf} ({error}); use "
                    "random features (n_components), or another kernel."
                ) from error
        total = value if total is None else total + value
    assert total is not None
    return total


def _exact(leaf: Leaf, X: Traced, rows: np.ndarray) -> Any:
    """Return the exact values of one kernel on its columns."""
    if isinstance(leaf, Compositional):
        return skeleton_gram(leaf._skeleton(X.shape[1]), X, rows)
    return leaf._tile(X, rows, False)


def features(plan: Plan, X: Traced) -> Traced:
    """Return the features of rows.

    Raises
    ------
    ValueError
        If a part of the plan has no ONNX operators; the message names it.
    """
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
    if plan.factor is None:
        return Z
    return solved(Z, plan.factor)


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
    real, imaginary = _unit(phase, amplitude)
    real, imaginary = real * group.weight, imaginary * group.weight
    if not in_pairs:
        return _offset(group, real, imaginary, 0)
    n_pairs = group.width // 2
    parts = []
    if n_pairs:
        pairs = _XP.stack([real[:, :n_pairs], imaginary[:, :n_pairs]])
        parts.append(pairs.reshape(-1, 2 * n_pairs))
    if group.width % 2:
        last = real[:, n_pairs:], imaginary[:, n_pairs:]
        parts.append(_offset(group, *last, n_pairs))
    return _XP.concat(parts, axis=1)


def _offset(group: Group, real: Traced, imaginary: Traced, first: int) -> Traced:
    """Return A·cos(p + b) from A·cos p and A·sin p; the first draw is `first`."""
    b = group.draw_offsets(first, first + real.shape[1], np.float64)
    return real * np.cos(b) - imaginary * np.sin(b)


def _polar(group: Group, X: Traced, n_draws: int) -> tuple[Any, Any]:
    """Return the sum of the phases and the product of the amplitudes of all draws."""
    phase: Any = None
    amplitude: Any = None
    for factor in group.factors:
        block = factor.inputs.apply(X)
        projection = _with_matrix(factor.projection)
        if isinstance(projection, SkeletonPaths):
            drawn, angle = skeleton_draws(projection, block), None
            size = drawn.real if projection.skeleton.is_real else drawn
        else:
            projected = projection.phases(block, 0, n_draws)
            size, angle = factor.nonlinearity.contribute(projected, block)
        if angle is not None:
            phase = angle if phase is None else phase + angle
        if size is not None:
            amplitude = size if amplitude is None else amplitude * size
    return phase, amplitude


def _with_matrix(projection: Projection) -> Projection:
    """Return the equivalent of a streamed projection that stores its matrix."""
    if not isinstance(projection, Streamed):
        return projection
    given = projection
    return Dense(given.stream, given.n_draws, given.width, given.law)


def _unit(phase: Any, amplitude: Any) -> tuple[Any, Any]:
    """Return A·cos p and A·sin p, where p includes the angle of a complex A."""
    if isinstance(amplitude, ComplexPair):
        real, imaginary = amplitude.real, amplitude.imaginary
        if phase is None:
            return real, imaginary
        cos, sin = _XP.cos(phase), _XP.sin(phase)
        return real * cos - imaginary * sin, real * sin + imaginary * cos
    cos, sin = _XP.cos(phase), _XP.sin(phase)
    return (cos, sin) if amplitude is None else (amplitude * cos, amplitude * sin)


# -- tables ---------------------------------------------------------------------------


def encoded(encoder: TabularEncoder, columns: list[Traced]) -> Traced:
    """Return the encoded rows of a table, given its columns, (n, 1) each.

    Missing numbers are NaN, missing categories empty strings; dates are days since
    1970.
    """
    if any(columns[j].dtype.kind in "OU" for j in encoder._numbers):
        raise ValueError(
            "a column of numbers has the type of texts among the inputs of the ONNX "
            "model; pass rows X whose columns have the types of those of the fit."
        )
    return encode_columns(encoder, columns, levels_of(encoder), _is_known)


def _is_known(x: Traced, known: np.ndarray) -> Any:
    """Compare every value of a column with the known categories."""
    if x.dtype.kind in "OU":
        if "" in known and None in known:
            raise ValueError(
                "a column has both empty strings and missing values, which ONNX does "
                "not distinguish; replace one of them before fitting."
            )
        return x == np.array(["" if v is None else v for v in known]).astype(str)
    return equals(as_float64(x), np.array(known, dtype=float))
