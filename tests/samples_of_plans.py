"""Small graphs, plans and costs that tests of the core share: nothing here depends on an algorithm or a cost model."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from rpeg.cluster import Cluster, local
from rpeg.ir import Call, Edge, Graph, Kind, Model, Op, Scope, Stage, verify
from rpeg.plan import (
    Assignment,
    Devices,
    Host,
    Item,
    ItemKind,
    Lane,
    Lowered,
    Parallelism,
    Plan,
    Slot,
    Turn,
    lower,
)
from rpeg.schedule import list_order
from rpeg.sim import Batch, Completions
from rpeg.transforms import Transform
from rpeg.workload import Lengths, Workload

TINY = "tiny"


def _weights(model: str, consumer: str, trainer: str) -> Edge:
    return Edge(trainer, consumer, f"weights:{model}", delay=1, initial="checkpoint")


def ppo(evaluate_every: int = 0) -> Graph:
    """PPO as one step: generation, reward, reference, old logprobs, values, advantages, actor and critic training."""
    stages = [
        _stage("generate", Kind.GENERATE, "actor", Scope.SAMPLE, (), ("rollouts",)),
        _stage("reward", Kind.HOST, None, Scope.SAMPLE, ("rollouts",), ("rewards",)),
        _stage("reference", Kind.INFERENCE, "reference", Scope.SAMPLE, ("rollouts",), ("ref_logprobs",)),
        _stage("old_logprobs", Kind.INFERENCE, "actor", Scope.SAMPLE, ("rollouts",), ("old_logprobs",)),
        _stage("values", Kind.INFERENCE, "critic", Scope.SAMPLE, ("rollouts",), ("values",)),
        _stage(
            "advantages",
            Kind.HOST,
            None,
            Scope.BATCH,
            ("rewards", "ref_logprobs", "old_logprobs", "values"),
            ("advantages", "returns"),
        ),
        _stage(
            "train_actor",
            Kind.TRAIN,
            "actor",
            Scope.MINIBATCH,
            ("rollouts", "old_logprobs", "advantages"),
            (),
        ),
        _stage("train_critic", Kind.TRAIN, "critic", Scope.MINIBATCH, ("rollouts", "values", "returns"), ()),
    ]
    if evaluate_every:
        evaluate = _stage("evaluate", Kind.GENERATE, "actor", Scope.SAMPLE, (), ("evaluation",))
        stages.append(replace(evaluate, every=evaluate_every))
    models = (
        Model("actor", TINY, True),
        Model("critic", TINY, True, ("value",)),
        Model("reference", TINY, False),
    )
    return _graph("ppo", models, stages)


def grpo() -> Graph:
    """GRPO with a reference: no critic, and advantages within groups."""
    stages = [
        _stage("generate", Kind.GENERATE, "actor", Scope.SAMPLE, (), ("rollouts",)),
        _stage("reward", Kind.HOST, None, Scope.SAMPLE, ("rollouts",), ("rewards",)),
        _stage("reference", Kind.INFERENCE, "reference", Scope.SAMPLE, ("rollouts",), ("ref_logprobs",)),
        _stage("old_logprobs", Kind.INFERENCE, "actor", Scope.SAMPLE, ("rollouts",), ("old_logprobs",)),
        _stage("advantages", Kind.HOST, None, Scope.GROUP, ("rewards",), ("advantages",)),
        _stage(
            "train_actor",
            Kind.TRAIN,
            "actor",
            Scope.MINIBATCH,
            ("rollouts", "old_logprobs", "ref_logprobs", "advantages"),
            (),
        ),
    ]
    return _graph("grpo", (Model("actor", TINY, True), Model("reference", TINY, False)), stages)


def remax() -> Graph:
    """Two generators answer the same prompts: what the greedy answers earn is the baseline of the sampled ones."""
    stages = [
        _stage("generate", Kind.GENERATE, "actor", Scope.SAMPLE, (), ("rollouts",)),
        _stage("greedy", Kind.GENERATE, "actor", Scope.SAMPLE, (), ("greedy_rollouts",)),
        _stage("reward", Kind.HOST, None, Scope.SAMPLE, ("rollouts",), ("rewards",)),
        _stage("baseline", Kind.HOST, None, Scope.SAMPLE, ("greedy_rollouts",), ("baselines",)),
        _stage("old_logprobs", Kind.INFERENCE, "actor", Scope.SAMPLE, ("rollouts",), ("old_logprobs",)),
        _stage("advantages", Kind.HOST, None, Scope.SAMPLE, ("rewards", "baselines"), ("advantages",)),
        _stage(
            "train_actor",
            Kind.TRAIN,
            "actor",
            Scope.MINIBATCH,
            ("rollouts", "old_logprobs", "advantages"),
            (),
        ),
    ]
    return _graph("remax", (Model("actor", TINY, True),), stages)


def _stage(
    name: str, kind: Kind, model: str | None, scope: Scope, needs: tuple[str, ...], gives: tuple[str, ...]
) -> Stage:
    return Stage(name, kind, (Call(model, (Op(name, scope, needs, gives),)),))


def _graph(name: str, models: tuple[Model, ...], stages: list[Stage]) -> Graph:
    """Joins each need to its giver, and each caller of a trainable model to its trainer."""
    givers = {datum: s.name for s in stages for datum in s.gives}
    trainers = {model: s.name for s in stages if s.kind is Kind.TRAIN for model in s.models}
    data = [Edge(givers[d], s.name, d) for s in stages for op in s.ops for d in op.needs]
    weights = [_weights(m, s.name, trainers[m]) for s in stages for m in s.models if m in trainers]
    return verify(Graph(name, models, tuple(stages), tuple(data + weights)))


def workload(
    prompts: int = 4, samples_per_prompt: int = 2, longest: int = 8, minibatches: int = 1
) -> Workload:
    """Responses of 1 … `longest` tokens, all as likely; prompts of 3."""
    responses = Lengths(tuple(range(1, longest + 1)), (1.0,) * longest)
    return Workload(prompts, samples_per_prompt, Lengths((3,), (1.0,)), responses, minibatches)


def cluster(devices: int = 2) -> Cluster:
    return local(devices, memory_bytes=8 * 2**30)


def block(*devices: int, zero: int = 0) -> tuple[Devices, Parallelism]:
    return Devices(devices), Parallelism(dp=len(devices), zero=zero if len(devices) > 1 else 0)


def assign(
    graph: Graph, default: tuple[int, ...], zero: int = 0, **blocks: tuple[int, ...]
) -> tuple[Assignment, ...]:
    """Every stage with a model on the `default` devices or those given under its name; host work on host 0."""
    found = []
    for stage in graph.stages:
        if not stage.models:
            found.append(Assignment(stage.name, Host(0)))
            continue
        sharded = 0 if stage.kind is Kind.GENERATE else zero
        devices, parallelism = block(*blocks.get(stage.name, default), zero=sharded)
        found.append(Assignment(stage.name, devices, parallelism, microbatch=4))
    return tuple(found)


def ones(lowered: Lowered) -> tuple[dict[Slot, float], dict[tuple[Slot, int], float]]:
    """Every item takes a second; the parts of a generator leave evenly within it."""
    durations = dict.fromkeys(lowered.tasks, 1.0)
    offsets = {
        (slot, part): (i + 1) / len(task.covers)
        for slot, task in lowered.tasks.items()
        for i, part in enumerate(task.covers)
    }
    return durations, offsets


def plan_of(
    graph: Graph,
    assignments: tuple[Assignment, ...],
    work: Workload | None = None,
    devices: int = 2,
    shifts: Mapping[str, int] | None = None,
    applied: tuple[Transform, ...] = (),
) -> Plan:
    """A plan with derived lane orders. shifts: by stage; transfers take their first consumer's."""
    work = work or workload()
    for transform in applied:
        graph = transform.apply(graph)
    lowered = lower(graph, assignments, work)
    order = list_order(lowered, slot_shifts(lowered, shifts or {}), *ones(lowered))
    return Plan(graph, cluster(devices), work, assignments, order, tuple(map(str, applied)))


