"""Kernels by their names in experiments and on the command line.

A *choice* is a kernel with one open hyperparameter, to be chosen on a validation split:
a lengthscale, or the bias ν of a polynomial or optical kernel. Names and parameters are
those of the public kernels.
"""

import inspect
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import randkern
import randkern.kernels
from randkern.kernels.base import Leaf
from randkern.kernels.stationary import Stationary

# Names in records, where `alpha` is the ridge penalty and `scale` the factor of the
# features.
_RECORDED = {"alpha": "kernel_alpha", "scale": "lengthscale"}


def _recorded(name: str) -> str:
    return _RECORDED.get(name, name)


def _fully_connected(lengthscale: float, depth: int = 2) -> Any:
    """Return `depth` layers of ReLU over a Gaussian per column."""
    skeletons = randkern.skeletons
    base = skeletons.gaussian(1.0 / lengthscale)
    return randkern.Compositional(skeletons.FullyConnected(depth, base=base))


class _Family:
    """A public kernel, or a function that returns one, and its signature."""

    def __init__(self, build: Callable[..., Any]) -> None:
        self.build = build
        named = dict(inspect.signature(build, eval_str=True).parameters)
        if build is randkern.Linear:
            del named["bias"]  # a constant, like the models' intercept
        names = (name for name in named if _recorded(name) in ("lengthscale", "bias"))
        self.open_name = next(names, None)
        named.pop(self.open_name or "", None)
        self.required = [k for k, v in named.items() if v.default is v.empty]
        # Other parameters are arrays, and have a default.
        self.parameters = {
            k: v for k, v in named.items() if v.annotation in (int, float, str)
        }


_FAMILIES = {
    re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower(): _Family(
        getattr(randkern.kernels, name)
    )
    for name in randkern.kernels.__all__
    if issubclass(getattr(randkern.kernels, name), Leaf)
    and name != "Precomputed"  # takes no rows
} | {"compositional": _Family(_fully_connected)}
KERNEL_NAMES = tuple(name for name, f in _FAMILIES.items() if not f.required)
_SYNTAX = ", ".join(
    "".join([name, *(f"[:{p.upper()}]" for p in _FAMILIES[name].parameters)])
    for name in KERNEL_NAMES
)
# Reference lengthscales of kernels that are not stationary, or have no rule.
_REFERENCES: dict[str, Callable[[np.ndarray], float]] = {
    # Each of its Gaussians reads one column.
    "compositional": lambda X: float(np.std(X, axis=0, dtype=float).mean()),
    "periodic": lambda X: 1.0,  # in units of the circle
    # Keeps exp(x·y/s²) in range.
    "softmax": lambda X: float(np.linalg.norm(X, axis=1).max()),
}


@dataclass(frozen=True)
class KernelChoice:
    """A kernel family whose lengthscale or bias is still open.

    `label` is the name as requested, such as ``"optical:4"``, `family` one of
    :data:`KERNEL_NAMES`; `parameters` are the others, by their names in the kernel's
    signature (depth is the number of layers of the compositional one).
    """

    label: str
    family: str
    parameters: dict[str, Any]

    @property
    def opens(self) -> str | None:
        """The open hyperparameter: ``"lengthscale"``, ``"bias"`` or None."""
        name = _FAMILIES[self.family].open_name
        return name and _recorded(name)

    def build(self, value: float | str | None) -> Any:
        """Return the kernel with its open hyperparameter set to `value`."""
        family = _FAMILIES[self.family]
        opened = {} if family.open_name is None else {family.open_name: value}
        return family.build(**opened, **self.parameters)

    def reference(self, X: np.ndarray) -> float:
        """Return the reference value of the open hyperparameter for the data.

        It is what ``lengthscale="scale"`` resolves to on `X`; for the compositional
        kernel the mean standard deviation of a column, for the softmax kernel the
        largest norm of a row, for the periodic kernel 1; for a bias the mean squared
        norm of the rows, the value of ν that gives bias and input the same weight. It
        is 1 if these are zero or nothing is open.
        """
        build: Any = _FAMILIES[self.family].build
        if isinstance(build, type) and issubclass(build, Stationary):
            return float(self.build("scale").resolve(X).lengthscale)
        if self.opens == "bias":
            size = float(np.mean(np.einsum("ij,ij->i", X, X, dtype=float)))
        else:
            size = _REFERENCES.get(self.family, lambda X: 1.0)(X)
        return size if size > 0 else 1.0

    def hyperparameters(self, value: float | None, alpha: float) -> dict[str, float]:
        """Return the numeric parameters with this open one, and the penalty."""
        named = {
            _recorded(name): float(number)
            for name, number in self.parameters.items()
            if not isinstance(number, str)
        }
        if self.opens is not None and value is not None:
            named[self.opens] = float(value)
        named["alpha"] = float(alpha)
        return named


