"""Converters of fitted estimators for skl2onnx, and export to ONNX files."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.pipeline import Pipeline

from randkern import features as transformers
from randkern import metric, models, tabular
from randkern._extras import import_extra
from randkern._files import atomic_write
from randkern._tables import is_numeric, is_table, is_time
from randkern.deployment import (
    categories_of,
    check_numbers,
    encoder_of,
    on_host,
    weighted_sum,
)
from randkern.models import (
    GaussianProcessClassifier,
    GaussianProcessRegressor,
    LocalClassifier,
    LocalRegressor,
)
from randkern.models.calibration import LogitsOfDecisions
from randkern.models.cells import scaled_columns
from randkern.onnx.operators import encoded, features, gram
from randkern.onnx.traced import Graph, Traced, TracedOps
from randkern.tabular import TabularClassifier, TabularEncoder, TabularRegressor
from randkern.tabular.model import TabularModel
from randkern.tabular.target_transforms import TRANSFORMS

_XP = TracedOps.xp


def export_onnx(
    model: Any,
    path: str | os.PathLike[str],
    X: Any = None,
    *,
    dtype: str = "float64",
    return_std: bool = False,
) -> Any:
    """Write a fitted model or pipeline as an ONNX file, which runs without Python.

    Structured projections become products with Hadamard matrices, other projections
    products with a stored matrix, and exact kernels their formulas; all are computed in
    double precision.

    Parameters
    ----------
    model : estimator
        A model or transformer of this library, or a scikit-learn pipeline whose
        other steps skl2onnx can convert.
    path : path
        The customary extension is ``.onnx``. An existing file is replaced once the
        new one is complete.
    X : array or dataframe, optional
        A few rows like those to predict. Every column of a dataframe becomes an input
        with its name and type. If None, the input has rows of `dtype`; a model that
        encodes dataframes has one input per column: strings for categories, else
        `dtype`.
    dtype : {"float64", "float32"}, default="float64"
        Dtype of inputs and outputs if `X` is None.
    return_std : bool, default=False
        For :class:`~randkern.GaussianProcessRegressor`, also at the end of a pipeline:
        add an output ``std``, the standard deviations of
        ``predict(X, return_std=True)``.

    Returns
    -------
    onnx.ModelProto
        The exported model.

    Raises
    ------
    ValueError
        If a part of the model has no ONNX operators, such as the exact values of
        :class:`~randkern.Spectral`; the message names it. If an input has the name of
        an output, or if there is no standard deviation to return.
    ImportError
        If skl2onnx, which the extra ``onnx`` installs, is missing.

    See Also
    --------
    randkern.to_torch : the same as a PyTorch module.

    Notes
    -----
    Regressors have one output, ``variable``; classifiers have ``label`` and
    ``probabilities``, which holds values of the decision function (−v and v for two
    classes) if the model has no probabilities. Missing numbers are NaN, missing
    categories empty strings. Intervals are not exported; those of a process follow from
    ``std`` and its ``noise_``.

    Examples
    --------
    >>> import tempfile, randkern as rk
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = rk.KernelRidgeRegressor(n_components=50, random_state=0).fit(X, y)
    >>> folder = tempfile.TemporaryDirectory()
    >>> onnx_model = rk.export_onnx(model, folder.name + "/model.onnx")
    >>> onnx_model.graph.input[0].name, onnx_model.graph.output[0].name
    ('X', 'variable')
    >>> folder.cleanup()
    """
    skl2onnx = import_extra("skl2onnx", "randkern.export_onnx", "onnx")
    register()
    if dtype not in ("float64", "float32"):
        raise ValueError(f"dtype must be 'float64' or 'float32', got {dtype!r}.")
    options: Any = {"zipmap": False} if is_classifier(model) else None
    outputs = ["label", "probabilities"] if is_classifier(model) else ["variable"]
    if return_std:
        last = model.steps[-1][1] if isinstance(model, Pipeline) else model
        if not isinstance(last, GaussianProcessRegressor):
            raise ValueError(
                "return_std=True needs a GaussianProcessRegressor, got a "
                f"{type(last).__name__}; use return_std=False."
            )
        options = {id(last): {"return_std": True}}
        outputs.append("std")
    types = _input_types(model, X, dtype)
    for name in outputs:
        if name in dict(types):
            raise ValueError(
                f"X has a column {name!r}, but the ONNX model has an output of this "
                "name; rename the column before fitting."
            )
    onnx_model = skl2onnx.convert_sklearn(model, initial_types=types, options=options)
    _rename_inputs(onnx_model.graph, [name for name, _ in types])
    with atomic_write(path) as file:
        file.write(onnx_model.SerializeToString())
    return onnx_model


def register() -> None:
    """Register the estimators of this library with skl2onnx, for ``skl2onnx.to_onnx``.

    Call it once per process; :func:`randkern.export_onnx` does so itself.

    Examples
    --------
    >>> import skl2onnx, randkern as rk, randkern.onnx
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> X, y = load_diabetes(return_X_y=True)
    >>> ridge = rk.KernelRidgeRegressor(n_components=50, random_state=0)
    >>> pipeline = make_pipeline(StandardScaler(), ridge).fit(X, y)
    >>> randkern.onnx.register()
    >>> skl2onnx.to_onnx(pipeline, X[:1]).graph.output[0].name
    'variable'
    """
    skl2onnx = import_extra("skl2onnx", "randkern.onnx", "onnx")
    rooms = transformers, metric, models, tabular
    for kind in (getattr(room, name) for room in rooms for name in room.__all__):
        if not isinstance(kind, type):
            continue
        options = None
        if is_classifier(kind()):
            options = {
                "zipmap": [True, False, "columns"],
                "output_class_labels": [False, True],
                "raw_scores": [True, False],
            }
        parser = None
        if kind is GaussianProcessRegressor:
            parser, options = _process_outputs, {"return_std": [True, False]}
        skl2onnx.update_registered_converter(
            kind,
            f"Randkern{kind.__name__}",
            _set_types,
            _convert,
            parser=parser,
            options=options,
        )


def _process_outputs(
    scope: Any, model: Any, inputs: Any, custom_parsers: Any = None
) -> Any:
    """Declare the outputs of a Gaussian process: means, and standard deviations."""
    operator = scope.declare_local_operator(f"Randkern{type(model).__name__}", model)
    operator.inputs = inputs
    options = scope.get_options(model, {"return_std": False})
    for name in ["variable", "std"] if options["return_std"] else ["variable"]:
        # The type is replaced by _set_types.
        operator.outputs.append(scope.declare_local_variable(name, inputs[0].type))
    return operator.outputs


# -- types of inputs and outputs ---------------------------------------------------


def _input_types(model: Any, X: Any, dtype: str) -> list[tuple[str, Any]]:
    """Return the names and types of the inputs."""
    types = import_extra("skl2onnx.common.data_types", "randkern.export_onnx", "onnx")
    text = types.StringTensorType([None, 1])
    by_kind = {
        "f4": types.FloatTensorType,
        "i": types.Int64TensorType,
        "b": types.BooleanTensorType,
    }

    def of(kind: Any, width: int = 1) -> Any:
        kind = np.dtype(kind)
        name = kind.str[1:] if kind.kind == "f" else kind.kind.replace("u", "i")
        return by_kind.get(name, types.DoubleTensorType)([None, width])

    def of_column(column: Any) -> Any:
        if is_numeric(column):
            return of(np.asarray(column).dtype)
        return of(float) if is_time(column) else text  # dates are numbers of days

    if X is None:
        # Those of the model: its encoder may also read columns derived from targets.
        names = getattr(model, "feature_names_in_", None)
        if names is None or encoder_of(model) is None:
            return [("X", of(dtype, model.n_features_in_))]
        texts = categories_of(model)
        return [(name, text if name in texts else of(dtype)) for name in names]
    if not is_table(X):
        return [("X", of(np.asarray(X).dtype, np.shape(X)[1]))]
    return [(name, of_column(X[name])) for name in X.columns]


def _rename_inputs(graph: Any, names: list[str]) -> None:
    """Restore the column names, which skl2onnx turns into identifiers."""
    taken = {name for node in graph.node for name in node.output}
    taken |= {constant.name for constant in graph.initializer}
    changed = {
        graph_input.name: name
        for graph_input, name in zip(graph.input, names, strict=True)
        if name not in taken
    }
    for graph_input in graph.input:
        graph_input.name = changed.get(graph_input.name, graph_input.name)
    for node in graph.node:
        for at, name in enumerate(node.input):
            node.input[at] = changed.get(name, name)


def _set_types(operator: Any) -> None:
    """Set the types of the outputs of an estimator."""
    types = import_extra("skl2onnx.common.data_types", "randkern.onnx", "onnx")
    model = operator.raw_operator
    kinds = {type(v.type) for v in operator.inputs} - {types.StringTensorType}
    single = kinds == {types.FloatTensorType}
    kind = types.FloatTensorType if single else types.DoubleTensorType
    if not is_classifier(model):
        for output in operator.outputs:
            output.type = kind([None, _width(model)])
        return
    text = _labels(model).dtype.kind in "OU"
    label = types.StringTensorType if text else types.Int64TensorType
    operator.outputs[0].type = label([None])
    operator.outputs[1].type = kind([None, len(model.classes_)])


def _width(model: Any) -> int:
    """Return the number of output columns of a regressor or transformer."""
    if hasattr(model, "transform"):
        return len(model.get_feature_names_out())
    if isinstance(model, TabularRegressor):
        return model.model_.members[0].n_targets
    if isinstance(model, LocalRegressor):
        return _width(model.estimators_[0])
    return model._n_outputs or 1


def _labels(model: Any) -> np.ndarray:
    """Return the classes as integers or strings."""
    labels = np.asarray(model.classes_.tolist())
    if labels.dtype.kind in "OU":
        return labels.astype(str).astype(object)
    complete = labels.astype(np.int64)
    if (complete != labels).any():
        raise ValueError(
            "labels of an ONNX model must be integers or strings, got "
            f"{labels.tolist()}; convert them before fitting."
        )
    return complete


# -- estimators --------------------------------------------------------------------


def _convert(scope: Any, operator: Any, container: Any) -> None:
    """Add the operators of an estimator to an skl2onnx container."""
    model = operator.raw_operator
    graph = Graph(scope, container)
    check_numbers(model)
    inputs = [_input(graph, variable, model) for variable in operator.inputs]
    values: Any
    if is_classifier(model):
        raw = container.get_options(model, {"raw_scores": False})["raw_scores"]
        if isinstance(model, LogitsOfDecisions):
            # Labels are those of decisions, without the offsets of probabilities.
            decisive = _scores(model, inputs)
            values = decisive if raw else _calibrated(model, decisive)
        else:
            values = _scores(model, inputs) if raw else _probabilities(model, inputs)
            decisive = values
        label = TracedOps().take(_labels(model), decisive.argmax(axis=1))
        graph.output(label, operator.outputs[0].full_name)
        result = operator.outputs[1]
    else:
        result = operator.outputs[0]
        if isinstance(model, TabularEncoder):
            values = encoded(model, inputs)
        elif isinstance(model, TabularRegressor):
            values = _mean(model.model_, inputs)
            if model.model_.target_transform is not None:
                values = TRANSFORMS[model.model_.target_transform].inverse(values)
        elif isinstance(model, GaussianProcessRegressor):
            has_std = len(operator.outputs) > 1
            values, deviations = _process_values(model, _rows(inputs), has_std)
            if has_std:
                _add_output(graph, deviations, operator.outputs[1])
        else:
            values = _values(model, _rows(inputs))
    _add_output(graph, values, result)


def _add_output(graph: Graph, values: Traced, variable: Any) -> None:
    single = type(variable.type).__name__ == "FloatTensorType"
    values = values.astype(np.float32 if single else np.float64)
    graph.output(values, variable.full_name)


def _input(graph: Graph, variable: Any, model: Any) -> Traced:
    """Return an input of an estimator, with a one-row example."""
    kinds = {"Float": np.float32, "Double": np.float64, "Boolean": bool, "String": str}
    name = type(variable.type).__name__.removesuffix("TensorType")
    width = variable.type.shape[1] if len(variable.type.shape or []) > 1 else None
    if not isinstance(width, int):
        width = model.n_features_in_
    example = np.zeros((1, width), kinds.get(name, np.int64))
    return Traced(graph, variable.full_name, example)


def _rows(inputs: list[Traced]) -> Traced:
    """Return numeric columns as rows in double precision."""
    if any(x.dtype.kind in "OU" for x in inputs):
        raise ValueError(
            "X has strings, but the model expects numbers; encode them first, for "
            "instance with randkern.TabularEncoder in a pipeline."
        )
    return _XP.concat([x.astype(np.float64) for x in inputs], axis=1)


def _mean(model: TabularModel, inputs: list[Traced]) -> Any:
    """Return the weighted mean of the predictions of a tabular model's members."""
    total: Any = None
    for member in model.members:
        fit = member.fit
        X = encoded(member.encoder, inputs, model.scores)
        classes = hasattr(fit, "classes_")
        values = _probabilities(fit, [X]) if classes else _values(fit, X)
        part = values * float(member.weight)
        total = part if total is None else total + part
    return total


