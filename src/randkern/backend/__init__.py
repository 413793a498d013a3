"""Array primitives: the only room that knows how arrays are computed on.

:mod:`~randkern.backend.cpu` holds the compiled versions (Numba, NumPy's BLAS),
:mod:`~randkern.backend.counter` the counter-based random
matrices, :mod:`~randkern.backend.hadamard` structured projections by fast transforms,
and :mod:`~randkern.backend.cpu` cosine and sine for compiled loops.

Nothing is imported here: Numba takes some 0.4 s to load, so that a module imports
the backend it needs where it needs it (``from randkern.backend import cpu``).
"""

__all__ = ["counter", "cpu", "hadamard", "trig"]
