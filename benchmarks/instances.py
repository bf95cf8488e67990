"""Instances of the search whose best plan is known: by going through all plans, or by construction."""

from __future__ import annotations

import numpy as np

from rpeg.algorithms import grpo, ppo
from rpeg.ir import Graph, Kind
from rpeg.search.anneal import Search
from rpeg.search.baselines.starts import wished
from rpeg.search.exhaustive import MOST_PLANS, plans_in
from rpeg.search.problem import Permissions
from rpeg.search.structures import neighbours
from rpeg.search.synthetic import Drawn, Planted, search_in
from rpeg.transforms import Transform
from rpeg.workload import Workload, constant, lognormal


def graphs() -> tuple[Graph, ...]:
    """Of few stages, for small spaces."""
    return (
        grpo.graph(grpo.Hyper(kl_coefficient=0.0)),
        grpo.graph(grpo.Hyper(kl_coefficient=0.1)),
        ppo.graph(ppo.Hyper(kl_coefficient=0.0)),
    )


def small_instance(seed: int) -> tuple[Search, list[tuple[Transform, ...]], int] | None:
    """A search, all its chains of transforms, and its number of plans; None for a seed whose space is too large."""
    random = np.random.default_rng((seed, 7))
    graph = graphs()[int(random.integers(3))]
    units = ((2,), (3,), (1, 1), (2, 1))[int(random.integers(4))]
    permissions = Permissions(staleness=int(random.integers(0, 2)))
    model = Drawn(seed, units, choices=2, crowding=float(random.uniform(1.5, 5)))
    prompts, minibatches = ((15, 1), (30, 2), (30, 1))[int(random.integers(3))]
    w = Workload(prompts, 1, constant(16), lognormal(40, 128), minibatches)
    search = search_in(graph, model, permissions, islands=sum(units) + 2, workload=w)
    chains = closure(search, 60)
    sizes = [plans_in(search, s, 2) for c in chains if (s := search.structure(c)) is not None]
    return None if sum(sizes) > MOST_PLANS else (search, chains, sum(sizes))


def closure(search: Search, most: int) -> list[tuple[Transform, ...]]:
    """All chains of transforms that can be reached, by the graph that they make."""
    found: dict[Graph, tuple[Transform, ...]] = {}
    queue = [wished(search.problem)]
    while queue and len(found) < most:
        chain = queue.pop(0)
        structure = search.structure(chain)
        if structure is None or structure.graph in found:
            continue
        found[structure.graph] = chain
        queue += neighbours(search.problem, structure)
    return list(found.values())


def planted_instance(seed: int) -> tuple[Search, float]:
    """A search and its best step: generation and some assessment on some islands, the rest on the others, each busy all
    the time, a step apart."""
    random = np.random.default_rng((seed, 11))
    graph = (graphs()[1], ppo.graph(ppo.Hyper(kl_coefficient=0.1)))[seed % 2]
    devices, units, step = 64 * 2 ** int(random.integers(0, 6)), 16, 10.0
    first = int(random.integers(2, units - 1))
    beside = {"generate"} | ({"reference"} if random.random() < 0.5 else set())
    sides: dict[bool, list[str]] = {True: [], False: []}
    for stage in graph.stages:
        if stage.models:
            sides[stage.name in beside].append(stage.name)
    host = sum(0.002 for stage in graph.stages if stage.kind is Kind.HOST)
    seconds = {}
    for side, names in sides.items():
        moved = 0.011 if side else host
        shares = random.dirichlet(np.full(len(names), 2.0))
        free = step - moved - 0.001 * len(names)
        seconds.update({name: float(free * share) for name, share in zip(names, shares, strict=True)})
    where = {name: first if side else units - first for side, names in sides.items() for name in names}
    model = Drawn(seed, (units,), devices // units, choices=3, planted=Planted(where, seconds))
    return search_in(graph, model, Permissions(staleness=1), draws=4), step
