"""How good the search is: `python benchmarks/search.py small|planted|rate|removed|job`.

small: on small spaces (at most 10⁵ plans) against going through all of them. planted: instances at 64–2,048 devices
whose best plan is known by construction. rate: plans evaluated a second on one core, memory check and draws included.
removed: a job's search with each of its starts left out must still end at or below that start. job: one job file.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import time
from pathlib import Path

import numpy as np

from rpeg.algorithms import grpo, ppo
from rpeg.ir import Graph, Kind
from rpeg.job import load_job
from rpeg.search import from_job
from rpeg.search.anneal import Search
from rpeg.search.baselines.starts import wished
from rpeg.search.budget import Budget
from rpeg.search.exhaustive import MOST_PLANS, exhaustive, plans_in
from rpeg.search.hardware_plan import best_of, found_starts, search_of
from rpeg.search.problem import Permissions, Problem
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


def small(jobs: int, budget: Budget) -> None:
    """Optimum met, and how far off it was missed."""
    met, worst, count = 0, 0.0, 0
    for seed in range(40 * jobs):
        made = _small_instance(seed)
        if made is None:
            continue
        search, chains, plans = made
        truth = exhaustive(search, [s for c in chains if (s := search.structure(c)) is not None], 2)
        ends = best_of(search, budget, seed, found_starts(search, seed))
        gap = ends[0].seconds / truth.seconds - 1 if ends[0].fits else math.inf
        met, worst, count = met + (gap < 1e-6), max(worst, gap), count + 1
        print(
            f"{seed:4d} {plans:7d} plans  best {truth.seconds:8.4f} s  found {ends[0].seconds:8.4f} s  gap {gap:.4%}"
        )
        if count == jobs:
            break
    print(f"optimum met {met} of {count}, missed by {worst:.2%} at most")


def _small_instance(seed: int) -> tuple[Search, list[tuple[Transform, ...]], int] | None:
    """None for a seed whose space is too large, or in which nothing fits."""
    random = np.random.default_rng((seed, 7))
    graph = graphs()[int(random.integers(3))]
    units = ((2,), (3,), (1, 1), (2, 1))[int(random.integers(4))]
    permissions = Permissions(staleness=int(random.integers(0, 2)))
    model = Drawn(seed, units, choices=2, crowding=float(random.uniform(1.5, 5)))
    prompts, minibatches = ((15, 1), (30, 2), (30, 1))[int(random.integers(3))]
    w = Workload(prompts, 1, constant(16), lognormal(40, 128), minibatches)
    search = search_in(graph, model, permissions, islands=sum(units) + 2, workload=w)
    chains = _closure(search, 60)
    sizes = [plans_in(search, s, 2) for c in chains if (s := search.structure(c)) is not None]
    if sum(sizes) > MOST_PLANS:
        return None
    return search, chains, sum(sizes)


def _closure(search: Search, most: int) -> list[tuple[Transform, ...]]:
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


def planted(jobs: int, budget: Budget) -> None:
    """Within 1 % of what is known to be the best, and the seconds that it took."""
    within, times = 0, []
    for seed in range(jobs):
        search, best = _planted_instance(seed)
        began = time.perf_counter()
        ends = best_of(search, budget, seed, found_starts(search, seed))
        seconds = time.perf_counter() - began
        gap = ends[0].seconds / best - 1
        within, times = within + (gap <= 0.01), [*times, seconds]
        devices = sum(len(kind.ids) for kind in search.model.kinds)
        print(
            f"{seed:4d} {devices:5d} devices  planted {best:.4f} s  found {ends[0].seconds:.4f} s  {gap:7.3%}  "
            f"{seconds:.1f} s"
        )
    print(f"within 1 %: {within} of {jobs}; {max(times):.1f} s at most, {np.mean(times):.1f} s on average")


def _planted_instance(seed: int) -> tuple[Search, float]:
    """Generation and some assessment on some islands, the rest on the others, each busy all the time, a step apart."""
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


def rate(job: Path, steps: int = 20000) -> None:
    """Of random plans that a job's search goes through."""
    problem = from_job(load_job(job), 0)
    search = search_of(problem, 0)
    base = search.structure(wished(problem))
    assert base is not None
    state = search.space.state(len(base.names))
    state.size[0], state.mask[:] = search.space.units[0], 1
    here, random, found = search.evaluate(base, state), ctypes.c_uint64(1), []
    while len(found) < 64:
        moved = search.moved(here, random)
        if moved is not None:
            here = moved
            found.append(here)
    search.repeated(found, 1)
    began = time.process_time()
    search.repeated(found, steps // len(found))
    seconds = time.process_time() - began
    print(
        f"{job.name}: {len(problem.cluster)} devices, {len(found) * (steps // len(found)) / seconds:,.0f} plans a second"
    )


def removed(job: Path, budget: Budget) -> None:
    """Each start left out in turn."""
    problem = from_job(load_job(job), 0)
    search = search_of(problem, 0)
    begun = found_starts(search, 0)
    for left_out in begun:
        others = [one for one in begun if one is not left_out]
        best = best_of(search, budget, 1, others)[0]
        verdict = "at or below" if best.objective <= left_out.objective + 1e-9 else "ABOVE"
        print(f"without {left_out.name} ({left_out.seconds:.3f} s): {best.seconds:.3f} s, {verdict}")


def one(job: Path, budget: Budget) -> None:
    """Seconds of a whole search."""
    problem: Problem = from_job(load_job(job), 0)
    began = time.perf_counter()
    search = search_of(problem, 0)
    begun = found_starts(search, 0)
    middle = time.perf_counter()
    best = best_of(search, budget, 0, begun)[0]
    end = time.perf_counter()
    print(
        f"{job.name}: {len(problem.cluster)} devices; starts {middle - began:.1f} s, chains {end - middle:.1f} s"
    )
    for start in sorted(begun, key=lambda s: s.objective):
        print(f"  {start.seconds:9.3f} s  {start.name}{'' if start.fits else '  (does not fit)'}")
    print(f"  {best.seconds:9.3f} s  found: {', '.join(map(str, best.structure.applied)) or 'no transform'}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("small", "planted", "rate", "removed", "job"))
    parser.add_argument("--job", type=Path, default=Path("examples/plan-h100.yaml"))
    parser.add_argument("--jobs", type=int, default=50)
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--burst", type=int, default=4000)
    a = parser.parse_args()
    budget = Budget(a.chains, a.rounds, a.burst)
    if a.what in ("small", "planted"):
        {"small": small, "planted": planted}[a.what](a.jobs, budget)
    elif a.what == "rate":
        rate(a.job)
    else:
        {"removed": removed, "job": one}[a.what](a.job, budget)


if __name__ == "__main__":
    main()
