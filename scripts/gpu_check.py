"""Does RPEG do on this GPU what it predicts? Ten minutes, one device, one process a plan, neither Ray nor a network.

    scripts/gpu_check                               on CUDA
    scripts/gpu_check --device cpu --tiny           the script itself, on any machine

Writes a random model of the shape of a 0.5B one, measures the device's kernels (`rpeg calibrate --kernels`), then trains
by five plans in bfloat16 and sets beside each what was predicted before: seconds of a step and of its stages, and the
peak of memory. Where vLLM is installed a sixth plan generates with it. What fails is written down and the rest goes on.
Results, with hardware, versions and date, go to benchmarks/results/gpu_check.json; exits 1 where something failed.

Needs torch (2.11 to 2.14 are tried), transformers and rpeg itself; not the versions that `rpeg[train]` pins.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import torch
import yaml

from rpeg.calibrate import accelerator, memory_bytes
from rpeg.calibrate.accelerator.grids import CORE
from rpeg.cluster import DeviceKind
from rpeg.errors import InputError
from rpeg.ir import Kind
from rpeg.job import Job, parse_job
from rpeg.plan import Assignment, Devices, Host, Parallelism, Plan, check, lower
from rpeg.report.compare import compare
from rpeg.report.live import PlainView
from rpeg.runtime import Options, prepare_directory, train
from rpeg.schedule import list_order
from rpeg.search import from_job
from rpeg.sim import Facts, StageCosts, device_memory, simulate
from rpeg.trace import read_traces
from rpeg.verify import prove_run

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "gpu_check.json"
PACKAGES = ("rpeg", "torch", "transformers", "vllm")


@dataclass(frozen=True)
class Size:
    """Of the model and of the work. vocabulary: also the words of its tokenizer. prompt, response: tokens."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    inner: int
    vocabulary: int
    prompts: int
    prompt: int
    response: int
    steps: int
    dtype: str


HALF_BILLION = Size(896, 24, 14, 2, 4864, 151936, 16, 128, 256, 4, "bfloat16")
"""The shape of Qwen2.5-0.5B: https://huggingface.co/Qwen/Qwen2.5-0.5B/blob/main/config.json"""
TINY = Size(32, 2, 4, 2, 64, 512, 4, 16, 8, 3, "float32")
TINY_GRIDS = replace(
    CORE, m=(1.0, 64.0), sides=(64.0, 128.0), work=(2048.0, 4096.0), length=(64.0, 128.0), rows=(4.0, 8.0),
    context=(64.0, 128.0), sizes=(4096.0, 65536.0), layer=(64, 4, 2, 128, 64),
)  # fmt: skip


@dataclass(frozen=True)
class Trial:
    """A plan: colocated on the one device. algorithm: of `rpeg.algorithms`. backend: of generation."""

    name: str
    algorithm: str = "grpo"
    microbatch: int = 8
    recompute: str = "none"
    offload: str = "none"
    backend: str = "torch"


TRIALS = (
    Trial("colocated"),
    Trial("small micro-batches", microbatch=2),
    Trial("recomputed activations", recompute="full"),
    Trial("optimizer offloaded", offload="optimizer"),
    Trial("actor and critic", algorithm="ppo"),
)
OUTSIDE = ("context", "communication buffers", "unused blocks")
"""Parts of a prediction that `torch.cuda.max_memory_allocated`, which a GPU's spans tell, does not see."""
WITH_VLLM = Trial("generation by vLLM", backend="vllm")


