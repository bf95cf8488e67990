"""Records from files and directories, broken lines, and which kind a record is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rpeg.errors import InputError
from rpeg.validation import read_records
from rpeg.validation.form import check_form
from rpeg.validation.kinds import described, kind_of_record


def test_files_and_directories_are_read_once_each(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": "a1", "source": "A"}\n\n{"id": "a2"}\n')
    (tmp_path / "b.json").write_text('[{"id": "b1"}]')
    (tmp_path / "README.md").write_text("no record")
    reading = read_records([tmp_path, tmp_path / "a.jsonl"])
    assert [row.id for row in reading.records] == ["a1", "a2", "b1"]
    assert [row.source for row in reading.records] == [
        "A",
        f"{tmp_path / 'a.jsonl'}",
        f"{tmp_path / 'b.json'}",
    ]
    assert reading.broken == ()


def test_a_record_without_an_id_is_called_by_its_place(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"id": "x"}\n{"n": 1}\n')
    assert read_records([file]).records[1].id == f"{file}:2"


def test_broken_lines_are_named_and_the_others_read(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"id": "a"}\n{"id": \n[1, 2]\n{"id": "b"}\n')
    reading = read_records([file])
    assert [row.id for row in reading.records] == ["a", "b"]
    assert len(reading.broken) == 2
    assert f"{file}:2 is not JSON" in reading.broken[0]
    assert f"{file}:3 holds [1, 2], a JSON object is needed" in reading.broken[1]


def test_a_missing_path_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere does not exist"):
        read_records([tmp_path / "nowhere"])


def test_a_directory_without_records_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no .jsonl or .json file"):
        read_records([tmp_path])


@pytest.mark.parametrize(
    ("record", "kind"),
    [
        ({"model": {}, "seq_len": 4096, "target": {"step_time_s": 1.0}}, "train"),
        ({"model": {}, "measured": {"step_time_s": 1.0}, "target": {"step_time_s": 1.0}}, "train"),
        ({"model": {}, "seq_len": 4096, "mem_basis": "allocated", "measured": {"peak_mem": 1}}, "memory"),
        ({"model": {}, "seq_len": 4096, "mem_basis": "label only", "status": "oom"}, "memory"),
        ({"mode": "static-batch end-to-end", "isl": 8, "osl": 8, "batch": 4}, "infer_static"),
        ({"mode": "prefill latency (osl=1)", "isl": 8, "osl": 1}, "infer_static"),
        (
            {"mode": "closed-loop serving, fixed concurrency", "isl": 8, "osl": 8, "concurrency": 4},
            "infer_loop",
        ),
        ({"kind": "rlhf_ppo_iteration", "setting": {"system": "ReaL"}}, "real"),
        ({"kind": "rl_step", "setting": {"framework": "NeMo-RL"}, "measured": {"step_time_s": 3}}, "rl"),
        ({"algorithm": "GRPO", "measured": {"step_time_s": 3, "gen_s": 1}}, "rl"),
        ({"algorithm": "DAPO", "metrics": {"step_s": 3}}, "rl"),
        ({"kind": "weight_sync", "metrics": {"time_s": 2}}, "weightsync"),
        ({"mechanism": "NCCL", "measured": {"time_s": 2}}, "weightsync"),
        ({"kind": "headline", "setting": {}}, None),
        ({"meta": {}, "cases": [1, 2]}, None),
        ({}, None),
    ],
)
def test_fields_decide_the_kind(record: dict[str, Any], kind: str | None) -> None:
    assert kind_of_record(record) == kind


def test_records_of_no_kind_are_described() -> None:
    assert "2 in a file" in described({"meta": {}, "cases": [1, 2]})
    assert "'headline'" in described({"kind": "headline"})
    assert "unknown" in described({"a": 1})


SHARED = Path(__file__).parents[2].parent / "shared" / "data"


@pytest.mark.skipif(not SHARED.exists(), reason="the published measurements are not here")
def test_every_published_record_has_a_kind_or_a_description() -> None:
    reading = read_records([SHARED])
    assert reading.broken == ()
    lines = sum(len(file.read_text().splitlines()) for file in SHARED.glob("*.jsonl"))
    assert len(reading.records) == lines + 1  # and numerics.json
    for row in reading.records:
        kind = kind_of_record(row.record)
        if kind is not None:
            check_form(row.record, kind)
    core = [row.record for row in reading.records if row.record.get("core") is True]
    unknown = [json.dumps(row)[:80] for row in core if kind_of_record(row) is None]
    assert len(unknown) <= len(core) // 100, unknown


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path: Path) -> None:
    (tmp_path / "bom.jsonl").write_bytes(b'\xef\xbb\xbf{"id": 1}\r\n{"id": 2}\r\n')
    reading = read_records([tmp_path])
    assert (len(reading.records), reading.broken) == (2, ())
