"""Kernels by the names that experiments and the command line give them.

A *choice* is a kernel with one hyperparameter left open, to be found on a
validation split: the lengthscale of a stationary kernel, the bias ν of an
optical one. The linear kernel has none.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

import randkern

__all__ = ["KERNEL_NAMES", "KernelChoice", "parse_kernel", "parse_kernels"]

_OpenParameter = Literal["lengthscale", "bias", None]


@dataclass(frozen=True)
class _Family:
    """A kernel family: `build(parameter, value)` closes the open parameter."""

    build: Callable[[float, Any], Any]
    opens: _OpenParameter = "lengthscale"
    parameter: str | None = None
    default: float = float("nan")


def _fully_connected(depth: float, lengthscale: float) -> Any:
    """Return `depth` layers of ReLU over a Gaussian of each column."""
    skeletons = randkern.skeletons
    base = skeletons.gaussian(1.0 / lengthscale)
    return randkern.Compositional(skeletons.FullyConnected(int(depth), base=base))


_FAMILIES = {
    "gaussian": _Family(lambda _, value: randkern.Gaussian(lengthscale=value)),
    "laplacian": _Family(lambda _, value: randkern.Laplacian(lengthscale=value)),
    "cauchy": _Family(lambda _, value: randkern.Cauchy(lengthscale=value)),
    "matern": _Family(
        lambda nu, value: randkern.Matern(nu=nu, lengthscale=value),
        parameter="nu",
        default=1.5,
    ),
    "rational-quadratic": _Family(
        lambda alpha, value: randkern.RationalQuadratic(alpha=alpha, lengthscale=value),
        # `alpha` is the ridge penalty everywhere else in the records.
        parameter="kernel_alpha",
        default=1.0,
    ),
    "linear": _Family(lambda _, __: randkern.Linear(), opens=None),
    "optical": _Family(
        lambda degree, value: randkern.Optical(degree=degree, bias=value),
        opens="bias",
        parameter="degree",
        default=2.0,
    ),
    "compositional": _Family(
        lambda depth, value: _fully_connected(depth, value),
        parameter="depth",
        default=2.0,
    ),
}

KERNEL_NAMES = tuple(_FAMILIES)
_SYNTAX = (
    "gaussian, laplacian, cauchy, matern (or matern:NU), "
    "rational-quadratic (or rational-quadratic:ALPHA), linear, "
    "optical (or optical:DEGREE), compositional (or compositional:DEPTH)"
)


@dataclass(frozen=True)
class KernelChoice:
    """A kernel family whose lengthscale or bias is still open.

    Attributes
    ----------
    label : str
        The name as it was asked for, such as ``"optical:4"``.
    family : str
        One of :data:`KERNEL_NAMES`.
    parameter : float
        ν of Matérn, α of the rational quadratic, degree of the optical kernel,
        number of layers of the compositional one; NaN for the others.

    Examples
    --------
    >>> from randkern.study.kernel_choices import parse_kernel
    >>> parse_kernel("matern:2.5").build(3.0)
    Matern(lengthscale=3.0, nu=2.5)
    """

    label: str
    family: str
    parameter: float

    @property
    def opens(self) -> _OpenParameter:
        """The open hyperparameter: ``"lengthscale"``, ``"bias"`` or None."""
        return _FAMILIES[self.family].opens

    def build(self, value: float | str | None) -> Any:
        """Return the kernel with its open hyperparameter set to `value`."""
        # A whole degree is kept an int, as the kernel's own default is.
        whole = self.family == "optical" and float(self.parameter).is_integer()
        parameter = int(self.parameter) if whole else self.parameter
        return _FAMILIES[self.family].build(parameter, value)

    def reference(self, X: np.ndarray) -> float:
        """Return the data's natural size of the open hyperparameter.

        Parameters
        ----------
        X : ndarray of shape (n, d)

        Returns
        -------
        reference : float
            What ``lengthscale="scale"`` resolves to on `X`; for the compositional
            kernel the mean standard deviation of a column; for the optical kernel the
            mean squared norm of the rows, the value of ν at which bias and input weigh
            the same. 1 where these are zero or where nothing is open.
        """
        if self.family == "compositional":
            # Its Gaussians read one column each.
            spread = float(np.std(X, axis=0, dtype=float).mean())
            return spread if spread > 0 else 1.0
        if self.opens == "lengthscale":
            return float(self.build("scale").resolve(X).lengthscale)
        if self.opens == "bias":
            squared_norm = float(np.mean(np.einsum("ij,ij->i", X, X, dtype=float)))
            return squared_norm if squared_norm > 0 else 1.0
        return 1.0

    def hyperparameters(self, value: float | None, alpha: float) -> dict[str, float]:
        """Return every hyperparameter of a closed choice by name.

        Parameters
        ----------
        value : float or None
            Lengthscale or bias; None where nothing is open.
        alpha : float
            Ridge penalty.

        Returns
        -------
        hyperparameters : dict of str to float
        """
        named: dict[str, float] = {}
        parameter = _FAMILIES[self.family].parameter
        if parameter is not None:
            named[parameter] = float(self.parameter)
        if self.opens is not None and value is not None:
            named[self.opens] = float(value)
        named["alpha"] = float(alpha)
        return named


def parse_kernel(text: str) -> KernelChoice:
    """Read one kernel, ``name`` or ``name:parameter``.

    Parameters
    ----------
    text : str
        A name of :data:`KERNEL_NAMES`, in any case. ``matern:NU`` (1.5 unless
        given), ``rational-quadratic:ALPHA`` (1) and ``optical:DEGREE`` (2) take
        a positive number, ``compositional:DEPTH`` (2) a whole one.

    Returns
    -------
    choice : KernelChoice

    Raises
    ------
    ValueError
        If the name is unknown, or the parameter is not a positive number or not
        one that the kernel has.

    Examples
    --------
    >>> from randkern.study.kernel_choices import parse_kernel
    >>> parse_kernel("optical:4")
    KernelChoice(label='optical:4', family='optical', parameter=4.0)
    """
    label = text.strip().lower()
    name, colon, argument = label.partition(":")
    if name not in _FAMILIES:
        raise ValueError(f"unknown kernel {text.strip()!r}; expected one of {_SYNTAX}")
    family = _FAMILIES[name]
    if not colon:
        return KernelChoice(label, name, family.default)
    if family.parameter is None:
        raise ValueError(f"the {name} kernel takes no parameter, got {text.strip()!r}")
    try:
        parameter = float(argument)
    except ValueError:
        parameter = float("nan")
    if not 0 < parameter < float("inf"):
        raise ValueError(
            f"{text.strip()!r}: the parameter of {name} must be a positive number, "
            f"got {argument!r}; for instance {name}:{family.default:g}"
        )
    if name == "compositional" and not parameter.is_integer():
        raise ValueError(f"{text.strip()!r}: the number of layers must be whole.")
    return KernelChoice(label, name, parameter)


def parse_kernels(texts: str | Sequence[str]) -> list[KernelChoice]:
    """Read several kernels, dropping repetitions.

    Parameters
    ----------
    texts : str or sequence of str
        Comma-separated, or one kernel each.

    Returns
    -------
    choices : list of KernelChoice

    Raises
    ------
    ValueError
        As :func:`parse_kernel`, or if there is none.

    Examples
    --------
    >>> from randkern.study.kernel_choices import parse_kernels
    >>> [choice.label for choice in parse_kernels("gaussian, optical:4,gaussian")]
    ['gaussian', 'optical:4']
    """
    parts = texts.split(",") if isinstance(texts, str) else list(texts)
    choices: dict[tuple[str, str], KernelChoice] = {}
    for part in parts:
        if part.strip():
            choice = parse_kernel(part)
            # "matern" and "matern:1.5" are one kernel.
            choices.setdefault((choice.family, f"{choice.parameter:g}"), choice)
    if not choices:
        raise ValueError(f"no kernel was given; expected one or more of {_SYNTAX}")
    return list(choices.values())
