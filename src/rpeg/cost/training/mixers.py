"""Parts of a layer that mix tokens: attention in its kinds, and recurrences."""

from __future__ import annotations

from rpeg.architecture.model import Latent, Layer
from rpeg.cost.kernels import Amount
from rpeg.cost.kernels.timed import largest, smallest
from rpeg.cost.training.parts import (
    NOTHING,
    Part,
    Setting,
    bound_of,
    exchange,
    linear,
    passes,
    sustained,
    times,
)

# FlashAttention's backward repeats the scores and has five products where the forward has two (arXiv:2205.14135, B.2).
BACKWARD_OF_ATTENTION = 2.5


def mixer_parts(setting: Setting, layer: Layer) -> list[Part]:
    """What mixes the tokens of one micro-batch, with the norm before and the residual after it."""
    if layer.mixer == "none":
        return []
    if layer.mixer == "recurrent":
        middle = _recurrent(setting)
    elif layer.mixer == "latent":
        middle = _latent(setting)
    else:
        middle = _attention(setting, windowed=layer.mixer == "window")
    return [residual(setting), *middle]


def residual(setting: Setting) -> Part:
    """A norm before a part (read, write; backward: read input and gradient, write) and the sum after it."""
    return passes(setting, "norm and residual", setting.split * setting.architecture.hidden, 5.0, 6.0)


def reach_of(setting: Setting, window: int | None) -> Amount:
    """Keys that the average query sees: half of the length, or less through a window.

    Of a sequence of n tokens with a window w < n: w − w²/2n.
    """
    if window is None:
        return setting.reach
    length = largest(2.0 * setting.reach, float(window))
    return smallest(setting.reach, window - window * window / (2.0 * length))


def _attention(setting: Setting, *, windowed: bool) -> list[Part]:
    a, layout = setting.architecture, setting.execution.parallelism
    heads, kv_heads = a.heads // layout.tp, max(1, a.kv_heads // layout.tp)
    query, kv = heads * a.head_dim, kv_heads * a.head_dim
    gate = 2 if getattr(a, "output_gate", False) else 1
    reach = reach_of(setting, a.window if windowed else None)
    return [
        linear(setting, "qkv", setting.tokens, gate * query + 2 * kv, a.hidden),
        passes(setting, "rotary", setting.tokens * (query + kv), 4.0 if a.qk_norm else 2.0, 2.0),
        *_scores(setting, heads, kv_heads, a.head_dim, reach),
        linear(
            setting,
            "attention out",
            setting.tokens,
            a.hidden,
            query,
            selective=setting.repeated_products,
        ),
    ]


def _latent(setting: Setting) -> list[Part]:
    """DeepSeek-V2's attention as it is trained: keys and values are expanded for every head (not absorbed)."""
    a, layout = setting.architecture, setting.execution.parallelism
    shape = a.latent
    assert shape is not None
    heads, m = a.heads // layout.tp, setting.tokens
    wide = shape.nope_head_dim + shape.rope_head_dim
    parts = []
    if shape.q_rank:
        parts += [
            linear(setting, "q down", setting.split, shape.q_rank, a.hidden),
            linear(setting, "q up", m, heads * wide, shape.q_rank),
        ]
    else:
        parts.append(linear(setting, "q", m, heads * wide, a.hidden))
    return [
        *parts,
        linear(setting, "kv down", setting.split, shape.kv_rank + shape.rope_head_dim, a.hidden),
        linear(setting, "kv up", m, heads * (shape.nope_head_dim + shape.value_head_dim), shape.kv_rank),
        passes(setting, "rotary", m * heads * wide, 4.0, 4.0),
        *_latent_scores(setting, heads, shape),
        linear(setting, "attention out", m, a.hidden, heads * shape.value_head_dim),
    ]


