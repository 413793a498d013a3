"""Features as data: the plan of a random feature map and its one evaluator.

A plan describes a drawn feature map completely without holding its random numbers:
groups of output columns, each the product of a few factors. A factor contributes an
amplitude, a phase, or both (see `randkern.nonlinearities`). With A(x) the product of
the amplitudes and p(x) the sum of the phases, draw i of a group is
w·A(x)·[cos p(x), sin p(x)] (a pair), w·A(x)·cos(p(x) + bᵢ) (offset), or w·A(x) where
no factor has a phase. Sums of kernels are several groups; products are several
factors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from randkern._random import Stream
from randkern._validation import Array, Rows
from randkern.backend.counter import random_matrix
from randkern.backend.namespace import ops_of
from randkern.data import row_blocks
from randkern.nonlinearities import Modulus, Nonlinearity, Phase
from randkern.projections import TILE_DRAWS, InputMap, Projection

Output = Literal["pair", "offset", "amplitude", "centered", "mean", "columns"]
# The nonlinearity of a single factor whose projection writes an output in one pass.
_FUSED: dict[Output, type[Nonlinearity]] = {
    "pair": Phase,
    "offset": Phase,
    "amplitude": Modulus,
    "centered": Modulus,
}


@dataclass(frozen=True, eq=False)
class Factor:
    """One random projection of a draw, and its nonlinearity."""

    projection: Projection
    nonlinearity: Nonlinearity
    inputs: InputMap


@dataclass(frozen=True, eq=False)
class Group:
    """Columns `start` to `stop` of a plan: independent draws of one product.

    `output` is ``pair`` (two columns per draw; an odd width ends in one column
    of offset form), ``offset``, ``amplitude``, ``centered`` (the amplitude
    minus its mean over draws), ``mean`` (one column: that mean) or ``columns`` (written
    by the projection of the single factor).
    """

    factors: tuple[Factor, ...]
    start: int
    stop: int
    weight: float
    output: Output
    offsets: Stream | None = None

    @property
    def width(self) -> int:
        return self.stop - self.start

    @property
    def fused_factor(self) -> Factor | None:
        """The single factor, if its projection writes the output in one pass."""
        factor, *others = self.factors
        is_fused = type(factor.nonlinearity) is _FUSED.get(self.output)
        return factor if is_fused and not others else None

    def draw_offsets(self, start: int, stop: int, dtype: Any) -> np.ndarray:
        """Return the phases bᵢ ~ U[0, 2π) of draws `start` to `stop`."""
        assert self.offsets is not None
        key = self.offsets.key
        uniform = random_matrix(key, "uniform", 0, 1, start, stop, np.float64)
        return (2 * np.pi * uniform[0]).astype(dtype)


@dataclass(frozen=True, eq=False)
class Plan:
    """A drawn feature map: its groups of columns, in order.

    With a `triangle`, T of shape (D, D), lower triangular, the features are T⁻¹ times
    those columns. As φ(x)·w is the product of the columns with T⁻ᵀw, products with many
    rows of features need only the columns (`raw`).
    """

    groups: tuple[Group, ...]
    n_features_in: int
    triangle: Any = None

    @property
    def n_components(self) -> int:
        """Number of output columns."""
        return self.groups[-1].stop

    @property
    def raw(self) -> Plan:
        """The plan of the columns of the groups, without the triangle."""
        return self if self.triangle is None else replace(self, triangle=None)

    @property
    def with_constant(self) -> Plan:
        """The plan with a last column of ones, whose weight is an intercept."""
        D, triangle = self.n_components, self.triangle
        ones = Group((), D, D + 1, 1.0, "mean")
        if triangle is not None:
            triangle = ops_of(triangle).float64_zeros((D + 1, D + 1), self.triangle)
            triangle[:D, :D], triangle[D, D] = self.triangle, 1.0
        return Plan((*self.groups, ones), self.n_features_in, triangle)

    def column_blocks(self, max_columns: int) -> Iterator[slice]:
        """Yield slices of at most `max_columns` columns, which cover all of them once.

        With a triangle there is one slice, of all columns: a column of features then
        depends on all columns of the groups before it.
        """
        D = self.n_components
        return row_blocks(D, D if self.triangle is not None else max_columns)

    def solve(self, values: Array, transposed: bool = False) -> Any:
        """Return T⁻¹V or T⁻ᵀV, by the leading block of T; V itself without one."""
        if self.triangle is None:
            return values
        ops = ops_of(values)
        values, n = ops.as_float64(values), len(values)
        triangle = ops.constant(self, "triangle", values, lambda: self.triangle)
        triangle = ops.float64_like(triangle, values)[:n, :n]
        return ops.algebra.triangular_solve(triangle, values, transposed)

    def stored_bytes(self, itemsize: int) -> int:
        """Return the memory of stored entries of projections, and of the triangle."""
        return (0 if self.triangle is None else 8 * self.n_components**2) + sum(
            factor.projection.stored_bytes(itemsize)
            for group in self.groups
            if group.output != "mean"
            for factor in group.factors
        )


def evaluate(
    plan: Plan,
    X: Rows,
    columns: slice = slice(None),
    out: np.ndarray | None = None,
) -> np.ndarray:
    """Return the features of checked rows, or some columns, or write them to `out`.

    They have the dtype and device of the rows. The columns of `out` must be contiguous,
    its rows need not be.
    """
    ops = ops_of(X)
    first, last, step = columns.indices(plan.n_components)
    if step != 1:
        raise ValueError(
            f"columns must be a slice with step 1, got step {step}; select columns of "
            "the result instead."
        )
    shape = (X.shape[0], max(0, last - first))
    if out is None:
        out = ops.empty(shape, X)
    elif out.shape != shape or out.dtype != X.dtype:
        raise ValueError(
            f"out must have shape {shape} and dtype {X.dtype}, got {out.shape} and "
            f"{out.dtype}."
        )
    if shape[0] == 0:
        return out
    with ops.full_precision(X):
        if plan.triangle is not None:
            # Computed in float64, because T⁻¹ amplifies rounding errors.
            for rows in row_blocks(X.shape[0], ops.tile_rows(X)):
                values = evaluate(plan.raw, ops.as_float64(X[rows]), slice(0, last))
                values = plan.solve(values.T)
                out[rows] = ops.asarray(values[first:].T, out)
                del values  # before those of the next rows are computed
            return out
        for group in plan.groups:
            low = max(first, group.start)
            high = min(last, group.stop)
            if low < high:
                target = out[:, low - first : high - first]
                low, high = low - group.start, high - group.start
                _WRITERS[group.output](group, X, low, high, target)
    return out


def _write_mean(group: Group, X: Rows, low: int, high: int, out: np.ndarray) -> None:
    """Write the mean amplitude."""
    out[:] = group.weight * _mean_amplitude(group, X)[:, None]


def _write_columns(group: Group, X: Rows, low: int, high: int, out: np.ndarray) -> None:
    """Write columns `low` to `high` by the projection itself."""
    (factor,) = group.factors
    projection: Any = factor.projection
    for rows in row_blocks(X.shape[0], ops_of(X).tile_rows(X)):
        inputs = factor.inputs.apply(X[rows])
        projection.write_columns(inputs, low, high, group.weight, out[rows])


def _write_pairs(group: Group, X: Rows, low: int, high: int, out: np.ndarray) -> None:
    """Write columns `low` to `high` of cosines and sines, interleaved."""
    n_pairs = group.width // 2
    if high > 2 * n_pairs:  # the last column of an odd width
        _write_offset(group, X, n_pairs, n_pairs + 1, out[:, -1:])
        high, out = high - 1, out[:, :-1]
    if low == high:
        return
    if low % 2 or high % 2:
        # A range that splits a pair is written to a copy of complete pairs first.
        start, stop = low - low % 2, high + high % 2
        copy = ops_of(X).empty((X.shape[0], stop - start), out)
        _write_pairs(group, X, start, stop, copy)
        out[:] = copy[:, low - start : high - start]
        return
    first, last = low // 2, high // 2
    factor = group.fused_factor
    if factor is not None:
        factor.projection.write_pairs(
            X, factor.inputs, slice(first, last), group.weight, out
        )
        return
    for rows, draws, phase, amplitude in _tiles(group, X, first, last):
        target = out[rows, 2 * draws.start : 2 * draws.stop]
        if _is_complex(amplitude):
            real, imaginary = _turned(amplitude, phase)
            target[:, ::2] = group.weight * real
            target[:, 1::2] = group.weight * imaginary
        else:
            ops_of(X).cos_sin_pairs(phase, group.weight, target, amplitude)


def _write_offset(
    group: Group, X: Rows, start: int, stop: int, out: np.ndarray
) -> None:
    """Write draws of the form weight·A(x)·cos(p(x) + b)."""
    ops = ops_of(X)
    offsets = ops.constant(
        group.offsets,
        (type(group), start, stop),
        out,
        lambda: group.draw_offsets(start, stop, np.float64),
    )
    offsets = ops.asarray(offsets, out)
    factor = group.fused_factor
    if factor is not None:
        factor.projection.write_cosines(
            X, factor.inputs, slice(start, stop), group.weight, out, offsets
        )
        return
    for rows, draws, phase, amplitude in _tiles(group, X, start, stop):
        b, target = offsets[draws], out[rows, draws]
        if _is_complex(amplitude):
            shifted = b[None] if phase is None else phase + b
            target[:] = group.weight * _turned(amplitude, shifted)[0]
        else:
            ops.cosines(phase, b, group.weight, target, amplitude)


def _write_amplitudes(
    group: Group, X: Rows, low: int, high: int, out: np.ndarray
) -> None:
    """Write draws of the form weight·A(x), minus their mean if centered."""
    ops = ops_of(X)
    factor = group.fused_factor
    if factor is None:
        for rows, draws, _, amplitude in _tiles(group, X, low, high):
            ops.multiply(amplitude, group.weight, out[rows, draws])
    else:
        modulus: Any = factor.nonlinearity
        factor.projection.write_modulus(
            X, factor.inputs, slice(low, high), group.weight, out, modulus.power
        )
    if group.output == "centered":
        for rows in row_blocks(X.shape[0], ops.tile_rows(X)):
            mean = group.weight * _mean_amplitude(group, X[rows])
            out[rows] -= ops.asarray(mean, out)[:, None]


_WRITERS: dict[Output, Callable[[Group, Rows, int, int, np.ndarray], None]] = {
    "pair": _write_pairs,
    "offset": _write_offset,
    "amplitude": _write_amplitudes,
    "centered": _write_amplitudes,
    "mean": _write_mean,
    "columns": _write_columns,
}


def _mean_amplitude(group: Group, X: Rows) -> np.ndarray:
    """Return E[A(x)] over draws, a vector over the rows of X in float64."""
    means = (f.nonlinearity.mean_amplitude(f.inputs, X) for f in group.factors)
    return math.prod(means) * ops_of(X).float64_ones(X.shape[0], X)


def _tiles(group: Group, X: Rows, start: int, stop: int) -> Any:
    """Yield (rows, draws, phase, amplitude) tiles of a product of factors.

    Phase or amplitude is None if no factor has one.
    """
    ops = ops_of(X)
    for rows in row_blocks(X.shape[0], ops.tile_rows(X)):
        parts = [(factor, factor.inputs.apply(X[rows])) for factor in group.factors]
        for draws in row_blocks(stop - start, TILE_DRAWS):
            first, last = start + draws.start, start + draws.stop
            phase = amplitude = None
            for factor, block in parts:
                projected = factor.projection.phases(block, first, last)
                size, angle = factor.nonlinearity.contribute(projected, block)
                if angle is not None:
                    angle = ops.asarray(angle, X)
                    phase = angle if phase is None else phase + angle
                if size is not None:
                    amplitude = size if amplitude is None else amplitude * size
            yield rows, draws, phase, amplitude


def _is_complex(amplitude: Array) -> bool:
    return amplitude is not None and "complex" in str(amplitude.dtype)


def _turned(amplitude: Array, phase: Array) -> tuple[Any, Any]:
    """Return the real and imaginary parts of A·exp(i p).

    Unlike moduli and angles, they have derivatives where A is 0.
    """
    real, imaginary = amplitude.real, amplitude.imag
    if phase is None:
        return real, imaginary
    ops = ops_of(phase)
    unit = ops.empty((phase.shape[0], 2 * phase.shape[1]), phase)
    ops.cos_sin_pairs(phase, 1.0, unit)
    cos, sin = unit[:, ::2], unit[:, 1::2]
    return real * cos - imaginary * sin, real * sin + imaginary * cos
