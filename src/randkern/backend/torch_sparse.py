"""Features whose phases are sparse sums of the columns of a row, for tensors.

These are the functions of :mod:`randkern.backend.sparse_phases`. The draws are on the
device; a block of features takes a few products of sparse matrices with the columns
that they read, cosines and sines, and, if base features do not have modulus 1, products
over segments. On a GPU these are some ten to twenty kernels per block of eight million
numbers, each with only a few operations per number: they are bound by reading and
writing the temporary arrays of a block, some four times the size of the features, and
more if features have factors.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from randkern.backend.sparse_phases import SparseEntries
from randkern.backend.torch_constants import constant
from randkern.backend.torch_trig import is_tracked

# Size of a temporary array of entries, or factors, by rows. On a CPU, with no thousands
# of units to keep busy, small ones are better.
_BLOCK, _CPU_BLOCK = 2**23, 2**20
_FEW_RUNS = 4


class TensorEntries:
    """Entries of a sparse map, stored on a device.

    The host also stores where entries, factors and terms begin, to slice blocks.

    Parameters
    ----------
    entries : SparseEntries
    like : Tensor
        Gives the dtype and the device.
    """

    def __init__(self, entries: SparseEntries, like: Any):
        self.columns = entries.columns
        self.starts, self.factor_starts = entries.starts, entries.factor_starts
        self.real_starts = entries.real_starts
        widths = np.diff(entries.columns)
        paired = np.flatnonzero(widths == 2)
        self.paired_starts = _counts_before(widths == 2)
        spins = entries.imag_slots >= 0
        self.spin_starts = _counts_before(spins)
        counts = np.diff(entries.factor_starts)
        self.most_factors = int(counts.max(initial=0))
        self.shift_starts = _counts_before(entries.shifts != 0)
        self.has_phases = len(entries.coefs) + self.shift_starts[-1] > 0
        powered = entries.powers != 1
        self.powered_starts = _counts_before(powered)
        #: Where entries of one column follow entries of two, or the reverse.
        self.changes = np.flatnonzero(np.diff(widths)) + 1

        def integers(values: np.ndarray) -> Any:
            values = np.ascontiguousarray(values, dtype=np.int64)
            return torch.as_tensor(values, device=like.device)

        def numbers(values: np.ndarray) -> Any:
            values = np.ascontiguousarray(values)
            return torch.as_tensor(values, dtype=like.dtype, device=like.device)

        self.first_columns = integers(entries.columns[:-1])
        self.paired = integers(paired)
        self.weights = numbers(entries.weights)[:, None]
        self.shifts = numbers(entries.shifts)[:, None]
        self.phases = _Terms(
            integers(_owners(entries.starts)),
            *(integers(entries.slots), numbers(entries.coefs)),
        )
        self.segments = integers(entries.factor_starts)
        self.powered = integers(np.flatnonzero(powered))
        self.powers = numbers(entries.powers[powered])[:, None]
        self.forms = _Terms(
            integers(_owners(entries.real_starts)),
            *(integers(entries.real_slots), numbers(entries.real_coefs)),
        )
        # Factors with an imaginary part: their angles times powers add to the phase.
        self.spins = integers(np.flatnonzero(spins))
        self.imag_slots = integers(entries.imag_slots[spins])
        self.imag_coefs = numbers(entries.imag_coefs[spins])[:, None]
        owners = _owners(entries.factor_starts)[spins]
        self.turns = _Terms(
            integers(owners),
            *(integers(np.arange(len(owners))), numbers(entries.powers[spins])),
        )

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


class _Terms:
    """A sparse matrix that is multiplied by ranges of its rows."""

    def __init__(self, rows: Any, columns: Any, values: Any):
        self.rows, self.columns, self.values = rows, columns, values

    def times(
        self,
        dense: Any,
        first: int,
        last: int,
        terms: tuple[int, int],
        column: int = 0,
    ) -> Any:
        """Return rows `first` to `last`, whose entries are `terms`, times `dense`.

        The first row of `dense` belongs to column `column`.
        """
        chosen = slice(*terms)
        places = torch.stack([self.rows[chosen] - first, self.columns[chosen] - column])
        size = (last - first, len(dense))
        return torch.sparse.mm(_matrix(places, self.values[chosen], size), dense)


def _matrix(places: Any, values: Any, size: tuple[int, int]) -> Any:
    """Return a sparse matrix from entries sorted by row."""
    options: dict[str, Any] = {"is_coalesced": True, "check_invariants": False}
    return torch.sparse_coo_tensor(places, values, size, **options)


def _owners(starts: np.ndarray) -> np.ndarray:
    """Return the index of each item's segment."""
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def _counts_before(flags: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(flags)])


def _cut(starts: np.ndarray, first: int, last: int) -> tuple[int, int]:
    """Return where the items of segments `first` to `last` begin and end."""
    return int(starts[first]), int(starts[last])


def product(owner: Any, name: Any, matrix: Any, values: Any) -> Any:
    """Return matrix·values for a CSR matrix, which `owner` knows as `name`."""

    def places() -> np.ndarray:
        return np.stack([_owners(matrix.indptr), matrix.indices]).astype(np.int64)

    where = constant(owner, (name, "places"), values, places)
    entries = constant(owner, (name, "values"), values, lambda: matrix.data)
    return torch.sparse.mm(_matrix(where, entries, matrix.shape), values)


def sparse_map(entries: SparseEntries, like: Any) -> tuple[TensorEntries, np.ndarray]:
    """Return entries for rows like `like`, restricted to the slots read, and these."""
    compact, used = entries.compact()
    return TensorEntries(compact, like), used


