"""Saving fitted estimators in files that are safe to load.

A file is a zip archive as skops writes it: a description of the objects in
JSON, and their arrays in NumPy's format. It contains no code, and loading it
creates only objects of known types: no name in a file is imported.

Importing skops imports every module of scikit-learn, and PyTorch and Dask where they
are installed: seconds, for a model that predicts a row in milliseconds. So models of
randkern are written and read here, in the format of skops, and skops is left those with
objects of other packages. It also lacks: types under public names, so that files
outlive moved definitions; tensors; a header with versions and checksums; sizes that are
checked before memory is allocated; and files that are replaced as a whole.
"""

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
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from sklearn.base import BaseEstimator
from sklearn.dummy import DummyClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder, QuantileTransformer, StandardScaler

from randkern import (
    __version__,
    features,
    kernels,
    metric,
    models,
    optics,
    skeletons,
    solvers,
    tabular,
)
from randkern._extras import import_extra
from randkern._files import (
    READING_ERRORS,
    archive_limit,
    atomic_write,
    check_archive,
    check_needed,
    check_path,
    shortage,
    special_kind,
)
from randkern._fitting import forget
from randkern._random import Stream
from randkern._tables import TableEncoder
from randkern._validation import is_tensor
from randkern._warnings import warn
from randkern.backend.namespace import empty_on, ops_of
from randkern.datasets.schema import TableFormat, TableSchema
from randkern.exceptions import MemoryLimitError, ModelFileError, ModelVersionWarning
from randkern.models._gp_evidence import FeaturePosterior, Normal, RowPosterior
from randkern.models._gp_laplace import (
    Bernoulli,
    LaplacePosterior,
    Poisson,
    Softmax,
    StudentT,
)
from randkern.models._gp_likelihood import Basis, Posterior
from randkern.models._gp_neighbors import Deviations, Nearest, NearestPosterior
from randkern.models.cells import CellTree
from randkern.models.normal_equations import NormalEquations
from randkern.nonlinearities import Nonlinearity
from randkern.optics._scattering import ScatteringMedium
from randkern.plan import Factor, Group, Plan
from randkern.projections import Distribution, InputMap, Mixing, Projection
from randkern.solvers.pcg import SpectralPreconditioner
from randkern.tabular.category_scores import CategoryScores
from randkern.tabular.effects import ColumnEffects
from randkern.tabular.exact_ridge import ExactRidge
from randkern.tabular.folds import Folds
from randkern.tabular.intervals import Intervals, Spread
from randkern.tabular.local import CellRidge
from randkern.tabular.members import Member
from randkern.tabular.model import TabularModel
from randkern.tabular.texts import TextEncoder
from randkern.tabular.trials import Trial
from randkern.tabular.warm_start import Candidates

__all__ = ["load", "save"]

_FORMAT = 2
_MEMBER = "randkern.json"
_DESCRIPTION = "schema.json"
# The version of skops' format.
_PROTOCOL = 2
# skops holds both an array and its bytes in memory while it reads.
_COPIES = 2
# The objects of a description take 7 to 35 times the size of its text (measured).
_BYTES_PER_CHARACTER = 35

# The device to load the tensors of a file to; None: they become arrays.
_device: ContextVar[str | None] = ContextVar("_device", default=None)


_CONTAINERS: tuple[type, ...] = (list, tuple, set)
# How the keys of dictionaries, which are texts in JSON, become what they were.
_KEYS: dict[type, Callable[[str], Any]] = {
    str: str,
    int: int,
    float: float,
    bool: json.loads,
}
_SCALARS: dict[str, type] = {
    f"{kind.__module__}.{kind.__name__}": kind
    for kind in np.sctypeDict.values()
    if not issubclass(kind, np.object_ | np.void)
}
_PLAIN: dict[str, type] = _SCALARS | {
    f"builtins.{kind.__name__}": kind for kind in _KEYS
}


class _UnknownNodeError(Exception):
    """An object, or a node of a description, of a kind that only skops knows."""


def _name_of(kind: type) -> str:
    """Return the full name of a type."""
    return f"{kind.__module__}.{kind.__name__}"


