"""Streams of blocks of rows: what goes in comes out, again and again."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from randkern import RowBlocks
from randkern.data import RowBlock, row_blocks
from randkern.data.sources import default_block_rows
from randkern.exceptions import DataFileError

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


def gathered(rows):
    """X, y and weights of all blocks, one below the other."""
    blocks = list(rows)
    return tuple(
        None if part[0] is None else np.concatenate([np.asarray(p) for p in part])
        for part in zip(
            *((block.X, block.y, block.sample_weight) for block in blocks), strict=True
        )
    )


class Recorder:
    """An array that remembers which slices of it were read."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype
        self.reads = []

    def __getitem__(self, rows):
        assert isinstance(rows, slice)
        self.reads.append((rows.start, rows.stop))
        return self.array[rows]


@pytest.fixture
def rows_and_targets(rng):
    return rng.normal(size=(50, 3)), rng.normal(size=50), rng.uniform(size=50)


# -- streams of blocks ---------------------------------------------------------


@given(
    lengths=st.lists(st.integers(0, 4), min_size=1, max_size=6),
    with_y=st.booleans(),
    with_weight=st.booleans(),
    as_function=st.booleans(),
)
def test_streams_give_their_blocks_at_every_pass(
    lengths, with_y, with_weight, as_function
):
    items = []
    for number, length in enumerate(lengths):
        X = np.full((length, 2), float(number))
        items.append((X, X[:, 0] if with_y else None, X[:, 1] if with_weight else None))
    rows = RowBlocks((lambda: iter(items)) if as_function else items)
    assert rows.n_rows is None
    kept = [number for number, length in enumerate(lengths) if length]
    for _ in range(2):
        blocks = list(rows)
        assert [int(block.X[0, 0]) for block in blocks] == kept
        assert all((block.y is not None) == with_y for block in blocks)
        assert all((block.sample_weight is not None) == with_weight for block in blocks)
        assert rows.n_rows == sum(lengths)
        assert rows.n_blocks == len(kept)


def test_items_may_be_rows_alone_pairs_triples_or_blocks():
    X = np.ones((2, 3))
    assert next(iter(RowBlocks([X]))).y is None
    assert next(iter(RowBlocks([(X,)]))).y is None
    assert next(iter(RowBlocks([(X, [1, 2])]))).y == [1, 2]
    assert next(iter(RowBlocks([(X, [1, 2], [3, 4])]))).sample_weight == [3, 4]
    block = RowBlock(X)
    assert block.n_rows == 2
    assert next(iter(RowBlocks(RowBlocks([block])))).X is X


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: (X for X in [np.ones((2, 2))]), "is a generator.*pass a function"),
        (lambda: iter([np.ones((2, 2))]), "list_iterator.*only once"),
        (lambda: zip([1], [2], strict=True), "zip.*only once"),
        (lambda: np.ones((2, 2)), "from_arrays"),
        (lambda: pd.DataFrame({"a": [1.0]}), "from_arrays"),
        (lambda: "rows.parquet", "from_parquet"),
        (lambda: 3, "got int"),
    ],
)
def test_other_objects_are_refused_as_streams(make, message):
    with pytest.raises(TypeError, match=message):
        RowBlocks(make())


@pytest.mark.parametrize(
    ("items", "error", "message"),
    [
        ([(np.ones((3, 2)), np.ones(2))], ValueError, "block 0 .* 3 in X, 2 in y"),
        (
            [np.ones((3, 2)), (np.ones((3, 2)), None, np.ones(4))],
            ValueError,
            "block 1 .* 4 in sample_weight",
        ),
        (
            [(np.ones((3, 2)), np.ones(3)), np.ones((3, 2))],
            ValueError,
            "block 1 has no y, but the first block has one",
        ),
        (
            [np.ones((3, 2)), (np.ones((3, 2)), None, np.ones(3))],
            ValueError,
            "block 1 has a sample_weight, but the first block has none",
        ),
        ([(1, 2, 3, 4)], ValueError, "block 0 is a tuple of length 4"),
        ([[np.ones((2, 2)), np.ones(2)]], TypeError, "block 0 is a list, expected X"),
        ([np.float64(1.0)], TypeError, "X of block 0 .* with rows"),
        (
            [(np.ones((2, 2)), 1.0)],
            TypeError,
            "y of block 0 is a float, expected an array",
        ),
    ],
)
def test_inconsistent_blocks_are_named(items, error, message):
    with pytest.raises(error, match=message):
        list(RowBlocks(items))


