"""Print the lowest version that pyproject.toml allows of every requirement.

The lines are pip's constraints: ``numpy>=2.0`` becomes ``numpy==2.0``.
"""

import re
import tomllib
from pathlib import Path

PROJECT = tomllib.loads(
    (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
)["project"]

lists = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
for requirement in sorted({line for lines in lists for line in lines}):
    lowest = re.fullmatch(r"([\w.-]+)(?:\[.*\])?>=([\w.]+).*", requirement)
    if lowest:  # randkern's own extras have no version
        print("{}=={}".format(*lowest.groups()))
