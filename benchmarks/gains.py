"""What planning gains on 20 jobs with Llama-3.1-8B, over colocated plans: `python benchmarks/gains.py`.

PPO and GRPO on 4, 8, 16, 32 and 64 GPUs of GH200 (Alps) and A100 (DGX). The longest response is 1,024, 2,048, 4,096,
8,192 or 16,384 tokens, each on every size of cluster: lognormal, a quarter of the longest on average, two thirds at
the 95th percentile. 512 samples a step (GRPO: 64 prompts × 8), 4 minibatches, prompts of 200 tokens on average.

Baselines, each as fast as it can be made: (A) all stages on all devices in one common layout, (B) with a layout per
stage. Plans: without any permission; with actor–critic sharing allowed (PPO); with weights one step old allowed; with
both.
The paper (arXiv:2611.09207) measured 1.250–1.471 × over its own colocated plans.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rpeg.algorithms import grpo, ppo
from rpeg.architecture.library import named
from rpeg.cluster import system
from rpeg.search import Budget, Candidate, Permissions, Problem, plan_job
from rpeg.search.searched import searched
from rpeg.sim import Facts
from rpeg.workload import Workload, lognormal

OUT = Path(__file__).resolve().parent / "results" / "gains.json"
MODEL = "meta-llama/Llama-3.1-8B"
SYSTEMS = {"GH200": ("alps", 4), "A100": ("dgx-a100", 8)}
DEVICES = (4, 8, 16, 32, 64)
LONGEST = (1024, 2048, 4096, 8192, 16384)
A, B = "colocated, one layout", "colocated, a layout per stage"
ALLOWED = {
    "synchronous": Permissions(),
    "sharing": Permissions(actor_critic_sharing=True),
    "staleness 1": Permissions(staleness=1),
    "sharing and staleness 1": Permissions(staleness=1, actor_critic_sharing=True),
}
PAPER = "1.250–1.471"


@dataclass(frozen=True)
class Job:
    algorithm: str
    kind: str
    devices: int
    longest: int

    @property
    def name(self) -> str:
        return f"{self.algorithm} on {self.devices} {self.kind}, up to {self.longest}"

    def problem(self, permissions: Permissions) -> Problem:
        module = {"ppo": ppo, "grpo": grpo}[self.algorithm]
        graph = module.graph(module.Hyper(kl_coefficient=0.001))
        prompts, group = (512, 1) if self.algorithm == "ppo" else (64, 8)
        responses = lognormal(self.longest / 4, self.longest, p95=self.longest * 2 / 3)
        workload = Workload(
            prompts, group, lognormal(200, 1024, p95=500), responses, 4, correlation=0.3 * (group > 1)
        )
        name, each = SYSTEMS[self.kind]
        cluster = system(name, nodes=max(1, self.devices // each), devices=min(each, self.devices))
        return Problem(
            graph,
            cluster,
            workload,
            Facts({model.name: named(MODEL) for model in graph.models}, "bfloat16"),
            permissions=permissions,
        )


def jobs() -> list[Job]:
    """Every algorithm on every cluster; lengths go round, so that each meets every size."""
    return [
        Job(algorithm, kind, devices, LONGEST[(i + shift) % len(LONGEST)])
        for shift, (kind, algorithm) in enumerate((k, a) for k in SYSTEMS for a in ("ppo", "grpo"))
        for i, devices in enumerate(DEVICES)
    ]


def gains(job: Job, budget: Budget, seed: int) -> dict[str, Any]:
    """Seconds of the baselines and of the best plan under each permission; GRPO has nothing to share.

    What needs fewer permissions may be used under more.
    """
    ranked = plan_job(job.problem(Permissions()), seed=seed, budget=budget)
    known = {b.name: b.candidate for b in ranked.baselines if b.candidate is not None}
    row: dict[str, Any] = {"job": job.name, **{name: _seconds(known[name]) for name in (A, B)}}
    found = [("synchronous", ranked.best)]
    for what, permissions in ALLOWED.items():
        if what != "synchronous" and ("sharing" not in what or job.algorithm == "ppo"):
            best = searched(job.problem(permissions), seed=seed, budget=budget).best
            weaker = [one for name, one in found if name in ("synchronous", *what.split(" and "))]
            found.append((what, min((*weaker, best), key=_seconds)))
    for what, best in found:
        row[what] = _seconds(best)
        row[f"{what}, plan"] = [best.name, *best.plan.applied]
    return row


def _seconds(candidate: Candidate) -> float:
    return candidate.estimate.step.mean_seconds


def lines(row: dict[str, Any]) -> Iterator[str]:
    yield f"{row['job']}: A {row[A]:.2f} s ({row[A] / row[B]:.2f} × B)"
    for what in ALLOWED:
        if what in row:
            over = (row[base] / row[what] for base in (A, B))
            yield "  {:<24} {:8.2f} s  {:.3f} over A  {:.3f} over B  {}".format(
                what, row[what], *over, " · ".join(row[f"{what}, plan"])
            )


def summary(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Least, median, greatest."""
    for what in ALLOWED:
        own = [row for row in rows if what in row]
        if not own:
            continue
        spans = []
        for base in (A, B):
            found = [row[base] / row[what] for row in own]
            spans.append(f"{min(found):.3f}–{max(found):.3f}, median {median(found):.3f}")
        yield f"{what} ({len(own)} jobs): over A {spans[0]}; over B {spans[1]}"
    yield f"the paper measured {PAPER} over its own colocated plans"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--jobs", type=int, nargs="*", help="numbers of jobs, 0 … 19 (default: all)")
    parser.add_argument("--chains", type=int, default=Budget.chains)
    parser.add_argument("--rounds", type=int, default=Budget.rounds)
    parser.add_argument("--burst", type=int, default=Budget.burst)
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    budget = Budget(a.chains, a.rounds, a.burst)
    rows, all_jobs = [], jobs()
    for number in range(len(all_jobs)) if a.jobs is None else a.jobs:
        began = time.process_time()
        rows.append(gains(all_jobs[number], budget, a.seed))
        print(*lines(rows[-1]), f"  {time.process_time() - began:.0f} s", sep="\n", flush=True)
    print(*summary(rows), sep="\n")
    result = {"budget": asdict(budget), "seed": a.seed, "jobs": rows}
    a.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
