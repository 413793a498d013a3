"""Scripts of the documentation, which is no package."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def script(name):
    """One of them, as a module."""
    spec = spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = sys.modules[name] = module_from_spec(spec)  # dataclasses look there
    spec.loader.exec_module(module)
    return module
