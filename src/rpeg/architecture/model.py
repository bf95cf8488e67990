"""`Architecture`: the shape of a language model, and how many parameters each part of it has."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rpeg.errors import InputError, nearest

Head = Literal["lm", "value", "reward"]
Mixer = Literal["full", "window", "latent", "recurrent", "none"]
FeedForward = Literal["dense", "moe", "none"]


@dataclass(frozen=True)
class Layer:
    """One kind of layer: how it mixes tokens and what follows.

    mixer: full attention, attention within `Architecture.window`, multi-head latent attention, a recurrence
    (state space, linear attention) or none. feed_forward: dense, mixture of experts or none.
    """

    mixer: Mixer = "full"
    feed_forward: FeedForward = "dense"


@dataclass(frozen=True)
class Experts:
    """A mixture of experts: `active` of `count` experts of inner width `ffn` for each token.

    shared_ffn: inner width of the experts that every token passes, all together; 0: none.
    gated: experts have a third matrix. latent: the routed experts work on a projection of this width (None: of the
    residual stream).
    """

    count: int
    active: int
    ffn: int
    shared_ffn: int = 0
    gated: bool = True
    latent: int | None = None


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1).

    q_rank: None projects queries straight from the residual stream. The cache holds kv_rank + rope_head_dim numbers
    a token and layer.
    """

    q_rank: int | None
    kv_rank: int
    nope_head_dim: int
    rope_head_dim: int
    value_head_dim: int


@dataclass(frozen=True)
class Recurrent:
    """A layer whose state does not grow: Mamba-2 or gated linear attention.

    heads × head_dim: inner width. state: width of the state of each head. groups: of the state's inputs.
    convolution: taps of the short convolution before it.
    """

    heads: int
    head_dim: int
    state: int
    groups: int = 1
    convolution: int = 4


@dataclass(frozen=True)
class Architecture:
    """A decoder-only transformer: everything that costs depend on, and nothing else.

    layers × (mixer + feed-forward, each after a norm), a token embedding, a final norm and a head.

    hidden: width of the residual stream. ffn: inner width of the feed-forward part.
    gated: the feed-forward part has a third matrix (SwiGLU).
    heads, kv_heads, head_dim: grouped-query attention.
    context: most tokens of prompt and response together.
    window: windowed layers see only so many last tokens. pattern: the layers in order; empty: all alike, dense, and
    windowed where there is a window. `groups` has them counted.
    experts, latent, recurrent: shapes of the layers that have such a part.
    learned_positions: a table of `context` positions.
    norm_bias: LayerNorm (weight and bias) instead of RMSNorm.
    qk_norm: an RMSNorm of width head_dim on q and on k.
    """

    name: str
    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocabulary: int
    context: int
    tied_embeddings: bool = False
    activation: str = "silu"
    gated: bool = True
    window: int | None = None
    learned_positions: bool = False
    norm_bias: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    ffn_bias: bool = False
    qk_norm: bool = False
    pattern: tuple[Layer, ...] = ()
    experts: Experts | None = None
    latent: Latent | None = None
    recurrent: Recurrent | None = None

    def __post_init__(self) -> None:
        for field in ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocabulary", "context"):
            if getattr(self, field) < 1:
                raise InputError(
                    f"architecture {self.name}: {field} is {getattr(self, field)}, at least 1 is needed"
                )
        if self.heads % self.kv_heads:
            raise InputError(
                f"architecture {self.name}: {self.heads} heads cannot share {self.kv_heads} kv_heads"
            )

    @property
    def query_width(self) -> int:
        """Width of all query heads together."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Width of all key heads together; values are as wide."""
        return self.kv_heads * self.head_dim

    @property
    def attention_parameters(self) -> int:
        """Parameters of one layer's attention: q, k, v and output projections, biases, q and k norms."""
        projections = self.hidden * (self.query_width + 2 * self.kv_width) + self.query_width * self.hidden
        qkv_bias = (self.query_width + 2 * self.kv_width) * self.qkv_bias
        return projections + qkv_bias + self.hidden * self.output_bias + 2 * self.head_dim * self.qk_norm

    @property
    def ffn_parameters(self) -> int:
        """Parameters of one layer's feed-forward part."""
        inner = 2 if self.gated else 1
        return self.hidden * self.ffn * (inner + 1) + (inner * self.ffn + self.hidden) * self.ffn_bias

    @property
    def norm_parameters(self) -> int:
        """Parameters of one norm of the residual stream."""
        return self.hidden * (2 if self.norm_bias else 1)

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer."""
        return self.attention_parameters + self.ffn_parameters + 2 * self.norm_parameters

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the token table and, where positions are learned, of theirs."""
        return self.hidden * (self.vocabulary + (self.context if self.learned_positions else 0))

    def head_parameters(self, head: Head = "lm") -> int:
        """Parameters beyond the embedding: none for a tied lm head, a row and a bias otherwise."""
        if head != "lm":
            return self.hidden + 1
        return 0 if self.tied_embeddings else self.hidden * self.vocabulary

    def parts(self, head: Head = "lm") -> dict[str, int]:
        """Parameters of each part of the whole model; the sum is `parameters(head)`."""
        return {
            "embedding": self.embedding_parameters,
            "attention": self.layers * self.attention_parameters,
            "ffn": self.layers * self.ffn_parameters,
            "norms": (2 * self.layers + 1) * self.norm_parameters,
            "head": self.head_parameters(head),
        }

    def parameters(self, head: Head = "lm") -> int:
        """All parameters of the model with this head."""
        return sum(self.parts(head).values())

    def kv_elements(self, context: int) -> int:
        """Numbers that the KV cache of one sequence of `context` tokens holds, over all layers."""
        seen = context if self.window is None else min(context, self.window)
        return 2 * self.layers * self.kv_width * seen

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; `from_json` reads it back."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Architecture:
        """The architecture that `to_json` wrote. InputError names an unknown or a missing field."""
        known = {field.name for field in dataclasses.fields(Architecture)}
        for key in data:
            if key not in known:
                raise InputError(f"architecture has no field '{key}'. {nearest(key, known)}")
        try:
            return Architecture(**data)
        except TypeError as error:
            raise InputError(f"architecture {data.get('name', '')}: {error}") from error
