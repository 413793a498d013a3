"""The rows of a sample from anywhere, their kernel and their features."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np
import scipy.sparse as sp

from randkern._cells import check_finite, rows_of_text
from randkern._extras import import_extra
from randkern._random import Stream
from randkern._sklearn import num_samples, safe_indexing
from randkern._tables import is_numeric, is_table, kind_of
from randkern._validation import is_dask_collection, readable_rows
from randkern.data import RowBlocks, row_blocks
from randkern.features import NystromFeatures, RandomFeatures
from randkern.kernels import Categorical, Gaussian, Kernel

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
            X = readable_rows(X, name)
            if sp.issparse(X):
                X = sp.csr_array(X) if X.ndim == 2 else X.toarray()
            if not is_table(X) and not sp.issparse(X):
                X = _as_columns(X, name)
        self.X = X
        self.name = name
        self.n_rows = sum(num_samples(part) for part in self.parts())
        if self.n_rows < min_rows:
            raise ValueError(
                f"{name} has {self.n_rows} row{'s' * (self.n_rows != 1)}, expected at "
                f"least {min_rows}; pass more rows."
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
        """Return at most `n_rows` rows, evenly spaced over all parts."""
        n = self.n_rows
        numbers = np.linspace(0, n - 1, min(n, n_rows)).astype(int)
        chosen = []
        start = 0
        for part in self.parts():
            stop = start + num_samples(part)
            inside = numbers[(start <= numbers) & (numbers < stop)]
            chosen.append(safe_indexing(part, inside - start))
            start = stop
        return stacked(chosen)

    def features(self, transformer: Features) -> Iterator[np.ndarray]:
        """Yield features in chunks of `CHUNK_ROWS`; the last may be shorter."""
        return chunks(
            np.asarray(transformer.transform(safe_indexing(part, rows)), dtype=float)
            for part in self.parts()
            for rows in row_blocks(num_samples(part), CHUNK_ROWS)
        )


def _as_columns(X: Any, name: str) -> Any:
    """Return rows in memory as an array of numbers, or as a dataframe if some are not.

    Those are columns of texts, and series of pandas or polars with categories.
    """
    if hasattr(X, "to_frame") and not is_numeric(X):
        return X.to_frame(name)
    kind = type(X).__name__
    X = np.asarray(X)
    if X.ndim not in (1, 2):
        raise ValueError(
            f"{name} must be rows of numbers or categories, got {kind} with "
            f"{X.ndim} dimensions; pass a table or an array of shape (n, d) or (n,)."
        )
    X = X[:, None] if X.ndim == 1 else X
    if X.dtype.kind in "US" or (X.dtype == object and len(rows_of_text(X[:, 0]))):
        pandas = import_extra("pandas", "A column of texts", "data")
        names = [f"{name}[:, {column}]" for column in range(X.shape[1])]
        return pandas.DataFrame(X, columns=names).infer_objects()
    try:
        X = X.astype(float) if X.dtype == object else X
    except (TypeError, ValueError):
        pass
    if X.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} holds {X.dtype} values, expected numbers or texts; convert them, "
            "or pass a dataframe."
        )
    check_finite(X, None, name)
    return X


def same_columns(first: Sample, second: Sample) -> Sample:
    """Return the second sample with its columns in the order of the first.

    Raise if their columns are not the same.
    """
    X, Y = next(first.parts()), next(second.parts())
    if is_table(X) != is_table(Y):
        kinds = ["a dataframe" if is_table(part) else "an array" for part in (X, Y)]
        raise ValueError(
            f"{first.name} is {kinds[0]}, but {second.name} is {kinds[1]}; pass both "
            "samples as arrays, or both as dataframes."
        )
    if is_table(X) and set(X.columns) != set(Y.columns):
        only_X, only_Y = (
            sorted(map(repr, set(these.columns) - set(those.columns)))
            for these, those in ((X, Y), (Y, X))
        )
        raise ValueError(
            "both samples need the same columns; "
            f"{first.name} alone has {', '.join(only_X) or 'none'}, and {second.name} "
            f"alone {', '.join(only_Y) or 'none'}."
        )
    if X.shape[1] != Y.shape[1]:
        raise ValueError(
            f"{first.name} has {X.shape[1]} columns, but {second.name} has "
            f"{Y.shape[1]}; both samples need the same columns."
        )
    if not is_table(X) or list(X.columns) == list(Y.columns):
        return second
    if isinstance(second.X, RowBlocks):
        raise ValueError(
            f"{second.name} has the columns of {first.name} in another order; pass "
            "blocks whose columns are in the same order."
        )
    return Sample(second.X[list(X.columns)], second.name)


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


def median_kernel(X: Any) -> Kernel:
    """Return the kernel for rows like X that is used by default.

    The Gaussian kernel of all numbers, with the median distance, plus equality of each
    category, plus the product of these. The sum sees a change of one column beside many
    others, where the product, almost 0 for most pairs of rows, has no power; with the
    product it is characteristic, so it sees which number goes with which category.
    """
    categories = [
        column
        for column in (X.columns if is_table(X) else [])
        if kind_of(X[column]) == "category"
    ]
    if not categories:
        return Gaussian(lengthscale="median")
    parts: list[Kernel] = [Categorical(columns=[column]) for column in categories]
    numbers = [column for column in X.columns if column not in categories]
    if numbers:
        parts.insert(0, Gaussian(lengthscale="median", columns=numbers))
    if len(parts) == 1:
        return parts[0]
    return reduce(operator.add, [*parts, reduce(operator.mul, parts)])


def features_for(
    kernel: Kernel | str | None,
    n_components: int | None,
    samples: Sequence[Sample],
    stream: Stream,
) -> Features:
    """Return fitted features of a kernel for the rows of all samples.

    None or ``"median"`` is :func:`median_kernel`. Without `n_components` all rows are
    landmarks, so that products of features are exact.
    """
    if kernel is None or (isinstance(kernel, str) and kernel == "median"):
        kernel = median_kernel(next(samples[0].parts()))
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
        rows = stacked([sample.X for sample in samples])
        exact = NystromFeatures(
            kernel, num_samples(rows), landmarks=rows, random_state=seed
        )
        return exact.fit(rows)
    rows = stacked([sample.subset(_RESOLVED_ROWS) for sample in samples])
    return RandomFeatures(kernel, n_components, random_state=seed).fit(rows)


def stacked(parts: list[Any]) -> Any:
    """Return rows of arrays, sparse matrices or dataframes, one after the other."""
    if hasattr(parts[0], "iloc"):
        pandas = import_extra("pandas", "A dataframe", "data")
        return pandas.concat(parts, ignore_index=True)
    if is_table(parts[0]):  # of polars
        return reduce(lambda first, second: first.vstack(second), parts)
    if any(map(sp.issparse, parts)):
        return sp.vstack(parts, "csr")
    return np.concatenate(parts)
