"""Array primitives: the only package that depends on an array library.

:mod:`~randkern.backend.cpu` holds the compiled versions (Numba, NumPy's BLAS) and
cosine and sine for compiled loops, :mod:`~randkern.backend.counter` the counter-based
random matrices, and :mod:`~randkern.backend.hadamard` structured projections by fast
transforms.

Nothing is imported here: Numba takes some 0.4 s to load, so a module imports the
backend it needs where it needs it (``from randkern.backend import cpu``).
"""
