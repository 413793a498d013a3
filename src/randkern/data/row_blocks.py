"""Rows for fits out of core: a stream of blocks that can be read again."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from randkern._tensors import is_tensor
from randkern._validation import check_count
from randkern.data.arrays import ArraySource
from randkern.data.parquet import ParquetSource
from randkern.data.zarr import open_zarr

_SHAPES = "X, (X, y) or (X, y, sample_weight)"


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Some rows, with their targets and weights.

    Attributes
    ----------
    X : array, sparse matrix, dataframe or tensor of shape (n, d)
    y : array or tensor of shape (n,) or (n, n_targets), or None
    sample_weight : array or tensor of shape (n,) or None
    """

    X: Any
    y: Any = None
    sample_weight: Any = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return count_rows(self.X)


class RowBlocks:
    """Rows as a stream of blocks that can be read as often as a fit needs.

    A fit on rows that do not fit in memory reads them a block at a time, and
    an iterative solver does so in every iteration: the stream must start anew
    whenever it is iterated over, with the same rows.

    Parameters
    ----------
    blocks : iterable or callable
        Something that can be iterated over again and again (a list, an object
        whose ``__iter__`` starts anew), or a function without arguments that
        returns a fresh iterator. Each item is X, or a tuple (X, y) or (X, y,
        sample_weight), the same for all blocks; X is whatever the estimators
        take: an array, a CSR matrix, a dataframe, a tensor. PyTorch's
        ``DataLoader`` is such an iterable, unless it shuffles.
    n_rows : int, optional
        How many rows there are; counted by the first full pass if not given.

    Attributes
    ----------
    n_rows : int or None
        None as long as it is not known.
    n_blocks : int or None
    column_names : tuple of str or None
        Of the columns of X, for Parquet files.

    Raises
    ------
    TypeError
        If `blocks` can be read once only, or is no stream of blocks.
    ValueError
        While iterating: if X, y and sample_weight of a block differ in
        length, if some blocks have y or sample_weight and others do not, or if
        a pass gives another number of rows than the first did.

    See Also
    --------
    RowBlocks.from_arrays : blocks of arrays, memory maps or sparse matrices.
    RowBlocks.from_parquet : blocks of Parquet files.
    RowBlocks.from_zarr : blocks of Zarr arrays.

    Notes
    -----
    Blocks without rows are skipped. Widths and types of blocks are checked by
    the estimators, which know what they take. An instance can be pickled if
    what it reads from can; a memory map pickles as all of its rows.

    Examples
    --------
    >>> import numpy as np, randkern as rk
    >>> def batches():
    ...     rng = np.random.default_rng(0)
    ...     for _ in range(3):
    ...         X = rng.normal(size=(100, 2))
    ...         yield X, X[:, 0] ** 2
    >>> rows = rk.RowBlocks(batches)
    >>> [block.X.shape for block in rows]
    [(100, 2), (100, 2), (100, 2)]
    >>> rows
    RowBlocks(300 rows in 3 blocks)
    >>> rk.RowBlocks(batches())
    Traceback (most recent call last):
        ...
    TypeError: blocks is a generator, which can be read only once, ...
    """

    def __init__(
        self,
        blocks: Iterable[Any] | Callable[[], Iterable[Any]],
        *,
        n_rows: int | None = None,
    ):
        check_reiterable(blocks)
        self._blocks = blocks
        if n_rows is not None and n_rows != 0:
            check_count("n_rows", n_rows)
        self._n_rows = n_rows if n_rows is None else int(n_rows)
        self._n_blocks: int | None = None
        self._parts: tuple[bool, bool] | None = None
        self.column_names: tuple[str, ...] | None = None

    @classmethod
    def from_arrays(
        cls,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        block_rows: int | None = None,
    ) -> RowBlocks:
        """Return blocks of arrays, of which only slices are ever read.

        Parameters
        ----------
        X : array of shape (n, d)
            Anything with a shape that can be sliced: an array, a memory map,
            a CSR matrix, a dataframe, a Zarr array, a data set of h5py.
        y : array of shape (n,) or (n, n_targets), optional
        sample_weight : array of shape (n,), optional
        block_rows : int, optional
            Rows a block. By default as many as take 16 MB; for arrays stored
            in chunks, whole chunks.

        Examples
        --------
        >>> import numpy as np, randkern as rk
        >>> X = np.arange(10.0).reshape(5, 2)
        >>> rows = rk.RowBlocks.from_arrays(X, X[:, 0], block_rows=2)
        >>> [block.y.tolist() for block in rows]
        [[0.0, 2.0], [4.0, 6.0], [8.0]]
        """
        source = ArraySource.of(X, y, sample_weight, block_rows)
        return cls._of_source(source, source.n_rows, source.n_blocks)

    @classmethod
    def from_parquet(
        cls,
        path: Any,
        *,
        target: str | None = None,
        sample_weight: str | None = None,
        columns: list[str] | None = None,
        block_rows: int = 65_536,
    ) -> RowBlocks:
        """Return blocks of the rows of Parquet files, in the order of the files.

        Parameters
        ----------
        path : path or list of paths
            A file, a folder (of partitions, too), or several files.
        target, sample_weight : str, optional
            The columns that hold y and the weights.
        columns : list of str, optional
            The columns of X, in this order; by default all others. No other
            column is read.
        block_rows : int, default=65_536

        Returns
        -------
        RowBlocks
            X is a float array if every column holds numbers or booleans, of
            float32 if all columns are float32 and of float64 otherwise,
            missing values being NaN; with columns of text or categories it is
            a pandas dataframe. y keeps the type of its column.

        Raises
        ------
        ValueError
            If a column is not there (the message lists those that are), or
            holds neither numbers nor categories.
        randkern.exceptions.DataFileError
            If a file is damaged or no Parquet file.
        ImportError
            Without pyarrow; the extra ``data`` brings it.

        Notes
        -----
        One row group is open at a time: memory is that of a row group and of a
        few blocks, whatever the number of rows. A file written as a single row
        group is held as a whole.

        Examples
        --------
        >>> import tempfile, pandas as pd, randkern as rk
        >>> folder = tempfile.TemporaryDirectory()
        >>> table = pd.DataFrame({"a": [1.0, 2.0], "b": [3, 4], "price": [5.0, 6.0]})
        >>> table.to_parquet(folder.name + "/part-0.parquet")
        >>> rows = rk.RowBlocks.from_parquet(folder.name, target="price")
        >>> [(block.X.tolist(), block.y.tolist()) for block in rows]
        [([[1.0, 3.0], [2.0, 4.0]], [5.0, 6.0])]
        >>> folder.cleanup()
        """
        source = ParquetSource.of(path, target, sample_weight, columns, block_rows)
        rows = cls._of_source(source, source.n_rows, source.n_blocks)
        rows.column_names = source.columns
        return rows

    @classmethod
    def from_zarr(
        cls,
        path_or_group: Any,
        *,
        X: str = "X",
        y: str | None = None,
        sample_weight: str | None = None,
        block_rows: int | None = None,
    ) -> RowBlocks:
        """Return blocks of the arrays of a Zarr group.

        Parameters
        ----------
        path_or_group : path or zarr.Group
        X : str, default="X"
            Name of the array of rows in the group.
        y, sample_weight : str, optional
            Names of the arrays of targets and weights.
        block_rows : int, optional
            Rows a block; by default whole chunks that take about 16 MB.

        Raises
        ------
        ValueError
            If an array is not there; the message lists those that are.
        ImportError
            Without the zarr library; the extra ``data`` brings it.

        Examples
        --------
        >>> import numpy as np, randkern as rk
        >>> import tempfile, zarr
        >>> folder = tempfile.TemporaryDirectory()
        >>> group = zarr.open_group(folder.name, mode="w")
        >>> array = group.create_array("X", data=np.eye(4))
        >>> rk.RowBlocks.from_zarr(folder.name, block_rows=2)
        RowBlocks(4 rows in 2 blocks)
        >>> folder.cleanup()
        """
        arrays = open_zarr(path_or_group, (X, y, sample_weight))
        return cls.from_arrays(*arrays, block_rows=block_rows)

    @classmethod
    def _of_source(cls, source: Iterable[Any], n_rows: int, n_blocks: int) -> RowBlocks:
        rows = cls(source, n_rows=n_rows)
        rows._n_blocks = n_blocks
        return rows

    @property
    def n_rows(self) -> int | None:
        """Number of rows, None as long as it is not known."""
        return self._n_rows

    @property
    def n_blocks(self) -> int | None:
        """Number of blocks that hold rows, None as long as it is not known."""
        return self._n_blocks

    def __iter__(self) -> Iterator[RowBlock]:
        counted = yield from self._checked(self._start())
        self._n_rows, self._n_blocks = counted

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            "RowBlocks are no array: models with n_components take them in fit, "
            "predict and score; elsewhere pass the X of one of their blocks."
        )

    def shuffled(self, generator: np.random.Generator) -> Iterator[RowBlock]:
        """Yield all rows in blocks of a random order, where the source allows it.

        Arrays (those on disk, too) are read in slices of about 1 MB or in whole
        chunks, Parquet files by row groups, and a sequence of blocks by its items. Any
        other stream of blocks is read in its own order. Within a block rows keep
        theirs.

        Examples
        --------
        >>> import numpy as np, randkern as rk
        >>> rows = rk.RowBlocks.from_arrays(np.arange(8.0)[:, None], block_rows=2)
        >>> generator = np.random.default_rng(0)
        >>> [block.X.ravel().tolist() for block in rows.shuffled(generator)]
        [[4.0, 5.0], [0.0, 1.0], [2.0, 3.0], [6.0, 7.0]]
        """
        source = self._blocks
        if hasattr(source, "shuffled"):
            items = source.shuffled(generator)
        elif isinstance(source, Sequence):
            items = (source[int(i)] for i in generator.permutation(len(source)))
        else:
            items = self._start()
        self._n_rows, _ = yield from self._checked(items)

    def _checked(
        self, items: Iterable[Any]
    ) -> Generator[RowBlock, None, tuple[int, int]]:
        """Yield the items of a pass as blocks; return how many rows and blocks."""
        n_rows = n_blocks = 0
        for number, item in enumerate(items):
            block = as_block(item, number)
            length = checked_length(block, number)
            if not length:
                continue
            self._check_parts(block, number)
            n_rows += length
            n_blocks += 1
            if self._n_rows is not None and n_rows > self._n_rows:
                raise ValueError(
                    f"block {number} brings the rows to {n_rows}, but {self._n_rows} "
                    f"were expected; {self._advice()}"
                )
            yield block
        if self._n_rows is not None and n_rows != self._n_rows:
            raise ValueError(
                f"this pass over the blocks gave {n_rows} rows, but {self._n_rows} "
                f"were expected; {self._advice()}"
            )
        return n_rows, n_blocks

    def __repr__(self) -> str:
        name = type(self).__name__
        if self._n_rows is None:
            return f"{name}(rows not counted yet)"
        if self._n_blocks is None:
            return f"{name}({self._n_rows:,} rows)"
        blocks = "block" if self._n_blocks == 1 else "blocks"
        return f"{name}({self._n_rows:,} rows in {self._n_blocks:,} {blocks})"

    def _start(self) -> Iterator[Any]:
        """Return a fresh iterator over the blocks."""
        if not callable(self._blocks):
            return iter(self._blocks)
        made = self._blocks()
        if not hasattr(made, "__iter__"):
            raise TypeError(
                "the function passed as blocks must return an iterator over blocks, "
                f"but it returned {type(made).__name__}."
            )
        return iter(made)

    def _check_parts(self, block: RowBlock, number: int) -> None:
        """Raise unless the block has what the first one had."""
        parts = (block.y is not None, block.sample_weight is not None)
        if self._parts is None:
            self._parts = parts
        for name, here, first in zip(
            ("y", "sample_weight"), parts, self._parts, strict=True
        ):
            if here != first:
                raise ValueError(
                    f"block {number} has {'a' if here else 'no'} {name}, but the "
                    f"first block has {'one' if first else 'none'}; give {name} with "
                    "all blocks or with none."
                )

    def _advice(self) -> str:
        if self._n_blocks is None:
            return "correct n_rows=, or leave it out."
        return (
            "every pass must give the same rows: check that the data did not change, "
            "and that each pass starts anew."
        )


