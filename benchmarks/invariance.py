"""Does the plan change what is learned? Every layout and structure against one device, in double precision.

    python benchmarks/invariance.py
    python benchmarks/invariance.py --algorithms grpo --processes 2 --layouts tp pp
    python benchmarks/invariance.py --results cells.jsonl     cells that the file has are not run again

The matrix is {PPO, PPO with a shared backbone, GRPO} × {1, 2, 4 processes} × layouts × structures, on a random Llama of
four layers. Trainers and assessments have the layout, on all processes; responses come from replicas on all, with `tp`
from one engine on all. `mixed` has tensor-parallel groups sharded by ZeRO-3 for the actor, a pipeline for the critic and
cut contexts for the reference. Structures: the batch as a whole, streamed in parts of a group, or with assessments fused
(and trainers, where there are two).

A run passes where its samples are those of one device, losses and gradient norms agree to 1e-9 and weights to
1e-8, and where its trace is proven. Exits 1 unless all pass.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import yaml
from rich.console import Console
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

import _processes
from rpeg.backends.training.checkpoint import read_weights
from rpeg.cluster import local
from rpeg.errors import RpegError
from rpeg.ir import Graph, Kind, Stage
from rpeg.job import Job, parse_job
from rpeg.job.bundled import ASSETS
from rpeg.plan import Assignment, Devices, Host, Parallelism, Plan, Slot, check, lower
from rpeg.report.live import PlainView
from rpeg.runtime import Options, StepRecord, prepare_directory, train
from rpeg.schedule import list_order
from rpeg.trace import Trace, read_traces
from rpeg.transforms import parse
from rpeg.verify import prove_run
from rpeg.workload import Workload, constant

ALGORITHMS = ("ppo", "ppo-shared", "grpo")
LAYOUTS = ("dp", "tp", "pp", "fsdp", "mixed")
STRUCTURES = ("whole", "parts", "fused")
LOSS, WEIGHT = 1e-9, 1e-8
MEMORY_BYTES = 2**34
REWARD = """def reward(prompt, response, answer):
    return sum(map(ord, response)) % 8 / 8
"""
"""Differs within groups: equal rewards leave no gradient but rounding, which AdamW divides by its own size. Eighths add
up exactly, in any order."""


@dataclass(frozen=True)
class Ran:
    """records: of each step. weights: of each trained model at the end. samples: ids by step. seconds: of the run."""

    records: tuple[StepRecord, ...]
    weights: Mapping[str, Mapping[str, torch.Tensor]]
    samples: Mapping[int, list[int]]
    findings: int
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, choices in (("algorithms", ALGORITHMS), ("layouts", LAYOUTS), ("structures", STRUCTURES)):
        parser.add_argument(f"--{name}", nargs="+", choices=choices, default=choices)
    parser.add_argument("--processes", type=int, nargs="+", choices=(1, 2, 4), default=(1, 2, 4))
    parser.add_argument("--results", type=Path, help="a file to add each cell to, as a line of JSON")
    arguments = parser.parse_args()
    console = Console(highlight=False, width=120)
    done = known(arguments.results)
    passed = all(done.values())
    with TemporaryDirectory() as directory:
        root = Path(directory)
        model = random_model(root / "model")
        for algorithm in arguments.algorithms:
            one: Ran | None = None
            for processes, layout, structure in product(
                arguments.processes, arguments.layouts, arguments.structures
            ):
                cell = f"{algorithm} {processes} {layout} {structure}"
                if cell in done or (processes == 1 and layout != "dp"):
                    continue
                one = one or run(job_of(algorithm, model, root / algorithm), "dp", 1, "whole")
                output = root / cell.replace(" ", "-")
                found = compared(one, output, algorithm, model, processes, layout, structure)
                passed &= found["passed"]
                console.print(f"{cell:28} {found}")
                if arguments.results:
                    with arguments.results.open("a", encoding="utf-8") as file:
                        file.write(json.dumps({"cell": cell, **found}) + "\n")
    raise SystemExit(not passed)


def known(results: Path | None) -> dict[str, bool]:
    """Whether each cell of a file passed."""
    lines = results.read_text(encoding="utf-8").splitlines() if results and results.exists() else ()
    rows = map(json.loads, lines)
    return {row["cell"]: row["passed"] for row in rows if "cell" in row}


def compared(
    one: Ran, output: Path, algorithm: str, model: Path, processes: int, layout: str, structure: str
) -> dict[str, Any]:
    """A cell's differences from the run of one device, or why it did not run."""
    try:
        return differences(one, run(job_of(algorithm, model, output), layout, processes, structure))
    except RpegError as error:
        return {"passed": False, "error": str(error)}


def differences(one: Ran, ran: Ran) -> dict[str, Any]:
    """The largest of a run from that of one device."""
    names = [n for n in one.records[0].metrics if n.endswith(("loss", "grad_norm"))]
    losses = max(
        abs(a.metrics[n] - b.metrics[n]) for a, b in zip(one.records, ran.records, strict=True) for n in names
    )
    weights = max(
        float((tensor - ran.weights[role][name]).abs().max())
        for role, tensors in one.weights.items()
        for name, tensor in tensors.items()
    )
    same = one.samples == ran.samples and [r.reward for r in one.records] == [r.reward for r in ran.records]
    return {
        "passed": same and losses <= LOSS and weights <= WEIGHT and not ran.findings,
        "same_samples": same,
        "losses_differ_by": losses,
        "weights_differ_by": weights,
        "findings": ran.findings,
        "seconds": round(ran.seconds, 1),
    }


