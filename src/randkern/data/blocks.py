"""Rows for out-of-core fits: blocks from arrays and files that can be reread."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from randkern._extras import import_extra
from randkern._sklearn import num_samples
from randkern._validation import check_count, is_tensor
from randkern.data.sources import ArraySource, ParquetSource, Source, open_zarr
from randkern.exceptions import RowsChangedError

_SHAPES = "X, (X, y) or (X, y, sample_weight)"


@dataclass(frozen=True, eq=False)
class RowBlock:
    """A block of rows with their targets and weights.

    Attributes
    ----------
    X : array, sparse matrix, dataframe or tensor of shape (n, d)
    y : array or tensor of shape (n,) or (n, n_targets), or None
    sample_weight : array or tensor of shape (n,) or None
    start : int or None
        Number of the first row in the stream, which sets it; None if unknown.
    number : int or None
        Number of the block among the items of the stream, which sets it.
    """

    X: Any
    y: Any = None
    sample_weight: Any = None
    start: int | None = None
    number: int | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return num_samples(self.X)


class RowBlocks:
    """Rows as a stream of blocks that can be read repeatedly.

    A fit on rows that do not fit in memory reads them block by block; an iterative
    solver does so in every iteration, so every pass over the stream must yield the same
    rows from the start.

    Parameters
    ----------
    blocks : iterable or callable
        An iterable that can be iterated over repeatedly (a list, an object
        whose ``__iter__`` starts over), or a function without arguments that
        returns a new iterator. Each item is X, or a tuple (X, y) or (X, y,
        sample_weight), the same for all blocks; X may be an array, a CSR matrix,
        a dataframe, a table of pyarrow or a tensor. PyTorch's ``DataLoader`` is such
        an iterable, unless it shuffles.
    n_rows : int, optional
        Number of rows. None: that of `blocks`, if it has an attribute `n_rows`;
        otherwise they are counted in the first full pass.

    Attributes
    ----------
    n_rows : int or None
        Number of rows, None while unknown.
    n_blocks : int or None
        Number of blocks with rows, None while unknown.
    column_names : tuple of str or None
        Names of the columns of X, where `blocks` knows them (Parquet files).

    Raises
    ------
    TypeError
        If `blocks` can be read only once, or is not a stream of blocks.
    ValueError
        During iteration, if X, y and sample_weight of a block differ in length,
        if some blocks have y or sample_weight and others do not, or if a pass
        yields a different number of rows than the first.

    See Also
    --------
    RowBlocks.from_arrays : blocks of arrays, memory maps or sparse matrices.
    RowBlocks.from_parquet : blocks of Parquet files.
    RowBlocks.from_zarr : blocks of Zarr arrays.

    Notes
    -----
    Empty blocks are skipped. Widths and types of blocks are checked by the
    estimators. An instance can be pickled if its source can; a memory map is
    pickled with all of its rows.

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
        blocks: Source | Callable[[], Iterable[Any]],
        *,
        n_rows: int | None = None,
    ):
        check_reiterable(blocks)
        self._blocks = blocks
        if n_rows is None:
            n_rows = getattr(blocks, "n_rows", None)
        if n_rows is not None and n_rows != 0:
            check_count("n_rows", n_rows)
        self.n_rows = n_rows if n_rows is None else int(n_rows)
        self.n_blocks: int | None = getattr(blocks, "n_blocks", None)
        self.column_names: tuple[str, ...] | None = getattr(
            blocks, "column_names", None
        )
        self._parts: tuple[bool, bool] | None = None

    @classmethod
    def from_arrays(
        cls,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        block_rows: int | None = None,
    ) -> RowBlocks:
        """Return blocks of arrays, which are read in slices.

        Parameters
        ----------
        X : array of shape (n, d)
            Any object with a shape that can be sliced: an array, a memory map,
            a CSR matrix, a dataframe, a Zarr array, an h5py dataset.
        y : array of shape (n,) or (n, n_targets), optional
        sample_weight : array of shape (n,), optional
        block_rows : int, optional
            Rows per block. None: about 16 MB; for arrays stored in chunks, whole
            chunks.

        Examples
        --------
        >>> import numpy as np, randkern as rk
        >>> X = np.arange(10.0).reshape(5, 2)
        >>> rows = rk.RowBlocks.from_arrays(X, X[:, 0], block_rows=2)
        >>> [block.y.tolist() for block in rows]
        [[0.0, 2.0], [4.0, 6.0], [8.0]]
        """
        return cls(ArraySource(X, y, sample_weight, block_rows))

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
            A file, a folder (which may be partitioned), or several files.
        target, sample_weight : str, optional
            The columns that hold y and the weights.
        columns : list of str, optional
            The columns of X, in this order; other columns are not read. None: all
            columns except those.
        block_rows : int, default=65_536

        Returns
        -------
        RowBlocks
            X is a float array if every column holds numbers or booleans, float32
            if all columns are float32 and float64 otherwise, with missing values
            as NaN; with columns of text or categories it is a pandas dataframe.
            y keeps the type of its column.

        Raises
        ------
        ValueError
            If a column does not exist (the message lists those that do), or
            holds neither numbers nor categories.
        randkern.exceptions.DataFileError
            If a file is damaged or not a Parquet file.
        ImportError
            Without pyarrow, which the extra ``data`` installs.

        Notes
        -----
        One row group is open at a time: memory is that of a row group and a few
        blocks, for any number of rows. A file with a single row group is read as a
        whole.

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
        return cls(ParquetSource(path, target, sample_weight, columns, block_rows))

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
            Rows per block; by default whole chunks of about 16 MB.

        Raises
        ------
        ValueError
            If an array does not exist; the message lists those that do.
        ImportError
            Without zarr, which the extra ``data`` installs.

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

    def __iter__(self) -> Iterator[RowBlock]:
        n_rows = n_blocks = 0
        for number, item in enumerate(self._start()):
            location = f"block {number}"
            block = replace(as_block(item, location), number=number, start=n_rows)
            length = checked_length(block, location)
            if not length:
                continue
            self._check_parts(block, location)
            n_rows += length
            n_blocks += 1
            if self.n_rows is not None and n_rows > self.n_rows:
                raise self._changed(
                    f"{location} brings the number of rows to {n_rows}, expected "
                    f"{self.n_rows}"
                )
            yield block
        if self.n_rows is not None and n_rows != self.n_rows:
            raise self._changed(
                f"this pass over the blocks yielded {n_rows} rows, expected "
                f"{self.n_rows}"
            )
        self.n_rows, self.n_blocks = n_rows, n_blocks

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            "RowBlocks cannot be converted to an array: models with n_components "
            "accept them in fit, predict and score; elsewhere pass the X of one block."
        )

    def _changed(self, difference: str) -> ValueError:
        """Return the error for a difference from `n_rows`, or from the first pass."""
        if self.n_blocks is None:
            return ValueError(f"{difference}; correct n_rows, or omit it.")
        return RowsChangedError(
            f"{difference}; every pass must yield the same rows: check that the data "
            "did not change, and that every pass starts from the first row."
        )

    def __repr__(self) -> str:
        name = type(self).__name__
        if self.n_rows is None:
            return f"{name}(rows not counted yet)"
        if self.n_blocks is None:
            return f"{name}({self.n_rows:,} rows)"
        blocks = "block" if self.n_blocks == 1 else "blocks"
        return f"{name}({self.n_rows:,} rows in {self.n_blocks:,} {blocks})"

    def _start(self) -> Iterator[Any]:
        """Return a fresh iterator over the blocks."""
        if not callable(self._blocks):
            return iter(self._blocks)
        blocks = self._blocks()
        if not hasattr(blocks, "__iter__"):
            raise TypeError(
                "the function passed as blocks must return an iterator over blocks, "
                f"but it returned an object of type {type(blocks).__name__}."
            )
        return iter(blocks)

    def _check_parts(self, block: RowBlock, location: str) -> None:
        """Raise unless the block has the same parts as the first."""
        parts = (block.y is not None, block.sample_weight is not None)
        if self._parts is None:
            self._parts = parts
        for name, present, expected in zip(
            ("y", "sample_weight"), parts, self._parts, strict=True
        ):
            if present != expected:
                raise (ValueError if self.n_blocks is None else RowsChangedError)(
                    f"{location} has {'a' if present else 'no'} {name}, but the first "
                    f"block has {'one' if expected else 'none'}; pass {name} with all "
                    "blocks, or with none."
                )


