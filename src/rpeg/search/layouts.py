"""Sensible layouts of stages on blocks of described hardware: what fits, and of that the fastest.

Tensor parallelism stays within a node and pipelines are taken only where nothing else fits; ZeRO shards the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from rpeg.architecture import Architecture
from rpeg.cluster import Cluster
from rpeg.errors import InputError
from rpeg.ir import Graph, Kind, Stage
from rpeg.plan import Assignment, Devices, Host, Parallelism, Plan, without_items
from rpeg.search import choices
from rpeg.search.alternatives import Alternative, Key, alternative
from rpeg.search.problem import Problem
from rpeg.sim.hardware.memory import tenant_of, uses
from rpeg.sim.hardware.sites import site

# Blocks of more devices are worked on in bundles, at most so many.
_SINGLE, _BUNDLES = 64, 8

# Rounds in which layouts are chosen anew for what the others leave.
_ROUNDS = 3

Degrees = tuple[int, int]
"""(tp, pp)."""

OFFLOADS = 4
"""Levels of offloading: engines that share their devices sleep; then frozen models leave, then optimizers, then all."""


@dataclass(frozen=True)
class Blocks:
    """Devices by stage, and how far models that share a device leave it between their runs.

    degrees: (tp, pp) of the stages whose layout is not free.
    """

    by_stage: tuple[tuple[str, tuple[int, ...]], ...]
    level: int = 0
    degrees: tuple[tuple[str, Degrees], ...] = ()


def layouts(problem: Problem, blocks: Blocks) -> tuple[Assignment, ...]:
    """An assignment of every stage, for the blocks given: chosen alone, then for what the others leave of a device.

    Where nothing fits the leanest is taken; the plan's memory says what is short.
    """
    return _layouts(problem.graph, problem.cluster, blocks, Key(problem))


@lru_cache(maxsize=256)
def _layouts(graph: Graph, cluster: Cluster, blocks: Blocks, key: Key) -> tuple[Assignment, ...]:
    problem = replace(key.problem, graph=graph, cluster=cluster)
    taken: dict[str, float] = {}
    chosen: tuple[Assignment, ...] = ()
    for _ in range(_ROUNDS):
        found: dict[str, Assignment] = {}
        for stage in sorted(graph.stages, key=lambda s: s.kind is not Kind.TRAIN):
            found[stage.name] = _assigned(problem, blocks, stage, found, taken)
        chosen = tuple(found[stage.name] for stage in graph.stages)
        now = _taken(problem, chosen)
        if all(size <= taken.get(name, 0.0) for name, size in now.items()):
            break
        taken = {name: max(size, taken.get(name, 0.0)) for name, size in now.items()}
    return chosen


def _assigned(
    problem: Problem,
    blocks: Blocks,
    stage: Stage,
    found: dict[str, Assignment],
    taken: dict[str, float],
) -> Assignment:
    if not stage.models:
        return Assignment(stage.name, Host(0))
    devices = dict(blocks.by_stage)
    block = devices[stage.name]
    offload = offload_at(problem, devices, blocks.level, stage)
    trainer = problem.graph.trainer(stage.models[0])
    scores = stage.kind is Kind.INFERENCE
    if scores and trainer is not None and devices[trainer.name] == block:
        own = found[trainer.name]  # the same layout: it uses the trainer's weights
        return replace(own, stage=stage.name, recompute="none", offload="none")
    options = _options(problem, stage, block, dict(blocks.degrees).get(stage.name))
    best = best_option(problem, stage, options, taken.get(stage.name, 0.0))
    return replace(best, offload=offload, bundles=bundles_of(best))


def offload_at(problem: Problem, devices: dict[str, tuple[int, ...]], level: int, stage: Stage) -> str:
    """What leaves the device between the stage's runs, where others want it meanwhile."""
    own = set(devices[stage.name])
    sharing = (name for name, ids in devices.items() if name != stage.name and not own.isdisjoint(ids))
    models = {m for name in sharing for m in problem.graph.stage(name).models}
    if stage.kind is Kind.GENERATE:
        return "all" if models else "none"
    if not models - set(stage.models):
        return "none"
    if stage.kind is Kind.TRAIN:
        return ("none", "none", "optimizer", "all")[level]
    frozen = all(problem.graph.trainer(model) is None for model in stage.models)
    return "all" if frozen and level >= 1 else "none"


