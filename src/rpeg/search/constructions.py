"""Good plans by construction: placements × streaming × bounded asynchrony with its shifts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from rpeg.errors import GraphError, InputError
from rpeg.ir import Graph, Kind, Scope
from rpeg.plan import Plan, check
from rpeg.search.placements import Placement, Sizes, assignments, placements
from rpeg.search.problem import Problem
from rpeg.sim import Draws, Memo, StageCosts, ordered
from rpeg.sim.hardware import check_layouts
from rpeg.transforms import Transform
from rpeg.transforms.asynchrony import BoundedAsynchrony
from rpeg.transforms.streaming import Streaming

# A generator's samples leave in so many parts, where parts can be worked on elsewhere meanwhile.
PARTS = (2, 4, 8)


@dataclass(frozen=True)
class Construction:
    """What a plan is built from. parts: the size of the parts that samples leave generation in, "" for the whole.
    migrates: so many responses are finished on one replica."""

    graph: Graph
    placement: Placement
    applied: tuple[Transform, ...] = ()
    staleness: int = 0
    parts: str = ""
    migrates: int = 0

    @property
    def name(self) -> str:
        """What it is, in words."""
        stale = f", staleness {self.staleness}" if self.staleness else ""
        streamed = f", streamed by {self.parts}" if self.parts else ""
        return (
            self.placement.name + stale + streamed + (f", {self.migrates} migrate" if self.migrates else "")
        )

    @property
    def shifts(self) -> Mapping[str, int]:
        """0 for generation and what can go with it; the rest works on the step before, where weights may be older."""
        if not self.staleness:
            return {}
        early = _with_generation(self.graph, self.placement)
        return {s.name: 0 if s.name in early else 1 for s in self.graph.stages}


def constructions(problem: Problem) -> Iterator[Construction]:
    """All that are worth an estimate, simplest first; asynchronous ones only as far as the job permits."""
    for placement in placements(problem):
        for staleness in problem.permissions.choices:
            apart = placement.generates_apart(problem.graph)
            if staleness and not apart and problem.permissions.wished_staleness is None:
                continue  # nothing could overlap
            yield from _streamed(problem, with_staleness(problem, placement, staleness), apart)


def unordered(
    problem: Problem,
    construction: Construction,
    sizes: Sizes | None = None,
) -> Plan:
    """The plan without lane orders: enough to know its memory."""
    own = replace(problem, graph=construction.graph)
    assigned = assignments(own, construction.placement, sizes or Sizes(problem.microbatch))
    applied = tuple(map(str, construction.applied))
    return Plan(construction.graph, problem.cluster, problem.workload, assigned, (), applied)


def build(
    problem: Problem,
    construction: Construction,
    memo: Memo | None = None,
    draws: Draws | None = None,
    sizes: Sizes | None = None,
) -> Plan:
    """The plan, with derived lane orders, that passes `check`. Raises PlanError where it cannot be run."""
    bare = unordered(problem, construction, sizes)
    if not problem.is_local:
        check_layouts(bare, problem.facts)
    return check(ordered(bare, construction.shifts, StageCosts(bare, problem.facts, memo), draws))


def ancestors(graph: Graph, stages: frozenset[str]) -> frozenset[str]:
    """These stages and all that they need within a step."""
    found = set(stages)
    for stage in reversed(graph.order()):
        if any(edge.delay == 0 and edge.dst in found for edge in graph.out_of(stage.name)):
            found.add(stage.name)
    return frozenset(found)


def _with_generation(graph: Graph, placement: Placement) -> frozenset[str]:
    """Generators, what they need, and what can follow them at once: assessment by frozen models on their devices."""
    generators = _generators(graph)
    devices = {placement.blocks[name] for name in generators}
    early = set(ancestors(graph, generators)) | graph.rounds
    for stage in graph.order():
        follows = {edge.src for edge in graph.data_into(stage.name)} <= early
        frozen = bool(stage.models) and all(graph.trainer(model) is None for model in stage.models)
        if follows and frozen and placement.blocks[stage.name] in devices:
            early.add(stage.name)
    return frozenset(early)


def _generators(graph: Graph) -> frozenset[str]:
    return frozenset(s.name for s in graph.stages if s.kind is Kind.GENERATE) - graph.observers()


def with_staleness(problem: Problem, placement: Placement, staleness: int) -> Construction:
    """Every generator with weights that may be so many publications old; 0: the graph as it is."""
    construction = Construction(problem.graph, placement, problem.applied)
    if not staleness:
        return construction
    for stage in sorted(_generators(problem.graph)):
        transform = BoundedAsynchrony(stage, staleness, problem.permissions.freshness)
        construction = transformed(construction, transform)
    return replace(construction, staleness=staleness)


def _streamed(problem: Problem, construction: Construction, apart: bool) -> Iterator[Construction]:
    yield construction
    choices = PARTS if problem.is_local else PARTS[1:2]
    for parts in choices if apart else PARTS[:1]:
        made = in_parts(problem, construction, parts)
        if made is not None:
            yield made


def in_parts(problem: Problem, construction: Construction, parts: int) -> Construction | None:
    """Samples leave each generator in so many parts; None where no stage can work on those."""
    transform = _stream(problem, construction.placement, parts)
    if transform is None:
        return None
    try:
        return replace(transformed(construction, transform), parts=f"{transform.chunk} {transform.unit}s")
    except GraphError:
        return None


def _stream(problem: Problem, placement: Placement, parts: int) -> Streaming | None:
    """Parts of whole groups where group statistics can then stream too, of samples else; None for too few samples."""
    w = problem.workload
    generator = min(_generators(problem.graph))
    prompts = w.prompts // _generating(problem, placement, generator)
    if _has_group_scope(problem.graph):
        return Streaming(prompts // parts, "group") if prompts >= parts else None
    samples = prompts * w.samples_per_prompt
    return Streaming(samples // parts, "sample") if samples >= parts else None


def _generating(problem: Problem, placement: Placement, generator: str) -> int:
    """Items that share a step's prompts: on described hardware a replica, or bundle of replicas, has several devices."""
    if problem.is_local:
        return len(placement.blocks[generator])
    try:
        assigned = assignments(problem, placement, Sizes(problem.microbatch))
    except InputError:  # no layout divides this placement: what leaves it out says why
        return problem.workload.prompts
    return next(a.replicas(Kind.GENERATE) for a in assigned if a.stage == generator)


def _has_group_scope(graph: Graph) -> bool:
    return any(op.scope is Scope.GROUP for s in graph.stages if s.kind is not Kind.TRAIN for op in s.ops)


def transformed(construction: Construction, transform: Transform) -> Construction:
    """One transform more. Raises GraphError where it cannot be had."""
    return replace(
        construction,
        graph=transform.apply(construction.graph),
        applied=(*construction.applied, transform),
    )