def _values(model: Any, X: Traced) -> Any:
    """Return the values (n, k) of a regressor, transformer or decision function."""
    if isinstance(model, LocalRegressor):
        return _blended(model, X, lambda cell: _values(model.estimators_[cell], X))
    weights, constant, plan, kernel, rows, sorts = weighted_sum(model)
    if plan is not None:
        X = features(plan, X)
    elif kernel is not None:
        X = gram(kernel, X, rows)
    if weights is None:
        return X
    values = X @ weights.reshape(len(weights), -1)
    values = values if constant is None else values + np.atleast_1d(constant)
    return values.sorted(axis=1) if sorts else values


def _blended(model: Any, X: Traced, values_of: Callable[[int], Any]) -> Any:
    """Return the blend of the values of cells; all of them compute all rows."""
    check_numbers(model)
    scaled = scaled_columns(model.kernel_, X)
    if scaled is None:
        raise ValueError(
            f"the cells of {type(model).__name__} have no ONNX operators for a kernel "
            "without lengthscales; use a stationary kernel."
        )
    parts = [values_of(cell) * w for cell, w in model.tree_.weights(scaled)]
    return sum(parts[1:], parts[0])


def _cell_probabilities(model: LocalClassifier, cell: int, X: Traced) -> Any:
    """Return the probabilities of all classes in a cell."""
    estimator = model.estimators_[cell]
    if len(estimator.classes_) == 1:
        own = X[:, :1] * 0.0 + 1.0
    else:
        own = _probabilities(estimator, [X])
    if len(estimator.classes_) == len(model.classes_):
        return own
    places = np.searchsorted(model.classes_, estimator.classes_)
    n = len(model.estimators_samples_[cell])
    spread = np.eye(len(model.classes_))[places] * (n / (n + 1))
    return own @ spread + model.class_prior_ / (n + 1)


