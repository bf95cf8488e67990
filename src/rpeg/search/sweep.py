"""Sweeps: the best plan for a job at other sizes, on other devices, with other permissions and lengths."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import asdict, dataclass, replace
from itertools import chain, product
from typing import Any

import rpeg
from rpeg.errors import InputError
from rpeg.fields import Fields
from rpeg.search.budget import Budget, Progress
from rpeg.search.candidate import Candidate
from rpeg.search.changes import Change
from rpeg.search.infeasible import Infeasible
from rpeg.search.problem import Problem
from rpeg.search.rank import plan_job
from rpeg.sim import DeviceMemory

STEPS = 1000
"""Steps that device-hours and money are told for."""

FAILED = "planning failed"
"""How the reason of a row begins whose planning ended in a bug."""

Report = Callable[[Progress], None]


@dataclass(frozen=True)
class Point:
    """One combination of changes, in the order in which they are made."""

    changes: tuple[Change, ...]

    def apply(self, problem: Problem) -> Problem:
        for change in self.changes:
            problem = change.apply(problem)
        return problem


@dataclass(frozen=True)
class Outcome:
    """The best plan at a point. gap: to its tightest bound. headroom_bytes: of the fullest device or host, in `phase`.

    price: of `STEPS` steps in the user's currency, None where that of some node is unknown.
    learning: transforms that change what is learned.
    """

    plan: str
    applied: tuple[str, ...]
    learning: tuple[str, ...]
    step_seconds: float
    p50_seconds: float
    p95_seconds: float
    tokens_per_second: float
    price: float | None
    headroom_bytes: float
    phase: str
    gap: float
    mfu: float


@dataclass(frozen=True)
class Row:
    """A point's problem in figures, and its outcome or, in one line, why there is none.

    key: of all that the outcome depends on. response_tokens: the mean.
    """

    key: str
    kind: str
    devices: int
    staleness: int
    samples: int
    response_tokens: float
    planning_seconds: float = 0.0
    outcome: Outcome | None = None
    reason: str = ""

    @property
    def series(self) -> tuple[str, int, int, float]:
        """What rows that differ in their number of devices alone have in common."""
        return self.kind, self.staleness, self.samples, round(self.response_tokens, 3)

    @property
    def device_hours(self) -> float | None:
        """Of `STEPS` steps."""
        return None if self.outcome is None else STEPS * self.outcome.step_seconds * self.devices / 3600

    @property
    def tokens_per_second_per_device(self) -> float | None:
        return None if self.outcome is None else self.outcome.tokens_per_second / self.devices

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; `from_json` reads it back."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Row:
        """The row that `to_json` wrote. InputError names a wrong, missing or unknown field."""
        fields = Fields("row", data)
        outcome = fields.get("outcome", None)
        row = Row(
            fields.text("key"),
            fields.text("kind"),
            fields.count("devices"),
            fields.whole("staleness"),
            fields.count("samples"),
            fields.number("response_tokens"),
            fields.number("planning_seconds"),
            None if outcome is None else _outcome(outcome),
            fields.text("reason", least=0),
        )
        fields.finish()
        return row


def points(axes: Iterable[Sequence[Sequence[Change]]]) -> list[Point]:
    """All combinations of what the axes hold, changes that belong together each; the last axis varies fastest."""
    return [Point(tuple(chain.from_iterable(one))) for one in product(*(axis for axis in axes if axis))]


def swept(
    problem: Problem,
    at: Iterable[Point],
    *,
    seed: int = 0,
    budget: Budget | None = None,
    known: Mapping[str, Row] | None = None,
    pool: Executor | None = None,
    report: Callable[[Row], Report | None] = lambda row: None,
) -> Iterator[Row]:
    """A row for each point, in their order. One that cannot be planned says why, and the others go on.

    known: rows that need not be found again, by key. pool: plans all others at once; None plans one after the other.
    report: is given a row without outcome when it is waited for; what it returns is told of the search, without a pool.
    """
    prepared = [_prepared(problem, point, seed, budget, known or {}) for point in at]
    futures = {id(task): pool.submit(_planned, task) for task in prepared if pool and isinstance(task, _Task)}
    for task in prepared:
        if isinstance(task, Row):
            yield task
            continue
        told = report(task.row)
        yield _waited(task.row, futures[id(task)]) if pool else _planned(task, told)


@dataclass(frozen=True)
class _Task:
    """A row to be found, and what for."""

    row: Row
    problem: Problem
    seed: int
    budget: Budget | None


def _prepared(
    problem: Problem, point: Point, seed: int, budget: Budget | None, known: Mapping[str, Row]
) -> Row | _Task:
    try:
        changed = point.apply(problem)
    except InputError as error:
        return _impossible(problem, point, _one_line(error))
    key = _digest(repr((rpeg.__version__, changed, seed, budget)))
    return known[key] if key in known else _Task(_row(changed, key), changed, seed, budget)


def _planned(task: _Task, report: Report | None = None) -> Row:
    started = time.perf_counter()
    found = _tried(task, report)
    return replace(found, planning_seconds=time.perf_counter() - started)


def _tried(task: _Task, report: Report | None) -> Row:
    try:
        best = plan_job(task.problem, seed=task.seed, budget=task.budget, report=report).best
    except Infeasible as error:
        return replace(task.row, reason=_one_line(error.in_short))
    except InputError as error:
        return replace(task.row, reason=_one_line(error))
    except Exception as error:  # noqa: BLE001 - whatever one size dies of, the others are still wanted
        return _failed(task.row, error)
    return replace(task.row, outcome=_outcome_of(best))


def _waited(row: Row, future: Future[Row]) -> Row:
    try:
        return future.result()
    except BrokenExecutor as error:  # a process was killed, for its memory say
        return _failed(row, error)


def _failed(row: Row, error: Exception) -> Row:
    return replace(row, reason=f"{FAILED}: {type(error).__name__}: {_one_line(error)}")


def _outcome(data: object) -> Outcome:
    fields = Fields("outcome", data)
    price = fields.get("price")
    outcome = Outcome(
        fields.text("plan"),
        fields.texts("applied"),
        fields.texts("learning"),
        fields.number("step_seconds"),
        fields.number("p50_seconds"),
        fields.number("p95_seconds"),
        fields.number("tokens_per_second"),
        None if price is None else fields.number("price"),
        fields.number("headroom_bytes"),
        fields.text("phase"),
        fields.number("gap"),
        fields.number("mfu"),
    )
    fields.finish()
    return outcome


def _outcome_of(best: Candidate) -> Outcome:
    e = best.estimate
    fullest = min(e.memory, key=_headroom)
    each = best.plan.cluster.price_per_hour
    return Outcome(
        best.name,
        best.plan.applied,
        best.changes,
        e.step.mean_seconds,
        e.step.p50_seconds,
        e.step.p95_seconds,
        e.tokens_per_second,
        None if each is None else STEPS * e.step.mean_seconds / 3600 * each,
        _headroom(fullest),
        fullest.peak.phase,
        e.gap,
        e.mfu,
    )


def _headroom(memory: DeviceMemory) -> float:
    return memory.capacity_bytes - memory.peak.bytes


def _row(problem: Problem, key: str) -> Row:
    w = problem.workload
    return Row(
        key,
        "+".join(kind.name for kind in problem.cluster.kinds),
        len(problem.cluster),
        max(problem.permissions.choices),
        w.samples_per_prompt,
        w.response_lengths.mean,
    )


def _impossible(problem: Problem, point: Point, reason: str) -> Row:
    """The row of a point whose changes cannot all be made: with the figures of those that can."""
    for change in point.changes:
        try:
            problem = change.apply(problem)
        except InputError:
            continue
    return replace(_row(problem, _digest(repr(point))), reason=reason)


def _one_line(said: object) -> str:
    return " ".join(str(said).split())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]
