"""Random projections of rows, chosen by name.

Each class says itself which distributions of rows it can draw (`Projection.create`).
"""

from __future__ import annotations

from randkern._random import Stream
from randkern.projections._base import (
    TILE_DRAWS,
    CauchyDistribution,
    ComplexNormalDistribution,
    Distribution,
    InputMap,
    LaplaceDistribution,
    Mixing,
    NormalDistribution,
    Projection,
    SphereDistribution,
    Stored,
)
from randkern.projections.dense import Dense, Orthogonal, QuasiMonteCarlo, Streamed
from randkern.projections.derived import Antithetic, Identity, Repeated, Roots
from randkern.projections.structured import Structured

__all__ = [
    "PROJECTIONS",
    "STRUCTURED_WIDTH",
    "TILE_DRAWS",
    "Antithetic",
    "CauchyDistribution",
    "ComplexNormalDistribution",
    "Dense",
    "Distribution",
    "Identity",
    "InputMap",
    "LaplaceDistribution",
    "Mixing",
    "NormalDistribution",
    "Orthogonal",
    "Projection",
    "QuasiMonteCarlo",
    "Repeated",
    "Roots",
    "SphereDistribution",
    "Stored",
    "Streamed",
    "Structured",
    "make_projection",
    "projection_class",
]

_BY_NAME: dict[str, type[Projection]] = {
    cls.name: cls for cls in (Dense, Streamed, Orthogonal, Structured, QuasiMonteCarlo)
}
PROJECTIONS = ("auto", *_BY_NAME)

#: In fewer dimensions, padded or not, structured rows are visibly not normal.
STRUCTURED_WIDTH = 64
# "auto" stores a matrix of independent entries up to this size.
_STORED_BYTES = 500 * 10**6


def projection_class(
    name: str, n_draws: int, width: int, distribution: Distribution
) -> type[Projection]:
    """Return the class of the projection called `name`, one of :data:`PROJECTIONS`.

    ``"auto"`` chooses by the distribution of the rows and their size.
    """
    if name != "auto":
        return _BY_NAME[name]
    if distribution.rotation_invariant:
        return Structured if width >= STRUCTURED_WIDTH else Orthogonal
    n_bytes = 4 * n_draws * width * (2 if distribution.is_complex else 1)
    return Dense if n_bytes <= _STORED_BYTES else Streamed


def make_projection(
    name: str,
    stream: Stream,
    n_draws: int,
    width: int,
    distribution: Distribution,
    owner: object,
) -> Projection:
    """Return the projection called `name`, by itself, not as a factor of a product.

    A distribution that it cannot draw is an error, whose message names `owner`.
    """
    cls = projection_class(name, n_draws, width, distribution)
    return cls.create(stream, n_draws, width, distribution, owner)