def hardware(device: torch.device, kind: DeviceKind) -> dict[str, Any]:
    """What the figures are of."""
    found: dict[str, Any] = {"device": str(device.type), "kind": kind.name, "host": platform.machine()}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {
            "name": properties.name,
            "memory_bytes": properties.total_memory,
            "cuda": torch.version.cuda,
            "compute capability": f"{properties.major}.{properties.minor}",
        }
    return {
        **found,
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def write_model(directory: Path, size: Size) -> None:
    """Random weights, and a tokenizer of as many words: nothing is downloaded.

    A Llama, because transformers gives other families their own tokenizers whatever lies beside the weights.
    """
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    special = ["<pad>", "<eos>", "<unk>"]
    words = [*special, *(f"w{i}" for i in range(size.vocabulary - len(special)))]
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    ).save_pretrained(directory)
    config = LlamaConfig(
        vocab_size=size.vocabulary,
        hidden_size=size.hidden,
        intermediate_size=size.inner,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    torch.manual_seed(0)
    LlamaForCausalLM(config).to(getattr(torch, size.dtype)).save_pretrained(directory)


def write_task(directory: Path, size: Size) -> None:
    """Prompts of random words, and a reward that depends on the response: a random model solves nothing."""
    draw, words = Random(0), [f"w{i}" for i in range(size.vocabulary - 3)]
    prompts = (" ".join(draw.choices(words, k=size.prompt)) for _ in range(64))
    lines = [json.dumps({"prompt": prompt, "answer": "1"}) for prompt in prompts]
    (directory / "prompts.jsonl").write_text("\n".join(lines) + "\n")
    (directory / "counting.py").write_text(
        "def reward(prompt, response, answer):\n    return sum(map(ord, response)) % 8 / 8\n"
    )


def job_of(trial: Trial, directory: Path, size: Size, kind: DeviceKind) -> Job:
    data = str(directory / "prompts.jsonl")
    value = {
        "name": trial.name,
        "algorithm": {"name": trial.algorithm, **({"kl_in": "none"} if trial.algorithm == "grpo" else {})},
        "models": {"actor": {"path": str(directory / "model")}},
        "dtype": size.dtype,
        "data": {"train": data, "heldout": data},
        "reward": {"name": "python:counting:reward", "import_from": str(directory)},
        "batch": {
            "prompts": size.prompts,
            "samples_per_prompt": 4,
            "minibatches": 2,
            "microbatch": trial.microbatch,
        },
        "lengths": {
            "max_prompt": size.prompt,
            "max_response": size.response,
            "expected_response": {"mean": size.response, "p95": size.response},
        },
        "optimizer": {"lr": 1e-6},
        "cluster": {kind.name: 1},
        "steps": size.steps,
        "evaluation": {"every": 0},
        "checkpoint": {"every": 0},
        "output": str(directory / "runs" / trial.name.replace(" ", "-")),
    }
    return parse_job(yaml.safe_dump(value), f"{trial.name}.yaml", directory)


def plan_of(job: Job, trial: Trial) -> tuple[Plan, Facts]:
    """Everything on device 0, one after another."""
    problem = from_job(job, memory_bytes())
    graph = problem.graph

    def assigned(name: str, kind: Kind) -> Assignment:
        if kind is Kind.HOST:
            return Assignment(name, Host())
        here = Assignment(name, Devices((0,)), Parallelism(), trial.microbatch)
        if kind is Kind.GENERATE:
            return replace(here, backend=trial.backend)
        return replace(here, recompute=trial.recompute, offload=trial.offload) if kind is Kind.TRAIN else here

    assignments = tuple(assigned(stage.name, stage.kind) for stage in graph.stages)
    lowered = lower(graph, assignments, problem.workload)
    offsets = {(task.slot, part): 1.0 for task in lowered.tasks.values() for part in task.covers}
    order = list_order(lowered, dict.fromkeys(lowered.tasks, 0), dict.fromkeys(lowered.tasks, 1.0), offsets)
    return check(Plan(graph, problem.cluster, problem.workload, assignments, order, ())), problem.facts


def predict_and_measure(trial: Trial, directory: Path, size: Size, kind: DeviceKind) -> dict[str, Any]:
    """The prediction first, then the run; what came of both."""
    from rich.console import Console

    job = job_of(trial, directory, size, kind)
    plan, facts = plan_of(job, trial)
    predicted = simulate(plan, StageCosts(plan, facts), size.steps, job.seed)
    (memory, *_) = device_memory(plan, lower(plan.graph, plan.assignments, plan.workload), facts)
    options = Options(in_process=True, overwrite=True, export=False)
    run, _, start = prepare_directory(job, plan, options)
    outcome = train(job, plan, run, start, options, PlainView(Console(file=sys.stderr), job.steps))
    traces = read_traces(outcome.directory)
    found = compare(predicted, traces[-1])
    held = max(span.memory_bytes for trace in traces for span in trace.spans if span.lane == "device0")
    outside = OUTSIDE if kind.name != "cpu" else ()
    tensors = sum(size for name, size in memory.peak.parts if not name.startswith(outside))
    parts: Counter[str] = Counter()
    for name, size in memory.peak.parts:  # several may have one name
        parts[name] += size
    return {
        **asdict(trial),
        "step": found.step.to_json(),
        "stages": {row.name: row.seconds.to_json() for row in found.stages},
        "memory": {
            "predicted_bytes": tensors,
            "measured_bytes": held,
            "error": tensors / held - 1,
            "phase": memory.peak.phase,
            "parts": dict(parts),
        },
        "tokens_per_second": outcome.records[-1].tokens_per_second,
        "startup_seconds": outcome.startup_seconds,
        "proven": prove_run(traces).holds,
    }


def calibrate(device: torch.device, kind: DeviceKind, path: Path, tiny: bool) -> dict[str, Any]:
    """Measures kernels; estimates rest on them from then on."""
    began = time.monotonic()
    file = accelerator.measure_kernels(
        device, kind, grids=TINY_GRIDS if tiny else None, say=lambda line: print(f"  {line}", flush=True)
    )
    assert file is not None  # one process measures
    path.write_text(file.dumps(), encoding="utf-8")
    os.environ["RPEG_KERNELS"] = str(path)
    return {
        "seconds": time.monotonic() - began,
        "tables": {f"{t.op} {t.dtype} {t.head_dim or ''}".strip(): len(t.logs) for t in file.tables},
        "observations": file.observations,
    }


def attempt(what: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What the work found, or why it failed."""
    print(f"{what} …", flush=True)
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - a check goes on, whatever a machine of which nothing is known does
        print(f"  failed: {error}", flush=True)
        return {"name": what, "failed": f"{type(error).__name__}: {error}"}


def in_own_process(apart: bool, *arguments: Any) -> dict[str, Any]:
    """A process a plan: its peak of memory is then its own, and what one leaves behind does not weigh on the next."""
    if not apart:
        return predict_and_measure(*arguments)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(predict_and_measure, *arguments).result()


def line(found: Mapping[str, Any]) -> str:
    if "failed" in found:
        return f"{found['name']}: failed: {found['failed']}"
    step, memory = found["step"], found["memory"]
    return (
        f"{found['name']}: a step {step['measured_seconds']:.3f} s, predicted {step['predicted_seconds']:.3f} s "
        f"({step['error']:+.0%}); memory {memory['measured_bytes'] / 2**30:.2f} GiB, predicted "
        f"{memory['predicted_bytes'] / 2**30:.2f} GiB ({memory['error']:+.0%}); "
        f"{found['tokens_per_second']:,.0f} tokens/s"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a model of two small layers, few kernels")
    parser.add_argument("--kind", help="the kind of device, where its own name is not known")
    parser.add_argument("--minutes", type=float, default=10.0, help="no plan is begun after so many")
    parser.add_argument("--results", type=Path, default=RESULTS)
    asked = parser.parse_args()
    try:
        device = accelerator.device_of(asked.device)
        kind = accelerator.kind_of(device, asked.kind)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    began, size = time.monotonic(), TINY if asked.tiny else HALF_BILLION
    result: dict[str, Any] = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "hardware": hardware(device, kind),
        "model": asdict(size),
    }
    trials = (*TRIALS, *((WITH_VLLM,) if importlib.util.find_spec("vllm") and device.type == "cuda" else ()))
    with TemporaryDirectory() as temporary:
        directory = Path(temporary)
        write_model(directory / "model", size)
        write_task(directory, size)
        kernels = directory / "kernels.json"
        result["kernels"] = attempt("kernels", lambda: calibrate(device, kind, kernels, asked.tiny))
        result["plans"] = []
        for trial in trials:
            if time.monotonic() - began > 60 * asked.minutes:
                found: dict[str, Any] = {
                    "name": trial.name,
                    "failed": f"not begun within {asked.minutes:g} minutes",
                }
            else:
                own = (device.type == "cuda", trial, directory, size, kind)
                found = attempt(trial.name, lambda own=own: in_own_process(*own))  # type: ignore[misc]
            result["plans"].append(found)
            print(f"  {line(found)}", flush=True)
    result["seconds"] = time.monotonic() - began
    asked.results.parent.mkdir(parents=True, exist_ok=True)
    asked.results.write_text(json.dumps(result, indent=1) + "\n")
    print(f"{result['seconds']:.0f} s; written to {asked.results}")
    return 1 if any("failed" in found for found in (result["kernels"], *result["plans"])) else 0


if __name__ == "__main__":
    sys.exit(main())
