"""What tests of the lab share: work that is asked of a new process, done here."""

import json

from randkern_lab.benchmarks import (
    classifiers,
    features,
    gaussian_process,
    ridge,
    tables,
)
from randkern_lab.process import SkippedCase, answer

WITH_PROCESSES = (classifiers, features, gaussian_process, ridge, tables)
# Keys that all results have.
COMMON = {
    *("command", "arguments", "versions", "machine", "dataset", "records", "skipped"),
    *("published", "notes", "seconds", "peak_memory_bytes", "provenance"),
}


def here(function, request):
    """Stand in for `in_fresh_process`, which takes longer."""
    name = f"{function.__module__}:{function.__name__}"
    result = answer(name, json.loads(json.dumps(request)))
    if "error" in result:
        raise SkippedCase(result["error"])
    result = json.loads(json.dumps(result, allow_nan=False))
    return result | {"process_seconds": 1.0, "peak_anonymous_bytes": None}


def in_this_process(patch):
    """Have all benchmarks work in this process."""
    for module in WITH_PROCESSES:
        patch.setattr(module, "in_fresh_process", here)
