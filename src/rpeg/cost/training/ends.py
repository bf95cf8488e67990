"""What stands before the first layer and after the last: embedding, head and loss."""

from __future__ import annotations

from rpeg.architecture.model import Head
from rpeg.cost.kernels import Amount
from rpeg.cost.network import Collective
from rpeg.cost.training.parts import Part, Setting, exchange, linear, passes


def embedding_parts(setting: Setting) -> list[Part]:
    """Rows of the table are read and written; backward adds gradients into the table."""
    a, layout = setting.architecture, setting.execution.parallelism
    parts = [passes(setting, "embedding", setting.split * a.hidden, 2.0, 4.0)]
    if layout.tp > 1:
        size = setting.tokens * a.hidden * setting.activation_bytes
        kind: Collective = "reduce_scatter" if layout.sequence_parallel else "all_reduce"
        parts.append(exchange(setting, "embedding reduce", kind, size, layout.tp, 1, 1, 0.0))
    return parts


def head_parts(setting: Setting, heads: tuple[Head, ...], scored: Amount) -> list[Part]:
    """The final norm, the heads and, of an lm head, a loss over the vocabulary for `scored` tokens of the rank."""
    a, layout = setting.architecture, setting.execution.parallelism
    parts = [passes(setting, "final norm", setting.split * a.hidden, 2.0, 3.0)]
    for head in heads:
        if head != "lm":
            parts.append(passes(setting, f"{head} head", setting.tokens * a.hidden, 1.0, 2.0))
            continue
        vocabulary = -(-a.vocabulary // layout.tp)
        parts.append(linear(setting, "lm head", scored, vocabulary, a.hidden, setting.wide))
        parts.append(_loss(setting, scored * vocabulary))
    return parts


def _loss(setting: Setting, logits: Amount) -> Part:
    """Softmax and its gradient over materialised or chunked logits, in float32."""
    size = logits * setting.traits.loss_bytes_per_logit
    forward = setting.kernels.memory(0.6 * size)
    return Part("loss", forward, setting.kernels.memory(0.4 * size), "memory")
