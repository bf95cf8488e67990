"""verl's schedules on what verl published: is the predicted order right, are ratios of steps within 20 %?

    python benchmarks/verl.py DATA/verl_published.jsonl

Runs of one job under several schedules or on several clusters are compared in pairs. What the records leave open is
taken from the scripts that verl published with them (verl-project/verl at b178a3cd, verl/experimental/
{one_step_off_policy,fully_async_policy}/shell) and from these assumptions, the same for all runs of a source:
- No mean length of responses is published. It is the one under which the predicted update of one run, marked `*`, takes
  as long as its published `update_actor`; lengths are lognormal up to the published longest. Prompts have 150 tokens.
- Nodes of H20 are as those of a DGX H100, whose NVLink H20 shares.
- verl deals a batch over its data-parallel ranks by tokens, and each rank then cuts its own share into minibatches
  (verl/trainer/ppo/ray_trainer.py: _balance_batch; verl/workers/actor/dp_actor.py), so that a minibatch takes as long
  as its fullest rank. Plans here deal every minibatch by tokens; `fullest` is what verl takes longer.
Placements: HybridFlow (arXiv:2409.19256, section 8) says which is the fastest on how many A100.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from rpeg.algorithms import grpo, ppo
from rpeg.algorithms.rewarding import with_reward_model
from rpeg.architecture.library import named
from rpeg.cluster import Cluster, device_kind, system
from rpeg.ir import Graph, Kind
from rpeg.search import Candidate, Construction, Permissions, Problem
from rpeg.search.baselines import verl
from rpeg.search.estimator import Estimator
from rpeg.search.placements import GENERATION, Placement, placed
from rpeg.sim import Facts
from rpeg.transforms import Transform
from rpeg.transforms.bypass import Bypass
from rpeg.workload import Workload, constant, lognormal

OUT = Path(__file__).resolve().parent / "results" / "verl.json"
PROMPT, WITHIN = 150, 0.20
CONTEXT = 32768  # the scripts raise max_position_embeddings to it


@dataclass(frozen=True)
class Predicted:
    """A plan, and how much longer than it verl's updates take: its steps wait for them in all of these runs."""

    candidate: Candidate
    fullest: float

    @property
    def update_seconds(self) -> float:
        return self.candidate.estimate.stages["train_actor"] * self.fullest

    @property
    def step_seconds(self) -> float:
        estimate = self.candidate.estimate
        return float(estimate.step.mean_seconds + (self.fullest - 1) * estimate.stages["train_actor"])


@dataclass(frozen=True)
class Run:
    """A published run. generate: devices that only do that, 0: all do everything. degrees: (tp, pp).

    ranks_together: data-parallel ranks that share their samples (sequence parallelism, which plans here leave out).
    """

    record: str
    schedule: str
    devices: int
    generate: int
    group: int
    longest: int
    trainer: str
    engine_degrees: tuple[int, int]
    train_degrees: tuple[int, int]
    microbatch: int = 16
    ranks_together: int = 1

    def problem(self, mean: float) -> Problem:
        graph = grpo.graph(grpo.Hyper(kl_in="none"))
        applied: tuple[Transform, ...] = ()
        if self.schedule == "fully-async":  # by default its rollouts bring their own log-probabilities
            applied = (Bypass("old_logprob"),)
            graph = applied[0].apply(graph)
        lengths = lognormal(mean, self.longest)
        architecture = replace(named("Qwen/Qwen2.5-Math-7B"), context=CONTEXT)
        return Problem(
            graph,
            h20(self.devices),
            Workload(512, self.group, constant(PROMPT), lengths, 16),  # minibatches of 32 prompts
            Facts({m.name: architecture for m in graph.models}, "bfloat16", trainer=self.trainer),
            self.microbatch,
            Permissions(staleness=1, behaviour_logprobs=True),
            applied=applied,
        )

    def construction(self, problem: Problem) -> Construction:
        everything = tuple(range(self.devices))
        first, rest = everything[: self.generate] or everything, everything[self.generate :]
        where = placed(problem, self.schedule, rest, {GENERATION: first})
        degrees = {name: self._degrees(problem.graph, name) for name in where.blocks}
        where = where.with_degrees(degrees, "as published")
        if self.schedule == "sync":
            return Construction(problem.graph, where, problem.applied)
        family = {"one-step-off": verl.one_step_off, "fully-async": verl.fully_async}[self.schedule]
        return family(problem, (where,)).members[0]

    def _degrees(self, graph: Graph, name: str) -> tuple[int, int]:
        return self.engine_degrees if graph.stage(name).kind is Kind.GENERATE else self.train_degrees

    def predicted(self, mean: float) -> Predicted:
        problem = self.problem(mean)
        estimator = Estimator(problem)
        found = estimator.screened(self.construction(problem))
        if not isinstance(found, Candidate):
            raise SystemExit(f"{self.record}: {found.reason}")
        final = estimator.final(found)
        ranks = final.plan.assignment("train_actor").parallelism.dp // self.ranks_together
        return Predicted(final, fullest(problem.workload, ranks))


