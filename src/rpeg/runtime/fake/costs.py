"""The seconds of fake work: a cost model's, with what is injected, on a clock of some scale."""

from __future__ import annotations

from dataclasses import dataclass

from rpeg.plan import Item
from rpeg.runtime.fake.injection import Injection
from rpeg.sim import Batch, Completions, Costs


@dataclass(frozen=True)
class FakeCosts:
    """Implements `sim.Costs` round other costs; they can be simulated as well as pretended.

    scale: seconds here for each of theirs. dispatch_seconds: from a command to the start of its work; 0 where that time
    passes by itself.
    """

    costs: Costs
    injection: Injection
    scale: float
    dispatch_seconds: float

    def duration_seconds(self, item: Item, batch: Batch) -> float:
        late, factor = self._begin(item)
        return late + factor * self.costs.duration_seconds(item, batch)

    def generation(self, item: Item, batch: Batch) -> Completions:
        late, factor = self._begin(item)
        done = self.costs.generation(item, batch)
        offsets = tuple(late + factor * offset for offset in done.offset_seconds)
        return Completions(late + factor * done.seconds, offsets)

    def memory_bytes(self, item: Item, lane: str) -> int:
        return self.costs.memory_bytes(item, lane) + self.injection.more_bytes(item, lane)

    def _begin(self, item: Item) -> tuple[float, float]:
        return self.scale * self.injection.delay(item), self.scale * self.injection.factor(item)
