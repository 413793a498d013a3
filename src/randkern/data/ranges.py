"""Ranges of rows: how many at a time, and their slices."""

from __future__ import annotations

from collections.abc import Iterator


def row_blocks(n_rows: int, block: int) -> Iterator[slice]:
    """Yield slices of at most `block` rows that cover ``range(n_rows)``.

    Examples
    --------
    >>> list(row_blocks(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    for start in range(0, n_rows, block):
        yield slice(start, min(start + block, n_rows))


def rows_within(n_bytes: int, bytes_per_row: int, *, at_least: int = 1) -> int:
    """Return how many rows of `bytes_per_row` fit into `n_bytes`."""
    return max(at_least, n_bytes // max(1, bytes_per_row))