def test_function_that_returns_no_iterator():
    with pytest.raises(TypeError, match="returned an object of type NoneType"):
        list(RowBlocks(lambda: None))


def test_rows_that_change_between_passes():
    items = [np.ones((3, 2))]
    rows = RowBlocks(items)
    list(rows)
    items.append(np.ones((2, 2)))
    with pytest.raises(ValueError, match="rows to 5, expected 3.*same rows"):
        list(rows)
    del items[:]
    with pytest.raises(ValueError, match="yielded 0 rows, expected 3"):
        list(rows)


def test_function_that_returns_the_same_iterator_twice():
    iterator = iter([np.ones((3, 2))])
    rows = RowBlocks(lambda: iterator)
    list(rows)
    with pytest.raises(ValueError, match="every pass starts from the first row"):
        list(rows)


def test_n_rows_is_checked():
    items = [np.ones((3, 2)), np.ones((3, 2))]
    assert RowBlocks(items, n_rows=6).n_rows == 6
    assert len(list(RowBlocks(items, n_rows=6))) == 2
    for wrong in (5, 7):
        with pytest.raises(ValueError, match=f"expected {wrong}; correct n_rows"):
            list(RowBlocks(items, n_rows=wrong))


def test_an_unfinished_pass_counts_no_rows():
    rows = RowBlocks([np.ones((3, 2)), np.ones((3, 2))])
    next(iter(rows))
    assert rows.n_rows is None
    assert len(list(rows)) == 2


# -- arrays --------------------------------------------------------------------


