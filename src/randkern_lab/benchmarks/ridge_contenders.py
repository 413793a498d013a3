"""Who takes part in the ridge benchmark: named, so that any process can build it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["PEERS", "SOLVERS", "RidgeContender", "known_solvers"]

SOLVERS = ("pcg", "cholesky", "auto")
# The first of a family is the peer that ratios refer to.
PEERS = {"gaussian": ("RBFSampler", "Nystroem"), "optical": ("two products",)}


@dataclass(frozen=True)
class RidgeContender:
    """Features of a kernel, ridge regression on them, and how it is solved.

    Attributes
    ----------
    method : str
        One of `SOLVERS` for randkern; a peer is named by its features
        (``"RBFSampler"``, ``"Nystroem"``, ``"two products"``), which scikit-learn's
        ``RidgeClassifier(solver="cholesky")`` follows.
    family : {"gaussian", "optical"}
    n_components : int
        D.
    alpha : float
        The ridge penalty.
    lengthscale, degree : float
        Of the Gaussian and of the optical kernel.
    fit_intercept : bool
    memory_limit : int, str or None
        Of randkern's models; the peers know none.
    seed : int

    Examples
    --------
    >>> from randkern_lab.benchmarks.ridge_contenders import RidgeContender
    >>> contender = RidgeContender("RBFSampler", "gaussian", 1000)
    >>> contender.label, contender.package
    ('RBFSampler + RidgeClassifier', 'scikit-learn')
    """

    method: str
    family: str
    n_components: int
    alpha: float = 1e-3
    lengthscale: float = 1.0
    degree: float = 2.0
    fit_intercept: bool = True
    memory_limit: int | str | None = None
    seed: int = 0

    @property
    def package(self) -> str:
        """Whose features they are."""
        if self.method in SOLVERS:
            return "randkern"
        return "numpy" if self.method == "two products" else "scikit-learn"

    @property
    def label(self) -> str:
        """What figures and tables call it."""
        if self.method in SOLVERS:
            return f"randkern, {self.method}"
        return f"{self.method} + RidgeClassifier"

    def feature_map(self) -> Any:
        """Return the unfitted feature map of a peer; None for randkern's models."""
        gamma = 1 / (2 * self.lengthscale**2)
        if self.method == "RBFSampler":
            from sklearn.kernel_approximation import RBFSampler

            return RBFSampler(
                gamma=gamma, n_components=self.n_components, random_state=self.seed
            )
        if self.method == "Nystroem":
            from sklearn.kernel_approximation import Nystroem

            return Nystroem(
                gamma=gamma, n_components=self.n_components, random_state=self.seed
            )
        if self.method == "two products":
            from .contenders import TwoProducts

            return TwoProducts(self.n_components, self.degree, self.seed)
        return None

    def classifier(self) -> Any:
        """Return the unfitted classifier: on inputs, or on the peer's features."""
        if self.method in SOLVERS:
            import randkern

            return self._model(randkern.KernelRidgeClassifier)
        from sklearn.linear_model import RidgeClassifier

        return RidgeClassifier(
            self.alpha, fit_intercept=self.fit_intercept, solver="cholesky"
        )

    def regressor(self) -> Any:
        """Return randkern's unfitted regressor."""
        import randkern

        return self._model(randkern.KernelRidgeRegressor)

    def _model(self, model: Any) -> Any:
        import randkern

        kernel = (
            randkern.Gaussian(self.lengthscale)
            if self.family == "gaussian"
            else randkern.Optical(self.degree)
        )
        return model(
            kernel,
            self.alpha,
            self.n_components,
            solver=self.method,
            fit_intercept=self.fit_intercept,
            memory_limit=self.memory_limit,
            random_state=self.seed,
        )

    def peer_bytes(self, n: int, d: int) -> int:
        """Estimate the peak memory of a peer in float32, data and imports left out.

        ``RidgeClassifier`` holds the features, their centred copy and one more, and
        three matrices of the smaller system; ``RBFSampler`` draws in float64 first.
        """
        D = self.n_components
        features = 3 * n * D * 4
        system = 3 * min(n, D) ** 2 * 4
        return features + system + 12 * d * D

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a JSON object."""
        return asdict(self)


def known_solvers(names: Sequence[str] | None) -> list[str]:
    """Return the solvers to run: those asked for, or pcg and cholesky.

    Raises
    ------
    ValueError
        If a name is not one of `SOLVERS`.

    Examples
    --------
    >>> from randkern_lab.benchmarks.ridge_contenders import known_solvers
    >>> known_solvers(None)
    ['pcg', 'cholesky']
    """
    if names is None:
        return ["pcg", "cholesky"]
    for name in names:
        if name not in SOLVERS:
            raise ValueError(
                f"unknown solver {name!r}; expected some of {', '.join(SOLVERS)}"
            )
    return list(dict.fromkeys(names))
