"""The runs that `faults.py` strikes: a random two-layer model, three plans on two devices, a reward that can be slow."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import yaml
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from rpeg.cluster import local
from rpeg.ir import Kind, Stage
from rpeg.job import Job, parse_job
from rpeg.job.bundled import ASSETS
from rpeg.plan import Assignment, Devices, Host, ItemKind, Parallelism, Plan, Slot, check, lower, write_plan
from rpeg.schedule import list_order
from rpeg.transforms import parse
from rpeg.workload import Workload, constant

REWARD = """import os, time

def reward(prompt, response, answer):
    if os.path.exists({slow!r}):
        time.sleep(1)
    return sum(map(ord, response)) % 8 / 8
"""


STEPS_A_FAULT = 5


def steps_of(faults: int) -> int:
    """Of a run that so many faults are to strike: enough that none comes when it is over."""
    return STEPS_A_FAULT * faults + 5


@contextmanager
def files(directory: Path, model: Path, name: str, faults: int) -> Iterator[list[str]]:
    """Writes job, plan and reward; the command that runs them."""
    directory.mkdir(exist_ok=True)
    (directory / "judge.py").write_text(REWARD.format(slow=str(directory / "slow")))
    job = _job(model, directory, faults)
    (directory / "job.yaml").write_text(yaml.safe_dump(job))
    write_plan(_plan(parse_job(yaml.safe_dump(job), "faults.yaml", directory), name), directory / "plan.json")
    yield [
        *(sys.executable, "-m", "rpeg.cli.main", "train", str(directory / "job.yaml")),
        *("--plan", str(directory / "plan.json"), "--restarts", "20", "--heartbeat-seconds", "15"),
    ]


def _job(model: Path, directory: Path, faults: int) -> dict[str, object]:
    return {
        "name": "faults",
        "algorithm": {"name": "grpo"},
        "models": {"actor": {"path": str(model)}},
        "dtype": "float32",
        "data": {"train": "bundled:chain_sum/train.jsonl", "heldout": "bundled:chain_sum/heldout.jsonl"},
        "reward": {"name": "python:judge:reward", "import_from": str(directory)},
        "batch": {"prompts": 4, "samples_per_prompt": 4, "minibatches": 2, "microbatch": 4},
        "lengths": {"max_prompt": 16, "max_response": 24},
        "optimizer": {"lr": 1e-3},
        "cluster": {"cpu": 2},
        "allow": {"staleness": 1},
        "steps": steps_of(faults),
        "seed": 3,
        "evaluation": {"every": 0},
        "checkpoint": {"every": 1, "keep": 2},
        "output": str(directory / "run"),
    }


def _plan(job: Job, name: str) -> Plan:
    """split: generation on one device, the rest on the other. sharded: all on both. asynchronous: split, a step ahead."""
    graph, applied = job.graph(), ()
    if name == "asynchronous":
        applied = ("async{stage=generate,staleness=1,freshness=exact}",)
        graph = parse(applied[0]).apply(graph)
    assignments = tuple(_assignment(stage, sharded=name == "sharded") for stage in graph.stages)
    workload = Workload(4, 4, constant(9), constant(24), 2, 1)
    lowered = lower(graph, assignments, workload)
    shift = {
        slot: int(bool(applied) and _runner(slot) not in ("generate", "prompts")) for slot in lowered.tasks
    }
    offsets = {(task.slot, part): 1.0 for task in lowered.tasks.values() for part in task.covers}
    order = list_order(lowered, shift, dict.fromkeys(lowered.tasks, 1.0), offsets)
    return check(Plan(graph, local(2, 2**35), workload, assignments, order, applied))


def _assignment(stage: Stage, *, sharded: bool) -> Assignment:
    if stage.kind is Kind.HOST:
        return Assignment(stage.name, Host())
    if not sharded:
        return Assignment(stage.name, Devices((0 if stage.kind is Kind.GENERATE else 1,)), Parallelism(), 4)
    zero = 3 if stage.kind is Kind.TRAIN else 0
    return Assignment(stage.name, Devices((0, 1)), Parallelism(dp=2, zero=zero), 4)


def _runner(slot: Slot) -> str:
    """The stage whose lanes a slot runs on: its own, or the one that a transfer is for."""
    return slot.name if slot.kind is ItemKind.RUN else slot.name.partition("->")[2].partition(":")[0]


def tiny_model(directory: Path) -> Path:
    tokenizer = AutoTokenizer.from_pretrained(ASSETS / "tiny")
    torch.manual_seed(0)
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=2,
            max_position_embeddings=64,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            bos_token_id=None,
        )
    ).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory
