"""The array primitives in plain NumPy: the oracle of the compiled ones.

Same signatures and meaning as :mod:`randkern.backend.cpu` and
:mod:`randkern.backend.counter`, computed in float64 and rounded once into `out`,
with no thought for speed.
"""

import numpy as np
from numpy.typing import ArrayLike

__all__ = [
    "add_gram",
    "cauchy_kernel",
    "cos_sin_pairs",
    "cosines",
    "manhattan_distances",
    "modulus_power",
    "philox4x32",
    "random_matrix",
]

_DISTRIBUTIONS = ("normal", "cauchy", "laplace", "uniform", "sign")


def philox4x32(counter: ArrayLike, key: ArrayLike, n_rounds: int = 10) -> np.ndarray:
    """Return the words of Philox4x32.

    Parameters
    ----------
    counter : array_like of shape (..., 4)
        32-bit words.
    key : array_like of shape (..., 2)
        32-bit words.
    n_rounds : int

    Returns
    -------
    ndarray of uint32, shape (..., 4)

    References
    ----------
    Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11 (2011),
    section 3.2.

    Examples
    --------
    >>> from oracles.primitives import philox4x32
    >>> [hex(word) for word in philox4x32([0, 0, 0, 0], [0, 0])]
    ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    c0, c1, c2, c3 = np.moveaxis(np.asarray(counter, dtype=np.uint64), -1, 0)
    k0, k1 = np.moveaxis(np.asarray(key, dtype=np.uint64), -1, 0)
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    for _ in range(n_rounds):
        p0 = np.uint64(0xD2511F53) * c0
        p1 = np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (
            (p1 >> shift) ^ c1 ^ k0,
            p1 & low,
            (p0 >> shift) ^ c3 ^ k1,
            p0 & low,
        )
        k0 = (k0 + np.uint64(0x9E3779B9)) & low
        k1 = (k1 + np.uint64(0xBB67AE85)) & low
    return np.stack(np.broadcast_arrays(c0, c1, c2, c3), axis=-1).astype(np.uint32)


def _words(
    key: int, distribution: str, rows: np.ndarray, columns: np.ndarray
) -> np.ndarray:
    i, j = np.meshgrid(rows, columns, indexing="ij")
    counter = np.stack(
        [
            16 * (j // 64) + j % 16,
            i % 2**32,
            i // 2**32,
            0 * j + _DISTRIBUTIONS.index(distribution),
        ],
        axis=-1,
    )
    words = philox4x32(counter, [key % 2**32, key // 2**32])
    which = (j % 64) // 16
    return np.take_along_axis(words, which[..., np.newaxis], axis=-1)[..., 0]


def _half_turn_fraction(words: np.ndarray) -> np.ndarray:
    return words.astype(np.uint32).view(np.int32).astype(np.float64) / 2**32


def _normal(key: int, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    second = columns % 64 >= 32
    radius_words = _words(key, "normal", rows, columns - 32 * second)
    angle_words = _words(key, "normal", rows, columns - 32 * second + 32)
    # The 32-bit word is rounded to float32, and log 0 avoided, in this order.
    u = (radius_words.astype(np.float32) + np.float32(1)) / np.float32(2**32)
    radius = np.sqrt(-2 * np.log(u.astype(np.float64)))
    angle = np.pi * _half_turn_fraction(angle_words << np.uint32(1))
    angle = angle + np.pi * (angle_words >> np.uint32(31))
    return radius * np.where(second, np.sin(angle), np.cos(angle))


def random_matrix(
    key: int,
    distribution: str,
    row_start: int,
    row_stop: int,
    col_start: int,
    col_stop: int,
    dtype: np.dtype | type = np.float32,
) -> np.ndarray:
    """Return a rectangle of an endless random matrix of independent entries.

    The bits of :func:`randkern.backend.counter.random_matrix`, transformed in
    float64: the values agree to float32 rounding.

    Examples
    --------
    >>> from oracles.primitives import random_matrix
    >>> random_matrix(1, "sign", 0, 1, 0, 4).shape
    (1, 4)
    """
    if distribution not in _DISTRIBUTIONS:
        raise ValueError(
            f"distribution must be one of {_DISTRIBUTIONS}, got {distribution!r}."
        )
    rows, columns = np.arange(row_start, row_stop), np.arange(col_start, col_stop)
    if distribution == "normal":
        return _normal(key, rows, columns).astype(dtype)
    words = _words(key, distribution, rows, columns)
    sign = np.where(words >> np.uint32(31), -1.0, 1.0)
    if distribution == "cauchy":
        values = 1 / np.tan(np.pi * _half_turn_fraction(words | np.uint32(1)))
    elif distribution == "laplace":
        low = words & np.uint32(2**31 - 1)
        u = (low.astype(np.float32) + np.float32(1)) / np.float32(2**31)
        values = sign * np.log(u.astype(np.float64))
    elif distribution == "uniform":
        values = (words >> np.uint32(8)) / 2**24
    else:
        values = sign
    return values.astype(dtype)


def _float64(array: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Return what the compiled code reads, in float64."""
    return np.asarray(array, dtype=like.dtype).astype(np.float64)


