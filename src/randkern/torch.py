"""Random features inside PyTorch networks, and fitted models as modules.

Importing this module imports PyTorch, which the extra ``gpu`` installs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from sklearn.base import clone
from torch import nn

from randkern._random import root_stream
from randkern._validation import check_choice, check_components, check_count
from randkern.deployment import check_numbers, on_host, weighted_sum
from randkern.kernels import Kernel
from randkern.kernels.compositional import Compositional
from randkern.kernels.draw import draw_plan
from randkern.kernels.stationary import Stationary
from randkern.models import GaussianProcessRegressor
from randkern.models._feature_model import predict_by_features, predict_by_rows
from randkern.models._gp_laplace import Poisson
from randkern.models._gp_posterior import Posterior
from randkern.plan import Factor, Group, Plan, evaluate
from randkern.projections import PROJECTIONS
from randkern.projections.dense import Dense
from randkern.tabular import TabularClassifier, TabularEncoder, TabularRegressor
from randkern.tabular.array_encoding import (
    encode_columns,
    equals,
    score_columns,
)
from randkern.tabular.model import Member

__all__ = ["FeatureMap", "FittedEncoder", "FittedModel", "FittedTable", "module_of"]


class FeatureMap(nn.Module):
    """Random features of a kernel as a layer, differentiable in x and in lengthscales.

    The features are those of :class:`~randkern.RandomFeatures` with the same kernel,
    projection and seed. The logarithms of the lengthscales of stationary kernels are
    parameters of the module; the random draws are fixed.

    Parameters
    ----------
    kernel : Kernel
        With numeric lengthscales: ``kernel.resolve(X)`` sets those that are rules.
    in_features : int
        Number of columns of x.
    n_components : int or sequence of int
        Number of features; a sequence has the number per term of a sum of kernels.
    projection : str
        How the random matrix is drawn: ``"dense"``, with independent rows, and stored;
        ``"streamed"``, the same, recomputed when needed; ``"orthogonal"``, in
        orthogonal blocks, for a lower variance; ``"structured"``, in such blocks by
        fast Walsh-Hadamard transforms; ``"qmc"``, from a Sobol sequence; ``"auto"``,
        by kernel and number of columns.
    fourier : {"pair", "offset"}
        ``"pair"``: cosines and sines of half as many frequencies as features;
        ``"offset"``: cosines with random phases.
    learn_lengthscale : bool
        Whether the lengthscales require gradients.
    random_state : int, generator or None
        Seeds all random numbers.

    Attributes
    ----------
    plan : Plan
        The drawn feature map.
    log_lengthscales : torch.nn.ParameterList
        One parameter per stationary kernel of the expression, float64, left to right.

    Raises
    ------
    ValueError
        For one number of features of a sum of kernels whose diagonals depend on data,
        as the share of columns of each term then would, too.

    Notes
    -----
    The first use on a device copies the draw to it, or recomputes it there. The module
    may be moved by ``to``; the dtype of the features is that of x. Under
    ``torch.autocast`` features are not computed in half precision: such rows are
    converted to float32.

    ``state_dict()`` holds the parameters and a fingerprint of the draw, not the draw
    itself: load it into a map created with the same arguments and `random_state`.
    Loading it into another draw raises a ValueError.

    Rows for :class:`~randkern.Compositional` must hold points of its base spaces; the
    gradient with respect to signs is 0, and with respect to category codes meaningless.

    Examples
    --------
    >>> import torch, randkern as rk
    >>> from randkern.torch import FeatureMap
    >>> features = FeatureMap(rk.Gaussian(2.0), 3, 100, random_state=0)
    >>> model = torch.nn.Sequential(features, torch.nn.Linear(100, 1))
    >>> model(torch.zeros(5, 3)).shape
    torch.Size([5, 1])
    >>> features.lengthscales
    [2.0]
    """

    def __init__(
        self,
        kernel: Kernel,
        in_features: int,
        n_components: int | Sequence[int] = 1000,
        *,
        projection: str = "auto",
        fourier: str = "pair",
        learn_lengthscale: bool = True,
        random_state: Any = None,
    ):
        super().__init__()
        check_count("in_features", in_features)
        n_components = check_components(n_components)
        check_choice("projection", projection, tuple(PROJECTIONS))
        check_choice("fourier", fourier, ("pair", "offset"))
        if not isinstance(kernel, Kernel):
            raise ValueError(
                f"kernel must be a kernel object, got {kernel!r}; use for instance "
                "randkern.Gaussian(1.0)."
            )
        kernel._check(in_features)
        stream = root_stream(random_state)
        self.kernel = clone(kernel)
        self.plan = draw_plan(
            self.kernel,
            n_components,
            in_features,
            _constant_diagonals(self.kernel, in_features)
            if isinstance(n_components, int)
            else np.ones(len(n_components)),
            stream.child("features"),
            projection=cast(Any, projection),
            fourier=cast(Any, fourier),
        )
        self.in_features = in_features
        self.out_features = self.plan.n_components
        _compile(self.plan)
        parameters = []
        for leaf in self._stationary():
            value = np.log(np.asarray(leaf.lengthscale, dtype=float))
            tensor = torch.as_tensor(value, dtype=torch.float64)
            parameters.append(nn.Parameter(tensor, learn_lengthscale))
        self.log_lengthscales = nn.ParameterList(parameters)

    @property
    def lengthscales(self) -> list[Any]:
        """The lengthscales as numbers or lists of them, left to right."""
        return [value.detach().exp().tolist() for value in self.log_lengthscales]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return features of the last dimension of `x`, shape (..., n_components)."""
        rows = _checked_rows(x, self.in_features)
        Z: Any = evaluate(Plan(tuple(self._groups()), self.in_features), rows)
        return Z.reshape(*x.shape[:-1], self.out_features)

    def get_extra_state(self) -> torch.Tensor:
        """Return the fingerprint of the draw, 16 bytes, for ``state_dict``."""
        return torch.tensor(list(_fingerprint(self.plan)), dtype=torch.uint8)

    def set_extra_state(self, state: torch.Tensor) -> None:
        """Raise ValueError unless the state belongs to this draw."""
        if bytes(state.tolist()) != _fingerprint(self.plan):
            raise ValueError(
                "the state was saved by a FeatureMap with other random features; "
                "create the FeatureMap with the kernel, sizes, projection and "
                "random_state (an integer) of the saved one."
            )

    def _groups(self) -> Iterator[Group]:
        """Yield the groups of the plan with the current lengthscales."""
        logarithms = zip(self._stationary(), self.log_lengthscales, strict=True)
        scales = {id(leaf): torch.exp(-value) for leaf, value in logarithms}
        for group, term in zip(self.plan.groups, self.kernel.terms(), strict=True):
            factors: list[Factor] = []
            for leaf, parts in term.split(group.factors):
                for factor in parts:
                    if id(leaf) in scales:
                        scale: Any = scales[id(leaf)]
                        inputs = replace(factor.inputs, inverse_scale=scale)
                        factor = replace(factor, inputs=inputs)
                    factors.append(factor)
            yield replace(group, factors=tuple(factors))

    def _stationary(self) -> list[Stationary]:
        """Return the kernels that have lengthscales, left to right."""
        return [leaf for leaf in self.kernel.leaves() if isinstance(leaf, Stationary)]

    def extra_repr(self) -> str:
        """Return the part of the representation after the name."""
        return (
            f"{self.kernel}, in_features={self.in_features}, "
            f"out_features={self.out_features}"
        )