def run(job: Job, layout: str, processes: int, structure: str) -> Ran:
    return run_plan(job, plan_of(job, layout, processes, structure))


def run_plan(job: Job, plan: Plan) -> Ran:
    """In this process, or on as many as the plan's cluster has devices."""
    alone = len(plan.cluster) == 1
    options = Options(export=False, in_process=alone)
    directory, chosen, start = prepare_directory(job, plan, options)
    assert chosen is not None
    began = time.monotonic()
    view = PlainView(Console(quiet=True), job.steps)
    if alone:
        outcome = train(job, chosen, directory, start, options, view)
    else:
        outcome = _processes.train(job, chosen, directory, options, view)
    seconds = time.monotonic() - began
    last = directory.checkpoints()[-1].path
    weights = {path.name: read_weights(path) for path in last.iterdir() if path.is_dir()}
    traces = read_traces(outcome.directory)
    return Ran(tuple(outcome.records), weights, samples_of(traces), len(prove_run(traces).findings), seconds)


def samples_of(traces: tuple[Trace, ...]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for span in (span for trace in traces for span in trace.spans if span.item.name == "generate"):
        found[span.item.step] = sorted({*found.get(span.item.step, []), *span.ids})
    return found


def plan_of(job: Job, layout: str, processes: int, structure: str) -> Plan:
    """All stages on all processes, in the order of their upward ranks."""
    graph, applied = structured(job.graph(), job, structure)
    workload = Workload(
        job.batch.prompts, job.batch.samples_per_prompt, constant(9), constant(6), job.batch.minibatches
    )
    block = Devices(tuple(range(processes)))
    assignments = tuple(
        Assignment(s.name, Host())
        if s.kind is Kind.HOST
        else Assignment(s.name, block, parallelism_of(s, layout, processes), job.batch.microbatch)
        for s in graph.stages
    )
    lowered = lower(graph, assignments, workload)
    durations: dict[Slot, float] = dict.fromkeys(lowered.tasks, 1.0)
    offsets = {(t.slot, part): 1.0 for t in lowered.tasks.values() for part in t.covers}
    order = list_order(lowered, dict.fromkeys(lowered.tasks, 0), durations, offsets)
    return check(
        Plan(graph, local(processes, processes * MEMORY_BYTES), workload, assignments, order, applied)
    )


def structured(graph: Graph, job: Job, structure: str) -> tuple[Graph, tuple[str, ...]]:
    applied = list(transforms_of(graph, job, structure))
    for text in applied:
        graph = parse(text).apply(graph)
    return graph, tuple(applied)


def transforms_of(graph: Graph, job: Job, structure: str) -> Iterator[str]:
    shares = job.plan.actor_critic_sharing
    if shares:
        yield "share{actor=actor,critic=critic}"
    if structure == "parts":
        yield "stream{chunk=1,unit=group}"
    if structure == "fused":
        names = {stage.name for stage in graph.stages}
        if "value" not in names:
            yield "fuse{a=reference,b=old_logprob}"
        elif shares:
            yield "fuse{a=old_logprob,b=value}"
        else:
            yield "fuse{a=reference,b=value}"
            yield "fuse{a=train_actor,b=train_critic}"


def parallelism_of(stage: Stage, layout: str, processes: int) -> Parallelism:
    """Fused stages, as all others, have one layout for all that they call."""
    generates = stage.kind is Kind.GENERATE
    if (generates and layout != "tp") or layout == "dp" or processes == 1:
        return Parallelism(dp=processes)
    if layout == "fsdp":
        return Parallelism(dp=processes, zero=3)
    if layout == "tp":
        return Parallelism(tp=processes, sequence_parallel=stage.kind is Kind.TRAIN)
    if layout == "pp":
        return Parallelism(pp=processes)
    half = processes // 2
    if set(stage.models) == {"critic"}:
        return Parallelism(pp=2, dp=half)
    if stage.kind is Kind.INFERENCE and "reference" in stage.models:
        return Parallelism(cp=2, dp=half)
    return Parallelism(dp=half, tp=2, zero=3 if half > 1 else 0)


def job_of(algorithm: str, model: Path, output: Path, **changes: Any) -> Job:
    value: dict[str, Any] = {
        "name": "invariance",
        "algorithm": {"name": algorithm.partition("-")[0]},
        "models": {"actor": {"path": str(model)}},
        "dtype": "float64",
        "data": {"train": "bundled:chain_sum/train.jsonl"},
        "reward": {"name": "python:varied:reward", "import_from": str(model)},
        "batch": {"prompts": 8, "samples_per_prompt": 4, "minibatches": 2, "microbatch": 4},
        "lengths": {"max_prompt": 16, "max_response": 6},
        "optimizer": {"lr": 1e-2},
        "cluster": {"cpu": 1},
        "steps": 2,
        "seed": 3,
        "checkpoint": {"every": 0},
        "output": str(output),
    }
    if algorithm == "ppo-shared":
        value |= {"allow": {"actor_critic_sharing": True}, "plan": {"actor_critic_sharing": True}}
    value |= changes
    return parse_job(yaml.safe_dump(value), "invariance.yaml", output.parent)


def random_model(directory: Path) -> Path:
    tokenizer = AutoTokenizer.from_pretrained(ASSETS / "tiny")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=64,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    (directory / "varied.py").write_text(REWARD, encoding="utf-8")
    return directory


if __name__ == "__main__":
    main()
