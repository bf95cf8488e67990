"""The simulator: a heap of timed events that drives the scheduler which also drives real runs."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from rpeg.errors import RunError
from rpeg.plan import Plan
from rpeg.schedule import Cancel, Command, Event, Finished, Scheduler, command_entry, event_entry
from rpeg.sim.costs import Costs
from rpeg.sim.course import Courses
from rpeg.sim.lengths import Draws
from rpeg.trace import Entry, Span, Trace


def simulate(
    plan: Plan,
    costs: Costs,
    steps: int,
    seed: int = 0,
    first_step: int = 0,
    draws: Draws | None = None,
    *,
    samples: bool = True,
) -> Trace:
    """Steps first_step … steps - 1 of a plan on a virtual clock that starts at 0.

    A function of its arguments alone. Lengths of step t are `workload.draw(seed, t)`. A span's worker is its lane.
    draws: those of this workload and seed, where they are kept already. samples: whether spans say which they worked
    on; times need it not. Raises RunError where nothing runs and items
    wait, naming who waits for whom (no plan that passes `check` does).
    """
    draws = draws or Draws(plan.workload, seed)
    return _Simulation(plan, costs, steps, seed, first_step, draws, samples).run()


class _Simulation:
    """One run: the clock, the events to come and the trace so far."""

    def __init__(
        self,
        plan: Plan,
        costs: Costs,
        steps: int,
        seed: int,
        first_step: int,
        draws: Draws,
        samples: bool,
    ) -> None:
        self._samples = samples
        self._plan, self._costs = plan, costs
        self._steps, self._first_step = steps, first_step
        self._scheduler = Scheduler(plan, steps, first_step, seed)
        self._courses = Courses(plan, costs, draws, seed)
        self._events: list[tuple[float, int, Event]] = []
        self._pushed = 0
        self._entries: list[Entry] = []
        self._spans: list[Span] = []

    def run(self) -> Trace:
        self._carry_out(0.0, self._scheduler.start())
        while self._events:
            now, _, event = heapq.heappop(self._events)
            self._entries.append(event_entry(len(self._entries), now, event))
            self._carry_out(now, self._scheduler.on(event))
        if not self._scheduler.done:
            waits = "; ".join(f"{item} waits for {what}" for item, what in self._scheduler.waiting())
            raise RunError(f"the simulation of {self._plan.graph.name} stands still: {waits}")
        spans = tuple(sorted(self._spans, key=lambda span: (span.lane, span.start_seconds, span.launch)))
        return Trace(
            self._plan,
            "simulated",
            self._steps,
            self._first_step,
            tuple(self._entries),
            spans,
            seed=self._scheduler.seed,
        )

    def _carry_out(self, now: float, commands: Iterable[Command]) -> None:
        for command in commands:
            if isinstance(command, Cancel):
                continue
            seq = len(self._entries)
            self._entries.append(command_entry(seq, now, command))
            start = now + self._costs.dispatch_seconds
            course = self._courses.of(command)
            for offset, event in course.events:
                self._push(start + offset, event)
            end = start + course.seconds
            self._push(end, Finished(command.item))
            self._spans += self._courses.spans(command, seq, start, end, samples=self._samples)

    def _push(self, seconds: float, event: Event) -> None:
        heapq.heappush(self._events, (seconds, self._pushed, event))
        self._pushed += 1
