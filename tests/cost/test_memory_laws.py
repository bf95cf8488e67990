"""Laws of the memory model: more never takes less, shards add up to the whole, recomputing never costs memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.architecture import Architecture, named
from rpeg.cluster import Link, device_kind
from rpeg.cluster.fabric import Fabric
from rpeg.cost import Execution, Machine, Sequences, stack
from rpeg.cost.memory import Footprint, generate_memory, infer_memory, train_memory
from rpeg.cost.memory.stages import kept_microbatches, slices
from rpeg.cost.memory.state import holding, optimizer_lines, shards, updated_parameters
from rpeg.plan import Parallelism

FABRIC = Fabric(((Link("node", 4.5e11, 5e-6), 8), (Link("rack", 5e10, 1e-5), 4096)))
MODELS = ("Llama-3.1-8B", "Qwen3-30B-A3B", "DeepSeek-V2-Lite", "gemma-2-2b")
STACKS = ("megatron", "flash", "eager", "compiled")


def machine(name: str = "megatron", kind: str = "h100-sxm") -> Machine:
    return Machine(device_kind(kind), FABRIC, stack(name, kind))


def peak(architecture: Architecture, count: int, length: int, execution: Execution, where: Machine) -> float:
    footprint = train_memory(architecture, Sequences.equal(count, length), execution, where)
    return footprint.peak.device_bytes


executions = st.builds(
    Execution,
    parallelism=st.builds(
        Parallelism,
        dp=st.sampled_from([1, 2, 4]),
        tp=st.sampled_from([1, 2, 4]),
        pp=st.sampled_from([1, 2, 4]),
        cp=st.sampled_from([1, 2]),
        zero=st.integers(0, 3),
        sequence_parallel=st.booleans(),
    ),
    microbatch=st.integers(1, 4),
    recompute=st.sampled_from(["none", "selective", "full"]),
    offload=st.sampled_from(["none", "optimizer", "all"]),
    lora_rank=st.sampled_from([None, 8]),
    logits=st.sampled_from(["materialised", "chunked"]),
)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(MODELS),
    st.sampled_from(STACKS),
    executions,
    st.integers(1, 64),
    st.integers(16, 4096),
    st.integers(1, 3),
)
def test_more_work_never_takes_less_memory(
    name: str, software: str, execution: Execution, count: int, length: int, factor: int
) -> None:
    architecture, where = named(name), machine(software)
    here = peak(architecture, count, length, execution, where)
    assert peak(architecture, count * factor, length, execution, where) >= here * (1 - 1e-12)
    assert peak(architecture, count, length * factor, execution, where) >= here * (1 - 1e-12)
    larger = replace(execution, microbatch=execution.microbatch * factor)
    many = 64 * execution.parallelism.dp * larger.microbatch
    assert peak(architecture, many, length, larger, where) >= peak(
        architecture, many, length, execution, where
    ) * (1 - 1e-12)
    wider = replace(architecture, vocabulary=architecture.vocabulary * factor)
    assert peak(wider, count, length, execution, where) >= here * (1 - 1e-12)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(MODELS), st.sampled_from(STACKS), executions, st.integers(16, 4096))
def test_every_breakdown_adds_up_and_nothing_is_negative(
    name: str, software: str, execution: Execution, length: int
) -> None:
    footprint = train_memory(named(name), Sequences.equal(64, length), execution, machine(software))
    for phase in footprint.phases:
        assert all(line.bytes >= 0 for line in phase.lines)
        assert phase.device_bytes == pytest.approx(sum(line.bytes for line in phase.lines))
        assert phase.allocated_bytes <= phase.reserved_bytes <= phase.device_bytes
    assert footprint.reserved_bytes(1e18) >= max(phase.allocated_bytes for phase in footprint.phases)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(MODELS), st.sampled_from(STACKS), executions, st.integers(16, 4096))
def test_recomputing_and_chunking_never_take_more(
    name: str, software: str, execution: Execution, length: int
) -> None:
    architecture, where = named(name), machine(software)
    none, selective, full = (
        peak(architecture, 64, length, replace(execution, recompute=policy), where)
        for policy in ("none", "selective", "full")
    )
    assert full <= selective * (1 + 1e-12)
    assert selective <= none * (1 + 1e-12)
    chunked = peak(architecture, 64, length, replace(execution, logits="chunked"), where)
    assert chunked <= peak(architecture, 64, length, replace(execution, logits="materialised"), where)


@pytest.mark.parametrize("name", ["Llama-3.1-8B", "Qwen3-30B-A3B", "DeepSeek-V2-Lite"])
@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize("pp", [1, 3])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_parameters_and_optimizer_state_of_all_ranks_are_the_whole(
    name: str, tp: int, pp: int, zero: int
) -> None:
    architecture = named(name)
    ep = 2 if architecture.experts else 1
    p = Parallelism(dp=4, tp=tp, pp=pp, ep=ep, zero=zero)
    execution = Execution(parallelism=p)
    replicated = sum(
        count * (parts["norms"] + parts["router"])
        for layer, count in architecture.groups
        for parts in [architecture.layer_parts(layer)]
    )
    replicated += architecture.final_norm_parameters
    total = updated = state = 0.0
    for part in slices(architecture, pp):
        held = holding(architecture, part, p, ("lm",))
        # dense parts lie on tp ranks a replica, routed experts on ep
        total += held.dense * tp + held.experts * ep
        dense, routed = shards(p, 1)
        assert updated_parameters(held, execution) == pytest.approx(
            held.dense / dense + held.experts / routed
        )
        updated += held.dense / dense * dense * tp + held.experts / routed * routed * ep
        state += sum(line.bytes for line in optimizer_lines(held, execution)) * dense * tp if ep == 1 else 0.0
    tied = architecture.tied_embeddings and pp > 1
    whole = architecture.parameters() + tied * architecture.hidden * architecture.vocabulary
    whole += (tp - 1) * replicated
    assert total == pytest.approx(whole, rel=1e-12)
    assert updated == pytest.approx(whole, rel=1e-12)
    if ep == 1:
        assert state == pytest.approx(12 * whole, rel=1e-12)  # float32 master weights and two moments


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(MODELS), st.integers(1, 8), st.integers(1, 3), st.booleans())
def test_pipeline_ranks_hold_every_layer_once(name: str, pp: int, vpp: int, balanced: bool) -> None:
    architecture = named(name)
    parts = slices(architecture, pp, vpp, balanced)
    assert sum(part.layers for part in parts) == architecture.layers
    assert [part.embedding for part in parts] == [True] + [False] * (pp - 1)
    assert [part.head for part in parts] == [False] * (pp - 1) + [True]


def test_the_first_rank_keeps_most_microbatches() -> None:
    p = Parallelism(pp=4)
    assert [kept_microbatches(p, rank, 32) for rank in range(4)] == [4, 3, 2, 1]
    assert [kept_microbatches(p, rank, 2) for rank in range(4)] == [2, 2, 2, 1]
    # Korthikanti et al. 2022, section 4.2.3: interleaving holds 1 + (p - 1)/(p·v) times as much
    interleaved = Parallelism(pp=4, vpp=2)
    assert kept_microbatches(interleaved, 0, 32) == pytest.approx(4 * (1 + 3 / 8))


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(MODELS), st.integers(1, 256), st.integers(16, 8192), st.integers(1, 4))
def test_generation_and_scoring_are_monotone(name: str, rows: int, context: int, factor: int) -> None:
    architecture, where, execution = named(name), machine("vllm"), Execution()

    def generating(rows: int, context: int) -> float:
        return generate_memory(architecture, execution, where, rows=rows, context=context).peak.device_bytes

    assert generating(rows * factor, context) >= generating(rows, context)
    assert generating(rows, context * factor) >= generating(rows, context)

    def scoring(length: int) -> Footprint:
        return infer_memory(architecture, Sequences.equal(rows, length), execution, where)

    assert scoring(context * factor).peak.device_bytes >= scoring(context).peak.device_bytes