def as_blocks(X: Any, y: Any = None, sample_weight: Any = None) -> RowBlocks:
    """Return rows as a stream that holds their targets and weights."""
    if not isinstance(X, RowBlocks):
        return RowBlocks.from_arrays(X, y, sample_weight)
    if y is not None or sample_weight is not None:
        raise ValueError(
            "with RowBlocks pass neither y nor sample_weight: the blocks hold them."
        )
    return X


def check_reiterable(blocks: Any) -> None:
    """Raise unless `blocks` can be iterated over more than once."""
    kind = type(blocks).__name__
    if isinstance(blocks, str | os.PathLike):
        raise TypeError(
            f"blocks is a {kind}; to read files use RowBlocks.from_parquet(path) or "
            "RowBlocks.from_zarr(path)."
        )
    if hasattr(blocks, "shape"):
        raise TypeError(
            f"blocks is a single {kind}; to cut arrays into blocks use "
            "RowBlocks.from_arrays(X, y)."
        )
    if hasattr(blocks, "__next__"):
        raise TypeError(
            f"blocks is a {kind}, which can be read only once, but a fit may read "
            "the rows several times; pass a function that makes a new one, as in "
            "RowBlocks(make_blocks) instead of RowBlocks(make_blocks())."
        )
    batches = getattr(blocks, "batch_sampler", None)
    samplers = getattr(blocks, "sampler", None), getattr(batches, "sampler", None)
    if any("Random" in type(sampler).__name__ for sampler in samplers):
        raise ValueError(
            f"blocks is a {kind} that shuffles, but every pass must give the same rows "
            "in the same order; make it with shuffle=False."
        )
    if isinstance(blocks, Sequence) and not len(blocks):
        raise ValueError(f"blocks is an empty {kind}; give one block of rows at least.")
    if not callable(blocks) and not hasattr(blocks, "__iter__"):
        raise TypeError(
            "blocks must be an iterable of blocks, or a function that returns an "
            f"iterator over them; got {kind}."
        )


