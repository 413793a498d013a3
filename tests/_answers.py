"""Do all documented attributes and public methods of a fitted estimator answer?

Nothing names an estimator: classes come from ``dir(randkern)``, attributes from the
section *Attributes* of their docstrings, and methods from the class. An answer is a
finite value of the documented shape, or an error that the library raised on purpose,
whose message names the estimator, a parameter or the rows.
"""

import inspect
import linecache
import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import is_classifier, is_regressor

import randkern
from randkern._sklearn import StrOptions

#: scikit-learn's own methods, which are not about rows.
_OF_EVERY_ESTIMATOR = frozenset(
    {"get_params", "set_params", "get_metadata_routing", "set_callbacks", "set_output"}
)
#: Methods that change the model, called last, in this order.
_CHANGING = ("fit_transform", "partial_fit", "solve", "fit")
#: Errors that an estimator may raise on purpose.
NAMED_ERRORS = (ValueError, TypeError, ImportError, MemoryError, NotImplementedError)
#: What a message may name besides the class and its parameters.
_WORDS = (
    "X",
    "y",
    "rows",
    "row",
    "labels",
    "classes",
    "targets",
    "column",
    "columns",
    "Dask",
    "RowBlocks",
    "dask",
    "array",
    "DataFrame",
    "exact kernel",
    "blocks",
)
# Attributes of which a fit has one or the other: of random features, and of rows.
_OF_FEATURES, _OF_ROWS = ("coef_", "precision_factor_"), ("dual_coef_",)
_SUM_TOLERANCE = 1e-5


def estimators() -> dict[str, type]:
    """Return the public classes with a method `fit`, by name."""
    result = {name: getattr(randkern, name) for name in dir(randkern)}
    return {
        name: item
        for name, item in result.items()
        if inspect.isclass(item) and hasattr(item, "fit")
    }


def documented_attributes(cls: type) -> list[str]:
    """Return the names in the section *Attributes* of a numpydoc docstring."""
    text = inspect.getdoc(cls) or ""
    section = re.search(
        r"^Attributes\n-+\n(.*?)(?=^\S[^\n]*\n-{3,}|\Z)", text, re.DOTALL | re.MULTILINE
    )
    if section is None:
        return []
    heads = re.findall(r"^(\S[^\n]*?)(?: :[^\n]*)?$", section[1], re.MULTILINE)
    return [name.strip() for head in heads for name in head.split(",")]


def public_methods(cls: type) -> list[str]:
    """Return the public methods but scikit-learn's own; those that change come last."""
    result = [
        name
        for name, value in inspect.getmembers(cls, callable)
        if not name.startswith("_")
        and name not in _OF_EVERY_ESTIMATOR
        and not name.endswith("_request")
    ]
    return sorted(
        result, key=lambda name: _CHANGING.index(name) if name in _CHANGING else -1
    )


def options_of(cls: type, parameter: str) -> list[Any]:
    """Return the texts that a parameter may be, and None if that is allowed."""
    constraints = getattr(cls, "_parameter_constraints", {}).get(parameter, [])
    if isinstance(constraints, str):
        return []
    texts = [c.options for c in constraints if isinstance(c, StrOptions)]
    result: list[Any] = sorted(text for options in texts for text in options)
    return result + [None] * (None in constraints)


@dataclass(frozen=True)
class Asked:
    """Rows of some kind, and the targets, that a fitted model is asked about.

    `fit` are the arguments of fit, `X` rows of the same kind, `y` an array of targets.
    """

    fit: tuple[Any, ...]
    X: Any
    y: np.ndarray


@dataclass(frozen=True)
class Answer:
    """What an attribute or a method said.

    `result` is ``"ok"``, ``"named error"``, ``"absent"`` (of `available_if`, with a
    reason) or ``"FAILED"``; `message` is that of the error.
    """

    name: str
    result: str
    message: str = ""


def ask(model: Any, asked: Asked) -> Iterator[Answer]:
    """Yield the answers of all documented attributes and public methods."""
    cls, absent = type(model), set()
    for name in public_methods(cls):
        # `solve` belongs to a fit in parts, so it acts on the same copy.
        if name not in _CHANGING:
            subject = model
        elif name != "solve":
            subject = deepcopy(model)
        answer = _method(subject, name, asked)
        absent |= {name} if answer.result == "absent" else set()
        yield answer
    for name in documented_attributes(cls):
        if _expected(model, name, asked, absent):
            yield _attribute(model, name)


def is_named(error: BaseException, model: Any) -> bool:
    """Tell whether an error was raised on purpose, and says what it is about."""
    cls = type(model)
    named = [cls.__name__, *model.get_params(deep=False), *public_methods(cls), *_WORDS]
    pattern = "|".join(rf"\b{re.escape(word)}\b" for word in named)
    return is_raised(error) and re.search(pattern, str(error)) is not None


