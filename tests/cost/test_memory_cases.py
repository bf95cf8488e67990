"""Hand-worked sizes, and what users ran into, as far as the cause was confirmed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rpeg.architecture import named
from rpeg.cluster import Link, device_kind
from rpeg.cluster.fabric import Fabric
from rpeg.cost import Execution, Machine, Precision, Sequences, stack
from rpeg.cost.execution import Logits, Offload
from rpeg.cost.memory import (
    Footprint,
    advice,
    cache_room,
    generate_memory,
    host_memory,
    host_short_bytes,
    infer_memory,
    remedies,
    rows_in_cache,
    sequence_cache_bytes,
    train_memory,
)
from rpeg.cost.memory.activations import layer_kept
from rpeg.cost.memory.logits import logit_lines
from rpeg.cost.memory.stages import slices
from rpeg.cost.memory.state import holding, optimizer_lines
from rpeg.errors import InputError
from rpeg.plan import Parallelism
from rpeg.units import GIB, MIB

FABRIC = Fabric(((Link("node", 4.5e11, 5e-6), 8), (Link("rack", 5e10, 1e-5), 4096)))


def machine(name: str = "megatron", kind: str = "h100-sxm", host: float = 0.0) -> Machine:
    return Machine(device_kind(kind), FABRIC, stack(name, kind), host)


def test_logits_name_the_dtype_of_each_copy() -> None:
    """trl issue 3678: B = 2, L = 256, V = 151,665: 155 MB in 16 bits, 311 MB in float32, 902 MB at the peak."""
    small = replace(named("Qwen3-0.6B"), vocabulary=151_665)
    lines = logit_lines(small, Execution(), stack("flash").memory, 2 * 256)
    assert [(line.name.rsplit(" ", 1)[1], round(line.bytes / 1e6)) for line in lines] == [
        ("bfloat16", 155),
        ("float32", 311),
        ("float32", 311),
        ("float32", 311),
    ]
    without_gradient = logit_lines(small, Execution(), stack("flash").memory, 2 * 256, gradient=False)
    assert sum(line.bytes for line in without_gradient) == pytest.approx(777e6, rel=0.01)


@pytest.mark.parametrize(("tokens", "vocabulary", "gib"), [(20_357, 131_072, 9.94), (8_192, 248_320, 7.58)])
def test_one_float32_copy_of_long_logits(tokens: int, vocabulary: int, gib: float) -> None:
    """NeMo RL issue 4222 and others: blocks of this size were asked for when memory ran out."""
    model = replace(named("Qwen3-8B"), vocabulary=vocabulary)
    copy = next(
        line
        for line in logit_lines(model, Execution(), stack("flash").memory, tokens)
        if "float32" in line.name
    )
    assert copy.bytes / GIB == pytest.approx(gib, abs=0.01)
    chunked = logit_lines(model, Execution(logits="chunked"), stack("flash").memory, tokens)
    assert max(line.bytes for line in chunked) < copy.bytes / 7


def test_boundaries_of_recomputed_layers_shrink_with_context_parallelism() -> None:
    """verl issue 7476: 32,768 × 5,120 × 2 bytes are 320 MiB a boundary, 40 MiB on 8 context-parallel ranks."""
    model = replace(named("Qwen3-32B"), hidden=5120)
    kept = layer_kept(model, model.groups[0][0], Execution(recompute="full"), stack("flash")).kept
    assert kept * 32_768 == 320 * MIB
    footprint = {
        cp: train_memory(
            model,
            Sequences.equal(8, 32_768),
            Execution(Parallelism(cp=cp), recompute="full"),
            machine("flash"),
        ).phases[2]
        for cp in (1, 8)
    }
    assert footprint[1].find("activations") == pytest.approx(model.layers * 320 * MIB)
    assert footprint[8].find("activations") == pytest.approx(model.layers * 40 * MIB)


def test_a_layer_of_gpt_keeps_what_the_paper_counts() -> None:
    """Korthikanti et al. 2022: 34·h bytes a token, of which 2·h are dropout masks, and 5·a·s more unfused."""
    gpt = replace(named("gpt2"), layers=1)
    layer = gpt.groups[0][0]
    fused = layer_kept(gpt, layer, Execution(), stack("megatron"))
    statistics = 4 * gpt.heads
    assert fused.kept - statistics == 32 * gpt.hidden
    old = stack("eager")
    unfused = layer_kept(
        gpt, layer, Execution(), replace(old, kernels=replace(old.kernels, attention="unfused"))
    )
    assert unfused.pairs == 5 * gpt.heads
    assert layer_kept(gpt, layer, Execution(recompute="full"), stack("megatron")).kept == 2 * gpt.hidden


def test_mixed_precision_takes_eighteen_bytes_a_parameter_before_sharding() -> None:
    model = named("Llama-3.1-8B")
    whole = train_memory(model, Sequences.equal(1, 1), Execution(), machine()).phase("optimizer")
    assert whole is not None
    states = whole.pool_bytes("state")
    assert states == pytest.approx(18 * model.parameters(), rel=1e-9)
    sharded = Execution(Parallelism(dp=8, zero=3), Precision(weights="float32", master=False))
    part = train_memory(model, Sequences.equal(8, 1), sharded, machine()).phase("optimizer")
    assert part is not None
    assert part.pool_bytes("state") == pytest.approx(16 * model.parameters() / 8, rel=1e-9)


def test_moments_exist_only_after_the_first_step() -> None:
    """NeMo Automodel issue 2577: step 0 fits, step 1 does not, as Adam's state comes with the first step."""
    model, p = named("Llama-3.1-8B"), Parallelism(dp=8, zero=3)
    held = holding(model, slices(model, 1)[0], p, ("lm",))
    before = sum(line.bytes for line in optimizer_lines(held, Execution(p), stepped=False))
    after = sum(line.bytes for line in optimizer_lines(held, Execution(p)))
    assert after - before == pytest.approx(8 * model.parameters() / 8)


