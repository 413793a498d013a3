"""`randkern fit`, killed at random moments: what lies there belongs together."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

pytest.importorskip("pandas")
pytest.importorskip("typer")
pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")
pytest.importorskip("skops")
import pandas as pd

import randkern as rk

pytestmark = pytest.mark.skipif(os.name != "posix", reason="special files of POSIX")

KILLS = 8
FILES = ["model.skops", "report.html", "results.json"]


def fit(folder, seed):
    code = "from randkern.cli import main; main()"
    options = ["--target", "y", "--time-limit", "1", "--seed", str(seed)]
    options += ["--out", folder / "out"]
    return subprocess.Popen(
        [sys.executable, "-c", code, "fit", folder / "rows.csv", *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


@pytest.mark.nightly
def test_a_kill_at_any_moment_leaves_what_belongs_together(tmp_path):
    rng, draw = np.random.default_rng(0), random.Random(0)
    rows = pd.DataFrame(rng.normal(size=(80, 2)), columns=["a", "b"])
    rows["y"] = np.sin(rows["a"]) + 0.1 * rng.normal(size=80)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    out, began = tmp_path / "out", time.perf_counter()
    assert fit(tmp_path, 0).wait() == 0
    whole = time.perf_counter() - began
    for seed in range(1, KILLS + 1):
        process = fit(tmp_path, seed)
        time.sleep(draw.uniform(0.2, 1.0) * whole)
        process.send_signal(draw.choice([signal.SIGKILL, signal.SIGINT]))
        process.wait()
        names = {each.name for each in out.iterdir() if each.suffix != ".tmp"}
        assert "model.skops" in names
        fitted = rk.load(out / "model.skops").random_state
        if "results.json" in names:  # the last that is written
            results = json.loads((out / "results.json").read_text())
            assert results["arguments"]["seed"] == fitted
            assert "report.html" in names
        if "report.html" in names:
            text = (out / "report.html").read_text(encoding="utf-8")
            assert text.rstrip().endswith("</html>")
    assert fit(tmp_path, 0).wait() == 0
    assert sorted(each.name for each in out.iterdir()) == FILES
