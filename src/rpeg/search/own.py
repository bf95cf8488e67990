"""The plan that a job gives layouts for: predicted as it is said, what is left open chosen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product

from rpeg.errors import InputError
from rpeg.ir import Graph, Kind, Stage
from rpeg.plan import Assignment, Devices, Host, Parallelism, Plan, check, lower
from rpeg.search.candidate import Baseline, Candidate
from rpeg.search.choices import divides
from rpeg.search.constructions import Construction
from rpeg.search.given import blocks, cut, sized
from rpeg.search.layouts import best_option, bundles_of, offload_at, pieces, sharded
from rpeg.search.placements import Placement, Sizes, placements, sizes_of
from rpeg.search.problem import Problem
from rpeg.search.structures import generators
from rpeg.sim import DeviceMemory, Draws, Memo, StageCosts, device_memory, estimate, ordered, stages_in
from rpeg.sim.hardware import check_layouts
from rpeg.sim.hardware.sites import site
from rpeg.sim.runnable import check_adapters, check_runnable
from rpeg.transforms.asynchrony import BoundedAsynchrony
from rpeg.units import GIB

NAME = "as the job says"

_DEGREES = (1, 2, 4, 8)
_ROUNDS = 3
"""In which layouts are chosen anew for what is missing with the ones before."""


def own_plan(problem: Problem, seed: int = 0) -> Baseline:
    """The fastest plan that has all that `problem.given` says, with no change of structure that is not asked for.

    Without a candidate where it cannot run or does not fit: the reason says what is wrong or how much is missing.
    """
    draws = Draws(problem.workload, seed)
    memo: Memo = {}
    found, refused = list[Candidate](), list[tuple[float, str]]()
    for construction in _constructions(problem):
        try:
            plan, short = _fitted(problem, construction)
            if short is not None:
                refused.append((short.short_bytes, lack(plan, short)))
                continue
            plan = check(ordered(plan, construction.shifts, StageCosts(plan, problem.facts, memo), draws))
        except InputError as error:
            refused.append((float("inf"), " ".join(str(error).split("\n")[-1].split())))
            continue
        found.append(Candidate(construction, plan, estimate(plan, problem.facts, memo=memo, draws=draws)))
    if not found:
        return Baseline(NAME, None, min(refused, key=lambda one: one[0])[1])
    return Baseline(NAME, min(found, key=lambda c: c.estimate.step.mean_seconds))


def check_given(problem: Problem) -> None:
    """Raises InputError where no plan could have the layouts or adapters that are given, whatever memory there is."""
    if problem.facts.lora is not None and problem.is_local:
        trained = (problem.facts.architectures[m.name] for m in problem.graph.models if m.trainable)
        check_adapters(problem.facts.lora.targets, trained)
    errors = list[InputError]()
    for construction in _constructions(problem) if problem.given else ():
        try:
            _assembled(problem, construction, next(iter(sizes_of(problem))), {})
        except InputError as error:
            errors.append(error)
        else:
            return
    if errors:
        raise errors[0]


def _constructions(problem: Problem) -> Iterator[Construction]:
    """Where stages go of which nothing is said: wherever good plans have them, or all where others are told to go."""
    construction = Construction(problem.graph, Placement(NAME, {}), problem.applied)
    for transform in _asynchrony(problem):
        graph, applied = transform.apply(construction.graph), (*construction.applied, transform)
        construction = replace(construction, graph=graph, applied=applied, staleness=transform.staleness)
    seen = set[tuple[tuple[str, tuple[int, ...]], ...]]()
    for free in _free_blocks(problem, construction.graph):
        found = _placed(problem, construction.graph, free)
        key = tuple(sorted(found.items()))
        if key not in seen:
            seen.add(key)
            yield replace(construction, placement=Placement(NAME, found))


def _asynchrony(problem: Problem) -> Iterator[BoundedAsynchrony]:
    wished = problem.permissions.wished_staleness
    for stage in generators(problem.graph) if wished else ():
        yield BoundedAsynchrony(stage.name, wished or 0, problem.permissions.freshness)


def _free_blocks(problem: Problem, graph: Graph) -> Iterator[Mapping[str, tuple[int, ...]]]:
    names = [stage.name for stage in graph.stages if stage.models]
    everything = tuple(range(len(problem.cluster)))
    told = _placed(problem, graph, dict.fromkeys(names, everything))
    used = {i for name, block in told.items() if problem.given.of(name).devices is not None for i in block}
    rest = tuple(i for i in everything if i not in used)
    for block in dict.fromkeys((everything, *((rest,) if rest else ()), *told.values())):
        yield dict.fromkeys(names, block)
    yield from (placement.blocks for placement in placements(problem))


def _placed(
    problem: Problem, graph: Graph, free: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """Blocks by stage; what only observes goes with its model's trainer."""
    stages = {stage.name: stage.kind for stage in graph.stages if stage.models}
    found = blocks(problem.given, stages, free, len(problem.cluster))
    for name in graph.observers() & stages.keys():
        trainer = graph.trainer(graph.stage(name).models[0])
        found[name] = found[trainer.name] if trainer else found[name]
    return found


def _fitted(problem: Problem, construction: Construction) -> tuple[Plan, DeviceMemory | None]:
    """With as little offloading as will do and the sizes that fit; else the nearest, and the device that is short."""
    nearest: tuple[Plan, DeviceMemory] | None = None
    for sizes in sizes_of(problem):
        taken: dict[str, float] = {}
        for _ in range(_ROUNDS):
            plan = _assembled(problem, construction, sizes, taken)
            short = _shortest(problem, plan)
            if not short.short_bytes:
                return plan, None
            if nearest is None or short.short_bytes < nearest[1].short_bytes:
                nearest = plan, short
            for name in stages_in(plan, short, short.peak.phase):
                taken[name] = taken.get(name, 0.0) + short.short_bytes
    assert nearest is not None
    return nearest


