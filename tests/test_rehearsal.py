"""The quick form of the rehearsal: what users do, on three generated tables.

``make rehearsal`` does the same on real tables, at real size.
"""

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("typer")
pytest.importorskip("skops")
pytest.importorskip("pyarrow")

from _sleeper import sleep_with_a_child, spin
from randkern_lab.process import SkippedCase, in_fresh_process
from randkern_lab.rehearsal import every_estimator
from randkern_lab.rehearsal.experiment import Options, Rehearsal
from randkern_lab.rehearsal.steps import Steps, check, covers, same

OPTIONS = Options(quick=True, seconds=270)
CASES = list(Rehearsal(OPTIONS).cases())


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory):
    experiment = Rehearsal(replace(OPTIONS, work=tmp_path_factory.mktemp("rehearsal")))
    experiment.prepare()
    return experiment


def _measure(rehearsal, case):
    records = rehearsal.measure(case)
    failed = [
        f"{r['step']}: {r['message']}" for r in records if r["result"] == "FAILED"
    ]
    assert not failed, "\n".join(failed)
    assert records


@pytest.mark.parametrize(
    "case",
    [
        # The larger tables, the stream and the cluster take minutes.
        pytest.param(
            case,
            marks=[] if case["data"] == "generated/prices" else pytest.mark.nightly,
        )
        for case in CASES
        if case["stage"] != "estimator"
    ],
    ids=lambda case: f"{case['data']}-{case['stage']}",
)
def test_every_step_is_right_or_named(rehearsal, case):
    _measure(rehearsal, case)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case["stage"] == "estimator"],
    ids=lambda case: f"{case['data']}-{case['n_rows']}-{case['n_components']}",
)
def test_every_estimator_answers(rehearsal, case):
    _measure(rehearsal, case)


def _raise(error):
    raise error


def _inside():
    return {}["missing"]


@pytest.mark.parametrize(
    ("work", "result"),
    [
        (lambda: "checked", "ok"),
        (lambda: check(False, "1 is not 2"), "FAILED"),
        (lambda: same([1.0, 2.0], [1.0, 2.1], "numbers"), "FAILED"),
        (lambda: _raise(SkippedCase("no browser")), "skipped"),
        (lambda: _raise(ValueError("X has NaN")), "named error"),
        (lambda: float("x"), "FAILED"),  # raised by Python, not on purpose
        (_inside, "FAILED"),
        (lambda: None.alpha, "FAILED"),
    ],
)
def test_results_of_steps(work, result):
    steps = Steps()
    steps.take("a step", work, may_refuse=True)
    assert steps.records[0]["result"] == result
    steps.take("a step with valid input", work)
    expected = "FAILED" if result == "named error" else result
    assert steps.records[1]["result"] == expected


def test_narrow_intervals_fail(rng):
    y = rng.normal(size=2_000)
    ends = 1.64485 * y[:, None] ** 0 * [-1.0, 1.0]
    assert "90" in covers(y, ends, 0.9)
    with pytest.raises(AssertionError, match="hold"):
        covers(y, 0.8 * ends, 0.9)


@pytest.mark.nightly
def test_a_stage_that_hangs_is_ended_with_its_children(tmp_path, monkeypatch):
    psutil = pytest.importorskip("psutil")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    path = tmp_path / "pid"
    with pytest.raises(SkippedCase, match="more than 40 s"):
        in_fresh_process(sleep_with_a_child, {"path": str(path)}, seconds=40)
    child = int(path.read_text())
    assert not psutil.pid_exists(child) or (
        psutil.Process(child).status() == psutil.STATUS_ZOMBIE
    )


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="limits processes of Linux")
def test_a_stage_is_ended_by_its_processor_time(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    with pytest.raises(SkippedCase, match="more processor time"):
        in_fresh_process(spin, {}, seconds=280, cpu_seconds=10)


def test_an_interrupted_rehearsal_resumes(tmp_path, monkeypatch):
    result = {"records": [{"step": "a", "result": "ok", "message": "", "seconds": 1.0}]}
    asked = []

    def process(function, request, **limits):
        asked.append(request["data"])
        if len(asked) == 2:
            raise KeyboardInterrupt
        return result | {"peak_anonymous_bytes": 10**6}

    monkeypatch.setattr("randkern_lab.rehearsal.experiment.in_fresh_process", process)
    options = replace(OPTIONS, work=tmp_path, only=("stream", "cluster"))
    journal = tmp_path / "journal.jsonl"
    with pytest.raises(KeyboardInterrupt):
        Rehearsal.run(options, journal=journal)
    results = Rehearsal.run(options, journal=journal)
    assert asked == ["Parquet", "Dask", "Dask"]
    assert results["counts"] == {"ok": 2}
    written = Rehearsal.write(results, tmp_path)
    assert json.loads(written[0].read_text())["records"] == results["records"]
    assert "| a | Dask | ok |" in written[1].read_text()


def test_work_is_capped():
    cases = every_estimator.cases([10, 100_000], [10, 10_000], 2e11)
    sizes = {(case["n_rows"], case["n_components"]) for case in cases}
    assert (100_000, 10) in sizes and (10, 10_000) in sizes
    assert (100_000, 10_000) not in sizes