def _scores(setting: Setting, heads: int, kv_heads: int, head_dim: int, reach: Amount) -> list[Part]:
    """Attention proper: fused kernels read and write only q, k, v and the result."""
    shape = (setting.tokens * reach, setting.tokens, heads, kv_heads, head_dim, setting.wide)
    forward = sustained(setting, setting.kernels.attention(*shape), setting.wide)
    back = setting.kernels.attention_backward(*shape) if setting.trains else NOTHING
    backward = sustained(setting, back, setting.wide)
    part = Part("attention", forward, backward, bound_of(setting, forward, setting.wide), 1.0)
    return [part, *_ring(setting, part, 2 * kv_heads * head_dim, heads * head_dim)]


def _latent_scores(setting: Setting, heads: int, shape: Latent) -> list[Part]:
    nope, rope, value = shape.nope_head_dim, shape.rope_head_dim, shape.value_head_dim
    m = setting.tokens
    asked = setting.kernels.latent_attention(m * setting.reach, m, heads, nope, rope, value, setting.wide)
    forward = sustained(setting, asked, setting.wide)
    backward = times(forward, BACKWARD_OF_ATTENTION / setting.machine.stack.kernels.attention_backward)
    part = Part("attention", forward, backward, bound_of(setting, forward, setting.wide), 1.0)
    return [part, *_ring(setting, part, heads * (nope + rope + value), heads * value)]


def _ring(setting: Setting, part: Part, width: int, out_width: int) -> list[Part]:
    """Context-parallel ranks exchange keys and values behind attention, as a ring does; what is longer shows.

    Results of each step are merged with those before it: read and write in 32 bits, read in 16 (five activations),
    backward as many for the gradients. width: of keys and values of a token on a rank; out_width: of the result.
    """
    layout = setting.execution.parallelism
    if layout.cp == 1:
        return []
    size = setting.whole * width * setting.activation_bytes
    ring = exchange(setting, "context parallel", "all_gather", size, layout.cp, layout.tp, 1, 0.0)
    merged = setting.tokens * out_width * (layout.cp - 1)
    return [behind(ring, part), passes(setting, "context merge", merged, 5.0, 5.0)]


def behind(part: Part, work: Part) -> Part:
    """A collective that runs beside `work`: only what is longer shows."""
    shown = largest(0.0, part.forward.seconds - work.forward.seconds)
    shown_back = largest(0.0, 2.0 * part.backward.seconds - work.backward.seconds)
    return part._replace(
        forward=part.forward._replace(seconds=shown),
        backward=part.backward._replace(seconds=shown_back, bytes=2.0 * part.backward.bytes),
    )


def _recurrent(setting: Setting) -> list[Part]:
    """Mamba-2 or gated linear attention in chunks (state-space duality, arXiv:2405.21060, section 6)."""
    a, layout = setting.architecture, setting.execution.parallelism
    shape = a.recurrent
    assert shape is not None
    heads, m = max(1, shape.heads // layout.tp), setting.tokens
    inner, inputs = heads * shape.head_dim, 2 * max(1, shape.groups // layout.tp) * shape.state
    chunk = 128.0
    # Within a chunk scores and values as in attention over half a chunk; across chunks states in and out.
    flops = m * heads * (chunk * (shape.state + shape.head_dim) + 4.0 * shape.state * shape.head_dim)
    scan = _scan(setting, flops, m * (2.0 * inner + inputs) * 2.0 * setting.activation_bytes)
    return [
        linear(setting, "recurrence in", m, 2 * inner + inputs + heads, a.hidden),
        passes(setting, "convolution and gate", m * (inner + inputs), 6.0, 9.0),
        scan,
        linear(setting, "recurrence out", m, a.hidden, inner),
    ]


def _scan(setting: Setting, flops: Amount, moved: Amount) -> Part:
    """A chunked scan: small products of a chunk's width, or the traffic of its inputs and results."""
    kind = setting.machine.kind
    memory = setting.kernels.memory(moved)
    seconds = largest(memory.seconds, flops / (setting.traits.scan_efficiency * kind.peak(setting.wide)))
    forward = type(memory)(seconds, flops, moved)
    return Part("scan", forward, times(forward, 2.5), "memory")