def _process_moments(model: Any, X: Traced) -> tuple[Any, Any]:
    """Return the means of every f of a Gaussian process, (n, k), and variances."""
    check_numbers(model)
    posterior = model._posterior
    if model.plan_ is not None:
        Z = features(model.plan_, X)
    else:
        Z = gram(model.kernel_, X, model.X_fit_)
    roots = posterior.roots
    posterior = replace(
        posterior,
        mean=on_host(posterior.mean),
        factors=[on_host(factor) for factor in posterior.factors],
        roots=None if roots is None else [on_host(root) for root in roots],
    )
    return posterior.moments_of(X, Z)


def _process_values(
    model: GaussianProcessRegressor, X: Traced, has_std: bool
) -> tuple[Any, Any]:
    """Return the predictions of a Gaussian process, and standard deviations or None."""
    if model.n_neighbors is not None:
        raise ValueError(
            "a search for nearest rows (n_neighbors) has no ONNX operators; use "
            "n_neighbors=None, with n_components for many rows."
        )
    is_gaussian = model.likelihood == "gaussian"
    if is_gaussian and not has_std:
        return _values(model, X), None
    scale = np.array(model._target_scale)
    means, variances = _process_moments(model, X)
    if is_gaussian:
        values = _values(model, X)
    else:
        likelihood: Any = model._likelihood
        mean, variance = likelihood.moments(means[:, 0], variances[:, 0], False)
        variances = variance[:, None]
        values = mean[:, None] * scale + np.array(model._target_mean)
    return values, variances.clip(0.0) ** 0.5 * scale


