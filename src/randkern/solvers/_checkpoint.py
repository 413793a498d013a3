"""The state of an iteration on disk, from which an interrupted one continues."""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from randkern._archives import READING_ERRORS, read_arrays
from randkern._files import atomic_write, special_kind
from randkern.exceptions import CheckpointError

# At most this share of the time goes into writing.
_SHARE = 0.05


class Checkpoint:
    """A file of named arrays, replaced as a whole.

    It is written beside its final name and then renamed, so that a process that is
    killed leaves the last complete state behind.

    Parameters
    ----------
    path : str or Path
        Its folder must exist.
    attached : dict of str to array, optional
        Saved with every state.
    identity : dict of str to array, optional
        Saved, too: what tells this iteration from others.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from randkern.solvers import Checkpoint
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoint = Checkpoint(folder + "/fit.npz")
    ...     checkpoint.save({"value": np.arange(3)})
    ...     print(checkpoint.load()["value"])
    [0 1 2]
    """

    def __init__(
        self,
        path: Any,
        attached: dict[str, Any] | None = None,
        identity: dict[str, Any] | None = None,
    ):
        self.path = Path(path)
        self.attached = attached or {}
        self.identity = identity or {}
        self._saved_at = -np.inf
        self._seconds = 0.0
        try:
            kind = special_kind(self.path)
        except (OSError, ValueError) as error:  # no path has null characters
            raise CheckpointError(
                f"checkpoint={str(path)!r} cannot be used ({error}); name another file."
            ) from error
        if kind is not None:
            raise CheckpointError(
                f"checkpoint={str(path)!r} is {kind}; name a file, such as "
                f"{str(self.path / 'fit.npz' if kind == 'a folder' else 'fit.npz')!r}."
            )
        folder = self.path.resolve().parent
        if not folder.is_dir():
            raise CheckpointError(
                f"the folder of checkpoint={str(path)!r}, {folder}, does not exist; "
                "create it, or name a file in a folder that exists."
            )

    def check_writable(self) -> None:
        """Raise CheckpointError if the file cannot be written, and leave it alone."""
        try:
            with tempfile.TemporaryFile(dir=self.path.resolve().parent) as file:
                file.write(b"\0")
        except OSError as error:
            raise self._unwritable(error) from error

    def load(self, names: Sequence[str] | None = None) -> dict[str, np.ndarray] | None:
        """Return the arrays of the file (or those of these names that it has).

        None if there is no file.
        """
        try:
            with self.path.open("rb") as file:
                return read_arrays(file, names)
        except FileNotFoundError:
            return None
        except READING_ERRORS as error:
            raise CheckpointError(
                f"{self.path} is not a checkpoint, or is damaged "
                f"({type(error).__name__}: {error}); delete it to start anew, or name "
                "another file."
            ) from error

    def load_integers(self, types: Mapping[str, type]) -> dict[str, int]:
        """Return those of these numbers, which are not negative, that the file has."""
        arrays = self.load(list(types)) or {}
        if any(array.dtype != types[name] for name, array in arrays.items()):
            raise self._foreign()
        return {name: self.integer(array) for name, array in arrays.items()}

    def integer(self, array: np.ndarray) -> int:
        """Return a number of the file, which is not negative."""
        if array.shape or array.dtype.kind not in "iu" or array < 0:
            raise self._foreign()
        return int(array)

    def check(
        self,
        arrays: dict[str, np.ndarray],
        shapes: Mapping[str, Sequence[tuple[int, ...]]],
    ) -> None:
        """Raise unless the file's arrays are of the same iteration, up to rounding.

        It must hold those that `shapes` names, too, of one of these shapes (-1: any
        number).
        """
        known = {name: [np.shape(value)] for name, value in self.identity.items()}
        for name, allowed in {**shapes, **known}.items():
            if name not in arrays or arrays[name].dtype.kind not in "biuf":
                raise self._foreign()
            if not any(_fits(arrays[name].shape, shape) for shape in allowed):
                raise self._foreign()
        for name, expected in self.identity.items():
            here = np.asarray(expected)
            # By columns: targets may be of very different size.
            here = np.atleast_1d(here)
            apart = np.abs(arrays[name] - here).max(axis=0, initial=0.0)
            if not np.all(apart <= 1e-5 * np.abs(here).max(axis=0, initial=0.0)):
                raise CheckpointError(
                    f"{self.path} belongs to a fit on other rows, with another kernel, "
                    "alpha or random_state: delete it to start anew, or name another "
                    "file."
                )

    def save(self, arrays: dict[str, Any], *, interrupted: bool = False) -> None:
        """Replace the file.

        If it cannot be written, the first time raises CheckpointError. Later, when the
        iteration has gone on for long, and when it is `interrupted`, it is a warning,
        and the last state that was written stays.
        """
        began = time.perf_counter()
        first = self._saved_at == -np.inf
        try:
            with atomic_write(self.path) as file:
                np.savez(file, **arrays, **self.identity, **self.attached)
        except OSError as error:
            if first and not interrupted:
                raise self._unwritable(error) from error
            warnings.warn(
                f"the checkpoint {self.path} could not be written ({error}); the fit "
                "goes on, but would resume from "
                f"{'its beginning' if first else 'an earlier state'}: free some space.",
                UserWarning,
                stacklevel=3,
            )
        self._saved_at = time.perf_counter()
        self._seconds = self._saved_at - began

    def _foreign(self) -> CheckpointError:
        return CheckpointError(
            f"{self.path} belongs to another fit: delete it to start anew, or name "
            "another file."
        )

    def _unwritable(self, error: OSError) -> CheckpointError:
        return CheckpointError(
            f"the checkpoint {self.path} cannot be written ({error}); free some space, "
            "name a file in a folder that you may write to, or pass checkpoint=None."
        )

    @property
    def due(self) -> bool:
        """Whether enough time has passed that writing does not slow the work."""
        return _SHARE * (time.perf_counter() - self._saved_at) >= self._seconds

    def remove(self) -> None:
        """Delete the file, once what it stood for is done; symbolic links stay."""
        try:
            self.path.resolve().unlink(missing_ok=True)
        except OSError as error:
            warnings.warn(
                f"the fit is complete, but its checkpoint {self.path} could not be "
                f"deleted ({error}); delete it.",
                UserWarning,
                stacklevel=3,
            )


def _fits(shape: tuple[int, ...], allowed: tuple[int, ...]) -> bool:
    return len(shape) == len(allowed) and all(
        here == there or there == -1 for here, there in zip(shape, allowed, strict=True)
    )
