"""Saves estimators to files, and loads them."""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import pydoc
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from randkern import __version__
from randkern._extras import import_extra
from randkern._files import (
    READING_ERRORS,
    archive_limit,
    atomic_write,
    check_archive,
    check_path,
    shortage,
    special_kind,
)
from randkern._fitting import forget
from randkern._validation import is_tensor
from randkern._warnings import warn
from randkern.backend.namespace import empty_on, ops_of
from randkern.exceptions import MemoryLimitError, ModelFileError
from randkern.persistence.archive import (
    COPIES,
    DESCRIPTION,
    Reader,
    UnknownNodeError,
    Writer,
    check_description,
    checked_version,
    finish,
    nodes_of,
)
from randkern.persistence.stored_types import (
    NAMES,
    TRUSTED_TYPES,
    TensorArray,
    chosen_device,
    full_name,
)


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Save an estimator, fitted or not, to a file that :func:`load` reads.

    Parameters
    ----------
    estimator : estimator
        A model, a transformer, a kernel, or a scikit-learn pipeline or search
        made of them.
    path : path
        Any name; ``.skops`` is the customary extension. An existing file is
        replaced once the new one is complete.

    Raises
    ------
    TypeError
        If `estimator` is not an estimator, or holds something that could not be
        loaded again, such as a lambda.
    ImportError
        Without skops, which the extra ``skops`` installs, if `estimator` holds objects
        of other packages, such as most of scikit-learn's estimators.

    Warns
    -----
    UserWarning
        If it holds types that :func:`load` trusts only when asked to.

    Notes
    -----
    Random features are stored as the seed of their draw, so that the file has the
    size of the weights, whatever the size of the projection. Models trained by
    `partial_fit` store their normal equations, of D² numbers, Nyström features their
    landmarks and a factor, of D² numbers too, and exact kernels their training rows.
    After a round trip on the same machine, predictions are identical to the last bit.
    Tensors of a model that was fitted on a device are stored as arrays marked as
    tensors.

    Examples
    --------
    >>> import tempfile, randkern as rk
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = rk.KernelRidgeRegressor(n_components=50, random_state=0).fit(X, y)
    >>> folder = tempfile.TemporaryDirectory()
    >>> rk.save(model, folder.name + "/model.skops")
    >>> again = rk.load(folder.name + "/model.skops")
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    >>> folder.cleanup()
    """
    with atomic_write(path) as file:
        write(estimator, file)


def write(estimator: Any, file: BinaryIO) -> None:
    """Write an estimator to an open file, as :func:`save` does."""
    if isinstance(estimator, type) or not hasattr(estimator, "get_params"):
        kind = estimator if isinstance(estimator, type) else type(estimator)
        raise TypeError(
            "save expects an estimator, a kernel or a pipeline, got "
            f"{'the class' if kind is estimator else 'an object of type'} "
            f"{kind.__name__}."
        )
    stored = _without_tensors(_without_callbacks(estimator))
    name = type(estimator).__name__
    try:
        with zipfile.ZipFile(file, "w") as archive:
            finish(archive, Writer(archive).node(stored), name)
    except UnknownNodeError as error:
        skops = _skops("save", error)
        # Beside the file, where there is room for a model.
        beside = getattr(file, "name", None)
        folder = os.path.dirname(beside) if isinstance(beside, str) else None
        with tempfile.TemporaryFile(dir=folder) as raw:
            skops.dump(stored, raw)
            _rename(raw, file, name)
        _check_loadable(skops, file)


def _skops(function: str, error: UnknownNodeError) -> Any:
    """Return the module that writes and reads objects of other packages.

    It takes seconds to import: it imports all of scikit-learn.
    """
    return import_extra("skops.io", f"randkern.{function} ({error})", "skops")


def load(
    path: str | os.PathLike[str],
    *,
    trusted: Iterable[str | type] = (),
    device: str | None = None,
    memory_limit: int | str | None = None,
) -> Any:
    """Load an estimator that :func:`save` has written.

    Only objects of listed types of randkern, and of the types of scikit-learn
    and NumPy that skops trusts, are created; nothing else is imported or run.

    Parameters
    ----------
    path : path
        A file that :func:`save` has written.
    trusted : iterable of str or type, optional
        More types to trust, by their full name or as the type itself. Trust only
        types that you know: creating an object may run its code.
    device : str, optional
        PyTorch device (``"cpu"``, ``"cuda"``) for the tensors of a model that was
        fitted on tensors; it then predicts on tensors of that device. None: they
        become NumPy arrays, and the model predicts on arrays. A model that was
        fitted on arrays is not changed.
    memory_limit : int or str, optional
        Memory that reading may take, in bytes or as text such as ``"4GB"``. A file
        that declares more is refused before it is read. None: the free memory, but at
        most the larger of 2 GB and 100 times the size of the file.

    Returns
    -------
    estimator
        As it was saved, except for the device of tensors.

    Raises
    ------
    randkern.exceptions.ModelFileError
        If the file is damaged, truncated, was not written by `save`, would take
        more memory than `memory_limit`, or holds an object of a type that is not
        trusted; the message names it.
    FileNotFoundError
        If there is no such file.
    ValueError
        If there is no such device.
    ImportError
        Without skops if the file holds objects of other packages, or without PyTorch if
        a device is given.

    Warns
    -----
    randkern.exceptions.ModelVersionWarning
        If a newer version of randkern wrote the file.

    Examples
    --------
    >>> import tempfile, randkern as rk
    >>> folder = tempfile.TemporaryDirectory()
    >>> rk.save(2.0 * rk.Gaussian(3.0), folder.name + "/kernel.skops")
    >>> rk.load(folder.name + "/kernel.skops")
    Scaled(kernel=Gaussian(lengthscale=3.0), scale=2.0)
    >>> folder.cleanup()
    """
    allowed = [*TRUSTED_TYPES, *_checked_names(trusted)]
    check_path(path)
    kind = special_kind(path)
    if kind is not None:
        raise ModelFileError(f"{path} is {kind}, expected a file of randkern.save.")
    with Path(path).open("rb") as file:
        limit = archive_limit(file, memory_limit)
        with _reading(
            path,
            " is damaged or truncated, or was not written by randkern.save",
            "copy it again, or save the model again",
        ):
            sizes = check_archive(file, limit, copies=COPIES)
            writer = checked_version(file, path, sizes, limit)
        if device is not None:
            empty_on(device, float)  # raises, listing the devices, if it is missing
        unreadable = partial(
            _reading,
            path,
            f", written by randkern {writer}, cannot be read by randkern {__version__}",
            "load it with the version that wrote it; if that fails too, copy or save "
            "it again",
        )
        before = chosen_device.set(device)
        try:
            with unreadable():
                names = check_description(file, sizes, limit)
                _check_own_types({*names} - {*allowed}, path, writer)
                with zipfile.ZipFile(file) as archive:
                    return Reader(archive).read()
        except UnknownNodeError as error:
            skops = _skops("load", error)
            with unreadable():
                return _loaded(skops, file, path, allowed)
        finally:
            chosen_device.reset(before)


def _check_own_types(unknown: Iterable[str], path: Any, writer: str) -> None:
    """Raise if a file holds types that this version of randkern does not have."""
    gone = sorted(name for name in unknown if name.startswith("randkern."))
    if gone:
        raise ModelFileError(
            f"{path} holds objects of types that are not trusted: {', '.join(gone)}. "
            f"This version of randkern ({__version__}) has no such types. Load the "
            f"file with the version that wrote it ({writer}), or fit the model again."
        )


@contextmanager
def _reading(path: Any, problem: str, advice: str) -> Iterator[None]:
    """Raise a ModelFileError for what may be wrong with the content of a file."""
    try:
        yield
    except ModelFileError:
        raise
    except MemoryLimitError as error:
        raise ModelFileError(
            f"{path} was not read: {error}. If you know where it comes from, pass a "
            "larger memory_limit to load."
        ) from error
    except READING_ERRORS as error:
        if needed := shortage(error):
            raise ModelFileError(
                f"{path} could not be read ({type(error).__name__}: {error}), but may "
                f"be intact: {needed}, and load it again."
            ) from error
        raise ModelFileError(
            f"{path}{problem} ({type(error).__name__}: {error}); {advice}."
        ) from error


def _loaded(skops: Any, file: BinaryIO, path: Any, allowed: list[str]) -> Any:
    """Return the object in a file, or raise for types that are not trusted."""
    file.seek(0)
    try:
        return skops.load(file, trusted=allowed)
    except skops.exceptions.UntrustedTypesFoundException as error:
        unknown = _unknown_types(skops, file, allowed)
        raise ModelFileError(
            f"{path} holds objects of types that are not trusted: "
            f"{', '.join(unknown)}. If you know them and where the file comes from, "
            f"load it with trusted={unknown}."
        ) from error


def _rename(raw: BinaryIO, file: BinaryIO, estimator: str) -> None:
    """Copy an archive of skops to `file`, with public names and randkern's header."""
    file.seek(0)
    file.truncate()
    with zipfile.ZipFile(raw) as old, zipfile.ZipFile(file, "w") as new:
        for info in old.infolist():
            if info.filename != DESCRIPTION:
                copied = zipfile.ZipInfo(info.filename)
                copied.file_size = info.file_size
                with old.open(info) as source, new.open(copied, "w") as target:
                    shutil.copyfileobj(source, target)
        description = json.loads(old.read(DESCRIPTION))
        for node in nodes_of(description):
            name = NAMES.get(f"{node.get('__module__')}.{node.get('__class__')}")
            if name is not None:
                node["__module__"], _, node["__class__"] = name.rpartition(".")
        finish(new, description, estimator)


