"""Good placements of a graph's stages on a cluster: who runs where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rpeg.ir import Graph, Kind, Stage
from rpeg.plan import Assignment, Devices, Host, Parallelism
from rpeg.search.problem import Problem

# Most responses that a generator holds at once; more of them hardly decode faster and cost memory.
MOST_SLOTS = 256

Block = tuple[int, ...]
GENERATION = "<generation>"  # no stage can be called so


@dataclass(frozen=True)
class Placement:
    """Blocks by stage, for stages that call models. zero: of trainers and of assessment on several devices."""

    name: str
    blocks: Mapping[str, tuple[int, ...]]
    zero: int = 0

    def generates_apart(self, graph: Graph) -> bool:
        """Whether some stage that uses what is generated runs on a device that does not generate."""
        busy = {i for s in graph.stages if s.kind is Kind.GENERATE for i in self._block(graph, s)}
        users = (s for s in graph.stages if s.kind in (Kind.INFERENCE, Kind.TRAIN))
        return any(set(self._block(graph, s)) - busy for s in users)

    def _block(self, graph: Graph, stage: Stage) -> tuple[int, ...]:
        return () if stage.name in graph.observers() else self.blocks[stage.name]


def placements(problem: Problem) -> Iterator[Placement]:
    """Distinct ones, simplest first. Devices of one kind are interchangeable: mirrored ones are not repeated."""
    seen: set[tuple[object, ...]] = set()
    for placement in (*_colocated(problem), *_splits(problem), *_trainers_apart(problem)):
        key = (tuple(sorted(placement.blocks.items())), placement.zero)
        if key not in seen:
            seen.add(key)
            yield placement


def assignments(
    problem: Problem, placement: Placement, microbatch: int, slots: int
) -> tuple[Assignment, ...]:
    """Every stage with its block. microbatch: most samples a forward; slots: most responses held by a generator."""
    return tuple(_assignment(problem, placement, stage, microbatch, slots) for stage in problem.graph.stages)


def _assignment(
    problem: Problem, placement: Placement, stage: Stage, microbatch: int, slots: int
) -> Assignment:
    if not stage.models:
        return Assignment(stage.name, Host(0))
    block = placement.blocks[stage.name]
    dp = len(block)
    if stage.kind is Kind.GENERATE:
        # Replicas of a generator run apart, so each holds the whole model.
        held = -(-problem.workload.samples // dp)
        return Assignment(stage.name, Devices(block), Parallelism(dp=dp), min(held, slots))
    zero = placement.zero if dp > 1 else 0
    own = -(
        -problem.workload.samples // (dp * (problem.workload.minibatches if stage.kind is Kind.TRAIN else 1))
    )
    return Assignment(stage.name, Devices(block), Parallelism(dp=dp, zero=zero), min(own, microbatch))


def _colocated(problem: Problem) -> Iterator[Placement]:
    everything = tuple(range(len(problem.cluster)))
    yield _placed(problem, "colocated", everything)
    if len(everything) > 1:
        yield _placed(problem, "colocated, sharded", everything, zero=3)
        yield _placed(problem, "one device", everything[:1])


def _splits(problem: Problem) -> Iterator[Placement]:
    """Generation on the first devices, training on the others; assessment on either side."""
    graph, count = problem.graph, len(problem.cluster)
    assessing = [s for s in graph.stages if s.kind is Kind.INFERENCE]
    frozen = [s.name for s in assessing if all(graph.trainer(m) is None for m in s.models)]
    for cut in _cuts(count):
        first, rest = tuple(range(cut)), tuple(range(cut, count))
        name = "split" if count == 2 else f"split {cut}+{count - cut}"
        yield _placed(problem, name, rest, {GENERATION: first})
        if frozen:
            beside = dict.fromkeys(frozen, first)
            words = f"{name}, {' and '.join(frozen)} with generate"
            yield _placed(problem, words, rest, {GENERATION: first, **beside})
        everyone = {s.name: first for s in assessing}
        if everyone:
            yield _placed(problem, f"{name}, assess with generate", rest, {GENERATION: first, **everyone})


def _trainers_apart(problem: Problem) -> Iterator[Placement]:
    """Each trainer on devices of its own, with the assessment by its model; generation beside the first or everywhere."""
    graph, count = problem.graph, len(problem.cluster)
    trainers = [s for s in graph.stages if s.kind is Kind.TRAIN]
    if len(trainers) < 2 or count < 2:
        return
    half = count // 2
    first, second = tuple(range(half)), tuple(range(half, count))
    blocks = {trainers[0].name: first, **{s.name: second for s in trainers[1:]}}
    own = {model: blocks[s.name] for s in trainers for model in s.models}
    for stage in graph.stages:
        if stage.kind is Kind.INFERENCE:
            blocks[stage.name] = own.get(stage.models[0], second)
    everywhere = (*first, *second)
    yield _placed(problem, "apart, generate on all", everywhere, blocks)
    yield _placed(problem, f"apart, generate with {trainers[0].models[0]}", first, blocks)
    yield _placed(problem, f"apart, generate with {trainers[1].models[0]}", second, blocks)


def _cuts(count: int) -> tuple[int, ...]:
    """How many of the devices generate: all cuts of a few devices, quarters of many."""
    if count <= 4:
        return tuple(range(1, count))
    return tuple(sorted({max(1, count * quarter // 4) for quarter in (1, 2, 3)}))


def _placed(
    problem: Problem, name: str, default: Block, blocks: Mapping[str, Block] | None = None, zero: int = 0
) -> Placement:
    """`blocks` by stage, and by `GENERATION` for every generator; observers go with their model's trainer."""
    graph, blocks = problem.graph, blocks or {}
    found: dict[str, tuple[int, ...]] = {}
    for stage in graph.stages:
        if stage.kind is Kind.GENERATE and stage.name not in graph.observers():
            found[stage.name] = blocks.get(GENERATION, default)
        elif stage.models and stage.name not in graph.observers():
            found[stage.name] = blocks.get(stage.name, default)
    for stage in graph.stages:
        if stage.models and stage.name in graph.observers():
            trainer = graph.trainer(stage.models[0])
            found[stage.name] = found[trainer.name] if trainer else default
    return Placement(name, found, zero)