def as_blocks(X: Any, y: Any = None, sample_weight: Any = None) -> RowBlocks:
    """Return rows as a stream of blocks with their targets and weights."""
    if not isinstance(X, RowBlocks):
        return RowBlocks.from_arrays(X, y, sample_weight)
    if y is not None or sample_weight is not None:
        raise ValueError(
            "y and sample_weight must be None for RowBlocks, whose blocks contain them."
        )
    return X


def check_reiterable(blocks: Any) -> None:
    """Raise unless `blocks` can be iterated over more than once."""
    kind = type(blocks).__name__
    if isinstance(blocks, str | os.PathLike):
        raise TypeError(
            f"blocks is a {kind}, expected an iterable of blocks; to read files use "
            "RowBlocks.from_parquet(path) or RowBlocks.from_zarr(path)."
        )
    if hasattr(blocks, "shape"):
        raise TypeError(
            f"blocks is a single {kind}, expected an iterable of blocks; to split "
            "arrays into blocks use RowBlocks.from_arrays(X, y)."
        )
    if hasattr(blocks, "__next__"):
        raise TypeError(
            f"blocks is a {kind}, which can be read only once, but a fit may read "
            "the rows several times; pass a function that returns a new one, as in "
            "RowBlocks(make_blocks) instead of RowBlocks(make_blocks())."
        )
    batches = getattr(blocks, "batch_sampler", None)
    samplers = getattr(blocks, "sampler", None), getattr(batches, "sampler", None)
    if any("Random" in type(sampler).__name__ for sampler in samplers):
        raise ValueError(
            f"blocks is a {kind} that shuffles, but every pass must yield the same "
            "rows in the same order; use shuffle=False."
        )
    if isinstance(blocks, Sequence) and not len(blocks):
        raise ValueError(f"blocks is an empty {kind}; pass at least one block of rows.")
    if not callable(blocks) and not hasattr(blocks, "__iter__"):
        raise TypeError(
            "blocks must be an iterable of blocks, or a function that returns an "
            f"iterator over blocks, got {kind}."
        )


