"""What rests in host memory between its runs: its items, their arcs, and what the order puts side by side."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings

from random_plans import plans
from rpeg.plan import ItemKind, Lane, Lowered, Plan, Slot, Turn, awake, lower, side_by_side, together
from samples_of_plans import assign, plan_of, ppo


def _plan(*devices: int, **offload: str) -> Plan:
    graph = ppo(2)
    assignments = assign(graph, devices or (0,))
    own = tuple(replace(a, offload=offload.get(a.stage, "none")) for a in assignments)
    return plan_of(graph, own)


def _lowered(plan: Plan) -> Lowered:
    return lower(plan.graph, plan.assignments, plan.workload)


def _names(lowered: Lowered) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(rest.name, rest.stage, rest.stages) for rest in lowered.rests]


def _lane(plan: Plan, name: str = "device0") -> list[str]:
    turns = next(lane.turns for lane in plan.order if lane.name == name)
    return [t.slot.name if t.slot.kind is ItemKind.RUN else f"{t.slot.kind} {t.slot.name}" for t in turns]


def test_nothing_rests_where_nothing_is_offloaded() -> None:
    lowered = _lowered(_plan())
    assert lowered.rests == ()
    assert {slot.kind for slot in lowered.tasks} == {ItemKind.RUN}


def test_a_frozen_model_comes_before_its_stage_and_goes_after_it() -> None:
    plan = _plan(reference="all")
    lowered = _lowered(plan)
    assert _names(lowered) == [("reference:model", "reference", ("reference",))]
    reload, offload = (Slot(kind, "reference:model") for kind in (ItemKind.RELOAD, ItemKind.OFFLOAD))
    stage = Slot(ItemKind.RUN, "reference")
    moves = {(a.src, a.dst, a.delay, a.why) for a in lowered.arcs if {reload, offload} & {a.src, a.dst}}
    assert moves == {
        (reload, stage, 0, "reload"),
        (stage, offload, 0, "order"),
        (offload, reload, 1, "order"),
    }
    assert lowered.tasks[reload].lanes == lowered.tasks[stage].lanes


def test_who_shares_a_trainers_memory_rests_with_it() -> None:
    """The critic's values; what scores with the actor stays, for only its optimizer rests."""
    lowered = _lowered(_plan(train_critic="all", train_actor="optimizer"))
    assert [name for name, _, _ in _names(lowered)] == [
        "values:model",
        "train_actor:optimizer",
        "train_critic:model",
    ]


def test_an_engine_of_its_own_sleeps_though_its_weights_are_the_trainers() -> None:
    assert _names(_lowered(_plan(generate="all"))) == [("generate:model", "generate", ("generate",))]


def test_a_copy_for_several_stages_is_there_for_its_transfer_and_all_of_them() -> None:
    plan = plan_of(
        ppo(2),
        tuple(
            replace(a, offload="all" if a.stage == "generate" else "none")
            for a in assign(ppo(2), (1,), generate=(0,), evaluate=(0,))
        ),
    )
    lowered = _lowered(plan)
    (rest,) = lowered.rests
    assert (rest.stages, rest.copies) == (("generate", "evaluate"), ("train_actor->generate:weights:actor",))
    assert _lane(plan) == [
        "reload generate:model",
        "transfer train_actor->generate:weights:actor",
        *sorted(("generate", "evaluate"), key=_lane(plan).index),
        "offload generate:model",
    ]


def test_a_replica_brings_its_own_and_a_gang_all_at_once() -> None:
    lowered = _lowered(_plan(0, 1, reference="all", train_actor="all"))
    held = {str(slot): task.lanes for slot, task in lowered.tasks.items() if slot.kind is ItemKind.RELOAD}
    assert held["reload reference:model[part 0, replica 1]"] == ("device1",)
    assert held["reload train_actor:model[part 0, replica 0]"] == ("device0", "device1")


def test_derived_orders_keep_nothing_longer_than_its_runs() -> None:
    plan = _plan(generate="all", reference="all", train_actor="all", train_critic="all")
    lowered = _lowered(plan)
    for lane in plan.order:
        assert side_by_side(lane, lowered) == frozenset()
        assert all(len(names) == 1 for names in together(lane, lowered))
    for name in ("generate", "reference", "train_actor", "train_critic"):
        place = _lane(plan).index(name)
        assert _lane(plan)[place - 1 : place + 2] == [f"reload {name}:model", name, f"offload {name}:model"]


@settings(max_examples=60, deadline=None)
@given(plans())
def test_what_an_item_needs_is_there_in_every_order_that_passes(plan: Plan) -> None:
    lowered = _lowered(plan)
    for lane in plan.order:
        there = awake(lane, lowered)
        for turn in lane.turns:
            for rest in lowered.rests:
                if rest.uses(turn.slot):
                    assert rest.name in there[turn.slot]


def test_what_overlaps_by_the_order_is_told() -> None:
    """a is brought, then b, before a goes; a period goes on with itself: c is there at its end and its begin."""
    plan = _plan(reference="all", train_actor="all")
    lowered = _lowered(plan)
    (lane,) = (lane for lane in plan.order if lane.name == "device0")
    reload, offload = (Slot(kind, "reference:model") for kind in (ItemKind.RELOAD, ItemKind.OFFLOAD))
    turns = [turn for turn in lane.turns if turn.slot.name != "reference:model"]
    early = Lane("device0", (Turn(reload), *turns, Turn(offload)))
    assert ("train_actor", "reference:model") in side_by_side(early, lowered)
    assert ("reference", "reference:model") not in side_by_side(early, lowered)
    assert frozenset(("reference:model", "train_actor:model")) in together(early, lowered)
    around = Lane("device0", (turns[0], Turn(offload, 1), *turns[1:-1], Turn(reload), turns[-1]))
    there = awake(around, lowered)
    assert [("reference:model" in there[t.slot]) for t in around.turns] == [
        True,
        True,
        *(False for _ in turns[1:-1]),
        True,
        True,
    ]
