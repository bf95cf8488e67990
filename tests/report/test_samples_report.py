"""Samples to read: written by several workers, joined, chosen, shown."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from rpeg.cli import main
from rpeg.errors import InputError
from rpeg.report.samples import chosen, samples_table
from rpeg.trace import Keeping, Kept, read_kept
from rpeg.trace.kept import append


@pytest.fixture
def run(tmp_path: Path) -> Path:
    texts = [
        {"step": s, "id": 8 * s + i, "prompt": "1+1=", "response": f"[b]{i}", "answer": "2", "reward": i / 4}
        for s in (0, 10)
        for i in range(4)
    ]
    append(tmp_path, "host0", texts)
    append(tmp_path, "host1", [{"step": 10, "id": 80, "advantage": -0.5}])
    append(tmp_path, "host0", [{**texts[4], "response": "done again after a resume"}])
    with (tmp_path / "samples" / "host1.jsonl").open("a") as file:
        file.write('{"step": 10, "id": 81, "adv')  # the worker was killed here
    return tmp_path


def test_lines_of_workers_are_joined_by_id(run: Path) -> None:
    kept = {sample.id: sample for sample in read_kept(run)}
    assert sorted(kept) == [0, 1, 2, 3, 80, 81, 82, 83]
    assert (kept[80].response, kept[80].advantage) == ("done again after a resume", -0.5)
    assert (kept[81].reward, kept[81].advantage) == (0.25, None)


def test_the_last_step_is_shown_unless_another_is_asked(run: Path) -> None:
    kept = read_kept(run)
    assert [s.id for s in chosen(kept, step=None, order="id", count=3)] == [80, 81, 82]
    assert [s.id for s in chosen(kept, step=0, order="best", count=2)] == [3, 2]
    assert [s.id for s in chosen(kept, step=0, order="worst", count=1)] == [0]


def test_what_a_model_writes_moves_no_cursor() -> None:
    out = StringIO()
    sample = Kept(0, 0, "p", "[bold]x\x1b[2J\x07" + "y" * 1000, "a", 1.0, {"exact": 1.0}, 0.25, 9, True)
    Console(file=out, width=160).print(samples_table([sample]))
    text = out.getvalue()
    assert "[bold]x\\x1b[2J\\x07" in text
    assert "\x1b[2J" not in text
    assert "9 (cut)" in text
    assert "…" in text


def test_the_command(run: Path) -> None:
    app = main.make_app()
    assert "done again" in CliRunner().invoke(app, ["samples", str(run)]).output
    lines = CliRunner().invoke(app, ["samples", str(run), "--json", "--step", "0"]).output.splitlines()
    assert len(lines) == 4
    missing = CliRunner().invoke(app, ["samples", str(run), "--step", "3"])
    assert (missing.exit_code, "only of 0, 10" in missing.output) == (2, True)
    with pytest.raises(InputError, match="holds no samples"):
        read_kept(run / "nowhere")


def test_which_samples_are_kept() -> None:
    assert Keeping(10, 2).of(20, [43, 41, 40, 47], 40) == [1, 2]
    assert Keeping(10, 2).of(21, [43, 41, 40, 47], 40) == []
    assert Keeping(0, 2).of(0, [0, 1], 0) == []