def capped(size: int, kernel: Any, n_columns: int) -> int:
    """Return `size`, or the number of features of an exact map if smaller."""
    (term,) = kernel.terms()
    most = term.exact_width(n_columns)
    return size if most is None else min(size, most)


def parse_kernel(text: str) -> KernelChoice:
    """Parse one kernel, ``name`` or ``name:parameter``.

    The name is one in :data:`KERNEL_NAMES`, in any case: those of the public kernels,
    with hyphens. It may be followed by parameters in the order of the kernel's
    signature, such as ``matern:NU``, without the open one and `columns`.

    Raises
    ------
    ValueError
        If the name is unknown, or the kernel does not take such parameters.
    """
    label = text.strip().lower()
    name, *numbers = label.split(":")
    if name not in _FAMILIES:
        raise ValueError(f"unknown kernel {text.strip()!r}; expected one of {_SYNTAX}")
    family = _FAMILIES[name]
    if family.required:
        raise ValueError(
            f"the {name} kernel needs {', '.join(family.required)}: arrays or "
            "functions that cannot be written on a command line: pass the kernel to a "
            "model in Python"
        )
    if len(numbers) > len(family.parameters):
        n = len(family.parameters)
        limit = f"at most {n} parameter{'s' * (n > 1)}" if n else "no parameters"
        raise ValueError(f"the {name} kernel takes {limit}, got {text.strip()!r}")
    parameters = {key: p.default for key, p in family.parameters.items()}
    for (key, parameter), argument in zip(
        family.parameters.items(), numbers, strict=False
    ):
        parameters[key] = _parse_value(f"{text.strip()!r}: {key}", parameter, argument)
    choice = KernelChoice(label, name, parameters)
    # The kernel itself checks the rest.
    choice.build(1.0).resolve(np.eye(2))
    return choice


def _parse_value(what: str, parameter: inspect.Parameter, argument: str) -> Any:
    """Convert an argument to the type of its annotation and default."""
    if parameter.annotation is str:
        return argument
    try:
        value = float(argument)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise ValueError(
            f"{what} must be zero or a positive number, got {argument!r}; the default "
            f"is {parameter.default}"
        )
    if parameter.annotation is int and not value.is_integer():
        raise ValueError(f"{what} must be an integer, got {argument!r}.")
    is_whole = value.is_integer() and isinstance(parameter.default, int)
    return int(value) if is_whole else value


def parse_kernels(texts: str | Sequence[str]) -> list[KernelChoice]:
    """Parse several kernels, comma-separated or one each, dropping duplicates."""
    parts = texts.split(",") if isinstance(texts, str) else list(texts)
    choices: dict[str, KernelChoice] = {}
    for part in parts:
        if part.strip():
            choice = parse_kernel(part)
            # "matern" and "matern:1.5" are the same kernel.
            choices.setdefault(repr(choice.build(1.0)), choice)
    if not choices:
        raise ValueError(f"expected one or more kernels, got none; use {_SYNTAX}")
    return list(choices.values())
