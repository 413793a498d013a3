"""Random paths through a graph: Algorithm 1 of compositional random features.

A draw walks down from the output of a graph: at an internal node it draws a number and
follows that many random edges, at an input it writes a *symbol* and an exponent. The
result of a draw is a sorted list of pairs (symbol, exponent), each packed into one
integer. Draw i depends only on the key and on i: its words are those of Philox4x32-10
with the counters (0, i, 0, tag), (1, i, 0, tag), ....

References
----------
A. Daniely, R. Frostig, V. Gupta and Y. Singer, "Random features for compositional
kernels" (2017), Algorithm 1.
"""

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from randkern.backend.counter import philox

#: How equal symbols of one draw merge: their exponents add, add modulo a number, or are
#: counted; or the symbols stay separate.
ADD, CYCLE, COUNT, SEPARATE = 0, 1, 2, 3

_PATH_TAG = np.uint64(16)  # distinct from the distributions of `counter`
_NORMAL_TAG = np.uint64(17)
_LOW = np.uint64(0xFFFFFFFF)
_11, _21, _32 = np.uint64(11), np.uint64(21), np.uint64(32)
_ZERO = 2**31  # an exponent of 0, packed
_LINEAR_STEPS = 6  # of a search before it bisects


class PathTables(NamedTuple):
    """A graph in the form that walks read.

    Node v < ``len(first_symbol)`` is an input; the last node is the output.
    """

    starts: np.ndarray  # per internal node, where its sources begin
    sources: np.ndarray
    activation: np.ndarray  # per internal node, which activation it has
    cumulative_starts: np.ndarray  # per activation
    cumulative: np.ndarray  # the distribution functions of degrees, concatenated
    first_symbol: np.ndarray  # per input
    n_symbols: np.ndarray  # per input: one of them is drawn
    exponents: np.ndarray  # per input: 1 is 1, -1 a sign, n a number 1, ..., n
    merging: np.ndarray  # per symbol
    modulus: np.ndarray
    conjugate: np.ndarray
    continuous: np.ndarray  # 1 if equal symbols stand for different features


class Draws(NamedTuple):
    """Result of :func:`collect`: n entries, from draws that are merged if equal.

    The symbols of entry i are ``packed[starts[i]:starts[i + 1]]``: see :func:`unpack`.
    """

    starts: np.ndarray
    packed: np.ndarray
    first: np.ndarray  # per entry, the number of the draw that produced it first
    counts: np.ndarray  # per entry, how many draws produced it
    is_real: np.ndarray
    n_counted: int  # draws that count, including those without symbols
    n_empty: int  # draws without symbols, which are not entries
    n_factors: int  # symbols before equal ones were merged


# Gaps of Shell's method, by Ciura.
_GAPS = (701, 301, 132, 57, 23, 10, 4, 1)

_inline = njit(forceinline=True, error_model="numpy")
_compiled = njit(nogil=True, cache=True, error_model="numpy")


@njit(nogil=True, cache=True)
def _refill(state, draw, k0, k1):
    """Generate the next four words; not inlined, as it is long and often called."""
    w0, w1, w2, w3 = philox(
        state[0] & _LOW, draw & _LOW, draw >> _32, _PATH_TAG, k0, k1
    )
    state[2], state[3], state[4], state[5] = w0, w1, w2, w3
    state[0] += np.uint64(1)


@_inline
def _word(state, draw, k0, k1):
    """Return the next 32 random bits of a draw."""
    position = state[1]
    if position == 4:
        _refill(state, draw, k0, k1)
        position = np.uint64(0)
    state[1] = position + np.uint64(1)
    return state[np.uint64(2) + position]


@_inline
def _below(n, state, draw, k0, k1):
    """Return a random integer 0, ..., n - 1 (n below 2^31; no bias above 2^-32 n)."""
    if n == 1:
        return 0
    return np.int64((_word(state, draw, k0, k1) * np.uint64(n)) >> _32)


@_inline
def _degree(tables, activation, floor, state, draw, k0, k1):
    """Draw a degree by inverting its distribution function above `floor`."""
    cumulative, starts = tables.cumulative, tables.cumulative_starts
    start, stop = starts[activation], starts[activation + 1]
    if stop - start == 1:
        return 0
    high = _word(state, draw, k0, k1)
    low = _word(state, draw, k0, k1)
    u = np.float64((high << _21) | (low >> _11)) * 2.0**-53
    u = floor + (1.0 - floor) * u
    i = start
    for _ in range(_LINEAR_STEPS):
        if u < cumulative[i] or i == stop - 1:
            return i - start
        i += 1
    end = stop - 1
    while i < end:
        middle = (i + end) >> 1
        if u < cumulative[middle]:
            end = middle
        else:
            i = middle + 1
    return i - start


