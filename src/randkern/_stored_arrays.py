"""What the arrays of fitted estimators are: checked when a file is loaded.

An array of another shape, of another type, or with values that are not finite would
give other predictions, or an error far from its cause.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import StandardScaler

from randkern._validation import is_tensor
from randkern.backend.namespace import ops_of
from randkern.kernels.stationary import Stationary
from randkern.landmarks import Landmarks
from randkern.metric import MetricLearner
from randkern.models._feature_model import FeatureModel
from randkern.models._gp_evidence import RowPosterior, WeightPosterior
from randkern.models.cells import Cells, CellTree
from randkern.plan import Plan
from randkern.tabular.model import ExactRidge, Member

# The axis of targets, which arrays for a single target do not have, and that of the
# directions of a metric, which scales of columns do not have.
TARGETS = "_n_outputs"
DIRECTIONS = "directions of the metric"
WIDTH = "plan_.n_components"
COLUMNS = "n_features_in_"


@dataclass(frozen=True)
class Layout:
    """The shape and the type of an array.

    An axis is the path of an attribute with its length, or a name for a length that
    several arrays of an object share. `whole` arrays hold integers, all others finite
    numbers. `or_other` allows a number for all, or a rule in place of an array.
    What may be unknown or unbounded need not be `finite`.
    """

    axes: tuple[str, ...]
    whole: bool = False
    or_other: bool = False
    finite: bool = True


LAYOUTS: dict[type, dict[str, Layout]] = {
    FeatureModel: {
        "coef_": Layout((TARGETS, WIDTH)),
        "X_fit_": Layout(("rows", COLUMNS)),
        "dual_coef_": Layout(("rows", TARGETS)),
        "intercept_": Layout((TARGETS,), or_other=True),
        "support_": Layout(("support vectors",), whole=True),
        "support_coef_": Layout(("support vectors", TARGETS)),
        "margin_": Layout(("machines",)),
        "temperature_": Layout((), finite=False),
        "calibration_offset_": Layout((TARGETS,)),
        "_left_out_sizes": Layout(("rows left out", "targets"), finite=False),
        "_left_out_weight": Layout(("rows left out",), finite=False),
        "_triangle": Layout(("landmarks", "landmarks")),
    },
    Plan: {"factor": Layout(("n_components", "n_components"))},
    Landmarks: {"rows": Layout(("n_draws", "width"))},
    WeightPosterior: {"factor": Layout(("weights", "weights"))},
    RowPosterior: {
        "inner": Layout(("rows", "targets")),
        "factor": Layout(("rows", "rows")),
        "root": Layout(("rows",)),
    },
    CellTree: {
        "directions": Layout(("nodes", "directions")),
        "low": Layout(("nodes",)),
        "high": Layout(("nodes",)),
        "children": Layout(("nodes", "sides"), whole=True),
    },
    Cells: {
        "intercepts": Layout(("tree.n_cells", "targets")),
        "alphas": Layout(("tree.n_cells",)),
    },
    ExactRidge: {
        "X": Layout(("rows", "columns")),
        "dual": Layout(("rows", "targets")),
        "intercept": Layout(("targets",)),
        "fold_dual": Layout(("rows", "folds", "targets")),
        "fold_intercept": Layout(("folds", "targets")),
    },
    Member: {"turn": Layout(("encoded columns", "turned columns"))},
    MetricLearner: {
        "feature_importances_": Layout((COLUMNS,)),
        "_root": Layout((COLUMNS, DIRECTIONS)),
    },
    Stationary: {"lengthscale": Layout(("columns",), or_other=True)},
    StandardScaler: {
        "mean_": Layout((COLUMNS,), finite=False),
        "var_": Layout((COLUMNS,), finite=False),
        "scale_": Layout((COLUMNS,), finite=False),
    },
}


def check_arrays(estimator: Any) -> None:
    """Raise a ValueError that names the first array that is not as `LAYOUTS` says."""
    for part in _parts(estimator):
        for kind, layouts in LAYOUTS.items():
            if isinstance(part, kind):
                _check_part(part, layouts)


def _parts(estimator: Any) -> Iterator[Any]:
    """Yield the objects of randkern and scikit-learn within an estimator, once each."""
    left, seen = [estimator], set()
    while left:
        part = left.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, list | tuple):
            left.extend(part)
        elif isinstance(part, dict):
            left.extend(part.values())
        elif type(part).__module__.startswith(("randkern.", "sklearn.")):
            yield part
            left.extend(getattr(part, "__dict__", {}).values())


def _check_part(part: Any, layouts: Mapping[str, Layout]) -> None:
    lengths: dict[str, int] = {}
    for name, layout in layouts.items():
        value = part.__dict__.get(name)
        problem = ""
        if layout.or_other and not hasattr(value, "shape"):
            if isinstance(value, float) and not np.isfinite(value):
                problem = "is not finite"
        elif value is not None:
            problem = _problem(part, value, layout, lengths)
        if problem:
            raise ValueError(f"{name} of its {type(part).__name__} {problem}")


def _problem(part: Any, value: Any, layout: Layout, lengths: dict[str, int]) -> str:
    """Return what is wrong with an array, or nothing; note lengths of its axes."""
    if not (isinstance(value, np.ndarray | np.generic | float) or is_tensor(value)):
        if not sp.issparse(value):
            return f"is {type(value).__name__}, expected an array"
        value.check_format(full_check=True)
    shape = tuple(getattr(value, "shape", ()))
    axes = [axis for axis in layout.axes if _has_axis(part, axis)]
    expected = []
    for number, axis in enumerate(axes):
        if axis not in lengths:
            known = _length(part, axis)
            here = shape[number] if number < len(shape) else -1
            lengths[axis] = here if known is None else known
        expected.append(lengths[axis])
    if shape != tuple(expected):
        return f"has shape {shape}, expected {tuple(expected)} for {', '.join(axes)}"
    numbers = value.data if sp.issparse(value) else value
    numbers = np.asarray(ops_of(numbers).to_host(numbers)) if shape else numbers
    numbers = np.asarray(numbers)
    if numbers.dtype.kind not in ("iu" if layout.whole else "fiub"):
        of = "integers" if layout.whole else "numbers"
        return f"has the type {numbers.dtype}, expected {of}"
    if layout.finite and not np.isfinite(numbers).all():
        return "holds values that are not finite"
    return ""


def _has_axis(part: Any, axis: str) -> bool:
    if axis == TARGETS:
        return part._n_outputs is not None
    return axis != DIRECTIONS or part.metric_ == "full"


def _length(part: Any, axis: str) -> int | None:
    """Return the length of an axis that is an attribute, else None."""
    try:
        return operator.attrgetter(axis)(part)
    except AttributeError:
        return None
