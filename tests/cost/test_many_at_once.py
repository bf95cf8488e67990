"""Costs of many layouts or batches asked at once are those of each asked by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rpeg.architecture import named
from rpeg.cluster import Fabric, Link, device_kind
from rpeg.cost import (
    Execution,
    Machine,
    Sequences,
    completions,
    generate_stage,
    infer_stage,
    stack,
    train_stage,
)
from rpeg.cost.generating import Policy
from rpeg.cost.network import collective_seconds
from rpeg.cost.training import Layouts, Lengths
from rpeg.plan import Parallelism

FABRIC = Fabric(((Link("node", 4.5e11, 2e-6, "test"), 8), (Link("rack", 5e10, 4e-6, "test"), 4096)))
MODELS = ("Llama-3.1-8B", "Qwen3-30B-A3B", "gemma-3-4b-it")
DEGREES: tuple[dict[str, Any], ...] = (
    {"dp": 64},
    {"dp": 64, "zero": 3},
    {"dp": 64, "zero": 3, "shard": 8},
    {"dp": 32, "tp": 2, "sequence_parallel": True, "zero": 1},
    {"dp": 8, "tp": 4, "pp": 2},
    {"dp": 8, "tp": 4, "pp": 2, "zero": 3, "sequence_parallel": True},
    {"dp": 16, "pp": 2, "vpp": 2},
    {"dp": 8, "cp": 2},
)


def machine(name: str) -> Machine:
    return Machine(device_kind("h100-sxm"), FABRIC, stack(name, "h100-sxm"))


def batches(count: int, samples: int = 96) -> list[tuple[Any, Any]]:
    random = np.random.default_rng(count)
    return [(random.integers(20, 900, samples), random.integers(1, 3000, samples)) for _ in range(count)]


def executions(model: str) -> list[Execution]:
    kinds = [
        {**d, "ep": ep} for d in DEGREES for ep in ((1, 8) if "A3B" in model and "cp" not in d else (1,))
    ]
    return [
        Execution(Parallelism(**degrees), microbatch=size, token_budget=2000 * size, recompute=recompute)
        for degrees in kinds
        for size, recompute in ((1, "none"), (4, "full"), (4, "selective"))
    ]


@pytest.mark.parametrize("software", ["flash", "megatron"])
@pytest.mark.parametrize("model", MODELS)
def test_layouts_take_what_their_trees_say_and_no_less_than_the_least(model: str, software: str) -> None:
    architecture, on = named(model), machine(software)
    drawn = [Sequences.of(*lengths) for lengths in batches(3)]
    ways = [replace(e, logits="chunked") for e in executions(model)]
    for updates in (0, 2):
        many = Layouts(architecture, Lengths.of(drawn), ways, on, updates=updates)
        for i, execution in enumerate(ways):
            if updates:
                trees = [train_stage(architecture, s, execution, on, updates=updates) for s in drawn]
            else:
                trees = [infer_stage(architecture, s, execution, on) for s in drawn]
            assert many.seconds(i) == pytest.approx([tree.seconds for tree in trees], rel=1e-12)
            assert (many.least_seconds(i) <= many.seconds(i) * (1 + 1e-12)).all()


@pytest.mark.parametrize("cache_bytes", [2e9, 40e9])
@pytest.mark.parametrize("degrees", [{"dp": 4, "tp": 2}, {"tp": 8}, {"tp": 4, "pp": 2}])
@pytest.mark.parametrize("model", MODELS)
def test_batches_are_complete_when_each_by_itself_is(
    model: str, degrees: dict[str, int], cache_bytes: float
) -> None:
    architecture, on = named(model), machine("vllm")
    execution = Execution(Parallelism(**degrees), microbatch=16, graphs=True)
    policy, drawn = Policy(max_rows=16, cache_bytes=cache_bytes), batches(3)
    many = completions(architecture, drawn, execution, on, samples_per_prompt=4, policy=policy)
    for (seconds, offsets), lengths in zip(many, drawn, strict=True):
        one = generate_stage(architecture, *lengths, execution, on, samples_per_prompt=4, policy=policy)
        assert seconds == pytest.approx(one.seconds, rel=1e-12)
        assert offsets == pytest.approx(one.offsets, rel=1e-12)


@pytest.mark.parametrize("kind", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"])
@pytest.mark.parametrize("ranks", [2, 8, 64])
def test_collectives_alike_take_what_each_does(kind: Any, ranks: int) -> None:
    sizes = np.array([0.0, 1.0, 4e3, 1e6, 3e8, 1e11])
    for name in ("flash", "vllm"):
        many = collective_seconds(kind, sizes, ranks, machine(name))
        each = [collective_seconds(kind, float(size), ranks, machine(name)) for size in sizes]
        assert many == pytest.approx(each, rel=1e-12)
