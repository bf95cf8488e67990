"""`Alternative`: a layout of a stage on a block of described hardware, what it needs and what it takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import cast

from rpeg import cost
from rpeg.architecture import Architecture, Head
from rpeg.cluster import Cluster
from rpeg.cost import Execution, Sequences
from rpeg.cost.generating import Policy
from rpeg.cost.memory import cache_room
from rpeg.errors import InputError
from rpeg.ir import Kind, Stage
from rpeg.plan import Assignment, Devices, Parallelism
from rpeg.search.problem import Problem
from rpeg.sim.hardware.layouts import execution_of, mean_tokens, software_of
from rpeg.sim.hardware.memory import update_batch
from rpeg.sim.hardware.sites import site
from rpeg.workload import Workload

# Responses that an engine's replica holds at once; tokens of a micro-batch: more hardly use a device better.
_ROWS, _TOKENS = 256, (16384, 4096)


@dataclass(frozen=True)
class Alternative:
    """assignment: on the first devices of their kind; on any others like them it needs and takes the same.

    need_bytes: of the fullest device, were the stage alone there.
    """

    problem: Problem
    stage: Stage
    assignment: Assignment
    need_bytes: float

    @cached_property
    def capacity_bytes(self) -> float:
        """Of each device."""
        assert isinstance(self.assignment.block, Devices)
        return float(site(self.problem.cluster, self.assignment.block).kind.usable_memory_bytes)

    @cached_property
    def seconds(self) -> float:
        """Of one drawn step."""
        return _seconds(self.problem, self.stage, self.assignment)


def alternatives(problem: Problem, stage: Stage, block: tuple[int, ...]) -> Iterable[Alternative]:
    """Of a stage with a model, those that can run: those that use the fewest devices a replica first."""
    kind = problem.cluster.device(block[0]).kind.name
    heads = tuple(problem.graph.model(model).heads for model in stage.models)
    return _known(problem.cluster, Key(problem), stage, heads, kind, len(block))


class Key:
    """A problem as a key of a cache: by identity, as its mappings cannot be hashed."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._key = (
            id(problem.facts.architectures),
            problem.workload,
            problem.microbatch,
            problem.facts.trainer,
        )

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self._key == other._key


class _Kept:
    """What an iterator gives, kept: gone on with only as far as somebody asks."""

    def __init__(self, left: Iterator[Alternative]) -> None:
        self._left, self._kept = left, list[Alternative]()

    def __iter__(self) -> Iterator[Alternative]:
        at = 0
        while True:
            if at == len(self._kept):
                more = next(self._left, None)
                if more is None:
                    return
                self._kept.append(more)
            yield self._kept[at]
            at += 1


@lru_cache(maxsize=512)
def _known(
    cluster: Cluster, key: Key, stage: Stage, heads: tuple[tuple[str, ...], ...], kind: str, devices: int
) -> _Kept:
    """heads: of the stage's models, which are all that it has of the graph."""
    block = tuple(_ids(cluster, kind))[:devices]
    return _Kept(_made(replace(key.problem, cluster=cluster), stage, block))


def _ids(cluster: Cluster, kind: str) -> Iterator[int]:
    """Of the devices of a kind."""
    for number, node in enumerate(cluster.nodes):
        if node.kind.name == kind:
            yield from cluster.devices_of(number)


def _made(problem: Problem, stage: Stage, block: tuple[int, ...]) -> Iterator[Alternative]:
    for option in _options(problem, stage, block):
        try:
            need = _need(problem, stage, option)
        except InputError:
            continue
        yield Alternative(problem, stage, option, need)


def _options(problem: Problem, stage: Stage, block: tuple[int, ...]) -> Iterator[Assignment]:
    """Layouts that divide the model, the block and the batch, those that use the fewest devices a replica first."""
    architectures = [problem.facts.architectures[model] for model in stage.models]
    width = site(problem.cluster, Devices(block)).fabric.devices_per_node
    for tp, pp in _degrees(architectures, len(block), width):
        for layout in _sharded(problem, stage, len(block), width, tp, pp):
            if _divides(problem, stage, layout):
                for microbatch, recompute in _pieces(problem, stage, layout):
                    yield Assignment(stage.name, Devices(block), layout, microbatch, recompute=recompute)


def _degrees(architectures: Iterable[Architecture], devices: int, width: int) -> Iterator[tuple[int, int]]:
    """(tp, pp): tp up to a node, then pipelines of nodes."""
    models = tuple(architectures)
    legal = [
        tp
        for tp in (1, 2, 4, 8)
        if tp <= width and devices % tp == 0 and all(_cuts(model, tp) for model in models)
    ] or [1]
    yield from ((tp, 1) for tp in legal)
    pp = 2
    while legal[-1] * pp <= devices:
        if devices % (legal[-1] * pp) == 0 and all(model.layers % pp == 0 for model in models):
            yield legal[-1], pp
        pp *= 2


