"""Rows of Parquet files, a block at a time, through pyarrow."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from randkern._extras import import_extra
from randkern._validation import check_count
from randkern.exceptions import DataFileError

_PURPOSE = "RowBlocks.from_parquet"
_BUFFER_BYTES = 2**20
_DECIMALS = ("decimal32", "decimal64", "decimal128", "decimal256")
_TEXTS = ("string", "large_string", "string_view")


@dataclass(frozen=True)
class ParquetSource:
    """Columns of Parquet files; names only, so that it pickles in a few bytes.

    `categories` says which of `columns` hold text or categories.
    """

    path: Any
    target: str | None
    sample_weight: str | None
    columns: tuple[str, ...]
    categories: tuple[bool, ...]
    dtype: np.dtype
    block_rows: int
    n_rows: int

    @classmethod
    def of(
        cls,
        path: Any,
        target: str | None,
        sample_weight: str | None,
        columns: list[str] | None,
        block_rows: int,
    ) -> ParquetSource:
        """Read the schema and the numbers of rows; check the columns."""
        check_count("block_rows", block_rows)
        place = [str(p) for p in path] if isinstance(path, list | tuple) else str(path)
        arrow = import_extra("pyarrow", _PURPOSE, "data")
        dataset = _open(place)
        schema = dataset.schema
        given = {"target": target, "sample_weight": sample_weight}
        apart = {role: name for role, name in given.items() if name is not None}
        _check_names(place, schema.names, [*apart.values(), *(columns or ())])
        for role, name in apart.items():
            if columns is not None and name in columns:
                raise ValueError(
                    f"{name!r} is both the {role} and one of columns=; take it out "
                    "of columns."
                )
        if columns is None:
            columns = [name for name in schema.names if name not in apart.values()]
        if not columns:
            raise ValueError(f"{place}: no column is left for X.")
        fields = [schema.field(name) for name in columns]
        single = all(field.type == arrow.float32() for field in fields)
        return cls(
            place,
            target,
            sample_weight,
            tuple(columns),
            tuple(_is_category(arrow, field, place) for field in fields),
            np.dtype(np.float32 if single else np.float64),
            int(block_rows),
            _counted(dataset, place),
        )

    @property
    def n_blocks(self) -> int:
        return -(-self.n_rows // self.block_rows)

    def __iter__(self) -> Iterator[tuple[Any, Any, Any]]:
        return self._blocks(None)

    def shuffled(
        self, generator: np.random.Generator
    ) -> Iterator[tuple[Any, Any, Any]]:
        """Yield blocks of row groups in a random order."""
        return self._blocks(generator)

    def _blocks(
        self, generator: np.random.Generator | None
    ) -> Iterator[tuple[Any, Any, Any]]:
        for table in self._tables(generator):
            y = None if self.target is None else _values(table, self.target)
            weight = None
            if self.sample_weight is not None:
                weight = _numbers(table, self.sample_weight, np.dtype(float))
            yield self._features(table), y, weight

    def _tables(self, generator: Any = None) -> Iterator[Any]:
        """Yield tables of `block_rows` rows, across row groups and files."""
        arrow = import_extra("pyarrow", _PURPOSE, "data")
        pending: list[Any] = []
        n_pending = 0
        try:
            for batch in self._batches(generator):
                pending.append(batch)
                n_pending += batch.num_rows
                while n_pending >= self.block_rows:
                    table = arrow.Table.from_batches(pending)
                    yield table.slice(0, self.block_rows)
                    rest = table.slice(self.block_rows)
                    pending, n_pending = rest.to_batches(), rest.num_rows
        except (arrow.ArrowException, OSError) as error:
            raise _unreadable(self.path, error) from error
        if n_pending:
            yield arrow.Table.from_batches(pending)

    def _batches(self, generator: np.random.Generator | None) -> Iterator[Any]:
        """Yield the rows of one row group after the other, in a random order if asked.

        A scanner of all files reads ahead of a slow consumer until it holds them,
        and keeps what it has read until the end of a file: here one row group at a
        time is open, of which pages are read as they are needed.
        """
        dataset = _open(self.path)
        options = import_extra(
            "pyarrow.dataset", _PURPOSE, "data"
        ).ParquetFragmentScanOptions(
            use_buffered_stream=True, buffer_size=_BUFFER_BYTES, pre_buffer=False
        )
        apart = (self.target, self.sample_weight)
        names = dict.fromkeys([*self.columns, *(name for name in apart if name)])
        row_groups: Any = (
            row_group
            for fragment in dataset.get_fragments()
            for row_group in fragment.split_by_row_group()
        )
        if generator is not None:
            listed = list(row_groups)
            row_groups = (listed[i] for i in generator.permutation(len(listed)))
        for row_group in row_groups:
            yield from row_group.to_batches(
                schema=dataset.schema,
                columns=list(names),
                batch_size=self.block_rows,
                batch_readahead=1,
                fragment_readahead=1,
                fragment_scan_options=options,
            )

    def _features(self, table: Any) -> Any:
        """Return X: a float array, or a dataframe where there are categories."""
        if not any(self.categories):
            X = np.empty((table.num_rows, len(self.columns)), self.dtype)
            for j, name in enumerate(self.columns):
                X[:, j] = _numbers(table, name, self.dtype)
            return X
        pandas = import_extra("pandas", f"{_PURPOSE}, for columns of text,", "data")
        columns = {}
        for name, is_category in zip(self.columns, self.categories, strict=True):
            if is_category:
                columns[name] = table[name].to_pandas()
            else:
                # The same dtype in all blocks, with missing values or without.
                columns[name] = _numbers(table, name, np.dtype(float))
        return pandas.DataFrame(columns)


def _open(path: Any) -> Any:
    dataset = import_extra("pyarrow.dataset", _PURPOSE, "data")
    arrow = import_extra("pyarrow", _PURPOSE, "data")
    for file in path if isinstance(path, list) else [path]:
        if "://" not in file and not os.path.exists(file):
            raise FileNotFoundError(f"{file} does not exist; check the path")
    try:
        return dataset.dataset(path, format="parquet", partitioning="hive")
    except (arrow.ArrowException, OSError) as error:
        raise _unreadable(path, error) from error


def _counted(dataset: Any, path: Any) -> int:
    """Return the number of rows, from the ends of the files."""
    arrow = import_extra("pyarrow", _PURPOSE, "data")
    try:
        return int(dataset.count_rows())
    except (arrow.ArrowException, OSError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Any, error: Exception) -> DataFileError:
    return DataFileError(
        f"{path}: not readable as Parquet: {error}; copy or download it again"
    )


def _check_names(path: Any, there: list[str], wanted: list[str]) -> None:
    twice = sorted({name for name in there if there.count(name) > 1})
    if twice:
        raise DataFileError(
            f"{path}: column names there more than once: {', '.join(twice)}; rename "
            "them before writing the file"
        )
    for name in wanted:
        if name not in there:
            raise ValueError(f"{path} has no column {name!r}; its columns are {there}.")


def _is_category(arrow: ModuleType, field: Any, path: Any) -> bool:
    """Tell whether a column holds text or categories; refuse all but numbers."""
    kind = field.type
    if arrow.types.is_dictionary(kind) or str(kind) in _TEXTS:
        return True
    if (
        arrow.types.is_integer(kind)
        or arrow.types.is_floating(kind)
        or arrow.types.is_boolean(kind)
        or str(kind).startswith(_DECIMALS)
    ):
        return False
    raise ValueError(
        f"{path}: column {field.name!r} is of type {kind}, which is neither numbers "
        "nor text; leave it out with columns=[...]."
    )


def _numbers(table: Any, name: str, dtype: np.dtype) -> np.ndarray:
    """Return a column of numbers, missing values being NaN."""
    column = table[name].cast(str(dtype).replace("float64", "double"), safe=False)
    return column.to_numpy()


def _values(table: Any, name: str) -> np.ndarray:
    """Return a column in its own type, categories as what they stand for."""
    column = table[name]
    if hasattr(column.type, "value_type") and hasattr(column.type, "index_type"):
        column = column.cast(column.type.value_type)
    elif str(column.type).startswith(_DECIMALS):
        column = column.cast("double", safe=False)
    return column.to_numpy()
