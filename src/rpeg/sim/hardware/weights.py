"""Weights on their way: from a trainer to a copy, and to host memory and back between a model's runs."""

from __future__ import annotations

from dataclasses import replace

from rpeg.architecture import Head
from rpeg.cluster import Fabric
from rpeg.cost import Cost
from rpeg.cost.network import Held, named_tensors, offload, sync, transfer
from rpeg.plan import Assignment, Copy, Devices, Lowered, Plan
from rpeg.sim.facts import Facts
from rpeg.sim.hardware.layouts import execution_of, software_of
from rpeg.sim.hardware.memory import uses
from rpeg.sim.hardware.sites import Site, site
from rpeg.sim.hardware.together import Use


def transfer_cost(plan: Plan, facts: Facts, copy: Copy) -> Cost:
    """All receivers of a copy get their shards from the nearest holders (planned shard to shard).

    Where both use the same devices whole tensors are handed over as device pointers, as engines take them.
    """
    trainer, consumer = plan.assignment(copy.trainer), plan.assignment(copy.stages[0])
    assert isinstance(trainer.block, Devices)
    assert isinstance(consumer.block, Devices)
    here, there = site(plan.cluster, trainer.block), site(plan.cluster, consumer.block)
    stage = plan.graph.stage(copy.stages[0])
    dtypes = [
        execution_of(plan.workload, facts, plan.graph.stage(name), a, trained=trained).precision.weights
        for name, a, trained in ((copy.trainer, trainer, True), (stage.name, consumer, False))
    ]
    source = Held(trainer.parallelism, here.first, dtypes[0])
    target = Held(consumer.parallelism, there.first, dtypes[1])
    links = there.fabric
    if here.kind != there.kind:
        source, target, links = _between_kinds(plan, here, there, source, target)
    architecture = facts.architectures[copy.model]
    moved = transfer(architecture, source, target, links, _head(plan, copy.model))
    machine = replace(there.machine(software_of(facts, stage)), fabric=links)
    shared = not set(trainer.block.ids).isdisjoint(consumer.block.ids)
    return sync(moved, machine, "ipc" if shared else "p2p", tensors=named_tensors(architecture))


def moves(plan: Plan, lowered: Lowered, facts: Facts, stage: str) -> tuple[list[Cost], list[Cost]]:
    """(before, after) a stage's item: what rests on the host comes to each device, and goes again.

    Frozen weights are only read, so they are dropped, not sent back; an engine that slept gets its weights from the
    trainer (the transfer is an item of its own) and maps its memory again.
    """
    assignment = plan.assignment(stage)
    names = tuple(dict.fromkeys((stage, *_trainers(plan, lowered, stage))))
    resting = {plan.assignment(name).offload for name in names}
    if not isinstance(assignment.block, Devices) or resting == {"none"}:
        return [], []
    before, after = [], []
    for use in uses(plan, lowered, facts, names):
        if use.stage == stage and use.offload != "none":
            come, go = _of_use(plan, facts, assignment, use)
            before += come
            after += go
    return before, after


def _trainers(plan: Plan, lowered: Lowered, stage: str) -> list[str]:
    """The trainers whose weights a stage shares."""
    models = plan.graph.stage(stage).models
    found = [plan.graph.trainer(m) for m in models if lowered.copy_for(stage, m) is None]
    return [trainer.name for trainer in found if trainer is not None]


def _of_use(plan: Plan, facts: Facts, assignment: Assignment, use: Use) -> tuple[list[Cost], list[Cost]]:
    assert isinstance(assignment.block, Devices)
    stage = plan.graph.stage(use.stage)
    machine = site(plan.cluster, assignment.block).machine(software_of(facts, stage))
    weights, more = use.resting
    if str(stage.kind) == "generate":
        return [Cost("wake up", machine.stack.network.wake_seconds, bound="host")], []
    trains = str(stage.kind) == "train"
    kept = any(plan.graph.trainer(model) is not None for model in stage.models)
    coming = (weights if use.offload == "all" else 0.0) + (more if trains else 0.0)
    going = (weights if use.offload == "all" and kept else 0.0) + (more if trains else 0.0)
    return (
        [offload(coming, machine, f"reload {use.tenant}")] if coming else [],
        [offload(going, machine, f"offload {use.tenant}")] if going else [],
    )


def _between_kinds(
    plan: Plan, here: Site, there: Site, source: Held, target: Held
) -> tuple[Held, Held, Fabric]:
    """Both on one fabric, whose fastest level is the receivers' and whose slowest joins the kinds."""
    width = there.fabric.devices_per_node
    first = -(-source.parallelism.devices // width) * width
    whole = first + -(-target.parallelism.devices // width) * width
    links = Fabric(((there.fabric.levels[0][0], width), (plan.cluster.link, max(whole, width))))
    return replace(source, first=0), replace(target, first=first), links


def _head(plan: Plan, model: str) -> Head:
    heads = plan.graph.model(model).heads
    return "lm" if "lm" in heads else "value"
