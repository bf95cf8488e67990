"""What the backward pass finds kept of the forward pass, layer by layer.

Counting follows Korthikanti et al. 2022 (arXiv:2205.05198, section 4), tensor by tensor: a product keeps its input
(unless its weights are frozen), attention its queries, keys, values and output, a norm its input, an activation
function what it multiplies. A GPT layer of width h with dropout gives their 34·h bytes a token.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rpeg.architecture import Architecture
from rpeg.architecture.model import Experts, Latent, Layer, Recurrent
from rpeg.cost.execution import Execution
from rpeg.cost.memory.stages import Slice
from rpeg.cost.precision import BYTES_OF
from rpeg.cost.stack import Stack


@dataclass(frozen=True, slots=True)
class Kept:
    """Bytes of one layer for one token of a device's micro-batch.

    kept: for the backward pass, as the recompute policy leaves it. inside: while the layer itself runs backward
    (recomputed tensors). passing: gradients that live at once in it. pairs: bytes for each (query, key) pair of all
    heads, of unfused attention.
    """

    kept: float
    inside: float
    passing: float
    pairs: float
    inside_pairs: float


@lru_cache(maxsize=8192)
def layer_kept(architecture: Architecture, layer: Layer, execution: Execution, stack: Stack) -> Kept:
    """What one layer keeps on one device of its tensor-parallel group; tokens are already divided over cp."""
    p = execution.parallelism
    size = BYTES_OF[execution.precision.activations]
    whole = 1 / p.tp if p.sequence_parallel else 1.0
    trained = execution.lora_rank is None
    width, memory = architecture.hidden, stack.memory
    norms = max(1, architecture.layer_norms(layer))
    around = width * whole * (norms * memory.norm_bytes + 2 * size)
    mixer = _mixer(architecture, layer, p.tp, size)
    forward = _feed_forward(architecture, layer, execution, stack)
    pairs = architecture.heads / p.tp * _PAIR_BYTES if unfused(layer, stack) else 0.0
    every = around + mixer + forward
    widest = _widest(architecture, layer, execution)
    passing = size * (2 * width * whole + 3 * widest)
    if not trained:
        every += _adapted(architecture, execution, whole, widest)
    if execution.recompute == "full":
        return Kept(size * width * whole, every, passing, 0.0, pairs)
    if execution.recompute == "selective":
        if memory.selective == "attention":
            return Kept(every, every, passing, 0.0, pairs)
        return Kept(min(every, _products(architecture, layer, p.tp, size, whole)), every, passing, 0.0, pairs)
    return Kept(every, every, passing, pairs, pairs)


_PAIR_BYTES = 5.0
"""Softmax output (2), dropout mask (1) and dropout output (2): Korthikanti et al. 2022, section 4.1, 5·a·s²·b."""


def activation_bytes(
    architecture: Architecture, part: Slice, execution: Execution, stack: Stack, tokens: float, longest: int
) -> tuple[float, float, float]:
    """(kept of one micro-batch by a rank's layers, more while a layer recomputes, gradients passing through a layer).

    tokens: of a micro-batch on this device. longest: tokens of its longest sequence.
    """
    kept = inside = passing = 0.0
    for layer, count in part.groups:
        one = layer_kept(architecture, layer, execution, stack)
        seen = min(longest, architecture.window or longest) if layer.mixer == "window" else longest
        mine = tokens * (one.kept + one.pairs * seen)
        kept += count * mine
        inside = max(inside, tokens * (one.inside + one.inside_pairs * seen) - mine)
        passing = max(passing, tokens * (one.passing + one.inside_pairs * seen * 0.4))
    return kept, inside, passing


def unfused(layer: Layer, stack: Stack) -> bool:
    """Whether this layer's attention writes its matrix of scores to memory."""
    return stack.kernels.attention == "unfused" and layer.mixer in ("full", "window", "latent")


def forward_bytes(
    architecture: Architecture, part: Slice, execution: Execution, stack: Stack, tokens: float, longest: int
) -> float:
    """Tensors that live at once in a forward pass without gradients: the stream, and the widest layer's inside."""
    size = BYTES_OF[execution.precision.activations]
    most = 0.0
    for layer, _ in part.groups:
        one = layer_kept(architecture, layer, execution, stack)
        most = max(most, tokens * (one.passing + one.inside_pairs * longest * 0.8))
    return most + tokens * architecture.hidden * size


def kv_share(architecture: Architecture, tp: int) -> float:
    """Share of the key and value heads that one tensor-parallel rank holds, at least one head."""
    return max(1 / tp, 1 / architecture.kv_heads)


def _adapted(architecture: Architecture, execution: Execution, whole: float, widest: float) -> float:
    """Bytes more (or less, where negative) that a layer with frozen weights keeps, for one token.

    A product with frozen weights keeps no input; its adapter keeps a copy of it after dropout, in 16 bits, and
    the mask.
    """
    size, copy = BYTES_OF[execution.precision.activations], 3.0
    stream = architecture.hidden * whole
    if execution.lora_targets == "attention":
        return copy * stream - size * (stream + widest)
    output = architecture.query_width / execution.parallelism.tp
    return (copy - size) * (2 * stream + widest) + copy * output


def _mixer(architecture: Architecture, layer: Layer, tp: int, size: float) -> float:
    if layer.mixer == "recurrent" and architecture.recurrent:
        return _recurrent(architecture.recurrent, tp, size)
    if layer.mixer == "latent" and architecture.latent:
        return _latent(architecture, architecture.latent, tp, size)
    if layer.mixer == "none":
        return 0.0
    queries, keys = architecture.query_width / tp, architecture.kv_width * kv_share(architecture, tp)
    normed = (queries + keys) * architecture.qk_norm
    statistics = 4 * architecture.heads / tp  # log-sum-exp of each row and head, float32
    return size * (2 * queries + 2 * keys + normed + queries * architecture.output_gate) + statistics


def _latent(architecture: Architecture, latent: Latent, tp: int, size: float) -> float:
    """Latents are whole on every rank, before and after their norms; queries, keys and values have all heads."""
    heads = architecture.heads / tp
    latents = 2 * ((latent.q_rank or 0) + latent.kv_rank) + latent.rope_head_dim
    return size * (latents + heads * 2 * (latent.query_head_dim + latent.value_head_dim)) + 4 * heads


def _recurrent(recurrent: Recurrent, tp: int, size: float) -> float:
    """Projected input, what is convolved after its activation, the state's output before and after its gated norm."""
    return size * (recurrent.projected + recurrent.convolved + 2 * recurrent.inner) / tp


def _feed_forward(architecture: Architecture, layer: Layer, execution: Execution, stack: Stack) -> float:
    size, tp = BYTES_OF[execution.precision.activations], execution.parallelism.tp
    copies = _inner_copies(architecture.gated, stack)
    if layer.feed_forward == "dense":
        return size * copies * architecture.ffn / tp
    if layer.feed_forward == "moe" and architecture.experts:
        experts = architecture.experts
        shared = size * _inner_copies(experts.gated, stack) * experts.shared_ffn / tp
        return shared + _routed(architecture.hidden, experts, execution, stack)
    return 0.0


def _routed(hidden: int, experts: Experts, execution: Execution, stack: Stack) -> float:
    """Tokens as they arrive at the experts of the most loaded rank, the experts' insides and what they send back.

    Router: logits and probabilities in float32. Tokens are divided over tp before they are dispatched.
    """
    size, p = BYTES_OF[execution.precision.activations], execution.parallelism
    width = experts.latent or hidden
    inner = _inner_copies(experts.gated, stack) * experts.ffn
    copies = experts.active * execution.imbalance / p.tp
    return size * copies * (2 * width + inner) + 8 * experts.count / p.tp


def _inner_copies(gated: bool, stack: Stack) -> int:
    """Tensors of the inner width: gate and value (or what the activation takes), its output, the product's input."""
    if not gated:
        return 2
    return 3 if stack.memory.fused_activation else 4


def _widest(architecture: Architecture, layer: Layer, execution: Execution) -> float:
    """The widest tensor inside a layer, in numbers a token."""
    tp = execution.parallelism.tp
    widths = [architecture.query_width / tp]
    if layer.feed_forward == "dense":
        widths.append(architecture.ffn / tp)
    if layer.feed_forward == "moe" and architecture.experts:
        experts = architecture.experts
        copies = experts.active * execution.imbalance
        widths.append(
            max(experts.shared_ffn, copies * max(experts.ffn, experts.latent or architecture.hidden)) / tp
        )
    if layer.mixer == "recurrent" and architecture.recurrent:
        widths.append(architecture.recurrent.projected / tp)
    return max(widths)


def _products(architecture: Architecture, layer: Layer, tp: int, size: float, whole: float) -> float:
    """Selective recomputation that keeps attention's output and every other product (torchtitan's "op" policy).

    Kept: the layer's input, queries and values, attention's output, one of two inner tensors, the layer's output.
    """
    keys = architecture.kv_width * kv_share(architecture, tp)
    inner = architecture.ffn if layer.feed_forward == "dense" else 0
    if layer.feed_forward == "moe" and architecture.experts:
        inner = architecture.experts.active * architecture.experts.ffn + architecture.experts.shared_ffn
    return size * (2 * architecture.hidden * whole + (2 * architecture.query_width + inner) / tp + keys)
