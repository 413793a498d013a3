"""Files written whole or not at all; zip archives of arrays, checked before reading."""

from __future__ import annotations

import copy
import errno
import glob
import io
import math
import os
import secrets
import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tokenize import TokenError
from typing import BinaryIO

from numpy.lib import format as npy

from randkern._memory import available_memory, format_bytes, resolve_memory_limit
from randkern.exceptions import MemoryLimitError

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None  # type: ignore[assignment]

# What a folder must hold to count as writable.
_PROBE_BYTES = 2**16

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def special_kind(path: str | os.PathLike[str]) -> str | None:
    """Return what is at `path` if it is not a regular file, otherwise None.

    Also None if nothing is there. Symbolic links are followed.
    """
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISREG(mode):
        return None
    return _KINDS.get(stat.S_IFMT(mode), "a special file")


def check_path(path: str | os.PathLike[str]) -> None:
    """Raise if a path is empty, or that of a folder."""
    if not os.fspath(path):
        raise FileNotFoundError("the path is empty; pass the path of a file")
    if os.fspath(path).endswith(("/", os.sep)):
        raise IsADirectoryError(f"{path} is a folder; give the path of a file")


@contextmanager
def atomic_write(
    path: str | os.PathLike[str], outdated: Iterable[str | os.PathLike[str]] = ()
) -> Iterator[BinaryIO]:
    """Open a file for writing and reading that replaces `path` once it is complete.

    It is written to the same folder under another name, flushed to disk, and
    renamed; if the block raises, it is removed, and what was at `path` stays.
    A symbolic link stays, and its target is replaced. What processes that were killed
    have left there of earlier attempts is removed.

    `outdated` are files that describe what was at `path`. They are removed just before
    it is replaced: whenever the process is killed, no old description lies beside new
    contents.

    Only regular files in existing folders are replaced.
    """
    kind = special_kind(path)
    if kind is not None:
        error = IsADirectoryError if kind == "a folder" else FileExistsError
        raise error(f"{path} is {kind}; give the path of a file")
    place = Path(os.path.realpath(path))
    check_path(path)
    if not place.parent.is_dir():
        raise FileNotFoundError(f"the folder {place.parent} does not exist")
    _remove_abandoned(place)
    file, temporary = _locked_file(place)
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if place.exists():
                shutil.copymode(place, temporary)
            if fcntl is not None:  # before the lock is released
                _replace(temporary, place, outdated)
        if fcntl is None:  # Windows does not rename open files
            _replace(temporary, place, outdated)
    finally:
        temporary.unlink(missing_ok=True)


def _replace(
    temporary: Path, place: Path, outdated: Iterable[str | os.PathLike[str]]
) -> None:
    for old in outdated:
        Path(old).unlink(missing_ok=True)
    os.replace(temporary, place)


def _locked_file(place: Path) -> tuple[BinaryIO, Path]:
    """Create a temporary file beside `place`, locked as long as it is open."""
    while True:
        temporary = place.with_name(f".{place.name}.{secrets.token_hex(4)}.tmp")
        file = temporary.open("x+b")
        try:
            _lock(file)
        except BlockingIOError:  # another process takes it for abandoned
            file.close()
            continue
        except OSError:  # a file system without locks, where nothing is removed either
            return file, temporary
        if temporary.exists():
            return file, temporary
        file.close()


def _remove_abandoned(place: Path) -> None:
    """Remove the temporary files of `place` whose process has ended."""
    for path in place.parent.glob(f".{glob.escape(place.name)}.*.tmp"):
        with suppress(OSError):  # it is in use, or there are no locks here
            if fcntl is None:  # Windows does not remove open files
                path.unlink()
                continue
            with path.open("rb") as file:
                _lock(file)
                path.unlink()


