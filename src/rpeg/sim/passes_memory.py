"""What the processes of this machine hold, by phase, as RPEG's own backends hold it."""

from __future__ import annotations

from collections.abc import Iterator

from rpeg import cost
from rpeg.cost import Memory, Tenant, Use
from rpeg.ir import Kind, Stage
from rpeg.plan import Assignment, Devices, Lowered, Plan, device_lane
from rpeg.sim.bases import base_of
from rpeg.sim.facts import Facts


def lane_memory(plan: Plan, lowered: Lowered, facts: Facts) -> dict[str, tuple[Memory, ...]]:
    """The phases of the process of each device lane."""
    lanes = {device_lane(i) for a in plan.assignments if isinstance(a.block, Devices) for i in a.block.ids}
    return {
        lane: cost.phases(tuple(_uses(plan, lowered, facts, lane)), facts.calibration)
        for lane in sorted(lanes)
    }


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
    base = base_of(plan, facts.bases, stage, model)
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
        shards=p.shards * p.cp,
        zero=p.zero if trained or p.zero == 3 else 0,
        recompute=holder.recompute == "full",
        tp=p.tp,
        cp=p.cp,
        pp=p.pp,
        own_copy=base is None,
        adapters=facts.adapters(model, p.tp) / p.pp if trainer is not None else 0.0,
    )
