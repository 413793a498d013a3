"""Writing files whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

__all__ = ["atomic_write"]


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file to write and read that replaces `path` once it is complete.

    It is written beside `path` under another name, flushed to the disk, and
    renamed; if the block raises it is removed, and what was at `path` stays.
    A symbolic link stays, and what it points to is replaced.

    Raises
    ------
    FileNotFoundError
        If the folder does not exist.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with atomic_write(Path(folder.name) / "x") as file:
    ...     _ = file.write(b"content")
    >>> [path.name for path in Path(folder.name).iterdir()]
    ['x']
    >>> folder.cleanup()
    """
    place = Path(os.path.realpath(path))
    if not place.parent.is_dir():
        raise FileNotFoundError(f"the folder {place.parent} does not exist")
    if place.is_dir():
        raise IsADirectoryError(f"{place} is a folder; give the path of a file")
    temporary = place.with_name(f".{place.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("x+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, place)
    finally:
        temporary.unlink(missing_ok=True)
