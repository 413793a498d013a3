"""Random projections of rows, chosen by name.

Only `make_projection` knows which projections suit which distribution; it also resolves
``"auto"``.
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
]

_BY_NAME: dict[str, type[Projection]] = {
    cls.name: cls for cls in (Dense, Streamed, Orthogonal, Structured, QuasiMonteCarlo)
}
PROJECTIONS = ("auto", *_BY_NAME)

# The number of dimensions in SciPy's table of direction numbers.
_SOBOL_DIMENSIONS = 21201
#: In fewer dimensions, padded or not, structured rows are visibly not normal.
STRUCTURED_WIDTH = 64
# "auto" stores a matrix of independent entries up to this size.
_STORED_BYTES = 500 * 10**6


def make_projection(
    name: str,
    stream: Stream,
    n_draws: int,
    width: int,
    distribution: Distribution,
    owner: object,
    first_dimension: int = 0,
) -> Projection:
    """Return the projection called `name` for rows of this distribution.

    `first_dimension` is the number of dimensions of a low-discrepancy sequence that
    other factors of the same product use. A distribution that the projection cannot
    draw is an error, whose message names `owner`, the kernel.
    """
    if name == "auto" and distribution.rotation_invariant:
        name = "structured" if width >= STRUCTURED_WIDTH else "orthogonal"
    elif name == "auto":
        n_bytes = 4 * n_draws * width * (2 if distribution.is_complex else 1)
        name = "dense" if n_bytes <= _STORED_BYTES else "streamed"
    if name in ("orthogonal", "structured") and not distribution.rotation_invariant:
        raise ValueError(
            f"projection={name!r} needs rows whose distribution is invariant under "
            f"rotations, but those of {owner} have independent {distribution.name} "
            "entries; use projection='dense', 'streamed', 'qmc' or 'auto'."
        )
    if name == "qmc":
        dimensions = first_dimension + distribution.dimensions(width)
        if dimensions > _SOBOL_DIMENSIONS:
            raise ValueError(
                f"projection='qmc' has at most {_SOBOL_DIMENSIONS:,} dimensions, but "
                f"{owner} on {width:,} columns needs {dimensions:,}; use "
                "projection='auto'."
            )
        return QuasiMonteCarlo(
            stream, n_draws, width, distribution, first_dimension=first_dimension
        )
    return _BY_NAME[name](stream, n_draws, width, distribution)
