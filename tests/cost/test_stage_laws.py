"""Laws over random kinds, stacks, models and layouts: more work is never faster, faster hardware never slower."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.architecture import Architecture, named
from rpeg.cluster import Fabric, Link, device_kind
from rpeg.cluster.kinds import device_kinds
from rpeg.cost import (
    Execution,
    Machine,
    Sequences,
    generate_stage,
    infer_stage,
    stack,
    stacks,
    train_memory,
    train_stage,
)
from rpeg.cost.generating import Policy
from rpeg.cost.kernels import kernels_of
from rpeg.cost.network import collective_seconds
from rpeg.errors import InputError
from rpeg.plan import Parallelism

MODELS = ("Llama-3.1-8B", "Qwen3-30B-A3B", "DeepSeek-V2-Lite", "Nemotron-3-Nano-30B-A3B", "gpt-oss-20b")
KINDS = tuple(name for name in device_kinds() if name != "cpu" and not name.startswith("v100"))
BETTER = ("memory", "host", "node", "rack", "peak")


def machine(kind: str, software: str, better: str = "") -> Machine:
    """Of a kind under a stack, one of its speeds doubled."""
    known, twice = device_kind(kind), {name: 2.0 if name == better else 1.0 for name in BETTER}
    fast = replace(
        known,
        memory_bandwidth_bytes_per_second=known.memory_bandwidth_bytes_per_second * twice["memory"],
        host_bandwidth_bytes_per_second=known.host_bandwidth_bytes_per_second * twice["host"],
        peak_flops=tuple((dtype, flops * twice["peak"]) for dtype, flops in known.peak_flops),
    )
    node, rack = Link("node", 2.5e11 * twice["node"], 2e-6), Link("rack", 5e10 * twice["rack"], 4e-6)
    return Machine(fast, Fabric(((node, 8), (rack, 4096))), stack(software, kind))


def deeper(model: Architecture) -> Architecture:
    """Twice the layers."""
    return replace(model, layers=2 * model.layers, pattern=2 * model.pattern)


layouts = st.builds(
    Parallelism,
    dp=st.sampled_from([1, 2, 8]),
    tp=st.sampled_from([1, 2]),
    cp=st.sampled_from([1, 2]),
    zero=st.integers(0, 3),
    sequence_parallel=st.booleans(),
)
executions = st.builds(
    Execution,
    parallelism=layouts,
    microbatch=st.sampled_from([1, 2]),
    recompute=st.sampled_from(["none", "selective", "full"]),
    offload=st.sampled_from(["none", "optimizer", "all"]),
)
places = st.tuples(st.sampled_from(KINDS), st.sampled_from(stacks()))


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(MODELS), places, executions, st.integers(1, 4), st.integers(16, 9000), st.integers(1, 999)
)
def test_training_and_scoring(
    name: str, place: tuple[str, str], execution: Execution, count: int, length: int, more: int
) -> None:
    model, on = named(name), machine(*place)
    rows = count * execution.parallelism.dp * execution.microbatch
    batch = Sequences.equal(rows, length)
    for stage in (train_stage, infer_stage):
        base = stage(model, batch, execution, on).seconds * (1 - 1e-9)
        assert stage(model, Sequences.equal(rows, length + more), execution, on).seconds >= base
        assert stage(model, Sequences.equal(2 * rows, length), execution, on).seconds >= base
        assert stage(deeper(model), batch, execution, on).seconds >= base
        for better in BETTER:
            faster = stage(model, batch, execution, machine(*place, better)).seconds
            assert faster * (1 - 2e-9) <= base
    peak = train_memory(model, batch, execution, on).peak.device_bytes
    longer = train_memory(model, Sequences.equal(rows, length + more), execution, on)
    assert longer.peak.device_bytes >= peak


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(MODELS), places, st.integers(0, 99), st.sampled_from([8, 64, None]), st.integers(1, 2000)
)
def test_generating(name: str, place: tuple[str, str], seed: int, rows: int | None, more: int) -> None:
    model, random = named(name), np.random.default_rng(seed)
    prompts, responses = np.repeat(random.integers(10, 900, 16), 4), random.integers(1, 2000, 64)
    policy, execution = (
        Policy(max_rows=rows, cache_bytes=4e10),
        Execution(Parallelism(tp=2), graphs=seed % 2 == 0),
    )

    def seconds(lengths: np.ndarray, on: Machine, model: Architecture = model) -> float:
        return generate_stage(
            model, prompts, lengths, execution, on, samples_per_prompt=4, policy=policy
        ).seconds

    on = machine(*place)
    base = seconds(responses, on)
    one = responses.copy()
    one[seed % 64] += more
    assert seconds(one, on) >= base * (1 - 2e-3)  # stretches of steps have means of their own
    assert seconds(responses + more, on) >= base * (1 - 1e-9)
    assert seconds(responses, on, deeper(model)) >= base * (1 - 1e-9)
    for better in BETTER:
        assert seconds(responses, machine(*place, better)) <= base * (1 + 1e-3)


@settings(max_examples=20, deadline=None)
@given(
    places,
    st.sampled_from(["bfloat16", "float8", "float4", "float8-block"]),
    st.floats(1.0, 3e5),
    st.floats(1.0, 1e5),
    st.sampled_from([64, 1000, 4096, 50_000]),
    st.sampled_from([1.01, 2.0, 10.0]),
)
def test_kernels(
    place: tuple[str, str], dtype: str, rows: float, context: float, width: int, more: float
) -> None:
    base = kernels_of(machine(*place))
    cache = "float8" if dtype.startswith("float8") else "bfloat16"
    asked = [
        lambda k, x, y: k.gemm(x, width, 4096.0, dtype),
        lambda k, x, y: k.gemm(512.0, x, float(width), dtype),
        lambda k, x, y: k.experts(x, 64.0, 2048.0, 768.0, dtype),
        lambda k, x, y: k.attention(x * y / 2, x, 32.0, 8.0, 96.0, dtype),
        lambda k, x, y: k.decode_attention(x, y, 32.0, 4.0, 256.0, cache),
        lambda k, x, y: k.latent_attention(x * y / 2, x, 16.0, 128.0, 64.0, 128.0, dtype),
        lambda k, x, y: k.latent_decode(x, y, 16.0, 512.0, 64.0, cache),
    ]
    for kernel in asked:
        usual = float(kernel(base, rows, context).seconds) * (1 - 1e-9)
        assert kernel(base, rows * more, context).seconds >= usual
        assert kernel(base, rows, context * more).seconds >= usual
        for better in ("memory", "peak"):
            assert kernel(kernels_of(machine(*place, better)), rows, context).seconds * (1 - 2e-9) <= usual


@settings(max_examples=60, deadline=None)
@given(
    places,
    st.sampled_from(["all_gather", "reduce_scatter", "all_to_all", "broadcast"]),
    st.sampled_from([2, 3, 8, 16, 64]),
    st.floats(1.0, 1e10),
    st.floats(1.0, 10.0),
)
def test_collectives(place: tuple[str, str], kind: str, ranks: int, size: float, more: float) -> None:
    on = machine(*place)
    usual = collective_seconds(kind, size, ranks, on)  # type: ignore[arg-type]
    within = min(ranks, 8)
    least = size * (within - 1) / max(ranks, 8) / 2.5e11
    assert usual >= least * (1 - 1e-9)
    assert collective_seconds(kind, size * more, ranks, on) >= usual * (1 - 1e-9)  # type: ignore[arg-type]
    for better in ("node", "rack"):
        assert collective_seconds(kind, size, ranks, machine(*place, better)) <= usual * (1 + 1e-9)  # type: ignore[arg-type]


def test_a_replica_without_samples_costs_nothing() -> None:
    """Three groups on four replicas."""
    prompts, responses = np.repeat([100, 200, 300], 2), np.full(6, 50)
    found = generate_stage(
        named("Llama-3.1-8B"),
        prompts,
        responses,
        Execution(Parallelism(dp=4)),
        machine("h100-sxm", "vllm"),
        samples_per_prompt=2,
    )
    assert (found.replica_seconds == 0).sum() == 1
    assert (found.offsets > 0).all()


@pytest.mark.parametrize(
    ("layout", "rows", "words"),
    [
        (Parallelism(tp=3), 8, ["32 heads", "tp = 3", "2 or 4"]),
        (Parallelism(tp=64), 8, ["32 heads", "tp = 64", "32"]),
        (Parallelism(pp=40), 8, ["32 layers", "40", "32"]),
        (Parallelism(ep=2, dp=2), 8, ["no experts", "ep = 2", "1"]),
        (Parallelism(dp=8192), 8192, ["8192 devices", "4096"]),
        (Parallelism(dp=3), 8, ["8 sequences", "dp = 3", "6 or 9"]),
    ],
)
def test_layouts_that_cannot_run_name_both_numbers(layout: Parallelism, rows: int, words: list[str]) -> None:
    batch, on = Sequences.equal(rows, 512), machine("h100-sxm", "megatron")
    with pytest.raises(InputError) as error:
        train_stage(named("Llama-3.1-8B"), batch, Execution(layout), on)
    assert not [word for word in words if word not in str(error.value)], str(error.value)
