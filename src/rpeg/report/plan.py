"""What `rpeg plan` shows: the chosen plan, what it is compared with, and why one may believe it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.text import Text

from rpeg.report import comparison, forecast, limits, structure
from rpeg.report.tables import facts
from rpeg.search import Candidate, Effect, Misfit, Problem, Ranked
from rpeg.units import seconds_text

_SHOWN = 0.005
"""Of the step: a change that saves less brings nothing."""


def report(
    ranked: Ranked, chosen: Candidate, problem: Problem, sensitivity: Sequence[Effect] = ()
) -> Iterator[RenderableType]:
    """Everything about a chosen plan, the most important first. Reads well from 80 columns on, also in a pipe."""
    yield facts(_head(chosen, problem))
    yield Text()
    yield structure.layouts(chosen.plan)
    yield Text(structure.LAYOUT_LEGEND)
    yield Text()
    yield comparison.comparison(ranked, chosen)
    yield Text(comparison.LEGEND)
    yield Text()
    yield facts(_details(ranked, chosen, problem, sensitivity))


def _head(chosen: Candidate, problem: Problem) -> Iterator[tuple[str, list[str]]]:
    w = problem.workload
    samples = f"{w.prompts} prompts × {w.samples_per_prompt} responses"
    yield (
        "job",
        [
            f"{problem.graph.name} on {problem.cluster.name} ({len(problem.cluster)} devices), {samples} a step"
        ],
    )
    yield "plan", [chosen.name, *structure.placement(chosen.plan)]


def _details(
    ranked: Ranked, chosen: Candidate, problem: Problem, sensitivity: Sequence[Effect]
) -> Iterator[tuple[str, list[str]]]:
    e, plan = chosen.estimate, chosen.plan
    if chosen is not ranked.best:
        yield "best has", list(structure.differences(plan, ranked.best.plan))
    yield "step", list(forecast.step(e, problem))
    yield "speed", [forecast.speed(chosen)]
    if not problem.is_local:
        yield "cost", [forecast.price(chosen)]
    yield "memory", [*forecast.headroom(e), *(() if problem.is_local else forecast.tight(e))]
    yield "structure", list(structure.changes(plan))
    yield "staleness", list(structure.staleness(e.staleness))
    yield "limits", list(limits.critical(e, plan))
    yield "idle", list(limits.idle(e, plan))
    yield "bounds", list(limits.bounds(e))
    yield "what if", [what_if(one) for one in sensitivity]
    yield "no plan", list(comparison.without_plan(ranked))
    yield "left out", list(misfits(ranked.misfits))
    yield "assumed", list(problem.assumptions)


def what_if(one: Effect) -> str:
    """``links 2 × as fast: 60 s, 1.17 × as fast; costs another network``."""
    learning = f"; changes what is learned: {one.learning}" if one.learning else ""
    return f"{one.words}: {_brings(one)}; costs {one.cost}{learning}"


def _brings(one: Effect) -> str:
    after = one.after_seconds
    if after is None:
        return f"nothing that runs ({one.reason})"
    if one.saved < _SHOWN:
        return "no faster"
    plan = f", with {one.plan}" if after == one.replanned_seconds else ""
    return f"{seconds_text(after)}, {one.before_seconds / after:.2f} × as fast{plan}"


def misfits(found: Sequence[Misfit]) -> Iterator[str]:
    """A line for the constructions that cannot be had for one reason."""
    by_reason: dict[str, list[str]] = {}
    for misfit in found:
        by_reason.setdefault(misfit.reason, []).append(misfit.name)
    for reason, names in by_reason.items():
        more = f" (and {len(names) - 1} others like it)" if len(names) > 1 else ""
        yield f"{names[0]}{more}: {reason}"
