"""Sweeps: a row for every point, whatever becomes of the others; the cheapest that is fast enough."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import problem

from rpeg.errors import InputError
from rpeg.search import Problem, Ranked, plan_job, sweep
from rpeg.search.changes import Devices, OfKind, Staleness
from rpeg.search.sweep import FAILED, STEPS, Outcome, Point, Row, points, swept
from rpeg.search.target import cheapest, efficiency

GIVEN = problem("grpo", prompts=4)
POINTS = points([[(Devices(1),), (Devices(2),)], [(Staleness(0),), (Staleness(1),)]])


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return list(swept(GIVEN, POINTS))


def test_each_row_is_the_best_plan_of_its_point(rows: list[Row]) -> None:
    assert [(row.devices, row.staleness) for row in rows] == [(1, 0), (1, 1), (2, 0), (2, 1)]
    for row, point in zip(rows, POINTS, strict=True):
        best = plan_job(point.apply(GIVEN)).best
        assert row.outcome is not None
        assert row.outcome.plan == best.name
        assert row.outcome.step_seconds == best.estimate.step.mean_seconds
        assert row.outcome.headroom_bytes == min(
            m.capacity_bytes - m.peak.bytes for m in best.estimate.memory
        )
        assert row.device_hours == pytest.approx(row.devices * row.outcome.step_seconds * STEPS / 3600)
    assert efficiency(rows[0], rows) == 1


def test_rows_round_trip(rows: list[Row]) -> None:
    for row in rows:
        assert Row.from_json(json.loads(json.dumps(row.to_json()))) == row


def test_known_rows_are_not_planned_again(rows: list[Row], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "plan_job", None)
    assert list(swept(GIVEN, POINTS, known={row.key: row for row in rows})) == rows


def test_keys_tell_problems_seeds_and_points_apart(rows: list[Row], monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> Ranked:
        raise InputError("no")

    monkeypatch.setattr(sweep, "plan_job", fails)
    other = [row.key for seed in (0, 1) for row in swept(replace(GIVEN, microbatch=4), POINTS, seed=seed)]
    own = [row.key for seed in (0, 1) for row in swept(GIVEN, POINTS, seed=seed)]
    assert len({*other, *own}) == 16
    assert own[:4] == [row.key for row in rows]


@pytest.mark.parametrize(
    ("error", "reason"),
    [(InputError("too\nlarge"), "too large"), (ZeroDivisionError("by 0"), f"{FAILED}: ZeroDiv")],
)
def test_one_that_fails_does_not_lose_the_others(
    error: Exception, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: Callable[..., Ranked] = plan_job

    def sometimes(given: Problem, **options: object) -> Ranked:
        if len(given.cluster) == 1:
            raise error
        return planned(given, **options)

    monkeypatch.setattr(sweep, "plan_job", sometimes)
    first, second = swept(GIVEN, points([[(Devices(1),), (Devices(2),)]]))
    assert first.outcome is None
    assert first.reason.startswith(reason)
    assert second.outcome is not None


def test_a_process_that_dies_is_said() -> None:
    class Dead(Executor):
        def submit(self, *_: object, **__: object) -> Future[Row]:  # type: ignore[override]
            future = Future[Row]()
            future.set_exception(BrokenExecutor("killed"))
            return future

    found = list(swept(GIVEN, POINTS, pool=Dead()))
    assert [row.reason for row in found] == [f"{FAILED}: BrokenExecutor: killed"] * 4


def test_points_that_cannot_be_say_why() -> None:
    (row,) = swept(GIVEN, [Point((Devices(1), OfKind("h100")))])
    assert "processes of this machine" in row.reason
    assert row.devices == 1


def test_what_does_not_fit_says_so_in_one_line() -> None:
    (row,) = swept(problem("grpo", memory_bytes=2**28), [Point((Devices(1),))])
    assert row.reason.startswith("nothing fits; the nearest,")
    assert "GiB in phase" in row.reason
    assert "\n" not in row.reason


def made(devices: int, seconds: float | None, price: float | None) -> Row:
    outcome = None
    if seconds is not None:
        outcome = Outcome(
            "colocated", (), (), seconds, seconds, seconds, 100 / seconds, price, 1.0, "update", 0, 0
        )
    return Row(f"{devices} {seconds} {price}", "h100", devices, 0, 1, 100.0, outcome=outcome)


rows_of = st.lists(
    st.builds(made, st.integers(1, 64), st.none() | st.floats(1, 100), st.floats(1, 100)), max_size=8
)


@given(rows_of, st.floats(1, 100))
def test_the_cheapest_meets_the_target_and_none_that_does_is_cheaper(found: list[Row], target: float) -> None:
    choice = cheapest(found, target)
    meeting = [row for row in found if row.outcome and row.outcome.step_seconds <= target]
    assert (choice.row is None) == (not meeting)
    if choice.row is not None and choice.row.outcome is not None:
        assert choice.row in meeting
        assert all(choice.row.outcome.price <= row.outcome.price for row in meeting)  # type: ignore[operator, union-attr]
    planned = [row.outcome.step_seconds for row in found if row.outcome]
    assert (choice.fastest is None) == (not planned)
    if choice.fastest is not None and choice.fastest.outcome is not None:
        assert choice.fastest.outcome.step_seconds == min(planned)


def test_device_hours_decide_where_a_price_is_not_known() -> None:
    rows = [made(8, 10.0, None), made(1, 40.0, 1000.0)]
    choice = cheapest(rows, 100.0)
    assert not choice.by_price
    assert choice.row is rows[1]


def test_efficiency_is_against_the_smallest_size_with_a_plan() -> None:
    rows = [made(4, None, None), made(8, 10.0, None), made(32, 5.0, None)]
    assert [efficiency(row, rows) for row in rows] == [None, 1.0, 0.5]
