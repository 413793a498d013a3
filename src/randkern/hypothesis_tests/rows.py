"""The rows of a sample from anywhere, and their features in chunks of a fixed size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np
import scipy.sparse as sp

from randkern._extras import import_extra
from randkern._random import Stream
from randkern._sklearn import num_samples, safe_indexing
from randkern._tables import is_table
from randkern._validation import check_readable, is_dask_collection
from randkern.data import RowBlocks, row_blocks
from randkern.features import NystromFeatures, RandomFeatures
from randkern.kernels import Gaussian, Kernel

# Permutations are drawn for this many rows at a time, whatever the blocks of a stream,
# so that they do not depend on those.
CHUNK_ROWS = 4096
# Rows of each sample from which lengthscales are learned.
_RESOLVED_ROWS = 2500


Features = RandomFeatures | NystromFeatures


class Sample:
    """Rows that can be read repeatedly, and their number.

    Parameters
    ----------
    X : array, CSR matrix, dataframe, Dask collection or RowBlocks of n rows
        One-dimensional arrays are single columns.
    name : str
        For errors.
    """

    def __init__(self, X: Any, name: str, min_rows: int = 2):
        self.in_memory = not isinstance(X, RowBlocks) and not is_dask_collection(X)
        if self.in_memory:
            check_readable(X)
            if not is_table(X) and not sp.issparse(X):
                X = np.asarray(X)
                X = X[:, None] if X.ndim == 1 else X
        self.X = X
        self.n_rows = sum(num_samples(part) for part in self.parts())
        if self.n_rows < min_rows:
            raise ValueError(
                f"{name} has {self.n_rows} rows, expected at least {min_rows}; pass "
                "more rows."
            )

    def parts(self) -> Iterator[Any]:
        """Yield the rows in parts, in order."""
        if self.in_memory:
            yield self.X
        elif isinstance(self.X, RowBlocks):
            yield from (block.X for block in self.X)
        else:
            partitions = getattr(self.X, "partitions", self.X)
            for number in range(self.X.npartitions):
                yield partitions[number].compute()

    def subset(self, n_rows: int) -> Any:
        """Return at most `n_rows` rows of the first part, evenly spaced."""
        first = next(self.parts())
        n = num_samples(first)
        return safe_indexing(first, np.linspace(0, n - 1, min(n, n_rows)).astype(int))

    def features(self, transformer: Features) -> Iterator[np.ndarray]:
        """Yield features in chunks of `CHUNK_ROWS`; the last may be shorter."""
        return chunks(
            np.asarray(transformer.transform(safe_indexing(part, rows)), dtype=float)
            for part in self.parts()
            for rows in row_blocks(num_samples(part), CHUNK_ROWS)
        )


def chunks(parts: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    """Yield the rows of arrays in chunks of `CHUNK_ROWS`."""
    pending: list[np.ndarray] = []
    for part in parts:
        pending.append(part)
        if sum(map(len, pending)) >= CHUNK_ROWS:
            rows = np.concatenate(pending)
            n_complete = len(rows) // CHUNK_ROWS * CHUNK_ROWS
            for chunk in row_blocks(n_complete, CHUNK_ROWS):
                yield rows[chunk]
            pending = [rows[n_complete:]]
    rest = np.concatenate(pending)
    if len(rest):
        yield rest


def features_for(
    kernel: Kernel | str | None,
    n_components: int | None,
    samples: Sequence[Sample],
    stream: Stream,
) -> Features:
    """Return fitted features of a kernel for the rows of all samples.

    None or ``"median"`` is the Gaussian kernel with the median distance. Without
    `n_components` all rows are landmarks, so that products of features are exact.
    """
    if kernel is None or (isinstance(kernel, str) and kernel == "median"):
        kernel = Gaussian(lengthscale="median")
    if not isinstance(kernel, Kernel):
        raise ValueError(
            f'kernel must be a randkern kernel, "median" or None, got {kernel!r}.'
        )
    seed = stream.child("features").generator()
    if n_components is None:
        if not all(sample.in_memory for sample in samples):
            raise ValueError(
                "the exact kernel (n_components=None) needs all rows in memory; set "
                "n_components."
            )
        rows = _stacked([sample.X for sample in samples])
        exact = NystromFeatures(
            kernel, num_samples(rows), landmarks=rows, random_state=seed
        )
        return exact.fit(rows)
    rows = _stacked([sample.subset(_RESOLVED_ROWS) for sample in samples])
    return RandomFeatures(kernel, n_components, random_state=seed).fit(rows)


def _stacked(parts: list[Any]) -> Any:
    """Return rows of arrays, sparse matrices or dataframes, one after the other."""
    if hasattr(parts[0], "iloc"):
        pandas = import_extra("pandas", "A dataframe", "data")
        return pandas.concat(parts, ignore_index=True)
    if is_table(parts[0]):  # of polars
        return reduce(lambda first, second: first.vstack(second), parts)
    return sp.vstack(parts, "csr") if sp.issparse(parts[0]) else np.concatenate(parts)
