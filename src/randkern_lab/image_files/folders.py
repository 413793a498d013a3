"""Images in class folders, in a directory or inside a zip archive."""

import io
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from randkern._extras import import_extra
from randkern._files import READING_ERRORS
from randkern.datasets.files import guess_content
from randkern.exceptions import DataFileError

from .image_set import ImageSet, Splits, unit_pixels

_SUFFIXES = (".jpg", ".jpeg", ".png")
_SPLITS = ("train", "test")
_MODES = ("RGB", "L", "P")
_MAX_BYTES = 1 << 20  # per file; no 32 x 32 image comes near.


class Member(NamedTuple):
    """One image file, read on decoding."""

    file: str
    class_name: str
    split: str
    location: str
    n_bytes: int
    read: Callable[[], bytes]


def read_image_folder(source: Path, images: ImageSet) -> Splits:
    """Decode ``train/CLASS/FILE`` and ``test/CLASS/FILE``, JPEG or PNG.

    `source` is a directory or a zip archive, of which nothing is unpacked to disk; the
    two folders may be nested, as in ``cifar10/train``. Hidden files, ``__MACOSX``,
    paths with ``..`` and files without an image suffix are skipped. Rows are sorted by
    file name, then class, so that consecutive rows cover all classes. A member that is
    no image of these classes and this shape raises a DataFileError that names it.
    """
    import_extra("PIL.Image", "Decoding JPEG and PNG images", "data")
    with _listed(source) as members:
        _check_members(source, members, images.classes)
        decoded = {}
        for split in _SPLITS:
            chosen = [member for member in members if member.split == split]
            chosen.sort(key=lambda member: (member.file, member.class_name))
            # On one thread: for such small images most of the time is spent in Python
            # code of Pillow and zipfile, under the GIL.
            pixels = np.empty((len(chosen), *images.image_shape), dtype=np.uint8)
            for row, member in enumerate(chosen):
                pixels[row] = _decode(member, images.image_shape)
            y = [images.classes.index(member.class_name) for member in chosen]
            X = unit_pixels(pixels.reshape(len(chosen), -1))
            decoded[split] = X, np.array(y, dtype=np.int64)
        return decoded


@contextmanager
def _listed(source: Path) -> Iterator[list[Member]]:
    """List the images of a directory, or of an archive, kept open in the context."""
    if source.is_dir():
        paths = [p for split in _SPLITS for p in (source / split).glob("*/*")]
        yield [
            Member(*place, str(path), path.stat().st_size, path.read_bytes)
            for path in paths
            if path.is_file() and (place := _place(path.relative_to(source).as_posix()))
        ]
        return
    try:
        archive = zipfile.ZipFile(source)
    except READING_ERRORS as error:
        with source.open("rb") as stream:
            seen = guess_content(stream.read(32))
        raise DataFileError(
            f"{source}: not a readable zip archive ({error}){seen}; copy or download "
            f"it again (`unzip -t` checks it)"
        ) from error
    with archive:
        yield [
            Member(
                *place,
                f"{source}, member {info.filename}",
                info.file_size,
                partial(_read_member, archive, info),
            )
            for info in archive.infolist()
            if not info.is_dir() and (place := _place(info.filename))
        ]


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Read as much as a member declares; `ZipFile.read` would inflate all of it."""
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError("its compression method is not supported; expected deflate")
    with archive.open(info) as stream:
        return stream.read(info.file_size)


def _place(name: str) -> tuple[str, str, str] | None:
    """Return (file, class, split) of an image's path, or None to skip it."""
    parts = name.split("/")
    # A hidden part, "..", or the empty part that starts an absolute path.
    odd = any(not part or part[0] == "." or part == "__MACOSX" for part in parts)
    if odd or "\\" in name or not name.lower().endswith(_SUFFIXES):
        return None
    if len(parts) < 3 or parts[-3] not in _SPLITS:
        return None
    return parts[-1], parts[-2], parts[-3]


def _check_members(source: Path, members: list[Member], classes: Sequence[str]) -> None:
    for split in _SPLITS:
        if not any(member.split == split for member in members):
            raise DataFileError(
                f"{source}: no images under {split}/, expected "
                f"{split}/CLASS/*.jpg or *.png with CLASS among {', '.join(classes)}"
            )
    for member in members:
        if member.class_name not in classes:
            raise DataFileError(
                f"{member.location}: unknown class folder {member.class_name!r}, "
                f"expected one of {', '.join(classes)}"
            )
    count = Counter(member[:3] for member in members)
    (file, class_name, split), times = count.most_common(1)[0]
    if times > 1:
        raise DataFileError(
            f"{source}: {split}/{class_name}/{file} is there {times} times; keep one "
            f"copy of the data set in it"
        )


def _decode(member: Member, image_shape: tuple[int, int, int]) -> np.ndarray:
    """Decode one image to uint8 of ``image_shape``, after checking its size."""
    from PIL import Image

    height, width, _ = image_shape
    try:
        if member.n_bytes > _MAX_BYTES:
            raise ValueError(
                f"it has {member.n_bytes:,} bytes, expected at most {_MAX_BYTES:,}"
            )
        content = io.BytesIO(member.read())
        with Image.open(content, formats=("JPEG", "PNG")) as image:
            if image.size != (width, height) or image.mode not in _MODES:
                raise ValueError(
                    f"{image.width} x {image.height} pixels, mode {image.mode}, "
                    f"expected {width} x {height}, mode RGB"
                )
            return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))
    except (*READING_ERRORS, Image.DecompressionBombError) as error:
        raise DataFileError(
            f"{member.location}: unreadable image ({error}); get the data set again, "
            f"or remove this file"
        ) from error