class TensorArray(np.ndarray):
    """A tensor in a file: skops stores an array, and calls its type to read it."""

    def __new__(cls, array: np.ndarray) -> Any:
        """Return the tensor, or the array if no device was chosen."""
        device = _device.get()
        if device is None:
            return array
        like = empty_on(device, array.dtype)
        return ops_of(like).asarray(array, like)


# This module exposes parts of estimators that are not public under their class names
# (see `__getattr__`): these, and every class of a few families (`_stored_types`).
_PARTS = (
    Basis,
    Bernoulli,
    Factor,
    FeaturePosterior,
    Group,
    InputMap,
    LaplacePosterior,
    Mixing,
    Nearest,
    NearestPosterior,
    Normal,
    NormalEquations,
    Plan,
    Poisson,
    Posterior,
    RowPosterior,
    ScatteringMedium,
    Softmax,
    StudentT,
    SpectralPreconditioner,
    Stream,
    TableEncoder,
    TensorArray,
    CellTree,
    Candidates,
    ColumnEffects,
    Deviations,
    CellRidge,
    ExactRidge,
    Member,
    TabularModel,
    Trial,
    Folds,
    Intervals,
    Spread,
    TableFormat,
    TableSchema,
    CategoryScores,
    TextEncoder,
)


def _stored_types() -> dict[str, type]:
    """Return the types of the library that a file may hold, by their names in files.

    Types are stored by public names, so that files stay readable when a later version
    moves a definition. Loading a file runs methods of its types: of public modules,
    estimators, dataclasses and a few others are trusted.
    """
    rooms = {room: room.__name__ for room in (kernels, optics, skeletons, solvers)}
    rooms |= dict.fromkeys((features, metric, models, tabular), "randkern")
    trusted = (BaseEstimator, optics.SimulatedOPU, skeletons.Skeleton)
    stored = {
        f"{place}.{name}": kind
        for room, place in rooms.items()
        for name in room.__all__
        if isinstance(kind := getattr(room, name), type)
        and (is_dataclass(kind) or issubclass(kind, trusted))
    }
    members: list[type] = [skeletons.Base, Distribution, Nonlinearity, Projection]
    for kind in members:  # grows during the loop
        members += set(kind.__subclasses__()) - {*members}
    for kind in (*_PARTS, *members):
        if kind.__module__.startswith("randkern.") and kind not in stored.values():
            name = f"{__name__}.{kind.__name__}"
            if stored.setdefault(name, kind) is not kind:
                raise TypeError(f"{kind} and {stored[name]} would both be {name}")
    return stored


_TYPES = _stored_types()
_NAMES = {_name_of(kind): name for name, kind in _TYPES.items()}
# With those of other packages, in addition to scikit-learn's public estimators and
# NumPy's types and ufuncs, which skops trusts by default.
TRUSTED_TYPES = (
    *_TYPES,
    "sklearn.metrics._classification.accuracy_score",
    "sklearn.metrics._regression.mean_squared_error",
    "sklearn.metrics._regression.r2_score",
    "sklearn.metrics._scorer._PassthroughScorer",
    "sklearn.metrics._scorer._Scorer",
    "sklearn.model_selection._split.KFold",
    "sklearn.model_selection._split.StratifiedKFold",
    "scipy.sparse._csr.csr_array",
    "scipy.sparse._csr.csr_matrix",
)
# The types that are written and read without skops: also those of scikit-learn in
# models of tables. Their states are arrays and parameters, as skops trusts them.
_OWN_TYPES = _TYPES | {
    _name_of(kind): kind
    for kind in (
        DummyClassifier,
        OneHotEncoder,
        Pipeline,
        QuantileTransformer,
        StandardScaler,
    )
}


def __getattr__(name: str) -> Any:
    """Return a part of estimators by its name in files."""
    try:
        return _TYPES[f"{__name__}.{name}"]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


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
            _finish(archive, _Writer(archive).node(stored), name)
    except _UnknownNodeError as error:
        skops = _skops("save", error)
        # Beside the file, where there is room for a model.
        beside = getattr(file, "name", None)
        folder = os.path.dirname(beside) if isinstance(beside, str) else None
        with tempfile.TemporaryFile(dir=folder) as raw:
            skops.dump(stored, raw)
            _rename(raw, file, name)
        _check_loadable(skops, file)


