"""The benchmark of GPUs: what it says without one, and its records where it runs."""

import json

import pytest

pytest.importorskip("typer")

from typer.testing import CliRunner

from randkern_lab.benchmarks import gpu
from randkern_lab.oldcli.bench import application
from randkern_lab.energy import EnergyMeter

pytestmark = pytest.mark.slow

RECORD_KEYS = {
    *("measurement", "method", "n", "d", "n_components", "seconds", "joules"),
}
KEYS = {
    *("command", "machine", "versions", "arguments", "records"),
    *("ran", "reason", "device", "energy"),
}


def has_gpu():
    return gpu._why_not("cuda") is None


@pytest.mark.skipif(has_gpu(), reason="there is a GPU")
def test_without_a_gpu_it_says_that_it_did_not_run(tmp_path):
    done = CliRunner().invoke(application, ["gpu", "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "did not run" in done.output
    results = json.loads((tmp_path / "results.json").read_text())
    assert set(results) == KEYS
    assert results["ran"] is False
    assert results["records"] == []
    assert results["energy"].startswith("none: ") or results["energy"].startswith(
        "NVML"
    )
    assert f"energy: {results['energy']}" in done.output.replace("\n", " ")
    assert "PyTorch" in results["reason"]


def test_energy_is_counted_where_there_is_a_counter(monkeypatch):
    pytest.importorskip("torch")
    counts = iter(range(1000))
    meter = EnergyMeter("a counter", lambda: [1e6 * next(counts)], (float("inf"),))
    monkeypatch.setattr(gpu, "_NO_METER", meter)
    results = gpu.run(
        **{"device": "cpu", "n": 20, "d": 70, "n_components": 90, "side": 64},
        **{"ridge_rows": 300, "ridge_components": 128, "repeats": 1},
        measurements=["features", "product", "ridge"],
    )
    assert results["energy"] == "a counter"
    assert all(record["joules"] > 0 for record in results["records"])


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="no measurement 'speed'"):
        gpu.run(measurements=["speed"])
    with pytest.raises(ValueError, match="repeats must be a positive integer"):
        gpu.run(repeats=0)
    pytest.importorskip("torch")
    with pytest.raises(ValueError, match="no device 'bogus'"):
        gpu.run(device="bogus")
    with pytest.raises(ValueError, match="device must be cuda or cpu, got 'meta'"):
        gpu.run(device="meta")
    assert "CUDA" in gpu.run(device="cuda:99")["reason"]


def test_figure_and_tables_of_the_command(tmp_path):
    pytest.importorskip("torch")
    arguments = "gpu --device cpu --measurements features,sweep --n 20 --d 70"
    arguments += " --n-components 90 --batches 1,3 --sizes 50,90 --repeats 1 --out"
    done = CliRunner().invoke(application, [*arguments.split(), str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "gpu.png").stat().st_size > 10_000
    assert "of the write bound" in done.output


def test_records_on_the_processor():
    pytest.importorskip("torch")
    results = gpu.run(
        device="cpu",
        n=20,
        d=70,
        n_components=90,
        side=64,
        ridge_rows=300,
        ridge_components=128,
        batches=[1, 3],
        sizes=[50],
        repeats=1,
        cpu=True,
    )
    assert set(results) == KEYS
    assert results["ran"] is True
    assert results["device"] == {"name": "cpu"}
    assert all(set(record) >= RECORD_KEYS for record in results["records"])
    assert {record["measurement"] for record in results["records"]} == set(
        gpu.MEASUREMENTS
    )
    assert all(record["seconds"] > 0 for record in results["records"])
    ridge = [r for r in results["records"] if r["measurement"] == "ridge"]
    assert [record["method"] for record in ridge] == ["cpu", "cpu, NumPy"]
    assert ridge[0]["test_accuracy"] == pytest.approx(
        ridge[1]["test_accuracy"], abs=0.05
    )
    assert results["energy"] == "none: not a GPU"
    assert all(record["joules"] is None for record in results["records"])
    json.dumps(results, allow_nan=False)
