"""The chosen plan beside what people would run without a search, and beside good plans of other kinds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.table import Table

from rpeg.plan import Plan
from rpeg.report import forecast
from rpeg.report.tables import table
from rpeg.report.words import applied, device_groups, is_colocated, learning_in_short
from rpeg.search import Baseline, Candidate, Ranked
from rpeg.units import bytes_text, count_text, seconds_text

COLUMNS = (">#", "plan", ">step", ">speed-up", ">tok/s", ">room", "notes")
LEGEND = (
    "step: mean. speed-up: of the marked plan (▶) against that one. room: memory left at the peak of the tightest "
    "device, tight where predictions are off by more. #: for --pick."
)
OTHER_KINDS = 4
"""Plans of other kinds that are shown."""


@dataclass(frozen=True)
class Row:
    """number: among the candidates, from 1; None for a plan that is not one of them."""

    number: int | None
    label: str
    candidate: Candidate


def comparison(ranked: Ranked, chosen: Candidate) -> Table:
    """The chosen plan, then baselines, then the next best of other kinds, with their numbers."""
    groups = [[Row(number_of(ranked, chosen), "▶ " + chosen.name, chosen)], compared(ranked, chosen), []]
    known = [row.candidate.plan for row in groups[1]]
    groups[2] = [row for row in next_best(ranked, chosen) if row.candidate.plan not in known]
    rows = [row for group in groups for row in group]
    ends = [sum(map(len, groups[: i + 1])) - 1 for i in range(len(groups) - 1)]
    return table(COLUMNS, _all_cells(rows, chosen), marked=0, ends=ends)


def ranking(ranked: Ranked, chosen: Candidate, most: int | None = None) -> Table:
    """The fastest `most` candidates (None: all), the fastest first; the chosen one is marked."""
    marked = (number_of(ranked, chosen) or 0) - 1
    shown = ranked.candidates[:most]
    rows = [Row(i + 1, ("▶ " if i == marked else "  ") + c.name, c) for i, c in enumerate(shown)]
    return table(COLUMNS, _all_cells(rows, chosen), marked=marked)


def compared(ranked: Ranked, chosen: Candidate) -> list[Row]:
    """What the job asks for, or the best, where another is chosen; then the baselines that have a plan.

    The fastest colocated candidate too where no baseline is colocated.
    """
    own = ranked.own.candidate if ranked.own else None
    asked = [] if own is None or own == chosen else [Row(number_of(ranked, own), "as the job says", own)]
    best = [Row(1, f"best found: {ranked.best.name}", ranked.best)] if ranked.best != chosen else []
    known = [row.candidate.plan for row in (*asked, *best)]
    colocated = [row for row in _best_colocated(ranked) if row.candidate.plan not in known]
    return [*asked, *best, *colocated, *_baselines(ranked)]


def _baselines(ranked: Ranked) -> list[Row]:
    return [Row(number_of(ranked, b.candidate), b.name, b.candidate) for b in ranked.baselines if b.candidate]


def _best_colocated(ranked: Ranked) -> list[Row]:
    """Where no baseline is colocated."""
    if any(is_colocated(row.candidate.plan) for row in _baselines(ranked)):
        return []
    found = ((i, c) for i, c in enumerate(ranked.candidates, 1) if is_colocated(c.plan))
    return [Row(i, "best fully colocated", c) for i, c in list(found)[:1]]


def all_baselines(ranked: Ranked) -> tuple[Baseline, ...]:
    """What the job asks for among them."""
    return (*(() if ranked.own is None else (ranked.own,)), *ranked.baselines)


def without_plan(ranked: Ranked) -> Iterator[str]:
    """A line for each reason for which baselines cannot be had."""
    names: dict[str, list[str]] = {}
    for baseline in all_baselines(ranked):
        if baseline.candidate is None:
            names.setdefault(baseline.reason or "no plan", []).append(baseline.name)
    yield from (f"{', '.join(alike)}: {reason}" for reason, alike in names.items())


def next_best(ranked: Ranked, chosen: Candidate, most: int = OTHER_KINDS) -> list[Row]:
    """The fastest candidate of each other kind: another structure, or stages together that the chosen plan parts.

    Among them the fastest that changes nothing in learning, where the chosen plan does.
    """
    seen, found = {kind_of(chosen.plan)}, list[Row]()
    for i, candidate in enumerate(ranked.candidates, 1):
        kind = kind_of(candidate.plan)
        if kind not in seen:
            seen.add(kind)
            found.append(Row(i, candidate.name, candidate))
    harmless = [row for row in found if not row.candidate.changes][:1] if chosen.changes else []
    leading = [row for row in found if row not in harmless][: most - len(harmless)]
    return [row for row in found if row in leading or row in harmless]


def kind_of(plan: Plan) -> tuple[object, ...]:
    """What makes plans alike: which transforms made them, and which stages share devices, however many these are."""
    return tuple(sorted(t.name for t in applied(plan))), frozenset(g.stages for g in device_groups(plan))


def number_of(ranked: Ranked, candidate: Candidate | None) -> int | None:
    """The number of the candidate with this plan."""
    plans = (i for i, c in enumerate(ranked.candidates, 1) if candidate and c.plan == candidate.plan)
    return next(plans, None)


def speed_up(chosen: Candidate, other: Candidate) -> float:
    """Of the chosen plan against another: above 1 where it is faster."""
    return other.estimate.step.mean_seconds / chosen.estimate.step.mean_seconds


def notes(candidate: Candidate) -> str:
    """What one must know before taking a plan: what it changes in learning, and whether memory is tight."""
    learning, tight = learning_in_short(candidate.plan), forecast.is_tight(candidate.estimate)
    return ", ".join(filter(None, (learning, "tight" if tight else "")))


def _all_cells(rows: Sequence[Row], chosen: Candidate) -> Iterator[tuple[str, ...]]:
    """Of each row; one that is called as a row above says in which stages it differs from that."""
    above: dict[str, Plan] = {}
    for row in rows:
        plan = row.candidate.plan
        namesake = above.setdefault(row.label.removeprefix("▶").strip(), plan)
        yield _cells(row, chosen, "" if namesake == plan else f"other {', '.join(differing(namesake, plan))}")


def differing(plan: Plan, other: Plan) -> tuple[str, ...]:
    """Stages that another plan of the same name runs elsewhere or otherwise; what else differs where there is none."""
    own = {a.stage: a for a in plan.assignments}
    stages = tuple(a.stage for a in other.assignments if own.get(a.stage) != a)
    return stages or ("structure" if plan.applied != other.applied else "order",)


def _cells(row: Row, chosen: Candidate, differs: str) -> tuple[str, ...]:
    e, same = row.candidate.estimate, row.candidate.plan == chosen.plan
    marked = "▶" in row.label
    noted = ", ".join(filter(None, (differs, notes(row.candidate))))
    return (
        "" if row.number is None else str(row.number),
        row.label,
        seconds_text(e.step.mean_seconds),
        "" if marked else f"{speed_up(chosen, row.candidate):.2f}×",
        count_text(e.tokens_per_second),
        bytes_text(forecast.room(e)),
        "the same" if same and not marked else noted,
    )
