"""How long does one evaluation of a stage take?

    python benchmarks/stage_costs.py [--rounds 300] [--out benchmarks/results/stage_costs.json]

Uncached: every call has lengths that were not asked before, as a search over batches and layouts asks them; kernel
tables and their curves are loaded. Cached: the same call again. Medians and 10th percentiles of processor time, of one
thread: other processes on the machine do not count, but what they do to caches and clocks does.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter_ns, process_time_ns

import numpy as np

from rpeg.architecture import named
from rpeg.cluster import Fabric, Link, device_kind
from rpeg.cost import (
    Execution,
    Machine,
    Precision,
    Sequences,
    generate_memory,
    generate_stage,
    host_memory,
    infer_memory,
    infer_stage,
    stack,
    train_memory,
    train_stage,
)
from rpeg.cost.generating import Policy, serve
from rpeg.plan import Parallelism

OUT = Path(__file__).resolve().parent / "results" / "stage_costs.json"
MODELS = {
    "dense": "Llama-3.1-8B",
    "mixture": "Qwen3-30B-A3B",
    "latent": "DeepSeek-V3",
    "hybrid": "Nemotron-3-Nano-30B-A3B",
}
FABRIC = Fabric(((Link("node", 4.5e11, 2e-6), 8), (Link("rack", 5e10, 4e-6), 4096)))
# A call with the number of the round, so that no two rounds ask the same.
Call = Callable[[int], object]


def machine(software: str) -> Machine:
    """H100s under a stack."""
    return Machine(device_kind("h100-sxm"), FABRIC, stack(software, "h100-sxm"), 2e12)


def layout_of(model: str) -> Parallelism:
    """A usual layout of each."""
    ep = 1 if model == "dense" else 8
    return Parallelism(dp=8, tp=2, pp=2 if model != "latent" else 1, ep=ep, zero=1, sequence_parallel=True)


def training(model: str) -> dict[str, Call]:
    """TRAIN and INFERENCE, times and memory, by the lengths of a packed batch."""
    architecture, layout, on = named(MODELS[model]), layout_of(model), machine("megatron")
    execution = Execution(layout, token_budget=16384, recompute="selective")

    def batch(i: int) -> Sequences:
        return Sequences(512, 512 * 1000 + i, 512 * 1.4e6, 4096, 512 * 800)

    return {
        f"train {model}": lambda i: train_stage(architecture, batch(i), execution, on),
        f"inference {model}": lambda i: infer_stage(architecture, batch(i), execution, on),
        f"memory of train {model}": lambda i: train_memory(architecture, batch(i), execution, on),
        f"memory of inference {model}": lambda i: infer_memory(architecture, batch(i), execution, on),
        f"memory of the host {model}": lambda i: host_memory(
            architecture, execution, replace(on, host_memory_bytes=1e12 + i)
        ),
    }


@cache
def lengths(samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Prompts in groups of 8, responses of a long tail; read-only, as drawn lengths are."""
    random = np.random.default_rng(seed)
    prompts = np.repeat(random.integers(50, 600, samples // 8), 8)
    responses = np.minimum(random.lognormal(6.5, 0.8, samples), 8192).astype(np.int64) + 1
    prompts.flags.writeable = responses.flags.writeable = False
    return prompts, responses


def generating(model: str) -> dict[str, Call]:
    """GENERATE, times and memory: with places for all samples, in waves, over many replicas, and as a service."""
    architecture, on = named(MODELS[model]), machine("vllm")
    tp, ep = (4, 1) if model == "dense" else (8, 8)
    execution = Execution(
        Parallelism(tp=tp, ep=ep), Precision(compute="float8", weights="float8"), graphs=True
    )
    wide = replace(execution, parallelism=replace(execution.parallelism, dp=16))
    waves = Policy(max_rows=256, cache_bytes=4e10)

    def stage(samples: int, how: Execution, policy: Policy) -> Call:
        return lambda i: generate_stage(
            architecture, *lengths(samples, i), how, on, samples_per_prompt=8, policy=policy
        )

    return {
        f"generate 512 samples {model}": stage(512, execution, replace(waves, max_rows=1024)),
        f"generate 8192 samples in waves {model}": stage(8192, execution, waves),
        f"generate 8192 samples on 16 replicas {model}": stage(8192, wide, waves),
        f"serve {model}": lambda i: serve(architecture, 64, 1000 + i, 500, execution, on, waves),
        f"memory of generate {model}": lambda i: generate_memory(
            architecture, execution, on, rows=256, context=2000 + i
        ),
    }


def layouts(model: str) -> dict[str, Call]:
    """TRAIN and GENERATE under layouts that change from call to call: each asks products of other shapes."""
    architecture, train_on, serve_on = named(MODELS[model]), machine("megatron"), machine("vllm")
    degrees = [
        (dp, tp, pp, zero)
        for dp in (1, 2, 4, 8, 16)
        for tp in (1, 2, 4, 8)
        for pp in (1, 2, 4)
        for zero in (0, 1, 3)
    ]
    batch = Sequences(512, 512 * 1000, 512 * 1.4e6, 4096, 512 * 800)

    def execution(i: int) -> Execution:
        dp, tp, pp, zero = degrees[i % len(degrees)]
        pp = pp if model == "dense" else 1
        return Execution(Parallelism(dp=dp, tp=tp, pp=pp, zero=zero), token_budget=16384 + i, graphs=True)

    return {
        f"train {model} in changing layouts": lambda i: train_stage(
            architecture, batch, execution(i), train_on
        ),
        **{
            f"generate {samples} {model} in changing layouts": lambda i, samples=samples: generate_stage(
                architecture,
                *lengths(samples, 0),
                execution(i),
                serve_on,
                samples_per_prompt=8,
                policy=Policy(cache_bytes=6e10),
            )
            for samples in (512, 8192)
        },
    }


def measure(call: Call, rounds: int) -> dict[str, float]:
    """Microseconds."""
    for samples in (512, 8192):
        for i in range(20 + rounds + 1):
            lengths(samples, i)
    for i in range(20):
        call(i)
    fresh = [_spent(call, i) for i in range(20, 20 + rounds)]
    call(20 + rounds)
    again = [_again(call, 20 + rounds) for _ in range(20)]
    cuts = quantiles(fresh, n=10)
    return {"median_us": median(fresh), "p10_us": cuts[0], "p90_us": cuts[-1], "again_us": median(again)}


def _spent(call: Call, i: int) -> float:
    begun = process_time_ns()
    call(i)
    return (process_time_ns() - begun) / 1e3


def _again(call: Call, i: int, times: int = 10) -> float:
    begun = perf_counter_ns()
    for _ in range(times):
        call(i)
    return (perf_counter_ns() - begun) / 1e3 / times


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--only", default="", help="names that contain this")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    calls: dict[str, Call] = {}
    for model in MODELS:
        calls |= training(model) | generating(model) | layouts(model)
    results = {}
    gc.disable()
    print(f"{'microseconds of one evaluation':<48}{'median':>9}{'10 %':>9}{'90 %':>9}{'again':>9}")
    for name, call in calls.items():
        if options.only not in name:
            continue
        row = results[name] = measure(call, options.rounds)
        gc.collect()
        print(f"{name:<48}" + "".join(f"{value:>9.1f}" for value in row.values()), flush=True)
    if options.out:
        rows = {name: {key: round(value, 1) for key, value in row.items()} for name, row in results.items()}
        text = {"python": platform.python_version(), "rounds": options.rounds, "stages": rows}
        options.out.write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
