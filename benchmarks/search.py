"""How good the search is: `python benchmarks/search.py small|planted|rate|removed|scale`; kept in results/search.json.

small: 50 seeded random jobs of at most 10⁵ plans each, against going through all of them. planted: 50 instances at
64–2,048 devices whose best plan is known by construction. rate: plans evaluated a second on one core, at 8 and at 2,048
devices, memory check and draws included. removed: the search of a job with each of its starts, and each baseline of
its own, left out must still end at or below it. scale: processor seconds to plan, and the gap, from 8 to 2,048 devices.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from instances import planted_instance, small_instance
from rpeg.cluster import system
from rpeg.job import load_job
from rpeg.search import Budget, Problem, from_job, plan_job
from rpeg.search.anneal import Found, Search
from rpeg.search.baselines.metropolis import metropolis
from rpeg.search.baselines.one_by_one import best_of_random, greedy
from rpeg.search.baselines.starts import wished
from rpeg.search.exhaustive import exhaustive
from rpeg.search.hardware_plan import best_of, found_starts, search_of
from rpeg.search.structure import Structure
from rpeg.search.structures import neighbours

EXAMPLES = Path(__file__).parents[1] / "examples"
OUT = Path(__file__).resolve().parent / "results" / "search.json"
PPO, GRPO = EXAMPLES / "plan-h100.yaml", EXAMPLES / "plan-gh200.yaml"
RATIO, FREELY = 1e-6, 10_000


def small(budget: Budget, count: int) -> dict[str, Any]:
    """Optimum met, and how far off it was missed."""
    rows: list[dict[str, Any]] = []
    for seed in range(60 * count):
        made = small_instance(seed)
        if made is None:
            continue
        search, chains, plans = made
        truth = exhaustive(search, [s for c in chains if (s := search.structure(c)) is not None], 2)
        found = best_of(search, budget, seed, found_starts(search, seed))[0]
        gap = found.seconds / truth.seconds - 1 if found.fits else math.inf
        rows.append({"seed": seed, "plans": plans, "best_seconds": truth.seconds, "gap": gap})
        print(f"{seed:4d} {plans:7d} plans  best {truth.seconds:8.4f} s  gap {gap:.4%}", flush=True)
        if len(rows) == count:
            break
    met, worst = sum(row["gap"] < RATIO for row in rows), max(row["gap"] for row in rows)
    print(f"optimum met {met} of {len(rows)}, missed by {worst:.2%} at most")
    return {"met": met, "of": len(rows), "worst_gap": worst, "instances": rows}


def planted(budget: Budget, count: int) -> dict[str, Any]:
    """Within 1 % of what is known to be the best, and the processor seconds that it took on one core."""
    rows: list[dict[str, Any]] = []
    for seed in range(count):
        search, best = planted_instance(seed)
        found, seconds = _timed(lambda: best_of(search, budget, seed, found_starts(search, seed))[0])  # noqa: B023
        devices = sum(len(kind.ids) for kind in search.model.kinds)
        gap = found.seconds / best - 1
        rows.append({"seed": seed, "devices": devices, "gap": gap, "processor_seconds": seconds})
        print(f"{seed:4d} {devices:5d} devices  gap {gap:7.3%}  {seconds:.1f} s", flush=True)
    within, slowest = sum(row["gap"] <= 0.01 for row in rows), max(row["processor_seconds"] for row in rows)
    print(f"within 1 %: {within} of {len(rows)}; {slowest:.1f} s at most")
    return {"within": within, "of": len(rows), "slowest_processor_seconds": slowest, "instances": rows}


def rate(budget: Budget, count: int) -> dict[str, Any]:
    """Plans evaluated a second: in full, and in annealing with its moves, where most are given up early."""
    del budget
    rows = {}
    for path, devices in ((GRPO, 8), (PPO, 64), (PPO, 2048)):
        search = search_of(_on(path, devices, staleness=1), 0)
        whole, annealed = [], []
        for structure in _structures(search, 6):
            plans = _walked(search, structure, 64)
            search.repeated(plans, 1)
            times = max(1, 400 * count // len(plans))
            _, seconds = _timed(lambda: search.repeated(plans, times))  # noqa: B023
            whole.append(times * len(plans) / seconds)
            start = min(plans, key=lambda one: one.objective)
            search.burst(start, 4000, 1)  # fills the tables
            before = search.progress.evaluations
            _, seconds = _timed(lambda: search.burst(start, 4000, 1))  # noqa: B023
            annealed.append((search.progress.evaluations - before) / seconds)
        rows[str(devices)] = {"plans_per_second": min(whole), "in_annealing_per_second": median(annealed)}
        print(
            f"{devices:5d} devices: {min(whole):9,.0f} … {max(whole):9,.0f} plans a second over {len(whole)} structures, "
            f"{median(annealed):9,.0f} in annealing"
        )
    return rows


def removed(budget: Budget, count: int) -> dict[str, Any]:
    """What each start reaches by itself, against the search without it; likewise searches that know no structure."""
    rows: list[dict[str, Any]] = []
    problems = [
        (PPO.stem, _on(PPO, 64)),
        (f"{PPO.stem}, staleness 1", _on(PPO, 64, staleness=1)),
        (GRPO.stem, _on(GRPO, 16)),
    ]
    for name, problem in problems[:count]:
        search = search_of(problem, 0)
        begun = found_starts(search, 0)
        for left_out, rest in [(one, [o for o in begun if o is not one]) for one in begun]:
            rows.append(_row(name, left_out.name, left_out, best_of(search, budget, 1, rest)[0]))
        found = best_of(search, budget, 1, begun)[0]
        base = search.structure(wished(problem))
        assert base is not None
        for other in (
            greedy(search, base),
            best_of_random(search, base, 2000, 1),
            metropolis(search, base, 20000, 1),
        ):
            rows.append(_row(name, other.name, other, found))
    above = sum(not row["at_or_below"] for row in rows)
    print(f"above what was left out: {above} of {len(rows)}")
    return {"above": above, "of": len(rows), "left_out": rows}


def _row(job: str, name: str, left_out: Found, found: Found) -> dict[str, Any]:
    fine = found.objective <= left_out.objective + 1e-9
    print(
        f"{job}, without {name} ({left_out.seconds:.3f} s{'' if left_out.fits else ', does not fit'}): "
        f"{found.seconds:.3f} s, {'at or below' if fine else 'ABOVE'}",
        flush=True,
    )
    return {
        "job": job, "left_out": name, "its_seconds": left_out.seconds, "it_fits": left_out.fits,
        "found_seconds": found.seconds, "at_or_below": fine,
    }  # fmt: skip


def scale(budget: Budget, count: int) -> dict[str, Any]:
    """PPO with a 70B actor and an 8B critic, all structure allowed; prompts grow with the devices."""
    rows = {}
    for devices in [2**i for i in range(5, 12)][-count:]:
        problem = _on(PPO, devices, staleness=1, sharing=True)
        ranked, seconds = _timed(lambda: plan_job(problem, budget=budget))  # noqa: B023
        best = ranked.best.estimate
        rows[str(devices)] = {
            "processor_seconds": seconds,
            "step_seconds": best.step.mean_seconds,
            "gap": best.gap,
        }
        print(
            f"{devices:5d} devices: planned in {seconds:5.1f} s; step {best.step.mean_seconds:.2f} s, {best.gap:.1%} "
            f"above its bound ({best.bound.by}); {ranked.best.name}",
            flush=True,
        )
    return rows


def _on(path: Path, devices: int, *, staleness: int = 0, sharing: bool = False) -> Problem:
    """An example's problem on so many of its devices, with as many prompts for each as it has."""
    problem = from_job(load_job(path), 0)
    w, width = problem.workload, len(problem.cluster) // len(problem.cluster.nodes)
    name = "dgx-h100" if path == PPO else "alps"
    staleness = staleness or problem.permissions.staleness
    return replace(
        problem,
        cluster=system(name, nodes=max(1, devices // width), devices=min(width, devices)),
        permissions=replace(problem.permissions, staleness=staleness, actor_critic_sharing=sharing),
        workload=replace(w, prompts=w.prompts * max(64, devices) // len(problem.cluster)),
    )


def _structures(search: Search, most: int) -> Iterator[Structure]:
    base = search.structure(wished(search.problem))
    assert base is not None
    yield base
    near = (search.structure(chain) for chain in neighbours(search.problem, base))
    found = [one for one in near if one is not None]
    yield from found[:: max(1, len(found) // (most - 1))][: most - 1]


def _walked(search: Search, structure: Structure, count: int) -> list[Found]:
    """Plans that random moves come by."""
    state = search.space.state(len(structure.names))
    state.size[0], state.mask[:] = search.space.units[0], 1
    return search.wandered(search.evaluate(structure, state), count, seed=1)


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What came of it, and its processor seconds."""
    began = time.process_time()
    found = work()
    return found, time.process_time() - began


WHAT = {
    "small": (small, 50),
    "planted": (planted, 50),
    "rate": (rate, 50),
    "removed": (removed, 3),
    "scale": (scale, 7),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=WHAT)
    parser.add_argument("--count", type=int, help="instances, jobs or sizes; default: all")
    parser.add_argument("--chains", type=int, default=Budget.chains)
    parser.add_argument("--rounds", type=int, help="default: of a plan; 6 where costs are drawn")
    parser.add_argument("--burst", type=int, default=Budget.burst)
    parser.add_argument("--asking", type=int, help="of a burst; default: 10,000 where costs are drawn")
    parser.add_argument("--out", type=Path, default=OUT)
    a = parser.parse_args()
    function, count = WHAT[a.what]
    drawn = a.what in ("small", "planted")
    asking = a.asking or (FREELY if drawn else Budget.asking)
    rounds = a.rounds or (6 if drawn else Budget.rounds)
    found = function(Budget(a.chains, rounds, a.burst, asking=asking), a.count or count)
    known = json.loads(a.out.read_text()) if a.out.exists() else {}
    machine = f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"
    known[a.what] = {"date": time.strftime("%Y-%m-%d"), "machine": machine, **found}
    a.out.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