def block_name(number: int | None, start: int | None) -> str:
    """Return the name of a block for messages."""
    return f"block {number}" + (f", from row {start:,} on" if start else "")


def as_block(item: Any, location: str) -> RowBlock:
    """Return one item of a stream as a block."""
    if isinstance(item, RowBlock):
        return item
    # PyTorch collates batches as lists of tensors; other lists may be rows of numbers.
    is_batch = isinstance(item, list) and bool(item) and is_tensor(item[0])
    if is_batch or isinstance(item, tuple):
        if not 1 <= len(item) <= 3:
            raise ValueError(
                f"{location} is a tuple of length {len(item)}, expected {_SHAPES}."
            )
        return RowBlock(*map(_without_arrow, item))
    if not hasattr(item, "shape"):
        raise TypeError(
            f"{location} is a {type(item).__name__}, expected {_SHAPES}, where X is an "
            "array, a sparse matrix or a dataframe."
        )
    return RowBlock(_without_arrow(item))


def _without_arrow(part: Any) -> Any:
    """Return tables of pyarrow as dataframes, and its arrays as those of NumPy."""
    if not type(part).__module__.startswith("pyarrow"):
        return part
    if hasattr(part, "schema"):
        import_extra("pandas", "RowBlocks of pyarrow's tables", "data")
        return part.to_pandas()
    return part.to_numpy(zero_copy_only=False)


def checked_length(block: RowBlock, location: str) -> int:
    """Return the number of rows of a block; raise if its parts differ in length."""
    lengths = {}
    for name in ("X", "y", "sample_weight"):
        part = getattr(block, name)
        if part is None and name != "X":
            continue
        try:
            lengths[name] = num_samples(part)
        except TypeError:
            raise TypeError(
                f"{name} of {location} is a {type(part).__name__}, expected an array "
                "with rows."
            ) from None
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{n} in {name}" for name, n in lengths.items())
        raise ValueError(
            f"{location} has inconsistent numbers of rows: {counts}; they must be "
            "equal."
        )
    return lengths["X"]