def _skops(function: str, error: _UnknownNodeError) -> Any:
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
        If a newer version of randkern wrote the file, or one that wrote no checksums.

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
            sizes = check_archive(file, limit, copies=_COPIES)
            writer = _checked_version(file, path, sizes, limit)
        if device is not None:
            empty_on(device, float)  # raises, listing the devices, if it is missing
        unreadable = partial(
            _reading,
            path,
            f", written by randkern {writer}, cannot be read by randkern {__version__}",
            "load it with the version that wrote it; if that fails too, copy or save "
            "it again",
        )
        before = _device.set(device)
        try:
            with unreadable():
                _check_description(file, sizes, limit)
                with zipfile.ZipFile(file) as archive:
                    return _Reader(archive).read()
        except _UnknownNodeError as error:
            skops = _skops("load", error)
            with unreadable():
                return _loaded(skops, file, path, allowed)
        finally:
            _device.reset(before)


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
            if info.filename != _DESCRIPTION:
                copied = zipfile.ZipInfo(info.filename)
                copied.file_size = info.file_size
                with old.open(info) as source, new.open(copied, "w") as target:
                    shutil.copyfileobj(source, target)
        description = json.loads(old.read(_DESCRIPTION))
        for node in _nodes(description):
            name = _NAMES.get(f"{node.get('__module__')}.{node.get('__class__')}")
            if name is not None:
                node["__module__"], _, node["__class__"] = name.rpartition(".")
        _finish(new, description, estimator)


def _finish(
    archive: zipfile.ZipFile, description: dict[str, Any], estimator: str
) -> None:
    """Add the description and randkern's header to an archive with all arrays.

    Only the description is compressed, to about a tenth: arrays of weights would
    hardly shrink.
    """
    text = json.dumps({**description, "protocol": _PROTOCOL})
    archive.writestr(_DESCRIPTION, text, zipfile.ZIP_DEFLATED)
    header = {
        "format": _FORMAT,
        "randkern": __version__,
        "estimator": estimator,
        # Members of other models have other checksums.
        "members": _checksums(archive),
    }
    archive.writestr(_MEMBER, json.dumps(header))


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
    return [name if isinstance(name, str) else _name_of(name) for name in trusted]


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


def _checked_version(
    file: BinaryIO, path: Any, sizes: Mapping[str, int], limit: int
) -> str:
    """Return the version that wrote a file, and refuse another format.

    Warns if the version is newer than this one, or wrote no checksums.
    """
    from packaging.version import InvalidVersion, Version

    if _MEMBER not in sizes:
        raise ModelFileError(
            f"{path} is a zip archive that was not written by randkern.save; load "
            "files of skops with skops.io.load."
        )
    check_needed(_BYTES_PER_CHARACTER * sizes[_MEMBER], limit)
    with zipfile.ZipFile(file) as archive:
        header = json.loads(archive.read(_MEMBER))
        members = _checksums(archive)
    # Earlier versions wrote no checksums.
    if header.get("members", members) != members:
        raise ValueError("its members are not those that were saved together")
    form = int(header["format"])
    writer = str(header["randkern"])
    if form != _FORMAT:
        advice = "upgrade randkern" if form > _FORMAT else "fit the model again"
        raise ModelFileError(
            f"{path} has format {form} of randkern {writer}, but randkern "
            f"{__version__} reads format {_FORMAT}; {advice}."
        )
    try:
        newer = Version(writer) > Version(__version__)
    except InvalidVersion as error:
        raise ModelFileError(
            f"{path} names {writer!r} as the version of randkern that wrote it; it "
            "is damaged."
        ) from error
    if newer:
        warn(
            f"{path} was written by randkern {writer}, which is newer than this "
            f"version, {__version__}, and may be read incorrectly; upgrade randkern.",
            ModelVersionWarning,
        )
    if "members" not in header:
        warn(
            f"{path} was written by an early version of randkern, without checksums, "
            "so damage cannot be detected. Save the model again.",
            ModelVersionWarning,
        )
    return writer


def _checksums(archive: zipfile.ZipFile) -> dict[str, int]:
    """Return the checksums of the members, except for the header."""
    return {
        info.filename: info.CRC
        for info in archive.infolist()
        if info.filename != _MEMBER
    }


