"""The ways of running a stage that a search keeps are those that pricing every one of them would keep."""

from __future__ import annotations

import pytest

from rpeg.algorithms import ppo
from rpeg.architecture import named
from rpeg.cluster import system
from rpeg.ir import Kind
from rpeg.plan import Devices
from rpeg.search import Permissions, Problem
from rpeg.search.choices import layouts
from rpeg.search.hardware_plan import search_of
from rpeg.search.ways import Drafted, Way, batches_of, best, by_draw, undominated
from rpeg.sim import Facts
from rpeg.sim.hardware.many import Choices
from rpeg.workload import Workload, lognormal

WORK = Workload(256, 1, lognormal(200, 500), lognormal(800, 3000), minibatches=4)


def problem(actor: str, trainer: str) -> Problem:
    graph = ppo.graph(ppo.Hyper())
    shapes = {m.name: named("Llama-3.1-8B" if m.name == "critic" else actor) for m in graph.models}
    facts = Facts(shapes, "bfloat16", trainer=trainer)
    return Problem(graph, system("dgx-h100", nodes=4), WORK, facts, 16, Permissions())


@pytest.mark.parametrize("wished", [frozenset(), frozenset({(8, 4, 1, 1, 1, 0)})])
@pytest.mark.parametrize(
    ("actor", "trainer"),
    [("Llama-3.1-8B", "flash"), ("Qwen3-30B-A3B", "flash"), ("Llama-3.1-8B", "megatron")],
)
def test_no_way_that_was_not_priced_would_have_been_kept(
    actor: str, trainer: str, wished: frozenset[tuple[int, ...]]
) -> None:
    search = search_of(problem(actor, trainer), 0)
    structure, model = search.structure(()), search.model
    assert structure is not None
    kind = model.kinds[0]
    for profile in structure.profiles:
        if profile.stage.kind not in (Kind.TRAIN, Kind.INFERENCE):
            continue
        for devices in (32, 8):
            possible = layouts(search.problem, profile.stage, devices, kind.width, kind.width)
            ways = model.ways(profile, Devices(kind.ids[:devices]), possible)
            kept = best(ways, profile, kind.capacity_bytes, wished)
            plain = undominated(
                sorted(_all(ways, profile, kind.capacity_bytes), key=lambda one: one.order), wished
            )
            assert [one.alone.assignment for one in kept] == [one.alone.assignment for one in plain]
            assert devices == 8 or len(kept) > 1


def _all(ways: list[Way], profile, capacity_bytes: float) -> list[Drafted]:
    choices = Choices([way.alone for way in ways], batches_of(profile))
    priced = (
        Drafted(way.alone, by_draw(choices.seconds(i), profile), way.taken) for i, way in enumerate(ways)
    )
    return [one for one, way in zip(priced, ways, strict=True) if way.fits(capacity_bytes)]
