"""`Execution`: how a stage is laid out over its devices and run there, whatever it computes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rpeg.cost.adapters import Targets
from rpeg.cost.precision import Precision
from rpeg.hashing import kept_hash
from rpeg.plan import Parallelism

Recompute = Literal["none", "selective", "full"]
Offload = Literal["none", "optimizer", "all"]
Logits = Literal["materialised", "chunked"]


@kept_hash
@dataclass(frozen=True)
class Execution:
    """Layout and ways of running.

    microbatch: sequences in one forward of a model replica. token_budget: 0 pads micro-batches to their longest
    sequence; else micro-batches are packed, without padding, up to so many tokens.
    recompute: selective recomputes attention, full keeps only each layer's input.
    lora_rank: None trains all parameters. lora_targets: every product has adapters, or queries and values alone.
    logits: chunked never holds all of a micro-batch's logits.
    graphs: kernels are launched by replaying captured graphs (CUDA graphs), not one by one.
    imbalance: tokens of the most loaded expert over the mean, ≥ 1.
    """

    parallelism: Parallelism = field(default_factory=Parallelism)
    precision: Precision = field(default_factory=Precision)
    microbatch: int = 1
    token_budget: int = 0
    recompute: Recompute = "none"
    offload: Offload = "none"
    lora_rank: int | None = None
    lora_targets: Targets = "all"
    logits: Logits = "materialised"
    graphs: bool = False
    imbalance: float = 1.0
