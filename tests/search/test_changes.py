"""Changes do what they say, and say what they cost and change in learning."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import TINY, problem

from rpeg.cluster import slowest_link, system
from rpeg.errors import InputError
from rpeg.search import Problem
from rpeg.search.changes import (
    Change,
    Devices,
    FasterLinks,
    MaxResponse,
    MeanResponse,
    Memory,
    Microbatch,
    OfKind,
    Price,
    Prompts,
    Samples,
    SharedBackbone,
    ShorterTail,
    Staleness,
    more_nodes,
)
from rpeg.workload import Lengths, constant, lognormal

LOCAL = problem()
RENTED = replace(LOCAL, cluster=system("dgx-h100", 2))
SCHEDULE = (
    Microbatch(2),
    Devices(4),
    Devices(24),
    FasterLinks(),
    OfKind("h200"),
    Price("h100", 2.0),
    Memory(2**33),
)
LEARNING = (
    ShorterTail(),
    MaxResponse(12),
    MeanResponse(4),
    Samples(4),
    Prompts(16),
    Staleness(2),
    SharedBackbone(),
)


@pytest.mark.parametrize("change", [*SCHEDULE, *LEARNING], ids=repr)
def test_a_change_makes_another_problem_and_says_so(change: Change) -> None:
    base = LOCAL if isinstance(change, Memory) else RENTED
    changed = change.apply(base)
    assert changed != base
    assert change.words(base)
    assert change.cost(base)
    assert bool(change.learning(base)) == (change in LEARNING)


def test_what_a_change_names_is_what_changes() -> None:
    assert len(Devices(24).apply(RENTED).cluster) == 24
    assert Devices(24).words(RENTED) == "24 devices (3 nodes)"
    assert Devices(24).cost(RENTED) == "8 devices more, 55.04 an hour more"
    assert Devices(1).apply(LOCAL).cluster.device(0).kind.memory_bytes == 4 * 2**30
    assert Memory(2**33).apply(LOCAL).cluster.device(1).kind.memory_bytes == 2**32
    assert Staleness(2).apply(LOCAL).permissions.choices == (0, 1, 2)
    wished = replace(LOCAL, permissions=replace(LOCAL.permissions, wished_staleness=0))
    assert Staleness(2).apply(wished).permissions.choices == (2,)
    assert {"actor", "reference"} == {m.name for m in SharedBackbone().apply(LOCAL).graph.models}
    assert MaxResponse(12).apply(LOCAL).workload.response_lengths.maximum == 12
    fast, slow = (slowest_link(p.cluster) for p in (FasterLinks(3).apply(RENTED), RENTED))
    assert fast.bandwidth_bytes_per_second == 3 * slow.bandwidth_bytes_per_second


def test_another_kind_is_as_many_devices_at_its_own_price() -> None:
    for name in ("h200", "hgx-h200", "gb200"):
        cluster = Price(name, 4.0).apply(OfKind(name).apply(RENTED)).cluster
        assert len(cluster) == 16
        assert cluster.price_per_hour == pytest.approx(64)
    assert len(OfKind("h200", 24).apply(RENTED).cluster) == 24
    assert OfKind("h200").cost(RENTED).endswith("an hour more")
    assert "not known" in OfKind("b300").cost(RENTED)


def test_more_nodes_are_devices_where_there_are_no_whole_ones() -> None:
    assert more_nodes(RENTED) == Devices(24)
    assert more_nodes(replace(RENTED, cluster=system("dgx-h100", devices=2))) == Devices(3)
    assert more_nodes(LOCAL) == Devices(3)


@pytest.mark.parametrize(
    ("change", "base", "words"),
    [
        (OfKind("h200"), LOCAL, "processes of this machine"),
        (OfKind("h1000"), RENTED, "Did you mean"),
        (FasterLinks(), LOCAL, "this machine"),
        (FasterLinks(), replace(RENTED, cluster=system("dgx-h100", devices=1)), "no links"),
        (Memory(2**40), RENTED, "another kind"),
        (Devices(12), RENTED, "Nearest"),
        (SharedBackbone(), problem("grpo"), "no actor and critic"),
        (
            ShorterTail(),
            replace(LOCAL, workload=replace(LOCAL.workload, response_lengths=constant(8))),
            "no tail",
        ),
    ],
)
def test_what_cannot_be_is_refused(change: Change, base: Problem, words: str) -> None:
    with pytest.raises(InputError, match=words):
        change.apply(base)


def test_models_of_different_shape_share_nothing() -> None:
    shapes = {**LOCAL.facts.architectures, "critic": replace(TINY, layers=3)}
    with pytest.raises(InputError, match="of the same shape"):
        SharedBackbone().apply(replace(LOCAL, facts=replace(LOCAL.facts, architectures=shapes)))


TAIL = (st.floats(200, 4000), st.floats(1.5, 3.5))


def tail(mean: float, times: float) -> Lengths:
    return lognormal(mean, int(20 * mean), p95=times * mean)


@settings(max_examples=12)
@given(*TAIL, st.floats(0.2, 1.0))
def test_a_shorter_tail_has_the_same_mean(mean: float, times: float, share: float) -> None:
    before = tail(mean, times)
    after = before.with_tail(share)
    ratio = before.percentile(99) / before.percentile(50)
    assert after.mean == pytest.approx(before.mean, rel=0.01)
    assert after.percentile(99) / after.percentile(50) == pytest.approx(max(1.0, share * ratio), rel=0.05)
    assert after.maximum <= before.maximum + 1


@settings(max_examples=12)
@given(*TAIL, st.floats(50, 20_000))
def test_scaled_lengths_keep_their_shape(mean: float, times: float, scaled: float) -> None:
    before = tail(mean, times)
    after = before.scaled(scaled)
    assert after.mean == pytest.approx(scaled, rel=0.02)
    assert after.percentile(95) / after.mean == pytest.approx(before.percentile(95) / before.mean, rel=0.05)
