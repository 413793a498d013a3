"""Random features of a skeleton as a projection: drawn, or listed if few.

Entries of the projection are sums of phases, or products if base features do not have
modulus 1. They are drawn from the stream on first use and cached for the lifetime of
the object; only the stream and the skeleton are pickled.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from randkern._validation import Array, Rows, densify
from randkern.backend.namespace import ops_of
from randkern.backend.paths import COUNT, CYCLE, Draws, PathTables, collect
from randkern.backend.sparse_phases import SparseEntries
from randkern.projections import Projection
from randkern.skeletons.activations import MAX_DEGREE
from randkern.skeletons.bases import Binary
from randkern.skeletons.graph import offsets
from randkern.skeletons.skeleton import Skeleton

# A sorted list of (symbol, exponent), as a tuple.
_Word = tuple[tuple[int, int], ...]
# The probability of every word.
_Distribution = dict[_Word, float]
_ZERO = 2**31
# Products of distributions are formed while they take at most this many steps, in total
# or per column: the products of pairs of n words are n(n + 1)/2 words, in n² steps.
_MAX_STEPS = 50_000
_STEPS_PER_COLUMN = 3
_MAX_DEGREES = 64


def exact_support(
    skeleton: Skeleton, n_columns: int
) -> tuple[Draws, np.ndarray, float] | None:
    """Return all features, their probabilities, and that of the constant feature.

    Return None if they need more than `n_columns` columns or too long to list: more
    than 64 degrees at a node, or than three products per column (and 50,000), unless
    they are the characters of a group with about as many elements.
    """
    bases = skeleton.graph.bases
    if not all(base.discrete for base in bases):
        return None
    distribution = None
    if all(base.merging == "cycle" for base in bases):
        distribution = _group_distribution(skeleton, n_columns)
    if distribution is None:
        distribution = _series_distribution(skeleton, n_columns)
    tables = skeleton.alphabet.tables
    return None if distribution is None else _as_draws(distribution, tables, n_columns)


def _group_distribution(skeleton: Skeleton, n_columns: int) -> _Distribution | None:
    """Return the distribution of features over categories, by a Fourier transform.

    The features are the characters of a finite group, and the kernel is a function of
    the difference of two group elements: its Fourier transform gives the probabilities
    for any activations.
    """
    alphabet = skeleton.alphabet
    moduli = alphabet.tables.modulus
    if np.sum(np.log2(moduli)) > np.log2(n_columns) + 1:
        return None
    shape = tuple(int(m) for m in moduli)
    codes = np.indices(shape).reshape(len(shape), -1)
    rows = np.zeros((codes.shape[1], skeleton.n_features))
    columns = alphabet.slot_columns
    # Every column must have one slot: it may not be both a category and a sign.
    if len(np.unique(columns)) < len(columns):
        return None
    for column, kind, code in zip(columns, alphabet.slot_bases, codes, strict=True):
        is_sign = isinstance(alphabet.graph.bases[kind], Binary)
        rows[:, column] = 1 - 2 * code if is_sign else code
    values = skeleton.recursion.gram(rows, rows[:1])[:, 0].reshape(shape)
    transform = np.fft.fftn(values).real.ravel() / values.size
    return {
        tuple((int(s), int(exponent[s])) for s in np.flatnonzero(exponent)): float(p)
        for exponent, p in zip(codes.T, transform, strict=True)
        if p > 1e-15
    }


def _series_distribution(skeleton: Skeleton, n_columns: int) -> _Distribution | None:
    """Return the distribution of features, by recursion over the graph."""
    graph = skeleton.graph
    if any(len(d.probabilities) > _MAX_DEGREES for d in graph.distributions):
        return None
    tables = skeleton.alphabet.tables
    budget = max(_MAX_STEPS, _STEPS_PER_COLUMN * n_columns)
    distributions = [_input_distribution(tables, i) for i in range(graph.n_inputs)]
    for i, kind in enumerate(graph.activation.tolist()):
        sources = graph.entering(i).tolist()
        mean: _Distribution = defaultdict(float)
        for source in sources:
            for word, p in distributions[source].items():
                mean[word] += p / len(sources)
        # Σ aₗ meanˡ; conjugates share one feature of two columns, so that there are at
        # most as many words as columns.
        distribution: _Distribution = defaultdict(float)
        power: _Distribution = {(): 1.0}
        shares = graph.distributions[kind].probabilities.tolist()
        for degree, share in enumerate(shares):
            if degree:
                budget -= len(power) * len(mean)
                product = None
                if budget >= 0:
                    product = _product_distribution(power, mean, tables, n_columns)
                if product is None:
                    return None
                power = product
            if share:
                for word, p in power.items():
                    distribution[word] += share * p
            if len(distribution) > n_columns:
                return None
        distributions.append(distribution)
    return distributions[-1]


def _input_distribution(tables: PathTables, i: int) -> _Distribution:
    """Return the distribution of the base feature of input i: one symbol to a power."""
    first = int(tables.first_symbol[i])
    n_symbols = int(tables.n_symbols[i])
    top = int(tables.exponents[i])
    exponents = [-1, 1] if top == -1 else range(1, top + 1)
    distribution: _Distribution = defaultdict(float)
    for symbol in range(first, first + n_symbols):
        for exponent in exponents:
            word = _product((), ((symbol, exponent),), tables)
            distribution[word] += 1.0 / (n_symbols * len(exponents))
    return distribution


def _product_distribution(
    first: _Distribution,
    second: _Distribution,
    tables: PathTables,
    max_words: int,
) -> _Distribution | None:
    """Return the distribution of products of independent features, if it is short."""
    distribution: _Distribution = defaultdict(float)
    for word, p in first.items():
        for other, q in second.items():
            distribution[_product(word, other, tables)] += p * q
        if len(distribution) > max_words:  # stop before multiplying the rest
            return None
    return distribution


def _product(first: _Word, second: _Word, tables: PathTables) -> _Word:
    exponents = dict(first)
    for symbol, exponent in second:
        total = exponents.get(symbol, 0) + exponent
        if tables.merging[symbol] == CYCLE:
            total %= int(tables.modulus[symbol])
        exponents[symbol] = total
    return tuple(sorted((s, e) for s, e in exponents.items() if e))


def _conjugate(word: _Word, tables: PathTables) -> _Word:
    out = []
    for symbol, exponent in word:
        merging = tables.merging[symbol]
        if merging == COUNT:
            out.append((int(tables.conjugate[symbol]), exponent))
        else:  # modulo 0 where exponents add
            out.append((symbol, int(tables.modulus[symbol]) - exponent))
    return tuple(sorted(out))


def _as_draws(
    distribution: _Distribution, tables: PathTables, n_columns: int
) -> tuple[Draws, np.ndarray, float] | None:
    """Return the features of a distribution up to conjugation, if they fit."""
    constant = distribution.pop((), 0.0)
    merged: _Distribution = defaultdict(float)
    for word, p in distribution.items():
        merged[min(word, _conjugate(word, tables))] += p
    is_real = np.array([w == _conjugate(w, tables) for w in merged], dtype=bool)
    if (constant > 0) + 2 * len(merged) - int(is_real.sum()) > n_columns:
        return None
    packed = [(s << 32) + e + _ZERO for word in merged for s, e in word]
    draws = Draws(
        np.cumsum([0, *(len(word) for word in merged)]),
        np.array(packed, dtype=np.int64),
        np.arange(len(merged)),
        np.ones(len(merged), dtype=np.int64),
        is_real,
        len(merged),
        0,
        len(packed),
    )
    return draws, np.array(list(merged.values()), dtype=float), constant


# A skeleton whose features meet more inputs than this on average is a mistake.
_MAX_FACTORS = 1e6
# The step omits 0.0025; beyond this, features would be those of another kernel.
_MAX_OMITTED = 0.05
# Smallest probability that a path reaches an input; other draws are wasted.
_MIN_MET = 1e-4
# Draws per column in the search for new features when few are likely.
_DRAWS_PER_COLUMN = 50


def min_columns(skeleton: Skeleton) -> int:
    """Return the smallest number of columns that :class:`SkeletonColumns` can fill."""
    return 2 if _is_never_real(skeleton) or skeleton.is_real else 4


def _is_never_real(skeleton: Skeleton) -> bool:
    """Return whether no feature of a skeleton except the constant is real."""
    return all(base.never_real for base in skeleton.graph.bases)


def has_constant(skeleton: Skeleton) -> bool:
    """Return whether a feature of a skeleton can be constant."""
    bases, distributions = skeleton.graph.bases, skeleton.graph.distributions
    if skeleton.constant_probability() > 0:
        return True
    # A draw that reaches inputs may cancel.
    once = all(len(degrees.probabilities) <= 2 for degrees in distributions)
    merging = () if once else ("add", "cycle")
    return any(b.exponents == "cycle" or b.merging in merging for b in bases)


def _check_cost(skeleton: Skeleton) -> None:
    """Raise if degrees or numbers of factors are too large to draw."""
    for activation, degrees in zip(
        skeleton.graph.activations, skeleton.graph.distributions, strict=True
    ):
        if degrees.omitted > _MAX_OMITTED:
            raise ValueError(
                f"degrees of {activation!r} above {MAX_DEGREE:,}, which are never "
                f"drawn, have probability {degrees.omitted:.2g}, too much to omit; use "
                "an activation with a smaller slope at 1, or the exact kernel "
                "(n_components=None)."
            )
    factors = skeleton.complexity(truncated=True)
    if factors > _MAX_FACTORS:
        raise ValueError(
            f"a random feature of {skeleton!r} is a product of {factors:.3g} base "
            f"features on average, expected at most {_MAX_FACTORS:g}; use fewer "
            "layers, activations with a smaller slope at 1, or the exact kernel "
            "(n_components=None)."
        )


def _check_rarity(skeleton: Skeleton) -> None:
    """Raise if features that reach an input are too rare to draw.

    Walks are drawn on the condition that they leave the output.
    """
    graph = skeleton.graph
    leaving = 1 - graph.distributions[graph.activation[-1]].probabilities[0]
    met = (1 - skeleton.constant_probability()) / leaving
    if met < _MIN_MET:
        raise ValueError(
            f"only a share of {met:.2g} of the random paths of {skeleton!r} reaches an "
            "input, the others give the constant feature; use fewer layers, "
            "activations with a larger slope at 1, constant='sampled', or the exact "
            "kernel (n_components=None)."
        )


@dataclass(frozen=True, eq=False)
class SkeletonPaths(Projection):
    """Independent draws of Algorithm 1 of Daniely et al. 2017, one per entry."""

    name: ClassVar[str] = "paths"

    skeleton: Skeleton = field(kw_only=True)

    def project(self, X: Rows, start: int, stop: int) -> Any:
        """Return the phases of draws `start` to `stop`.

        They are signed real values if the skeleton is real, and (amplitudes, phases) if
        base features do not have modulus 1.
        """
        ops = ops_of(X)
        entries, used = self.drawn(X)
        read = *self._slots(X, used), entries, start, stop
        if not self.skeleton.is_unit and not self.skeleton.is_real:
            return ops.sparse.sparse_polar(*read)
        values = ops.empty((X.shape[0], stop - start), X)
        if self.skeleton.is_real:
            ops.sparse.sparse_features(*read, values)
        else:
            ops.sparse.sparse_phases(*read, values)
        return values

    def _slots(self, X: Rows, used: np.ndarray) -> tuple[Any, Any]:
        """Return an array with slots as columns, and the columns of slots `used`."""
        # A point outside its space would be taken for another point.
        self.skeleton.recursion.check(X)
        return self.skeleton.alphabet.slots(densify(X), used, self)

    def drawn(self, like: Array) -> tuple[Any, np.ndarray]:
        """Return the entries of all draws, and the slots that they read.

        They have the dtype and device of `like`, and are cached.
        """
        sparse = ops_of(like).sparse
        return self.cached(like, lambda: sparse.sparse_map(self._drawn(), like))

    def _drawn(self) -> SparseEntries:
        _check_cost(self.skeleton)
        alphabet = self.skeleton.alphabet
        n = self.n_draws
        draws = collect(
            alphabet.tables, self.stream.key, n, n, canonical=False, width=1
        )
        width = 1 if self.skeleton.is_real else 2
        return alphabet.entries(
            draws,
            self.stream.child("normals").key,
            np.ones(n),
            np.zeros(n),
            width * np.arange(n + 1),
        )

    def stored_bytes(self, itemsize: int) -> int:
        """Return the approximate memory of the drawn integers."""
        factors = min(self.skeleton.complexity(truncated=True), _MAX_FACTORS)
        reads = max(base.width for base in self.skeleton.graph.bases)
        return int(self.n_draws * (80 + factors * (24 + reads * (16 + itemsize))))


@dataclass(frozen=True, eq=False)
class SkeletonColumns(SkeletonPaths):
    """Columns of features, with equal draws merged and a separate constant feature.

    `n_draws` is the number of columns. With `analytic`, the first holds the constant
    feature, if there is one, with weight √P₀, where P₀ is its probability; the others
    are drawn on the condition that they reach an input, and share 1 − P₀. With
    `merged`, equal or conjugate draws are one entry of weight √(count/N), where N
    counts the draws before the first that does not fit, which keeps the mean unbiased.
    If the skeleton has no more features than columns, they are listed with their
    probabilities instead of drawn, and the kernel is exact. Columns without a feature
    are zero.
    """

    name: ClassVar[str] = "columns"
    writes_columns: ClassVar[bool] = True

    merged: bool = True
    analytic: bool = True

    def write_columns(
        self, X: Rows, start: int, stop: int, weight: float, out: Array
    ) -> None:
        """Write columns `start` to `stop` of the features, times `weight`."""
        ops = ops_of(X)
        entries, used = self.drawn(X)
        first = int(np.searchsorted(entries.columns, start, side="right")) - 1
        last = int(np.searchsorted(entries.columns, stop, side="left"))
        low = int(entries.columns[first])
        high = int(entries.columns[last])
        read = *self._slots(X, used), entries, first, last
        if (low, high) == (start, stop):
            ops.sparse.sparse_features(*read, out)
        else:
            # A range that splits a pair is written through a copy with whole pairs.
            copy = ops.empty((X.shape[0], high - low), X)
            ops.sparse.sparse_features(*read, copy)
            out[:] = copy[:, start - low : stop - low]
        if weight != 1.0:
            out *= weight

    def _drawn(self) -> SparseEntries:
        _check_cost(self.skeleton)
        alphabet = self.skeleton.alphabet
        if self.merged:
            listed = exact_support(self.skeleton, self.n_draws)
            if listed is not None:
                draws, probabilities, constant = listed
                return self._laid_out(draws, probabilities, constant, constant > 0)
        p0 = self.skeleton.constant_probability() if self.analytic else 0.0
        reserved = has_constant(self.skeleton)
        room = self.n_draws - reserved
        if _is_never_real(self.skeleton):
            room += room % 2  # the last entry may show only one of its two columns
        if p0 > 1 - 1e-12:
            p0, room = 1.0, 0
        elif p0 > 0:
            _check_rarity(self.skeleton)
        # Without merging, every draw except empty ones takes a column.
        limit = _DRAWS_PER_COLUMN * room + 1000 if self.merged else 2**62
        draws = collect(
            alphabet.tables,
            self.stream.key,
            room,
            limit if room else 0,
            conditional=p0 > 0,
            merge=self.merged,
        )
        total = max(draws.n_counted, 1)
        probabilities = (1 - p0) * draws.counts / total
        constant = p0 + (1 - p0) * draws.n_empty / total
        return self._laid_out(draws, probabilities, constant, reserved)

    def _laid_out(
        self,
        draws: Draws,
        probabilities: np.ndarray,
        constant: float,
        reserved: bool,
    ) -> SparseEntries:
        """Return entries with their columns: the constant, the draws, and zeros."""
        widths = np.where(draws.is_real, 1, 2)
        weights = np.sqrt(probabilities)
        shifts = np.zeros(len(weights))
        over = int(reserved) + int(widths.sum()) - self.n_draws
        if over > 0:
            # If one column is left for a pair: √2·cos(phase + b), b uniform.
            generator = self.stream.child("offset").generator()
            widths[-1] = 1
            weights[-1] *= math.sqrt(2)
            shifts[-1] = 2 * math.pi * generator.random()
        margins = int(reserved), self.n_draws - int(reserved) - int(widths.sum())
        weights = np.pad(weights, margins)
        weights[: margins[0]] = math.sqrt(constant)
        padded = draws._replace(
            starts=np.pad(draws.starts, margins, mode="edge"),
            first=np.pad(draws.first, margins),
        )
        return self.skeleton.alphabet.entries(
            padded,
            self.stream.child("normals").key,
            weights,
            np.pad(shifts, margins),
            offsets(np.pad(widths, margins, constant_values=1)),
        )
