"""Laws of single kernels' times, on kinds with tables, with a sibling's, and with none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.cluster import DeviceKind, Fabric, Link, device_kind
from rpeg.cost import Machine, stack
from rpeg.cost.kernels import Kernels, Timed, kernels_of

FABRIC = Fabric(((Link("node", 4.5e11, 2e-6), 8),))
KINDS = ("a100-80gb-sxm", "h100-sxm", "b200", "l40s", "h800-sxm", "v100-32gb-sxm")

size = st.integers(1, 60000)
side = st.integers(16, 30000)
growth = st.floats(1.0, 8.0)
Ask = Callable[[Kernels, Any], Timed]


def kernels(kind: str | DeviceKind, name: str = "megatron") -> Kernels:
    made = device_kind(kind) if isinstance(kind, str) else kind
    return kernels_of(Machine(made, FABRIC, stack(name, made.name)))


def dtype_of(kernels: Kernels) -> str:
    return "bfloat16" if "bfloat16" in dict(kernels.kind.peak_flops) else "float16"


# (first numbers, question): each number of a question may only raise its seconds.
QUESTIONS: dict[str, tuple[tuple[int, ...], Callable[..., Timed]]] = {
    "gemm": ((64, 2048, 2048), lambda k, m, n, c: k.gemm(m, n, c, dtype_of(k))),
    "gemm_backward": ((64, 2048, 2048), lambda k, m, n, c: k.gemm_backward(m, n, c, dtype_of(k), "float32")),
    "attention": ((5000, 8, 1), lambda k, p, h, s: k.attention(p * 1e3, 4096, 4 * h, h, 128, dtype_of(k))),
    "decode_attention": (
        (4, 1000, 2),
        lambda k, r, c, h: k.decode_attention(r, c, 8 * h, h, 128, "bfloat16"),
    ),
    "experts": ((64, 4, 512), lambda k, r, e, i: k.experts(r, 8, 256 * e, i, dtype_of(k))),
    "latent_decode": ((4, 1000), lambda k, r, c: k.latent_decode(r, c, 16, 512, 64, "bfloat16")),
    "latent_attention": (
        (4000,),
        lambda k, p: k.latent_attention(1e3 * p, 4096, 16, 128, 64, 128, "bfloat16"),
    ),
    "memory": ((1000000,), lambda k, b: k.memory(b)),
}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(KINDS), st.sampled_from(sorted(QUESTIONS)), st.data())
def test_more_work_never_takes_less_time(kind: str, question: str, data: st.DataObject) -> None:
    first, ask = QUESTIONS[question]
    base = [max(1, round(x * data.draw(st.floats(0.05, 20.0)))) for x in first]
    index = data.draw(st.integers(0, len(base) - 1))
    more = list(base)
    more[index] = max(base[index], round(base[index] * data.draw(growth)))
    k = kernels(kind)
    before, after = ask(k, *base), ask(k, *more)
    assert after.seconds >= before.seconds * (1 - 1e-9)
    assert after.flops >= before.flops
    assert before.seconds > 0


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.sampled_from(sorted(QUESTIONS)),
    st.floats(1.0, 4.0),
    st.floats(1.0, 4.0),
    st.data(),
)
def test_a_faster_device_is_never_slower(
    kind: str, question: str, compute: float, memory: float, data: st.DataObject
) -> None:
    first, ask = QUESTIONS[question]
    where = [max(1, round(x * data.draw(st.floats(0.1, 10.0)))) for x in first]
    slow = device_kind(kind)
    fast = replace(
        slow,
        peak_flops=tuple((name, peak * compute) for name, peak in slow.peak_flops),
        memory_bandwidth_bytes_per_second=slow.memory_bandwidth_bytes_per_second * memory,
    )
    assert ask(kernels(fast), *where).seconds <= ask(kernels(slow), *where).seconds * (1 + 1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_answer_as_numbers_do(kind: str) -> None:
    k, dtype = kernels(kind, "vllm"), dtype_of(kernels(kind))
    m = np.asarray([1.0, 7.0, 64.0, 500.0, 9000.0, 200000.0])
    asks: list[Callable[[Any], Timed]] = [
        lambda x: k.gemm(x, 4096, 11008, dtype),
        lambda x: k.gemm_backward(x, 4096, 11008, dtype),
        lambda x: k.decode_attention(x, 100 + 3 * x, 32, 8, 128, "bfloat16"),
        lambda x: k.attention(50 * x * x, 10 * x, 32, 8, 128, dtype),
        lambda x: k.experts(x, 64, 2048, 768, dtype),
        lambda x: k.grouped_gemm(x, 8, 2048, 768, dtype),
        lambda x: k.memory(1e4 * x),
    ]
    for ask in asks:
        many = ask(m)
        for i, x in enumerate(m):
            one = ask(float(x))
            assert isinstance(one.seconds, float)
            assert many.seconds[i] == pytest.approx(one.seconds, rel=1e-9)


def test_efficiency_lies_where_such_kernels_are_known_to_lie() -> None:
    for kind, low, high in (("a100-80gb-sxm", 0.7, 0.92), ("h100-sxm", 0.6, 0.85), ("b200", 0.55, 0.85)):
        k = kernels(kind)
        large = k.gemm(8192, 8192, 8192, "bfloat16")
        assert low < large.flops / large.seconds / k.kind.peak("bfloat16") < high
        small = k.gemm(1, 64, 64, "bfloat16")
        assert 2e-6 <= small.seconds < 1e-5  # a kernel has a floor, whatever its size


def test_only_the_kind_itself_is_measured() -> None:
    assert kernels("h100-sxm").gemm(64, 4096, 4096, "bfloat16").measured
    assert kernels("h100-sxm").gemm(64, 4096, 4096, "float16").measured  # the same units
    assert not kernels("h800-sxm").gemm(64, 4096, 4096, "bfloat16").measured
    assert not kernels("v100-32gb-sxm").gemm(64, 4096, 4096, "float16").measured
    assert not kernels("a100-80gb-sxm").gemm(64, 4096, 4096, "float8").measured
    assert "sibling h100-sxm" in kernels("h800-sxm").source.what


def test_a_sibling_has_the_efficiency_of_what_was_measured() -> None:
    one, other = kernels("a100-80gb-sxm"), kernels("a100-40gb-sxm")
    assert other.kind.peak("bfloat16") == one.kind.peak("bfloat16")
    large = [k.gemm(8192, 8192, 8192, "bfloat16").seconds for k in (one, other)]
    assert large[1] == pytest.approx(large[0])  # compute-bound: the same peak
    assert other.memory(1e9).seconds > one.memory(1e9).seconds


def test_backward_is_two_products_and_adds_up_in_float32_at_a_price() -> None:
    k = kernels("h100-sxm")
    forward, backward = k.gemm(4096, 4096, 4096, "bfloat16"), k.gemm_backward(4096, 4096, 4096, "bfloat16")
    assert backward.flops == 2 * forward.flops
    assert 1.6 < backward.seconds / forward.seconds < 2.6
    few = [k.gemm_backward(64, 8192, 8192, "bfloat16", name).seconds for name in ("bfloat16", "float32")]
    assert few[1] > few[0]


def test_unfused_attention_grows_with_the_score_matrix_it_writes() -> None:
    eager, fused = kernels("a100-80gb-sxm", "eager"), kernels("a100-80gb-sxm", "megatron")
    pairs, tokens = 8 * 2048**2 / 2, 8 * 2048
    one = [k.attention(pairs, tokens, 32, 32, 128, "bfloat16") for k in (eager, fused)]
    assert one[0].seconds > 1.5 * one[1].seconds
    assert one[0].bytes > 10 * one[1].bytes
    back = fused.attention_backward(pairs, tokens, 32, 32, 128, "bfloat16")
    assert back.flops == pytest.approx(2.5 * one[1].flops)
    assert back.seconds > 2.5 * one[1].seconds


def test_an_older_attention_kernel_is_slower_as_its_stack_says() -> None:
    two, three = kernels("h100-sxm", "flash"), kernels("h100-sxm", "megatron")
    slower = two.stack.kernels.attention_slowdown
    assert slower > 1.5  # FlashAttention-2 on Hopper
    seconds = [k.attention(4096**2, 8192, 32, 8, 128, "bfloat16").seconds for k in (two, three)]
    assert seconds[0] == pytest.approx(slower * seconds[1])
    assert not two.attention(4096**2, 8192, 32, 8, 128, "bfloat16").measured


def test_grouped_products_make_up_a_feed_forward() -> None:
    k = kernels("h100-sxm")
    whole = k.experts(4096, 8, 4096, 1536, "bfloat16")
    parts = 2 * k.grouped_gemm(4096, 8, 1536, 4096, "bfloat16").seconds
    parts += k.grouped_gemm(4096, 8, 4096, 1536, "bfloat16").seconds
    assert parts == pytest.approx(whole.seconds, rel=0.05)