def _checked_rows(x: Any, in_features: int) -> Any:
    """Return a tensor as rows of `in_features` columns, in float32 or float64."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(
            f"x must be a torch.Tensor, got {type(x).__name__}; pass for instance "
            "torch.as_tensor(np.asarray(x)), or use randkern.RandomFeatures."
        )
    if x.ndim == 0 or x.shape[-1] != in_features:
        width = x.shape[-1] if x.ndim else "no"
        raise ValueError(
            f"x has {width} columns, expected in_features={in_features}; create a "
            f"FeatureMap with in_features={width}."
        )
    half = x.is_floating_point() and x.dtype.itemsize < 4
    if half and torch.is_autocast_enabled(x.device.type):
        x = x.float()
    if not x.is_floating_point() or x.dtype.itemsize < 4:
        raise ValueError(
            f"x must be float32 or float64, got {x.dtype}; convert it, for instance "
            "with x.float()."
        )
    return x.reshape(-1, in_features)


def _fingerprint(plan: Plan) -> bytes:
    """Return a hash of the draw, independent of the lengthscales."""
    drawn: list[Any] = []
    for group in plan.groups:
        offsets = group.offsets and group.offsets.key
        drawn += [group.start, group.stop, float(group.weight), group.output, offsets]
        for factor in group.factors:
            projection, inputs = factor.projection, factor.inputs
            mixing = projection.distribution.mixing
            drawn += [factor.nonlinearity, float(inputs.bias)]
            drawn += [
                projection.name,
                projection.stream.key,
                projection.distribution.name,
            ]
            drawn += [projection.n_draws, projection.width, *(inputs.columns or [":"])]
            if mixing is not None:
                drawn += [mixing.name, float(mixing.parameter)]
    # Six digits: the last digits of a weight may depend on the machine.
    words = (f"{x:.6g}" if isinstance(x, float) else str(x) for x in drawn)
    return hashlib.blake2b(" ".join(words).encode(), digest_size=16).digest()


def _compile(plan: Plan) -> None:
    """Compile the random generators, which cannot be done within ``torch.export``."""
    for group in plan.groups:
        if group.offsets is not None:
            group.draw_offsets(0, 1, np.float64)
        for factor in group.factors:
            if isinstance(factor.projection, Dense):
                factor.projection.rows(0, 1)


def _constant_diagonals(kernel: Kernel, width: int) -> np.ndarray:
    """Return the diagonal of every term, which must not depend on x."""
    terms = kernel.terms()
    if len(terms) == 1:
        return np.ones(1)
    points = np.stack([np.zeros(width), np.ones(width)])
    diagonals = np.array([[term.weight] * 2 for term in terms], dtype=float)
    for out, term in zip(diagonals, terms, strict=True):
        for leaf in term.leaves:
            # The points need not lie on the base spaces of a skeleton.
            if not (isinstance(leaf, Compositional) and leaf.is_normalised):
                out *= leaf._diag(points)
    if not np.array_equal(diagonals[:, 0], diagonals[:, 1]):
        raise ValueError(
            "n_components must be a sequence with one number per term, as the shares "
            f"of the terms of {kernel} depend on data, got a single number."
        )
    return diagonals[:, 0]


class _Fitted(nn.Module):
    """What a fitted estimator computes of rows, `values`, on tensors of any shape."""

    in_features: int
    name: str

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the values for the last dimension of `x`."""
        rows = _checked_rows(x, self.in_features)
        values = self.values(rows)
        return values.to(rows.dtype).reshape((*x.shape[:-1], *values.shape[1:]))

    def values(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the values of rows (n, in_features)."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        """Return the part of the representation after the name."""
        return f"{self.name}, in_features={self.in_features}"

    def _add_buffers(self, **arrays: Any) -> None:
        """Register arrays, or None, as dense float64 buffers."""
        for name, values in arrays.items():
            tensor = None if values is None else torch.tensor(on_host(values))
            self.register_buffer(name, tensor)


class FittedModel(_Fitted):
    """A fitted estimator on tensors, as returned by :func:`randkern.to_torch`.

    Attributes
    ----------
    in_features : int
    classes : list or None
        The classes of the last dimension, or of the signs, of a classifier's output.
    """

    weights: torch.Tensor | None
    constant: torch.Tensor | None
    rows: torch.Tensor | None
    offset: torch.Tensor | None

    def __init__(self, model: Any):
        super().__init__()
        weights, constant, plan, kernel, rows, self.sorts = weighted_sum(model)
        self.plan = plan
        self.kernel = kernel
        self.name = type(model).__name__
        self.in_features = (
            getattr(model, "n_features_in_", None) or cast(np.ndarray, rows).shape[1]
        )
        self.classes = model.classes_.tolist() if hasattr(model, "classes_") else None
        self.temperature = None
        offset = None
        if getattr(model, "_temperature", None) is not None:
            self.temperature = float(model._temperature)
            offset = np.asarray(model._offset)
        if plan is not None:
            _compile(plan)
        self._add_buffers(weights=weights, constant=constant, rows=rows)
        self._add_buffers(offset=offset)

    def values(self, rows: torch.Tensor) -> torch.Tensor:
        block: Any = rows
        values = block.double()
        known = cast(Any, self.rows)
        weights: Any = None if self.weights is None else self.weights.double()
        if known is not None:
            values = predict_by_rows(cast(Any, self.kernel), known, weights, block)
        elif self.plan is None:
            values = values @ weights
        elif weights is None:
            values = evaluate(self.plan, block)
        else:
            values = predict_by_features(self.plan, weights, block)
        if self.constant is not None:
            values = values + self.constant
        if self.sorts:
            values = values.sort(dim=1).values
        if self.temperature is None:
            return values
        values = values / self.temperature + self.offset
        if values.ndim == 1:
            return torch.sigmoid(torch.stack([-values, values], dim=1))
        return torch.softmax(values, dim=1)


class FittedRate(_Fitted):
    """The rate of counts of a fitted process, as returned by :func:`randkern.to_torch`.

    It is the mean of a log-normal distribution, so it takes the variance of f.

    Attributes
    ----------
    in_features : int
    """

    mean: torch.Tensor
    factor: torch.Tensor
    rows: torch.Tensor | None
    root: torch.Tensor | None

    def __init__(self, model: GaussianProcessRegressor):
        super().__init__()
        check_numbers(model)
        self.plan = model.plan_
        self.kernel = model.kernel_
        self.likelihood = model._likelihood
        self.name = type(model).__name__
        self.in_features = model.n_features_in_
        if self.plan is not None:
            _compile(self.plan)
        posterior = model._posterior
        (factor,) = posterior.factors
        (root,) = posterior.roots or [None]
        self._add_buffers(mean=posterior.mean, factor=factor)
        self._add_buffers(rows=posterior.X, root=root)

    def values(self, rows: torch.Tensor) -> torch.Tensor:
        block: Any = rows.double()
        posterior = Posterior(
            self.kernel,
            self.plan,
            cast(Any, self.rows),
            cast(Any, self.mean.double()),
            [cast(Any, self.factor.double())],
            None if self.root is None else [cast(Any, self.root.double())],
            0.0,
        )
        means, variances = posterior.moments(block)
        likelihood = cast(Poisson, self.likelihood)
        rate, _ = likelihood.moments(means[:, 0], variances[:, 0], False)
        return cast(Any, rate)


class FittedEncoder(_Fitted):
    """A fitted encoder of tables on tensors with one column per column of the table.

    Dates are days since 1970, missing numbers NaN. A category is given by its position
    in `categories`, a missing value by NaN if None is among these; any other number is
    an unknown category.

    Attributes
    ----------
    in_features, out_features : int
    categories : dict
        The list of categories of each categorical column, by its name or number.
    """

    def __init__(self, encoder: TabularEncoder):
        super().__init__()
        self.encoder = encoder
        self.in_features = encoder.n_features_in_
        self.out_features = len(encoder.columns_)
        names = getattr(encoder, "feature_names_in_", range(self.in_features))
        self.categories = {
            names[j]: levels.tolist() for j, levels in encoder.levels_.items()
        }

    def values(self, rows: torch.Tensor) -> torch.Tensor:
        columns: list[Any] = list(rows.double().split(1, dim=1))
        return encode_columns(self.encoder, columns, _is_code)

    def extra_repr(self) -> str:
        """Return the part of the representation after the name."""
        return f"in_features={self.in_features}, out_features={self.out_features}"


def _is_code(x: Any, known: np.ndarray) -> Any:
    """Return the one-hot mask of the known categories for the codes of a column.

    A missing value is NaN, or the position of None, which is the last.
    """
    codes = np.arange(float(len(known)))
    if len(known) and known[-1] is None:
        x = torch.where(x == codes[-1], torch.nan, x)
        codes[-1] = np.nan
    return equals(x, codes)


class _Member(_Fitted):
    """A fit to encoded rows, and its encoder."""

    def __init__(self, member: Member):
        super().__init__()
        self.weight = float(member.weight)
        self.encoder = FittedEncoder(member.encoder)
        self.fit = FittedModel(member.fit)
        self.in_features = self.encoder.in_features
        self.name = self.fit.name

    def values(self, rows: torch.Tensor) -> torch.Tensor:
        rows = self.encoder(rows)
        out = self.fit(rows)
        return self.weight * (out if out.ndim == 2 else out[:, None])


class FittedTable(_Fitted):
    """A fitted model of tables on tensors, as returned by :func:`randkern.to_torch`.

    It takes the same rows as :class:`FittedEncoder`.

    Attributes
    ----------
    in_features : int
    categories : dict
        The list of categories of each categorical column, by its name or number.
    classes : list or None
        The classes of the last dimension of a classifier's output.
    """

    def __init__(self, model: Any):
        super().__init__()
        self.members = nn.ModuleList(_Member(member) for member in model.model_.members)
        self.in_features = model.n_features_in_
        self.scores = model.model_.scores
        self.categories = FittedEncoder(model.model_.members[0].encoder).categories
        self.classes = model.classes_.tolist() if hasattr(model, "classes_") else None
        self.name = type(model).__name__
        self.many = getattr(model, "_many", True)
        self.target_transform = model.model_.target_transform

    def values(self, rows: torch.Tensor) -> torch.Tensor:
        rows = rows.double()
        if self.scores is not None:
            levels = [
                np.array(self.categories[name], dtype=object)
                for name in self.scores.columns
            ]
            columns: list[Any] = list(rows.split(1, dim=1))
            added = score_columns(self.scores, columns, levels, _is_code)
            rows = torch.cat([*columns, *added], dim=1)
        values: Any = sum(member(rows) for member in self.members)
        if self.target_transform is not None:
            inverses = {"log": torch.exp, "log1p": torch.expm1}
            values = inverses[self.target_transform](values)
        return values if self.many else values[:, 0]


def module_of(model: Any) -> nn.Module:
    """Return the module of a fitted estimator: see :func:`randkern.to_torch`."""
    if isinstance(model, TabularEncoder):
        return FittedEncoder(model)
    if isinstance(model, (TabularRegressor, TabularClassifier)):
        check_numbers(model)
        return FittedTable(model)
    if getattr(model, "likelihood", None) == "poisson":
        return FittedRate(model)
    return FittedModel(model)
