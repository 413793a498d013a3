"""Opens data files by their content."""

import bz2
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from randkern._extras import import_extra
from randkern._files import special_kind
from randkern.exceptions import DataFileError


def _open_zstd(raw: Any) -> BinaryIO:
    pyarrow = import_extra("pyarrow", "Reading zstd data", "data")
    stream = pyarrow.CompressedInputStream(raw, "zstd")
    return cast(BinaryIO, io.BufferedReader(stream))


# Errors of a damaged stream: truncated, bad data, bad header or checksum.
_STREAM_ERRORS = (EOFError, zlib.error, lzma.LZMAError, OSError)
# First bytes of compressed files, what opens them, and what checks them.
_COMPRESSED: dict[bytes, tuple[Any, str]] = {
    b"\x1f\x8b": (gzip.open, "gzip"),
    b"BZh": (bz2.open, "bzip2"),
    b"\xfd7zXZ": (lzma.open, "xz"),
    b"\x28\xb5\x2f\xfd": (_open_zstd, "zstd"),
}

_SIGNATURES = {
    **{start: f"{name} data" for start, (_, name) in _COMPRESSED.items()},
    b"PK\x03\x04": "a zip archive; unpack it first",
    b"PAR1": "a Parquet file",
    b"version https://git-lfs": "a Git LFS pointer; run `git lfs pull`",
    b"<": "HTML or XML, as a failed download leaves it",
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"%PDF": "a PDF document",
    b"\xd0\xcf\x11\xe0": "an old Office document; save it as .xlsx or .csv",
    b"SQLite format 3": "an SQLite database",
    b"\x89HDF": "an HDF5 file",
}


@contextmanager
def open_data(path: Path) -> Iterator[BinaryIO]:
    """Open a file for binary reading, decompressing gzip, bzip2, xz or zstd.

    The first bytes decide, not the suffix: browsers and mirrors decompress ``.gz``
    files, or compress others, without renaming them.

    Raises a DataFileError if a compressed stream turns out to be damaged while it is
    read.
    """
    if re.match(r"[a-z]{2,}:/", str(path)):
        address = str(path).replace(":/", "://", 1)
        raise FileNotFoundError(f"{address} is an address; download the file first")
    if (kind := special_kind(path)) is not None:
        raise FileNotFoundError(f"{path} is {kind}, not a file; check the path")
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; check the path")
    with path.open("rb") as raw:
        head = raw.peek(8)
        result = [how for start, how in _COMPRESSED.items() if head.startswith(start)]
        if not result:
            yield raw
            return
        ((unpacked, name),) = result
        try:
            with unpacked(raw) as stream:
                yield cast(BinaryIO, stream)
        except _STREAM_ERRORS as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise  # an error of the disk
            raise DataFileError(
                f"{path}: the {name} stream is damaged ({error}); copy or download the "
                f"file again (`{name} -t` checks it)"
            ) from error


def guess_content(head: bytes) -> str:
    r"""Return a clause for an error on what the first bytes look like, or ""."""
    for signature, name in _SIGNATURES.items():
        if head.startswith(signature):
            return f" (it looks like {name})"
    return ""
