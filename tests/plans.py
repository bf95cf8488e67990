"""Small plans, and traces of them from a driver with a virtual clock: for tests that need a sound run to start from."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from types import MappingProxyType

from rpeg.algorithms import dapo, grpo, ppo
from rpeg.algorithms.pieces import with_carry_over, with_evaluation
from rpeg.cluster import Cluster, local
from rpeg.ir import KEPT, Graph, Kind
from rpeg.plan import (
    Assignment,
    Devices,
    Host,
    Item,
    ItemKind,
    Parallelism,
    Plan,
    Slot,
    check,
    lower,
)
from rpeg.schedule import (
    Event,
    Finished,
    Kept,
    Launch,
    Offload,
    Produced,
    Rejected,
    Reload,
    Scheduler,
    SyncWeights,
    event_entry,
    list_order,
)
from rpeg.sim.selection import REJECTED, judge
from rpeg.trace import OVER_QUOTA, Entry, Span, Trace, What
from rpeg.transforms import parse
from rpeg.workload import Selection, Workload, constant

MEMORY_BYTES = 2**30


def ppo_graph(evaluate_every: int = 2) -> Graph:
    """A step of PPO with a critic, a reference and evaluation (0: without)."""
    graph = ppo.graph(ppo.Hyper())
    return with_evaluation(graph, evaluate_every) if evaluate_every else graph


def grpo_graph() -> Graph:
    """A step of GRPO: advantages by group, neither critic nor reference."""
    return grpo.graph(grpo.Hyper(kl_in="none"))


def make_plan(
    graph: Graph,
    blocks: Mapping[str, tuple[int, ...]],
    transforms: tuple[str, ...] = (),
    shifts: Mapping[str, int] = MappingProxyType({}),
    workload: Workload | None = None,
    devices: int = 2,
    tp: int = 1,
    zero: Mapping[str, int] = MappingProxyType({}),
    cluster: Cluster | None = None,
    microbatch: int = 1,
    offload: Mapping[str, str] = MappingProxyType({}),
    recompute: Mapping[str, str] = MappingProxyType({}),
    layouts: Mapping[str, Parallelism] = MappingProxyType({}),
) -> Plan:
    """A checked plan: stages on these devices, data-parallel over groups of `tp`, or as `layouts` say; host work on one
    slot."""
    for text in transforms:
        graph = parse(text).apply(graph)
    workload = workload or Workload(4, 2, constant(4), constant(8), minibatches=2)
    assignments = tuple(
        Assignment(s.name, Host())
        if s.kind is Kind.HOST
        else _on(s.name, blocks[s.name], tp, zero.get(s.name, 0), microbatch)
        for s in graph.stages
    )
    assignments = tuple(
        replace(
            a,
            offload=offload.get(a.stage, "none"),
            recompute=recompute.get(a.stage, "none"),
            parallelism=layouts.get(a.stage, a.parallelism),
        )
        for a in assignments
    )
    lowered = lower(graph, assignments, workload)
    shift = {slot: shifts.get(_runner(slot), 0) for slot in lowered.tasks}
    durations = dict.fromkeys(lowered.tasks, 1.0)
    offsets = {(t.slot, part): 1.0 for t in lowered.tasks.values() for part in t.covers}
    order = list_order(lowered, shift, durations, offsets)
    cluster = cluster or local(devices, devices * MEMORY_BYTES)
    return check(Plan(graph, cluster, workload, assignments, order, transforms))


def _on(stage: str, ids: tuple[int, ...], tp: int, zero: int, microbatch: int) -> Assignment:
    return Assignment(stage, Devices(ids), Parallelism(dp=len(ids) // tp, tp=tp, zero=zero), microbatch)


def _runner(slot: Slot) -> str:
    """The stage whose lanes a slot runs on: its own, or the one that a transfer or a reload is for."""
    if slot.kind in (ItemKind.RELOAD, ItemKind.OFFLOAD):
        return slot.name.partition(":")[0]
    return slot.name if slot.kind is ItemKind.RUN else slot.name.partition("->")[2].partition(":")[0]


def colocated() -> Plan:
    """Everything on both devices."""
    return make_plan(ppo_graph(), dict.fromkeys((s.name for s in ppo_graph().stages), (0, 1)))


SPLIT = {
    "generate": (0,),
    "evaluate": (0,),
    "reference": (0,),
    "old_logprob": (1,),
    "value": (1,),
    "train_actor": (1,),
    "train_critic": (1,),
}


def split() -> Plan:
    """Generation on one device, training on the other."""
    return make_plan(ppo_graph(), SPLIT)


def streamed() -> Plan:
    """Split, and responses flow on two at a time."""
    return make_plan(ppo_graph(), SPLIT, ("stream{chunk=2,unit=sample}",))


def streamed_groups() -> Plan:
    """GRPO over three devices; groups flow on from two generators."""
    blocks = {"generate": (0, 1), "old_logprob": (2,), "train_actor": (2,)}
    return make_plan(grpo_graph(), blocks, ("stream{chunk=1,unit=group}",), devices=3)


def asynchronous(freshness: str = "exact") -> Plan:
    """Split, generating for the next step while this one trains: delay 2."""
    later = (
        "reward",
        "reference",
        "old_logprob",
        "value",
        "advantage",
        "train_actor",
        "train_critic",
        "evaluate",
    )
    text = f"async{{stage=generate,staleness=1,freshness={freshness}}}"
    return make_plan(ppo_graph(), SPLIT, (text,), dict.fromkeys(later, 1))


def tensor_parallel() -> Plan:
    """Everything on four devices in groups of two."""
    names = (s.name for s in ppo_graph().stages)
    return make_plan(ppo_graph(), dict.fromkeys(names, (0, 1, 2, 3)), devices=4, tp=2)


def minibatches() -> Plan:
    """Streamed groups, and the trainer takes each minibatch when its members are ready."""
    blocks = {"generate": (0, 1), "old_logprob": (2,), "train_actor": (2, 3)}
    texts = ("stream{chunk=1,unit=group}", "stream{chunk=1,unit=minibatch}")
    return make_plan(grpo_graph(), blocks, texts, devices=4)


def in_parts() -> Plan:
    """Generation and assessment work through their batches in parts; the trainers take minibatches of the whole."""
    texts = (
        "split{stage=generate,parts=2}",
        "split{stage=reference,parts=2}",
        "split{stage=old_logprob,parts=4}",
        "stream{chunk=1,unit=minibatch}",
    )
    return make_plan(ppo_graph(), SPLIT, texts)


OFFLOAD = {"generate": "all", "reference": "all", "train_actor": "all", "train_critic": "optimizer"}


def resting() -> Plan:
    """Colocated on both devices; what does not run rests in host memory."""
    graph = ppo_graph()
    return make_plan(graph, dict.fromkeys((s.name for s in graph.stages), (0, 1)), offload=OFFLOAD)


SELECTION = Selection(round_prompts=4, max_rounds=3, rejected=0.4)


def selecting(workload: Workload | None = None) -> Plan:
    """Dynamic sampling, colocated: up to three rounds of four prompts for four groups."""
    graph = with_evaluation(dapo.graph(dapo.Hyper()), 2)
    workload = workload or Workload(4, 2, constant(4), constant(8), 2, selection=SELECTION)
    return make_plan(graph, dict.fromkeys((s.name for s in graph.stages), (0, 1)), workload=workload)


def keeping() -> Plan:
    """Dynamic sampling a step ahead of training, which keeps accepted groups beyond the quota for the next step."""
    graph = with_carry_over(dapo.graph(dapo.Hyper()))
    blocks = {"generate": (0,), "old_logprob": (1,), "train_actor": (1,)}
    later = dict.fromkeys(("old_logprob", "advantage", "train_actor"), 1)
    workload = Workload(4, 2, constant(4), constant(8), 2, selection=Selection(6, 3, 0.4))
    return make_plan(graph, blocks, ("async{stage=generate,staleness=1,freshness=exact}",), later, workload)


PLANS: Mapping[str, Callable[[], Plan]] = {
    "colocated": colocated,
    "split": split,
    "streamed": streamed,
    "streamed_groups": streamed_groups,
    "tensor_parallel": tensor_parallel,
    "asynchronous": asynchronous,
    "latest": lambda: asynchronous("latest"),
    "minibatches": minibatches,
    "in_parts": in_parts,
    "resting": resting,
    "selecting": selecting,
    "keeping": keeping,
}

Durations = Callable[[Item], float]


def run(
    plan: Plan,
    steps: int = 4,
    first_step: int = 0,
    seed: int = 0,
    source: str = "real",
    clocks: Mapping[str, float] | None = None,
    seconds: Durations | None = None,
    latency_seconds: float = 0.001,
) -> Trace:
    """A sound trace: the scheduler driven by a virtual clock, with random durations unless `seconds` gives them.

    clocks: by how much each lane's worker is ahead of the driver. latency_seconds: of a message, either way.
    """
    return _Driver(plan, steps, first_step, seed, source, clocks or {}, seconds, latency_seconds).trace()


@dataclass
class _Driver:
    plan: Plan
    steps: int
    first_step: int
    seed: int
    source: str
    clocks: Mapping[str, float]
    seconds: Durations | None
    latency: float
    now: float = 0.0
    entries: list[Entry] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)

    def trace(self) -> Trace:
        self.random = random.Random(self.seed)
        self.heap: list[tuple[float, int, Event]] = []
        self.left: dict[int, tuple[int, ...]] = {}
        self.number = count()
        scheduler = Scheduler(self.plan, self.steps, self.first_step)
        self.scheduler = scheduler
        self._carry_out(scheduler.start())
        while not scheduler.done:
            self.now, _, event = heapq.heappop(self.heap)
            self._hear(event)
            self._carry_out(scheduler.on(event))
        spans = tuple(sorted(self.spans, key=lambda s: (s.worker, s.start_seconds, s.launch)))
        return Trace(self.plan, self.source, self.steps, self.first_step, tuple(self.entries), spans, seed=0)  # type: ignore[arg-type]

    def _log(self, what: What, item: Item, **more: object) -> int:
        self.entries.append(Entry(len(self.entries), self.now, what, item, **more))  # type: ignore[arg-type]
        return len(self.entries) - 1

    def _hear(self, event: Event) -> None:
        self.entries.append(event_entry(len(self.entries), self.now, event))

    def _carry_out(self, commands: tuple[object, ...]) -> None:
        for command in commands:
            if isinstance(command, SyncWeights):
                versions = {command.model: command.version}
                seq = self._log(What.SYNC, command.item, lanes=command.lanes, versions=versions)
                digests = {f"{m}@{v}": self._digest(m, v) for m, v in versions.items()}
                self._work(command.item, command.lanes, seq, versions, {}, digests, ())
            elif isinstance(command, Launch):
                self._launch(command)
            elif isinstance(command, (Reload, Offload)):
                seq = self._log(What(command.item.kind), command.item, lanes=command.lanes)
                self._work(command.item, command.lanes, seq, {}, {}, {}, ())

    def _launch(self, command: Launch) -> None:
        item, versions = command.item, dict(command.versions)
        seq = self._log(
            What.LAUNCH,
            item,
            lanes=command.lanes,
            parts=command.parts,
            ids=command.ids,
            versions=versions,
            wanted=command.wanted,
        )
        stage = self.plan.graph.stage(item.name)
        publishes = stage.kind is Kind.TRAIN and self.scheduler.lowered.ends(item.slot)
        makes = dict.fromkeys(stage.models, item.step + 1) if publishes else {}
        digests = {f"{m}@{v}": self._digest(m, v) for m, v in makes.items()}
        ids = list(command.ids)
        if stage.kind is Kind.GENERATE:
            self.random.shuffle(ids)  # completion order
        if stage == self.plan.graph.selector:
            self._judge(command)
        self._work(item, command.lanes, seq, versions, makes, digests, tuple(ids))

    def _judge(self, command: Launch) -> None:
        item, selector = command.item, self.plan.graph.selector
        assert selector is not None
        left = self.left.pop(item.step - 1, ()) if item.part == 0 else ()
        found = judge(command.ids, command.wanted, self.plan.workload, 0, left)
        over = set(found.over)
        kept = tuple(sorted(over & set(command.ids))) if KEPT in selector.gives else ()
        (part,) = self.scheduler.lowered.tasks[item.slot].makes
        events = [
            Produced(item, part, found.accepted, (8,) * len(found.accepted)),
            Rejected(item, found.rejected, REJECTED),
            Rejected(item, tuple(sorted(over - set(kept))), OVER_QUOTA),
            Kept(item, kept),
        ]
        self.left[item.step] = kept
        for event in events:
            if isinstance(event, Produced) or event.ids:
                self._later(self.now + self.latency, event)

    def _work(
        self,
        item: Item,
        lanes: tuple[str, ...],
        seq: int,
        reads: Mapping[str, int],
        makes: Mapping[str, int],
        digests: Mapping[str, str],
        ids: tuple[int, ...],
    ) -> None:
        start = self.now + self.latency
        seconds = self.seconds(item) if self.seconds else self.random.uniform(0.05, 1.0)
        shares = self._shares(item, lanes, ids)
        for lane, share in zip(lanes, shares, strict=True):
            begin = start + self.clocks.get(lane, 0.0)
            span = Span(
                f"worker-{lane}", lane, item, seq, begin, begin + seconds, reads, makes, digests, share
            )
            self.spans.append(replace(span, tokens=8 * len(share), memory_bytes=MEMORY_BYTES // 2))
        self._produce(item, ids, start, seconds)
        self._later(start + seconds + self.latency, Finished(item))

    def _digest(self, model: str, version: int) -> str:
        return f"{'sim:' if self.source == 'simulated' else ''}bytes of {model} {version}"

    def _shares(self, item: Item, lanes: tuple[str, ...], ids: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The samples of each lane: lanes of one tensor-parallel group have the same."""
        group = 1
        if item.kind is ItemKind.RUN:
            group = self.plan.assignment(item.name).parallelism.devices_per_replica
        ranks = len(lanes) // group
        shares = [ids[r * len(ids) // ranks : (r + 1) * len(ids) // ranks] for r in range(ranks)]
        return [shares[i // group] for i in range(len(lanes))]

    def _produce(self, item: Item, ids: tuple[int, ...], start: float, seconds: float) -> None:
        if item.kind is not ItemKind.RUN or self.plan.graph.stage(item.name).kind is not Kind.GENERATE:
            return
        covers = self.scheduler.lowered.tasks[item.slot].covers
        taken = 0
        for i, part in enumerate(covers, 1):
            size = self.scheduler.lowered.parts[part].samples
            left = ids[taken : taken + size]
            taken += size
            self._later(
                start + seconds * (i / len(covers)) + self.latency, Produced(item, part, left, (8,) * size)
            )

    def _later(self, seconds: float, event: Event) -> None:
        heapq.heappush(self.heap, (seconds, next(self.number), event))


__all__ = ["PLANS", "grpo_graph", "make_plan", "ppo_graph", "run"]