def slot_shifts(lowered: Lowered, shifts: Mapping[str, int]) -> dict[Slot, int]:
    consumers = {copy.name: copy.stages[0] for copy in lowered.copies}
    consumers |= {rest.name: rest.stage for rest in lowered.rests}
    return {
        slot: shifts.get(slot.name if slot.kind is ItemKind.RUN else consumers[slot.name], 0)
        for slot in lowered.tasks
    }


def reordered(plan: Plan, lane: str, turns: tuple[Turn, ...]) -> Plan:
    return replace(plan, order=tuple(Lane(lane, turns) if o.name == lane else o for o in plan.order))


@dataclass(frozen=True)
class TableCosts:
    """Fixed seconds by stage (or transfer), a token of generation in `token_seconds`."""

    seconds: Mapping[str, float]
    token_seconds: float = 1.0
    default_seconds: float = 0.5
    dispatch_seconds: float = 0.0

    def duration_seconds(self, item: Item, batch: Batch) -> float:
        return self.seconds.get(item.name, self.default_seconds)

    def generation(self, item: Item, batch: Batch) -> Completions:
        offsets = tuple(self.token_seconds * n for n in batch.response_lengths)
        return Completions(max(offsets, default=self.default_seconds), offsets)

    def memory_bytes(self, item: Item, lane: str) -> int:
        return 0


@dataclass(frozen=True)
class RandomCosts:
    """Any seconds, yet the same for the same item."""

    seed: int
    dispatch_seconds: float = 0.0

    def duration_seconds(self, item: Item, batch: Batch) -> float:
        return random.Random(f"{self.seed} {item}").choice((0.0, 0.1, 1.0, 7.0, 30.0))

    def generation(self, item: Item, batch: Batch) -> Completions:
        draw = random.Random(f"{self.seed} {item}")
        offsets = tuple(draw.uniform(0, 10) for _ in batch.ids)
        return Completions(max(offsets, default=0.0) + draw.choice((0.0, 1.0)), offsets)

    def memory_bytes(self, item: Item, lane: str) -> int:
        return 0
