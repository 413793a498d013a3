"""The kernel for ``kernel=None``, and the base class of estimators that accept it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sklearn.base import BaseEstimator

from randkern._notebook import summary_table
from randkern.kernels.base import Kernel
from randkern.kernels.stationary import Gaussian


def checked_kernel(kernel: Any) -> Kernel:
    """Return a kernel, for None ``Gaussian(lengthscale="scale")``."""
    if kernel is None:
        return Gaussian(lengthscale="scale")
    if not isinstance(kernel, Kernel):
        raise ValueError(
            f"kernel must be a kernel object or None, got {kernel!r}; use for "
            "instance randkern.Gaussian(lengthscale='scale')."
        )
    return kernel


class TakesKernel(BaseEstimator):
    """An estimator whose `kernel` may be None, with searchable parameters even then.

    ``get_params`` lists the parameters of the default kernel; setting one of them
    (``kernel__lengthscale=2.0``) sets `kernel` to that kernel.
    """

    kernel: Kernel | None
    kernel_: Kernel

    def _default_kernel(self) -> Kernel:
        """Return the kernel for None."""
        return Gaussian(lengthscale="scale")

    @property
    def _kernel_or_default(self) -> Kernel:
        """The kernel, or its default."""
        if self.kernel is None:
            return self._default_kernel()
        return checked_kernel(self.kernel)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters; if `deep`, those of the kernel as ``kernel__<name>``.

        Parameters
        ----------
        deep : bool, default=True

        Returns
        -------
        dict
        """
        params = super().get_params(deep=deep)
        if deep and self.kernel is None:
            nested = self._default_kernel().get_params()
            params |= {f"kernel__{name}": value for name, value in nested.items()}
        return params

    def set_params(self, **params: Any) -> Any:
        """Set parameters, those of the kernel as ``kernel__<name>``.

        Returns
        -------
        self
        """
        nested = any(name.startswith("kernel__") for name in params)
        if nested and params.get("kernel", self.kernel) is None:
            params = params | {"kernel": self._default_kernel()}
        return super().set_params(**params)

    def _facts(self) -> Iterator[tuple[str, str]]:
        """Yield what a notebook shows of a fitted estimator, as names and texts."""
        yield "kernel", self.kernel_._formula()

    def _html_repr(self) -> str:
        diagram = super()._html_repr()
        if not hasattr(self, "kernel_"):
            return diagram
        return summary_table(self._facts()) + diagram


def kernel_of(estimator: Any) -> Kernel | None:
    """Return the kernel of an estimator, its default for None; None if it has none."""
    if isinstance(estimator, TakesKernel):
        return estimator._kernel_or_default
    return None
