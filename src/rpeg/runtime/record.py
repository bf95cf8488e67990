"""What a step was like: numbers that items report, put together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class StepRecord:
    """One step. seconds: since the end of the step before. reward: mean over its samples; None where none was scored.

    accuracy: mean reward of answers to held-out prompts, where the step began with an evaluation.
    tokens_per_second: response tokens generated, a second of the step, rejected ones too.
    versions: of each model after the step. metrics: everything else, by name.
    """

    step: int
    seconds: float
    reward: float | None
    accuracy: float | None
    tokens_per_second: float
    truncated: float
    versions: Mapping[str, int]
    metrics: Mapping[str, float] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "seconds": self.seconds,
            "reward": self.reward,
            "accuracy": self.accuracy,
            "tokens_per_second": self.tokens_per_second,
            "truncated": self.truncated,
            "versions": dict(self.versions),
            **self.metrics,
        }


class Tally:
    """Collects the metrics of one step's items.

    `sum/x` adds up over items; `mean/x` is averaged over the items that report it; other names are taken as they come.
    """

    def __init__(self) -> None:
        self._sums: dict[str, float] = {}
        self._means: dict[str, list[float]] = {}
        self._plain: dict[str, float] = {}

    def add(self, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            kind, _, rest = name.partition("/")
            if kind == "sum":
                self._sums[rest] = self._sums.get(rest, 0.0) + value
            elif kind == "mean":
                self._means.setdefault(rest, []).append(value)
            else:
                self._plain[name] = value

    def accuracy(self) -> float | None:
        """Mean reward of the held-out prompts, where an evaluation has reported."""
        prompts = self._sums.get("eval_prompts", 0)
        return self._sums["eval_reward"] / prompts if prompts else None

    def evaluation(self) -> dict[str, float]:
        """Everything else that an evaluation found, as means over its prompts, by name: `eval/…`."""
        prompts = self._sums.get("eval_prompts", 0)
        found = {name: total for name, total in self._sums.items() if name.startswith("eval/")}
        return {name: total / prompts for name, total in found.items()} if prompts else {}

    def record(self, step: int, seconds: float, versions: Mapping[str, int]) -> StepRecord:
        sums = self._sums
        rewarded, samples = sums.get("rewarded", 0), sums.get("samples", 0)
        tokens = sums.get("response_tokens", 0.0)
        hidden = {"reward", "rewarded", "truncated", "eval_reward", "eval_prompts"}
        return StepRecord(
            step,
            seconds,
            sums["reward"] / rewarded if rewarded else None,
            self.accuracy(),
            tokens / seconds if seconds > 0 else 0.0,
            sums.get("truncated", 0.0) / samples if samples else 0.0,
            dict(versions),
            {
                **{n: value for n, value in sums.items() if n not in hidden and not n.startswith("eval/")},
                **self.evaluation(),
                "response_length": tokens / samples if samples else 0.0,
                **{name: sum(values) / len(values) for name, values in self._means.items()},
                **self._plain,
            },
        )
