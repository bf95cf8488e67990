"""The kinds of layers that an `Architecture` is made of, and what their parts hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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

    shared_ffn: inner width of the experts that every token passes, all together; 0: none. shared_gate: a learned
    weight for what they add.
    gated: experts have a third matrix. latent: the routed experts work on a projection of this width (None: of the
    residual stream). bias: of the experts' matrices. router_bias: one number an expert.
    """

    count: int
    active: int
    ffn: int
    shared_ffn: int = 0
    gated: bool = True
    latent: int | None = None
    bias: bool = False
    router_bias: bool = False
    shared_gate: bool = False

    @property
    def matrices(self) -> int:
        """Matrices of one expert."""
        return 3 if self.gated else 2

    def expert_parameters(self, hidden: int) -> int:
        """Parameters of one routed expert in a residual stream of this width."""
        width = self.latent or hidden
        return self.matrices * width * self.ffn + ((self.matrices - 1) * self.ffn + width) * self.bias

    def shared_parameters(self, hidden: int) -> int:
        """Parameters that every token passes: shared experts, their gate, the projections to and from `latent`."""
        shared = self.matrices * hidden * self.shared_ffn + hidden * self.shared_gate
        return shared + 2 * hidden * (self.latent or 0)

    def router_parameters(self, hidden: int) -> int:
        """Parameters that choose the experts."""
        return self.count * (hidden + self.router_bias)


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1).

    q_rank: None projects queries straight from the residual stream. The cache holds kv_rank + rope_head_dim numbers
    a token and layer.
    selected: sparse attention (DeepSeek-V3.2, arXiv:2512.02556, section 2.1): a query attends to at most so many
    tokens, chosen by an indexer of index_heads × index_head_dim, whose key is cached too; None: to all.
    """

    q_rank: int | None
    kv_rank: int
    nope_head_dim: int
    rope_head_dim: int
    value_head_dim: int
    selected: int | None = None
    index_heads: int = 0
    index_head_dim: int = 0

    @property
    def query_head_dim(self) -> int:
        """Width of one head of queries and keys."""
        return self.nope_head_dim + self.rope_head_dim

    @property
    def cached(self) -> int:
        """Numbers in the cache for a token and layer."""
        return self.kv_rank + self.rope_head_dim + self.index_head_dim

    def parameters(self, hidden: int, heads: int) -> int:
        """Parameters of one layer's attention: q, kv and output projections, norms of the latents, indexer."""
        width = heads * self.query_head_dim
        query = hidden * width if self.q_rank is None else self.q_rank * (hidden + 1 + width)
        keys = hidden * (self.kv_rank + self.rope_head_dim) + self.kv_rank
        expanded = self.kv_rank * heads * (self.nope_head_dim + self.value_head_dim)
        output = heads * self.value_head_dim * hidden
        return query + keys + expanded + output + self.indexer_parameters(hidden)

    def indexer_parameters(self, hidden: int) -> int:
        """Parameters of the indexer: queries, one key and its LayerNorm, a weight a head."""
        queries = (self.q_rank or hidden) * self.index_heads * self.index_head_dim
        return queries + (hidden + 2) * self.index_head_dim + hidden * self.index_heads


@dataclass(frozen=True)
class Recurrent:
    """A layer whose state does not grow.

    kind: `mamba` is Mamba-2 (arXiv:2405.21060), `delta` is gated delta-rule linear attention (arXiv:2412.06464).
    heads × head_dim: inner width (of the values). state: width of the state of each head (of the keys).
    groups: of the state's inputs (key heads). convolution: taps of the short convolution before it.
    """

    heads: int
    head_dim: int
    state: int
    groups: int = 1
    convolution: int = 4
    kind: Literal["mamba", "delta"] = "mamba"

    @property
    def inner(self) -> int:
        """Width of all heads together."""
        return self.heads * self.head_dim

    @property
    def convolved(self) -> int:
        """Channels of the short convolution: values and both inputs of the state (keys and queries)."""
        return self.inner + 2 * self.groups * self.state

    @property
    def projected(self) -> int:
        """Width of the input projection: what is convolved, the gate, and one (mamba) or two numbers a head."""
        return self.convolved + self.inner + self.heads * (1 if self.kind == "mamba" else 2)

    @property
    def state_elements(self) -> int:
        """Numbers that one sequence keeps in this layer: the state, and the convolution's last inputs."""
        return self.inner * self.state + self.convolved * (self.convolution - 1)

    def parameters(self, hidden: int) -> int:
        """Parameters of one layer: projections in and out, convolution, decay and its bias, gated norm."""
        projections = hidden * (self.projected + self.inner)
        if self.kind == "mamba":
            return projections + self.convolved * (self.convolution + 1) + 3 * self.heads + self.inner
        return projections + self.convolved * self.convolution + 2 * self.heads + self.head_dim
