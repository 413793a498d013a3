"""Sources of row blocks: arrays, Parquet files, Zarr arrays.

A source is what `RowBlocks` reads, :class:`Source`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from randkern._extras import import_extra
from randkern._validation import check_count
from randkern.data.training_data import row_blocks, rows_within
from randkern.exceptions import DataFileError

# Size of the blocks of arrays.
_BLOCK_BYTES = 16 * 10**6
# Chunks are decoded as a whole; bands of them up to this size are read at once.
_BAND_BYTES = 256 * 10**6
# The itemsize of rows without a dtype.
_ASSUMED_ITEMSIZE = 8
_PURPOSE = "RowBlocks.from_parquet"
# What pyarrow reads of a file at a time.
_BUFFER_BYTES = 2**20
# Types of columns of text.
_TEXTS = ("string", "large_string", "string_view")


class Source(Protocol):
    """An iterable of blocks, X, (X, y) or (X, y, sample_weight), read repeatedly.

    Only ``__iter__``, which starts over in every call, is required. `RowBlocks` also
    uses what else a source has of the following:

    - `n_rows` and `n_blocks`, the numbers of its rows and blocks (without them, they
      are counted in the first pass);
    - `column_names`, those of X where blocks are arrays.
    """

    def __iter__(self) -> Iterator[Any]: ...


class ArraySource:
    """X, y and sample_weight as arrays, read in slices of `block_rows` rows."""

    def __init__(self, X: Any, y: Any, sample_weight: Any, block_rows: int | None):
        X = _sliceable("X", X)
        if len(X.shape) != 2:
            raise ValueError(
                f"X must have two dimensions, got shape {X.shape}; pass "
                "X.reshape(-1, 1) for a single column."
            )
        self.parts = [X]
        for name, part in (("y", y), ("sample_weight", sample_weight)):
            if part is not None:
                part = _sliceable(name, part)
                if not part.shape or part.shape[0] != X.shape[0]:
                    raise ValueError(
                        f"{name} has shape {part.shape}, but X has {X.shape[0]} rows; "
                        "they must have the same length."
                    )
            self.parts.append(part)
        if block_rows is None:
            block_rows = default_block_rows(X)
        self.block_rows = check_count("block_rows", block_rows)
        self.n_rows = int(X.shape[0])
        self.n_blocks = -(-self.n_rows // self.block_rows)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        for rows in row_blocks(self.n_rows, self.block_rows):
            yield self._rows(rows)

    def _rows(self, rows: slice) -> tuple[Any, ...]:
        return tuple(_read(part, rows) for part in self.parts)


def default_block_rows(X: Any) -> int:
    """Return how many rows of `X` take 16 MB, in whole chunks if it has any."""
    n, d = X.shape
    if hasattr(X, "nnz"):
        entry = X.data.itemsize + X.indices.itemsize
        bytes_per_row = entry * X.nnz // max(n, 1)
    else:
        dtype = getattr(X, "dtype", None)
        bytes_per_row = d * int(getattr(dtype, "itemsize", _ASSUMED_ITEMSIZE))
    block = rows_within(_BLOCK_BYTES, bytes_per_row)
    chunks = getattr(X, "chunks", None)  # None for a contiguous h5py dataset
    chunk = chunks[0] if chunks else 1
    if not isinstance(chunk, int) or chunk * bytes_per_row > _BAND_BYTES:
        return block
    return max(chunk, block // chunk * chunk)


def _sliceable(name: str, part: Any) -> Any:
    """Return an object with a shape that can be sliced into rows."""
    if not hasattr(part, "shape"):
        return np.asarray(part)
    form = getattr(part, "format", None)
    if hasattr(part, "nnz") and form != "csr":
        raise ValueError(
            f"{name} is a sparse matrix in {form} format, expected CSR, whose rows can "
            f"be sliced; pass {name}.tocsr()."
        )
    return part


def _read(part: Any, rows: slice) -> Any:
    """Return a slice of rows, by position for dataframes."""
    if part is None:
        return None
    return part.iloc[rows] if hasattr(part, "iloc") else part[rows]


class ParquetSource:
    """Columns of Parquet files, by name, so that the source pickles in a few bytes."""

    def __init__(
        self,
        path: Any,
        target: str | None,
        sample_weight: str | None,
        columns: list[str] | None,
        block_rows: int,
    ):
        self.block_rows = check_count("block_rows", block_rows)
        several = isinstance(path, list | tuple)
        self.path: Any = [str(p) for p in path] if several else str(path)
        self.target = target
        self.sample_weight = sample_weight
        arrow = import_extra("pyarrow", _PURPOSE, "data")
        dataset = _open(self.path)
        schema = dataset.schema
        roles = {"target": target, "sample_weight": sample_weight}
        apart = {role: name for role, name in roles.items() if name is not None}
        _check_names(self.path, schema.names, [*apart.values(), *(columns or ())])
        for role, name in apart.items():
            if name in (columns or ()):
                raise ValueError(
                    f"{name!r} is both the {role} and one of columns; remove it from "
                    "columns."
                )
        if columns is None:
            columns = [name for name in schema.names if name not in apart.values()]
        if not columns:
            raise ValueError(
                f"{self.path} has no columns for X besides target and sample_weight."
            )
        self.column_names = tuple(columns)
        fields = [schema.field(name) for name in columns]
        with _readable(self.path):  # the footers of the files
            self.n_rows = int(dataset.count_rows())
        self.n_blocks = -(-self.n_rows // self.block_rows)
        # Whether columns hold text or categories.
        self.categories = [_is_category(arrow, field, self.path) for field in fields]
        single = all(field.type == arrow.float32() for field in fields)
        self.dtype = np.dtype(np.float32 if single else np.float64)

    def __iter__(self) -> Iterator[tuple[Any, Any, Any]]:
        target, weight = self.target, self.sample_weight
        for table in self._tables():
            yield (
                self._features(table),
                None if target is None else _values(table, target),
                None if weight is None else _numbers(table, weight, np.dtype(float)),
            )

    def _tables(self) -> Iterator[Any]:
        """Yield tables of `block_rows` rows, across row groups and files."""
        arrow = import_extra("pyarrow", _PURPOSE, "data")
        pending: list[Any] = []
        n_pending = 0
        with _readable(self.path):
            for batch in self._batches():
                pending.append(batch)
                n_pending += batch.num_rows
                while n_pending >= self.block_rows:
                    table = arrow.Table.from_batches(pending)
                    yield table.slice(0, self.block_rows)
                    remainder = table.slice(self.block_rows)
                    pending = remainder.to_batches()
                    n_pending = remainder.num_rows
        if n_pending:
            yield arrow.Table.from_batches(pending)

    def _batches(self) -> Iterator[Any]:
        """Yield the rows of row groups.

        A scanner of all files would read ahead of a slow consumer until all are in
        memory. Here only one row group is open, and its pages are read as needed.
        """
        dataset = _open(self.path)
        options = import_extra(
            "pyarrow.dataset", _PURPOSE, "data"
        ).ParquetFragmentScanOptions(
            use_buffered_stream=True, buffer_size=_BUFFER_BYTES, pre_buffer=False
        )
        apart = (self.target, self.sample_weight)
        names = dict.fromkeys([*self.column_names, *(name for name in apart if name)])
        for fragment in dataset.get_fragments():
            for row_group in fragment.split_by_row_group():
                yield from row_group.to_batches(
                    schema=dataset.schema,
                    columns=list(names),
                    batch_size=self.block_rows,
                    batch_readahead=1,
                    fragment_readahead=1,
                    fragment_scan_options=options,
                )

    def _features(self, table: Any) -> Any:
        """Return X: a float array, or a dataframe if there are categories."""
        if not any(self.categories):
            X = np.empty((table.num_rows, len(self.column_names)), self.dtype)
            for j, name in enumerate(self.column_names):
                X[:, j] = _numbers(table, name, self.dtype)
            return X
        pandas = import_extra("pandas", f"{_PURPOSE}, for columns of text,", "data")
        columns = {}
        for name, is_category in zip(self.column_names, self.categories, strict=True):
            # The dtype must not depend on whether a block has missing values.
            columns[name] = (
                table[name].to_pandas()
                if is_category
                else _numbers(table, name, self.dtype)
            )
        return pandas.DataFrame(columns)


def _open(path: Any) -> Any:
    dataset = import_extra("pyarrow.dataset", _PURPOSE, "data")
    for file in path if isinstance(path, list) else [path]:
        if "://" not in file and not os.path.exists(file):
            raise FileNotFoundError(f"{file} does not exist; check the path")
    with _readable(path):
        return dataset.dataset(path, format="parquet", partitioning="hive")


@contextmanager
def _readable(path: Any) -> Iterator[None]:
    """Name the files in errors of pyarrow."""
    arrow = import_extra("pyarrow", _PURPOSE, "data")
    try:
        yield
    except (arrow.ArrowException, OSError) as error:
        raise DataFileError(
            f"{path} could not be read as Parquet ({error}); copy or download it again"
        ) from error


def _check_names(path: Any, names: list[str], wanted: list[str]) -> None:
    """Raise if column names of a file are not unique, or a wanted one is missing."""
    duplicates = sorted({name for name in names if names.count(name) > 1})
    if duplicates:
        raise DataFileError(
            f"{path} has duplicate column names: {', '.join(duplicates)}; rename them "
            "before writing the file"
        )
    for name in wanted:
        if name not in names:
            raise ValueError(f"{path} has no column {name!r}; its columns are {names}.")


def _is_category(arrow: ModuleType, field: Any, path: Any) -> bool:
    """Return whether a column holds text or categories; raise if it is not numeric."""
    kind = field.type
    if arrow.types.is_dictionary(kind) or str(kind) in _TEXTS:
        return True
    is_one_of = arrow.types.is_integer, arrow.types.is_floating, arrow.types.is_boolean
    if any(check(kind) for check in is_one_of) or str(kind).startswith("decimal"):
        return False
    raise ValueError(
        f"column {field.name!r} of {path} has the type {kind}, expected numbers or "
        "strings; leave it out with columns=[...]."
    )


def _numbers(table: Any, name: str, dtype: np.dtype) -> np.ndarray:
    """Return a column of numbers, with missing values as NaN."""
    return table[name].cast(str(dtype), safe=False).to_numpy()


def _values(table: Any, name: str) -> np.ndarray:
    """Return a column in its own type, categories as their values."""
    column = table[name]
    if str(column.type).startswith("dictionary"):
        column = column.cast(column.type.value_type)
    elif str(column.type).startswith("decimal"):
        column = column.cast("double", safe=False)
    return column.to_numpy()


def open_zarr(path_or_group: Any, names: tuple[str | None, ...]) -> tuple[Any, ...]:
    """Return the arrays of these names (None for None) without reading rows."""
    group = path_or_group
    if isinstance(path_or_group, str | os.PathLike):
        zarr = import_extra("zarr", "RowBlocks.from_zarr", "data")
        group = zarr.open(path_or_group, mode="r")
    if hasattr(group, "shape"):
        raise ValueError(
            f"{path_or_group} is a Zarr array, expected a group of arrays; use "
            "RowBlocks.from_arrays(zarr.open(path)) for a single array."
        )
    available = sorted(name for name, _ in group.arrays())
    for name in names:
        if name is not None and name not in available:
            raise ValueError(
                f"{path_or_group} has no array {name!r}; its arrays are {available}."
            )
    return tuple(None if name is None else group[name] for name in names)
