"""The rehearsal in its quick form: a table through the command line, and streams."""

import pytest

pytest.importorskip("typer")
pytest.importorskip("skops")
pytest.importorskip("pyarrow")

from typer import Exit

from randkern_lab import rehearsal


@pytest.mark.nightly
@pytest.mark.parametrize("part", ["prices", "defaults", "streams", "estimators"])
def test_every_step_succeeds(part, tmp_path):
    rehearsal.main(out=tmp_path, quick=True, only=part)
    assert "FAILED" not in (tmp_path / "rehearsal.md").read_text()


def test_a_step_that_fails_is_the_status(tmp_path, monkeypatch):
    def failing(*_):
        yield rehearsal.take("rows", "a step", lambda: 1 / 0)

    monkeypatch.setattr(rehearsal, "streams", failing)
    with pytest.raises(Exit):
        rehearsal.main(out=tmp_path / "new", quick=True, only="streams")
    assert "ZeroDivisionError" in (tmp_path / "new" / "rehearsal.md").read_text()
