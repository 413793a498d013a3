"""The IDX format of the MNIST files, any type and any rank."""

import math
from pathlib import Path
from typing import BinaryIO

import numpy as np

from randkern.datasets.files import STREAM_ERRORS, guess_content, open_data
from randkern.exceptions import DataFileError

_DTYPES: dict[int, np.dtype] = {
    0x08: np.dtype(np.uint8),
    0x09: np.dtype(np.int8),
    0x0B: np.dtype(">i2"),
    0x0C: np.dtype(">i4"),
    0x0D: np.dtype(">f4"),
    0x0E: np.dtype(">f8"),
}
_MAX_RANK = 64  # NumPy's limit on dimensions.
_CHUNK = 1 << 20


def read_idx(path: str | Path) -> np.ndarray:
    """Read an IDX file, plain or gzip (by content, not by suffix).

    The format: two zero bytes, a type byte (8 uint8, 9 int8, 0xB int16,
    0xC int32, 0xD float32, 0xE float64), a rank byte, one big-endian uint32
    size per dimension, then the values in C order, big-endian.

    Parameters
    ----------
    path : str or Path
        The file, plain or compressed by gzip.

    Returns
    -------
    ndarray
        Of the shape and type that the header states, in native byte order;
        0-dimensional for rank 0.

    Raises
    ------
    FileNotFoundError
        Where there is no such file.
    randkern.exceptions.DataFileError
        Bad magic number, unknown type, truncated header or values, bytes after
        the last value, damaged gzip stream. Memory is taken as bytes arrive,
        so a header that promises terabytes fails without allocating them.

    References
    ----------
    .. [1] Y. LeCun, C. Cortes, C. Burges. The MNIST database of handwritten
       digits, "File formats for the MNIST database".

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "labels"
    ...     _ = path.write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1]))
    ...     read_idx(path)
    array([7, 2, 1], dtype=uint8)
    """
    path = Path(path)
    with open_data(path) as stream:
        dtype, shape = _read_header(stream, path)
        expected = math.prod(shape) * dtype.itemsize
        values = _read_values(stream, path, expected)
        if stream.read(1):
            raise DataFileError(
                f"{path}: bytes follow the last value: the header promises shape "
                f"{shape} of {dtype.name}, {expected:,} bytes; the file is damaged or "
                f"its header is wrong: copy or download it again"
            )
    array = np.frombuffer(values, dtype=dtype).reshape(shape)
    return array.astype(dtype.newbyteorder("="), copy=False)


def _read_header(stream: BinaryIO, path: Path) -> tuple[np.dtype, tuple[int, ...]]:
    """Read the magic number and the sizes, and check that they make sense."""
    magic = stream.read(4)
    if len(magic) < 4:
        raise DataFileError(
            f"{path}: {len(magic)} bytes where an IDX file begins with 4; the file is "
            f"empty or cut short: copy or download it again"
        )
    if magic[:2] != b"\0\0" or magic[2] not in _DTYPES or magic[3] > _MAX_RANK:
        raise DataFileError(
            f"{path}: not an IDX file{guess_content(magic + stream.read(28))}: it "
            f"begins with {magic.hex(' ')}, expected 00 00, a type among "
            f"{', '.join(f'{code:02x}' for code in _DTYPES)}, and a rank up to "
            f"{_MAX_RANK}; check that this is the right file"
        )
    rank = magic[3]
    sizes = stream.read(4 * rank)
    if len(sizes) < 4 * rank:
        raise DataFileError(
            f"{path}: the header ends after {4 + len(sizes)} of {4 + 4 * rank} bytes "
            f"(rank {rank}); the file is cut short: copy or download it again"
        )
    shape = tuple(np.frombuffer(sizes, dtype=">u4").tolist())
    # NumPy refuses shapes whose non-zero sizes overflow, even where one is zero.
    if math.prod(size for size in shape if size) >= 1 << 59:
        raise DataFileError(
            f"{path}: the header states shape {shape}, more than can exist; the file "
            f"is damaged: copy or download it again"
        )
    return _DTYPES[magic[2]], shape


def _read_values(stream: BinaryIO, path: Path, expected: int) -> bytearray:
    """Read ``expected`` bytes, chunk by chunk, or say how many there were."""
    values = bytearray()
    while len(values) < expected:
        try:
            chunk = stream.read(min(_CHUNK, expected - len(values)))
        except STREAM_ERRORS as error:
            raise DataFileError(
                f"{path}: the gzip stream is damaged after {len(values):,} to "
                f"{len(values) + _CHUNK:,} of the {expected:,} bytes of values that "
                f"the header promises ({error}); copy or download the file again"
            ) from error
        if not chunk:
            raise DataFileError(
                f"{path}: truncated: {len(values):,} bytes of values, expected "
                f"{expected:,} by the header; copy or download the file again"
            )
        values += chunk
    return values
