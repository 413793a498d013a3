"""Hyperparameters of the optical experiments, and where they come from."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .binary_images import BinaryImages
from .kernel_choices import parse_kernel
from .tune import tune

__all__ = ["KERNELS", "KernelSetting", "optical_settings"]

KERNELS = ("gaussian", "optical:2", "optical:4")
# Features, and rows, of the search where nothing is stored.
_SEARCH_COMPONENTS, _SEARCH_ROWS = 1000, 5000
_QUICK_COMPONENTS, _QUICK_ROWS = 150, 400
_BIAS_MULTIPLES = (0.0, 1 / 4, 1.0, 4.0)


@dataclass(frozen=True)
class KernelSetting:
    """A kernel with its hyperparameters.

    Attributes
    ----------
    kernel : str
        ``"gaussian"``, ``"optical:2"`` or ``"optical:4"``.
    value : float
        Its lengthscale or its bias, a whole number: a device shows it as lit bits.
    alpha : float
        Ridge penalty.
    origin : str
        Where the numbers come from.
    """

    kernel: str
    value: float
    alpha: float
    origin: str

    def build(self) -> Any:
        """Return the kernel.

        Examples
        --------
        >>> from randkern.experiments.optical_settings import KernelSetting
        >>> KernelSetting("optical:4", 16.0, 1e10, "").build()
        Optical(bias=16.0, degree=4)
        """
        return parse_kernel(self.kernel).build(self.value)

    def describe(self) -> dict[str, Any]:
        """Return the hyperparameters by name, and their origin."""
        choice = parse_kernel(self.kernel)
        named = choice.hyperparameters(self.value, self.alpha)
        return {**named, "origin": self.origin}


_PUBLISHED = "published, chosen at D = 10,000 on validation rows of Fashion-MNIST"
_VALIDATED = (
    "chosen on 10,000 training rows held out of MNIST: the kernel at D = 3,000 of "
    "24,000 rows, the penalty at D = 10,000 of 50,000 rows"
)
_STORED = {
    "mnist": (
        KernelSetting("gaussian", 8.0, 0.01, _VALIDATED),
        KernelSetting("optical:2", 64.0, 3e3, _VALIDATED),
        KernelSetting("optical:4", 64.0, 1e9, _VALIDATED),
    ),
    "fashion-mnist": (
        KernelSetting("gaussian", 8 * 2**0.5, 0.1, _PUBLISHED),
        KernelSetting("optical:2", 16.0, 1e4, _PUBLISHED),
        KernelSetting("optical:4", 16.0, 1e10, _PUBLISHED),
    ),
}


def optical_settings(
    images: BinaryImages, *, seed: int = 0, quick: bool = False
) -> list[KernelSetting]:
    """Return the hyperparameters of the Gaussian and two optical kernels.

    Parameters
    ----------
    images : BinaryImages
    seed : int
        Of the rows and the features of the search.
    quick : bool
        Search with 150 features of 400 rows.

    Returns
    -------
    settings : list of KernelSetting
        Of ``gaussian``, ``optical:2`` and ``optical:4``. Those stored for all of
        MNIST and Fashion-MNIST; for other data the best of a grid
        (:func:`.tune.tune`) of seven lengthscales (⅛ to 8 times the data's own) or
        four biases (0, ¼, 1 and 4 mean squared norms), and nine decades of
        penalties, by leave-one-out of 1,000 features of 5,000 training rows.

    Examples
    --------
    >>> from randkern.experiments.binary_images import load_binary_images
    >>> from randkern.experiments.optical_settings import optical_settings
    >>> settings = optical_settings(load_binary_images("digits", None), quick=True)
    >>> [setting.kernel for setting in settings]
    ['gaussian', 'optical:2', 'optical:4']
    """
    if images.complete and images.family in _STORED:
        return list(_STORED[images.family])
    n_components, n_rows = _SEARCH_COMPONENTS, _SEARCH_ROWS
    if quick:
        n_components, n_rows = _QUICK_COMPONENTS, _QUICK_ROWS
    rows = np.random.default_rng(seed).permutation(len(images.X_train))[:n_rows]
    dataset = images.dataset(rows)
    mean_lit = float(dataset.X_train.sum(axis=1).mean())
    results = tune(
        dataset,
        KERNELS,
        n_components=n_components,
        scales=[1.0],
        biases=sorted({float(round(share * mean_lit)) for share in _BIAS_MULTIPLES}),
        random_state=seed,
    )
    origin = f"leave-one-out, {n_components:,} features of {len(rows):,} training rows"
    return [
        KernelSetting(
            kernel,
            results["best"][kernel]["hyperparameters"][
                "lengthscale" if kernel == "gaussian" else "bias"
            ],
            results["best"][kernel]["hyperparameters"]["alpha"],
            origin,
        )
        for kernel in KERNELS
    ]
