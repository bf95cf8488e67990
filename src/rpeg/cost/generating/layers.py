"""Kernels of one layer on one rank of a serving replica, from shapes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rpeg.architecture import Architecture
from rpeg.architecture.layers import FeedForward, Latent, Mixer
from rpeg.cost.generating.layout import Layout
from rpeg.cost.generating.load import Load
from rpeg.cost.kernels import Amount, Kernels, Timed
from rpeg.cost.kernels.timed import largest
from rpeg.cost.kernels.work import stored
from rpeg.cost.precision import BYTES_OF, Precision

ACTIVATION_BYTES = 2.0
# Share of the advertised peak that products of activations with dequantised weights reach (Marlin kernels,
# arXiv:2408.11743, figure 1: 0.5–0.7 of dense at large m).
UNPACKED_EFFICIENCY = 0.6
# What measured 8-bit products contain of finding a scale and narrowing their input: 8 µs of kernels, or 5 bytes an
# element at 0.57 of the bandwidth (aiconfigurator-core 0.12.0, computescale and scale_matrix at k = 8192, the median of
# TensorRT-LLM, vLLM and SGLang on H100, H200, B200).
NARROWING_SECONDS, NARROWING_BYTES = 8e-6, 5 / 0.57


class Part(NamedTuple):
    """A kernel, or like ones together: name, and Timed of one layer."""

    name: str
    timed: Timed


@dataclass(frozen=True)
class Rank:
    """What the kernels of one rank depend on, beside the load.

    tuned: a second library of products over experts; the faster of both runs.
    """

    architecture: Architecture
    layout: Layout
    precision: Precision
    kernels: Kernels
    imbalance: float
    static_scales: bool
    tuned: Kernels | None = None

    def mixer(self, mixer: Mixer, load: Load) -> Iterator[Part]:
        """Kernels of what mixes tokens in one layer, for a load that is this rank's own."""
        if mixer == "latent":
            yield from self._latent(load)
        elif mixer == "recurrent":
            yield from self._recurrent(load)
        elif mixer != "none":
            yield from self._attention(load, mixer == "window")

    def feed_forward(self, kind: FeedForward, load: Load, pooled: Amount) -> Iterator[Part]:
        """Kernels of what follows the mixer. pooled: tokens of all ranks that share experts."""
        if kind == "dense":
            yield from self._ffn("feed-forward", load.tokens, self.architecture.ffn // self.layout.tp)
        elif kind == "moe":
            yield from self._experts(load.tokens, pooled)

    def head(self, outputs: Amount) -> Iterator[Part]:
        """The lm head and the choice of a token: float32 logits, written, normalised, read."""
        a = self.architecture
        width = -(-a.vocabulary // self.layout.tp)
        yield Part("lm head", self.kernels.gemm(outputs, width, a.hidden, "bfloat16"))
        yield Part("sampling", self._small(4 * outputs * a.vocabulary * 4.0, 6))

    def _attention(self, load: Load, windowed: bool) -> Iterator[Part]:
        a, tp = self.architecture, self.layout.tp
        heads, kv_heads = a.heads // tp, max(1, a.kv_heads // tp)
        width = (heads + 2 * kv_heads) * a.head_dim
        tokens = load.tokens
        yield Part("attention projections", self._product(tokens, width, a.hidden))
        context, pairs = load.context, load.pairs
        if windowed and a.window:
            context = np.minimum(context, a.window)
            pairs = np.minimum(pairs, load.prompt_tokens * float(a.window))
        if _any(load.rows):
            cache = self.precision.cache
            timed = self.kernels.decode_attention(load.rows, context, heads, kv_heads, a.head_dim, cache)
            yield Part("decode attention", timed)
        if _any(load.prompt_tokens):
            timed = self.kernels.attention(pairs, load.prompt_tokens, heads, kv_heads, a.head_dim, "bfloat16")
            yield Part("prompt attention", timed)
        yield Part("attention projections", self._product(tokens, a.hidden, heads * a.head_dim))
        yield self._passes(tokens, (3 + 2 * a.qk_norm) * a.hidden + 2 * width, 2 + 2 * a.qk_norm)

    def _latent(self, load: Load) -> Iterator[Part]:
        """MLA: decode with absorbed projections over the latent cache, prompts with keys and values unfolded."""
        a, tp = self.architecture, self.layout.tp
        latent = a.latent
        assert latent is not None
        heads = a.heads // tp
        key, cached = latent.query_head_dim, latent.kv_rank + latent.rope_head_dim
        tokens = load.tokens
        name = "attention projections"
        yield Part(name, self._product(tokens, (latent.q_rank or heads * key) + cached, a.hidden))
        if latent.q_rank:
            yield Part(name, self._product(tokens, heads * key, latent.q_rank))
        if _any(load.rows):
            absorb = self.kernels.gemm(load.rows, heads * latent.kv_rank, latent.nope_head_dim, "bfloat16")
            unfold = self.kernels.gemm(load.rows, heads * latent.value_head_dim, latent.kv_rank, "bfloat16")
            yield Part(name, absorb)
            yield Part(name, unfold)
            context = np.minimum(load.context, latent.selected) if latent.selected else load.context
            yield Part("decode attention", self._latent_decode(load.rows, context))
        if _any(load.prompt_tokens):
            width = heads * (latent.nope_head_dim + latent.value_head_dim)
            yield Part(name, self._product(load.prompt_tokens, width, latent.kv_rank))
            pairs = load.pairs
            if latent.selected:
                pairs = np.minimum(pairs, load.prompt_tokens * float(latent.selected))
            yield Part("prompt attention", self._latent_prompt(pairs, load.prompt_tokens))
        if latent.selected:
            yield from self._indexer(load)
        yield Part(name, self._product(tokens, a.hidden, heads * latent.value_head_dim))
        yield self._passes(tokens, 3 * a.hidden + 4 * heads * key, 5)

    def _latent_decode(self, rows: Amount, context: Amount) -> Timed:
        latent, heads = self._latent_shape
        cache = self.precision.cache
        return self.kernels.latent_decode(rows, context, heads, latent.kv_rank, latent.rope_head_dim, cache)

    def _latent_prompt(self, pairs: Amount, tokens: Amount) -> Timed:
        latent, heads = self._latent_shape
        nope, rope, value = latent.nope_head_dim, latent.rope_head_dim, latent.value_head_dim
        return self.kernels.latent_attention(pairs, tokens, heads, nope, rope, value, "bfloat16")

    @property
    def _latent_shape(self) -> tuple[Latent, int]:
        assert self.architecture.latent is not None
        return self.architecture.latent, self.architecture.heads // self.layout.tp

    def _indexer(self, load: Load) -> Iterator[Part]:
        """Sparse attention's choice of tokens: a small head scores all of them, on every rank."""
        a, latent = self.architecture, self.architecture.latent
        assert latent is not None
        heads, dim = latent.index_heads, latent.index_head_dim
        queries = self._product(load.tokens, heads * dim, latent.q_rank or a.hidden)
        yield Part("indexer", queries)
        yield Part("indexer", self._product(load.tokens, dim + heads, a.hidden))
        if _any(load.rows):
            yield Part(
                "indexer",
                self.kernels.decode_attention(load.rows, load.context, heads, 1, dim // 2, "bfloat16"),
            )
        if _any(load.prompt_tokens):
            scores = self.kernels.attention(load.pairs, load.prompt_tokens, heads, 1, dim // 2, "bfloat16")
            yield Part("indexer", scores)

    def _recurrent(self, load: Load) -> Iterator[Part]:
        """Projections in and out, and a state that each sequence reads and writes once a step, in float32."""
        a, tp = self.architecture, self.layout.tp
        r = a.recurrent
        assert r is not None
        inner, inputs = r.inner // tp, r.projected // tp
        tokens = load.tokens
        yield Part("recurrent projections", self._product(tokens, inputs, a.hidden))
        # Prompts run in chunks of 64 tokens, after each of which the state passes through memory.
        states = load.rows + load.prompt_tokens / 64.0
        yield Part("recurrent state", self._small(states * inner * r.state * 8.0, 2))
        yield Part("recurrent projections", self._product(tokens, a.hidden, inner))
        yield self._passes(tokens, 3 * a.hidden + 3 * inner, 3)

    def _ffn(self, name: str, tokens: Amount, ffn: int) -> Iterator[Part]:
        a = self.architecture
        inner = 2 if a.gated else 1
        yield Part(name, self._product(tokens, inner * ffn, a.hidden))
        yield Part(name, self._product(tokens, a.hidden, ffn))
        yield self._passes(tokens, 3 * a.hidden + (inner + 1) * ffn, 2)

    def _experts(self, tokens: Amount, pooled: Amount) -> Iterator[Part]:
        a, lay = self.architecture, self.layout
        e = a.experts
        assert e is not None
        width = e.latent or a.hidden
        yield Part("router", self.kernels.gemm(tokens, e.count, a.hidden, "bfloat16"))
        routed = pooled * (e.active / lay.ep * self.imbalance)
        yield Part(
            "experts", self._grouped(routed, e.count // lay.ep, width, e.ffn // lay.expert_tp, e.gated)
        )
        if e.shared_ffn:
            yield from self._ffn("shared expert", tokens, e.shared_ffn // lay.tp)
        if e.latent:
            yield Part("experts", self._product(tokens, 2 * e.latent, a.hidden))
        # Norm, choice of experts, their order, and the sum of what they add: small kernels of their own.
        yield self._passes(tokens, 3 * a.hidden + 2 * e.count, 6)

    def _product(self, tokens: Amount, n: int, k: int) -> Timed:
        p = self.precision
        timed = self.kernels.gemm(tokens, n, k, p.compute)
        if BYTES_OF[p.weights] < BYTES_OF[stored(p.compute)]:
            return self._unpacked(timed, p.weights, p.compute)
        if self.static_scales and p.compute == "float8":
            moved = NARROWING_BYTES * tokens * k / self.kernels.kind.memory_bandwidth_bytes_per_second
            seconds = largest(timed.seconds - largest(NARROWING_SECONDS, moved), timed.seconds / 2)
            return Timed(seconds, timed.flops, timed.bytes, timed.measured)
        return timed

    def _grouped(self, rows: Amount, experts: int, width: int, ffn: int, gated: bool) -> Timed:
        weights, compute = self.precision.expert_weights, self.precision.expert_compute
        unpacked = not any(name == stored(compute) for name, _ in self.kernels.kind.peak_flops)
        timed = self.kernels.experts(
            rows, experts, width, ffn, self.precision.compute if unpacked else compute
        )
        if self.tuned and not unpacked:
            other = self.tuned.experts(rows, experts, width, ffn, compute)
            timed = Timed(np.minimum(timed.seconds, other.seconds), timed.flops, timed.bytes, timed.measured)
        if unpacked:
            timed = self._unpacked(timed, weights, self.precision.compute)
        matrices = 1.0 if gated else 2 / 3  # tables measure gated experts, of three matrices
        return Timed(timed.seconds * matrices, timed.flops * matrices, timed.bytes * matrices, timed.measured)

    def _unpacked(self, timed: Timed, weights: str, compute: str) -> Timed:
        """Weights unpacked on the way to products in `compute`: fewer bytes to read, as many FLOP.

        What is not read saves its time at the advertised bandwidth; the rest of the kernel stays as it is.
        """
        share = BYTES_OF[stored(weights)] / BYTES_OF[stored(compute)]
        kind = self.kernels.kind
        saved = timed.bytes * (1 - share) / kind.memory_bandwidth_bytes_per_second
        arithmetic = timed.flops / (UNPACKED_EFFICIENCY * kind.peak(stored(compute)))
        seconds = largest(largest(timed.seconds - saved, timed.seconds * share), arithmetic)
        return Timed(seconds, timed.flops, timed.bytes * share)

    def _passes(self, tokens: Amount, width: float, kernels: int) -> Part:
        """Norms, rotary positions, activations: kernels that pass `width` numbers a token through memory."""
        return Part("norms and activations", self._small(tokens * (width * ACTIVATION_BYTES), kernels))

    def _small(self, moved: Amount, kernels: int) -> Timed:
        timed = self.kernels.memory(moved)
        return Timed(largest(timed.seconds, kernels * self.kernels.floor_seconds), 0.0, moved)


def _any(amount: Amount) -> bool:
    return bool(amount if isinstance(amount, float | int) else np.any(amount))
