"""Several rewards, added up by their weights; one of them may be the scores of a reward model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType

import numpy as np
import numpy.typing as npt

from rpeg.backends.reward.scorer import RewardReport, Scorer, make_scorer
from rpeg.job.rewards import MODEL, Reward, labels

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TotalReport:
    """total: (n,) Σ weight · score. parts: each reward's own report, before its weight, by its label."""

    total: Floats
    parts: Mapping[str, RewardReport] = field(default_factory=dict)

    @property
    def failed(self) -> int:
        """Scores that count as zero because they could not be computed."""
        return sum(part.failed for part in self.parts.values())

    @property
    def timed_out(self) -> int:
        """Scores that count as zero because they took too long."""
        return sum(part.timed_out for part in self.parts.values())

    @property
    def reason(self) -> str:
        """What the first failure said."""
        return next((part.reason for part in self.parts.values() if part.reason), "")


class Total:
    """The rewards of a job; a context manager, since users' functions have processes."""

    def __init__(self, rewards: Iterable[Reward]) -> None:
        self.rewards = tuple(rewards)
        self.labels = labels(self.rewards)
        self._open = ExitStack()
        self._scorers: list[Scorer | None] = []
        try:
            for reward in self.rewards:
                scorer = None if reward.name == MODEL else self._open.enter_context(make_scorer(reward))
                self._scorers.append(scorer)
        except BaseException:
            self.close()
            raise

    def score(
        self,
        prompts: Sequence[str],
        responses: Sequence[str],
        answers: Sequence[str],
        truncated: Sequence[bool] | npt.NDArray[np.bool_],
        model_scores: npt.NDArray[np.floating] | None = None,
    ) -> TotalReport:
        """Scores of n responses; see `Scorer.score`. model_scores: (n,), where a reward is `model`."""
        total = np.zeros(len(responses))
        parts: dict[str, RewardReport] = {}
        for label, reward, scorer in zip(self.labels, self.rewards, self._scorers, strict=True):
            if scorer is not None:
                report = scorer.score(prompts, responses, answers, truncated)
            else:
                assert model_scores is not None, "the scores of the reward model have not come"
                report = _of_model(model_scores, truncated, zero_truncated=reward.truncated == "zero")
            parts[label] = report
            total += reward.weight * report.scores
        return TotalReport(total, parts)

    def close(self) -> None:
        """Ends what processes there are."""
        self._open.close()

    def __enter__(self) -> Total:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def make_total(rewards: Iterable[Reward]) -> Total:
    """InputError when a function cannot be imported."""
    return Total(rewards)


def _of_model(
    scores: npt.NDArray[np.floating],
    truncated: Sequence[bool] | npt.NDArray[np.bool_],
    *,
    zero_truncated: bool,
) -> RewardReport:
    """A score that is no finite number is a counted zero."""
    scores = np.asarray(scores, dtype=np.float64)
    wrong = ~np.isfinite(scores)
    cut = np.asarray(truncated, dtype=bool) if zero_truncated else np.zeros(len(scores), dtype=bool)
    failed = int((wrong & ~cut).sum())
    reason = "the reward model gave a score that is no finite number" if failed else ""
    return RewardReport(np.where(wrong | cut, 0.0, scores), failed, 0, int(cut.sum()), reason)