def cos_sin_pairs(
    phase: np.ndarray,
    weight: float,
    out: np.ndarray,
    amplitude: np.ndarray | None = None,
) -> None:
    """Write weighted cosines and sines of phases (n, m), interleaved (n, 2m).

    Examples
    --------
    >>> import numpy as np
    >>> from oracles import primitives
    >>> out = np.empty((1, 2))
    >>> primitives.cos_sin_pairs(np.zeros((1, 1)), 2.0, out)
    >>> out
    array([[2., 0.]])
    """
    angle = _float64(phase, out)
    scale = weight if amplitude is None else weight * _float64(amplitude, out)
    with np.errstate(invalid="ignore"):
        out[:, 0::2] = scale * np.cos(angle)
        out[:, 1::2] = scale * np.sin(angle)


def cosines(
    phase: np.ndarray,
    offsets: np.ndarray,
    weight: float,
    out: np.ndarray,
    amplitude: np.ndarray | None = None,
) -> None:
    """Write weighted cosines of phases (n, m) shifted by offsets (m,).

    Examples
    --------
    >>> import numpy as np
    >>> from oracles import primitives
    >>> out = np.empty((1, 1))
    >>> primitives.cosines(np.zeros((1, 1)), np.zeros(1), 2.0, out)
    >>> out
    array([[2.]])
    """
    # The sum of phase and offset is rounded in the dtype of out.
    with np.errstate(invalid="ignore"):
        angle = np.asarray(phase, out.dtype) + np.asarray(offsets, out.dtype)
        scale = weight if amplitude is None else weight * _float64(amplitude, out)
        out[...] = scale * np.cos(angle.astype(np.float64))


def modulus_power(
    real: np.ndarray, imag: np.ndarray, power: float, weight: float, out: np.ndarray
) -> None:
    """Write weight * (real² + imag²)^(power/2), all of shape (n, m).

    Examples
    --------
    >>> import numpy as np
    >>> from oracles import primitives
    >>> out = np.empty((1, 1))
    >>> primitives.modulus_power(np.array([[3.0]]), np.array([[4.0]]), 1.0, 1.0, out)
    >>> out
    array([[5.]])
    """
    square = _float64(real, out) ** 2 + _float64(imag, out) ** 2
    out[...] = weight * square ** (power / 2)


def manhattan_distances(X: np.ndarray, Y: np.ndarray, out: np.ndarray) -> None:
    """Write the L1 distances of the rows of X (n, d) and Y (m, d).

    Examples
    --------
    >>> import numpy as np
    >>> from oracles import primitives
    >>> out = np.empty((1, 1))
    >>> primitives.manhattan_distances(np.array([[1.0]]), np.array([[-2.0]]), out)
    >>> out
    array([[3.]])
    """
    for i, x in enumerate(X.astype(np.float64)):
        out[i] = np.abs(x - Y).sum(axis=1)


def cauchy_kernel(X: np.ndarray, Y: np.ndarray, out: np.ndarray) -> None:
    """Write the Cauchy kernel of the rows of X (n, d) and Y (m, d).

    Examples
    --------
    >>> import numpy as np
    >>> from oracles import primitives
    >>> out = np.empty((1, 1))
    >>> primitives.cauchy_kernel(np.array([[1.0]]), np.array([[-2.0]]), out)
    >>> out
    array([[0.1]])
    """
    with np.errstate(over="ignore"):
        for i, x in enumerate(X.astype(np.float64)):
            out[i] = 1 / np.prod(1 + (x - Y) ** 2, axis=1)


def squared_distances(
    x_norms: np.ndarray, y_norms: np.ndarray, share: float, out: np.ndarray
) -> np.ndarray:
    """Make squared distances of products (n, m); return near pairs a row.

    Examples
    --------
    >>> import numpy as np
    >>> from oracles import primitives
    >>> out = np.array([[2.0, 0.0]])
    >>> primitives.squared_distances(np.ones(1), np.array([4.0, 1.0]), 0.3, out)
    array([1])
    >>> out
    array([[1., 2.]])
    """
    norms = x_norms[:, None] + y_norms
    out[...] = norms - 2 * out
    return np.count_nonzero(out <= share * norms, axis=1)


def add_gram(Z: np.ndarray, gram: np.ndarray) -> None:
    """Add ZᵀZ of Z (n, D) to the upper triangle of gram (D, D).

    Examples
    --------
    >>> import numpy as np
    >>> from oracles import primitives
    >>> gram = np.zeros((2, 2))
    >>> primitives.add_gram(np.array([[1.0, 2.0]]), gram)
    >>> gram
    array([[1., 2.],
           [0., 4.]])
    """
    wide = Z.astype(np.float64)
    gram += np.triu(wide.T @ wide)
