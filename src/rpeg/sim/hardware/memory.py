"""What the devices and hosts of described hardware hold, by phase, with all tenants that rest there meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import cast

from rpeg import cost
from rpeg.architecture import Architecture
from rpeg.cost import Execution, Footprint, Machine, Memory, Sequences
from rpeg.cost.execution import Offload
from rpeg.cost.memory import sequence_cache_bytes
from rpeg.cost.memory.breakdown import Breakdown, Line
from rpeg.ir import Kind, Stage
from rpeg.plan import Assignment, Devices, Lowered, Plan
from rpeg.sim.facts import Facts
from rpeg.sim.hardware.layouts import execution_of, software_of
from rpeg.sim.hardware.sites import site
from rpeg.sim.hardware.together import Residency, Use, phases_of, residency
from rpeg.workload import Workload

# The phases that a stage's items bring about, beside those of weights on their way.
PHASES: Mapping[Kind, tuple[str, ...]] = {
    Kind.GENERATE: ("wake-up", "generate"),
    Kind.INFERENCE: ("score",),
    Kind.TRAIN: ("update", "optimizer", "checkpoint"),
}
CACHE = "KV cache"


def lane_memory(plan: Plan, lowered: Lowered, facts: Facts) -> dict[str, tuple[Memory, ...]]:
    """The phases of each device lane; lanes that hold the same share one answer."""
    known: dict[tuple[tuple[str, ...], Residency], tuple[Memory, ...]] = {}
    found, order = {}, {lane.name: lane for lane in plan.order}
    for lane in lowered.held.devices:
        key = _stages_on(plan, lowered, lane), residency(order.get(lane), lowered)
        if key not in known:
            known[key] = phases_of(tuple(uses(plan, lowered, facts, key[0])), key[1])
        found[lane] = known[key]
    return found


def uses(plan: Plan, lowered: Lowered, facts: Facts, stages: Sequence[str]) -> Iterator[Use]:
    """All uses of weights by these stages, which are together on a device."""
    trained = [u for name in stages for u in _trained_or_scored(plan, lowered, facts, name)]
    yield from trained
    for name in stages:
        if plan.graph.stage(name).kind is Kind.GENERATE:
            yield _generates(plan, lowered, facts, name, trained)


def cache_of(plan: Plan, lowered: Lowered, facts: Facts, stage: str) -> float:
    """Bytes of each device that a generator has for keys and values: what weights and others' resting state leave.

    At most what its rows can fill, at least one longest sequence (whether that fits is for the memory of the plan).
    """
    assignment = plan.assignment(stage)
    sets = dict.fromkeys(_stages_on(plan, lowered, lane) for lane in lowered.held.of(assignment))
    return min(
        _room(plan, facts, stage, [u for n in names for u in _trained_or_scored(plan, lowered, facts, n)])
        for names in sets
    )


def tenant_of(lowered: Lowered, stage: str, model: str) -> str:
    """The weights that a stage finds: the trainer's or a frozen model's, by its name, or a copy of its own."""
    copy = lowered.copy_for(stage, model)
    return model if copy is None else f"{model} copy for {copy.stages[0]}"


def host_memory(plan: Plan, lowered: Lowered, facts: Facts) -> dict[int, tuple[Memory, ...]]:
    """What the host of each node holds: processes, buffers, what is offloaded, checkpoints on their way to disk."""
    found: dict[int, dict[str, Breakdown]] = {}
    for stage in plan.graph.stages:
        assignment = plan.assignment(stage.name)
        for model in stage.models:
            tenant = tenant_of(lowered, stage.name, model)
            own = _host(plan, facts, stage, model, assignment)
            for node in _nodes(plan, assignment):
                found.setdefault(node, {}).setdefault(tenant, own)
                if stage.kind is Kind.TRAIN:
                    found[node][tenant] = own
    return {node: (_host_phase(tenants),) for node, tenants in sorted(found.items())}


def _host_phase(tenants: Mapping[str, Breakdown]) -> Memory:
    """Processes once, all else of every tenant."""
    parts = [
        (f"{name} {line.name}", line.bytes)
        for name, own in tenants.items()
        for line in own.lines
        if line.pool != "process"
    ]
    processes = max((own.pool_bytes("process") for own in tenants.values()), default=0.0)
    return Memory("host", (("processes", processes), *parts))


def _host(plan: Plan, facts: Facts, stage: Stage, model: str, assignment: Assignment) -> Breakdown:
    assert isinstance(assignment.block, Devices)
    machine = site(plan.cluster, assignment.block).machine(software_of(facts, stage))
    trained = stage.kind is Kind.TRAIN
    execution = execution_of(plan.workload, facts, stage, assignment, trained=trained)
    # an engine asleep gets its weights from the trainer again
    offload = "none" if stage.kind is Kind.GENERATE else assignment.offload
    execution = replace(execution, offload=cast(Offload, offload))
    heads = plan.graph.model(model).heads
    return cost.host_memory(facts.architectures[model], execution, machine, heads=heads, trained=trained)


def _nodes(plan: Plan, assignment: Assignment) -> tuple[int, ...]:
    assert isinstance(assignment.block, Devices)
    return tuple(dict.fromkeys(plan.cluster.node_of(i) for i in assignment.block.ids))


def _stages_on(plan: Plan, lowered: Lowered, lane: str) -> tuple[str, ...]:
    slots = lowered.lanes.get(lane, ())
    names = {slot.name for slot in slots}
    return tuple(s.name for s in plan.graph.stages if s.name in names)


def _trained_or_scored(plan: Plan, lowered: Lowered, facts: Facts, name: str) -> tuple[Use, ...]:
    stage = plan.graph.stage(name)
    if stage.kind not in (Kind.INFERENCE, Kind.TRAIN):
        return ()
    return tuple(_use(plan, lowered, facts, stage, model) for model in stage.models)


def _use(plan: Plan, lowered: Lowered, facts: Facts, stage: Stage, model: str) -> Use:
    """Of a trainer, of who scores with its weights, or with a copy's or a frozen model's."""
    copy = lowered.copy_for(stage.name, model)
    trainer = plan.graph.trainer(model) if copy is None else None
    assignment = plan.assignment(stage.name)
    holder = plan.assignment(trainer.name) if trainer is not None else assignment
    execution = execution_of(plan.workload, facts, stage, assignment, trained=trainer is not None)
    assert isinstance(assignment.block, Devices)
    machine = site(plan.cluster, assignment.block).machine(software_of(facts, stage))
    heads = plan.graph.model(model).heads
    measure = _train if trainer is not None else _infer
    architecture, batch = facts.architectures[model], update_batch(plan.workload)
    footprint = measure(architecture, batch, execution, machine, heads)
    resting = _resting(footprint)
    if stage.kind is Kind.INFERENCE and trainer is not None and holder.offload != "none":
        footprint = measure(architecture, batch, replace(execution, offload="optimizer"), machine, heads)
    names = ["load", *PHASES[stage.kind]]
    publishes = stage.kind is Kind.TRAIN and any(c.model == model for c in lowered.copies)
    names += ["transfer"] if publishes or copy is not None else []
    phases = tuple(p for n in names if (p := footprint.phase(n)) is not None)  # type: ignore[arg-type]
    tenant = tenant_of(lowered, stage.name, model)
    return Use(stage.name, stage.kind, tenant, phases, resting, holder.offload)


def _generates(plan: Plan, lowered: Lowered, facts: Facts, name: str, others: Sequence[Use]) -> Use:
    stage, assignment = plan.graph.stage(name), plan.assignment(name)
    cache = _room(plan, facts, name, others)
    names = ("load", "wake-up", "generate", "transfer")
    found = {p.phase: p for p in _engine(plan, facts, stage, assignment).phases}
    phases = tuple(_with_cache(found[n], cache) for n in names)  # type: ignore[index]
    weights, _ = _resting(_engine(plan, facts, stage, assignment))
    tenant = tenant_of(lowered, name, stage.models[0])
    return Use(name, stage.kind, tenant, phases, (weights, cache), assignment.offload)


def _room(plan: Plan, facts: Facts, name: str, others: Sequence[Use]) -> float:
    """See `cache_of`; of a generator on devices with these other uses."""
    stage, assignment = plan.graph.stage(name), plan.assignment(name)
    assert isinstance(assignment.block, Devices)
    machine = site(plan.cluster, assignment.block).machine(facts.engine)
    generating = _engine(plan, facts, stage, assignment).phase("generate")
    assert generating is not None
    needed = _with_cache(generating, 0.0).device_bytes
    resting = {u.tenant: u.rest_bytes for u in others if u.tenant != stage.models[0]}
    share = machine.stack.serving.memory_share * machine.kind.usable_memory_bytes
    left = share - needed - sum(resting.values())
    execution = execution_of(plan.workload, facts, stage, assignment, trained=False)
    each = sequence_cache_bytes(facts.architectures[stage.models[0]], plan.workload.longest, execution)
    return float(max(each, min(left, each * assignment.microbatch)))


def _with_cache(phase: Breakdown, cache_bytes: float) -> Breakdown:
    lines = (Line(line.name, cache_bytes, line.pool) if line.name == CACHE else line for line in phase.lines)
    return Breakdown(phase.phase, tuple(lines))


def _engine(plan: Plan, facts: Facts, stage: Stage, assignment: Assignment) -> Footprint:
    assert isinstance(assignment.block, Devices)
    machine = site(plan.cluster, assignment.block).machine(facts.engine)
    execution = execution_of(plan.workload, facts, stage, assignment, trained=False)
    model = facts.architectures[stage.models[0]]
    return _generate(model, execution, machine, assignment.microbatch, plan.workload.longest)


def _resting(footprint: Footprint) -> tuple[float, float]:
    """(weights, all else that stays) of a tenant while others use the device."""
    rest = footprint.phase("rest")
    lines = [line for line in rest.lines if line.pool == "state"] if rest is not None else []
    weights = sum(line.bytes for line in lines if line.name.startswith("parameters"))
    return weights, sum(line.bytes for line in lines) - weights


def update_batch(w: Workload) -> Sequences:
    """An update's samples, of mean lengths; the longest that can occur."""
    count = w.samples // w.minibatches
    prompt, response = w.prompt_lengths.mean, w.response_lengths.mean
    tokens = prompt + response
    return Sequences(
        count, round(count * tokens), count * tokens * tokens, w.longest, max(1, round(count * response))
    )


@lru_cache(maxsize=4096)
def _train(
    model: Architecture, batch: Sequences, execution: Execution, machine: Machine, heads: tuple[str, ...]
) -> Footprint:
    return cost.train_memory(model, batch, execution, machine, heads=heads)


@lru_cache(maxsize=4096)
def _infer(
    model: Architecture, batch: Sequences, execution: Execution, machine: Machine, heads: tuple[str, ...]
) -> Footprint:
    return cost.infer_memory(model, batch, execution, machine, heads=heads)


@lru_cache(maxsize=4096)
def _generate(
    model: Architecture, execution: Execution, machine: Machine, rows: int, context: int
) -> Footprint:
    return cost.generate_memory(model, execution, machine, rows=rows, context=context)
