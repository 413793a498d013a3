"""The structured projection as an explicit matrix, in plain NumPy.

The oracle of the tests of :mod:`randkern.backend.hadamard`, for small sizes.
"""

import numpy as np

__all__ = ["block_matrix", "projection_matrix", "signs"]

_GOLDEN = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def signs(key: int, block: int, stage: int, p: int) -> np.ndarray:
    """Return the ±1 of one stage (3 to 5: imaginary parts) of a block."""
    n_words = p // 64
    first = (block * 6 + stage) * n_words + 1
    bits = []
    for i in range(n_words):
        z = (key + (first + i) * _GOLDEN) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        z ^= z >> 31
        bits += [z >> bit & 1 for bit in range(64)]
    return 1.0 - 2.0 * np.array(bits)


def block_matrix(key: int, block: int, p: int, unitary: bool = False) -> np.ndarray:
    """Return H S₃ H S₂ H S₁ of one block, with orthonormal rows.

    Examples
    --------
    >>> import numpy as np
    >>> from oracles.hadamard_matrices import block_matrix
    >>> U = block_matrix(key=3, block=0, p=64, unitary=True)
    >>> bool(np.allclose(U @ U.conj().T, np.eye(64)))
    True
    """
    H = np.ones((1, 1))
    while len(H) < p:
        H = np.block([[H, H], [H, -H]])
    H /= np.sqrt(p)
    product = np.eye(p)
    for stage in range(3):
        diagonal = signs(key, block, stage, p)
        if unitary and stage > 0:
            imaginary = signs(key, block, stage + 3, p)
            diagonal = (diagonal + 1j * imaginary) / np.sqrt(2)
        product = H @ (diagonal[:, None] * product)
    return product


def projection_matrix(
    key: int,
    norms: np.ndarray,
    row_start: int,
    row_stop: int,
    p: int,
    unitary: bool = False,
) -> np.ndarray:
    """Return rows `row_start` to `row_stop` - 1, of length p, with these norms.

    Examples
    --------
    >>> import numpy as np
    >>> from oracles.hadamard_matrices import projection_matrix
    >>> rows = projection_matrix(3, np.array([2.0, 5.0]), 63, 65, p=64)
    >>> np.linalg.norm(rows, axis=1)
    array([2., 5.])
    """
    blocks = range(row_start // p, (row_stop - 1) // p + 1)
    rows = np.concatenate([block_matrix(key, b, p, unitary) for b in blocks])
    first = row_start - blocks[0] * p
    return norms[:, None] * rows[first : first + row_stop - row_start]