@given(n=st.integers(0, 30), block_rows=st.integers(1, 40), sparse=st.booleans())
def test_blocks_of_arrays_are_the_arrays(n, block_rows, sparse):
    rng = np.random.default_rng(n)
    X, y, weight = rng.normal(size=(n, 3)), rng.normal(size=(n, 2)), rng.uniform(size=n)
    source = sp.csr_array(X) if sparse else X
    rows = RowBlocks.from_arrays(source, y, weight, block_rows=block_rows)
    assert rows.n_rows == n
    assert rows.n_blocks == len(list(rows)) == -(-n // block_rows)
    assert all(block.n_rows <= block_rows for block in rows)
    assert all(sp.issparse(block.X) == sparse for block in rows)
    if n:
        blocks = [b.X.toarray() if sparse else b.X for b in rows]
        assert np.array_equal(np.concatenate(blocks), X)
        assert np.array_equal(np.concatenate([b.y for b in rows]), y)
        assert np.array_equal(np.concatenate([b.sample_weight for b in rows]), weight)


def test_memory_map(tmp_path, rows_and_targets):
    X, y, _ = rows_and_targets
    np.save(tmp_path / "X.npy", X.astype(np.float32))
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    rows = RowBlocks.from_arrays(mapped, y, block_rows=7)
    assert isinstance(next(iter(rows)).X, np.memmap)
    assert np.array_equal(gathered(rows)[0], X.astype(np.float32))


def test_only_slices_are_read(rows_and_targets):
    X, y, weight = map(Recorder, rows_and_targets)
    rows = RowBlocks.from_arrays(X, y, weight, block_rows=20)
    assert not X.reads and not y.reads
    for _ in rows:
        pass
    assert X.reads == y.reads == weight.reads == [(0, 20), (20, 40), (40, 50)]


SOURCES = {
    "array": lambda X, y: RowBlocks.from_arrays(X, y, block_rows=3),
    "list": lambda X, y: RowBlocks([(X[i : i + 3], y[i : i + 3]) for i in (0, 3)]),
    "function": lambda X, y: RowBlocks(lambda: iter([(X[:2], y[:2]), (X[2:], y[2:])])),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_every_pass_yields_the_same_rows(kind):
    X = np.arange(12.0).reshape(6, 2)
    rows = SOURCES[kind](X, X[:, 0])
    for _ in range(2):
        blocks = list(rows)
        np.testing.assert_array_equal(np.vstack([block.X for block in blocks]), X)
        np.testing.assert_array_equal([y for b in blocks for y in b.y], X[:, 0])
        assert [block.start for block in blocks] == [b.y[0] / 2 for b in blocks]
        assert (rows.n_rows, rows.n_blocks) == (6, 2)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_dataframes_are_cut_by_position(library):
    frame = pd.DataFrame({"a": range(5), "b": list("vwxyz")}, index=[9.5, 3, 1, 0, 2])
    target = frame["a"]
    if library == "polars":
        polars = pytest.importorskip("polars")
        frame, target = polars.DataFrame(frame.to_dict("list")), target.to_numpy()
    blocks = list(RowBlocks.from_arrays(frame, target, block_rows=2))
    assert [list(block.X["b"]) for block in blocks] == [
        ["v", "w"],
        ["x", "y"],
        ["z"],
    ]
    assert [list(block.y) for block in blocks] == [[0, 1], [2, 3], [4]]


def test_h5py(tmp_path, rows_and_targets):
    h5py = pytest.importorskip("h5py")
    X, y, _ = rows_and_targets
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        data = file.create_dataset("X", data=X, chunks=(8, 3))
        rows = RowBlocks.from_arrays(data, y)
        assert np.array_equal(gathered(rows)[0], X)
        assert default_block_rows(file.create_dataset("Y", data=X)) > 50


def test_default_size_of_blocks():
    assert default_block_rows(np.empty((10, 1000))) == 2000
    assert default_block_rows(np.empty((10, 1), np.int8)) == 16 * 10**6
    sparse = sp.random_array((1000, 500), density=0.02, format="csr", dtype=np.float32)
    assert default_block_rows(sparse) == 16 * 10**6 // (
        (4 + sparse.indices.itemsize) * 10
    )
    chunked = Recorder(np.empty((10, 1000)))
    for chunk, expected in ((300, 1800), (7000, 7000), (10**6, 2000)):
        chunked.chunks = (chunk, 100)
        assert default_block_rows(chunked) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones(3),), r"two dimensions, got shape \(3,\)"),
        ((np.ones((3, 2)), np.ones(4)), r"y has shape \(4,\), but X has 3 rows"),
        ((np.ones((3, 2)), None, np.float64(1)), "sample_weight has shape"),
        ((sp.csc_array(np.eye(3)),), r"csc format.*tocsr\(\)"),
        ((sp.coo_array(np.eye(3)),), "coo format"),
    ],
)
def test_bad_arrays(arguments, message):
    with pytest.raises(ValueError, match=message):
        RowBlocks.from_arrays(*arguments)


def test_bad_size_of_blocks():
    with pytest.raises(ValueError, match="block_rows must be a positive integer"):
        RowBlocks.from_arrays(np.ones((3, 2)), block_rows=0)


# -- Parquet -------------------------------------------------------------------


def write(path, columns, row_group_size=7):
    table = pyarrow.table(columns)
    parquet.write_table(table, path, row_group_size=row_group_size)
    return path


@pytest.fixture(scope="module")
def parquet_file(tmp_path_factory):
    rng = np.random.default_rng(0)
    columns = {
        "a": rng.normal(size=50),
        "n": rng.integers(0, 9, 50),
        "flag": rng.uniform(size=50) < 0.5,
        "price": rng.normal(size=50).astype(np.float32),
        "weight": rng.uniform(size=50),
    }
    return write(tmp_path_factory.mktemp("parquet") / "t.parquet", columns), columns


@pytest.mark.slow
@given(block_rows=st.integers(1, 60))
def test_parquet_blocks_are_the_table(parquet_file, block_rows):
    path, columns = parquet_file
    rows = RowBlocks.from_parquet(
        path, target="price", sample_weight="weight", block_rows=block_rows
    )
    assert rows.n_rows == 50
    assert [block.n_rows for block in rows] == [
        part.stop - part.start for part in row_blocks(50, block_rows)
    ]
    X, y, weight = gathered(rows)
    expected = np.column_stack([columns["a"], columns["n"], columns["flag"]])
    assert X.dtype == np.float64 and np.array_equal(X, expected)
    assert y.dtype == np.float32 and np.array_equal(y, columns["price"])
    assert np.array_equal(weight, columns["weight"])


