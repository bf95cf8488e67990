"""Real runs small enough for a test: a random two-layer model, a few samples a step, real processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import torch
import yaml

from plans import make_plan
from rpeg.backends.training.checkpoint import read_weights
from rpeg.cluster import local
from rpeg.ir import Kind
from rpeg.job import Job, parse_job
from rpeg.job.bundled import ASSETS
from rpeg.plan import Parallelism, Plan
from rpeg.runtime import Options, Outcome, prepare_directory, train
from rpeg.runtime.record import StepRecord
from rpeg.runtime.run_directory import Checkpoint
from rpeg.trace import Entry, Trace, read_traces
from rpeg.transforms import parse
from rpeg.workload import Selection, Workload, constant

PROMPTS, SAMPLES, MINIBATCHES = 4, 4, 2


@dataclass
class Silent:
    """A view that remembers what it was told."""

    told: list[str]

    def on_entry(self, entry: Entry) -> None:
        pass

    def on_step(self, record: StepRecord) -> None:
        self.told.append(f"step {record.step}")

    def on_evaluation(self, step: int, accuracy: float, metrics: Mapping[str, float]) -> None:
        self.told.append(f"evaluation {step}")

    def on_checkpoint(self, checkpoint: Checkpoint) -> None:
        self.told.append(f"checkpoint {checkpoint.steps}")

    def on_warning(self, text: str) -> None:
        self.told.append(f"warning {text}")

    def on_stage(self, text: str) -> None:
        self.told.append(text)

    def on_stopping(self, steps: int) -> None:
        self.told.append(f"stopping {steps}")


def tiny_model(directory: Path, hidden_size: int = 32) -> Path:
    """A random Llama over the bundled tokenizer: small enough that a step takes milliseconds."""
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(ASSETS / "tiny")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return directory


def make_job(
    model: Path,
    output: Path,
    *,
    algorithm: str = "ppo",
    dtype: str = "float64",
    hyper: Mapping[str, object] = MappingProxyType({}),
    **changes: object,
) -> Job:
    """A job of two steps; `changes` are sections to replace, `hyper` the algorithm's hyperparameters."""
    value: dict[str, object] = {
        "name": "test",
        "algorithm": {"name": algorithm, **hyper},
        "models": {"actor": {"path": str(model)}},
        "dtype": dtype,
        "data": {"train": "bundled:chain_sum/train.jsonl", "heldout": "bundled:chain_sum/heldout.jsonl"},
        "reward": {"name": "numeric"},
        "batch": {
            "prompts": PROMPTS,
            "samples_per_prompt": SAMPLES,
            "minibatches": MINIBATCHES,
            "microbatch": 4,
        },
        "lengths": {"max_prompt": 16, "max_response": 6},
        "optimizer": {"lr": 1e-2},
        "cluster": {"cpu": 2},
        "allow": {"staleness": 1},
        "steps": 2,
        "seed": 3,
        "evaluation": {"every": 0, "prompts": 4},
        "checkpoint": {"every": 0},
        "output": str(output),
    }
    return parse_job(yaml.safe_dump(value | changes), "test.yaml", output.parent)


def counting(model: Path) -> dict[str, str]:
    """A reward that differs from response to response: a random model solves nothing."""
    module = model / "counting.py"
    module.write_text("def reward(prompt, response, answer):\n    return sum(map(ord, response)) % 8 / 8\n")
    return {"name": "python:counting:reward", "import_from": str(model)}


ALL = (0, 1)


def plan_for(
    job: Job,
    blocks: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    *,
    rest: tuple[int, ...] = ALL,
    zero: int = 0,
    transforms: tuple[str, ...] = (),
    shifts: Mapping[str, int] = MappingProxyType({}),
    layouts: Mapping[str, Parallelism] = MappingProxyType({}),
    offload: Mapping[str, str] = MappingProxyType({}),
    recompute: Mapping[str, str] = MappingProxyType({}),
) -> Plan:
    """A plan with these stages on these devices and the others on `rest`; trainers are sharded by `zero`, or laid out as
    `layouts` say."""
    graph = job.graph()
    final = graph
    for text in transforms:
        final = parse(text).apply(final)
    where = {s.name: blocks.get(s.name, rest) for s in final.stages if s.kind is not Kind.HOST}
    devices = max(2, *(i + 1 for ids in where.values() for i in ids))
    workload = Workload(
        job.batch.prompts,
        job.batch.samples_per_prompt,
        constant(9),
        constant(6),
        job.batch.minibatches,
        job.batch.epochs,
        selection=Selection(
            job.selection.round_prompts or job.batch.prompts,
            job.selection.max_rounds,
            job.selection.expected_rejected,
        )
        if job.selects
        else None,
    )
    return make_plan(
        graph,
        where,
        transforms,
        shifts,
        workload,
        zero={s.name: zero for s in final.stages if s.kind is Kind.TRAIN},
        cluster=local(devices, devices * 2**34),
        microbatch=job.batch.microbatch,
        layouts=layouts,
        offload=offload,
        recompute=recompute,
    )


@dataclass(frozen=True)
class Ran:
    """A finished run. weights: of each trained model at its end."""

    outcome: Outcome
    traces: tuple[Trace, ...]
    weights: Mapping[str, Mapping[str, torch.Tensor]]
    told: list[str]

    @property
    def records(self) -> tuple[StepRecord, ...]:
        return self.outcome.records


def run(
    job: Job, plan: Plan | None, *, export: bool = False, view: Silent | None = None, **options: bool
) -> Ran:
    """Runs a job, on processes of its own unless it is asked to stay in this one."""
    chosen = Options(export=export, stall_seconds=120, **options)
    directory, found, start = prepare_directory(job, plan, chosen)
    assert found is not None
    view = view or Silent([])
    outcome = train(job, found, directory, start, chosen, view)
    last = directory.checkpoints()[-1].path
    weights = {path.name: read_weights(path) for path in last.iterdir() if path.is_dir()}
    return Ran(outcome, read_traces(outcome.directory), weights, view.told)
