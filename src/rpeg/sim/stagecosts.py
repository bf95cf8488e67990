"""`StageCosts`: the seconds of a plan's items from the cost model that knows its devices."""

from __future__ import annotations

from typing import Protocol

from rpeg.cost import Cost
from rpeg.plan import Item, ItemKind, Plan, Slot, lower
from rpeg.sim.costs import Answer, Batch, Completions
from rpeg.sim.facts import Facts
from rpeg.sim.hardware import HardwareCosts
from rpeg.sim.memory import is_local, lane_memory, of_item
from rpeg.sim.passes import PassCosts

Memo = dict[object, dict[bytes, Answer]]
"""Question → digest of the lengths → answer."""


class Model(Protocol):
    """A cost model bound to a plan."""

    @property
    def dispatch_seconds(self) -> float:
        """From a command of the driver to the start of its work."""

    def question(self, slot: Slot) -> object:
        """All that an answer rests on, beside the lengths of the samples and the facts. Hashable."""

    def answer(self, slot: Slot, batch: Batch) -> Answer:
        """The cost of a slot's item on these samples."""


class StageCosts:
    """Implements `sim.Costs` for one plan: measured passes on this machine's processes, else op by op.

    memo: answers by question; plans of one problem may share it, as a question holds all that its answer rests on.
    """

    def __init__(self, plan: Plan, facts: Facts, memo: Memo | None = None) -> None:
        self._plan = plan
        self._memo: Memo = {} if memo is None else memo
        self._answers: dict[Slot, dict[bytes, Answer]] = {}
        lowered = lower(plan.graph, plan.assignments, plan.workload)
        own = PassCosts if is_local(plan) else HardwareCosts
        self._model: Model = own(plan, facts, lowered)
        self._memory = lane_memory(plan, lowered, facts)
        self._held: dict[tuple[ItemKind, str, str], int] = {}

    @property
    def dispatch_seconds(self) -> float:
        """One call through the runtime."""
        return self._model.dispatch_seconds

    def duration_seconds(self, item: Item, batch: Batch) -> float:
        return self.tree(item, batch).seconds

    def generation(self, item: Item, batch: Batch) -> Completions:
        tree, offsets = self._answer(item, batch)
        # the last response can be the end, but for the rounding of a sum
        return Completions(max(tree.seconds, max(offsets, default=0.0)), offsets)

    def memory_bytes(self, item: Item, lane: str) -> int:
        key = item.kind, item.name, lane
        if key not in self._held:
            self._held[key] = int(of_item(self._plan, item, self._memory.get(lane, ())))
        return self._held[key]

    def tree(self, item: Item, batch: Batch) -> Cost:
        """The cost of an item on these samples, as a tree that prints."""
        return self._answer(item, batch)[0]

    def _answer(self, item: Item, batch: Batch) -> Answer:
        slot = item.slot
        known = self._answers.get(slot)
        if known is None:
            known = self._answers[slot] = self._memo.setdefault(self._model.question(slot), {})
        found = known.get(batch.digest)
        if found is None:
            found = known[batch.digest] = self._model.answer(slot, batch)
        return found