def _without_tensors(estimator: Any) -> Any:
    """Return a copy with arrays for tensors, or the estimator itself if it has none.

    Containers and objects are pickled and read again; all other values are kept.
    """
    values: list[Any] = []
    arrays: dict[int, np.ndarray] = {}

    def place_of(value: Any) -> int | None:
        kind = type(value)
        of_packages = kind.__module__.startswith(("randkern.", "sklearn."))
        if kind in (dict, list, tuple) or of_packages:
            return None
        if is_tensor(value):
            if id(value) not in arrays:
                array = np.asarray(ops_of(value).to_host(value))
                arrays[id(value)] = array.view(TensorArray)
            value = arrays[id(value)]
        values.append(value)
        return len(values) - 1

    buffer = io.BytesIO()
    pickler: Any = pickle.Pickler(buffer, protocol=5)
    pickler.persistent_id = place_of
    pickler.dump(estimator)
    if not arrays:
        return estimator
    buffer.seek(0)
    unpickler: Any = pickle.Unpickler(buffer)
    unpickler.persistent_load = values.__getitem__
    return unpickler.load()


def _without_callbacks(estimator: Any) -> Any:
    """Return the estimator without scikit-learn's callbacks: they watch one run.

    A callback that saves the model meets those of the fit in progress.
    """
    estimator = copy.copy(estimator)
    forget(
        estimator, "_skl_callbacks", "_skl_callbacks_to_teardown", "_callback_fit_ctx"
    )
    return estimator


def _checked_names(trusted: Any) -> list[str]:
    """Return the full names of the types that the caller trusts."""
    if isinstance(trusted, str | bool) or not hasattr(trusted, "__iter__"):
        raise TypeError(
            "trusted must be a list of types or of their full names, such as "
            f"['package.module.Name'], got {trusted!r}."
        )
    return [name if isinstance(name, str) else full_name(name) for name in trusted]


def _unknown_types(skops: Any, file: BinaryIO, allowed: Iterable[str]) -> list[str]:
    file.seek(0)
    return sorted({*skops.get_untrusted_types(file=file)} - {*allowed})


def _check_loadable(skops: Any, file: BinaryIO) -> None:
    """Raise for types that `load` cannot find; warn of types that need trust."""
    unknown = _unknown_types(skops, file, TRUSTED_TYPES)
    for name in unknown:
        if pydoc.locate(name) is None:
            raise TypeError(
                f"the estimator holds {name}, which cannot be imported by that name "
                "when the file is loaded; define it at the top level of a module."
            )
    if unknown:
        warn(
            "load will ask for trust in types of other packages: "
            f"load(path, trusted={unknown})",
            UserWarning,
        )
