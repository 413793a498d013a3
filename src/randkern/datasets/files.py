"""Opening data files by their content."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from randkern.exceptions import DataFileError

# What a failing gzip stream raises: cut short, bad deflate data, bad header or CRC.
GZIP_ERRORS = (EOFError, zlib.error, gzip.BadGzipFile)

_SIGNATURES = {
    b"\x1f\x8b": "gzip data",
    b"PK\x03\x04": "a zip archive; unpack it first",
    b"PAR1": "a Parquet file",
    b"BZh": "bzip2 data; unpack it first",
    b"\xfd7zXZ": "xz data; unpack it first",
    b"version https://git-lfs": "a Git LFS pointer; run `git lfs pull`",
    b"<": "HTML or XML, as a failed download leaves it",
}


@contextmanager
def open_data(path: Path) -> Iterator[BinaryIO]:
    """Open a file for binary reading, through gzip where its content is gzip.

    The first two bytes decide, not the suffix: browsers and mirrors unpack
    ``.gz`` files, or pack them, without renaming.

    Raises
    ------
    FileNotFoundError
        Where ``path`` is not a file.
    DataFileError
        Where the gzip stream turns out to be damaged while it is read.
    """
    if not path.is_file():
        kind = "is a folder, not a file" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"{path} {kind}; check the path")
    with path.open("rb") as raw:
        if raw.peek(2)[:2] != b"\x1f\x8b":
            yield raw
            return
        try:
            with gzip.GzipFile(fileobj=raw) as stream:
                yield cast(BinaryIO, stream)
        except GZIP_ERRORS as error:
            raise DataFileError(
                f"{path}: the gzip stream is damaged ({error}); copy or download the "
                f"file again (`gzip -t` checks it)"
            ) from error


def guess_content(head: bytes) -> str:
    r"""Name what the first bytes look like, as a clause for an error, or "".

    Examples
    --------
    >>> guess_content(b"PK\x03\x04...")
    ' (it looks like a zip archive; unpack it first)'
    """
    for signature, name in _SIGNATURES.items():
        if head.startswith(signature):
            return f" (it looks like {name})"
    return ""
