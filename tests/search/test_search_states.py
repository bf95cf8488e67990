"""States of the search against the plans that they stand for, on instances whose costs are drawn."""

from __future__ import annotations

import pytest

from rpeg.algorithms import grpo, ppo
from rpeg.plan import ItemKind, Plan, check, lower
from rpeg.schedule import list_order
from rpeg.search.anneal import Found, Search
from rpeg.search.core.layout import OFFLOAD, RELOAD, RUN, TRANSFER
from rpeg.search.decode import plan_of, shifts_of
from rpeg.search.problem import Permissions
from rpeg.search.synthetic import Drawn, search_in
from rpeg.sim import slot_shifts
from rpeg.sim.events import events
from rpeg.sim.howard import cycle_ratio
from rpeg.transforms import parse_all

CHAINS = (
    (),
    ("stream{chunk=30,unit=sample}", "stream{chunk=1,unit=minibatch}"),
    ("async{stage=generate,staleness=1,freshness=exact}",),
    ("async{stage=generate,staleness=2,freshness=exact}", "stream{chunk=20,unit=group}"),
)


def random_states(search: Search, chain: tuple[str, ...], count: int, seed: int) -> list[Found]:
    """Plans that a walk comes by."""
    structure = search.structure(parse_all(chain))
    assert structure is not None
    state = search.space.state(len(structure.names))
    state.size[0], state.mask[:] = search.space.units[0], 1
    return search.wandered(search.evaluate(structure, state), 6 * count, seed)[5::6]


def decoded(search: Search, found: Found) -> Plan:
    options = search.options(found)
    return plan_of(search.problem, found.structure, search.model, search.space, found.state, options)


def by_reference(search: Search, found: Found) -> float:
    """The mean cycle ratio of the decoded plan at the seconds that the tables have."""
    plan, names = decoded(search, found), found.structure.names
    lowered = lower(plan.graph, plan.assignments, plan.workload)
    items = search.items(found)
    edges = sorted(e.name for e in plan.graph.edges if e.model is not None and e.src != e.dst)
    rows = {}
    for item, (kind, stage) in enumerate(zip(items.kind, items.stage, strict=True)):
        if kind == RUN:
            rows[ItemKind.RUN, names[stage], item - int(found.structure.shape.first[stage])] = item
        elif kind == TRANSFER:
            rows[ItemKind.TRANSFER, edges[stage], 0] = item
        else:
            rows[{RELOAD: ItemKind.RELOAD, OFFLOAD: ItemKind.OFFLOAD}[kind], names[stage], 0] = item
    at = {}
    for slot in lowered.tasks:
        moved = slot.kind in (ItemKind.RELOAD, ItemKind.OFFLOAD)
        at[slot] = rows[slot.kind, slot.name.split(":")[0] if moved else slot.name, slot.part]
    assert len(at) == len(items.kind)
    generator = {part.stage for part in lowered.parts}
    slots = {
        (s, p): p
        for s, t in lowered.tasks.items()
        if s.kind is ItemKind.RUN and s.name in generator
        for p in t.covers
    }

    def times(draw: int | None) -> tuple[dict, dict]:
        durations = items.mean if draw is None else items.durations[draw]
        offsets = items.offset_mean if draw is None else items.offsets[draw]
        return (
            {slot: durations[i] for slot, i in at.items()},
            {key: offsets[p] for key, p in slots.items()},
        )

    order = list_order(lowered, slot_shifts(lowered, shifts_of(found.structure, found.state)), *times(None))
    plan = check(Plan(plan.graph, plan.cluster, plan.workload, plan.assignments, order, plan.applied))
    structure = events(lowered, plan.shifts, plan.order)
    ratios = [cycle_ratio(structure.timed(times(draw))).step_seconds for draw in range(search.count)]
    return sum(ratios) / len(ratios)


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("algorithm", [grpo, ppo])
def test_a_state_takes_as_long_as_its_plan(algorithm, chain) -> None:
    graph = algorithm.graph(algorithm.Hyper(kl_coefficient=0.1))
    search = search_in(graph, Drawn(3, (6,)), Permissions(staleness=2), draws=3)
    for found in random_states(search, chain, 4, seed=5):
        assert found.seconds == pytest.approx(by_reference(search, found), rel=1e-9)


def test_clusters_may_mix_kinds() -> None:
    search = search_in(ppo.graph(ppo.Hyper()), Drawn(4, (3, 2)), Permissions(staleness=1), draws=2)
    states = random_states(search, (), 6, seed=9)
    for found in states:
        assert found.seconds == pytest.approx(by_reference(search, found), rel=1e-9)
