"""Skeletons of few features: all of them, with their probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from randkern.backend.paths import ADD, COUNT, CYCLE, Draws, PathTables
from randkern.skeletons.alphabet import Alphabet
from randkern.skeletons.bases import Binary

if TYPE_CHECKING:
    from randkern.skeletons.skeleton import Skeleton

# A list of (symbol, exponent) in order, as a tuple.
_Word = tuple[tuple[int, int], ...]
_ZERO = 2**31
# Products of laws are formed while they take no more than this many steps, or so many a
# column: all products of two of n words are n(n + 1)/2 words, in n² steps.
_MOST_STEPS, _STEPS_A_COLUMN = 50_000, 3
_MOST_DEGREES = 64


def exact_support(
    skeleton: Skeleton, n_columns: int
) -> tuple[Draws, np.ndarray, float] | None:
    """Return all features, their probabilities, and that of the constant one.

    None if they take more than `n_columns` columns, or too long to list: beyond 64
    degrees at a node, or three products per column (and 50,000), unless they are the
    characters of a group of about as many elements.
    """
    bases, alphabet = skeleton.graph.bases, skeleton.alphabet
    if not all(base.discrete for base in bases):
        return None
    law = None
    if all(base.merging == "cycle" for base in bases):
        law = _group_law(skeleton, alphabet, n_columns)
    if law is None:
        law = _series_law(skeleton, alphabet, n_columns)
    if law is None:
        return None
    return _as_draws(law, alphabet, n_columns)


def _group_law(
    skeleton: Skeleton, alphabet: Alphabet, n_columns: int
) -> dict[_Word, float] | None:
    """Return the law of features over categories: the transform of the kernel.

    The features are the characters of a finite group, and the kernel is a function of
    the difference of two of its elements: their probabilities are its Fourier
    transform, whatever the activations.
    """
    moduli = alphabet.tables.modulus
    if np.sum(np.log2(moduli)) > np.log2(n_columns) + 1:
        return None
    shape = tuple(int(m) for m in moduli)
    codes = np.stack([axis.ravel() for axis in np.indices(shape)], axis=1).astype(float)
    rows = np.zeros((len(codes), skeleton.n_features))
    # A column may be a category for one input and a sign for none other: one slot each.
    for slot, column in enumerate(alphabet.slot_columns):
        rows[:, column] = codes[:, slot]
    if len(set(alphabet.slot_columns.tolist())) < len(alphabet.slot_columns):
        return None
    for base, column in zip(
        _bases_of_slots(alphabet), alphabet.slot_columns, strict=True
    ):
        if isinstance(base, Binary):
            rows[:, column] = 1 - 2 * rows[:, column]
    values = skeleton.recursion.gram(rows, rows[:1])[:, 0].reshape(shape)
    transform = np.fft.fftn(values).real.ravel() / values.size
    exponents = np.stack([axis.ravel() for axis in np.indices(shape)], axis=1)
    return {
        tuple((int(s), int(exponent[s])) for s in np.flatnonzero(exponent)): float(p)
        for exponent, p in zip(exponents, transform, strict=True)
        if p > 1e-15
    }


def _bases_of_slots(alphabet: Alphabet) -> list[object]:
    """Return the base of every slot, where each input reads one."""
    return [alphabet.graph.bases[point[0]] for point in alphabet._points]


def _series_law(
    skeleton: Skeleton, alphabet: Alphabet, n_columns: int
) -> dict[_Word, float] | None:
    """Return the law of features by the recursion of the graph, over laws."""
    graph = skeleton.graph
    if any(len(law.probabilities) > _MOST_DEGREES for law in graph.laws):
        return None
    tables = alphabet.tables
    budget = [max(_MOST_STEPS, _STEPS_A_COLUMN * n_columns)]
    laws: list[dict[_Word, float]] = [
        _input_law(tables, i) for i in range(graph.n_inputs)
    ]
    for i, kind in enumerate(graph.activation.tolist()):
        sources = graph.sources[graph.starts[i] : graph.starts[i + 1]].tolist()
        mean: dict[_Word, float] = {}
        for source in sources:
            for word, p in laws[source].items():
                mean[word] = mean.get(word, 0.0) + p / len(sources)
        # Conjugates are one feature of two columns: words are no more than columns.
        law = _composed(mean, graph.laws[kind].probabilities, tables, n_columns, budget)
        if law is None:
            return None
        laws.append(law)
    return laws[-1]


def _input_law(tables: PathTables, i: int) -> dict[_Word, float]:
    first, n_symbols = tables.first_symbol[i], tables.n_symbols[i]
    top = int(tables.exponents[i])
    exponents = [1] if top == 1 else [-1, 1] if top == -1 else range(1, top + 1)
    law: dict[_Word, float] = {}
    for symbol in range(int(first), int(first + n_symbols)):
        for exponent in exponents:
            word = _product((), ((symbol, exponent),), tables)
            share = 1.0 / (n_symbols * len(exponents))
            law[word] = law.get(word, 0.0) + share
    return law


def _composed(
    mean: dict[_Word, float],
    probabilities: np.ndarray,
    tables: PathTables,
    n_columns: int,
    budget: list[int],
) -> dict[_Word, float] | None:
    """Return Σ aₗ meanˡ, None if it is too long."""
    out: dict[_Word, float] = {}
    power: dict[_Word, float] = {(): 1.0}
    for degree, share in enumerate(probabilities.tolist()):
        if degree:
            budget[0] -= len(power) * len(mean)
            if budget[0] < 0:
                return None
            before, power = power, {}
            for word, p in before.items():
                for other, q in mean.items():
                    joined = _product(word, other, tables)
                    power[joined] = power.get(joined, 0.0) + p * q
                if len(power) > n_columns:  # before the rest is multiplied in vain
                    return None
        if share:
            for word, p in power.items():
                out[word] = out.get(word, 0.0) + share * p
        if len(out) > n_columns:
            return None
    return out


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
        if merging == ADD:
            out.append((symbol, -exponent))
        elif merging == CYCLE:
            out.append((symbol, int(tables.modulus[symbol]) - exponent))
        else:
            assert merging == COUNT
            out.append((int(tables.conjugate[symbol]), exponent))
    return tuple(sorted(out))


def _as_draws(
    law: dict[_Word, float], alphabet: Alphabet, n_columns: int
) -> tuple[Draws, np.ndarray, float] | None:
    """Return the features of a law up to conjugation, if there is room for them."""
    tables = alphabet.tables
    constant = law.pop((), 0.0)
    merged: dict[_Word, float] = {}
    real: dict[_Word, bool] = {}
    for word, p in law.items():
        other = _conjugate(word, tables)
        chosen = min(word, other)
        merged[chosen] = merged.get(chosen, 0.0) + p
        real[chosen] = word == other
    is_real = np.array([real[word] for word in merged], dtype=bool)
    if (constant > 0) + 2 * len(merged) - int(is_real.sum()) > n_columns:
        return None
    packed = [(s << 32) + e + _ZERO for word in merged for s, e in word]
    draws = Draws(
        np.cumsum([0, *(len(word) for word in merged)]),
        np.array(packed, dtype=np.int64),
        np.arange(len(merged)),
        np.ones(len(merged), dtype=np.int64),
        is_real,
        *(len(merged), 0, len(packed)),
    )
    return draws, np.array(list(merged.values()), dtype=float), constant