def _scores(model: Any, inputs: list[Traced]) -> Any:
    """Return the decision function of a classifier, one column per class."""
    without = (GaussianProcessClassifier, LocalClassifier, TabularClassifier)
    if isinstance(model, without):
        raise ValueError(
            "raw_scores=True needs a classifier with a decision function, got "
            f"{type(model).__name__}."
        )
    values = _values(model, _rows(inputs))
    return _XP.concat([-values, values], axis=1) if values.shape[1] == 1 else values


def _probabilities(model: Any, inputs: list[Traced]) -> Any:
    """Return class probabilities."""
    if isinstance(model, LogitsOfDecisions):
        return _calibrated(model, _scores(model, inputs))
    if isinstance(model, LocalClassifier):
        X = _rows(inputs)
        return _blended(model, X, lambda cell: _cell_probabilities(model, cell, X))
    if isinstance(model, TabularClassifier):
        return _mean(model.model_, inputs)
    if isinstance(model, GaussianProcessClassifier):
        # Under Laplace's approximation.
        return model._mean_probabilities(*_process_moments(model, _rows(inputs)))
    return _scores(model, inputs)


def _calibrated(model: Any, values: Any) -> Any:
    """Return class probabilities, or decision values if the model has none."""
    if getattr(model, "_temperature", None) is None:
        return values
    two = len(model.classes_) == 2
    offset = np.array([-1.0, 1.0]) * model._offset if two else model._offset
    values = values * (1 / float(model._temperature)) + offset
    special = TracedOps().special
    return special.expit(values) if two else special.softmax(values, 1)