def _blocks(
    X: Any, reads: Any, entries: TensorEntries, first: int, last: int
) -> Iterator[tuple[slice, int, int, Any, Any]]:
    """Yield (rows, first entry, last entry, amplitudes, phases) of blocks of entries.

    Amplitudes and phases are (entries, rows), or None if there are none.
    """
    size = _BLOCK if X.device.type != "cpu" else min(_BLOCK, _CPU_BLOCK)
    n_rows = max(1, size // max(entries.most_factors, len(reads), 1))
    for start in range(0, len(X), n_rows):
        rows = slice(start, min(start + n_rows, len(X)))
        # Columns outermost, so that a term of a sparse sum is a run of rows.
        table = torch.index_select(X[rows].T, 0, reads).contiguous()
        most = max(size // table.shape[1], 1)
        begin = first
        while begin < last:
            within = entries.factor_starts[begin] + most
            end = int(np.searchsorted(entries.factor_starts, within, side="right")) - 1
            end = min(max(end, begin + 1), begin + most, last)
            yield rows, begin, end, *_amplitudes_and_phases(table, entries, begin, end)
            begin = end


def _amplitudes_and_phases(
    table: Any, entries: TensorEntries, first: int, last: int
) -> tuple[Any, Any]:
    amplitude = phase = None
    if entries.has_phases:
        terms = _cut(entries.starts, first, last)
        phase = entries.phases.times(table, first, last, terms)
        if entries.shift_starts[first] < entries.shift_starts[last]:
            phase = phase + entries.shifts[first:last]
    low, high = _cut(entries.factor_starts, first, last)
    if low < high:
        terms = _cut(entries.real_starts, low, high)
        factors = entries.forms.times(table, low, high, terms)
        spins = _cut(entries.spin_starts, low, high)
        if spins[0] < spins[1]:
            factors, angles = _turning(table, entries, factors, low, spins)
            turned = entries.turns.times(angles, first, last, spins, spins[0])
            phase = turned if phase is None else phase + turned
        powered = slice(*_cut(entries.powered_starts, low, high))
        if powered.start < powered.stop:
            at = entries.powered[powered] - low
            raised = factors[at] ** entries.powers[powered]
            factors = factors.index_copy(0, at, raised)
        cuts = entries.segments[first : last + 1] - low
        amplitude = torch.segment_reduce(
            factors, "prod", offsets=cuts, axis=0, unsafe=True, initial=1.0
        )
    return amplitude, phase


def _turning(
    table: Any, entries: TensorEntries, factors: Any, low: int, spins: tuple[int, int]
) -> tuple[Any, Any]:
    """Return factors with complex ones replaced by their moduli, and their angles.

    The index of the first factor is `low`.
    """
    chosen = slice(*spins)
    imag = table[entries.imag_slots[chosen]] * entries.imag_coefs[chosen]
    if len(imag) == len(factors):
        return _polar(factors, imag)
    at = entries.spins[chosen] - low
    sizes, angles = _polar(factors[at], imag)
    return factors.index_copy(0, at, sizes), angles


def _polar(real: Any, imag: Any) -> tuple[Any, Any]:
    """Return moduli and angles; at 0, where they have no gradient, it is set to 0."""
    if not is_tracked(real, imag):
        return torch.hypot(real, imag), torch.atan2(imag, real)
    zero = (real == 0) & (imag == 0)
    safe = torch.where(zero, 1.0, real)
    sizes = torch.where(zero, 0.0, torch.hypot(safe, imag))
    return sizes, torch.atan2(imag, safe)


def sparse_features(
    X: Any, reads: Any, entries: TensorEntries, first: int, last: int, out: Any
) -> None:
    """Write the columns of entries `first` to `last` for every row."""
    origin = int(entries.columns[first])
    for rows, begin, end, amplitude, phase in _blocks(X, reads, entries, first, last):
        for low, high in entries.runs(begin, end):
            part = slice(low - begin, high - begin)
            left, right = (at - origin for at in _cut(entries.columns, low, high))
            _write(
                *(entries, low, high, out[rows, left:right]),
                None if amplitude is None else amplitude[part],
                None if phase is None else phase[part],
            )


def _write(
    entries: TensorEntries, first: int, last: int, out: Any, amplitude: Any, phase: Any
) -> None:
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
    pairs = entries.paired[slice(*_cut(entries.paired_starts, first, last))] - first
    sines = torch.zeros_like(cosines) if phase is None else torch.sin(phase) * size
    out.index_copy_(1, columns[pairs] + 1, sines[pairs].T)


def _write_product(sizes: Any, waves: Any, out: Any) -> None:
    """Write sizes times waves (None: 1), both (entries, rows) or (entries, 1)."""
    if waves is None or is_tracked(sizes, waves, out):
        out[...] = (sizes if waves is None else sizes * waves).T
    else:
        torch.mul(waves.T, sizes.T, out=out)


def sparse_phases(
    X: Any, reads: Any, entries: TensorEntries, first: int, last: int, out: Any
) -> None:
    """Write the phases of entries `first` to `last`, (n, last - first)."""
    for rows, begin, end, _, phase in _blocks(X, reads, entries, first, last):
        out[rows, begin - first : end - first] = 0.0 if phase is None else phase.T


def sparse_polar(
    X: Any, reads: Any, entries: TensorEntries, first: int, last: int
) -> tuple[Any, Any]:
    """Return amplitudes and phases of entries, (n, last - first) each.

    Real factors may make an amplitude negative.
    """
    shape = len(X), last - first
    amplitudes, phases = X.new_ones(shape), X.new_zeros(shape)
    for rows, begin, end, amplitude, phase in _blocks(X, reads, entries, first, last):
        columns = slice(begin - first, end - first)
        if amplitude is not None:
            amplitudes[rows, columns] = amplitude.T
        if phase is not None:
            phases[rows, columns] = phase.T
    return amplitudes, phases
