"""Chains of random transforms on the graph of every algorithm: what holds of each one."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from functools import cache

import pytest

from rpeg import algorithms
from rpeg.algorithms.pieces import with_evaluation
from rpeg.errors import PlanError
from rpeg.ir import Graph, Kind, Op, verify
from rpeg.plan import check
from rpeg.sim import simulate
from rpeg.text import parse, text
from rpeg.transforms import Changes, Transform, parse_all, transforms
from rpeg.transforms.ahead import GenerationAhead
from rpeg.verify import prove
from samples_of_plans import RandomCosts, assign, plan_of, remax, workload

CHAINS = 2000
SIMULATED = 84


@dataclass(frozen=True)
class Node:
    """A graph and the chain that made it of an algorithm's."""

    base: Graph
    graph: Graph
    chain: tuple[Transform, ...] = ()


def _graph(name: str, **hyper: object) -> Graph:
    module = algorithms.load(name)
    graph: Graph = module.graph(module.Hyper(**hyper))
    return graph


PROPOSED = tuple(
    kind for kind in transforms().values() if kind is not GenerationAhead
)  # it has no candidates


@cache
def bases() -> tuple[Graph, ...]:
    plain = tuple(map(_graph, algorithms.names()))
    return (*plain, with_evaluation(_graph("ppo"), 2), _graph("grpo", kl_in="none"), remax())


@cache
def grown() -> tuple[Node, ...]:
    """Each chain is another one and a random candidate more; no two are alike."""
    draw = random.Random(4)
    nodes = [Node(base, base) for base in bases()]
    seen = {(id(node.base), node.chain) for node in nodes}
    while len(nodes) < CHAINS:
        node = draw.choice(nodes)
        kind = draw.choice(PROPOSED)
        found = list(kind.candidates(node.graph)) if len(node.chain) < 6 else []
        if not found:
            continue
        transform = draw.choice(found)
        chain = (*node.chain, transform)
        if (id(node.base), chain) not in seen:
            seen.add((id(node.base), chain))
            nodes.append(Node(node.base, transform.apply(node.graph), chain))
    return tuple(nodes)


def test_every_transform_and_pairs_of_all_occur() -> None:
    names = {kind.name for kind in PROPOSED}
    assert {t.name for node in grown() for t in node.chain} == names
    pairs = {(a.name, b.name) for node in grown() for a, b in zip(node.chain, node.chain[1:], strict=False)}
    assert len(pairs) > 35  # of 49; some exclude each other: nothing can be shared twice


def test_every_chain_gives_a_sound_graph_that_is_read_back() -> None:
    for node in grown():
        assert verify(node.graph) is node.graph
        assert parse(text(node.graph)) == node.graph


def test_a_chain_that_is_read_back_gives_the_same_graph() -> None:
    for node in grown()[::10]:
        graph = node.base
        for transform in parse_all(map(str, node.chain)):
            changed = transform.apply(graph)
            assert changed != graph
            graph = changed
        assert graph == node.graph


Origin = tuple[str, str | None, tuple[tuple[str, int], ...]]


def _origins(graph: Graph) -> dict[str, Origin]:
    """Each datum with what gives it: the op, the model that it is of, and how old that may be."""
    found: dict[str, Origin] = {}
    for stage in graph.stages:
        delays = {e.model: e.delay for e in graph.weights_into(stage.name)}
        for call in stage.calls:
            ages = ((call.model, delays[call.model]),) if call.model in delays and call.model else ()
            found.update((datum, (op.name, call.model, ages)) for op in call.ops for datum in op.gives)
    return found


def _losses(graph: Graph) -> Counter[tuple[str | None, Op]]:
    """What trainers do to models beside giving data."""
    trainers = (s for s in graph.stages if s.kind is Kind.TRAIN)
    return Counter((c.model, op) for s in trainers for c in s.calls for op in c.ops if not op.gives)


def test_what_changes_the_schedule_alone_trains_the_same_by_the_same_data() -> None:
    checked: Counter[str] = Counter()
    for node in grown():
        if any(t.changes is not Changes.SCHEDULE for t in node.chain):
            continue
        assert _losses(node.graph) == _losses(node.base)
        before, after = _origins(node.base), _origins(node.graph)
        assert after == {datum: before[datum] for datum in after}
        checked.update(t.name for t in node.chain)
    assert set(checked) == {"fuse", "migrate", "prune", "split", "stream"}


def test_sharing_keeps_the_losses_and_how_old_weights_may_be() -> None:
    chains = [node for node in grown() if [t.name for t in node.chain] == ["share"]]
    assert chains
    for node in chains:
        before, after = _losses(node.base), _losses(node.graph)
        assert Counter(op for _, op in before.elements()) == Counter(op for _, op in after.elements())
        assert {model for model, _ in after} == {"actor"}

        def ages(graph: Graph) -> dict[str, int]:
            return {e.dst: e.delay for e in graph.edges if e.model and e.dst != e.src}

        assert ages(node.base) == ages(node.graph)


@pytest.mark.parametrize("slice_", range(6))
def test_chains_lower_simulate_and_are_proven(slice_: int) -> None:
    """On random placements with random times; what a plan's workload does not allow is refused with a reason."""
    draw = random.Random(slice_)
    proven = 0
    for node in draw.sample(grown(), SIMULATED // 6):
        blocks = {s.name: draw.choice([(0,), (1,), (0, 1), (2, 3)]) for s in node.graph.stages if s.models}
        blocks |= {s.name: (0, 1) for s in node.graph.stages if s.migrates}
        assigned = assign(node.graph, (0,), zero=draw.choice([0, 3]), **blocks)
        updates = 1 if any(t.name == "prune" for t in node.chain) else draw.choice([1, 2, 4])
        work = workload(prompts=8, samples_per_prompt=2, longest=16, minibatches=updates)
        try:
            plan = check(plan_of(node.graph, assigned, work, devices=4))
        except PlanError as error:
            if not any(rule in str(error) for rule in ("parts_are_supported", "migrated_responses_are_some")):
                raise
            continue
        proof = prove(simulate(plan, RandomCosts(slice_), 4, slice_))
        assert proof.holds, (list(map(str, node.chain)), proof.text())
        proven += 1
    assert proven >= 5
