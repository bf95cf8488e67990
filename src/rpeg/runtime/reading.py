"""Writing down samples for people to read; see `rpeg.trace.kept`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rpeg.backends.data import Prompt
from rpeg.backends.reward.total import TotalReport
from rpeg.backends.samples import Samples
from rpeg.runtime.work import Station
from rpeg.trace.kept import Keeping, append


@dataclass(frozen=True)
class Reading:
    """What one worker writes. samples: that a step may ask for; its ids begin at step · samples."""

    keeping: Keeping
    run: Path
    worker: str
    samples: int

    def texts(
        self,
        step: int,
        samples: Samples,
        prompts: Sequence[Prompt],
        texts: Sequence[str],
        report: TotalReport,
    ) -> None:
        """Prompt, response, answer and rewards of the samples that are kept."""
        parts = {name: part.scores for name, part in report.parts.items()} if len(report.parts) > 1 else {}
        self._append(
            {
                "step": step,
                "id": int(samples.ids[row]),
                "prompt": prompts[row].text,
                "response": texts[row],
                "answer": prompts[row].answer,
                "reward": float(report.total[row]),
                "rewards": {name: float(scores[row]) for name, scores in parts.items()},
                "tokens": int(samples.lengths[row]),
                "truncated": bool(samples.sample["finish"][row] == 0),
            }
            for row in self._rows(step, samples)
        )

    def advantages(self, step: int, samples: Samples, columns: Samples) -> None:
        """The mean over its tokens of each kept sample's advantage, where the columns hold any."""
        offsets = columns.offsets
        for_tokens, for_samples = columns.token.get("advantages"), columns.sample.get("advantages")
        if for_tokens is None and for_samples is None:
            return

        def mean(row: int) -> float:
            if for_samples is not None:
                return float(for_samples[row])
            assert for_tokens is not None
            own = for_tokens[offsets[row] : offsets[row + 1]]
            return float(np.mean(own)) if len(own) else 0.0

        self._append(
            {"step": step, "id": int(samples.ids[row]), "advantage": mean(row)}
            for row in self._rows(step, samples)
        )

    def _rows(self, step: int, samples: Samples) -> list[int]:
        return self.keeping.of(step, samples.ids.tolist(), step * self.samples)

    def _append(self, lines: Any) -> None:
        rows = list(lines)
        if rows:
            append(self.run, self.worker, rows)


def reading_of(station: Station) -> Reading:
    """What the worker of a station writes."""
    asked = station.job.samples
    keeping = Keeping(asked.every, asked.count)
    return Reading(keeping, station.trace.parent, station.name, station.plan.workload.asked)