def is_raised(error: BaseException) -> bool:
    """Tell whether the innermost line of an error is a statement ``raise``."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return False
    line = linecache.getline(trace.tb_frame.f_code.co_filename, trace.tb_lineno)
    return line.lstrip().startswith("raise")


def _failed(name: str, error: Exception, model: Any) -> Answer:
    """Return the answer that an error is."""
    message = f"{type(error).__name__}: {' '.join(str(error).split())}"
    if isinstance(error, AttributeError):
        # Of scikit-learn's `available_if`: the reason is what the check raised.
        reason = error.__cause__ or error
        if isinstance(reason, AttributeError) and is_named(reason, model):
            return Answer(name, "absent", str(reason))
        return Answer(name, "FAILED", message)
    if isinstance(error, NAMED_ERRORS) and is_named(error, model):
        return Answer(name, "named error", message)
    return Answer(name, "FAILED", message)


def _expected(model: Any, name: str, asked: Asked, absent: set[str]) -> bool:
    """Tell whether this fit has an attribute that the class documents.

    Weights are of features or of rows; a temperature belongs to
    probabilities, names to tables.
    """
    is_exact = "n_components" in model.get_params() and model.n_components is None
    if name in _OF_FEATURES:
        return not is_exact
    if name in _OF_ROWS:
        return is_exact
    if name == "temperature_":
        return "predict_proba" not in absent
    if name == "feature_names_in_":
        names = getattr(asked.X, "columns", None)
        return names is not None and all(isinstance(item, str) for item in names)
    return True


def _attribute(model: Any, name: str) -> Answer:
    try:
        value = getattr(model, name)
    except Exception as error:
        return _failed(name, error, model)
    return _checked(name, _not_finite(value))


def _checked(name: str, problem: str) -> Answer:
    return Answer(name, "FAILED" if problem else "ok", problem)


def _method(model: Any, name: str, asked: Asked) -> Answer:
    try:
        value = getattr(model, name)(*_arguments(model, name, asked))
        if callable(value) and not hasattr(value, "get_params"):  # paths of a process
            value = value(asked.X)
        return _checked(name, _problem(model, name, value, asked))
    except Exception as error:
        return _failed(name, error, model)


def _arguments(model: Any, name: str, asked: Asked) -> Sequence[Any]:
    """Return the arguments of a method, by the names of its parameters."""
    if name in ("fit", "fit_transform"):
        return asked.fit
    parameters = inspect.signature(getattr(type(model), name)).parameters
    arguments = []
    for item in list(parameters.values())[1:]:
        if item.name == "X":
            arguments.append(asked.X)
        elif item.name == "y":
            arguments.append(asked.y)
        elif item.name == "classes":
            arguments.append(np.unique(asked.y))
        elif item.default is inspect.Parameter.empty:
            raise LookupError(f"the rehearsal has no value for {name}({item.name})")
        else:
            break
    return arguments


def _problem(model: Any, name: str, value: Any, asked: Asked) -> str:
    """Return what is wrong with the value of a method, or nothing."""
    n = len(asked.y)
    if name in ("score", "log_marginal_likelihood"):
        return "" if np.isfinite(float(value)) else f"is {value}"
    if name == "get_feature_names_out":
        return "" if len(value) else "no names"
    if value is None or hasattr(value, "get_params"):  # a fit returns the model
        return ""
    values = as_array(value)
    if values.shape[:1] != (n,):
        return f"has shape {values.shape} for {n} rows"
    if name == "predict_interval":
        inside = (values[..., 0] <= values[..., 1]).all() and not np.isnan(values).any()
        return "" if values.shape[-1] == 2 and inside else "low ends above high ends"
    if is_classifier(model) and name == "predict":
        return "" if np.isin(values, model.classes_).all() else "unknown classes"
    if name == "predict_log_proba":
        name, values = "predict_proba", np.exp(values)
    if name == "predict_proba":
        sums = values.sum(axis=1)
        right = values.shape == (n, len(model.classes_)) and values.min() >= 0
        fits = right and np.abs(sums - 1).max() < _SUM_TOLERANCE
        return "" if fits else f"are no probabilities, shape {values.shape}"
    if is_regressor(model) and name == "predict" and values.shape != asked.y.shape:
        return f"has shape {values.shape}, expected {asked.y.shape}"
    return _not_finite(values)


def _not_finite(value: Any) -> str:
    """Return a complaint about numbers that are not finite."""
    if isinstance(value, dict):
        return next(filter(None, map(_not_finite, value.values())), "")
    if isinstance(value, np.ndarray | float | int) or sp.issparse(value):
        numbers = as_array(value)
        if numbers.dtype.kind in "fc" and not np.isfinite(numbers).all():
            return f"{np.sum(~np.isfinite(numbers))} of {numbers.size} are not finite"
    return ""


def as_array(value: Any) -> np.ndarray:
    """Return an array of NumPy, whatever a method has returned."""
    if hasattr(value, "compute"):
        value = value.compute()
    if sp.issparse(value):
        value = value.toarray()
    return np.asarray(value)
