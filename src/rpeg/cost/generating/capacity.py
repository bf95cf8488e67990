"""`Pool`: how many tokens of keys and values a replica can hold."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from rpeg.architecture import Architecture
from rpeg.cost.execution import Execution
from rpeg.cost.generating.layout import Layout, layout_of
from rpeg.cost.generating.policy import Policy
from rpeg.cost.kernels.work import stored
from rpeg.cost.machine import Machine
from rpeg.cost.precision import BYTES_OF
from rpeg.errors import InfeasibleError
from rpeg.units import bytes_text

RECURRENT_STATE_BYTES = 4.0


@dataclass(frozen=True)
class Pool:
    """Cache of one replica, counted on the device of each group of tensor-parallel ranks that holds most.

    size_bytes: of all such groups together. token_bytes: what each token of a sequence takes for good.
    window_tokens, window_bytes: tokens of a sequence that windowed layers keep at most, and what each of them takes.
    state_bytes: of a sequence, whatever its length.
    """

    size_bytes: float
    token_bytes: float
    window_tokens: int
    window_bytes: float
    state_bytes: float

    def held(self, tokens: Any) -> Any:
        """Bytes of one sequence of so many tokens. Number or array."""
        kept = np.minimum(tokens, self.window_tokens)
        return tokens * self.token_bytes + kept * self.window_bytes + self.state_bytes


@lru_cache(maxsize=4096)
def pool_of(architecture: Architecture, execution: Execution, machine: Machine, policy: Policy) -> Pool:
    """The cache that card, weights and the engine's share leave; InfeasibleError where they leave none."""
    layout = layout_of(architecture, execution.parallelism)
    size = policy.cache_bytes
    if size is None:
        share = policy.memory_share or machine.stack.serving.memory_share
        size = _left(architecture, layout, execution, machine, share)
    a, element = architecture, BYTES_OF[execution.precision.cache]
    kv = 2 * max(1, a.kv_heads // layout.tp) * a.head_dim * element
    per_token, per_window, state = 0.0, 0.0, 0.0
    for layer, count in a.groups:
        share = count / layout.pp
        if layer.mixer == "latent" and a.latent:
            per_token += share * a.latent.cached * element
        elif layer.mixer == "window" and a.window:
            per_window += share * kv
        elif layer.mixer == "recurrent" and a.recurrent:
            state += share * a.recurrent.state_elements / layout.tp * RECURRENT_STATE_BYTES
        elif layer.mixer != "none":
            per_token += share * kv
    return Pool(size * layout.attention_dp, per_token, a.window or 0, per_window, state)


def device_weight_bytes(architecture: Architecture, layout: Layout, execution: Execution) -> float:
    """Weights on one device of a replica: experts dealt and cut, everything else cut over tp and pp."""
    precision = execution.precision
    experts = sum(n * architecture.layer_parts(layer).get("experts", 0) for layer, n in architecture.groups)
    other = architecture.parameters() - experts
    spread = experts / (layout.ep * layout.expert_tp)
    dense = other / layout.tp * BYTES_OF[precision.weights]
    return (dense + spread * BYTES_OF[stored(precision.expert_weights)]) / layout.pp


def _left(
    architecture: Architecture, layout: Layout, execution: Execution, machine: Machine, share: float
) -> float:
    traits, card = machine.stack.serving, machine.kind.memory_bytes
    weights = device_weight_bytes(architecture, layout, execution)
    left = card * share - weights - traits.reserve_bytes
    if left <= 0:
        raise InfeasibleError(
            f"generate {architecture.name}: weights of {bytes_text(weights)} and {bytes_text(traits.reserve_bytes)} of"
            f" buffers leave no cache in {share:.0%} of the {bytes_text(card)} of a {machine.kind.name}:"
            f" raise tp = {layout.tp} or pp = {layout.pp}, or take narrower weights"
        )
    return left
