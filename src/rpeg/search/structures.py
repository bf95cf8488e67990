"""Structures next to a structure: one transform more, or one less."""

from __future__ import annotations

from collections.abc import Iterator

from rpeg.ir import Graph, Kind, Stage, Unit
from rpeg.search.problem import Permissions, Problem
from rpeg.search.structure import Structure
from rpeg.transforms import Transform, transforms
from rpeg.transforms.asynchrony import BoundedAsynchrony
from rpeg.transforms.migration import Migration
from rpeg.transforms.splitting import Splitting
from rpeg.transforms.streaming import Streaming
from rpeg.workload import Workload

PARTS = (2, 4, 8)
"""Pieces that samples leave generation in: more only cost calls."""

MOST_STREAMS = 1


def neighbours(problem: Problem, structure: Structure) -> list[tuple[Transform, ...]]:
    """Chains of transforms that are permitted, each once, in an order that depends on nothing else."""
    return sorted(set(_chains(problem, structure)), key=lambda chain: list(map(str, chain)))


def _chains(problem: Problem, structure: Structure) -> Iterator[tuple[Transform, ...]]:
    applied = structure.applied
    for i in range(len(applied)):
        yield (*applied[:i], *applied[i + 1 :])
    for transform in candidates(structure.graph, problem.workload, problem.permissions):
        kept = tuple(t for t in applied if not _replaces(transform, t))
        yield (*kept, transform)


def candidates(graph: Graph, workload: Workload, permissions: Permissions) -> Iterator[Transform]:
    """Instances that could help: of all that a transform offers those in a few sizes."""
    for kind in transforms().values():
        if kind is Streaming:
            yield from _streams(graph, workload)
        elif kind is Splitting:
            continue  # a batch cut by prompts gives each part a tail of its own: streams are better on devices
        elif kind is Migration:
            continue  # needs replicas as items of their own, which leading plans alone have (`migrations`)
        elif kind is BoundedAsynchrony:
            yield from _asynchronous(graph, permissions)
        else:
            yield from (t for t in kind.candidates(graph) if permissions.permits(t))


def _replaces(new: Transform, old: Transform) -> bool:
    """Whether a transform takes the place of an earlier one."""
    if isinstance(new, Streaming) and isinstance(old, Streaming):
        return (new.unit == str(Unit.MINIBATCH)) == (old.unit == str(Unit.MINIBATCH))
    same = isinstance(new, BoundedAsynchrony) and isinstance(old, BoundedAsynchrony)
    return same and new.stage == old.stage  # type: ignore[attr-defined]


def _streams(graph: Graph, w: Workload) -> Iterator[Transform]:
    natural = Unit.GROUP if w.samples_per_prompt > 1 else Unit.SAMPLE
    for unit, count in ((Unit.SAMPLE, w.samples), (Unit.GROUP, w.prompts)):
        if unit is Unit.GROUP and w.samples_per_prompt == 1:
            continue
        for parts in PARTS if unit is natural else PARTS[1:2]:
            if count % parts == 0:
                stream = Streaming(count // parts, str(unit))
                if stream.applies(graph):
                    yield stream
    stream = Streaming(1, str(Unit.MINIBATCH))
    if w.epochs == 1 and w.minibatches > 1 and stream.applies(graph):
        yield stream


def _asynchronous(graph: Graph, permissions: Permissions) -> Iterator[Transform]:
    aside = graph.observers()
    for stage in graph.stages:
        if stage.kind not in (Kind.GENERATE, Kind.INFERENCE) or stage.name in aside:
            continue
        if not graph.weights_into(stage.name):
            continue
        for staleness in range(1, permissions.staleness + 1):
            transform = BoundedAsynchrony(stage.name, staleness, permissions.freshness)
            if transform.applies(graph) and permissions.permits(transform):
                yield transform


def generators(graph: Graph) -> list[Stage]:
    """That give the samples which are trained on."""
    aside = graph.observers()
    return [s for s in graph.stages if s.kind is Kind.GENERATE and s.name not in aside]


def early(graph: Graph) -> frozenset[str]:
    """Generators and all that they need within a step."""
    found = {s.name for s in generators(graph)}
    for stage in reversed(graph.order()):
        if any(edge.delay == 0 and edge.dst in found for edge in graph.out_of(stage.name)):
            found.add(stage.name)
    return frozenset(found)