def _check_description(file: BinaryIO, sizes: Mapping[str, int], limit: int) -> None:
    """Check that the objects of a description fit into memory.

    skops reads a member again for each node that names it under another id.
    """
    needed = _BYTES_PER_CHARACTER * sizes[_DESCRIPTION]
    check_needed(needed, limit)
    with zipfile.ZipFile(file) as archive:
        nodes = list(_nodes(json.loads(archive.read(_DESCRIPTION))))
    read: dict[Any, int] = {}
    for node in nodes:
        name = node.get("file")
        known = node.get("__id__")
        if isinstance(name, str):
            key = known if known and isinstance(known, int | str) else object()
            read[key] = max(read.get(key, 0), sizes.get(name, 0))
    check_needed(needed + _COPIES * sum(read.values()), limit)
    _check_object_arrays(nodes)


def _nodes(document: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSON document, at any depth."""
    left = [document]
    while left:
        node = left.pop()
        if isinstance(node, dict):
            yield node
            left.extend(node.values())
        elif isinstance(node, list):
            left.extend(node)


def _check_object_arrays(nodes: Sequence[Mapping[str, Any]]) -> None:
    """Refuse multidimensional object arrays that hold the same sequence twice.

    NumPy copies nested sequences, and pipelines and ensembles are such, too: a few that
    refer to each other could expand to an array of any size. `save` writes the rows of
    such arrays in full.
    """
    known = Counter(node.get("__id__") for node in nodes)
    sequences = {
        node.get("__id__")
        for node in nodes
        if isinstance(node.get("content"), list)
        or node.get("__class__") == "ndarray"
        or node.get("__loader__") == "ObjectNode"
    }
    for table in (node for node in nodes if node.get("type") == "json"):
        shape = table["shape"]
        written = shape["__loader__"] == "TupleNode" and known[shape["__id__"]] == 1
        if written and len(shape["content"]) == 1:
            continue
        for node in _nodes(table.get("content")):
            name = node.get("__id__")
            if name is not None and name in sequences and known[name] > 1:
                raise ValueError("an array of objects holds the same sequence twice")


class _Writer:
    """Describes objects, and writes their arrays to an archive.

    An identifier in a node is that of the object in memory; `_written` keeps the
    objects alive, so that no other object takes over an identifier.
    """

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._types = {*_OWN_TYPES.values()}
        self._written: dict[int, Any] = {}

    def node(self, value: Any) -> dict[str, Any]:
        """Return the node of a value."""
        kind = type(value)
        node = self._content(value, kind)
        name = _NAMES.get(_name_of(kind), _name_of(kind))
        module, _, short = name.rpartition(".")
        node = {"__module__": module, "__class__": short} | node
        node["__id__"] = id(value)
        self._written[id(value)] = value
        return node

    def _content(self, value: Any, kind: type) -> dict[str, Any]:
        if value is None or kind in (bool, int, float, str):
            content = json.dumps(value)
            text = {"__module__": "builtins", "__class__": "str", "is_json": True}
            return {"__loader__": "JsonNode", "content": content, **text}
        if kind is dict:
            return self._dictionary(value)
        if kind in _CONTAINERS:
            loader = f"{kind.__name__.capitalize()}Node"
            return {"__loader__": loader, "content": [*map(self.node, value)]}
        if isinstance(value, type) and _PLAIN.get(_name_of(value)) is value:
            names = {"__module__": value.__module__, "__class__": value.__name__}
            return {"__loader__": "TypeNode", **names}
        if kind is np.ndarray or _name_of(kind) in _SCALARS:
            return self._array(value)
        if kind in self._types:
            if issubclass(kind, np.ndarray):
                return self._array(value)
            if kind.__reduce__ is object.__reduce__:
                state = self.node(value.__getstate__())
                return {"__loader__": "ObjectNode", "content": state}
        raise _UnknownNodeError(_name_of(kind))

    def _dictionary(self, value: dict[Any, Any]) -> dict[str, Any]:
        kinds = [type(key) for key in value]
        texts = [key if type(key) is str else json.dumps(key) for key in value]
        if not {*kinds} <= {*_KEYS} or len({*texts}) < len(texts):
            raise _UnknownNodeError("a dictionary with other keys")
        nodes = map(self.node, value.values())
        content = dict(zip(texts, nodes, strict=True))
        return {
            "__loader__": "DictNode",
            "key_types": self.node(kinds),
            "content": content,
        }

    def _array(self, value: Any) -> dict[str, Any]:
        if value.dtype == object:
            items = [self.node(item) for item in value.tolist()]
            shape = self.node(value.shape)
            return {
                "__loader__": "NdArrayNode",
                "type": "json",
                "content": items,
                "shape": shape,
            }
        member = f"{id(value)}.npy"
        if member not in self._archive.NameToInfo:
            buffer = io.BytesIO()
            try:
                np.save(buffer, value, allow_pickle=False)
            except ValueError as error:  # objects in fields of a structure
                raise _UnknownNodeError(f"an array of {value.dtype}") from error
            self._archive.writestr(member, buffer.getbuffer())
        return {"__loader__": "NdArrayNode", "type": "numpy", "file": member}


class _Reader:
    """Creates the objects that an archive describes.

    Nodes with the same identifier are one object.
    """

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._created: dict[Any, Any] = {}
        self._readers: dict[str, Callable[[Any, str], Any]] = {
            "JsonNode": lambda node, name: json.loads(node["content"]),
            "DictNode": self._dictionary,
            "ListNode": self._container,
            "TupleNode": self._container,
            "SetNode": self._container,
            "TypeNode": lambda node, name: _known(_PLAIN, name),
            "NdArrayNode": self._array,
            "ObjectNode": self._object,
        }

    def read(self) -> Any:
        """Return the object in the archive, whose sizes have been checked."""
        description = json.loads(self._archive.read(_DESCRIPTION))
        if description["protocol"] != _PROTOCOL:
            raise _UnknownNodeError(f"protocol {description['protocol']}")
        return self.value(description)

    def value(self, node: dict[str, Any]) -> Any:
        """Return the value that a node describes."""
        identifier = node.get("__id__")
        if identifier in self._created:
            return self._created[identifier]
        read = _known(self._readers, node["__loader__"])
        value = read(node, f"{node['__module__']}.{node['__class__']}")
        if identifier is not None:
            self._created[identifier] = value
        return value

    def _dictionary(self, node: dict[str, Any], name: str) -> dict[Any, Any]:
        _known({"builtins.dict": dict}, name)
        kinds = self.value(node["key_types"])
        content = node["content"]
        if not {*kinds} <= {*_KEYS}:
            raise _UnknownNodeError("a dictionary with other keys")
        return {
            _KEYS[kind](key): self.value(item)
            for kind, (key, item) in zip(kinds, content.items(), strict=True)
        }

    def _container(self, node: dict[str, Any], name: str) -> Any:
        kind = _known({f"builtins.{kind.__name__}": kind for kind in _CONTAINERS}, name)
        return kind(map(self.value, node["content"]))

    def _array(self, node: dict[str, Any], name: str) -> Any:
        if node["type"] == "json":
            _known({"numpy.ndarray": np.ndarray}, name)
            items = [*map(self.value, node["content"])]
            shape = self.value(node["shape"])
            if len(shape) != 1:
                return np.array(items, dtype=object)
            array = np.empty(len(items), dtype=object)
            for at, item in enumerate(items):  # which may be sequences themselves
                array[at] = item
            return array
        kind = np.ndarray
        if name != "numpy.ndarray":
            kind = _known({**_OWN_TYPES, **_SCALARS}, name)
        with self._archive.open(node["file"]) as stream:
            array = npy.read_array(stream, allow_pickle=False)
        if kind is np.ndarray:
            return array
        if name not in _SCALARS and not issubclass(kind, np.ndarray):
            raise _UnknownNodeError(f"an array that is a {name}")
        return kind(array)

    def _object(self, node: dict[str, Any], name: str) -> Any:
        kind = _known(_OWN_TYPES, name)
        if issubclass(kind, np.ndarray):
            raise _UnknownNodeError(f"an object that is a {name}")
        created = kind.__new__(kind)
        state = self.value(node["content"])
        if state is None:
            return created
        if hasattr(created, "__setstate__"):
            created.__setstate__(state)
        else:
            vars(created).update(state)
        return created


def _known(values: Mapping[str, Any], name: str) -> Any:
    """Return the value under a name in a file, or raise if there is none."""
    if name not in values:
        raise _UnknownNodeError(name)
    return values[name]
