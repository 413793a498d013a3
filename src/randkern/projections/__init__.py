"""How rows are projected: one class a way, chosen by name.

`make_projection` is the one place that knows which projection suits which
law; `auto` is resolved here.
"""

from __future__ import annotations

from randkern._random import Stream
from randkern.projections._base import InputMap, Law, Mixing, Projection
from randkern.projections.dense import Dense
from randkern.projections.identity import Identity
from randkern.projections.orthogonal import Orthogonal
from randkern.projections.roots import Roots

__all__ = [
    "PROJECTIONS",
    "Dense",
    "Identity",
    "InputMap",
    "Law",
    "Mixing",
    "Orthogonal",
    "Projection",
    "Roots",
    "make_projection",
]

_BY_NAME: dict[str, type[Projection]] = {cls.name: cls for cls in (Dense, Orthogonal)}
PROJECTIONS = ("auto", *_BY_NAME)


def make_projection(
    name: str, stream: Stream, n_draws: int, width: int, law: Law, owner: str
) -> Projection:
    """Return the projection called `name` for rows of distribution `law`.

    Raises
    ------
    ValueError
        If the projection cannot draw this law; the message names `owner`, the
        kernel that asked.
    """
    if name == "auto":
        name = "dense"
    if name == "orthogonal" and not law.rotation_invariant:
        raise ValueError(
            f"projection={name!r} needs frequencies whose law is invariant under "
            f"rotations, but those of {owner} are independent {law.entries} "
            "variables; use projection='dense' or 'auto'."
        )
    return _BY_NAME[name](stream, n_draws, width, law)
