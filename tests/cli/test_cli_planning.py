"""From a job to its calibration."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpeg import calibrate
from rpeg.cli._planning import calibration_of
from rpeg.errors import RunError
from rpeg.job import parse_job

EXAMPLE = Path(__file__).parents[2] / "examples" / "ppo.yaml"


def test_planning_goes_on_where_the_machine_cannot_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RunError("a calibration worker was killed")

    monkeypatch.setattr(calibrate, "cached", lambda *_: None)
    monkeypatch.setattr(calibrate, "measure", fails)
    said: list[str] = []
    job = parse_job(
        EXAMPLE.read_text().replace("cluster: {cpu: 2}", "cluster: {cpu: 1}"), base_dir=EXAMPLE.parent
    )
    assert calibration_of(job, said.append) is None
    assert "a calibration worker was killed" in said[-1]
    assert "rooflines" in said[-1]
