"""Serving at fixed concurrency, layouts of experts, and one pass of a replica."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.architecture import Architecture
from rpeg.architecture.layers import Experts, Latent, Layer
from rpeg.cluster import Fabric, Link, device_kind
from rpeg.cost import Execution, Machine, Precision, stack
from rpeg.cost.generating import Load, Policy, decode, forward_of, layout_of, pool_of, serve
from rpeg.errors import InputError
from rpeg.plan import Parallelism

DENSE = Architecture("8B", "llama", 32, 4096, 32, 8, 128, 14336, 128256, 131072)
MOE = Architecture(
    "moe", "mixture", 24, 4096, 32, 4, 128, 12288, 151936, 40960,
    pattern=(Layer("full", "moe"),) * 24, experts=Experts(128, 8, 1536),
)  # fmt: skip
MLA = Architecture(
    "mla", "deepseek", 8, 7168, 128, 128, 128, 18432, 129280, 163840,
    pattern=(Layer("latent", "dense"),) * 2 + (Layer("latent", "moe"),) * 6,
    experts=Experts(256, 8, 2048, shared_ffn=2048), latent=Latent(1536, 512, 128, 64, 128),
)  # fmt: skip
FABRIC = Fabric(((Link("node", 4.5e11, 5e-6, "test"), 8), (Link("rack", 5e10, 1e-5, "test"), 1024)))


def machine(engine: str = "vllm", kind: str = "h200") -> Machine:
    return Machine(device_kind(kind), FABRIC, stack(engine, kind))


def execution(precision: Precision | None = None, **degrees: int) -> Execution:
    return Execution(parallelism=Parallelism(**degrees), precision=precision or Precision(), graphs=True)


@settings(max_examples=20, deadline=None)
@given(
    engine=st.sampled_from(["vllm", "sglang", "tensorrt-llm"]),
    concurrency=st.sampled_from([1, 4, 32, 200]),
    prompt=st.sampled_from([128, 1024, 8192]),
    response=st.sampled_from([64, 1024]),
)
def test_more_requests_and_longer_prompts_never_make_a_token_faster(
    engine: str, concurrency: int, prompt: int, response: int
) -> None:
    on, how, roomy = machine(engine), execution(), Policy(cache_bytes=1e15)

    def seconds(requests: int, tokens: int) -> float:
        return serve(DENSE, requests, tokens, response, how, on, roomy).token_seconds

    usual = seconds(concurrency, prompt)
    assert seconds(2 * concurrency, prompt) >= usual * 0.999
    assert seconds(concurrency, 2 * prompt) >= usual * 0.999


def test_one_request_alone_meets_no_prompts() -> None:
    on, how = machine(), execution()
    alone = serve(DENSE, 1, 1024, 512, how, on)
    step = float(forward_of(DENSE, how, on).seconds(decode(1.0, 1024 + 256)))
    assert alone.token_seconds == pytest.approx(step)
    assert alone.cost.seconds == pytest.approx(step)
    assert alone.rows == pytest.approx(1.0)


def test_requests_beyond_the_cache_wait() -> None:
    on, how = machine(kind="h100-sxm"), execution()
    token = 2 * 32 * 8 * 128 * 2
    served = serve(DENSE, 64, 8192, 512, how, on, Policy(cache_bytes=10 * 8448 * token))
    assert served.rows <= 10.0


def test_bursts_cost_engines_half_where_prompts_run_between_steps() -> None:
    how = execution(tp=2)
    mixed = machine("vllm")
    apart = replace(mixed, stack=replace(mixed.stack, serving=replace(mixed.stack.serving, mixed=False)))
    one = serve(DENSE, 64, 4096, 128, how, mixed)
    other = serve(DENSE, 64, 4096, 128, how, apart)
    assert other.token_seconds < one.token_seconds
    assert other.first_seconds > one.first_seconds


@pytest.mark.parametrize("model", [MOE, MLA])
def test_experts_dealt_over_more_ranks_are_read_by_more(model: Architecture) -> None:
    on = machine()
    load = decode(64.0, 1024.0)

    def experts(**degrees: int) -> float:
        leaves = forward_of(model, execution(**degrees), on).leaves(load)
        return float(next(leaf.bytes for leaf in leaves if leaf.name == "experts"))

    assert experts(dp=8, ep=8) < experts(dp=2, ep=2)
    assert experts(tp=8, ep=8) == pytest.approx(experts(dp=8, ep=8), rel=0.01)


def test_layouts_of_experts() -> None:
    cut, dealt = layout_of(MOE, Parallelism(tp=4)), layout_of(MOE, Parallelism(tp=4, ep=4))
    assert (cut.ep, cut.expert_tp, cut.attention_dp) == (1, 4, 1)
    assert (dealt.ep, dealt.expert_tp, dealt.attention_dp) == (4, 1, 1)
    wide = layout_of(MOE, Parallelism(tp=2, dp=8, ep=8))
    assert (wide.attention_dp, wide.replicas, wide.devices) == (4, 2, 8)
    assert layout_of(DENSE, Parallelism(tp=2, dp=8, ep=8)).replicas == 8


@pytest.mark.parametrize(
    ("degrees", "words"),
    [
        ({"dp": 3, "ep": 3}, ["ep = 3", "128 experts", "2 or 4"]),
        ({"tp": 2, "dp": 2, "ep": 16}, ["ep = 16", "groups of 2"]),
    ],
)
def test_experts_that_cannot_be_dealt_are_named(degrees: dict[str, int], words: list[str]) -> None:
    with pytest.raises(InputError) as error:
        layout_of(MOE, Parallelism(**degrees))
    assert all(word in str(error.value) for word in words)


def test_a_latent_cache_is_smaller_and_whole_on_every_rank() -> None:
    policy = Policy(cache_bytes=1e9)
    several = replace(MOE, layers=8, kv_heads=32, pattern=MOE.pattern[:8])
    latent = pool_of(MLA, execution(tp=8), machine(), policy)
    plain = pool_of(several, execution(tp=8), machine(), policy)
    assert latent.token_bytes == 8 * (512 + 64) * 2
    assert pool_of(MLA, execution(tp=1), machine(), policy).token_bytes == latent.token_bytes
    assert plain.token_bytes * 8 == pool_of(several, execution(tp=1), machine(), policy).token_bytes


def test_a_window_bounds_what_is_read_and_held() -> None:
    window = replace(DENSE, window=512, pattern=(Layer("window", "dense"),) * 32)
    on, how = machine(), execution()
    held = pool_of(window, how, on, Policy(cache_bytes=1e9))
    assert held.held(4096) == held.held(512)

    def seconds(model: Architecture, context: float) -> float:
        return float(forward_of(model, how, on).seconds(decode(32.0, context)))

    assert seconds(window, 16384.0) == pytest.approx(seconds(window, 512.0))
    assert seconds(DENSE, 16384.0) > seconds(DENSE, 512.0)


@pytest.mark.parametrize("weights", ["float8", "int4"])
def test_narrower_weights_are_read_faster(weights: str) -> None:
    on = machine()
    narrow = replace(Precision(), weights=weights, compute="float8" if weights == "float8" else "bfloat16")
    load = decode(4.0, 512.0)
    wide = float(forward_of(DENSE, execution(), on).seconds(load))
    assert float(forward_of(DENSE, execution(narrow), on).seconds(load)) < wide


def test_a_pass_says_what_it_is_made_of() -> None:
    forward = forward_of(MOE, execution(tp=4), machine())
    load = Load(
        rows=np.asarray([1.0, 64.0]), context=np.asarray([100.0, 2000.0]), outputs=np.asarray([1.0, 64.0])
    )
    leaves = {leaf.name: leaf for leaf in forward.leaves(load)}
    assert {
        "experts",
        "router",
        "decode attention",
        "all-reduce",
        "lm head",
        "sampling",
        "host",
    } <= leaves.keys()
    assert forward.seconds(load)[1] > forward.seconds(load)[0]
    assert sum(leaf.seconds[1] for leaf in leaves.values()) == pytest.approx(forward.seconds(load)[1])
