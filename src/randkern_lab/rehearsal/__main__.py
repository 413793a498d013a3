"""``python -m randkern_lab.rehearsal``: its status is 1 if a step has failed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from ..cli import built, command_of, run_and_write
from .experiment import Rehearsal


def run(experiment: Any, options: Any, out: Path) -> None:
    """Run, print and write the rehearsal; exit with status 1 if a step failed."""
    options = replace(options, work=options.work or out / "work")
    results = run_and_write(experiment, options, out)
    if any(record["result"] == "FAILED" for record in results["records"]):
        raise SystemExit(1)


if __name__ == "__main__":
    built(command_of(Rehearsal, run), "rehearsal")()
