"""Built-in verifiers that need a package or a process, and several rewards added up."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rpeg.backends.reward.scorer import make_scorer
from rpeg.backends.reward.total import Total
from rpeg.backends.reward.verifiers import format as form
from rpeg.job.rewards import Reward, labels


@pytest.mark.parametrize(
    ("response", "score"),
    [
        ("<think>so</think><answer>4</answer>", 1),
        (" <think>\nso\n</think>\n\n<answer>4</answer> \n", 1),
        ("<answer>4</answer><think>so</think>", 0),
        ("<think>so</think>4<answer>4</answer>", 0),
        ("<think>so</think><answer>4</answer> and more", 0),
        ("<think> </think><answer>4</answer>", 0),
        ("<think>so<answer>4</answer>", 0),
        ("<think>so</think><answer>4", 0),
        ("<think>a</think><think>b</think><answer>4</answer>", 0),
        ("", 0),
    ],
)
def test_tags(response: str, score: float) -> None:
    assert form.reward("", response, "", tags=("think", "answer")) == score


def test_a_pattern_matches_the_whole_response() -> None:
    assert form.reward("", " a\nb=12 \n", "", pattern=r".*=\d+") == 1
    assert form.reward("", "=12.", "", pattern=r"=\d+") == 0


def test_a_pattern_that_never_ends_is_ended() -> None:
    reward = Reward(name="format", pattern="(a+)+b", time_limit_seconds=1.0)
    with make_scorer(reward) as scorer:
        report = scorer.score(["p"] * 3, ["aab", "a" * 60 + "c", "ab"], ["x"] * 3, [False] * 3)
    assert report.scores.tolist() == [1.0, 0.0, 1.0]
    assert (report.failed, report.timed_out) == (0, 1)


def test_math_is_compared_by_symbols() -> None:
    pytest.importorskip("math_verify")
    answers = ["3/4", r"\frac{3}{4}", "x^2-1", "12", "5", ""]
    responses = [
        r"so it is $\boxed{0.75}$.",
        r"The answer is \boxed{\frac{6}{8}}",
        r"$\boxed{(x-1)(x+1)}$",
        "I think 13",
        "no idea",
        "3",
    ]
    with make_scorer(Reward(name="math", time_limit_seconds=60)) as scorer:
        report = scorer.score(["p"] * 6, responses, answers, [False] * 6)
    assert report.scores.tolist() == [1, 1, 1, 0, 0, 0]
    assert (report.failed, report.timed_out) == (1, 0), "the last answer is empty: counted"
    assert "holds no mathematical expression" in report.reason


def test_a_reasoning_gym_task_scores_itself() -> None:
    pytest.importorskip("reasoning_gym")
    entry = {"question": "1 + 2 =", "answer": "3", "metadata": {"source_dataset": "chain_sum"}}
    answers = [json.dumps(entry)] * 3 + ["3"]
    responses = ["3", "I add: <answer> 3 </answer>.", "4", "3"]
    with make_scorer(Reward(name="reasoning_gym", time_limit_seconds=60)) as scorer:
        report = scorer.score(["p"] * 4, responses, answers, [False] * 4)
    assert report.scores[0] == report.scores[1] == 1
    assert report.scores[2] < 1
    assert (report.scores[3], report.failed) == (0, 1)
    assert "no entry of a reasoning-gym task" in report.reason


def test_rewards_add_up_by_weight() -> None:
    rewards = [
        Reward(name="numeric", weight=2.0),
        Reward(name="exact", weight=0.5, truncated="zero"),
        Reward(name="model", weight=-1.0, truncated="zero"),
    ]
    with Total(rewards) as total:
        report = total.score(
            ["p"] * 4,
            ["is 3", "3", "3", "4"],
            ["3"] * 4,
            [False, False, True, False],
            np.array([0.25, np.nan, 9.0, -1.0]),
        )
    assert report.total.tolist() == [2 - 0.25, 2.5, 2.0, 1.0]
    assert {name: part.scores.tolist() for name, part in report.parts.items()} == {
        "numeric": [1, 1, 1, 0],
        "exact": [0, 1, 0, 0],
        "model": [0.25, 0, 0, -1],
    }
    assert (report.failed, report.parts["model"].truncated) == (1, 1)
    assert "no finite number" in report.reason


def test_rewards_of_one_name_are_told_apart(tmp_path: Path) -> None:
    names = ("python:a.b:score", "numeric", "python:c:score", "numeric")
    assert labels(Reward(name=name) for name in names) == ("score", "numeric", "score-2", "numeric-2")
