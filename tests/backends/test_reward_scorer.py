"""Scoring never crashes or hangs; what went wrong is counted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rpeg.backends.reward.scorer import RewardReport, Scorer, check_reward, make_scorer
from rpeg.errors import InputError
from rpeg.job.schema import Reward

FUNCTIONS = """
import os, subprocess, sys, time

print("noise while importing")

def length(prompt, response, answer):
    print("noise while scoring")
    return len(response)

def trap(prompt, response, answer):
    if response == "raise":
        raise KeyError("what\\nelse")
    if response == "exit":
        os._exit(3)
    if response == "quit":
        sys.exit()
    if response == "hang":
        subprocess.Popen(["sleep", "600"])  # holds the pipe open
        while True:
            pass
    if response == "nan":
        return float("nan")
    if response == "word":
        return "good"
    return {"one": 1, "echo": float(prompt) + float(answer)}[response]

def meet(prompt, response, answer):
    # only where another process scores `answer` meanwhile
    open(response, "w").close()
    while not os.path.exists(answer):
        time.sleep(0.001)
    return 1.0

constant = 3

def two(prompt, answer):
    return 1.0

async def later(prompt, response, answer):
    return 1.0

def typo(prompt, response, answer):
    return lenght(response)
"""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    (tmp_path / "trap_functions.py").write_text(FUNCTIONS)
    return tmp_path


@pytest.fixture
def trap(module: Path) -> Iterator[Scorer]:
    with scorer(module, "trap", limit_seconds=20.0) as made:
        yield made


def scorer(module: Path, function: str, limit_seconds: float = 5.0, truncated: str = "score") -> Scorer:
    return make_scorer(
        Reward(
            name=f"python:trap_functions:{function}",
            time_limit_seconds=limit_seconds,
            truncated=truncated,
            import_from=str(module),
        )
    )


def test_built_in() -> None:
    made = make_scorer(Reward(name="numeric"))
    report = made.score(["1+2", "2+2", "2+3"], ["3", "5", "5"], ["3", "4", "x"], [False] * 3)
    assert report.scores.tolist() == [1.0, 0.0, 0.0]
    assert (report.failed, report.timed_out, report.truncated) == (1, 0, 0)
    assert "'x' holds no number" in report.reason


def test_a_function_and_what_it_prints(module: Path) -> None:
    with scorer(module, "length") as made:
        report = made.score(["p"] * 3, ["", "a\nb", "é\ud800"], ["a"] * 3, [False] * 3)
    assert report.scores.tolist() == [0.0, 3.0, 2.0]
    assert report.failed == 0


def test_each_failure_costs_one_sample(trap: Scorer) -> None:
    responses = ["one", "raise", "exit", "one", "quit", "nan", "word", "echo", "none"]
    report = trap.score(["1"] * 9, responses, ["2"] * 9, [False] * 9)
    assert report.scores.tolist() == [1.0, 0, 0, 1.0, 0, 0, 0, 3.0, 0]
    assert (report.failed, report.timed_out) == (6, 0)
    assert report.reason == "KeyError: 'what\\nelse'"


def test_a_function_that_hangs_is_ended(module: Path) -> None:
    with scorer(module, "trap", limit_seconds=1.0) as made:
        report = made.score(["1"] * 3, ["one", "hang", "one"], ["2"] * 3, [False] * 3)
    assert report.scores.tolist() == [1.0, 0.0, 1.0]
    assert (report.failed, report.timed_out) == (0, 1)


def test_truncated_responses(module: Path) -> None:
    with scorer(module, "length", truncated="zero") as made:
        report = made.score(["p"] * 2, ["abc", "abcd"], ["a"] * 2, [True, False])
        assert report.scores.tolist() == [0.0, 4.0]
        assert report.truncated == 1
    with scorer(module, "length") as made:
        assert made.score(["p"], ["abc"], ["a"], [True]).scores.tolist() == [3.0]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("python:trap_functions:constant", "is a int, a function is needed"),
        ("python:trap_functions:none", "cannot be imported"),
        ("python:raises_on_import:f", "ValueError: no"),
    ],
)
def test_a_function_that_cannot_be_imported(name: str, says: str, module: Path) -> None:
    (module / "raises_on_import.py").write_text("raise ValueError('no')")
    with pytest.raises(InputError, match=says):
        make_scorer(Reward(name=name, import_from=str(module)))


def test_no_process_is_left_behind(module: Path) -> None:
    made = scorer(module, "length")
    child = made.verifier.processes[0]._child  # type: ignore[attr-defined]
    made.close()
    made.close()
    assert child.poll() is not None


UNUSABLE = {
    "constant": "is a int, a function is needed",
    "two": r"takes \(prompt, answer\), but is called with",
    "later": "is async",
    "typo": "name 'lenght' is not defined",
    "trap exit": "process ended with code 3",
    "trap quit": "process ended with code 0",
    "trap hang": "took longer than reward.time_limit_seconds 1",
    "trap nan": "gave nan",
    "trap word": "gave a str, a number is needed",
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_a_reward_that_can_score_nothing_is_refused_before_the_run(case: str, module: Path) -> None:
    function, _, answer = case.partition(" ")
    reward = Reward(name=f"python:trap_functions:{function}", import_from=str(module), time_limit_seconds=1.0)
    with pytest.raises(InputError, match=UNUSABLE[case]):
        check_reward(reward, "prompt", answer)


@pytest.mark.parametrize("text", ["raise SystemExit(3)", "import os; os._exit(3)", "def f(:"])
def test_a_module_that_ends_its_process_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "ending_module.py").write_text(text)
    with pytest.raises(InputError, match="python:ending_module:f: "):
        check_reward(Reward(name="python:ending_module:f", import_from=str(tmp_path)))


def test_rewards_that_may_score(module: Path) -> None:
    check_reward(Reward(name="numeric"))
    check_reward(Reward(name="python:trap_functions:length", import_from=str(module)))
    check_reward(Reward(name="python:trap_functions:trap", import_from=str(module)), "p", "raise")
    with pytest.raises(InputError, match="python:math:sqrtt"):
        check_reward(Reward(name="python:math:sqrtt"))


def test_workers_score_side_by_side_and_in_order(module: Path) -> None:
    def score(name: str, responses: list[str], answers: list[str], workers: int) -> RewardReport:
        reward = Reward(
            name=f"python:trap_functions:{name}",
            import_from=str(module),
            time_limit_seconds=5,
            workers=workers,
        )
        with make_scorer(reward) as scorer:
            return scorer.score(["1"] * len(responses), responses, answers, [False] * len(responses))

    a, b = str(module / "a"), str(module / "b")
    assert score("meet", [a, b], [b, a], 2).scores.tolist() == [1, 1]
    responses = ["one", "raise", "echo", "exit", "nan", "one", "word"]
    serial, together = (score("trap", responses, ["2"] * 7, workers) for workers in (1, 3))
    assert together.scores.tolist() == serial.scores.tolist() == [1, 0, 3, 0, 0, 1, 0]
    assert (together.failed, together.timed_out) == (serial.failed, serial.timed_out) == (4, 0)
    assert together.reason == serial.reason
