"""`Architecture`: the shape of a language model, and how many parameters each part of it has."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from rpeg.architecture.check import check
from rpeg.architecture.layers import Experts, FeedForward, Latent, Layer, Mixer, Recurrent
from rpeg.errors import InputError, nearest
from rpeg.hashing import kept_hash

__all__ = ["Architecture", "Experts", "FeedForward", "Head", "Latent", "Layer", "Mixer", "Recurrent"]

Head = Literal["lm", "value", "reward"]
LAYER_PARTS = ("attention", "ffn", "experts", "shared_expert", "router", "recurrent", "norms")


@kept_hash
@dataclass(frozen=True)
class Architecture:
    """A decoder-only transformer: everything that costs depend on, and nothing else.

    layers × (mixer + feed-forward, each after a norm), a token embedding, a final norm and a head.

    hidden: width of the residual stream. ffn: inner width of the dense feed-forward part.
    gated: the feed-forward part has a third matrix (SwiGLU).
    heads, kv_heads, head_dim: grouped-query attention.
    context: most tokens of prompt and response together.
    window: windowed layers see only so many last tokens. pattern: the layers in order; empty: all alike (`layer`).
    experts, latent, recurrent: shapes of the layers that have such a part.
    learned_positions: a table of `context` positions (and `spare_positions` more that no token reads).
    norm_bias: LayerNorm (weight and bias) instead of RMSNorm. post_norms: a second norm after each part.
    shared_norm: attention and feed-forward read one norm (in parallel). embedding_norm: a norm after the embedding.
    qk_norm: an RMSNorm of width head_dim on q and on k. wide_qk_norm: over all heads together instead.
    output_gate: queries are projected twice, the second gates what attention gives. sinks: a logit a head.
    head_bias: the lm head has a bias.
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
    wide_qk_norm: bool = False
    output_gate: bool = False
    sinks: bool = False
    post_norms: bool = False
    shared_norm: bool = False
    embedding_norm: bool = False
    head_bias: bool = False
    spare_positions: int = 0

    def __post_init__(self) -> None:
        check(self)

    @property
    def layer(self) -> Layer:
        """What each layer is where there is no pattern: latent or windowed if so described, with experts if any."""
        mixer: Mixer = "latent" if self.latent else "window" if self.window else "full"
        return Layer(mixer, "moe" if self.experts else "dense")

    @cached_property
    def groups(self) -> tuple[tuple[Layer, int], ...]:
        """The kinds of layers with how many there are of each, in order of appearance."""
        return tuple(Counter(self.pattern).items()) if self.pattern else ((self.layer, self.layers),)

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
        """Parameters of one layer's attention: q, k, v and output projections, biases, norms, gate and sinks."""
        if self.latent:
            return self.latent.parameters(self.hidden, self.heads)
        inward = (1 + self.output_gate) * self.query_width + 2 * self.kv_width
        projections = self.hidden * (inward + self.query_width)
        biases = inward * self.qkv_bias + self.hidden * self.output_bias
        if self.wide_qk_norm:
            return projections + biases + self.query_width + self.kv_width
        return projections + biases + 2 * self.head_dim * self.qk_norm + self.heads * self.sinks

    @property
    def ffn_parameters(self) -> int:
        """Parameters of one layer's dense feed-forward part."""
        inner = 2 if self.gated else 1
        return self.hidden * self.ffn * (inner + 1) + (inner * self.ffn + self.hidden) * self.ffn_bias

    @property
    def norm_parameters(self) -> int:
        """Parameters of one norm of the residual stream."""
        return self.hidden * (2 if self.norm_bias else 1)

    def layer_parts(self, layer: Layer) -> dict[str, int]:
        """Parameters of one layer by part: every key of LAYER_PARTS, 0 where the layer has no such part.

        `experts`: all routed experts together. `shared_expert`: what every token passes beside them.
        """
        parts = dict.fromkeys(LAYER_PARTS, 0)
        if layer.mixer == "recurrent" and self.recurrent:
            parts["recurrent"] = self.recurrent.parameters(self.hidden)
        elif layer.mixer != "none":
            parts["attention"] = self.attention_parameters
        if layer.feed_forward == "dense":
            parts["ffn"] = self.ffn_parameters
        elif layer.feed_forward == "moe" and self.experts:
            parts["experts"] = self.experts.count * self.experts.expert_parameters(self.hidden)
            parts["shared_expert"] = self.experts.shared_parameters(self.hidden)
            parts["router"] = self.experts.router_parameters(self.hidden)
        parts["norms"] = self.layer_norms(layer) * self.norm_parameters
        return parts

    def layer_norms(self, layer: Layer) -> int:
        """Norms of the residual stream in one layer."""
        parts = (layer.mixer != "none") + (layer.feed_forward != "none")
        return (1 if self.shared_norm else parts) * (2 if self.post_norms else 1)

    @property
    def layer_parameters(self) -> int:
        """Parameters of one layer; where layers differ, of the average layer, rounded down."""
        parts = self.parts()
        return sum(parts[name] for name in LAYER_PARTS) // self.layers

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the token table, its norm and, where positions are learned, of theirs."""
        positions = self.context + self.spare_positions if self.learned_positions else 0
        return self.hidden * (self.vocabulary + positions) + self.norm_parameters * self.embedding_norm

    @property
    def final_norm_parameters(self) -> int:
        """Parameters of the norm before the head."""
        return self.norm_parameters

    def head_parameters(self, head: Head = "lm") -> int:
        """Parameters beyond the embedding: none for a tied lm head, a row and a bias for one number a token."""
        if head != "lm":
            return self.hidden + 1
        bias = self.vocabulary * self.head_bias
        return bias if self.tied_embeddings else self.hidden * self.vocabulary + bias

    @cached_property
    def _layers(self) -> Mapping[str, int]:
        """Parameters of all layers by part."""
        total = dict.fromkeys(LAYER_PARTS, 0)
        for layer, count in self.groups:
            for part, parameters in self.layer_parts(layer).items():
                total[part] += count * parameters
        return total

    def parts(self, head: Head = "lm") -> dict[str, int]:
        """Parameters of each part of the whole model; the sum is `parameters(head)`. `norms` has the final one."""
        return {
            "embedding": self.embedding_parameters,
            **self._layers,
            "final_norm": self.final_norm_parameters,
            "head": self.head_parameters(head),
        }

    def parameters(self, head: Head = "lm") -> int:
        """All parameters of the model with this head."""
        return sum(self.parts(head).values())

    @property
    def active_parameters(self) -> int:
        """Parameters that one token meets: all but the experts that it is not sent to."""
        if not self.experts:
            return self.parameters()
        idle = self.experts.count - self.experts.active
        return self.parameters() - self._layers["experts"] * idle // self.experts.count

    def layer_kv_elements(self, layer: Layer, context: int) -> int:
        """Numbers that the cache of one sequence of `context` tokens holds in one layer; recurrent layers: 0."""
        if layer.mixer == "latent" and self.latent:
            return self.latent.cached * context
        if layer.mixer == "window" and self.window:
            context = min(context, self.window)
        return 2 * self.kv_width * context if layer.mixer in ("full", "window") else 0

    def kv_elements(self, context: int) -> int:
        """Numbers that the KV cache of one sequence of `context` tokens holds, over all layers."""
        return sum(count * self.layer_kv_elements(layer, context) for layer, count in self.groups)

    @property
    def state_elements(self) -> int:
        """Numbers that the recurrent layers keep for one sequence, whatever its length."""
        recurrent = sum(count for layer, count in self.groups if layer.mixer == "recurrent")
        return recurrent * self.recurrent.state_elements if self.recurrent else 0

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; `from_json` reads it back."""
        data = dataclasses.asdict(self)
        return {**data, "pattern": [dataclasses.asdict(layer) for layer in self.pattern]}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Architecture:
        """The architecture that `to_json` wrote. InputError names an unknown or a missing field."""
        name = f"architecture {data.get('name', '')}"
        known = {field.name for field in dataclasses.fields(Architecture)}
        for key in data:
            if key not in known:
                raise InputError(f"architecture has no field '{key}'. {nearest(key, known)}")
        parts: dict[str, Any] = {
            key: None if data.get(key) is None else _part(kind, data[key], f"{name}: {key}")
            for key, kind in (("experts", Experts), ("latent", Latent), ("recurrent", Recurrent))
        }
        layers = data.get("pattern", ())
        if not isinstance(layers, list | tuple):
            raise InputError(f"{name}: pattern is {layers!r}, a list of layers is needed")
        pattern = tuple(_part(Layer, layer, f"{name}: pattern") for layer in layers)
        try:
            return Architecture(**{**data, **parts, "pattern": pattern})
        except TypeError as error:
            raise InputError(f"{name}: {error}") from error


def _part(kind: Any, data: object, where: str) -> Any:
    """A part of an architecture from its JSON object."""
    if not isinstance(data, Mapping):
        raise InputError(f"{where} is {data!r}, an object is needed")
    known = [field.name for field in dataclasses.fields(kind)]
    for key in data:
        if key not in known:
            raise InputError(f"{where} has no field '{key}'. {nearest(str(key), known)}")
    try:
        return kind(**data)
    except TypeError as error:
        raise InputError(f"{where}: {error}") from error
