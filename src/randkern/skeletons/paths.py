"""Random features of a skeleton, as a projection.

Its entries are sums of phases, or products where base features are not of modulus 1.
They are drawn from the stream when they are first used and kept as long as the object
lives; what is pickled is the stream and the skeleton.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from randkern._validation import Rows, densify
from randkern.backend.namespace import ops_of
from randkern.backend.paths import Draws, collect
from randkern.backend.sparse_phases import SparseEntries
from randkern.projections import Projection
from randkern.skeletons.degrees import MAX_DEGREE
from randkern.skeletons.skeleton import Skeleton
from randkern.skeletons.support import exact_support

# A feature that meets more inputs than this on average is a mistake.
_MOST_FACTORS = 1e6
# The step omits 0.0025; beyond this, features are those of another kernel.
_MOST_OMITTED = 0.05
# The others of the paths are drawn in vain.
_LEAST_MET = 1e-4
# Where few features are likely, new ones are looked for in so many draws.
_DRAWS_A_COLUMN = 50


def least_columns(skeleton: Skeleton) -> int:
    """Return the least number of columns that :class:`SkeletonColumns` can fill."""
    return 2 if skeleton.alphabet.always_complex or skeleton.is_real else 4


def has_constant(skeleton: Skeleton) -> bool:
    """Tell whether a feature of a skeleton can be constant."""
    return skeleton.constant_probability() > 0 or skeleton.alphabet.can_cancel


def _check_cost(skeleton: Skeleton) -> None:
    """Raise where degrees or numbers of factors are too large to be drawn."""
    for activation, law in zip(
        skeleton.graph.activations, skeleton.graph.laws, strict=True
    ):
        if law.omitted > _MOST_OMITTED:
            raise ValueError(
                f"degrees of {activation!r} above {MAX_DEGREE:,}, which are not drawn, "
                f"have the probability {law.omitted:.2g}; use an activation of smaller "
                "slope at 1, or the exact kernel (n_components=None)."
            )
    factors = skeleton.complexity(truncated=True)
    if factors > _MOST_FACTORS:
        raise ValueError(
            f"a random feature of {skeleton!r} multiplies {factors:.3g} base features "
            "on average; use fewer layers or activations of smaller slope at 1, or the "
            "exact kernel (n_components=None)."
        )


def _check_rarity(skeleton: Skeleton) -> None:
    """Raise where features that meet an input are too rare to wait for.

    Walks are drawn on the condition that they leave the output.
    """
    graph = skeleton.graph
    leaving = 1 - graph.laws[graph.activation[-1]].probabilities[0]
    met = (1 - skeleton.constant_probability()) / leaving
    if met < _LEAST_MET:
        raise ValueError(
            f"of the random paths of {skeleton!r} a share of {met:.2g} meets an input, "
            "the others are constant; use fewer layers or activations of greater slope "
            "at 1, constant='sampled', or the exact kernel (n_components=None)."
        )


@dataclass(frozen=True, eq=False)
class SkeletonPaths(Projection):
    """Independent draws of Algorithm 1 of Daniely et al. 2017, one per entry.

    Parameters
    ----------
    skeleton : Skeleton
    """

    name: ClassVar[str] = "paths"

    skeleton: Skeleton = field(kw_only=True)

    def project(self, X: Rows, start: int, stop: int) -> Any:
        """Return the phases of draws `start` to `stop`.

        Real signed values where the skeleton is real; (amplitudes, phases) where base
        features are not of modulus 1.
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
        """Return an array whose columns are slots, and those of the slots `used`."""
        # A point outside its space would pass for another one.
        self.skeleton.recursion.check(X)
        return self.skeleton.alphabet.slots(densify(X), used, self)

    def drawn(self, like: Any) -> tuple[Any, np.ndarray]:
        """Return the numbers behind all draws, and the slots that they read.

        Of the dtype and on the device of `like`. They are kept from call to call.
        """
        sparse = ops_of(like).sparse
        return self.kept(like, lambda: sparse.sparse_map(self._drawn(), like))

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
        """Return about the memory that the drawn integers take."""
        factors = min(self.skeleton.complexity(truncated=True), _MOST_FACTORS)
        reads = max(base.width for base in self.skeleton.graph.bases)
        return int(self.n_draws * (80 + factors * (24 + reads * (16 + itemsize))))


@dataclass(frozen=True, eq=False)
class SkeletonColumns(SkeletonPaths):
    """Columns of features: equal draws merged, the constant feature taken apart.

    `n_draws` is the number of columns. The first holds the constant feature, if there
    is one, with the weight √P₀ of its probability where it is `analytic`; the others
    are then drawn on the condition that they meet an input, and share 1 − P₀. With
    `merged`, equal draws, or conjugate ones, are one entry of weight √(count/N): N
    counts the draws before the first for which no column is left, which keeps the mean
    unbiased. If the skeleton has no more features than columns, they are listed with
    their probabilities instead of drawn, and the kernel is exact. Columns without a
    feature are zero.

    Parameters
    ----------
    merged, analytic : bool
    """

    name: ClassVar[str] = "columns"

    merged: bool = True
    analytic: bool = True

    def write_columns(
        self, X: Rows, start: int, stop: int, weight: float, out: Any
    ) -> None:
        """Write columns `start` to `stop` of the features, times `weight`."""
        ops = ops_of(X)
        entries, used = self.drawn(X)
        first = int(np.searchsorted(entries.columns, start, side="right")) - 1
        last = int(np.searchsorted(entries.columns, stop, side="left"))
        low, high = int(entries.columns[first]), int(entries.columns[last])
        read = *self._slots(X, used), entries, first, last
        if (low, high) == (start, stop):
            ops.sparse.sparse_features(*read, out)
        else:
            # A range that splits a pair goes through a copy with whole pairs.
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
        if alphabet.always_complex:
            room += room % 2  # the last entry may show one column of its two
        if p0 > 1 - 1e-12:
            p0, room = 1.0, 0
        elif p0 > 0:
            _check_rarity(self.skeleton)
        # Without merging every draw but the empty ones takes a column.
        limit = _DRAWS_A_COLUMN * room + 1000 if self.merged else 2**62
        draws = collect(
            alphabet.tables,
            self.stream.key,
            room,
            limit if room else 0,
            conditional=p0 > 0,
            merge=self.merged,
        )
        total = max(draws.n_kept, 1)
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
            # One column left for a pair: √2·cos(phase + b), b uniform.
            generator = self.stream.child("offset").generator()
            widths[-1] = 1
            weights[-1] *= math.sqrt(2)
            shifts[-1] = 2 * math.pi * generator.random()
        before = int(reserved)
        after = self.n_draws - before - int(widths.sum())
        starts = np.concatenate(
            [np.zeros(before), draws.starts, np.full(after, draws.starts[-1])]
        ).astype(np.int64)
        padding = np.zeros(after)
        padded = draws._replace(
            starts=starts,
            first=np.concatenate([np.zeros(before), draws.first, padding]).astype(int),
        )
        return self.skeleton.alphabet.entries(
            padded,
            self.stream.child("normals").key,
            np.concatenate([[math.sqrt(constant)] * before, weights, padding]),
            np.concatenate([np.zeros(before), shifts, padding]),
            np.cumsum(np.concatenate([[0], [1] * before, widths, padding + 1])).astype(
                np.int64
            ),
        )
