"""Bounds: what no plan of some kind can beat, so that one sees what a better plan could still bring."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from rpeg.cluster import Cluster
from rpeg.ir import Graph, Kind, Stage
from rpeg.plan import Lane, Lowered
from rpeg.sim.events import Times, events
from rpeg.sim.howard import cycle_ratio


@dataclass(frozen=True, slots=True)
class Bound:
    """Seconds that a step takes at least, and why.

    by `lane`: one lane is busy so long, in any order (what: the lane). by `dependencies`: items wait for each other in
    a cycle, with any number of lanes (what: the stages of it). by `work`: all devices together need so long for the
    job's work, at the best efficiency that a search has seen on any of them (what: the cluster).
    """

    by: Literal["lane", "dependencies", "work"]
    what: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Bounds:
    """Of one plan. work: None where nobody said what the job's work takes at its best."""

    lane: Bound
    dependencies: Bound
    work: Bound | None = None

    def up_to(self, seconds: float) -> Bounds:
        """None above the mean of the steps that were drawn: few draws may end a little below what holds for many."""
        least = [replace(bound, seconds=min(bound.seconds, seconds)) for bound in self.all]
        return Bounds(*least)

    @property
    def all(self) -> tuple[Bound, ...]:
        """All that are known."""
        return (self.lane, self.dependencies, *(() if self.work is None else (self.work,)))

    @property
    def tightest(self) -> Bound:
        """The largest."""
        return max(self.all, key=lambda bound: bound.seconds)

    @property
    def of_any_order(self) -> Bound:
        """The largest that holds for every order of the same items on the same lanes."""
        return max((self.lane, self.dependencies), key=lambda bound: bound.seconds)


def lane_seconds(lowered: Lowered, order: Sequence[Lane], times: Times) -> dict[str, float]:
    """Busy seconds a step of each lane, dispatch included: nothing else starts on it meanwhile."""
    return {
        lane.name: sum(times[0][turn.slot] / lowered.tasks[turn.slot].every for turn in lane.turns)
        for lane in order
    }


def busiest_lane(seconds: Mapping[str, float]) -> Bound:
    """Of busy seconds a step by lane; the first by name of equals."""
    lane = max(sorted(seconds), key=lambda name: seconds[name], default="")
    return Bound("lane", lane, seconds.get(lane, 0.0))


def dependencies(lowered: Lowered, mean: Times) -> Bound:
    """The cycle ratio without lanes, at the mean times of many draws; arcs that a draw can make void do not count.

    Over random times it bounds the mean step from below: a cycle's mean time is the sum of its means.
    """
    structure = events(lowered, {})
    found = cycle_ratio(structure.timed(mean, structure.uncertain))
    stages = dict.fromkeys(link.src.name for link in found.cycle)
    return Bound("dependencies", " → ".join(stages), found.step_seconds)


def least_work(graph: Graph, cluster: Cluster, device_seconds: Callable[[Stage], float]) -> Bound:
    """The work of a graph's stages spread over all devices without a gap.

    device_seconds: of a whole stage at one step (or firing), the least seconds × devices that was seen of any layout on
    any devices of the cluster; host work is not asked for. Adding up is sound: no device does two things at once.
    """
    each = (device_seconds(s) / s.every for s in graph.stages if s.kind is not Kind.HOST and s.models)
    return Bound("work", cluster.name, sum(each) / len(cluster))