@_inline
def _copy(values, n, out, begin):
    """Copy n values; the check in a slice assignment takes seconds to compile."""
    for i in range(n):
        out[begin + i] = values[i]


@_compiled
def _grown(array, size):
    out = np.empty(max(size, 2 * len(array)), array.dtype)
    _copy(array, len(array), out, 0)
    return out


@_compiled
def _walk(tables, draw, k0, k1, conditional, state, stack, packed):
    """Write the symbols of one walk; return their number and the two arrays.

    If `conditional`, the walk is one that leaves the output.
    """
    n_inputs = len(tables.first_symbol)
    n = 0
    output = n_inputs + len(tables.activation) - 1
    stack[0] = output
    top = 1
    while top > 0:
        top -= 1
        node = stack[top]
        if node >= n_inputs:
            v = node - n_inputs
            activation = tables.activation[v]
            floor = 0.0
            if conditional and node == output:
                floor = tables.cumulative[tables.cumulative_starts[activation]]
            degree = _degree(tables, activation, floor, state, draw, k0, k1)
            if top + degree > len(stack):
                stack = _grown(stack, top + degree)
            begin = tables.starts[v]
            size = tables.starts[v + 1] - begin
            for _ in range(degree):
                stack[top] = tables.sources[begin + _below(size, state, draw, k0, k1)]
                top += 1
            continue
        symbol = tables.first_symbol[node]
        symbol += _below(tables.n_symbols[node], state, draw, k0, k1)
        exponent = tables.exponents[node]
        if exponent == -1:
            exponent = 2 * _below(2, state, draw, k0, k1) - 1
        elif exponent > 1:
            exponent = 1 + _below(exponent, state, draw, k0, k1)
        if n == len(packed):
            packed = _grown(packed, 0)
        packed[n] = (symbol << 32) + exponent + _ZERO
        n += 1
    return n, stack, packed


@_compiled
def _sort(packed, n):
    """Sort by insertion with decreasing gaps: a draw has few symbols."""
    for gap in _GAPS:
        for i in range(gap, n):
            value = packed[i]
            j = i
            while j >= gap and packed[j - gap] > value:
                packed[j] = packed[j - gap]
                j -= gap
            packed[j] = value


@_compiled
def _merge(tables, packed, n):
    """Sort symbols and merge equal ones in place; return how many remain."""
    _sort(packed, n)
    selected = 0
    i = 0
    while i < n:
        symbol = packed[i] >> 32
        exponent = (packed[i] & 0xFFFFFFFF) - _ZERO
        i += 1
        merging = tables.merging[symbol]
        if merging != SEPARATE:
            while i < n and packed[i] >> 32 == symbol:
                exponent += (packed[i] & 0xFFFFFFFF) - _ZERO
                i += 1
        if merging == CYCLE:
            exponent %= tables.modulus[symbol]
        if exponent != 0:
            packed[selected] = (symbol << 32) + exponent + _ZERO
            selected += 1
    return selected


@_compiled
def _canonical(tables, packed, n, other):
    """Replace a draw by its conjugate if that sorts first; return (real, array)."""
    if n > len(other):
        other = _grown(other, n)
    for i in range(n):
        symbol = packed[i] >> 32
        exponent = (packed[i] & 0xFFFFFFFF) - _ZERO
        merging = tables.merging[symbol]
        if merging == CYCLE:
            exponent = tables.modulus[symbol] - exponent
        elif merging == ADD or tables.conjugate[symbol] < 0:
            exponent = -exponent
        else:
            symbol = tables.conjugate[symbol]
        other[i] = (symbol << 32) + exponent + _ZERO
    _sort(other, n)
    for i in range(n):
        if other[i] != packed[i]:
            if other[i] < packed[i]:
                _copy(other, n, packed, 0)
            return False, other
    return True, other


@_compiled
def _hash(packed, n):
    h = np.uint64(0x9E3779B97F4A7C15)
    for i in range(n):
        h ^= np.uint64(packed[i])
        h *= np.uint64(0xBF58476D1CE4E5B9)
        h ^= h >> _32
        h *= np.uint64(0x94D049BB133111EB)
        h ^= h >> np.uint64(29)
    return h


@_compiled
def _find(table, hashed, packed, n, starts, known):
    """Return the slot of a list in the table, and its entry or -1."""
    mask = np.uint64(len(table) - 1)
    slot = hashed & mask
    while table[slot] >= 0:
        entry = table[slot]
        begin = starts[entry]
        if starts[entry + 1] - begin == n:
            same = True
            for i in range(n):
                if known[begin + i] != packed[i]:
                    same = False
                    break
            if same:
                return slot, entry
        slot = (slot + np.uint64(1)) & mask
    return slot, np.int64(-1)