def test_parquet_columns_in_the_order_asked_for(parquet_file):
    path, columns = parquet_file
    X, y, weight = gathered(RowBlocks.from_parquet(path, columns=["n", "a"]))
    assert np.array_equal(X, np.column_stack([columns["n"], columns["a"]]))
    assert y is None and weight is None


def test_parquet_folders_and_several_files(tmp_path, parquet_file):
    _, columns = parquet_file
    parts = []
    for part in (slice(0, 20), slice(20, 50)):
        cut = {name: values[part] for name, values in columns.items()}
        parts.append(write(tmp_path / f"part-{part.start:02}.parquet", cut))
    for place in (tmp_path, parts, str(tmp_path)):
        rows = RowBlocks.from_parquet(place, target="price", block_rows=16)
        assert repr(rows) == "RowBlocks(50 rows in 4 blocks)"
        assert np.array_equal(gathered(rows)[1], columns["price"])


def test_parquet_partitions_and_columns_that_some_files_lack(tmp_path):
    for year, columns in (
        (2001, {"a": [1.0, 2.0], "b": [3.0, 4.0]}),
        (2002, {"a": [5.0]}),
    ):
        (tmp_path / f"year={year}").mkdir()
        write(tmp_path / f"year={year}" / "t.parquet", columns)
    rows = RowBlocks.from_parquet(tmp_path, target="year")
    X, y, _ = gathered(rows)
    assert y.tolist() == [2001, 2001, 2002]
    assert np.array_equal(X, [[1, 3], [2, 4], [5, np.nan]], equal_nan=True)
    frame = next(iter(RowBlocks.from_parquet(tmp_path, columns=["b"])))
    assert frame.X.shape == (3, 1)


def test_parquet_float32_is_kept(tmp_path):
    X = np.arange(12, dtype=np.float32)
    path = write(tmp_path / "t.parquet", {"a": X, "b": -X, "y": np.arange(12.0)})
    (block,) = RowBlocks.from_parquet(path, target="y")
    assert block.X.dtype == np.float32 and block.X.flags.c_contiguous
    (block,) = RowBlocks.from_parquet(path)
    assert block.X.dtype == np.float64


def test_parquet_missing_and_odd_numbers(tmp_path):
    from decimal import Decimal

    columns = {
        "n": pyarrow.array([1, None, 3]),
        "flag": pyarrow.array([True, None, False]),
        "money": pyarrow.array([Decimal("1.25"), None, Decimal("-3.50")]),
        "half": pyarrow.array(np.array([0.5, 1, 2], np.float16)),
        "large": pyarrow.array([2**62 + 1, 0, 1]),
    }
    (block,) = RowBlocks.from_parquet(write(tmp_path / "t.parquet", columns))
    expected = [[1, 1, 1.25, 0.5, 2.0**62], [np.nan, np.nan, np.nan, 1, 0]]
    assert np.array_equal(block.X[:2], expected, equal_nan=True)


def test_parquet_text_becomes_a_dataframe(tmp_path):
    words = ["x", "y", None, "z", "x", "y"]
    columns = {
        "a": pyarrow.array([1, 2, None, 4, 5, 6]),
        "word": pyarrow.array(words),
        "kind": pyarrow.array(words).dictionary_encode(),
        "label": pyarrow.array(list("pqpqpq")).dictionary_encode(),
    }
    path = write(tmp_path / "t.parquet", columns, row_group_size=2)
    rows = RowBlocks.from_parquet(path, target="label", block_rows=3)
    for part, block in zip((slice(0, 3), slice(3, 6)), rows, strict=True):
        assert isinstance(block.X, pd.DataFrame)
        assert list(block.X) == ["a", "word", "kind"]
        assert block.X["a"].dtype == np.float64
        for name in ("word", "kind"):
            values = [None if pd.isna(v) else v for v in block.X[name]]
            assert values == words[part]
        assert block.y.tolist() == list("pqpqpq")[part]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "cost"}, r"no column 'cost'; its columns are \['a', 'n', 'flag'"),
        ({"sample_weight": "w"}, "no column 'w'"),
        ({"columns": ["a", "z"]}, "no column 'z'"),
        ({"columns": ["a", "n"], "target": "n"}, "'n' is both the target and one of"),
        ({"columns": []}, "has no columns for X"),
        ({"block_rows": 0}, "block_rows must be a positive integer"),
    ],
)
def test_parquet_bad_columns(parquet_file, options, message):
    with pytest.raises(ValueError, match=message):
        RowBlocks.from_parquet(parquet_file[0], **options)