MEGATRON = ("megatron", (2, 1), (2, 2), 2)
FSDP = ("flash", (4, 1), (1, 1), 16, 4)
EXPERIMENTS: Mapping[str, tuple[str, tuple[Run, ...]]] = {
    # 16 samples a prompt when all GPUs do everything, 12 where 12 of them train, so that batches divide
    "one_step_off.md, Megatron": (
        "oso_megatron_sync",
        (
            Run("oso_megatron_sync", "sync", 16, 0, 16, 8192, *MEGATRON),
            Run("oso_megatron_async", "one-step-off", 16, 4, 12, 8192, *MEGATRON),
        ),
    ),
    "fully_async.md, 7B": (
        "fa7b_async32_32",
        tuple(Run(f"fa7b_async{n}_{n}", "fully-async", 2 * n, n, 16, 28672, *FSDP) for n in (16, 32, 64)),
    ),
}
LEFT_OUT = {
    "fa7b_require_batches*": "the source says that responses grew longer with the smaller batches, not by how much",
    "fa_tool_*": "turns wait for tools whose latency is not given",
    "fa30b_async96_32": "one run of its job, with nothing to compare",
    "dyn_sched": "no lengths and no layout of its engines",
}


def h20(devices: int) -> Cluster:
    """Nodes of a DGX H100 with H20."""
    cluster, kind = system("dgx-h100", nodes=devices // 8), device_kind("h20")
    racks = tuple(
        replace(rack, nodes=tuple(replace(node, kind=kind) for node in rack.nodes)) for rack in cluster.racks
    )
    return replace(cluster, name=f"{devices} H20", racks=racks)


def mean_length(run: Run, update_seconds: float) -> float:
    """Tokens of a response under which the run's update takes so long: what it takes grows with them."""
    low, high = 64.0, run.longest / 2
    for _ in range(7):
        middle = (low * high) ** 0.5
        seconds = run.predicted(middle).update_seconds
        low, high = (middle, high) if seconds < update_seconds else (low, middle)
    return (low * high) ** 0.5


def fullest(workload: Workload, ranks: int, steps: int = 4) -> float:
    """Tokens of the fullest rank of a minibatch over the mean, where samples are dealt without regard to minibatches."""
    found = []
    for step in range(steps):
        tokens = np.sum(workload.draw(0, step), axis=0)
        each = len(tokens) // (workload.minibatches * ranks)
        held = tokens[: workload.minibatches * ranks * each].reshape(workload.minibatches, ranks, each).sum(2)
        found.append(float((held.max(1) / held.mean(1)).mean()))
    return sum(found) / steps


def compared(records: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Each experiment: its runs, and its pairs."""
    for name, (marked, runs) in EXPERIMENTS.items():
        reference = next(run for run in runs if run.record == marked)
        mean = mean_length(reference, records[marked]["metrics"]["update_actor_s"])
        rows = []
        for run in runs:
            found, published = run.predicted(mean), records[run.record]["metrics"]
            rows.append(
                {
                    "run": run.record + "*" * (run is reference),
                    "predicted": found.step_seconds,
                    "measured": float(published["step_s"]),
                    "stages": dict(found.candidate.estimate.stages),
                    "fullest": found.fullest,
                    "published": {k: v for k, v in published.items() if isinstance(v, int | float)},
                }
            )
        yield {"experiment": name, "mean_response": mean, "runs": rows, "pairs": list(pairs(rows))}


def pairs(rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The second over the first, predicted and measured."""
    for one, other in combinations(rows, 2):
        predicted, measured = (other[key] / one[key] for key in ("predicted", "measured"))
        yield {
            "pair": f"{other['run']} / {one['run']}",
            "predicted": predicted,
            "measured": measured,
            "off": predicted / measured - 1,
            "order": bool((predicted < 1) == (measured < 1)),
        }


def placements() -> Iterator[dict[str, Any]]:
    """HybridFlow: all four models of one size, 1,024 prompts of 1,024 tokens with as many generated, 8 updates."""
    for size, devices, published in (
        ("7B", 16, "colocated"),
        ("7B", 64, "colocated"),
        ("13B", 64, "colocated"),
        ("34B", 64, "colocated"),
        ("13B", 96, "split"),
        ("34B", 96, "split"),
        ("34B", 128, "split"),
        ("13B", 128, "standalone"),
    ):
        seconds = {name: found for name, found in _placed(size, devices) if found is not None}
        best = min(seconds, key=lambda name: seconds[name], default="none fits")
        yield {
            "setting": f"{size} on {devices} A100",
            "predicted": best,
            "published": published,
            "seconds": seconds,
        }


_FAMILY = {
    "7B": "meta-llama/Llama-2-7b-hf",
    "13B": "meta-llama/Llama-2-13b-hf",
    "34B": "codellama/CodeLlama-34b-hf",
}


def _placed(size: str, devices: int) -> Iterator[tuple[str, float | None]]:
    graph = with_reward_model(ppo.graph(ppo.Hyper(kl_coefficient=0.1)))
    architecture = named(_FAMILY[size])
    problem = Problem(
        graph,
        system("dgx-a100", nodes=devices // 8),
        Workload(1024, 1, constant(1024), constant(1024), 8),
        Facts({m.name: architecture for m in graph.models}, "bfloat16", trainer="megatron"),
    )
    estimator = Estimator(problem)
    for where in _three(problem, devices):
        found = estimator.screened(Construction(graph, where))
        yield where.name, found.estimate.step.mean_seconds if isinstance(found, Candidate) else None


def _three(problem: Problem, devices: int) -> Iterator[Placement]:
    """All together; actor and reference apart from critic and reward; each model by itself, the actor on half."""
    everything = tuple(range(devices))
    half = everything[: devices // 2]
    graph, rest = problem.graph, everything[devices // 2 :]
    yield placed(problem, "colocated", everything)
    yield placed(
        problem, "split", half, {s.name: rest for s in graph.stages if {"critic", "reward"} & set(s.models)}
    )
    quarter = len(rest) // 4 // 8 * 8
    if quarter:
        own = {
            "reference": rest[:quarter],
            "reward": rest[quarter : 2 * quarter],
            "critic": rest[2 * quarter :],
        }
        blocks = {s.name: own[s.models[0]] for s in graph.stages if s.models and s.models[0] in own}
        yield placed(problem, "standalone", half, blocks)


def lines(result: Mapping[str, Any]) -> Iterator[str]:
    for experiment in result["experiments"]:
        yield f"{experiment['experiment']}: mean response {experiment['mean_response']:.0f} tokens"
        for row in experiment["runs"]:
            yield f"  {row['run']:<22} predicted {row['predicted']:7.1f} s, measured {row['measured']:7.1f} s"
        for pair in experiment["pairs"]:
            verdict = "" if pair["order"] and abs(pair["off"]) <= WITHIN else "  MISS"
            yield (
                "  {pair:<44} predicted {predicted:.2f}, measured {measured:.2f} ({off:+.0%})".format(**pair)
                + verdict
            )
    for row in result["placements"]:
        times = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in row["seconds"].items())
        verdict = "" if row["predicted"] == row["published"] else "  MISS"
        yield f"{row['setting']:<16} predicted {row['predicted']}, published {row['published']} ({times}){verdict}"
    for name, reason in LEFT_OUT.items():
        yield f"left out: {name}: {reason}"
    all_pairs = [pair for experiment in result["experiments"] for pair in experiment["pairs"]]
    right = sum(pair["order"] for pair in all_pairs)
    near = sum(abs(pair["off"]) <= WITHIN for pair in all_pairs)
    met = sum(row["predicted"] == row["published"] for row in result["placements"])
    yield f"order right {right} of {len(all_pairs)}, within {WITHIN:.0%} {near} of {len(all_pairs)}; " + (
        f"fastest placement right {met} of {len(result['placements'])}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    a = parser.parse_args()
    rows = (json.loads(line) for line in a.data.read_text(encoding="utf-8").splitlines())
    records = {row["id"]: row for row in rows}
    result = {
        "experiments": list(compared(records)),
        "placements": list(placements()),
        "left_out": LEFT_OUT,
    }
    print(*lines(result), sep="\n")
    a.out.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