def test_seven_billion_parameters_need_offload_on_one_40_gb_card() -> None:
    """OpenRLHF issue 254: Adam's states of 7B are 84 GB in float32."""
    model, card = named("Llama-2-7B"), machine("flash", "a100-40gb-sxm")
    capacity = card.kind.usable_memory_bytes
    batch, lean = Sequences.equal(8, 512), Execution(recompute="full", logits="chunked")
    assert not train_memory(model, batch, lean, card).fits(capacity)
    offloaded = replace(lean, offload="all")
    assert train_memory(model, batch, offloaded, card).fits(capacity)
    host = host_memory(model, offloaded, card)
    assert host.find("offloaded state") > 84e9


def test_grpo_of_14b_does_not_fit_four_cards_whatever_its_batch() -> None:
    """verl issue 855: actor, reference and engine together leave nothing of 4 × 80 GB; of 8 it depends on logits."""
    model, where = named("Qwen2.5-14B"), machine("flash")
    precision = Precision(weights="float32", master=False)
    capacity = where.kind.usable_memory_bytes

    def short(devices: int, budget: int, logits: Logits = "materialised") -> float:
        layout = Parallelism(dp=devices, zero=3)
        execution = Execution(layout, precision, token_budget=budget, recompute="full", logits=logits)
        batch = Sequences.equal(512, 1024)
        actor = train_memory(model, batch, execution, where).peak.device_bytes
        reference = infer_memory(model, batch, Execution(layout), where).resting_bytes
        engine = generate_memory(
            model, Execution(Parallelism(tp=devices)), machine("vllm"), rows=1, context=1024
        )
        return actor + reference + engine.phases[0].pool_bytes("state") - capacity

    assert short(4, 1024) > 0
    assert short(8, 24_000) > 0
    assert short(8, 24_000, "chunked") < 0
    assert short(8, 6_000) < 0


def test_three_gpus_for_the_actor_and_long_samples() -> None:
    """OpenRLHF issue 887: 7.6B over 3 devices is 40 GB each, a sample of 37,888 tokens 10.7 GiB of 16-bit logits."""
    model = named("Qwen2.5-7B")
    execution = Execution(
        Parallelism(dp=3, zero=3), Precision(weights="float32", master=False), recompute="full"
    )
    footprint = train_memory(model, Sequences.equal(576, 37_888), execution, machine("flash"))
    update = footprint.phase("update")
    assert update is not None
    assert update.pool_bytes("state") / 1e9 >= 40
    assert update.find("logits bfloat16") / GIB == pytest.approx(10.7, abs=0.1)
    assert not footprint.fits(80 * GIB)
    assert "logits" in update.largest.name


