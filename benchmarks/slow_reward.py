"""A reward that waits as a remote judge would."""

from __future__ import annotations

import time

from rpeg.backends.reward.verifiers import numeric

SECONDS = 0.005


def judged(prompt: str, response: str, answer: str) -> float:
    time.sleep(SECONDS)
    return numeric.reward(prompt, response, answer)
