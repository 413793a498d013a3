"""What an installation of the wheel without extras must do: run by its interpreter."""

import re
import subprocess
import sys
from importlib.metadata import entry_points, version
from pathlib import Path

import numpy as np

import randkern as rk

SOURCES = Path(__file__).resolve().parents[1] / "src"
installed = Path(rk.__file__).parents[1]
assert installed.is_relative_to(sys.prefix), f"{installed} is not the wheel"

files = (
    path.relative_to(SOURCES)
    for package in ("randkern", "randkern_lab")
    for path in (SOURCES / package).rglob("*")
    if path.is_file()
)
expected = {path for path in files if path.suffix not in {".pyc", ".nbi", ".nbc"}}
missing = sorted(str(p) for p in expected if not (installed / p).is_file())
assert not missing, f"the wheel lacks {missing}"

X = np.random.default_rng(0).normal(size=(200, 3))
y = np.sin(X[:, 0])
model = rk.KernelRidgeRegressor(alpha=1e-3, n_components=200, random_state=0)
score = model.fit(X, y).score(X, y)
assert score > 0.95, score

script = Path(sys.executable).with_name("randkern")
told = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
assert told.stdout.split() == ["randkern", version("randkern")], told.stdout
for command in ("reproduce", "bench"):
    found = entry_points(group="randkern.commands", name=command)
    assert len(found) == 1, f"the wheel has no entry point {command!r}"
# The README's code, as a reader would run it.
readme = SOURCES.with_name("README.md").read_text(encoding="utf-8")
blocks = re.findall(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
assert blocks, "README.md shows no Python"
exec(compile("\n".join(blocks), "README.md", "exec"), {"__name__": "README"})

print(f"{told.stdout.strip()}: {len(expected)} files, and a fit with R² = {score:.3f}")
