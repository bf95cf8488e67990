"""A reasoning-gym task's own score of a response, from 0 to 1."""

from __future__ import annotations

import json
import re

import reasoning_gym

ISOLATED = True  # some tasks run what a response says through a parser

_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


def reward(prompt_text: str, response_text: str, answer: str) -> float:
    """The score of the text in the last <answer>…</answer>, else of the whole response.

    answer: the task's entry as JSON, with `metadata.source_dataset` (as `data.train: reasoning-gym:TASK` gives it).
    ValueError where it is none. (https://github.com/open-thought/reasoning-gym, `get_score_answer_fn`)
    """
    entry = _entry(answer)
    score = reasoning_gym.get_score_answer_fn(entry["metadata"]["source_dataset"])
    marked = _ANSWER.findall(response_text)
    return float(score((marked[-1] if marked else response_text).strip(), entry))


def _entry(answer: str) -> dict[str, dict[str, str]]:
    try:
        entry = json.loads(answer)
        if entry["metadata"]["source_dataset"] and "answer" in entry:
            return entry  # type: ignore[no-any-return]
    except (ValueError, KeyError, TypeError):
        pass
    raise ValueError(f"the answer {answer[:60]!r} is no entry of a reasoning-gym task")
