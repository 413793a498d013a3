"""Imports of packages that commands seldom use, put off until they are used.

scikit-learn imports ``scipy.stats`` and pandas wherever they are installed, which takes
a third of the time of ``randkern info``. In the process of a command, a placeholder
stands for such a module: it is imported when one of its attributes is read.
(`importlib.util.LazyLoader` does so as soon as the import system asks for ``__spec__``,
at the second import.) The library itself never does this; Python 3.15 has it as a
statement (PEP 810).
"""

import importlib
import sys
from importlib.util import find_spec
from types import ModuleType
from typing import Any

# What scikit-learn imports, and the models of most commands do not use.
_MODULES = ("scipy.stats", "pandas")
# What is asked of all loaded modules, or by the import system, does not use one.
_ASKED_OF_ALL = ("__file__", "__spec__", "__warningregistry__", "__wrapped__")


def defer_imports() -> None:
    """Put off the imports of packages that are installed, and not imported yet."""
    for name in _MODULES:
        package = name.partition(".")[0]  # whose submodules SciPy imports on use
        if name not in sys.modules and find_spec(package) is not None:
            sys.modules[name] = _Placeholder(name)


class _Placeholder(ModuleType):
    """Stands for a module until one of its attributes is read."""

    def __getattr__(self, name: str) -> Any:
        if name in _ASKED_OF_ALL:
            raise AttributeError(name)
        return getattr(self._loaded(), name)

    def _loaded(self) -> ModuleType:
        """Return the module, which takes the place of this one."""
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return importlib.import_module(self.__name__)
