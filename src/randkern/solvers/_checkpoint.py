"""Where an iteration stands, on disk: an interrupted one goes on from there."""

from __future__ import annotations

import time
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from randkern._files import atomic_write
from randkern.exceptions import CheckpointError

__all__ = ["Checkpoint"]

# At most this share of the time goes into writing.
_SHARE = 0.05
_DAMAGES = (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile)


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
        if self.path.is_dir():
            raise CheckpointError(
                f"checkpoint={str(path)!r} is a folder; name a file, such as "
                f"{str(self.path / 'fit.npz')!r}."
            )
        if not self.path.parent.is_dir():
            raise CheckpointError(
                f"the folder of checkpoint={str(path)!r} does not exist; create it."
            )

    def load(self, names: Sequence[str] | None = None) -> dict[str, np.ndarray] | None:
        """Return the arrays of the file (or those of these names that it has).

        None if there is no file.
        """
        try:
            with np.load(self.path, allow_pickle=False) as arrays:
                wanted = arrays.files if names is None else names
                return {name: arrays[name] for name in wanted if name in arrays.files}
        except FileNotFoundError:
            return None
        # A TypeError: an array alone, which is no file of several.
        except (*_DAMAGES, TypeError) as error:
            raise CheckpointError(
                f"{self.path} is not a checkpoint, or is damaged ({error}); delete it "
                "to start anew, or name another file."
            ) from error

    def check(self, arrays: dict[str, np.ndarray], names: Sequence[str] = ()) -> None:
        """Raise unless the file's arrays are of the same iteration, up to rounding.

        It must hold `names`, too.
        """
        complete = all(name in arrays for name in [*names, *self.identity])
        for name, expected in self.identity.items():
            here = np.asarray(expected)
            if not complete or arrays[name].shape != here.shape:
                raise CheckpointError(
                    f"{self.path} belongs to another fit: delete it to start anew, or "
                    "name another file."
                )
            # By columns: targets may be of very different size.
            here = np.atleast_1d(here)
            apart = np.abs(arrays[name] - here).max(axis=0, initial=0.0)
            if not np.all(apart <= 1e-5 * np.abs(here).max(axis=0, initial=0.0)):
                raise CheckpointError(
                    f"{self.path} belongs to a fit on other rows, with another kernel, "
                    "alpha or random_state: delete it to start anew, or name another "
                    "file."
                )

    def save(self, arrays: dict[str, Any]) -> None:
        """Replace the file."""
        began = time.perf_counter()
        with atomic_write(self.path) as file:
            np.savez(file, **arrays, **self.identity, **self.attached)
        self._saved_at = time.perf_counter()
        self._seconds = self._saved_at - began

    @property
    def due(self) -> bool:
        """Whether enough time has passed that writing does not slow the work."""
        return _SHARE * (time.perf_counter() - self._saved_at) >= self._seconds

    def remove(self) -> None:
        """Delete the file, once what it stood for is done."""
        self.path.unlink(missing_ok=True)
