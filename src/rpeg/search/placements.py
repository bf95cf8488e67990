"""Good placements of a graph's stages on a cluster: who runs where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from rpeg.cluster import DeviceKind
from rpeg.ir import Graph, Kind, Stage
from rpeg.plan import Assignment, Devices, Host, Parallelism
from rpeg.search.layouts import OFFLOADS, Blocks, Degrees, layouts
from rpeg.search.problem import Problem

# Most responses that a generator holds at once; more of them hardly decode faster and cost memory.
MOST_SLOTS = 256

Block = tuple[int, ...]
GENERATION = "<generation>"  # no stage can be called so


@dataclass(frozen=True)
class Placement:
    """Blocks by stage, for stages that call models. zero: of trainers and of assessment on several devices.

    degrees: (tp, pp) by stage, on described hardware; stages without them have the layout that suits them best.
    """

    name: str
    blocks: Mapping[str, tuple[int, ...]]
    zero: int = 0
    degrees: Mapping[str, Degrees] = field(default_factory=dict)

    def with_degrees(self, degrees: Mapping[str, Degrees], words: str) -> Placement:
        """The same blocks with layouts that are not free."""
        return replace(self, name=f"{self.name}, {words}", degrees={**self.degrees, **degrees})

    def generates_apart(self, graph: Graph) -> bool:
        """Whether some stage that uses what is generated runs on a device that does not generate."""
        users = (s for s in graph.stages if s.kind in (Kind.INFERENCE, Kind.TRAIN))
        return any(set(self._block(graph, s)) - self._generators(graph) for s in users)

    def assesses_where_it_generates(self, graph: Graph) -> bool:
        """Whether a device that generates also scores."""
        scoring = (s for s in graph.stages if s.kind is Kind.INFERENCE)
        return any(set(self._block(graph, s)) & self._generators(graph) for s in scoring)

    def _generators(self, graph: Graph) -> set[int]:
        return {i for s in graph.stages if s.kind is Kind.GENERATE for i in self._block(graph, s)}

    def _block(self, graph: Graph, stage: Stage) -> tuple[int, ...]:
        return () if stage.name in graph.observers() else self.blocks[stage.name]


@dataclass(frozen=True)
class Sizes:
    """microbatch: most samples a forward. slots: most responses held by a generator. level: of offloading."""

    microbatch: int
    slots: int = MOST_SLOTS
    level: int = 0


def placements(problem: Problem) -> Iterator[Placement]:
    """Distinct ones, simplest first. Devices of one kind are interchangeable: mirrored ones are not repeated."""
    seen: set[tuple[object, ...]] = set()
    made = hardware_placements(problem) if not problem.is_local else _local_placements(problem)
    for placement in made:
        key = (tuple(sorted(placement.blocks.items())), placement.zero)
        if key not in seen:
            seen.add(key)
            yield placement


def _local_placements(problem: Problem) -> Iterator[Placement]:
    yield from (*_colocated(problem), *_splits(problem), *trainers_apart(problem))


def hardware_placements(problem: Problem) -> Iterator[Placement]:
    """On described hardware: of each kind alone, cut at nodes; of two kinds, generation on either."""
    for words, block in whole(problem):
        yield placed(problem, f"colocated{words}", block)
        yield from _splits(problem, block, words)
        yield from trainers_apart(problem, block, words)
    yield from _kinds_apart(problem)


def whole(problem: Problem) -> Iterator[tuple[str, Block]]:
    """(words, all devices of a kind): stages do not mix kinds. The words are empty where there is one kind."""
    found = _by_kind(problem)
    yield from ((f" on {kind.name}" if len(found) > 1 else "", block) for kind, block in found.items())


def splits(problem: Problem) -> Iterator[Placement]:
    """Generation and training on devices of their own, assessment on either side."""
    for words, block in whole(problem):
        yield from _splits(problem, block, words)
    yield from _kinds_apart(problem)


def _kinds_apart(problem: Problem) -> Iterator[Placement]:
    for first, one in _by_kind(problem).items():
        for second, other in _by_kind(problem).items():
            if first != second:
                yield from _split(problem, one, other, f"generate on {first.name}, train on {second.name}")


def _by_kind(problem: Problem) -> dict[DeviceKind, Block]:
    cluster = problem.cluster
    return {
        kind: tuple(
            i for n, node in enumerate(cluster.nodes) if node.kind == kind for i in cluster.devices_of(n)
        )
        for kind in cluster.kinds
    }


def assignments(problem: Problem, placement: Placement, sizes: Sizes) -> tuple[Assignment, ...]:
    """Every stage with its block; on described hardware with a layout that suits it."""
    if not problem.is_local:
        blocks = tuple(sorted(placement.blocks.items()))
        return layouts(problem, Blocks(blocks, sizes.level, tuple(sorted(placement.degrees.items()))))
    return tuple(
        _assignment(problem, placement, stage, sizes.microbatch, sizes.slots)
        for stage in problem.graph.stages
    )


def sizes_of(problem: Problem) -> Iterator[Sizes]:
    """From what is fastest to what needs least memory: halved together down to 1; on described hardware the levels
    of offloading, as layouts choose their own micro-batches."""
    if not problem.is_local:
        yield from (Sizes(problem.microbatch, MOST_SLOTS, level) for level in range(OFFLOADS))
        return
    microbatch, slots = problem.microbatch, min(MOST_SLOTS, problem.workload.samples)
    while True:
        yield Sizes(microbatch, slots)
        if microbatch == slots == 1:
            return
        microbatch, slots = max(1, microbatch // 2), max(1, slots // 2)


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
    yield placed(problem, "colocated", everything)
    if len(everything) > 1:
        yield placed(problem, "colocated, sharded", everything, zero=3)
        yield placed(problem, "one device", everything[:1])


def _splits(problem: Problem, block: Block | None = None, words: str = "") -> Iterator[Placement]:
    """Generation on the first devices, training on the others; assessment on either side."""
    block = tuple(range(len(problem.cluster))) if block is None else block
    count = len(block)
    for cut in _cuts(count, node_width(problem, block)):
        name = "split" if count == 2 else f"split {cut}+{count - cut}"
        yield from _split(problem, block[:cut], block[cut:], name + words)


def _split(problem: Problem, first: Block, rest: Block, name: str) -> Iterator[Placement]:
    graph = problem.graph
    assessing = [s for s in graph.stages if s.kind is Kind.INFERENCE]
    frozen = [s.name for s in assessing if all(graph.trainer(m) is None for m in s.models)]
    yield placed(problem, name, rest, {GENERATION: first})
    if frozen:
        beside = dict.fromkeys(frozen, first)
        words = f"{name}, {' and '.join(frozen)} with generate"
        yield placed(problem, words, rest, {GENERATION: first, **beside})
    everyone = {s.name: first for s in assessing}
    if everyone:
        yield placed(problem, f"{name}, assess with generate", rest, {GENERATION: first, **everyone})


def trainers_apart(problem: Problem, block: Block | None = None, words: str = "") -> Iterator[Placement]:
    """Each trainer on devices of its own, with the assessment by its model; generation beside the first or everywhere.

    Devices of described hardware are shared out by the parameters that are trained, in whole nodes.
    """
    graph = problem.graph
    block = tuple(range(len(problem.cluster))) if block is None else block
    trainers = [s for s in graph.stages if s.kind is Kind.TRAIN]
    if len(trainers) < 2 or len(block) < 2:
        return
    cut = _cut_by_size(problem, block, trainers)
    first, second = block[:cut], block[cut:]
    blocks = {trainers[0].name: first, **{s.name: second for s in trainers[1:]}}
    own = {model: blocks[s.name] for s in trainers for model in s.models}
    for stage in graph.stages:
        if stage.kind is Kind.INFERENCE:
            blocks[stage.name] = own.get(stage.models[0], second)
    everywhere = (*first, *second)
    yield placed(problem, f"apart, generate on all{words}", everywhere, blocks)
    yield placed(problem, f"apart, generate with {trainers[0].models[0]}{words}", first, blocks)
    yield placed(problem, f"apart, generate with {trainers[1].models[0]}{words}", second, blocks)


def _cuts(count: int, width: int = 1) -> tuple[int, ...]:
    """How many of the devices generate: all cuts of a few devices (nodes), quarters of many; whole nodes."""
    nodes = count // width
    if nodes <= 1 and width > 1:  # a part of one node
        return _cuts(count)
    if nodes <= 4:
        return tuple(width * cut for cut in range(1, nodes))
    return tuple(sorted({width * max(1, nodes * quarter // 4) for quarter in (1, 2, 3)}))


def node_width(problem: Problem, block: Block) -> int:
    """Devices that a cut keeps together: a node's on described hardware."""
    return 1 if problem.is_local else problem.cluster.nodes[problem.cluster.node_of(block[0])].devices


def _cut_by_size(problem: Problem, block: Block, trainers: list[Stage]) -> int:
    if problem.is_local:
        return len(block) // 2
    sizes = [sum(problem.facts.architectures[m].parameters() for m in s.models) for s in trainers]
    width = node_width(problem, block) if len(block) > node_width(problem, block) else 1
    nodes, w = len(block) // width, problem.workload
    samples = w.samples // w.minibatches
    legal = [n for n in range(1, nodes) if samples % n == 0 and samples % (nodes - n) == 0] or [
        max(1, nodes // 2)
    ]
    return width * min(legal, key=lambda n: abs(n - nodes * sizes[0] / sum(sizes)))


def placed(
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
