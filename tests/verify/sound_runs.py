"""Sound runs of many kinds of plans, to lie about and to shift: simulated, driven by a virtual clock, and real."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from types import MappingProxyType

from hypothesis import HealthCheck, Phase, given, seed, settings

import samples_of_plans
from plans import PLANS, grpo_graph, make_plan, ppo_graph
from plans import run as drive
from random_plans import plans
from rpeg.ir import Graph
from rpeg.plan import Plan
from rpeg.sim import simulate
from rpeg.trace import Trace, What, read_traces, write_trace
from samples_of_plans import RandomCosts
from verify.lies import Run

LATER = ("reward", "reference", "old_logprob", "value", "advantage", "train_actor", "train_critic")


def _everywhere(graph: Graph, *transforms: str, devices: tuple[int, ...] = (0, 1)) -> Plan:
    """All on all devices."""
    return make_plan(graph, defaultdict(lambda: devices), transforms, devices=len(devices))


def remax() -> Plan:
    """Two generators a step, each on a device of its own."""
    graph = samples_of_plans.remax()
    assigned = samples_of_plans.assign(graph, (1,), generate=(0,))
    return samples_of_plans.plan_of(graph, assigned, samples_of_plans.workload(minibatches=2))


def very_stale() -> Plan:
    """Generation may run two steps ahead, on whatever has arrived."""
    text = "async{stage=generate,staleness=2,freshness=latest}"
    blocks = defaultdict(lambda: (1,), generate=(0,), reference=(0,))
    return make_plan(ppo_graph(), blocks, (text,), dict.fromkeys((*LATER, "evaluate"), 2))


KINDS: Mapping[str, Callable[[], Plan]] = MappingProxyType(
    {
        **PLANS,
        "shared": lambda: _everywhere(ppo_graph(), "share{actor=actor,critic=critic}"),
        "fused": lambda: _everywhere(ppo_graph(), "fuse{a=old_logprob,b=value}"),
        "bypassed": lambda: _everywhere(grpo_graph(), "bypass{stage=old_logprob}"),
        "replicas": lambda: _everywhere(grpo_graph(), devices=(0, 1, 2, 3)),
        "very stale": very_stale,
        "two generators": remax,
        "migrating": lambda: _everywhere(
            grpo_graph(), "stream{chunk=1,unit=group}", "migrate{stage=generate,responses=4}"
        ),
    }
)
"""Plans by name: colocated, split, streamed, asynchronous, with replicas, minibatches, selection, offload …"""


def random_plans(count: int, number: int) -> list[Plan]:
    """So many legal plans of all kinds, the same for the same number."""
    found: list[Plan] = []

    @seed(number)
    @settings(
        max_examples=count,
        phases=(Phase.generate,),
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(plans())
    def collect(plan: Plan) -> None:
        found.append(plan)

    collect()
    return found


def cut(trace: Trace, at: int) -> Trace:
    """As if the run had been killed at this entry of its log."""
    last = trace.entries[at].seq
    spans = tuple(s for s in trace.spans if s.launch <= last)
    return replace(trace, entries=trace.entries[: at + 1], spans=spans, complete=False)


def resumed(stretch: Callable[[int], Trace], draw: Random) -> Run:
    """Up to three stretches: each goes on after some step whose training the one before it has ended."""
    found: list[Trace] = []
    first = 0
    for _ in range(draw.randint(1, 2)):
        trace = stretch(first)
        whole = _steps_ended(trace)
        if len(whole) < 2:
            break
        step = draw.choice(sorted(whole)[:-1])
        found.append(cut(trace, draw.randrange(whole[step], len(trace.entries))))
        first = step + 1
    return (*found, stretch(first))


def _steps_ended(trace: Trace) -> dict[int, int]:
    """Step → the place in the log at which all training of it and of those before it had ended."""
    trainers = [s.name for s in trace.plan.graph.stages if s.kind == "train"]
    ends: dict[int, int] = {}
    for place, entry in enumerate(trace.entries):
        if entry.what is What.FINISHED and entry.item.name in trainers and entry.item.step < trace.steps:
            ends[entry.item.step] = place
    highest, found = 0, {}
    for step in sorted(ends):
        highest = found[step] = max(highest, ends[step])
    return found


def sound_run(plan: Plan, draw: Random) -> Run:
    """A run of a plan, simulated or driven, whole or resumed, with a few steps."""
    steps, number = draw.randint(2, 6), draw.randrange(2**16)
    latency = draw.choice([0.0, 1e-3, 0.2])

    migrates = any(stage.migrates for stage in plan.graph.stages)  # which the driver of `plans` does not
    source = "simulator" if migrates else draw.choice(["simulator", "simulated", "real"])

    def stretch(first: int) -> Trace:
        if source == "simulator":
            return simulate(plan, RandomCosts(number + first, latency), steps, 0, first)
        return drive(plan, steps, first, number + first, source, latency_seconds=latency)

    return resumed(stretch, draw) if draw.random() < 0.3 else (stretch(0),)


def sound_runs(draw: Random, others: list[Plan], real: list[Run]) -> Iterator[tuple[str, Run]]:
    """Without end: (kind, run). others: plans beside those of `KINDS`. real: runs that really ran."""
    while True:
        kind = draw.choice([*KINDS, *["random"] * 8, *["real"] * (4 if real else 0)])
        if kind == "real":
            yield kind, draw.choice(real)
        else:
            yield kind, sound_run(draw.choice(others) if kind == "random" else KINDS[kind](), draw)


def from_disk(run: Run, directory: Path) -> Run:
    """The run as its files tell it."""
    for trace in run:
        write_trace(trace, directory)
    return read_traces(directory)
