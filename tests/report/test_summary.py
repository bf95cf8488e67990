"""The end of a run in words."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from rpeg.report.summary import Ended, reward_ends, summary


def shown(**changes: object) -> str:
    values: dict[str, object] = {
        "name": "job [bold]x",
        "directory": Path("runs/x"),
        "steps": 4,
        "asked": 4,
        "seconds": 61.0,
        "startup_seconds": 11.0,
        "rewards": [0.1, 0.3, 0.5, 0.9],
        "evaluations": {0: 0.25, 4: 0.75},
        "proof": "proven: everything",
        "comparison": None,
        "devices": ["device0"],
    }
    console = Console(width=160)
    with console.capture() as capture:
        console.print(summary(Ended(**{**values, **changes})))  # type: ignore[arg-type]
    return capture.get()


def test_ends_of_a_run() -> None:
    assert reward_ends([]) is None
    assert reward_ends([0.5]) == (0.5, 0.5)
    assert reward_ends([0.0] * 15 + [1.0] * 15) == (0.0, 1.0)
    first, last = reward_ends([0.1, 0.3, 0.5, 0.9]) or (0, 0)
    assert (round(first, 9), round(last, 9)) == (0.2, 0.7)


def test_reward_and_accuracy_from_first_to_last() -> None:
    text = shown()
    assert "0.200 → 0.700" in text
    assert "0.250 after 0 steps → 0.750 after 4 steps" in text
    assert "4 of 4 steps; 11 s to start, 50 s since" in text


def test_a_name_is_shown_as_it_is() -> None:
    assert "job [bold]x" in shown()


def test_a_run_without_rewards_or_evaluation() -> None:
    text = shown(rewards=[], evaluations={})
    assert "reward" not in text
    assert "accuracy" not in text
