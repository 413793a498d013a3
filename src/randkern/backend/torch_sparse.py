"""Features whose phases are sparse sums of the columns of a row, on tensors.

The functions of :mod:`randkern.backend.sparse_phases`, with the same meaning. What was
drawn lies on the device; a block of features is a few products of sparse matrices with
the columns that they read, cosines and sines, and, where base features are not of
modulus 1, products over segments. On a GPU these are some ten to twenty kernels for a
block of eight million numbers, none of which does more than a few operations a number:
what bounds them is reading and writing the temporary arrays of a block, some four times
what the features take, and more where features have factors.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from randkern.backend.sparse_phases import SparseEntries
from randkern.backend.torch_constants import constant
from randkern.backend.torch_trig import cos_sin_pairs

__all__ = [
    "TensorEntries",
    "product",
    "sparse_features",
    "sparse_map",
    "sparse_phases",
    "sparse_polar",
]

# Numbers of a temporary array: of entries, or factors, by rows.
_BLOCK = 2**23


class TensorEntries:
    """Entries of a sparse map: what is read on the device lies there.

    Where entries, factors and terms begin is known to the host, too, which cuts blocks
    out of them.

    Parameters
    ----------
    entries : SparseEntries
    like : Tensor
        Names the dtype and the device.
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
        self.has_powers = bool(np.any(entries.powers != 1))

        def integers(values: np.ndarray) -> Any:
            values = np.ascontiguousarray(values, dtype=np.int64)
            return torch.as_tensor(values, device=like.device)

        def numbers(values: np.ndarray) -> Any:
            values = np.ascontiguousarray(values)
            return torch.as_tensor(values, dtype=like.dtype, device=like.device)

        self.first_columns = integers(entries.columns[:-1])
        self.paired = integers(paired)
        self.weights = numbers(entries.weights)
        self.shifts = numbers(entries.shifts)[:, None]
        self.phases = _Terms(
            integers(_owners(entries.starts)),
            *(integers(entries.slots), numbers(entries.coefs)),
        )
        self.segments = integers(entries.factor_starts)
        self.powers = numbers(entries.powers)[:, None]
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


class _Terms:
    """A sparse matrix whose rows are cut out of it in ranges."""

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
        """Return rows `first` to `last`, which have the `terms`, times `dense`.

        The first row of `dense` belongs to the column `column`.
        """
        chosen = slice(*map(int, terms))
        places = torch.stack([self.rows[chosen] - first, self.columns[chosen] - column])
        size = (last - first, len(dense))
        return torch.sparse.mm(_matrix(places, self.values[chosen], size), dense)


def _matrix(places: Any, values: Any, size: tuple[int, int]) -> Any:
    """Return a sparse matrix whose entries are sorted by rows."""
    options: dict[str, Any] = {"is_coalesced": True, "check_invariants": False}
    return torch.sparse_coo_tensor(places, values, size, **options)


def _owners(starts: np.ndarray) -> np.ndarray:
    """Return the number of the segment of every item."""
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def _counts_before(flags: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(flags)])


def product(owner: Any, name: Any, matrix: Any, values: Any) -> Any:
    """Return matrix·values for a CSR matrix, the one called `name` of `owner`."""

    def places() -> np.ndarray:
        return np.stack([_owners(matrix.indptr), matrix.indices]).astype(np.int64)

    where = constant(owner, (name, "places"), values, places)
    entries = constant(owner, (name, "values"), values, lambda: matrix.data)
    return torch.sparse.mm(_matrix(where, entries, matrix.shape), values)


def sparse_map(entries: SparseEntries, like: Any) -> tuple[TensorEntries, np.ndarray]:
    """Return entries for rows like `like`, over the slots that they read; and these."""
    compact, used = entries.compact()
    return TensorEntries(compact, like), used


def _blocks(
    X: Any, reads: Any, entries: TensorEntries, first: int, last: int
) -> Iterator[tuple[slice, int, int, Any, Any]]:
    """Yield (rows, first entry, last entry, amplitudes, phases) of blocks of entries.

    Amplitudes and phases are (entries, rows), or None where there are none.
    """
    n_rows = max(1, _BLOCK // max(entries.most_factors, len(reads), 1))
    for start in range(0, len(X), n_rows):
        rows = slice(start, min(start + n_rows, len(X)))
        # Columns outermost: a term of a sparse sum is then a run of rows.
        table = torch.index_select(X[rows].T, 0, reads).contiguous()
        most = max(_BLOCK // table.shape[1], 1)
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
        terms = entries.starts[first], entries.starts[last]
        phase = entries.phases.times(table, first, last, terms)
        if entries.shift_starts[first] < entries.shift_starts[last]:
            phase = phase + entries.shifts[first:last]
    low, high = (int(entries.factor_starts[i]) for i in (first, last))
    if low < high:
        terms = entries.real_starts[low], entries.real_starts[high]
        factors = entries.forms.times(table, low, high, terms)
        spins = int(entries.spin_starts[low]), int(entries.spin_starts[high])
        if spins[0] < spins[1]:
            chosen = slice(*spins)
            at = entries.spins[chosen] - low
            imag = table[entries.imag_slots[chosen]] * entries.imag_coefs[chosen]
            sizes, angles = _polar(factors[at], imag)
            factors = factors.index_copy(0, at, sizes)
            turned = entries.turns.times(angles, first, last, spins, spins[0])
            phase = turned if phase is None else phase + turned
        if entries.has_powers:
            factors = factors ** entries.powers[low:high]
        cuts = entries.segments[first : last + 1] - low
        amplitude = torch.segment_reduce(
            factors, "prod", offsets=cuts, axis=0, unsafe=True, initial=1.0
        )
    return amplitude, phase


def _polar(real: Any, imag: Any) -> tuple[Any, Any]:
    """Return moduli and angles; their gradients are 0 at 0, where they have none."""
    zero = (real == 0) & (imag == 0)
    safe = torch.where(zero, 1.0, real)
    sizes = torch.where(zero, 0.0, torch.hypot(safe, imag))
    return sizes, torch.atan2(imag, safe)


def sparse_features(
    X: Any, reads: Any, entries: TensorEntries, first: int, last: int, out: Any
) -> None:
    """Write the columns of entries `first` to `last` for every row.

    Examples
    --------
    See :mod:`randkern.skeletons.paths`, which makes the entries.
    """
    origin = int(entries.columns[first])
    for rows, begin, end, amplitude, phase in _blocks(X, reads, entries, first, last):
        weights = entries.weights[begin:end]
        left, right = (int(entries.columns[i]) - origin for i in (begin, end))
        target = out[rows, left:right]
        amplitude = None if amplitude is None else amplitude.T
        if phase is None:
            size = weights if amplitude is None else weights * amplitude
            cosines, sines = size.expand(len(target), end - begin), None
        elif right - left == 2 * (end - begin):
            cos_sin_pairs(phase.T, weights, target, amplitude)
            continue
        else:
            size = weights if amplitude is None else weights * amplitude
            cosines, sines = torch.cos(phase.T) * size, torch.sin(phase.T) * size
        columns = entries.first_columns[begin:end] - (origin + left)
        target.index_copy_(1, columns, cosines)
        low, high = (int(entries.paired_starts[i]) for i in (begin, end))
        if low < high:
            which = entries.paired[low:high] - begin
            after = torch.zeros_like(cosines) if sines is None else sines
            target.index_copy_(1, columns[which] + 1, after[:, which])


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
