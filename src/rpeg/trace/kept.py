"""Samples that are kept for people to read.

    RUN/samples/WORKER.jsonl     one object a line: `step`, `id`, and what that worker knows of the sample

One worker knows the texts and the reward, another the advantage: readers join the lines by id. Steps that a resumed run
does again are written again, and the last line counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from rpeg.errors import InputError
from rpeg.trace.files import JsonLines

DIRECTORY = "samples"


@dataclass(frozen=True)
class Kept:
    """A sample. rewards: each reward before its weight, where there are several. advantage: mean over its tokens.

    What nobody wrote is None.
    """

    step: int
    id: int
    prompt: str | None = None
    response: str | None = None
    answer: str | None = None
    reward: float | None = None
    rewards: Mapping[str, float] = field(default_factory=dict)
    advantage: float | None = None
    tokens: int | None = None
    truncated: bool | None = None


@dataclass(frozen=True)
class Keeping:
    """Which samples are kept: the first `count` of every `every`-th step. every: 0 for none."""

    every: int
    count: int

    def of(self, step: int, ids: Sequence[int], first_id: int) -> list[int]:
        """The positions among `ids` of those to keep. first_id: of the step."""
        if not self.every or step % self.every:
            return []
        return [at for at, sample in enumerate(ids) if 0 <= sample - first_id < self.count]


def append(run: Path, worker: str, lines: Iterable[Mapping[str, Any]]) -> None:
    """Adds what a worker knows."""
    directory = run / DIRECTORY
    directory.mkdir(exist_ok=True)
    with JsonLines(directory / f"{worker}.jsonl") as file:
        for line in lines:
            file.write(dict(line))


def read_kept(run: Path) -> list[Kept]:
    """All samples that a run has kept, by step and id. InputError where there are none; torn lines are dropped."""
    found: dict[int, dict[str, Any]] = {}
    for file in sorted((run / DIRECTORY).glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            try:
                value = json.loads(line)
                found.setdefault(int(value["id"]), {}).update(value)
            except (ValueError, KeyError, TypeError):
                continue
    if not found:
        raise InputError(
            f"{run} holds no samples: a run keeps those of every samples.every-th step (job file)"
        )
    known = {f.name for f in fields(Kept)}
    kept = [
        Kept(**{k: v for k, v in value.items() if k in known}) for value in found.values() if "step" in value
    ]
    return sorted(kept, key=lambda sample: (sample.step, sample.id))
