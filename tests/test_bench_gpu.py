"""The benchmark of GPUs: what it says without one, and its records where it runs."""

import json

import pytest

pytest.importorskip("matplotlib")

from randkern_lab.benchmarks import gpu
from randkern_lab.benchmarks.gpu import (
    MEASUREMENTS,
    OnGPU,
    Options,
    why_not,
)
from randkern_lab.energy import EnergyMeter

pytestmark = pytest.mark.slow

RECORD_KEYS = {
    *("measurement", "method", "n", "d", "n_components", "seconds", "joules"),
}
KEYS = {
    *("command", "machine", "versions", "arguments", "records"),
    *("ran", "reason", "device", "energy"),
}


@pytest.mark.skipif(why_not("cuda") is None, reason="there is a GPU")
def test_without_a_gpu_it_says_that_it_did_not_run(command, tmp_path):
    done = command("gpu")
    assert done.exit_code == 0, done.output
    assert "did not run" in done.output
    results = json.loads((tmp_path / "results.json").read_text())
    assert set(results) >= KEYS
    assert results["ran"] is False
    assert results["records"] == []
    assert results["energy"].startswith(("none: ", "NVML"))
    assert f"energy: {results['energy']}" in done.output.replace("\n", " ")
    assert "PyTorch" in results["reason"]
    assert not (tmp_path / "gpu.png").exists()


@pytest.mark.slow
def test_energy_is_counted_where_there_is_a_counter(monkeypatch):
    pytest.importorskip("torch")
    counts = iter(range(1000))
    meter = EnergyMeter("a counter", lambda: [1e6 * next(counts)], (float("inf"),))
    monkeypatch.setattr(gpu, "NO_METER", meter)
    monkeypatch.setattr(gpu, "_ENERGY_SECONDS", 0.01)
    results = OnGPU.run(
        Options(quick=True, measurements=("features", "product", "ridge"))
    )
    assert results["energy"] == "a counter"
    assert all(record["joules"] > 0 for record in results["records"])


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="unknown measurement 'speed'"):
        OnGPU.run(Options(measurements=("speed",)))
    with pytest.raises(ValueError, match="repeats must be 1 or more"):
        Options(repeats=0)
    pytest.importorskip("torch")
    with pytest.raises(ValueError, match="no device 'bogus'"):
        why_not("bogus")
    with pytest.raises(ValueError, match="device must be cuda or cpu, got 'meta'"):
        why_not("meta")
    assert "CUDA" in why_not("cuda:99")


def test_records_on_the_processor(quick):
    results = quick("gpu")
    assert set(results) >= KEYS
    assert results["ran"] is True
    assert results["device"] == {"name": "cpu"}
    assert all(set(record) >= RECORD_KEYS for record in results["records"])
    assert {r["measurement"] for r in results["records"]} == set(MEASUREMENTS)
    assert all(record["seconds"] > 0 for record in results["records"])
    ridge = [r for r in results["records"] if r["measurement"] == "ridge"]
    assert [record["method"] for record in ridge] == ["cpu", "cpu, NumPy"]
    assert ridge[0]["test_accuracy"] == pytest.approx(
        ridge[1]["test_accuracy"], abs=0.05
    )
    assert results["energy"] == "none: not a GPU"
    assert all(record["joules"] is None for record in results["records"])
    (figure,) = OnGPU.figures(results).values()
    assert len(figure.axes) == 1
    headings = {heading for t in OnGPU.tables(results) for heading in t.columns}
    assert {"of the write bound", "of torch.matmul", "test accuracy"} <= headings
