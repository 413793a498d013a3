"""Arrays that trace the computations on them as ONNX operators.

A :class:`Traced` array holds one example row and the name of a value in a graph. Every
computation runs on the example, in NumPy, and adds an operator to the graph, so that
formulas written for :class:`randkern.backend.array_ops.ArrayOps` (exact kernels,
nonlinearities, projections) need not be written a second time. ``ops_of`` returns
:class:`TracedOps` for traced arrays.

One row stands for any number of rows: arrays sized by the example's number of rows,
such as zeros to add to, have one row too, which broadcasts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.linalg
import scipy.special
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.polynomial import chebyshev

from randkern._extras import import_extra
from randkern.backend.array_ops import ArrayOps, NumpyOps
from randkern.backend.hadamard import block_size
from randkern.backend.special import polynomial
from randkern.tabular.encoder import FARTHEST

# With up to this many columns, distances come from differences, as in the backends.
_FEW_COLUMNS = 16
# Intervals per unit of a logarithm, and coefficients per interval.
_PIECES = 4
_ORDER = 10
# Beyond this many standard deviations probabilities are 0 or 1 to rounding.
_FARTHEST = 8.5
# Degree of the polynomial that approximates normal quantiles.
_DEGREE = 45
_GOLDEN = 0x9E3779B97F4A7C15
_MIX1 = 0xBF58476D1CE4E5B9
_MIX2 = 0x94D049BB133111EB


class NoOperatorError(ValueError):
    """A computation has no ONNX operator."""


class Graph:
    """Adds operators and constants to the container of skl2onnx converters.

    skl2onnx compares the name of each new operator and value with all earlier ones,
    which takes minutes for the tens of thousands of operators of a model of cells. The
    names of a graph are a prefix that skl2onnx has made unique, and a number.
    """

    def __init__(self, scope: Any, container: Any):
        self._onnx = import_extra("onnx", "randkern.export_onnx", "onnx")
        self._container = container
        self._prefix = scope.get_unique_variable_name("rk")
        self._numbers = itertools.count()
        # The names of constants by their contents: cells share many of them.
        self._constants: dict[bytes, str] = {}

    def _new_name(self, kind: str) -> str:
        return f"{self._prefix}_{kind}_{next(self._numbers)}"

    def _add_node(
        self, operator: str, inputs: list[str], *outputs: str, **attributes: Any
    ) -> None:
        """Add an operator of the standard domain to the nodes of the container."""
        newest = self._container.target_opset_any_domain("")
        version = self._onnx.defs.get_schema(operator, newest).since_version
        self._container.node_domain_version_pair_sets.add(("", version))
        # Operators have the names of their outputs.
        node = self._onnx.helper.make_node(
            operator, inputs, outputs, outputs[0], **attributes
        )
        self._container.nodes.append(node)

    def _name(self, values: Any) -> str:
        """Return the name of an operand, adding it to the graph if it is a constant."""
        values = values if isinstance(values, Traced) else Traced(self, None, values)
        if values.name is None:
            example = np.asarray(values.example)
            if example.dtype.kind in "OU":
                example = example.astype(str).astype(object)
            tensor = self._onnx.numpy_helper.from_array(example)
            name = self._new_name("constant")
            values.name = self._constants.setdefault(tensor.SerializeToString(), name)
            if values.name == name:
                tensor.name = name
                self._container.initializers.append(tensor)
        return values.name

    def apply(
        self,
        operator: str,
        example: np.ndarray,
        *inputs: Any,
        n_outputs: int = 1,
        **attributes: Any,
    ) -> Traced:
        """Add an operator and return its first result, with the example `example`."""
        name, *others = (self._new_name(operator.lower()) for _ in range(n_outputs))
        names = [self._name(x) for x in inputs]
        self._add_node(operator, names, name, *others, **attributes)
        return Traced(self, name, np.asarray(example))

    def output(self, values: Traced, name: str) -> None:
        """Name values as an output of the graph."""
        self._add_node("Identity", [self._name(values)], name)


# Numbers of types in ONNX; that of texts is 8.
_ONNX_TYPES = {"f4": 1, "i8": 7, "b1": 9, "f8": 11}


def _of(function: Callable[..., Any], *values: Any, **options: Any) -> np.ndarray:
    """Apply a NumPy function to the examples of values."""
    with np.errstate(all="ignore"):
        return np.asarray(function(*map(_example, values), **options))


def _example(value: Any) -> Any:
    return value.example if isinstance(value, Traced) else value


# Operators, by the functions of NumPy that do the same.
_COMPARISONS = {np.less: "Less", np.greater: "Greater", np.equal: "Equal"}
_BINARY: dict[Any, str] = {np.add: "Add", np.subtract: "Sub", np.multiply: "Mul"}
_BINARY |= {np.divide: "Div", np.matmul: "MatMul", np.power: "Pow"}
_BINARY |= {np.maximum: "Max", np.minimum: "Min"}
_UNARY = {np.negative: "Neg", np.absolute: "Abs", np.invert: "Not", np.sqrt: "Sqrt"}
_UNARY |= {np.exp: "Exp", np.log: "Log", np.sin: "Sin", np.floor: "Floor"}
_UNARY |= {np.isnan: "IsNaN"}
_OPERATORS = _COMPARISONS | _BINARY | _UNARY
_FORMULAS: dict[Any, Callable[..., Any]] = {
    np.less_equal: lambda a, b: ~(a > b),
    np.greater_equal: lambda a, b: ~(a < b),
    np.remainder: lambda a, b: a - np.floor(a / b) * b,
    np.log1p: lambda x: np.log(1.0 + x),
    np.expm1: lambda x: np.exp(x) - 1.0,
    np.copysign: lambda sizes, signs: _Functions.where(signs < 0, -sizes, sizes),
    # onnxruntime 1.23 has no float64 cosine, nor its inverse.
    np.cos: lambda x: np.sin(x + math.pi / 2),
    np.arccos: lambda x: _arccos(x),
    np.arcsin: lambda x: math.pi / 2 - np.arccos(x),
}


class Traced(NDArrayOperatorsMixin):
    """An array in a graph: its name (None: an unused constant), and an example."""

    def __init__(self, graph: Graph, name: str | None, example: np.ndarray):
        self.graph = graph
        self.name = name
        self.example = example
        self._transpose: Traced | None = None

    @property
    def array_ops(self) -> TracedOps:
        return TracedOps()

    @property
    def shape(self) -> tuple[int, ...]:
        return self.example.shape

    @property
    def dtype(self) -> np.dtype:
        return self.example.dtype

    @property
    def ndim(self) -> int:
        return self.example.ndim

    @property
    def T(self) -> Traced:  # noqa: N802
        if self._transpose is None:
            self._transpose = self.graph.apply("Transpose", self.example.T, self)
            self._transpose._transpose = self
        return self._transpose

    def __len__(self) -> int:
        return len(self.example)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def astype(self, dtype: Any) -> Traced:
        """Return the array cast to a dtype, or itself if it has that dtype."""
        dtype = np.dtype(dtype)
        if dtype == self.dtype:
            return self
        to = 8 if dtype.kind in "OU" else _ONNX_TYPES[dtype.str[1:]]
        return self.graph.apply("Cast", self.example.astype(dtype), self, to=to)

    def reshape(self, *shape: int) -> Traced:
        """Return the array in another shape; a first entry −1 is the number of rows."""
        at = np.array(shape, dtype=np.int64)
        return self.graph.apply("Reshape", self.example.reshape(shape), self, at)

    def __getitem__(self, key: Any) -> Traced:
        out, axis = self, 0
        parts = key if isinstance(key, tuple) else (key,)
        if parts[0] is Ellipsis:
            parts = (slice(None),) * (self.ndim - len(parts) + 1) + parts[1:]
        for part in parts:
            if part is None:
                axes = np.array([axis])
                example = np.expand_dims(out.example, axis)
                out = self.graph.apply("Unsqueeze", example, out, axes)
            elif isinstance(part, slice):
                start, stop, step = part.indices(out.shape[axis])
                # A slice of all the example's rows stands for all rows.
                if (start, stop, step) != (0, out.shape[axis], 1):
                    numbers = (np.array([n]) for n in (start, stop, axis, step))
                    example = out.example[(slice(None),) * axis + (part,)]
                    out = self.graph.apply("Slice", example, out, *numbers)
            else:
                chosen = np.asarray(part, dtype=np.int64)
                example = np.take(out.example, chosen, axis=axis)
                out = self.graph.apply("Gather", example, out, chosen, axis=axis)
                axis -= chosen.ndim == 0
            axis += 1
        return out

    def __setitem__(self, key: Any, value: Traced) -> None:
        complete = slice(0, len(self)) if isinstance(key, slice) else Ellipsis
        if key != complete:
            raise NoOperatorError("writing to a part of an array")
        self.name = value.name
        self.example = value.example

    def __array_ufunc__(
        self, function: Any, method: str, *inputs: Any, **_: Any
    ) -> Any:
        """Return the values of a function of NumPy, of two arguments in one dtype."""
        if function in _FORMULAS:
            return _FORMULAS[function](*inputs)
        if function not in _OPERATORS:
            raise NoOperatorError(f"the function {function.__name__}")
        operator = _OPERATORS[function]
        example = _of(function, *inputs)
        if function in _UNARY:
            return self.graph.apply(operator, example, *inputs)
        dtype = np.result_type(*map(_example, inputs))
        if dtype.kind == "b" or (operator == "Div" and dtype.kind != "f"):
            dtype = np.dtype(float)
        if function not in _COMPARISONS:
            example = example.astype(dtype)
        cast = (
            x.astype(dtype) if isinstance(x, Traced) else np.asarray(x, dtype)
            for x in inputs
        )
        return self.graph.apply(operator, example, *cast)

    __hash__ = object.__hash__

    def __rmul__(self, other: Any) -> Any:
        if isinstance(other, complex):
            return ComplexPair(other.real, other.imag) * self
        return super().__rmul__(other)

    def __pow__(self, power: float) -> Any:
        if power == 1:
            return self
        return self * self if power == 2 else super().__pow__(power)

    def clip(self, min: Any = None, max: Any = None) -> Any:
        """Return entries clipped to bounds."""
        out: Any = self
        out = out if min is None else np.maximum(out, min)
        return out if max is None else np.minimum(out, max)

    def sum(self, axis: int, keepdims: bool = False) -> Traced:
        """Return sums along an axis."""
        example = self.example.sum(axis=axis, keepdims=keepdims)
        axes = np.array([axis])
        keep = int(keepdims)
        return self.graph.apply("ReduceSum", example, self, axes, keepdims=keep)

    def argmax(self, axis: int) -> Traced:
        """Return the positions of the largest entries along an axis."""
        example = self.example.argmax(axis=axis)
        return self.graph.apply("ArgMax", example, self, axis=axis, keepdims=0)

    def sorted(self, axis: int) -> Traced:
        """Return the entries along an axis in ascending order."""
        example = np.sort(self.example, axis=axis)
        count = np.array([example.shape[axis]])
        options = {"axis": axis, "largest": 0, "n_outputs": 2}
        return self.graph.apply("TopK", example, self, count, **options)


class ComplexPair:
    """A complex array as its real and imaginary parts."""

    dtype = "complex"
    __array_ufunc__ = None  # traced arrays defer to this class's operators

    def __init__(self, real: Any, imaginary: Any):
        self.real = real
        self.imaginary = imaginary

    def __getitem__(self, key: Any) -> ComplexPair:
        return ComplexPair(self.real[key], self.imaginary[key])

    def __radd__(self, other: Traced) -> ComplexPair:
        return ComplexPair(other + self.real, self.imaginary)

    def __mul__(self, other: Any) -> ComplexPair:
        if isinstance(other, ComplexPair):
            return ComplexPair(
                self.real * other.real - self.imaginary * other.imaginary,
                self.real * other.imaginary + self.imaginary * other.real,
            )
        return ComplexPair(self.real * other, self.imaginary * other)

    __rmul__ = __mul__


class _Named(SimpleNamespace):
    """A namespace that raises `NoOperatorError` for missing names."""

    def __getattr__(self, name: str) -> Any:
        raise NoOperatorError(f"the function {name}")


class _Functions(_Named):
    """The part of the array API namespace that has ONNX operators."""

    float64 = np.float64
    float32 = np.float32
    int64 = np.int64
    finfo = staticmethod(np.finfo)

    @staticmethod
    def astype(values: Any, dtype: Any, copy: bool = True) -> Any:
        return values.astype(dtype)

    @staticmethod
    def ones(shape: Any, dtype: Any = float, device: Any = None) -> Any:
        return np.ones(shape, dtype)

    def ones_like(self, values: Any) -> Any:
        return np.ones(values.shape)

    def full_like(self, values: Any, number: float) -> Any:
        return np.full(values.shape, number)

    def hypot(self, a: Any, b: Any) -> Any:
        return np.sqrt(a * a + b * b)

    @staticmethod
    def where(condition: Any, a: Any, b: Any) -> Any:
        if not any(isinstance(x, Traced) for x in (condition, a, b)):
            return np.where(condition, a, b)
        graph = next(x.graph for x in (condition, a, b) if isinstance(x, Traced))
        dtype = np.result_type(_example(a), _example(b))
        a, b = (x if isinstance(x, Traced) else np.asarray(x, dtype) for x in (a, b))
        return graph.apply("Where", _of(np.where, condition, a, b), condition, a, b)

    @staticmethod
    def searchsorted(values: Any, x: Traced, side: str) -> Any:
        """Return how many of the sorted values are at most the number of each row."""
        assert side == "right"
        return (x >= values).astype(np.int64).sum(axis=1, keepdims=True)

    @staticmethod
    def concat(parts: Any, axis: int = 0) -> Any:
        if len(parts) == 1:
            return parts[0]
        example = np.concatenate([_example(part) for part in parts], axis=axis)
        graph = next(x.graph for x in parts if isinstance(x, Traced))
        return graph.apply("Concat", example, *parts, axis=axis)

    def stack(self, parts: Any, axis: int = -1) -> Any:
        """Stack two-dimensional arrays along a third axis."""
        return self.concat([part[:, :, None] for part in parts], axis=2)


def _arccos_factor(t: Any) -> Any:
    """Return arccos(1 − u)/√(2u) at u = (1 + t)/2, smooth on [−1, 1]."""
    return 2 * np.arcsin(np.sqrt((1 + t) / 4)) / np.sqrt(1 + t)


# Accurate to 1e-15.
_ARCCOS = chebyshev.chebinterpolate(_arccos_factor, 22)


def _arccos(values: Any) -> Any:
    """Return √(2u) times a series, u = 1 − |v|."""
    u = 1.0 - abs(values)
    angle = np.sqrt(2.0 * u) * chebyshev.chebval(2.0 * u - 1.0, _ARCCOS)
    return _Functions.where(values < 0, math.pi - angle, angle)


def _of_logarithm(function: Any, x: Traced, low: float, high: float) -> Any:
    """Return a function of x in [low, high], smooth in log x, to about 1e-11."""

    def of_log(points: np.ndarray) -> Any:
        return function(np.exp(points).clip(low, high))

    log: Any = np.log(x.clip(min=low, max=high))
    return _looked_up(of_log, log, math.log(low), math.log(high))


def _looked_up(function: Any, x: Any, start: float, stop: float) -> Any:
    """Return a smooth function of x in an interval.

    It is a piecewise polynomial whose coefficients are looked up in a table.
    """
    n_pieces = math.ceil(_PIECES * (stop - start))
    step = (stop - start) / n_pieces
    nodes = np.cos(math.pi * (np.arange(_ORDER) + 0.5) / _ORDER)
    points = start + step * (np.arange(n_pieces)[:, None] + (1 + nodes) / 2)
    values = function(points)
    table = np.linalg.solve(np.vander(nodes, increasing=True), values.T).T
    position = (x - start) * (1 / step)
    piece = position.clip(max=n_pieces - 0.5).astype(np.int64)
    t = (position - piece.astype(float)) * 2.0 - 1.0
    total: Any = t * 0.0
    for k in reversed(range(_ORDER)):
        total = total * t + TracedOps().take(table[:, k], piece)
    return total


def _sum_of(function: Any, X: Any, Y: Any) -> Any:
    """Sum a function of the differences of all pairs of rows over columns."""
    differences = (x[:, None] - y for x, y in zip(X.T, Y.T, strict=True))
    total: Any = function(next(differences))
    for difference in differences:
        total = total + function(difference)
    return total


def _relu(rho: Any) -> Any:
    """Return the dual activation of ReLU (:mod:`randkern.backend.duals`)."""
    rho = rho.clip(-1.0, 1.0)
    root = np.sqrt((1.0 - rho) * (1.0 + rho))
    return (root + (math.pi - np.arccos(rho)) * rho) * (1 / math.pi)


def _step(rho: Any) -> Any:
    """Return the dual activation of a step."""
    return 1.0 - np.arccos(rho.clip(-1.0, 1.0)) / math.pi


def _normal_probability(values: Any) -> Any:
    """Return the normal distribution function, to about 1e-13."""
    values = values.clip(min=-_FARTHEST, max=_FARTHEST)
    return _looked_up(scipy.special.ndtr, values, -_FARTHEST, _FARTHEST)


def _normal_quantile(p: Any) -> Any:
    """Return normal quantiles, at most 3 standard deviations from 0.

    They are a Chebyshev series in log p/(1 − p), with an error below 1e-9.
    """
    widest = math.log(scipy.special.ndtr(FARTHEST) / scipy.special.ndtr(-FARTHEST))
    series = chebyshev.chebinterpolate(
        lambda t: scipy.special.ndtri(scipy.special.expit(widest * t)), _DEGREE
    )
    t = np.log(p / (1.0 - p)) * (1 / widest)
    return chebyshev.chebval(t, series)


def _triangular_solve(factor: np.ndarray, values: Any) -> Any:
    # Runtimes fuse a product with a transpose into an operator without float64.
    inverse = scipy.linalg.solve_triangular(factor, np.eye(len(factor)), lower=True)
    return (values.T @ inverse.T).T


def _sigmoid(values: Traced) -> Traced:
    return values.graph.apply("Sigmoid", _of(scipy.special.expit, values), values)


def _softmax(values: Any, axis: int) -> Any:
    example = _of(scipy.special.softmax, values, axis=axis)
    return values.graph.apply("Softmax", example, values, axis=axis)


class _StructuredRows:
    """Blocks R·H S₃ H S₂ H S₁ (:mod:`randkern.backend.hadamard`), H as two products."""

    def __init__(self, key: int, norms: np.ndarray, start: int, stop: int):
        assert start == 0
        self._key = key
        self._norms = norms

    def project(self, X: Traced, *, out: Traced) -> None:
        """Write X Ωᵀ."""
        out[...] = self._blocks(X, unitary=False)[0]

    def project_complex(self, X: Traced, *, out_real: Traced, out_imag: Traced) -> None:
        """Write the real and the imaginary part of X Ωᵀ, of unitary blocks."""
        out_real[...], out_imag[...] = self._blocks(X, unitary=True)

    def _blocks(self, X: Traced, unitary: bool) -> tuple[Any, ...]:
        p = block_size(X.shape[1])
        n = len(self._norms)
        n_blocks = -(-n // p)
        signs = _signs(self._key, n_blocks, p)
        pads = np.array([0, 0, 0, p - X.shape[1]])
        padded = np.pad(X.example, ((0, 0), (0, p - X.shape[1])))
        X = X.graph.apply("Pad", padded, X, pads)
        values: Any = X[:, None, :] * signs[:, 0]
        for stage in (1, 2):
            turn: Any = signs[:, stage]
            if unitary:
                turn = ComplexPair(turn, signs[:, stage + 3]) * math.sqrt(0.5)
            values = _transform(values) * turn
        values = _transform(values)
        norms = self._norms / p**1.5
        parts = (values.real, values.imaginary) if unitary else (values,)
        return tuple(part.reshape(-1, n_blocks * p)[:, :n] * norms for part in parts)


def _signs(key: int, n_blocks: int, p: int) -> np.ndarray:
    """Return the ±1 of all stages of blocks: bits of SplitMix64.

    See :func:`randkern.backend.hadamard_kernels.draw_signs`.
    """
    count = np.arange(1, n_blocks * 6 * (p // 64) + 1, dtype=np.uint64)
    z = np.uint64(key) + count * np.uint64(_GOLDEN)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(_MIX1)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_MIX2)
    z ^= z >> np.uint64(31)
    bits = (z[:, None] >> np.arange(64, dtype=np.uint64)) & np.uint64(1)
    return 1.0 - 2.0 * bits.reshape(n_blocks, 6, p)


def _transform(X: Any) -> Any:
    """Return X, (n, blocks, p), times the Hadamard matrix H_a ⊗ H_b, p = ab."""
    if isinstance(X, ComplexPair):
        return ComplexPair(_transform(X.real), _transform(X.imaginary))
    n_blocks, p = X.shape[1:]
    a = 1 << (p.bit_length() - 1) // 2
    left, right = (scipy.linalg.hadamard(k).astype(float) for k in (a, p // a))
    return (left @ (X.reshape(-1, a, p // a) @ right)).reshape(-1, n_blocks, p)


class TracedOps(ArrayOps):
    """The primitives of traced arrays, and of NumPy arrays, which are constants."""

    xp: Any = _Functions(**{f.__name__: f for f in _OPERATORS | _FORMULAS})
    special = _Named(
        expit=_sigmoid,
        ndtr=_normal_probability,
        ndtri=_normal_quantile,
        softmax=_softmax,
    )
    algebra = _Named(
        triangular_solve=_triangular_solve,
        column_products=lambda a, b: (a * b).sum(axis=0),
    )
    duals = _Named(
        relu=_relu,
        step=_step,
        power_series=lambda series, rho, owner: polynomial(series, rho),
    )
    hadamard = SimpleNamespace(StructuredRows=_StructuredRows)

    def __getattr__(self, name: str) -> Any:
        raise NoOperatorError(f"the primitive {name}")

    def placed(self, values: Any, dtype: Any, like: Any) -> Any:
        traced = isinstance(values, Traced)
        return values.astype(dtype) if traced else np.asarray(values, dtype)

    def key(self, like: Any) -> Any:
        return like.dtype.char, "traced"

    def lasting(self, make: Any) -> Any:
        return make(), False  # traced arrays must not be cached

    def float64_zeros(self, shape: Any, like: Any) -> Any:
        """Return zeros, to add to or to overwrite as a whole."""
        return Traced(like.graph, None, np.zeros(shape))

    empty = float64_zeros

    float64_squared_norms = ArrayOps.squared_norms

    def row_max_abs(self, X: Any) -> Any:
        if not isinstance(X, Traced):
            return np.abs(X).max(axis=1)
        example = np.abs(X.example).max(axis=1)
        return X.graph.apply("ReduceMax", example, abs(X), np.array([1]), keepdims=0)

    def largest_code(self, codes: Traced) -> float:
        """Return the example's largest code; Gather fails for codes out of range."""
        return float(codes.example.max())

    def take(self, table: np.ndarray, rows: Traced) -> Traced:
        return rows.graph.apply("Gather", table[rows.example], table, rows, axis=0)

    def with_bias(self, X: Any, scale: Any, bias: float) -> Any:
        X = X if np.ndim(scale) == 0 and scale == 1.0 else X * scale
        if bias:
            # A product, as there may be no column to take the number of rows from.
            column = X @ np.zeros((X.shape[1], 1)) + bias
            X = self.xp.concat([X, column], axis=1) if X.shape[1] else column
        return X

    def codes(self, X: Any, categories: Any) -> Any:
        columns = []
        for j, values in enumerate(categories):
            n = len(values)
            one_hot = (X[:, [j]] == values.astype(float)).astype(float)
            columns.append(one_hot @ (np.arange(n) - float(n))[:, None] + float(n))
        return self.xp.concat(columns, axis=1).astype(np.int64)

    def modulus_in_place(self, real: Any, imaginary: Any, power: float) -> Any:
        return (real * real + imaginary * imaginary) ** (power / 2)

    def scaled_squared_distances(self, X: Any, Y: Any, scale: Any, same: bool) -> Any:
        X, Y = X * scale, Y * scale
        if X.shape[1] <= _FEW_COLUMNS:
            return _sum_of(lambda difference: difference * difference, X, Y)
        center = Y.mean(axis=0)
        X, Y = X - center, Y - center
        norms = self.squared_norms(X)[:, None] + self.squared_norms(Y)
        return (norms - 2.0 * (X @ Y.T)).clip(min=0.0)

    def manhattan_distances(self, X: Any, Y: Any, out: Traced) -> None:
        out[...] = _sum_of(abs, X, Y)

    def cauchy_kernel(self, X: Any, Y: Any, out: Traced) -> None:
        """Write Π_k 1/(1 + (x_k − y_k)²) for all pairs of rows."""
        factors = (1.0 + (x[:, None] - y) ** 2 for x, y in zip(X.T, Y.T, strict=True))
        out[...] = 1.0 / math.prod(factors)

    def log_matern(self, z: Any, nu: float) -> Any:
        """Return log(2^{1−ν}/Γ(ν)·z^ν·K_ν(z)); the value at z = 0 is arbitrary."""
        ops: Any = NumpyOps()
        # Beyond this, correlations are 0 in double precision.
        return _of_logarithm(lambda z: ops.log_matern(z, nu), z, 1e-30, 800.0 + nu)

    def hypergeometric(self, cosine: Any, m: float) -> Any:
        """Return ₂F₁(−m/2, −m/2; 1; c²) for c in [0, 1], smooth in log(1 − c)."""
        ops: Any = NumpyOps()

        def of_rest(rest: np.ndarray) -> np.ndarray:
            return np.asarray(ops.hypergeometric(1.0 - rest, m))

        return _of_logarithm(of_rest, 1.0 - cosine, 1e-16, 1.0)
