"""Writing files whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def special_kind(path: str | os.PathLike[str]) -> str | None:
    """Return what is at `path` if it is not a regular file, None if it is, or if
    nothing is there. Symbolic links are followed.

    Examples
    --------
    >>> special_kind(os.curdir)
    'a folder'
    """
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISREG(mode):
        return None
    return _KINDS.get(stat.S_IFMT(mode), "a special file")


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
    IsADirectoryError, FileExistsError
        If there is a folder, a device or a pipe at `path`: only regular files are
        replaced.

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
    kind = special_kind(path)
    if kind is not None:
        error = IsADirectoryError if kind == "a folder" else FileExistsError
        raise error(f"{path} is {kind}; give the path of a file")
    place = Path(os.path.realpath(path))
    if not os.fspath(path):
        raise FileNotFoundError("the path is empty; give the path of a file")
    if not place.parent.is_dir():
        raise FileNotFoundError(f"the folder {place.parent} does not exist")
    temporary = place.with_name(f".{place.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("x+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if place.exists():
            shutil.copymode(place, temporary)
        os.replace(temporary, place)
    finally:
        temporary.unlink(missing_ok=True)
