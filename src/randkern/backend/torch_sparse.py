"""Features whose phases are sparse sums of the columns of a row, for tensors.

These are the functions of :mod:`randkern.backend.sparse_phases`. The draws are on the
device; a block of features takes a few products of sparse matrices with the columns
that they read, cosines and sines, and, if base features do not have modulus 1, products
over segments. On a GPU these are some ten to twenty kernels per block of eight million
numbers, each with only a few operations per number: they are bound by reading and
writing the temporary arrays of a block, some four times the size of the features, and
more if features have factors.
"""

from itertools import pairwise
from typing import Any

import numpy as np
import torch

from randkern.backend.torch_constants import constant
from randkern.backend.torch_trig import is_tracked

# Size of a temporary array of entries, or factors, by rows. On a CPU, with no thousands
# of units to keep busy, small ones are better.
_BLOCK = 2**23
_CPU_BLOCK = 2**20
_FEW_RUNS = 4


class TensorEntries:
    """Entries of a sparse map, stored in the dtype and on the device of a tensor.

    The host also stores where entries, factors and terms begin, to slice blocks.
    """

    def __init__(self, entries, like):
        self.columns = entries.columns
        self.factor_starts = entries.factor_starts
        self.max_factors = int(np.diff(entries.factor_starts).max(initial=0))
        widths = np.diff(entries.columns)
        #: Where entries of one column follow entries of two, or the reverse.
        self.changes = np.flatnonzero(np.diff(widths)) + 1
        self.first_columns = _integers(entries.columns[:-1], like)
        self.segments = _integers(entries.factor_starts, like)
        self.paired = _Marked(widths == 2, like)
        self.weights = _numbers(entries.weights, like)[:, None]
        self.shifted = _Marked(entries.shifts != 0, like)
        self.shifts = _numbers(entries.shifts, like)[:, None]
        self.has_phases = len(entries.coefs) > 0 or bool((entries.shifts != 0).any())
        self.powered = _Marked(entries.powers != 1, like)
        self.powers = _numbers(entries.powers[entries.powers != 1], like)[:, None]
        # Factors with an imaginary part: their angles times powers add to the phase.
        spins = entries.imag_slots >= 0
        self.spins = _Marked(spins, like)
        self.imag_slots = _integers(entries.imag_slots[spins], like)
        self.imag_coefs = _numbers(entries.imag_coefs[spins], like)[:, None]
        self.phases = _Terms(entries.starts, entries.slots, entries.coefs, like)
        self.forms = _Terms(
            entries.real_starts, entries.real_slots, entries.real_coefs, like
        )
        turn_starts = self.spins.before[entries.factor_starts]
        powers = entries.powers[spins]
        self.turns = _Terms(turn_starts, np.arange(len(powers)), powers, like)

    def runs(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the ranges of entries that are written at once.

        A range has entries with the same number of columns; if there are too many such
        ranges, they are joined into one.
        """
        start = int(np.searchsorted(self.changes, first, side="right"))
        stop = int(np.searchsorted(self.changes, last, side="left"))
        if stop - start >= _FEW_RUNS:
            return [(first, last)]
        return list(pairwise([first, *self.changes[start:stop].tolist(), last]))


def _integers(values, like):
    values = np.ascontiguousarray(values, dtype=np.int64)
    return torch.as_tensor(values, device=like.device)


def _numbers(values, like):
    values = np.ascontiguousarray(values)
    return torch.as_tensor(values, dtype=like.dtype, device=like.device)


class _Marked:
    """Some of the items of a sequence: their numbers, and how many come before each."""

    def __init__(self, flags, like):
        self.before = np.concatenate([[0], np.cumsum(flags)])
        self.numbers = _integers(np.flatnonzero(flags), like)

    def within(self, first: int, last: int) -> slice:
        """Return which of them are items `first` to `last`."""
        return _cut(self.before, first, last)


class _Terms:
    """A sparse matrix in CSR form that is multiplied by ranges of its rows."""

    def __init__(self, starts, columns, values, like):
        self.starts = starts
        self.rows = _integers(_owners(starts), like)
        self.columns = _integers(columns, like)
        self.values = _numbers(values, like)

    def times(self, dense: Any, first: int, last: int, column: int = 0) -> Any:
        """Return rows `first` to `last` times `dense`, whose rows begin at `column`."""
        chosen = _cut(self.starts, first, last)
        places = torch.stack([self.rows[chosen] - first, self.columns[chosen] - column])
        size = (last - first, len(dense))
        return torch.sparse.mm(_matrix(places, self.values[chosen], size), dense)


def _matrix(places, values, size):
    """Return a sparse matrix from entries sorted by row."""
    options: dict[str, Any] = {"is_coalesced": True, "check_invariants": False}
    return torch.sparse_coo_tensor(places, values, size, **options)


def _owners(starts):
    """Return the index of each item's segment."""
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def _cut(starts, first, last):
    """Return the items of segments `first` to `last`."""
    return slice(int(starts[first]), int(starts[last]))


def product(owner, name, matrix, values):
    """Return matrix·values for a CSR matrix, which `owner` knows as `name`."""

    def places() -> np.ndarray:
        return np.stack([_owners(matrix.indptr), matrix.indices]).astype(np.int64)

    where = constant(owner, (name, "places"), values, places)
    entries = constant(owner, (name, "values"), values, lambda: matrix.data)
    return torch.sparse.mm(_matrix(where, entries, matrix.shape), values)


def sparse_map(entries, like):
    """Return entries for rows like `like`, restricted to the slots read, and these."""
    compact, used = entries.compact()
    return TensorEntries(compact, like), used


def _blocks(X, reads, entries, first, last):
    """Yield (rows, first entry, last entry, amplitudes, phases) of blocks of entries.

    Amplitudes and phases are (entries, rows), or None if there are none.
    """
    size = _BLOCK if X.device.type != "cpu" else min(_BLOCK, _CPU_BLOCK)
    n_rows = max(1, size // max(entries.max_factors, len(reads), 1))
    for start in range(0, len(X), n_rows):
        rows = slice(start, min(start + n_rows, len(X)))
        # Columns outermost, so that a term of a sparse sum is a run of rows.
        table = torch.index_select(X[rows].T, 0, reads).contiguous()
        block_length = max(size // table.shape[1], 1)
        begin = first
        while begin < last:
            within = entries.factor_starts[begin] + block_length
            end = int(np.searchsorted(entries.factor_starts, within, side="right")) - 1
            end = min(max(end, begin + 1), begin + block_length, last)
            yield rows, begin, end, *_amplitudes_and_phases(table, entries, begin, end)
            begin = end


def _amplitudes_and_phases(table, entries, first, last):
    """Return amplitudes and phases of entries for a table of columns, or None."""
    amplitude = phase = None
    if entries.has_phases:
        phase = entries.phases.times(table, first, last)
        shifted = entries.shifted.within(first, last)
        if shifted.start < shifted.stop:
            phase = phase + entries.shifts[first:last]
    factor_range = _cut(entries.factor_starts, first, last)
    low, high = factor_range.start, factor_range.stop
    if low < high:
        factors = entries.forms.times(table, low, high)
        spins = entries.spins.within(low, high)
        if spins.start < spins.stop:
            factors, angles = _turning(table, entries, factors, low, spins)
            turned = entries.turns.times(angles, first, last, spins.start)
            phase = turned if phase is None else phase + turned
        powered = entries.powered.within(low, high)
        if powered.start < powered.stop:
            at = entries.powered.numbers[powered] - low
            raised = factors[at] ** entries.powers[powered]
            factors = factors.index_copy(0, at, raised)
        cuts = entries.segments[first : last + 1] - low
        amplitude = torch.segment_reduce(
            factors, "prod", offsets=cuts, axis=0, unsafe=True, initial=1.0
        )
    return amplitude, phase


def _turning(table, entries, factors, low, spins):
    """Return factors with complex ones replaced by their moduli, and their angles.

    The index of the first factor is `low`.
    """
    imag = table[entries.imag_slots[spins]] * entries.imag_coefs[spins]
    if len(imag) == len(factors):
        return _polar(factors, imag)
    at = entries.spins.numbers[spins] - low
    sizes, angles = _polar(factors[at], imag)
    return factors.index_copy(0, at, sizes), angles


def _polar(real, imag):
    """Return moduli and angles; at 0, where they have no gradient, it is set to 0."""
    if not is_tracked(real, imag):
        return torch.hypot(real, imag), torch.atan2(imag, real)
    zero = (real == 0) & (imag == 0)
    safe = torch.where(zero, 1.0, real)
    sizes = torch.where(zero, 0.0, torch.hypot(safe, imag))
    return sizes, torch.atan2(imag, safe)


def sparse_features(X, reads, entries, first, last, out):
    """Write the columns of entries `first` to `last` for every row."""
    origin = int(entries.columns[first])
    for rows, begin, end, amplitude, phase in _blocks(X, reads, entries, first, last):
        for low, high in entries.runs(begin, end):
            part = slice(low - begin, high - begin)
            columns = slice(
                int(entries.columns[low]) - origin, int(entries.columns[high]) - origin
            )
            _write(
                entries,
                low,
                high,
                out[rows, columns],
                None if amplitude is None else amplitude[part],
                None if phase is None else phase[part],
            )


def _write(entries, first, last, out, amplitude, phase):
    """Write the columns of entries whose amplitudes and phases are (entries, rows)."""
    n_entries, n_pairs = last - first, out.shape[1] - (last - first)
    size = entries.weights[first:last]
    size = size if amplitude is None else size * amplitude
    if n_pairs in (0, n_entries):
        cosines = None if phase is None else torch.cos(phase)
        _write_product(size, cosines, out[:, :: 2 if n_pairs else 1])
        if n_pairs and phase is None:
            out[:, 1::2] = 0.0
        elif n_pairs:
            _write_product(size, torch.sin(phase), out[:, 1::2])
        return
    columns = entries.first_columns[first:last] - int(entries.columns[first])
    cosines = size if phase is None else torch.cos(phase) * size
    cosines = cosines.expand(n_entries, len(out))
    out.index_copy_(1, columns, cosines.T)
    pairs = entries.paired.numbers[entries.paired.within(first, last)] - first
    sines = torch.zeros_like(cosines) if phase is None else torch.sin(phase) * size
    out.index_copy_(1, columns[pairs] + 1, sines[pairs].T)


def _write_product(sizes, waves, out):
    """Write sizes times waves (None: 1), both (entries, rows) or (entries, 1)."""
    if waves is None or is_tracked(sizes, waves, out):
        out[...] = (sizes if waves is None else sizes * waves).T
    else:
        torch.mul(waves.T, sizes.T, out=out)


def sparse_phases(X, reads, entries, first, last, out):
    """Write the phases of entries `first` to `last`, (n, last - first)."""
    for rows, begin, end, _, phase in _blocks(X, reads, entries, first, last):
        out[rows, begin - first : end - first] = 0.0 if phase is None else phase.T


def sparse_polar(X, reads, entries, first, last):
    """Return amplitudes and phases of entries, (n, last - first) each.

    Real factors may make an amplitude negative.
    """
    shape = len(X), last - first
    amplitudes = X.new_ones(shape)
    phases = X.new_zeros(shape)
    for rows, begin, end, amplitude, phase in _blocks(X, reads, entries, first, last):
        columns = slice(begin - first, end - first)
        if amplitude is not None:
            amplitudes[rows, columns] = amplitude.T
        if phase is not None:
            phases[rows, columns] = phase.T
    return amplitudes, phases
