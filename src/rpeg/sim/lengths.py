"""The lengths of the samples of a simulated run."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

from rpeg.sim.costs import Batch
from rpeg.workload import Workload

_Drawn = tuple[list[int], list[int]]


class Draws:
    """Prompt and response lengths by sample id, drawn from (seed, step).

    What was drawn and asked is kept for `keep` steps, so that plans of one workload may share it.
    """

    def __init__(self, workload: Workload, seed: int, keep: int = 16) -> None:
        self._workload, self.seed, self._keep = workload, seed, keep
        self._steps: dict[int, _Drawn] = {}
        self._batches: dict[int, dict[tuple[int, ...], Batch]] = {}

    def batch(self, ids: Iterable[int]) -> Batch:
        """The samples of these ids with their lengths: of one step, and what the one before it has left."""
        samples = tuple(ids)
        if not samples:
            return Batch()
        step = max(samples[0], samples[-1]) // self._workload.asked
        known = self._batches.setdefault(step, {})
        if samples not in known:
            known[samples] = self._batch(samples, step)
        return known[samples]

    def whole(self, step: int) -> Batch:
        """All samples of a step."""
        first = step * self._workload.asked
        return self.batch(range(first, first + self._workload.asked))

    def _batch(self, samples: tuple[int, ...], step: int) -> Batch:
        first = step * self._workload.asked
        if min(samples) < first:
            older, own = (tuple(i for i in samples if (i < first) is before) for before in (True, False))
            both = [self._batch(older, step - 1), *([self._batch(own, step)] if own else [])]
            return Batch(
                tuple(i for batch in both for i in batch.ids),
                tuple(n for batch in both for n in batch.prompt_lengths),
                tuple(n for batch in both for n in batch.response_lengths),
            )
        prompts, responses = self._lengths(step)
        if len(samples) == 1:
            i = samples[0] - first
            return Batch(samples, (prompts[i],), (responses[i],))
        pick = itemgetter(*(i - first for i in samples))
        return Batch(samples, pick(prompts), pick(responses))

    def _lengths(self, step: int) -> _Drawn:
        if step not in self._steps:
            for old in [s for s in self._steps if s <= step - self._keep]:
                del self._steps[old]
                self._batches.pop(old, None)
            prompts, responses = self._workload.draw(self.seed, step)
            self._steps[step] = (prompts.tolist(), responses.tolist())
        return self._steps[step]