def _cuts(model: Architecture, tp: int) -> bool:
    kv = model.latent is not None or model.kv_heads % tp == 0 or tp % model.kv_heads == 0
    return model.heads % tp == 0 and kv


def _sharded(
    problem: Problem, stage: Stage, devices: int, width: int, tp: int, pp: int
) -> Iterator[Parallelism]:
    """Whole replicas and ZeRO, within nodes and over all, as the stage's stack does it."""
    dp = devices // (tp * pp)
    plain = Parallelism(dp=dp, tp=tp, pp=pp, sequence_parallel=tp > 1 and stage.kind is not Kind.GENERATE)
    if stage.kind is not Kind.TRAIN:
        yield plain
    if stage.kind is Kind.GENERATE or dp == 1:
        if stage.kind is Kind.TRAIN:
            yield plain
        return
    if problem.facts.trainer == "megatron":
        if stage.kind is Kind.TRAIN:
            yield replace(plain, zero=1)
        return
    yield replace(plain, zero=3)
    for shard in (width // tp, 8 * width // tp):
        if 1 < shard < dp and dp % shard == 0 and stage.kind is Kind.TRAIN:
            yield replace(plain, zero=3, shard=shard)


def _divides(problem: Problem, stage: Stage, layout: Parallelism) -> bool:
    w = problem.workload
    if stage.kind is Kind.TRAIN:
        return (w.samples // w.minibatches) % layout.dp == 0
    return layout.dp <= (w.prompts if stage.kind is Kind.GENERATE else w.samples)


def _pieces(problem: Problem, stage: Stage, layout: Parallelism) -> Iterator[tuple[int, str]]:
    """(micro-batch, recompute)."""
    w = problem.workload
    if stage.kind is Kind.GENERATE:
        yield min(_ROWS, -(-w.samples // layout.dp)), "none"
        return
    updates = w.minibatches if stage.kind is Kind.TRAIN else 1
    most = max(1, min(problem.microbatch, -(-w.samples // (updates * layout.dp))))
    sizes = sorted({max(1, min(most, tokens // mean_tokens(w))) for tokens in _TOKENS}, reverse=True)
    for recompute in ("none", "full") if stage.kind is Kind.TRAIN else ("none",):
        yield from ((size, recompute) for size in sizes)


def _need(problem: Problem, stage: Stage, option: Assignment) -> float:
    """Bytes of the fullest device, were the stage alone there. Raises InputError where the layout cannot run."""
    w, facts = problem.workload, problem.facts
    assert isinstance(option.block, Devices)
    machine = site(problem.cluster, option.block).machine(software_of(facts, stage))
    need = 0.0
    for model in stage.models:
        architecture, heads = facts.architectures[model], problem.graph.model(model).heads
        execution = execution_of(w, facts, stage, option, trained=stage.kind is Kind.TRAIN)
        if stage.kind is Kind.GENERATE:
            rows = option.microbatch
            found = cost.generate_memory(architecture, execution, machine, rows=1, context=w.longest)
            room = cache_room(architecture, execution, machine, rows=rows)
            need = max(need, found.peak.device_bytes, 0.0 if room else float("inf"))
        else:
            measure = cost.train_memory if stage.kind is Kind.TRAIN else cost.infer_memory
            found = measure(architecture, update_batch(w), execution, machine, heads=heads)
            need += found.peak.device_bytes
    return need


def _seconds(problem: Problem, stage: Stage, option: Assignment) -> float:
    """Of one drawn step."""
    w, facts = problem.workload, problem.facts
    assert isinstance(option.block, Devices)
    machine = site(problem.cluster, option.block).machine(software_of(facts, stage))
    execution = execution_of(w, facts, stage, option, trained=stage.kind is Kind.TRAIN)
    total = 0.0
    for model in stage.models:
        architecture = facts.architectures[model]
        heads = cast("tuple[Head, ...]", problem.graph.model(model).heads)
        if stage.kind is Kind.GENERATE:
            total += _generation(architecture, w, execution, machine)
            continue
        sequences = _drawn(w)
        if stage.kind is Kind.TRAIN:
            total += cost.train_stage(
                architecture, sequences, execution, machine, updates=w.minibatches, heads=heads
            ).seconds
        else:
            total += cost.infer_stage(architecture, sequences, execution, machine, heads=heads).seconds
    return total


@lru_cache(maxsize=16)
def _drawn(workload: Workload) -> Sequences:
    return Sequences.of(*workload.draw(0, 0))


@lru_cache(maxsize=1024)
def _generation(
    architecture: Architecture, w: Workload, execution: Execution, machine: cost.Machine
) -> float:
    found = cost.generate_stage(
        architecture,
        *w.draw(0, 0),
        execution,
        machine,
        samples_per_prompt=w.samples_per_prompt,
        policy=Policy(max_rows=execution.microbatch),
    )
    return found.seconds