def _options(
    problem: Problem, stage: Stage, block: tuple[int, ...], fixed: Degrees | None
) -> Iterator[Assignment]:
    """Layouts that divide the model, the block and the batch, those that use the fewest devices a replica first."""
    architectures = [problem.facts.architectures[model] for model in stage.models]
    width = site(problem.cluster, Devices(block)).fabric.devices_per_node
    for tp, pp in (fixed,) if fixed else degrees(architectures, len(block), width):
        for layout in sharded(problem, stage, len(block), width, tp, pp):
            if choices.divides(problem, stage, layout):
                for microbatch, recompute in pieces(problem, stage, layout):
                    yield Assignment(stage.name, Devices(block), layout, microbatch, recompute=recompute)


def degrees(architectures: Iterable[Architecture], devices: int, width: int) -> Iterator[Degrees]:
    """Tensor parallelism up to a node, then pipelines of nodes: what divides all these models."""
    models = tuple(architectures)
    legal = [
        tp
        for tp in (1, 2, 4, 8)
        if tp <= width and devices % tp == 0 and all(choices.cuts(model, tp) for model in models)
    ] or [1]
    yield from ((tp, 1) for tp in legal)
    pp = 2
    while legal[-1] * pp <= devices:
        if devices % (legal[-1] * pp) == 0 and all(model.layers % pp == 0 for model in models):
            yield legal[-1], pp
        pp *= 2


def sharded(
    problem: Problem, stage: Stage, devices: int, width: int, tp: int, pp: int
) -> Iterator[Parallelism]:
    """Whole replicas and ZeRO, within nodes and over all, as the stage's stack does it."""
    dp = devices // (tp * pp)
    plain = Parallelism(dp=dp, tp=tp, pp=pp, sequence_parallel=tp > 1 and stage.kind is not Kind.GENERATE)
    yield from choices.sharded(problem, stage, plain, width)


def pieces(problem: Problem, stage: Stage, layout: Parallelism) -> Iterator[tuple[int, str]]:
    """(micro-batch, recompute): sizes that use a device well, as far as the job and the batch allow them."""
    if stage.kind is Kind.GENERATE:
        yield min(choices.ROWS, -(-problem.workload.samples // layout.dp)), "none"
        return
    for recompute, sizes in choices.pieces(problem, stage, layout):
        yield from ((size, recompute) for size in sizes)


def best_option(
    problem: Problem, stage: Stage, options: Iterator[Assignment], taken_bytes: float
) -> Assignment:
    """The fastest of those that fit beside what others keep; pipelines only where nothing else does.

    Else the one that needs least.
    """
    fitting: list[Alternative] = []
    least: Alternative | None = None
    for option in options:
        if fitting and option.parallelism.pp > 1:
            break
        one = alternative(problem, stage, option)
        try:
            need = one.need_bytes
        except InputError:
            continue
        if need <= one.capacity_bytes - taken_bytes:
            fitting.append(one)
        if least is None or need < least.need_bytes:
            least = one
    if least is None:
        raise InputError(_no_layout(problem, stage))
    chosen = min(fitting, key=lambda one: one.seconds) if fitting else least
    return chosen.assignment


def _taken(problem: Problem, chosen: tuple[Assignment, ...]) -> dict[str, float]:
    """Bytes of a device of each stage that other tenants keep while it runs."""
    plan = Plan(problem.graph, problem.cluster, problem.workload, chosen)
    lowered = without_items(plan.graph, plan.assignments)
    blocks = {a.stage: set(a.block.ids) for a in chosen if isinstance(a.block, Devices)}
    found = {}
    for name, ids in blocks.items():
        beside = tuple(other for other, theirs in blocks.items() if not ids.isdisjoint(theirs))
        own = {tenant_of(lowered, name, model) for model in problem.graph.stage(name).models}
        resting = {u.tenant: u.rest_bytes for u in uses(plan, lowered, problem.facts, beside)}
        found[name] = sum(size for tenant, size in resting.items() if tenant not in own)
    return found


def bundles_of(assignment: Assignment) -> int:
    """How many: 0 for blocks whose devices are few; else the most equal bundles that are not too many."""
    assert isinstance(assignment.block, Devices)
    if len(assignment.block.ids) <= _SINGLE:
        return 0
    dp = assignment.parallelism.dp
    return max(n for n in range(1, _BUNDLES + 1) if dp % n == 0)


def _no_layout(problem: Problem, stage: Stage) -> str:
    w = problem.workload
    return (
        f"stage {stage.name}: no layout of these devices divides its model and {w.samples} samples in {w.minibatches} "
        f"minibatches; take a batch that is a multiple of the devices, or fewer devices"
    )