def as_block(item: Any, number: int) -> RowBlock:
    """Return one item of a stream as a block."""
    if isinstance(item, RowBlock):
        return item
    if _is_batch(item):
        if not 1 <= len(item) <= 3:
            raise ValueError(
                f"block {number} is a tuple of {len(item)}; expected {_SHAPES}."
            )
        return RowBlock(*item)
    if not hasattr(item, "shape"):
        raise TypeError(
            f"block {number} is a {type(item).__name__}; expected {_SHAPES}, X being "
            "an array, a sparse matrix or a dataframe."
        )
    return RowBlock(item)


def _is_batch(item: Any) -> bool:
    """Tell whether an item holds X, y and weights.

    What PyTorch collates is a list of them; others may be rows of numbers.
    """
    listed = isinstance(item, list) and bool(item) and is_tensor(item[0])
    return listed or isinstance(item, tuple)


def checked_length(block: RowBlock, number: int) -> int:
    """Return the number of rows of a block, the same for all its parts."""
    parts = {"X": block.X, "y": block.y, "sample_weight": block.sample_weight}
    lengths = {}
    for name, part in parts.items():
        if part is None and name != "X":
            continue
        try:
            lengths[name] = count_rows(part)
        except TypeError:
            raise TypeError(
                f"{name} of block {number} is a {type(part).__name__} without rows; "
                "expected an array."
            ) from None
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{n} in {name}" for name, n in lengths.items())
        raise ValueError(
            f"block {number} has different numbers of rows: {found}; they must be "
            "the same."
        )
    return lengths["X"]


def count_rows(part: Any) -> int:
    """Return the length of an array, a sparse matrix, a dataframe or a list."""
    shape = getattr(part, "shape", None)
    if shape is None:
        return len(part)
    if not shape:
        raise TypeError("a scalar has no rows")
    return int(shape[0])
