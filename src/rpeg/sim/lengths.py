"""The lengths of the samples of a simulated run."""

from __future__ import annotations

from collections.abc import Iterable

from rpeg.sim.costs import Batch
from rpeg.workload import Workload


class Draws:
    """Prompt and response lengths by sample id, drawn from (seed, step) and kept for the steps last asked for."""

    def __init__(self, workload: Workload, seed: int) -> None:
        self._workload, self._seed = workload, seed
        self._steps: dict[int, tuple[list[int], list[int]]] = {}

    def batch(self, ids: Iterable[int]) -> Batch:
        """The samples of these ids with their lengths."""
        samples = tuple(ids)
        pairs = [self._lengths(i) for i in samples]
        return Batch(samples, tuple(p for p, _ in pairs), tuple(r for _, r in pairs))

    def whole(self, step: int) -> Batch:
        """All samples of a step."""
        first = step * self._workload.samples
        return self.batch(range(first, first + self._workload.samples))

    def _lengths(self, sample_id: int) -> tuple[int, int]:
        step, index = divmod(sample_id, self._workload.samples)
        if step not in self._steps:
            self._steps = {s: drawn for s, drawn in self._steps.items() if s > step - 8}
            prompts, responses = self._workload.draw(self._seed, step)
            self._steps[step] = ([int(n) for n in prompts], [int(n) for n in responses])
        return self._steps[step][0][index], self._steps[step][1][index]
