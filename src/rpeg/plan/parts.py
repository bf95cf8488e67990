"""Base parts: the finest pieces in which a step's samples leave their generators."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from math import gcd

from rpeg.errors import PlanError
from rpeg.ir import Chunk, Graph, Kind, Stage, Unit
from rpeg.plan.assignment import Assignment
from rpeg.plan.members import prompts_of_part, prompts_of_round
from rpeg.workload import Workload


@dataclass(frozen=True, slots=True)
class BasePart:
    """`samples` responses of one item of a generator: the `position`-th that leaves it.

    item: which part of the replica's batch, where the generator is split or works in rounds; 1 for what migrates to it.
    What a selector accepts of a round is such a part too, of at most so many samples.
    """

    stage: str
    replica: int
    position: int
    samples: int
    item: int = 0


def stream_chunks(graph: Graph, stage: str) -> frozenset[Chunk]:
    """The parts in which a stage's samples flow on. Minibatches are none: they are drawn from all of a step."""
    chunks = (edge.chunk for edge in graph.out_of(stage) if edge.chunk is not None)
    return frozenset(chunk for chunk in chunks if chunk.unit is not Unit.MINIBATCH)


def base_parts(graph: Graph, by_stage: Mapping[str, Assignment], workload: Workload) -> Iterator[BasePart]:
    """Of all generators and the selector, by place in the stream. Raises PlanError where one streams in two units."""
    for stage in graph.stages:
        if stage == graph.selector:
            yield from (BasePart(stage.name, 0, 0, workload.samples, i) for i in range(workload.rounds))
        if stage.kind is not Kind.GENERATE or not graph.out_of(stage.name):
            continue
        size = _size(graph, stage.name, workload)
        replicas = by_stage[stage.name].replicas(stage.kind)
        found = [
            p
            for r in range(replicas)
            for item, prompts in enumerate(prompts_of_items(graph, stage, r, replicas, workload))
            for p in _of_item(
                stage,
                r,
                item,
                len(prompts) * workload.samples_per_prompt - stage.migrates // replicas,
                size,
            )
        ]
        found += _of_item(stage, 0, 1, stage.migrates, size)
        # Replicas advance together, so parts merge by their place in the stream.
        yield from sorted(found, key=lambda p: (p.item, p.position, p.replica))


def merge(
    graph: Graph, parts: tuple[BasePart, ...], generators: Collection[str], count: int
) -> list[tuple[int, ...]]:
    """Base parts of each item's stream merged to chunks of `count` units, ordered by when they are complete."""
    merged: list[tuple[int, ...]] = []
    for stream in dict.fromkeys((p.stage, p.replica, p.item) for p in parts if p.stage in generators):
        own = [i for i, p in enumerate(parts) if (p.stage, p.replica, p.item) == stream]
        size = count // gcd(*(chunk.count for chunk in stream_chunks(graph, stream[0])))
        merged += [tuple(own[s : s + size]) for s in range(0, len(own), size)]
    return sorted(merged, key=lambda covered: covered[-1])


def prompts_of_items(
    graph: Graph, stage: Stage, replica: int, replicas: int, workload: Workload
) -> tuple[range, ...]:
    """The prompts, by index in the step, of each item of one replica of a generator: its parts, or its rounds."""
    if stage.name in graph.rounds:
        return tuple(prompts_of_round(workload, replica, replicas, i) for i in range(workload.rounds))
    return tuple(
        prompts_of_part(workload.prompts, replica, replicas, i, stage.parts) for i in range(stage.parts)
    )


def _of_item(stage: Stage, replica: int, item: int, samples: int, size: int | None) -> Iterator[BasePart]:
    each = size or samples
    for position, start in enumerate(range(0, samples, each) if samples else ()):
        yield BasePart(stage.name, replica, position, min(each, samples - start), item)


def _size(graph: Graph, stage: str, workload: Workload) -> int | None:
    """Samples of a base part; None where all leave at once."""
    chunks = stream_chunks(graph, stage)
    units = {chunk.unit for chunk in chunks}
    if len(units) > 1:
        raise PlanError(f"stage {stage} streams in {' and '.join(sorted(units))} at once; choose one unit")
    if not chunks:
        return None
    each = workload.samples_per_prompt if units == {Unit.GROUP} else 1
    return gcd(*(chunk.count for chunk in chunks)) * each
