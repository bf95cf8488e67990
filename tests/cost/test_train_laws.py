"""Laws of training and scoring times: more is never faster, better hardware never slower."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.architecture import Architecture, Experts, Latent, Layer, Recurrent
from rpeg.cluster import Fabric, Link, device_kind
from rpeg.cost import Execution, Machine, Sequences, infer_stage, stack, train_stage
from rpeg.plan import Parallelism

DENSE = Architecture("dense", "llama", 16, 2048, 16, 4, 128, 8192, 32000, 131072)
MIXTURE = replace(DENSE, name="mixture", experts=Experts(32, 4, 768, shared_ffn=1024))
LATENT = replace(DENSE, name="latent", kv_heads=16, latent=Latent(768, 512, 128, 64, 128))
HYBRID = replace(
    DENSE,
    name="hybrid",
    recurrent=Recurrent(32, 64, 128, 4),
    pattern=(Layer("recurrent", "none"), Layer("none", "dense")) * 7 + (Layer("full", "dense"),) * 2,
)
MODELS = st.sampled_from([DENSE, MIXTURE, LATENT, HYBRID])
STACKS = st.sampled_from(["megatron", "flash", "eager", "compiled"])


@st.composite
def executions(draw: st.DrawFn) -> Execution:
    tp, pp, cp = (
        draw(st.sampled_from([1, 2, 4])),
        draw(st.sampled_from([1, 2, 4])),
        draw(st.sampled_from([1, 2])),
    )
    layout = Parallelism(
        dp=draw(st.sampled_from([1, 2, 8])),
        tp=tp,
        pp=pp,
        cp=cp,
        zero=draw(st.sampled_from([0, 1, 2, 3])),
        vpp=draw(st.sampled_from([1, 2])),
        sequence_parallel=draw(st.booleans()),
    )
    return Execution(
        layout,
        microbatch=draw(st.sampled_from([1, 2])),
        recompute=draw(st.sampled_from(["none", "selective", "full"])),
        lora_rank=draw(st.sampled_from([None, None, 16])),
        graphs=draw(st.booleans()),
    )


def machine(name: str, *, memory: float = 1.0, links: float = 1.0, peak: float = 1.0) -> Machine:
    kind = device_kind("h100-sxm")
    kind = replace(
        kind,
        memory_bandwidth_bytes_per_second=kind.memory_bandwidth_bytes_per_second * memory,
        peak_flops=tuple((dtype, flops * peak) for dtype, flops in kind.peak_flops),
    )
    node, rack = Link("node", 4.5e11 * links, 2e-6, "test"), Link("rack", 5e10 * links, 4e-6, "test")
    return Machine(kind, Fabric(((node, 8), (rack, 4096))), stack(name, kind.name))


def seconds(
    architecture: Architecture, count: int, length: int, execution: Execution, on: Machine, **more: Any
) -> float:
    rows = count * execution.parallelism.dp * execution.microbatch
    return train_stage(architecture, Sequences.equal(rows, length), execution, on, **more).seconds


@settings(max_examples=40, deadline=None)
@given(MODELS, STACKS, executions(), st.integers(1, 6), st.sampled_from([128, 640, 2048, 8192]))
def test_more_work_never_takes_less_time(
    architecture: Architecture, name: str, execution: Execution, count: int, length: int
) -> None:
    on = machine(name)
    base = seconds(architecture, count, length, execution, on)
    assert seconds(architecture, count + 1, length, execution, on) >= base
    assert seconds(architecture, count, length + 64, execution, on) >= base * (1 - 1e-9)
    assert seconds(replace(architecture, layers=16), count, length, execution, on, updates=1) == base
    wider = replace(architecture, vocabulary=architecture.vocabulary * 2)
    assert seconds(wider, count, length, execution, on) >= base * (1 - 1e-9)


@settings(max_examples=40, deadline=None)
@given(MODELS, STACKS, executions(), st.sampled_from([256, 2048]))
def test_better_hardware_never_hurts(
    architecture: Architecture, name: str, execution: Execution, length: int
) -> None:
    base = seconds(architecture, 2, length, execution, machine(name))
    for better in ({"memory": 2.0}, {"links": 2.0}, {"peak": 2.0}):
        assert seconds(architecture, 2, length, execution, machine(name, **better)) <= base * (1 + 1e-9)


@settings(max_examples=30, deadline=None)
@given(MODELS, STACKS, executions(), st.integers(1, 4))
def test_parts_add_up_and_nothing_is_negative(
    architecture: Architecture, name: str, execution: Execution, updates: int
) -> None:
    layout = execution.parallelism
    sequences = Sequences.equal(updates * layout.dp * execution.microbatch * 2, 512)
    for cost in (
        train_stage(architecture, sequences, execution, machine(name), updates=updates),
        infer_stage(architecture, sequences, execution, machine(name)),
    ):
        for _, node in cost.walk():
            assert min(node.seconds, node.flops, node.bytes) >= 0
            if node.children:
                assert node.seconds == pytest.approx(sum(child.seconds for child in node.children))


@settings(max_examples=30, deadline=None)
@given(MODELS, STACKS, st.integers(1, 64), st.integers(64, 4096))
def test_packing_takes_longer_for_more_tokens(
    architecture: Architecture, name: str, count: int, length: int
) -> None:
    execution = Execution(Parallelism(dp=2), token_budget=8192)
    few, more = Sequences.equal(2 * count, length), Sequences.equal(2 * count + 2, length)
    on = machine(name)
    assert infer_stage(architecture, more, execution, on).seconds >= infer_stage(
        architecture, few, execution, on
    ).seconds * (1 - 1e-9)
