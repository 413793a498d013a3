"""Named, independent streams of random numbers.

Every random draw of the library comes from a :class:`Stream`: a 64-bit key
derived from ``random_state`` by a path of names. Streams with different paths
are independent, and the numbers of a stream do not depend on what was drawn
from any other, so adding a draw somewhere changes nothing elsewhere.

A key seeds either a sequential generator (:meth:`Stream.generator`) or the
counter-based matrix entries of :func:`randkern.backend.counter.random_matrix`.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from secrets import randbits
from typing import Any

import numpy as np

_KEY_BYTES = 8


@dataclass(frozen=True)
class Stream:
    """A source of random numbers, identified by a 64-bit key."""

    key: int

    def child(self, *path: str | int) -> Stream:
        """Return the child stream at `path` (by a keyed BLAKE2b hash)."""
        digest = hashlib.blake2b(
            "/".join(f"{type(part).__name__}:{part}" for part in path).encode(),
            digest_size=_KEY_BYTES,
            key=self.key.to_bytes(_KEY_BYTES, "little"),
        )
        return Stream(int.from_bytes(digest.digest(), "little"))

    def generator(self, skipped: int = 0) -> np.random.Generator:
        """Return a new sequential generator, after this number of uniforms."""
        bits = np.random.Philox(key=self.key)
        bits.advance(skipped // 4)  # its steps have four numbers each
        generator = np.random.Generator(bits)
        generator.random(skipped % 4)
        return generator


def root_stream(random_state: Any) -> Stream:
    """Return the stream that `random_state` determines.

    None takes fresh entropy from the operating system; an integer always gives the same
    stream; a NumPy `RandomState` or `Generator` is advanced by one draw.
    """
    if isinstance(random_state, Stream):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        random_state = int(random_state.randint(2**31 - 1))
    elif isinstance(random_state, np.random.Generator):
        random_state = int(random_state.integers(2**31 - 1))
    if random_state is not None:
        is_integer = isinstance(random_state, (int, np.integer))
        if not is_integer or isinstance(random_state, bool):
            raise ValueError(
                "random_state must be None, a non-negative integer, a "
                "numpy.random.RandomState or a numpy.random.Generator, got "
                f"{random_state!r}."
            )
        if random_state < 0:
            raise ValueError(
                f"random_state must be a non-negative integer, got {random_state}."
            )
        random_state = int(random_state)
    entropy = randbits(128) if random_state is None else random_state
    state = np.random.SeedSequence(entropy).generate_state(1, np.uint64)
    return Stream(int(state[0]))
