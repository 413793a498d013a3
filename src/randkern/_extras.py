"""Optional dependencies, imported on use."""

from __future__ import annotations

import importlib
from types import ModuleType


def import_extra(module: str, purpose: str, extra: str) -> ModuleType:
    """Import an optional dependency, or say which extra installs it.

    Parameters
    ----------
    module : str
        Import name, such as ``"pyarrow.dataset"``.
    purpose : str
        What needs it; the error message begins with this.
    extra : str
        The extra of randkern that installs it.

    Raises
    ------
    ImportError
        If it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{purpose} needs {module.partition('.')[0]}, which could not be imported "
            f'({error}); install it with: pip install "randkern[{extra}]"'
        ) from error
