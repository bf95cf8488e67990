"""What is said of a chosen plan."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from plans_shown import local_plans, node_plans, on, shown

from rpeg.cluster import local, system
from rpeg.plan import Assignment, Devices, ItemKind, Plan, Slot
from rpeg.report import comparison, forecast, limits, structure, words
from rpeg.report.plan import misfits, report, what_if
from rpeg.report.tables import facts, percent, table
from rpeg.search import Baseline, Candidate, Effect, Misfit, Ranked
from rpeg.sim import Bound, Bounds, CycleRatio, Link, StepTime


def changed(after_seconds: float | None, learning: str = "") -> Effect:
    """Of a step of 70 s."""
    return Effect("9 nodes", "8 devices", learning, 70.0, None, after_seconds, "split 4+5", "too few", (8, 9))


def _slower(candidate: Candidate, times: float) -> Candidate:
    step = candidate.estimate.step
    return replace(
        candidate,
        estimate=replace(candidate.estimate, step=replace(step, mean_seconds=step.mean_seconds * times)),
    )


def _against(ranked: Ranked, *baselines: Baseline) -> Ranked:
    return replace(ranked, baselines=baselines)


@pytest.mark.parametrize("width", [80, 120])
def test_the_report_keeps_to_its_width_and_needs_no_colour(width: int) -> None:
    problem, ranked = local_plans()
    text = shown(*report(ranked, ranked.best, problem), width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "\x1b" not in text


def test_the_report_begins_with_the_plan_and_ends_with_what_is_assumed() -> None:
    problem, ranked = local_plans()
    text = shown(*report(ranked, ranked.best, problem, [changed(35.0)]), width=120)
    words = (
        "plan  ",
        "speed-up",
        "step  ",
        "memory  ",
        "structure  ",
        "limits  ",
        "bounds  ",
        "what if  ",
        "assumed  ",
    )
    places = [text.index(f"\n{word}") if "-" not in word else text.index(word) for word in words]
    assert all(a < b for a, b in pairwise(places))
    assert "[bold]ever[/bold]" in text


def test_baselines_stand_beside_the_plan_with_its_speed_up_against_them() -> None:
    _, ranked = local_plans()
    slow = Baseline("verl [sync]", _slower(ranked.candidates[1], 3.0))
    text = shown(comparison.comparison(_against(ranked, slow), ranked.best), width=120)
    (row,) = (line for line in text.splitlines() if "verl [sync]" in line)
    expected = comparison.speed_up(ranked.best, slow.candidate) if slow.candidate else 0
    assert f"{expected:.2f}×" in row
    assert expected > 2


def test_a_baseline_that_is_the_plan_is_said_to_be() -> None:
    _, ranked = local_plans()
    text = shown(
        comparison.comparison(_against(ranked, Baseline("greedy", ranked.best)), ranked.best), width=120
    )
    (row,) = (line for line in text.splitlines() if "greedy" in line)
    assert "the same" in row


def test_a_baseline_without_a_plan_gives_its_reason() -> None:
    _, ranked = local_plans()
    stale = "needs staleness 1"
    found = _against(
        ranked, Baseline("ReaL", None, "no layout"), Baseline("a", None, stale), Baseline("b", None, stale)
    )
    assert list(comparison.without_plan(found)) == ["ReaL: no layout", "a, b: needs staleness 1"]


def test_the_best_colocated_plan_is_there_where_no_baseline_is_colocated() -> None:
    _, ranked = local_plans()
    apart = next(c for c in ranked.candidates if not words.is_colocated(c.plan))
    together = next(c for c in ranked.candidates if words.is_colocated(c.plan))
    rows = comparison.compared(_against(ranked, Baseline("split", apart)), ranked.best)
    assert together in [row.candidate for row in rows]
    rows = comparison.compared(_against(ranked, Baseline("one layout", together)), ranked.best)
    assert [row.label for row in rows] == ["one layout"]


def test_next_best_plans_are_of_different_kinds() -> None:
    _, ranked = local_plans()
    rows = comparison.next_best(ranked, ranked.best, most=100)
    kinds = [comparison.kind_of(row.candidate.plan) for row in rows]
    assert len(set(kinds)) == len(kinds)
    assert comparison.kind_of(ranked.best.plan) not in kinds


def test_beside_a_stale_plan_is_one_that_changes_nothing_in_learning() -> None:
    _, ranked = local_plans()
    stale = next(c for c in ranked.candidates if c.changes)
    assert any(not row.candidate.changes for row in comparison.next_best(ranked, stale, most=1))
    assert comparison.notes(stale).startswith("staleness 1")


def test_the_ranking_marks_the_chosen_plan() -> None:
    _, ranked = local_plans()
    lines = shown(comparison.ranking(ranked, ranked.candidates[2]), width=160).splitlines()[2:]
    assert len(lines) == len(ranked.candidates)
    assert [i for i, line in enumerate(lines) if "▶" in line] == [2]


def test_each_change_of_structure_says_what_it_does_to_learning() -> None:
    plan = replace(
        local_plans()[1].best.plan,
        applied=("stream{chunk=4,unit=sample}", "async{stage=generate,staleness=2,freshness=exact}"),
    )
    stream, stale = structure.changes(plan)
    assert "4 samples at a time" in stream
    assert "nothing" in stream
    assert "weights up to 2 updates old" in stale
    assert "nothing is changed" in next(structure.changes(replace(plan, applied=())))


def test_what_another_plan_has_otherwise_is_told_by_stage() -> None:
    plan = node_plans()[1].best.plan
    changed = tuple(
        replace(a, microbatch=a.microbatch + 1) if a.stage == "train_actor" else a for a in plan.assignments
    )
    other = replace(plan, assignments=changed, applied=("stream{chunk=4,unit=sample}",))
    trained, streamed = structure.differences(plan, other)
    size = plan.assignment("train_actor").microbatch
    assert trained == f"train_actor: batch {size + 1} instead of {size}"
    assert streamed == "structure: stream{chunk=4,unit=sample} instead of no changes"
    assert list(structure.differences(plan, plan)) == []


def test_devices_are_told_by_what_runs_on_them() -> None:
    plan = local_plans()[1].best.plan
    moved = tuple(
        replace(a, block=Devices((1,) if a.stage == "reference" else (0,)))
        if isinstance(a.block, Devices)
        else a
        for a in plan.assignments
    )
    found = words.device_groups(replace(plan, assignments=moved))
    assert [(group.name, group.stages) for group in found] == [
        ("device 0", ("generate", "old_logprob", "train_actor")),
        ("device 1", ("reference",)),
    ]


@pytest.mark.parametrize(
    ("slot", "said"),
    [
        (Slot(ItemKind.RUN, "generate"), "generate"),
        (Slot(ItemKind.TRANSFER, "train_actor->generate:weights:actor"), "weights of actor to generate"),
        (Slot(ItemKind.TRANSFER, "generate->reward:rollouts"), "rollouts to reward"),
        (Slot(ItemKind.RELOAD, "generate:model"), "generate wakes up"),
        (Slot(ItemKind.OFFLOAD, "generate:model"), "generate leaves the devices"),
    ],
)
def test_items_are_called_in_words(slot: Slot, said: str) -> None:
    assert words.slot_words(slot) == said


def test_rows_of_one_name_say_in_which_stages_they_differ() -> None:
    _, ranked = node_plans()
    best = ranked.best
    changed = replace(best.plan.assignments[-1], microbatch=best.plan.assignments[-1].microbatch + 1)
    other = replace(best, plan=replace(best.plan, assignments=(*best.plan.assignments[:-1], changed)))
    assert comparison.differing(best.plan, other.plan) == (changed.stage,)
    text = shown(comparison.ranking(replace(ranked, candidates=(best, other)), best), width=120)
    assert f"other {changed.stage}" in text
    assert text.count("other ") == 1


def test_each_bound_is_told_with_its_gap_and_its_meaning_the_highest_first() -> None:
    found = replace(
        local_plans()[1].best.estimate,
        step=StepTime(12.0, 12.0, 12.0, 4),
        bounds=Bounds(
            Bound("lane", "device0", 6.0),
            Bound("dependencies", "generate → train_actor", 10.0),
            Bound("work", "local", 4.0),
        ),
    )
    highest, lane, work = limits.bounds(found)
    assert highest.startswith(
        "dependencies: 10 s at least (gap 20 %): generate → train_actor wait for each other"
    )
    assert lane.startswith("busiest device: 6 s at least (gap 100 %): device 0 is busy so long, in any order")
    assert work.startswith("total work: 4 s at least (gap 200 %): all devices of local")
    assert work.endswith("less takes a layout or structure that it has not")


def test_what_limits_a_step_is_told_by_shares_of_its_critical_cycle_and_where_they_run() -> None:
    plan = local_plans()[1].best.plan
    generate, train = Slot(ItemKind.RUN, "generate"), Slot(ItemKind.RUN, "train_actor")
    away = Slot(ItemKind.OFFLOAD, "train_actor:model")
    links = (
        Link(generate, train, 6.0, 0, "rollouts"),
        Link(train, away, 3.0, 0, "order"),
        Link(away, generate, 1.0, 1, "device0"),
        Link(generate, generate, 0.0, 0, "device0"),
    )
    found = replace(local_plans()[1].best.estimate, critical=CycleRatio(10.0, links))
    (line,) = limits.critical(found, plan)
    for part in ("generate", "60 %", "train_actor", "30 %", "train_actor leaves the devices 10 %", "device"):
        assert part in line
    assert list(limits.critical(replace(found, critical=CycleRatio(0.0, ())), plan)) == []


def test_idle_shares_are_what_occupancy_leaves() -> None:
    _, ranked = local_plans()
    for candidate in ranked.candidates:
        for group, share in limits.idle_shares(candidate.estimate, candidate.plan):
            busy = sum(candidate.estimate.occupancy[f"device{i}"] for i in group.ids) / len(group.ids)
            assert share == pytest.approx(max(0.0, 1 - busy))


def test_devices_that_nothing_uses_count_as_idle() -> None:
    _, ranked = local_plans()
    alone = next(c for c in ranked.candidates if c.construction.placement.name == "one device")
    busy = limits.busy_share(alone.estimate, alone.plan)
    assert busy == pytest.approx(alone.estimate.occupancy["device0"] / 2)
    assert "of all 2 devices" in forecast.speed(alone)


def test_devices_that_nothing_uses_are_said_to_be_paid_for() -> None:
    _, ranked = local_plans()
    alone = next(c for c in ranked.candidates if c.construction.placement.name == "one device")
    assert any("device 1" in line and "paid for" in line for line in limits.idle(alone.estimate, alone.plan))


def test_hours_and_money_are_of_a_thousand_steps_and_name_whose_price_it_is() -> None:
    _, ranked = node_plans()
    candidate = ranked.best
    seconds = candidate.estimate.step.mean_seconds
    assert forecast.device_hours(candidate) == pytest.approx(1000 * seconds / 3600 * 8)
    assert forecast.money(candidate) == pytest.approx(1000 * seconds / 3600 * 55.04)
    assert "p5.48xlarge" in forecast.price(candidate)


def test_without_a_price_the_report_says_how_to_give_one() -> None:
    _, ranked = node_plans()
    plan = replace(ranked.best.plan, cluster=replace(system("alps"), name="alps"))
    assert "prices: {gh200-96gb: 2.5}" in forecast.price(replace(ranked.best, plan=plan))


def test_the_models_own_error_stands_beside_a_step_on_described_hardware_only() -> None:
    problem, ranked = node_plans()
    assert any("published RL steps" in line for line in forecast.step(ranked.best.estimate, problem))
    problem, ranked = local_plans()
    lines = "\n".join(forecast.step(ranked.best.estimate, problem))
    assert "published" not in lines
    assert "0 % of the seconds of its stages rest on measurements on this machine" in lines


def test_kernels_that_stand_in_for_those_of_a_device_are_said() -> None:
    problem, ranked = node_plans()
    elsewhere = replace(problem, cluster=system("alps"))
    assert any(
        "gh200-96gb" in line and "h200" in line for line in forecast.step(ranked.best.estimate, elsewhere)
    )
    assert not any("stand in" in line for line in forecast.step(ranked.best.estimate, problem))


def test_memory_left_begins_with_the_tightest_phase_of_the_tightest_device() -> None:
    _, ranked = node_plans()
    estimate = ranked.best.estimate
    first = next(forecast.headroom(estimate))
    assert f"left in {estimate.tightest.peak.phase}" in first
    devices = [memory for memory in estimate.memory if not memory.host]
    assert forecast.room(estimate) == min(min(forecast.headroom_bytes(m).values()) for m in devices)


@pytest.mark.parametrize(
    ("effect", "words"),
    [
        (changed(60.0), "9 nodes: 60 s, 1.17 × as fast, with split 4+5; costs 8 devices"),
        (changed(70.0), "9 nodes: no faster; costs 8 devices"),
        (changed(None), "9 nodes: nothing that runs (too few); costs 8 devices"),
        (changed(80.0, "tokens"), "9 nodes: no faster; costs 8 devices; changes what is learned: tokens"),
    ],
)
def test_what_if_tells_what_a_change_brings_and_costs(effect: Effect, words: str) -> None:
    assert what_if(effect) == words


def test_misfits_give_their_reason_once() -> None:
    found = (Misfit("split", "too small"), Misfit("apart", "too small"), Misfit("meshes", "no layout"))
    assert list(misfits(found)) == ["split (and 1 others like it): too small", "meshes: no layout"]


def test_a_plan_that_the_job_asks_for_and_cannot_have_is_told_with_its_reason() -> None:
    _, ranked = local_plans()
    found = replace(ranked, own=Baseline("as the job says", None, "device 3 lacks 2 GiB"))
    assert list(comparison.without_plan(found)) == ["as the job says: device 3 lacks 2 GiB"]
    assert "device 3 lacks 2 GiB" in found.why_not_own


def test_cells_and_facts_are_shown_as_they_are() -> None:
    assert "[red]x[/red]" in shown(table(("name",), [("[red]x[/red]",)]))
    assert "[red]x[/red]" in shown(facts([("step", ["[red]x[/red]"]), ("none", [])]))
    assert "none" not in shown(facts([("step", ["1 s"]), ("none", [])]))
    assert percent(0.034) == "3 %"


def test_a_colocated_plan_is_one_whose_stages_share_all_devices() -> None:
    problem = on(local(2, 2**33))
    graph, cluster, workload = problem.graph, problem.cluster, problem.workload

    def placed(*blocks: tuple[int, ...]) -> Plan:
        named = zip([s.name for s in graph.stages if s.models], blocks, strict=True)
        return Plan(graph, cluster, workload, tuple(Assignment(n, Devices(b)) for n, b in named))

    models = sum(1 for s in graph.stages if s.models)
    together = placed(*[(0, 1)] * models)
    full = replace(together, assignments=(*together.assignments, *_hosts(problem.graph)))
    assert words.is_colocated(full)
    apart = placed((0,), *[(0, 1)] * (models - 1))
    assert not words.is_colocated(replace(apart, assignments=(*apart.assignments, *_hosts(problem.graph))))


def _hosts(graph: object) -> tuple[Assignment, ...]:
    from rpeg.plan import Host

    return tuple(Assignment(s.name, Host(0)) for s in graph.stages if not s.models)  # type: ignore[attr-defined]
