"""`Infeasible`: no plan fits; what is short, and once it was searched for, what would make it fit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rpeg.errors import InfeasibleError
from rpeg.plan import Plan
from rpeg.search.changes import Change
from rpeg.search.problem import Problem
from rpeg.sim import DeviceMemory, stages_in
from rpeg.units import GIB


@dataclass(frozen=True)
class Shortage:
    """What the plan that is nearest to fitting lacks on its tightest device. tried: what did not help."""

    device: str
    phase: str
    stages: tuple[str, ...]
    needed_bytes: float
    capacity_bytes: float
    tried: str = ""

    @staticmethod
    def of(plan: Plan, memory: DeviceMemory, tried: str = "") -> Shortage:
        phase, needed = memory.peak.phase, memory.peak.bytes
        stages = stages_in(plan, memory, phase)
        return Shortage(memory.name, phase, stages, needed, memory.capacity_bytes, tried)

    @property
    def short_bytes(self) -> float:
        return max(0.0, self.needed_bytes - self.capacity_bytes)

    def __str__(self) -> str:
        return (
            f"{self.device} lacks {self.short_bytes / GIB:.2f} GiB in phase {self.phase} of {', '.join(self.stages)} "
            f"({self.needed_bytes / GIB:.2f} needed, {self.capacity_bytes / GIB:.2f} there)"
            + (f", even with {self.tried}" if self.tried else "")
        )


class Infeasible(InfeasibleError):
    """name: of the plan that is nearest to fitting. shortage: what it lacks; None where no layout can be run at all.

    reason: in one line. ways: changes that would each make it fit, none where nobody looked for them (`ways_out`).
    """

    def __init__(
        self,
        problem: Problem,
        name: str,
        reason: Shortage | str,
        ways: Iterable[Change] | None = None,
    ) -> None:
        self.problem, self.name = problem, name
        self.shortage = reason if isinstance(reason, Shortage) else None
        self.reason = str(reason)
        self.ways = None if ways is None else tuple(ways)
        super().__init__(self._text())

    @property
    def in_short(self) -> str:
        """Why not, in one line that leaves out what for."""
        fits = "nothing fits" if self.shortage else "nothing can be run"
        return f"{fits}; the nearest, {self.name}: {self.reason}"

    def with_ways(self, ways: Iterable[Change]) -> Infeasible:
        """The same error, that says what would help."""
        return Infeasible(self.problem, self.name, self.shortage or self.reason, ways)

    def _text(self) -> str:
        graph, cluster = self.problem.graph.name, self.problem.cluster.name
        if self.shortage:
            said = f"no plan for {graph} fits on {cluster}. The nearest, {self.name}: {self.reason}."
        else:
            said = f"no plan for {graph} can run on {cluster}. {self.name}: {self.reason}."
        if self.ways is None:
            return said
        if not self.ways:
            return (
                f"{said}\nNo single change that was tried is enough: take smaller models, or several at once."
            )
        return "\n".join((said, "It would fit with any one of these:", *map(self._way, self.ways)))

    def _way(self, change: Change) -> str:
        learning = change.learning(self.problem)
        changes = f"; changes what is learned: {learning}" if learning else ""
        return f"  {change.words(self.problem)} ({change.cost(self.problem)}{changes})"
