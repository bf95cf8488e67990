from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plans import PLANS, asynchronous, colocated, run, split
from rpeg.errors import InputError
from rpeg.plan import Item
from rpeg.report.occupancy import lane_accounts, steady_window, step_seconds
from rpeg.trace import fill_steps, step_ends


def constant(item: Item) -> float:
    return {"generate": 4.0, "train_actor": 2.0}.get(item.name, 0.5)


def test_a_window_holds_whole_steady_steps() -> None:
    trace = run(split(), 6, seconds=constant)
    window = steady_window(trace)
    assert (window.first_step, window.steps) == (1, 5)
    ends = step_ends(trace)
    assert (window.start_seconds, window.end_seconds) == (ends[0], ends[5])
    assert sum(step_seconds(trace, window)) == pytest.approx(window.seconds)
    assert steady_window(trace, skip=4).steps == 2


def test_an_asynchronous_pipeline_takes_longer_to_fill() -> None:
    trace = run(asynchronous(), 6)
    assert fill_steps(trace.plan) == 2
    assert steady_window(trace).first_step == 2


def test_a_step_counts_when_all_its_training_has_ended() -> None:
    trace = run(split(), 3)
    last = [e for e in trace.entries if e.what == "finished" and e.item.name == "train_critic"][-1]
    cut = replace(trace, entries=tuple(e for e in trace.entries if e is not last), complete=False)
    assert list(step_ends(cut)) == [0, 1]


def test_too_short_a_trace_says_how_many_steps_it_needs() -> None:
    with pytest.raises(InputError, match="trained 1 steps and the first 1 do not count: at least 2"):
        steady_window(run(split(), 1))
    with pytest.raises(InputError, match="skip fewer"):
        steady_window(run(split(), 4), skip=4)


@pytest.mark.parametrize("name", sorted(PLANS))
@given(seed=st.integers(0, 1000), ahead=st.floats(-1e5, 1e5))
@settings(max_examples=5, deadline=None)
def test_busy_and_idle_add_up_to_wall_time(name: str, seed: int, ahead: float) -> None:
    trace = run(PLANS[name](), 5, seed=seed, clocks={"device0": ahead})
    window = steady_window(trace)
    for account in lane_accounts(trace, window):
        assert account.wall_seconds == pytest.approx(window.seconds)
        assert abs(account.unaccounted_seconds) <= 1e-6 * account.wall_seconds
        assert 0 <= account.occupancy <= 1 + 1e-6


def test_an_account_by_hand() -> None:
    """Without latency a colocated step is the sum of its stages, and a device idles while the host works."""
    trace = run(colocated(), 5, seconds=constant, latency_seconds=0.0)
    window = steady_window(trace)
    account = next(a for a in lane_accounts(trace, window) if a.lane == "device0")
    busy = dict(account.busy)
    assert busy["generate"] == pytest.approx(4.0 * window.steps)
    assert busy["train_actor"] == pytest.approx(2.0 * window.steps)
    assert account.busy[0][0] == "generate"
    assert account.idle_seconds > 0


def test_overlapping_items_are_not_hidden() -> None:
    trace = run(colocated(), 4)
    spans = tuple(
        replace(s, end_seconds=s.end_seconds + 0.02) if s.item.name == "generate" else s for s in trace.spans
    )
    entries = tuple(replace(e, seconds=e.seconds + 1) if e.what == "finished" else e for e in trace.entries)
    broken = replace(trace, spans=spans, entries=entries)
    accounts = lane_accounts(broken, steady_window(broken))
    assert any(a.unaccounted_seconds < 0 for a in accounts)
