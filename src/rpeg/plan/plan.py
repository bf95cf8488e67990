"""The plan: all that the runtime needs to know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from rpeg.cluster import Cluster
from rpeg.errors import PlanError, nearest
from rpeg.ir import Graph
from rpeg.plan.assignment import Assignment
from rpeg.plan.item import Slot
from rpeg.workload import Workload


@dataclass(frozen=True, slots=True)
class Turn:
    """A place in a lane's order: in period k the slot runs for step k - shift."""

    slot: Slot
    shift: int = 0


@dataclass(frozen=True, slots=True)
class Lane:
    """What runs one thing at a time, and the order in which it does in every period."""

    name: str
    turns: tuple[Turn, ...]


@dataclass(frozen=True)
class Plan:
    """A graph, where its stages run, and in which order.

    order: one `Lane` for each device and host slot that the assignments use.
    applied: the transforms that made the graph, as text: a plan says how it was made.
    """

    graph: Graph
    cluster: Cluster
    workload: Workload
    assignments: tuple[Assignment, ...]
    order: tuple[Lane, ...] = ()
    applied: tuple[str, ...] = ()

    @cached_property
    def _by_stage(self) -> Mapping[str, Assignment]:
        return {a.stage: a for a in self.assignments}

    def assignment(self, stage: str) -> Assignment:
        """Raises PlanError for a stage without one."""
        try:
            return self._by_stage[stage]
        except KeyError:
            raise PlanError(f"no assignment for stage '{stage}'. {nearest(stage, self._by_stage)}") from None

    @cached_property
    def shifts(self) -> Mapping[Slot, int]:
        """Each slot's shift; the same on all its lanes (a rule of `check`)."""
        return {turn.slot: turn.shift for lane in self.order for turn in lane.turns}
