"""What each lane's process holds, by phase: the tenants and uses that a plan gives it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rpeg import cost
from rpeg.cost import Memory, Tenant, Use
from rpeg.ir import Kind, Stage
from rpeg.plan import Assignment, Devices, Item, ItemKind, Lowered, Plan, device_lane
from rpeg.sim.facts import Facts

# The phases in which a stage's items lie.
PHASES: Mapping[Kind, tuple[str, ...]] = {
    Kind.GENERATE: ("generate",),
    Kind.INFERENCE: ("score",),
    Kind.TRAIN: ("update", "optimizer"),
}


@dataclass(frozen=True)
class DeviceMemory:
    """One device: what it has, and what its process holds in each phase."""

    device: int
    capacity_bytes: int
    phases: tuple[Memory, ...]

    @property
    def peak(self) -> Memory:
        """The phase in which it holds most."""
        return max(self.phases, key=lambda memory: memory.bytes)

    @property
    def short_bytes(self) -> float:
        """How much is missing at the peak; 0 where it fits."""
        return max(0.0, self.peak.bytes - self.capacity_bytes)


def device_memory(plan: Plan, lowered: Lowered, facts: Facts) -> tuple[DeviceMemory, ...]:
    """Of every device that the plan uses, in order of their numbers."""
    by_lane = lane_memory(plan, lowered, facts)
    used = sorted({i for a in plan.assignments if isinstance(a.block, Devices) for i in a.block.ids})
    return tuple(
        DeviceMemory(i, plan.cluster.device(i).kind.usable_memory_bytes, by_lane[device_lane(i)])
        for i in used
    )


def lane_memory(plan: Plan, lowered: Lowered, facts: Facts) -> dict[str, tuple[Memory, ...]]:
    """The phases of the process of each device lane."""
    lanes = {device_lane(i) for a in plan.assignments if isinstance(a.block, Devices) for i in a.block.ids}
    return {
        lane: cost.phases(tuple(_uses(plan, lowered, facts, lane)), facts.calibration)
        for lane in sorted(lanes)
    }


def of_item(plan: Plan, item: Item, phases: Sequence[Memory]) -> float:
    """Bytes that a process holds while an item runs; 0 where it has no phase for it (host work)."""
    names = (
        ("transfer",) if item.kind is ItemKind.TRANSFER else PHASES.get(plan.graph.stage(item.name).kind, ())
    )
    if not phases or not names:
        return 0.0
    held = [memory.bytes for memory in phases if memory.phase in names]
    return max(held, default=phases[0].bytes)


def stages_in(plan: Plan, lane: str, phase: str) -> tuple[str, ...]:
    """The stages that bring a phase about on a lane."""
    return tuple(
        stage.name
        for stage in plan.graph.stages
        if lane in plan.assignment(stage.name).all_lanes()
        and (phase not in _OF_A_KIND or phase in PHASES.get(stage.kind, ()))
    )


_OF_A_KIND = frozenset(phase for names in PHASES.values() for phase in names)


def _uses(plan: Plan, lowered: Lowered, facts: Facts, lane: str) -> Iterator[Use]:
    publishing = {copy.model for copy in lowered.copies}
    for stage in plan.graph.stages:
        assignment = plan.assignment(stage.name)
        if not stage.models or lane not in assignment.all_lanes():
            continue
        for model in stage.models:
            tenant = _tenant(plan, lowered, facts, stage, model)
            receives = lowered.copy_for(stage.name, model) is not None
            publishes = stage.kind is Kind.TRAIN and model in publishing
            yield _use(plan, stage, assignment, tenant, publishes, receives)


def _use(
    plan: Plan, stage: Stage, assignment: Assignment, tenant: Tenant, publishes: bool, receives: bool
) -> Use:
    w = plan.workload
    if stage.kind is Kind.GENERATE:
        return Use(tenant, slots=assignment.microbatch, context=w.longest, receives=receives)
    return Use(
        tenant,
        microbatch=assignment.microbatch,
        longest=w.longest,
        response_tokens=assignment.microbatch * w.response_lengths.maximum,
        publishes=publishes,
        receives=receives,
    )


def _tenant(plan: Plan, lowered: Lowered, facts: Facts, stage: Stage, model: str) -> Tenant:
    """The weights that a stage finds: the trainer's, a copy's or a frozen model's; equal where they are the same."""
    graph = plan.graph
    copy = lowered.copy_for(stage.name, model)
    trainer = graph.trainer(model)
    trained = trainer is not None and copy is None
    holder = plan.assignment(trainer.name) if trainer is not None and trained else plan.assignment(stage.name)
    name = model if copy is None else f"{model} copy for {copy.stages[0]}"
    p = holder.parallelism
    return Tenant(
        name,
        facts.architectures[model],
        facts.dtype,
        graph.model(model).heads,
        trainable=trained,
        shards=p.dp,
        zero=p.zero if trained or p.zero == 3 else 0,
        recompute=holder.recompute != "none",
    )
