"""Code that builds a model of a table, and what a reader is shown of it."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import numpy as np

from randkern.kernels import Kernel, Product, Scaled, Sum
from randkern.models import KernelRidgeClassifier, KernelRidgeRegressor
from randkern.tabular.exact_ridge import ExactRidge
from randkern.tabular.local import CellRidge
from randkern.tabular.members import MEMORY_LIMIT, Member
from randkern.tabular.presets import ALWAYS_FACTORISED
from randkern.tabular.target_transforms import TRANSFORMS

_WIDTH = 88
# Longer lists of numbers are abbreviated.
_MAX_NUMBERS = 40


def code_of_model(model: Any) -> str:
    """Return code that fits a `TabularModel` to X and y with public classes.

    The code assigns it to ``model`` and reads weights from ``sample_weight``. That
    of a classifier ends with its calibrated probabilities.
    """
    lines = [
        "import randkern as rk",
        "from sklearn.pipeline import make_pipeline",
    ]
    if model.weighted:
        lines += [
            "import sklearn",
            "sklearn.set_config(enable_metadata_routing=True)",
        ]
    lines += _score_lines(model)
    if model.note:
        lines.append(f"# {model.note}")
    elif model.held_out is not None:
        lines += _split_lines(model, *model.held_out)
    labels = hasattr(model.members[0].fit, "predict_proba")
    several = len(model.members) > 1
    many = several and not labels and model.members[0].n_targets > 1
    voting = "VotingClassifier" if labels else "VotingRegressor"
    if several:
        lines.append(f"from sklearn.ensemble import {voting}")
    if many:
        lines.append("from sklearn.multioutput import MultiOutputRegressor")
    names = []
    for at, member in enumerate(model.members, start=1):
        names.append(f"model_{at}" if several else "model")
        lines += _member_lines(model, member, names[-1])
    if several:
        pairs = ", ".join(f"({name!r}, {name})" for name in names)
        weights = [float(member.weight) for member in model.members]
        how = ", voting='soft'" if labels else ""
        code = f"{voting}([{pairs}], weights={weights}{how})"
        lines.append(f"model = {f'MultiOutputRegressor({code})' if many else code}")
    if model.target_transform is not None:
        transform = TRANSFORMS[model.target_transform]
        function, inverse = transform.function, transform.inverse
        lines += [
            "import numpy as np",
            "from sklearn.compose import TransformedTargetRegressor",
            "model = TransformedTargetRegressor("
            f"model, func=np.{function.__name__}, "
            f"inverse_func=np.{inverse.__name__})",
        ]
    weight_code = ", sample_weight=sample_weight" if model.weighted else ""
    lines.append(f"model.fit(X, y{weight_code})")
    lines += [*_precision_lines(model, many), *_temperature_lines(model)]
    if model.temperature is not None:
        divisor = float(model.temperature)
        lines += [
            "import numpy as np",
            "from scipy.special import softmax",
            "logits = np.log(np.clip(model.predict_proba(X), 1e-15, None))",
            f"probabilities = softmax(logits / {divisor!r}, axis=1)",
        ]
    # Imports stand first, once.
    imports = [line for line in lines if line.startswith(("import ", "from "))]
    rest = [line for line in lines if line not in imports]
    return "\n".join([*dict.fromkeys(imports), *rest])


def _score_lines(model: Any) -> Iterator[str]:
    """Yield lines that add the columns of scores to X."""
    encoders = {"texts": model.texts, "scores": model.scores}
    if any(encoder is not None for encoder in encoders.values()):
        yield "import numpy as np"
    for name, encoder in encoders.items():
        if encoder is not None:
            kind, labels = type(encoder), ", classes=True" * encoder.classes
            yield f"from {kind.__module__} import {kind.__name__}"
            yield f"{name} = {kind.__name__}({list(encoder.columns)}{labels})"
            yield f"X = {name}.fit_transform(X, {_fitted_targets(model)})"
            yield f"# For predictions: {name}.transform(X)"


def _fitted_targets(model: Any) -> str:
    """Return the code of the targets of members, and of their weights."""
    y = "y"
    if model.target_transform is not None:
        y = f"np.{TRANSFORMS[model.target_transform].function.__name__}(y)"
    return f"{y}, sample_weight" if model.weighted else y


def _precision_lines(model: Any, many: bool) -> Iterator[str]:
    """Yield lines that make a single-precision fit predict in double precision."""
    if all(member.encoder.dtype == "float64" for member in model.members):
        return
    change = "[0].set_params(dtype='float64')  # for predictions"
    place = "model" if model.target_transform is None else "model.regressor_"
    if len(model.members) == 1:
        yield f"{place}{change}"
        return
    fitted = f"{place}.estimators_"
    if many:
        fitted = f"[each for part in {fitted} for each in part.estimators_]"
    yield f"for fitted in {fitted}:"
    yield f"    fitted{change}"


def _temperature_lines(model: Any) -> Iterator[str]:
    """Yield lines that set temperatures of least squares, from rows left out."""
    for at, member in enumerate(model.members):
        offset = getattr(member.fit, "calibration_offset_", None)
        if offset is None or np.any(offset):
            continue
        place = (
            f"model.estimators_[{at}][-1]" if len(model.members) > 1 else "model[-1]"
        )
        yield f"{place}.temperature_ = {float(member.fit.temperature_)!r}"
        yield f"{place}.calibration_offset_ *= 0.0"


def _split_lines(model: Any, seed: int, n_apart: int, _: int) -> Iterator[str]:
    yield "from sklearn.model_selection import train_test_split"
    names = ["X", "y", *["sample_weight"] * model.weighted]
    parts = ", _, ".join(names) + ", _"
    yield (
        f"{parts} = train_test_split({', '.join(names)}, test_size={n_apart}, "
        f"random_state={seed})"
    )


def _encoder_code(member: Member) -> str:
    encoder = member.encoder
    changed = {"numbers": encoder.numbers, "dtype": encoder.dtype}
    usual = {"numbers": "standard", "dtype": "float64"}
    options = [f"{k}={v!r}" for k, v in changed.items() if v != usual[k]]
    return f"rk.TabularEncoder({', '.join(options)})"


def _member_lines(model: Any, member: Member, name: str) -> Iterator[str]:
    fit, kernel = member.fit, code_of(member.kernel)
    cell_rows = getattr(fit, "cell_rows", None)
    if cell_rows is not None:
        fit = fit.estimator
    if "np." in kernel:
        yield "import numpy as np"
    yield f"kernel = {kernel}"
    options: dict[str, Any] = {}
    searched = hasattr(fit, "alphas")
    if searched:
        # The penalty of landmarks only: with a small one, other solvers differ.
        alphas = [float(member.alpha * model.unit)]
        options |= {"alphas": alphas, "fit_intercept": True}
    elif hasattr(fit, "alpha"):
        options |= {"alpha": member.alpha * model.unit, "fit_intercept": True}
    else:
        options |= {
            "C": float(fit.C / model.unit),
            "tol": fit.tol,
            "max_iter": fit.max_iter,
            "fit_intercept": fit.fit_intercept,
        }
    options["n_components"] = getattr(fit, "n_components", None)
    is_exact = isinstance(fit, (ExactRidge, CellRidge))
    if not is_exact:
        options["random_state"] = fit.random_state
        options["memory_limit"] = MEMORY_LIMIT
    elif cell_rows is None and len(fit.X) > ALWAYS_FACTORISED:
        options |= {"solver": "cholesky", "memory_limit": "6GB"}
    if not searched and isinstance(fit, (KernelRidgeRegressor, KernelRidgeClassifier)):
        options["solver"] = fit.solver
    if getattr(fit, "features", "random") != "random":
        options["features"] = fit.features
    text = ", ".join(f"{key}={value!r}" for key, value in options.items())
    encoder = _encoder_code(member)
    name_of_class = "KernelRidgeRegressor" if is_exact else type(fit).__name__
    code = f"rk.{name_of_class}(kernel, {text})"
    if cell_rows is not None:
        outer = type(member.fit).__name__
        code = f"rk.{outer}({code}, cell_rows={cell_rows})"
    if model.weighted:
        request = ".set_fit_request(sample_weight=True)"
        code += request
        encoder += request
    yield f"{name} = make_pipeline({encoder}, {code})"


def code_of(kernel: Kernel) -> str:
    """Return a Python expression that builds the kernel."""
    if isinstance(kernel, Scaled):
        return f"{float(kernel.scale)!r} * {_factor(kernel.kernel)}"
    if isinstance(kernel, Sum):
        return f"{code_of(kernel.k1)} + {code_of(kernel.k2)}"
    if isinstance(kernel, Product):
        return f"{_factor(kernel.k1)} * {_factor(kernel.k2)}"
    changed = []
    defaults = type(kernel)().get_params(deep=False)
    for name, value in kernel.get_params(deep=False).items():
        plain = value.tolist() if isinstance(value, np.ndarray) else value
        if isinstance(plain, np.generic):
            plain = plain.item()
        if name == "lengthscale":
            changed.append(f"{name}={_code_of_numbers(plain)}")
        elif plain != defaults[name]:
            changed.append(f"{name}={plain!r}")
    return f"rk.{type(kernel).__name__}({', '.join(changed)})"


def _code_of_numbers(plain: Any) -> str:
    """Return an expression of a value, in which runs of equal numbers are repeated."""
    if isinstance(plain, list):
        runs = [(value, len(list(equal))) for value, equal in groupby(plain)]
        if 2 * len(runs) <= len(plain):
            values, counts = (list(part) for part in zip(*runs, strict=True))
            return f"np.repeat({values}, {counts})"
    return repr(plain)


def _factor(kernel: Kernel) -> str:
    code = code_of(kernel)
    return f"({code})" if isinstance(kernel, Sum) else code


def shortened(code: str) -> str:
    """Return code with floats of four digits, short lists, and lines of 88 letters.

    Of long lists, such as the rows of a matrix, the first and the last numbers are
    left, with an ellipsis between them.
    """
    code = re.sub(
        r"\b\d+\.\d{4,}(?:e[+-]?\d+)?\b", lambda number: f"{float(number[0]):.4g}", code
    )
    code = re.sub(r"\[[-+\d.e,\s\[\]]*\]", _abbreviated, code)
    return "\n".join(_wrapped(line) for line in code.splitlines())


def _abbreviated(match: re.Match[str]) -> str:
    numbers = match[0]
    if numbers.count(",") < _MAX_NUMBERS:
        return numbers
    rows = numbers.count("[") - 1
    if rows > 1:  # a matrix
        first = numbers[2 : numbers.index("]")].split(", ")
        return f"[[{', '.join(first[:3])}, ...], ...]"
    row = numbers[1:-1].split(", ")
    return f"[{', '.join(row[:3])}, ..., {row[-1]}]"


def _wrapped(line: str) -> str:
    """Break a long line behind commas in brackets."""
    depth, commas = 0, []
    for token in tokenize.generate_tokens(io.StringIO(line).readline):
        depth += (token.string in {"(", "[", "{"}) - (token.string in {")", "]", "}"})
        if token.string == "," and depth:
            commas.append(token.end[1])
    lines, start, indent = [], 0, ""
    while len(line) - start > _WIDTH - len(indent):
        end = start + _WIDTH - len(indent)
        fitting = [comma for comma in commas if start < comma <= end]
        if not fitting:
            break
        lines.append(indent + line[start : fitting[-1]])
        start, indent = fitting[-1] + 1, "    "
    return "\n".join([*lines, indent + line[start:]])