def _lock(file: BinaryIO) -> None:
    """Lock a file until it is closed; raise an OSError if another process has."""
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def check_writable(folder: str | os.PathLike[str], n_bytes: int = 0) -> None:
    """Raise an OSError if files of about `n_bytes` cannot be written to a folder."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise type(error)(error.errno, error.strerror, os.fspath(folder)) from error
    free = shutil.disk_usage(folder).free
    if free < n_bytes:
        raise OSError(
            f"{folder} has {format_bytes(free)} free, but about "
            f"{format_bytes(n_bytes)} may be needed; free some space, or write to "
            "another disk"
        )


# Raised by zipfile, zlib, json, NumPy (which tokenizes headers), SciPy and skops when
# the content does not match its description.
READING_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    BufferError,
    ImportError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
    TokenError,
)


def shortage(error: BaseException) -> str:
    """Return what to do if memory, permission or the disk prevented reading.

    Empty if the content of the file is wrong.
    """
    if isinstance(error, MemoryError | PermissionError):
        return "free some memory, or make the file readable"
    # Positions outside a damaged archive have no number, or that of a wrong argument.
    if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
        return "wait until its disk or network can be reached"
    return ""


_CHUNK = 2**20
_ENCRYPTED = 0x1
# The only methods that zipfile decompresses in bounded steps.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
# Largest ratio of the memory taken to the size of the file: compression hardly shrinks
# arrays, and descriptions to a tenth.
_INFLATION = 100
_SMALL = 2 * 10**9


def archive_limit(file: BinaryIO, memory_limit: int | str | None = None) -> int:
    """Return how many bytes of memory may be taken to read an archive.

    Without a limit, in bytes or as text, it is the free memory, but at most the larger
    of 2 GB and 100 times the size of the file.
    """
    if memory_limit is not None:
        return resolve_memory_limit(memory_limit)
    limit = _largest_content(file)
    free = available_memory()
    return limit if free is None else min(free, limit)


def _largest_content(file: BinaryIO) -> int:
    """Return the largest size in bytes that the content of an archive may have."""
    return max(_SMALL, _INFLATION * file.seek(0, io.SEEK_END))


def check_needed(needed: int, limit: int) -> None:
    """Raise MemoryLimitError if more memory is needed than the limit."""
    if needed > limit:
        raise MemoryLimitError(
            f"reading it would take {format_bytes(needed)} of memory, and the limit is "
            f"{format_bytes(limit)}"
        )


def check_archive(
    file: BinaryIO,
    limit: int,
    *,
    copies: int = 1,
    names: Collection[str] | None = None,
    nested: bool = False,
) -> dict[str, int]:
    """Check that the members of an archive have their declared sizes.

    Each is inflated in chunks to verify its size and checksum; an array in NumPy's
    format must also be as large as its header says. Nested archives of arrays, which
    is how SciPy stores sparse matrices, are checked in the same way. Reading the
    archive afterwards takes no more memory than was found here.

    `limit` is the memory in bytes, of which the reader holds `copies` of the content;
    `names` are the members that will be read (None: all); a `nested` archive must not
    contain another. Returns the size of each member, including the contents of nested
    archives. Raises a MemoryLimitError before reading more than the limit, and one of
    `READING_ERRORS` if the content does not match its headers.
    """
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        if len({info.filename for info in members}) < len(members):
            raise ValueError("two of its members have the same name")
        if names is not None:
            members = [info for info in members if info.filename in names]
        sizes = {info.filename: info.file_size for info in members}
        check_needed(copies * sum(sizes.values()), limit)
        for info in members:
            head = _check_member(archive, info)
            if head.startswith(npy.MAGIC_PREFIX):
                _check_array(head, info)
            elif head.startswith(b"PK"):
                if nested:
                    raise ValueError(f"its member {info.filename} holds an archive")
                left = limit - copies * sum(sizes.values())
                content = io.BytesIO(archive.read(info))
                inner = check_archive(content, left, copies=copies, nested=True)
                sizes[info.filename] += sum(inner.values())
        return sizes


def _check_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Inflate a member to its end; return its first bytes."""
    if info.flag_bits & _ENCRYPTED or info.compress_type not in _METHODS:
        raise ValueError(
            f"its member {info.filename} is encrypted, or compressed by another method"
        )
    # zipfile stops at the declared size here, but inflates everything that follows
    # when a member is read as a whole: read one byte further.
    further = copy.copy(info)
    further.file_size += 1
    n_bytes, head = 0, b""
    try:
        with archive.open(further) as stream:
            while chunk := stream.read(_CHUNK):
                head = head or chunk
                n_bytes += len(chunk)
    except zipfile.BadZipFile as error:
        if "CRC" not in str(error):
            raise
        raise ValueError(
            f"the checksum of its member {info.filename} is wrong"
        ) from error
    if n_bytes != info.file_size:
        raise ValueError(
            f"its member {info.filename} does not have the {info.file_size:,} bytes "
            "that it declares"
        )
    return head


def _check_array(head: bytes, info: zipfile.ZipInfo) -> None:
    """Check that an array has the size in its header, which NumPy allocates."""
    stream = io.BytesIO(head)
    version = npy.read_magic(stream)
    read = npy.read_array_header_1_0
    shape, _, dtype = (read if version == (1, 0) else npy.read_array_header_2_0)(stream)
    n_entries: int = math.prod(shape)
    declared = n_entries * dtype.itemsize
    if n_entries and not declared:
        raise ValueError(
            f"the array in its member {info.filename} has shape {shape}, but entries "
            "of no width, of which a file of any size could declare any number"
        )
    if stream.tell() + declared != info.file_size:
        raise ValueError(
            f"the array in its member {info.filename} has shape {shape} and type "
            f"{dtype}, {declared:,} bytes, but {info.file_size - stream.tell():,} "
            "bytes follow"
        )
