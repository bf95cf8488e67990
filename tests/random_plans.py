"""Legal plans of all kinds, with orders derived from random seconds, and seconds that are the same in every step."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from hypothesis import assume
from hypothesis import strategies as st

from rpeg.errors import PlanError
from rpeg.ir import Kind, Stage
from rpeg.plan import Item, Lowered, Plan, Slot, check, lower
from rpeg.schedule import list_order
from rpeg.sim import Batch, Completions
from rpeg.transforms import parse
from samples_of_plans import assign, grpo, plan_of, ppo, workload

BLOCKS = ((0,), (1,), (0, 1))


def _offloads(stage: Stage) -> tuple[str, ...]:
    if stage.kind is Kind.TRAIN:
        return "none", "optimizer", "all"
    return ("none", "all") if stage.models else ("none",)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    graph = draw(st.sampled_from((ppo(), ppo(evaluate_every=2), ppo(evaluate_every=3), grpo())))
    blocks = {s.name: draw(st.sampled_from(BLOCKS)) for s in graph.stages if s.models}
    applied = []
    if draw(st.booleans()):
        unit = draw(st.sampled_from(("sample", "group")))
        applied.append(parse(f"stream{{chunk={draw(st.integers(1, 4))},unit={unit}}}"))
    staleness = draw(st.integers(0, 2))
    if staleness:
        freshness = draw(st.sampled_from(("exact", "latest")))
        applied.append(parse(f"async{{stage=generate,staleness={staleness},freshness={freshness}}}"))
    migrates = draw(st.sampled_from((0, 0, 2, 4)))
    if migrates and blocks["generate"] == (0, 1) and not any("latest" in str(t) for t in applied):
        applied.append(parse(f"migrate{{stage=generate,responses={migrates}}}"))
    shift = draw(st.integers(0, staleness))
    shifts = {s.name: shift for s in graph.stages if s.name != "generate"}
    assignments = assign(graph, (0, 1), zero=draw(st.sampled_from((0, 3))), **blocks)
    if draw(st.booleans()):
        offload = {s.name: draw(st.sampled_from(_offloads(s))) for s in graph.stages}
        assignments = tuple(replace(a, offload=offload[a.stage]) for a in assignments)
    try:
        return check(
            plan_of(graph, assignments, workload(minibatches=2), shifts=shifts, applied=tuple(applied))
        )
    except PlanError:
        assume(False)
        raise


@st.composite
def timed_plans(draw: st.DrawFn) -> tuple[Plan, FixedCosts]:
    """A plan whose lanes are in the order of some seconds, and other seconds to run it with."""
    plan = draw(plans())
    lowered = lower(plan.graph, plan.assignments, plan.workload)
    guessed, costs = (FixedCosts.draw(lowered, draw(st.integers(0, 2**16))) for _ in range(2))
    order = list_order(lowered, plan.shifts, *guessed.times)
    dispatch = draw(st.sampled_from((0.0, 0.3)))
    return check(replace(plan, order=order)), replace(costs, dispatch_seconds=dispatch)


@dataclass(frozen=True)
class FixedCosts:
    """Seconds of each slot and of the leaving of each base part, the same in all steps."""

    lowered: Lowered
    durations: dict[Slot, float]
    offsets: dict[tuple[Slot, int], float]
    dispatch_seconds: float = 0.0

    @staticmethod
    def draw(lowered: Lowered, seed: int) -> FixedCosts:
        draw = random.Random(seed)
        durations = {slot: draw.choice((0.0, 0.1, draw.uniform(0, 10))) for slot in sorted(lowered.tasks)}
        offsets = {}
        for slot in sorted(lowered.tasks):
            covers = lowered.tasks[slot].covers
            leaving = sorted(draw.uniform(0, durations[slot]) for _ in covers)
            offsets.update({(slot, part): seconds for part, seconds in zip(covers, leaving, strict=True)})
            if lowered.tasks[slot].hands_over:  # it ends with the last that it does not leave to another
                durations[slot] = max(leaving, default=0.0)
        return FixedCosts(lowered, durations, offsets)

    @property
    def times(self) -> tuple[dict[Slot, float], dict[tuple[Slot, int], float]]:
        """From the command on, as `events` takes them."""
        overhead = self.dispatch_seconds
        return tuple({key: overhead + s for key, s in d.items()} for d in (self.durations, self.offsets))  # type: ignore[return-value]

    def duration_seconds(self, item: Item, batch: Batch) -> float:
        return self.durations[item.slot]

    def generation(self, item: Item, batch: Batch) -> Completions:
        """Samples leave in the order of the batch: those of a part, and of a group, are neighbours in it."""
        slot = item.slot
        parts = self.lowered.tasks[slot].covers if batch.ids else ()
        offsets = [self.offsets[slot, p] for p in parts for _ in range(self.lowered.parts[p].samples)]
        late = [self.durations[slot] + 1] * (len(batch.ids) - len(offsets))
        return Completions(max([self.durations[slot], *late]), (*offsets, *late))

    def memory_bytes(self, item: Item, lane: str) -> int:
        return 0