def test_the_verdict_names_phase_line_and_gap_and_the_ways_out() -> None:
    model, where = named("Llama-3.1-8B"), machine("flash")
    execution = Execution(Parallelism(dp=8, zero=3), microbatch=8)
    batch, capacity = Sequences.equal(256, 4096), float(where.kind.usable_memory_bytes)

    def measure(changed: Execution) -> Footprint:
        return train_memory(model, batch, changed, where)

    text = advice(execution, capacity, measure)
    assert "GiB short of 79" in text
    assert "'update'" in text
    assert "micro-batch" in text
    found = remedies(execution, capacity, measure)
    assert [remedy.fits for remedy in found] == sorted((remedy.fits for remedy in found), reverse=True)
    for remedy in found:
        again = train_memory(model, batch, remedy.execution, where)
        assert again.fits(capacity) == remedy.fits
        assert again.peak.device_bytes == pytest.approx(remedy.peak_bytes)
    fits = train_memory(model, batch, replace(execution, microbatch=1, recompute="full"), where)
    assert "fits into" in fits.verdict(capacity)


def test_adapters_leave_frozen_weights_without_gradients_and_moments() -> None:
    model, where = named("Llama-3.1-8B"), machine("flash")
    batch = Sequences.equal(8, 1024)
    whole = train_memory(model, batch, Execution(), where).peak
    lora = train_memory(model, batch, Execution(lora_rank=16), where).peak
    assert lora.find("gradients of adapters") < 0.01 * whole.find("gradients float32")
    quantised = Execution(lora_rank=1, precision=Precision(weights="nf4"))
    weights = train_memory(model, batch, quantised, where).peak.find("parameters")
    embeddings = 2 * model.hidden * model.vocabulary
    assert weights == pytest.approx(0.5625 * (model.parameters() - embeddings) + 2 * embeddings, rel=0.02)


