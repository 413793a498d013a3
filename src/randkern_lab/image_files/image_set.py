"""Published sets of images as data sets: samples of them are named as such."""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from randkern.datasets import Dataset
from randkern.exceptions import DataFileError

#: (X, y) by the name of the split.
Splits: TypeAlias = dict[str, tuple[np.ndarray, np.ndarray]]


def unit_pixels(pixels: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Divide uint8 pixels by 255: each float32 is the nearest to p / 255."""
    if out is None:
        out = np.empty(pixels.shape, dtype=np.float32)
    return np.divide(pixels, np.float32(255), out=out)


@dataclass(frozen=True)
class ImageSet:
    """A published set of images, and how it is told from samples of it."""

    name: str
    title: str
    classes: tuple[str, ...]
    image_shape: tuple[int, int, int]

    def dataset(
        self, source: str, splits: Splits, full_counts: tuple[int, int]
    ) -> Dataset:
        """Return images as a data set, whose name states their number if some lack.

        `full_counts` are the numbers of training and test rows of the complete set.
        """
        (X_train, y_train), (X_test, y_test) = splits["train"], splits["test"]
        counts = len(y_train), len(y_test)
        note = ""
        if counts[0] != full_counts[0]:
            note = f"sample ({counts[0]:,} of {full_counts[0]:,})"
        elif counts[1] != full_counts[1]:
            note = f"sample ({counts[1]:,} of {full_counts[1]:,} test)"
        return Dataset(
            f"{self.name} {note}".strip(),
            X_train,
            y_train,
            X_test,
            y_test,
            target_names=self.classes,
            image_shape=self.image_shape,
            description=(
                f"{self.title}{', ' if note else ''}{note}, {source}: n = "
                f"{counts[0]:,} train + {counts[1]:,} test, d = {X_train.shape[1]:,}"
            ),
        )

    def check_labels(self, path: Path, labels: np.ndarray, where: str) -> None:
        """Raise if labels are not classes; `where` is the word for their place."""
        wrong = np.flatnonzero((labels < 0) | (labels >= len(self.classes)))
        if wrong.size:
            raise DataFileError(
                f"{path}: {wrong.size:,} labels out of 0..{len(self.classes) - 1}, the "
                f"first {labels[wrong[0]]} {where} {wrong[0]:,}; the file is damaged "
                f"or not the labels of {self.title}: get it again"
            )