@_compiled
def _is_continuous(tables, packed, n):
    for i in range(n):
        if tables.continuous[packed[i] >> 32] == 1:
            return True
    return False


@_compiled
def _collect(tables, key, n_columns, max_draws, conditional, merge, canonical, width):
    k0, k1 = key & _LOW, key >> _32
    state = np.zeros(6, dtype=np.uint64)
    stack, packed = np.empty(64, np.int64), np.empty(64, np.int64)
    other, known = np.empty(64, np.int64), np.empty(4 * n_columns + 64, np.int64)
    starts = np.zeros(n_columns + 1, np.int64)
    first, counts = np.empty(n_columns, np.int64), np.ones(n_columns, np.int64)
    reals = np.zeros(n_columns, np.bool_)
    size = 4
    while size < 4 * n_columns:
        size *= 2
    table = np.full(size if merge else 1, -1, np.int64)
    n_entries, used, n_counted, n_empty, n_factors = 0, 0, 0, 0, 0
    for draw in range(max_draws):
        state[0], state[1] = 0, 4
        n, retry = 0, True
        while retry:
            n, stack, packed = _walk(
                tables, np.uint64(draw), k0, k1, conditional, state, stack, packed
            )
            retry = conditional and n == 0
        walked = n
        n = _merge(tables, packed, n)
        real = False
        if canonical:
            if n == 0:
                n_empty += 1
                n_counted += 1
                n_factors += walked
                continue
            real, other = _canonical(tables, packed, n, other)
        slot, entry = np.uint64(0), np.int64(-1)
        hashable = merge and not _is_continuous(tables, packed, n)
        if hashable:
            slot, entry = _find(table, _hash(packed, n), packed, n, starts, known)
        if entry >= 0:
            counts[entry] += 1
        else:
            columns = 1 if real else width
            # Discard the first draw that does not fit: then the draws before it are
            # exchangeable, and their mean is unbiased.
            if used + columns > n_columns:
                break
            if hashable:
                table[slot] = n_entries
            begin = starts[n_entries]
            if begin + n > len(known):
                known = _grown(known, begin + n)
            _copy(packed, n, known, begin)
            first[n_entries], reals[n_entries] = draw, real
            n_entries += 1
            starts[n_entries] = begin + n
            used += columns
        n_counted += 1
        n_factors += walked
    sizes = n_counted, n_empty, n_factors
    m = n_entries
    return starts[: m + 1], known[: starts[m]], first[:m], counts[:m], reals[:m], sizes


def collect(
    tables: PathTables,
    key: int,
    n_columns: int,
    max_draws: int,
    *,
    conditional: bool = False,
    merge: bool = False,
    canonical: bool = True,
    width: int = 2,
) -> Draws:
    """Draw until the columns are full.

    A complex entry takes `width` columns, a real one takes one. The first draw that
    does not fit ends the drawing and does not count.

    If `conditional`, only walks that reach an input are drawn; with `merge`, equal
    draws count as one entry; if `canonical`, a draw and its conjugate are equal, and
    draws without symbols are omitted; otherwise every draw is an entry, as drawn.
    """
    how = conditional, merge, canonical, width
    *arrays, sizes = _collect(tables, np.uint64(key), n_columns, max_draws, *how)
    return Draws(*arrays, *(int(size) for size in sizes))


def unpack(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the symbols and exponents of packed pairs."""
    return packed >> 32, (packed & 0xFFFFFFFF) - _ZERO


@_compiled
def _normals(key, draws, positions, offsets, out):
    k0, k1 = key & _LOW, key >> _32
    for i in range(len(out)):
        c0, c1 = np.uint64(offsets[i]) & _LOW, np.uint64(draws[i]) & _LOW
        c2 = np.uint64(positions[i]) & _LOW
        w0, w1, w2, w3 = philox(c0, c1, c2, _NORMAL_TAG, k0, k1)
        u = (np.float64((w0 << _21) | (w1 >> _11)) + 1.0) * 2.0**-53
        angle = np.float64((w2 << _21) | (w3 >> _11)) * (2.0**-52 * math.pi)
        out[i] = math.sqrt(-2.0 * math.log(u)) * math.cos(angle)


def normals(
    key: int, draws: np.ndarray, positions: np.ndarray, offsets: np.ndarray
) -> np.ndarray:
    """Return standard normal numbers, each a function of the key and three integers.

    These are below 2^32.
    """
    out = np.empty(len(draws))
    as_int = [
        np.asarray(array, dtype=np.int64) for array in (draws, positions, offsets)
    ]
    _normals(np.uint64(key), *as_int, out)
    return out