def _shortest(problem: Problem, plan: Plan) -> DeviceMemory:
    memory = device_memory(plan, lower(plan.graph, plan.assignments, plan.workload), problem.facts)
    return max(memory, key=lambda m: m.short_bytes)


def _assembled(
    problem: Problem, construction: Construction, sizes: Sizes, taken: Mapping[str, float]
) -> Plan:
    """Raises PlanError where a layout that is said does not divide its model, with both numbers."""
    problem = replace(problem, graph=construction.graph)
    assigned = _Chooser(problem, construction.placement.blocks, sizes, taken).assignments()
    applied = tuple(map(str, construction.applied))
    plan = Plan(problem.graph, problem.cluster, problem.workload, assigned, (), applied)
    if problem.is_local:
        check_runnable(plan, problem.facts.architectures)
    else:
        check_layouts(plan, problem.facts)
    return plan


@dataclass(frozen=True)
class _Chooser:
    """Assignments as they are said, and the fastest of what that leaves open.

    taken: bytes that a stage's devices have not got for it.
    """

    problem: Problem
    blocks: Mapping[str, tuple[int, ...]]
    sizes: Sizes
    taken: Mapping[str, float]

    def assignments(self) -> tuple[Assignment, ...]:
        """Of all stages, in their order; trainers are chosen first."""
        found: dict[str, Assignment] = {}
        for stage in sorted(self.problem.graph.stages, key=lambda s: s.kind is not Kind.TRAIN):
            found[stage.name] = self._assigned(stage, found)
        return tuple(found[stage.name] for stage in self.problem.graph.stages)

    def _assigned(self, stage: Stage, found: Mapping[str, Assignment]) -> Assignment:
        if not stage.models:
            return Assignment(stage.name, Host(0))
        wish, block = self.problem.given.of(stage.name), self.blocks[stage.name]
        trainer = self.problem.graph.trainer(stage.models[0])
        lender: Assignment | None = None  # whose layout is taken, to use its weights
        if stage.kind is Kind.INFERENCE and trainer is not None and not wish.cuts:
            lender = found[trainer.name] if self.blocks[trainer.name] == block else None
        if self.problem.is_local:
            return self._local(stage, block, lender)
        if lender is not None:
            return sized(wish, replace(lender, stage=stage.name, recompute="none", offload="none"))
        options = list(self._options(stage, block))
        if not options:
            raise InputError(self._no_layout(stage, block))
        try:
            best = best_option(self.problem, stage, iter(options), self.taken.get(stage.name, 0.0))
        except InputError:  # none divides the model: `check_layouts` says why
            best = options[0]
        return replace(best, bundles=bundles_of(best))

    def _local(self, stage: Stage, block: tuple[int, ...], lender: Assignment | None) -> Assignment:
        """Replicas on all devices of the block, unless they are told to be cut."""
        w, wish, generates = (
            self.problem.workload,
            self.problem.given.of(stage.name),
            stage.kind is Kind.GENERATE,
        )
        free = Parallelism(dp=len(block))
        layout = lender.parallelism if lender else cut(wish, free, len(block), generates=generates)
        if layout is None:
            raise InputError(self._no_layout(stage, block))
        updates = w.minibatches if stage.kind is Kind.TRAIN else 1
        most = self.sizes.slots if generates else self.sizes.microbatch
        share = -(-w.samples // (layout.dp * updates))
        return sized(wish, Assignment(stage.name, Devices(block), layout, min(share, most)))

    def _options(self, stage: Stage, block: tuple[int, ...]) -> Iterator[Assignment]:
        """Pipelines last."""
        problem, wish = self.problem, self.problem.given.of(stage.name)
        width = site(problem.cluster, Devices(block)).fabric.devices_per_node
        offload = offload_at(problem, dict(self.blocks), self.sizes.level, stage)
        tried = set[Parallelism]()
        pps = (wish.pp,) if wish.pp else _DEGREES
        tps = (wish.tp,) if wish.tp else tuple(degree for degree in _DEGREES if degree <= width)
        for pp, tp in product(pps, tps):
            if pp * tp <= len(block):
                for free in sharded(problem, stage, len(block), width, tp, pp):
                    layout = cut(wish, free, len(block), generates=stage.kind is Kind.GENERATE)
                    if layout is None or layout in tried or not divides(problem, stage, layout):
                        continue
                    tried.add(layout)
                    for size, recompute in pieces(problem, stage, layout):
                        option = Assignment(stage.name, Devices(block), layout, size, recompute=recompute)
                        yield sized(wish, replace(option, offload=offload))

    def _no_layout(self, stage: Stage, block: tuple[int, ...]) -> str:
        w, wish = self.problem.workload, self.problem.given.of(stage.name)
        degrees = [key for key in ("dp", "tp", "pp", "cp") if getattr(wish, key) is not None]
        said = " × ".join(f"{key} {getattr(wish, key)}" for key in degrees)
        return (
            f"stage {stage.name}: {said or 'no layout'} on {len(block)} devices does not divide them and {w.samples} "
            f"samples in {w.minibatches} minibatches; change the degrees or the number of devices"
        )


def lack(plan: Plan, short: DeviceMemory) -> str:
    """What a plan is short of on a device or host, in GiB, and in which phase."""
    phase = short.peak.phase
    return (
        f"does not fit: {short.name} lacks {short.short_bytes / GIB:.1f} GiB in phase {phase} of "
        f"{', '.join(stages_in(plan, short, phase))} ({short.peak.bytes / GIB:.1f} needed, "
        f"{short.capacity_bytes / GIB:.1f} there)"
    )
