"""The types that files may hold, and their names there."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import is_dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.dummy import DummyClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from randkern import (
    features,
    kernels,
    metric,
    models,
    optics,
    skeletons,
    solvers,
    tabular,
)
from randkern._random import Stream
from randkern._tables import TableEncoder
from randkern.backend.namespace import empty_on, ops_of
from randkern.data.table_format import TableFormat
from randkern.datasets.schema import TableSchema
from randkern.models._gp_evidence import Normal
from randkern.models._gp_laplace import Bernoulli, Poisson, Softmax, StudentT
from randkern.models._gp_neighbors import Deviations, Nearest, NearestPosterior
from randkern.models._gp_posterior import Posterior
from randkern.models.cells import CellTree
from randkern.models.normal_equations import NormalEquations
from randkern.nonlinearities import Nonlinearity
from randkern.optics._scattering import ScatteringMedium
from randkern.plan import Factor, Group, Plan
from randkern.projections import Distribution, InputMap, Mixing, Projection
from randkern.solvers.pcg import SpectralPreconditioner
from randkern.tabular.effects import ColumnEffects
from randkern.tabular.exact_logistic import ExactLogistic
from randkern.tabular.exact_ridge import ExactRidge
from randkern.tabular.folds import Folds
from randkern.tabular.intervals import Intervals, Novelty
from randkern.tabular.model import Member, TabularModel
from randkern.tabular.rows import Table
from randkern.tabular.search import Trial
from randkern.tabular.target_encoding import CategoryScores, TextEncoder

# The place of this package's names in files.
_PLACE = "randkern.persistence"

# The device to load the tensors of a file to; None: they become arrays.
chosen_device: ContextVar[str | None] = ContextVar("chosen_device", default=None)


def full_name(kind: type) -> str:
    """Return the full name of a type."""
    return f"{kind.__module__}.{kind.__name__}"


class TensorArray(np.ndarray):
    """A tensor in a file: skops stores an array, and calls its type to read it."""

    def __new__(cls, array: np.ndarray) -> Any:
        """Return the tensor, or the array if no device was chosen."""
        device = chosen_device.get()
        if device is None:
            return array
        like = empty_on(device, array.dtype)
        return ops_of(like).asarray(array, like)


# The package exposes parts of estimators that are not public under their class names
# (see its `__getattr__`): these, and every class of a few families (`_stored_types`).
_PARTS = (
    Bernoulli,
    Factor,
    Group,
    InputMap,
    Mixing,
    Nearest,
    NearestPosterior,
    Normal,
    NormalEquations,
    Plan,
    Poisson,
    Posterior,
    ScatteringMedium,
    Softmax,
    StudentT,
    SpectralPreconditioner,
    Stream,
    TableEncoder,
    TensorArray,
    CellTree,
    ColumnEffects,
    Deviations,
    ExactLogistic,
    ExactRidge,
    Member,
    TabularModel,
    Trial,
    Folds,
    Intervals,
    Novelty,
    Table,
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
            name = f"{_PLACE}.{kind.__name__}"
            if stored.setdefault(name, kind) is not kind:
                raise TypeError(f"{kind} and {stored[name]} would both be {name}")
    return stored


TYPES = _stored_types()
NAMES = {full_name(kind): name for name, kind in TYPES.items()}
# With those of other packages, in addition to scikit-learn's public estimators and
# NumPy's types and ufuncs, which skops trusts by default.
TRUSTED_TYPES = (
    *TYPES,
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
OWN_TYPES = TYPES | {
    full_name(kind): kind
    for kind in (
        DummyClassifier,
        Pipeline,
        StandardScaler,
    )
}
