"""Optional dependencies, imported on use."""

from __future__ import annotations

import importlib
from types import ModuleType


def import_extra(module: str, purpose: str, extra: str) -> ModuleType:
    """Import an optional dependency, or raise an ImportError.

    Its message begins with the purpose, and says which extra of randkern installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{purpose} needs {module.partition('.')[0]}, which could not be imported "
            f'({error}); install it with: pip install "randkern[{extra}]"'
        ) from error