def test_parquet_columns_that_are_neither_numbers_nor_text(tmp_path):
    path = write(
        tmp_path / "t.parquet",
        {"a": np.ones(2), "day": np.array(["2020-01-01", "2020-01-02"], "M8[s]")},
    )
    with pytest.raises(
        ValueError, match=r"'day' of .* has the type timestamp.*columns="
    ):
        RowBlocks.from_parquet(path)
    assert RowBlocks.from_parquet(path, columns=["a"]).n_rows == 2


def test_parquet_damaged_files(tmp_path, parquet_file):
    with pytest.raises(FileNotFoundError, match="does not exist"):
        RowBlocks.from_parquet(tmp_path / "none.parquet")
    content = parquet_file[0].read_bytes()
    damaged = tmp_path / "t.parquet"
    for wrong in (b"", b"a,b\n1,2\n", content[:-40], content[: len(content) // 2]):
        damaged.write_bytes(wrong)
        with pytest.raises(DataFileError, match="could not be read as Parquet"):
            RowBlocks.from_parquet(damaged)


def test_parquet_file_that_changes_between_passes(tmp_path):
    path = write(tmp_path / "t.parquet", {"a": np.ones(5)})
    rows = RowBlocks.from_parquet(path)
    write(path, {"a": np.ones(4)})
    with pytest.raises(ValueError, match="yielded 4 rows, expected 5"):
        list(rows)
    path.write_bytes(b"PAR1")
    with pytest.raises(DataFileError, match="could not be read as Parquet"):
        list(rows)


def test_without_the_library_the_error_names_the_extra(monkeypatch, parquet_file):
    import sys

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(ImportError, match=r'needs pyarrow.*"randkern\[data\]"'):
        RowBlocks.from_parquet(parquet_file[0])
    with pytest.raises(ImportError, match=r'needs zarr.*"randkern\[data\]"'):
        RowBlocks.from_zarr("rows.zarr")


# -- Zarr ----------------------------------------------------------------------


@pytest.fixture
def zarr_group(tmp_path, rows_and_targets):
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(tmp_path / "rows.zarr", mode="w")
    for name, values in zip(("X", "y", "w"), rows_and_targets, strict=True):
        chunks = (8, *values.shape[1:])
        array = group.create_array(
            name, shape=values.shape, chunks=chunks, dtype=values.dtype
        )
        array[:] = values
    return group


@pytest.mark.nightly
@pytest.mark.parametrize("block_rows", [None, 1, 8, 13, 50, 99])
def test_zarr_blocks_are_the_arrays(zarr_group, tmp_path, rows_and_targets, block_rows):
    for place in (zarr_group, tmp_path / "rows.zarr", str(tmp_path / "rows.zarr")):
        rows = RowBlocks.from_zarr(
            place, y="y", sample_weight="w", block_rows=block_rows
        )
        for found, expected in zip(gathered(rows), rows_and_targets, strict=True):
            assert np.array_equal(found, expected)
    assert np.array_equal(
        gathered(pickle.loads(pickle.dumps(rows)))[0], rows_and_targets[0]
    )


def test_zarr_bad_names(zarr_group, tmp_path):
    with pytest.raises(ValueError, match=r"no array 'z'; its arrays are \['X', 'w'"):
        RowBlocks.from_zarr(zarr_group, X="z")
    with pytest.raises(ValueError, match="is a Zarr array, expected a group"):
        RowBlocks.from_zarr(tmp_path / "rows.zarr" / "X")
    with pytest.raises(FileNotFoundError):
        RowBlocks.from_zarr(tmp_path / "none.zarr")