def test_the_cache_of_an_engine() -> None:
    """Llama-3.1-8B: 2 × 32 layers × 8 heads × 128 × 2 bytes are 128 KiB a token."""
    model, where, execution = named("Llama-3.1-8B"), machine("vllm"), Execution(graphs=True)
    assert sequence_cache_bytes(model, 1024, execution) == 1024 * 128 * 1024
    assert sequence_cache_bytes(model, 1024, Execution(Parallelism(tp=8))) == 128 * 128 * 1024
    assert (
        sequence_cache_bytes(model, 1024, Execution(Parallelism(tp=16))) == 128 * 128 * 1024
    )  # heads are copied
    room = cache_room(model, execution, where, rows=256)
    assert 45 * GIB < room < 56 * GIB  # of 79.6 × 0.9, after 15 GiB of weights
    rows = rows_in_cache(model, execution, where, rows=256, context=4096)
    assert rows == int(room // (4096 * 128 * 1024))
    full = generate_memory(model, execution, where, rows=256, context=4096, utilisation=0.9)
    assert full.phase("generate").device_bytes == pytest.approx(0.9 * where.kind.usable_memory_bytes)  # type: ignore[union-attr]
    assert cache_room(named("Llama-3.1-70B"), execution, where, rows=1) == 0.0


def test_a_latent_cache_and_a_window_stay_small() -> None:
    deepseek, gemma = named("DeepSeek-V3"), named("gemma-2-9b")
    one, many = (sequence_cache_bytes(deepseek, 1024, Execution(Parallelism(tp=tp))) for tp in (1, 8))
    assert one == many == 1024 * 61 * 576 * 2
    short, long = (sequence_cache_bytes(gemma, context, Execution()) for context in (4096, 8192))
    assert long == pytest.approx(1.5 * short)  # half of the layers see 4,096 tokens


def test_a_scoring_model_holds_no_training_state() -> None:
    model, where = named("Llama-3.1-8B"), machine("flash")
    footprint = infer_memory(
        model, Sequences.equal(64, 2048), Execution(microbatch=4), where, heads=("reward",)
    )
    assert [phase.phase for phase in footprint.phases] == ["load", "score", "rest"]
    assert footprint.peak.find("gradients float32") == footprint.peak.find("logits") == 0
    assert footprint.phases[0].find("parameters") == pytest.approx(2 * (model.parameters("reward")), rel=1e-6)


def test_reserved_is_clipped_by_the_card_and_never_below_allocated() -> None:
    footprint = train_memory(
        named("Llama-3.1-8B"),
        Sequences.equal(8, 8192),
        Execution(Parallelism(dp=8, zero=3)),
        machine("flash"),
    )
    peak = footprint.peak
    assert footprint.reserved_bytes(1e15) == peak.reserved_bytes
    tight = peak.device_bytes - 0.5 * peak.pool_bytes("unused")
    assert peak.allocated_bytes < footprint.reserved_bytes(tight) < peak.reserved_bytes
    assert footprint.reserved_bytes(1e9) == peak.allocated_bytes


def test_host_memory_counts_processes_and_what_rests_there() -> None:
    model = named("Llama-3.1-8B")
    lean = host_memory(model, Execution(Parallelism(dp=8, zero=1)), machine(), asynchronous_checkpoint=False)
    asleep = host_memory(model, Execution(Parallelism(dp=8, zero=1)), machine(), asleep=1)
    assert asleep.find("weights asleep") == pytest.approx(8 * 2 * model.parameters())
    assert lean.find("processes") == 8 * stack("megatron").memory.host_process_bytes
    assert host_short_bytes(asleep, machine(host=64e9)) > 0
    assert host_short_bytes(asleep, machine(host=2e12)) == 0
    assert host_short_bytes(asleep, machine()) == 0


@pytest.mark.parametrize(
    ("name", "parallelism", "numbers"),
    [
        ("Llama-3.1-8B", Parallelism(tp=3), ("32 heads", "tp = 3", "2 and 4")),
        ("Llama-3.1-8B", Parallelism(pp=64), ("32 layers", "pp = 64", "pp = 32")),
        ("Llama-3.1-8B", Parallelism(ep=2), ("no experts", "ep = 2")),
        ("Qwen3-30B-A3B", Parallelism(dp=6, ep=4), ("ep = 4", "6 ranks", "3 and 6")),
        ("Qwen3-30B-A3B", Parallelism(ep=3), ("128 experts", "ep = 3", "2 and 4")),
    ],
)
def test_parallelism_that_does_not_divide_is_refused(
    name: str, parallelism: Parallelism, numbers: tuple[str, ...]
) -> None:
    with pytest.raises(InputError) as caught:
        train_memory(named(name), Sequences.equal(8, 128), Execution(parallelism), machine())
    assert all(number in str(caught.value) for number in numbers)


def test_pipelined_fsdp_keeps_weights_gathered() -> None:
    """torchtitan does not reshard between micro-batches of a pipeline, and reduces gradients once an update."""
    model = named("Llama-3.1-70B")
    precision = Precision(weights="float32", master=False)
    footprint = train_memory(
        model,
        Sequences.equal(64, 2048),
        Execution(Parallelism(dp=8, pp=4, zero=3), precision, recompute="full"),
        machine("compiled"),
        rank=1,
    )
    update = footprint.phase("update")
    assert update is not None
    layers = 20 * sum(model.layer_parts(model.groups[0][0]).values())
    assert update.find("weights kept gathered") == pytest.approx(2 * layers)
    assert update.find("whole gradients") == pytest.approx(4 * layers)


def test_what_rests_on_the_device_follows_offload() -> None:
    model, where, batch = named("Llama-3.1-8B"), machine("flash"), Sequences.equal(8, 1024)
    weights, states = 2 * model.parameters(), 14 * model.parameters()

    def resting(offload: Offload) -> float:
        return train_memory(model, batch, Execution(offload=offload), where).resting_bytes

    assert resting("none") == pytest.approx(states)  # gradients are gone after a step
    assert resting("optimizer") == pytest.approx(weights)
    assert resting("all") == 0
    kept = train_memory(model, batch, Execution(), machine("megatron")).resting_bytes
    assert kept == pytest.approx(states + 4 * model.parameters())  # Megatron keeps its gradient buffer
    engine = Execution(precision=Precision(cache="float8"))
    awake = generate_memory(model, engine, machine("vllm"), rows=8, context=1024)
    asleep = generate_memory(model, replace(engine, offload="all"), machine("vllm"), rows=8, context=1024)
    assert awake.resting_bytes == pytest.approx(weights + 8 * 1024 * 64 * 1024)
    assert asleep.resting_bytes == 0
