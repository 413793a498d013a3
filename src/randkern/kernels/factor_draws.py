"""The random streams and projections that the factors of one term draw from."""

from __future__ import annotations

from randkern._random import Stream
from randkern.kernels.term_variance import Fourier
from randkern.projections import Law, Projection, make_projection


class FactorDraws:
    """Hands out the projections of the factors of one term, independent of each other.

    Parameters
    ----------
    stream : Stream
        Of the term.
    projection : str
        The projection that the user asked for.
    fourier : {"pair", "offset"}
        The form of the columns that are cosines.
    """

    def __init__(self, stream: Stream, projection: str, fourier: Fourier):
        self.fourier = fourier
        self._stream = stream
        self._name = projection
        self._n_factors = 0
        # The factors of a product share one low-discrepancy sequence.
        self._n_dimensions = 0

    def stream(self, dimensions: int = 0) -> Stream:
        """Return the stream of the next factor, which draws in a way of its own.

        Parameters
        ----------
        dimensions : int
            Dimensions of a low-discrepancy sequence that it leaves to nobody else.
        """
        self._n_factors += 1
        self._n_dimensions += dimensions
        return self._stream.child("factor", self._n_factors - 1)

    def project(
        self,
        law: Law,
        n_draws: int,
        width: int,
        owner: object,
        projection: str | None = None,
    ) -> Projection:
        """Return the projection of the next factor: `n_draws` rows of this law.

        Raises
        ------
        ValueError
            If the projection cannot draw this law; the message names `owner`.
        """
        name = self._name if projection is None else projection
        first = self._n_dimensions
        stream = self.stream(law.dimensions(width))
        if name == "qmc":
            stream = self._stream.child("sequence")
        return make_projection(name, stream, n_draws, width, law, owner, first)
