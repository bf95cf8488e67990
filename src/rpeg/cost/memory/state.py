"""What training keeps of a model on one device: parameters, gradients, master weights and moments."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rpeg.architecture import Architecture
from rpeg.architecture.model import Layer
from rpeg.cost.execution import Execution
from rpeg.cost.memory.breakdown import Line
from rpeg.cost.memory.stages import Slice
from rpeg.cost.precision import BYTES_OF, Precision
from rpeg.cost.traits import MemoryTraits
from rpeg.plan import Parallelism


@dataclass(frozen=True)
class Holding:
    """Parameters on one device after tensor, expert and pipeline parallelism, before any sharding of ZeRO.

    cut: matrices of attention and feed-forward. whole: embeddings, head, norms and routers, which stay in 16 bits
    where weights are quantised. experts: routed experts. layer: of the largest layer; root: of embedding and head.
    """

    cut: float
    whole: float
    experts: float
    layer: float
    root: float
    layer_experts: float = 0.0

    @property
    def dense(self) -> float:
        """All but routed experts."""
        return self.cut + self.whole

    @property
    def parameters(self) -> float:
        """All of them."""
        return self.dense + self.experts


@lru_cache(maxsize=8192)
def holding(
    architecture: Architecture, part: Slice, parallelism: Parallelism, heads: tuple[str, ...]
) -> Holding:
    """What a device of a pipeline rank holds. Norms and routers are whole on each tensor-parallel rank."""
    cut = whole = experts = largest = largest_experts = 0.0
    for layer, count in part.groups:
        mine, replicated, routed = layer_holding(architecture, layer, parallelism)
        cut, whole, experts = cut + count * mine, whole + count * replicated, experts + count * routed
        if mine + replicated + routed > largest + largest_experts:
            largest, largest_experts = mine + replicated, routed
    root = _root(architecture, part, parallelism.tp, heads)
    whole += root + architecture.norm_parameters * part.head
    return Holding(cut, whole, experts, largest, root, largest_experts)


def layer_holding(
    architecture: Architecture, layer: Layer, parallelism: Parallelism
) -> tuple[float, float, float]:
    """Parameters of one layer on one device: (cut by tp, whole, routed experts)."""
    parts = architecture.layer_parts(layer)
    cut = parts["attention"] + parts["ffn"] + parts["shared_expert"] + parts["recurrent"]
    replicas = kv_copies(architecture, layer, parallelism.tp)
    return (
        cut / parallelism.tp + replicas,
        float(parts["norms"] + parts["router"]),
        parts["experts"] / parallelism.ep,
    )


def kv_copies(architecture: Architecture, layer: Layer, tp: int) -> float:
    """Parameters of key and value heads that a rank holds beyond its share: tp over kv_heads copies them."""
    if layer.mixer not in ("full", "window") or tp <= architecture.kv_heads:
        return 0.0
    return 2 * architecture.hidden * architecture.head_dim * (1 - architecture.kv_heads / tp)


def state_lines(held: Holding, execution: Execution, *, stepped: bool = True) -> list[Line]:
    """Parameters, gradients, master weights and moments of what is trained. Bytes of one device.

    Sharding from ZeRO stage 1 (optimizer state), 2 (gradients), 3 (parameters) on: Rajbhandari et al. 2020,
    arXiv:1910.02054. stepped: the optimizer has run once, before which it holds no moments.
    """
    return [
        parameter_line(held, execution),
        gradient_line(held, execution),
        *optimizer_lines(held, execution, stepped=stepped),
    ]


def parameter_line(held: Holding, execution: Execution) -> Line:
    """Weights as they rest; sharded under ZeRO-3."""
    precision, (dense, routed) = execution.precision, shards(execution.parallelism, 3)
    cut, whole, experts = weight_bytes(precision)
    size = (held.cut * cut + held.whole * whole) / dense + held.experts * experts / routed
    return Line(f"parameters {precision.weights}", size + adapter_parameters(held, execution) * 4, "state")


def gradient_line(held: Holding, execution: Execution) -> Line:
    """Gradients as they accumulate; sharded under ZeRO-2 and 3."""
    size = BYTES_OF[execution.precision.gradients]
    if execution.lora_rank is not None:
        return Line("gradients of adapters", adapter_parameters(held, execution) * size, "state")
    dense, routed = shards(execution.parallelism, 2)
    total = (held.dense / dense + held.experts / routed) * size
    return Line(f"gradients {execution.precision.gradients}", total, "state")


def waiting_lines(held: Holding, execution: Execution, traits: MemoryTraits, microbatches: int) -> list[Line]:
    """Weights and gradients that are whole although they are sharded, or held twice, until an update's reduction.

    ZeRO-3 under pipeline parallelism keeps weights gathered and reduces gradients once an update, or every micro-batch
    would move them (torchtitan does not reshard after the forward pass when it pipelines).
    """
    p, precision = execution.parallelism, execution.precision
    frozen = execution.lora_rank is not None
    if p.zero == 3 and sharded(p):
        lines = [Line("weights kept gathered", held.parameters * 2.0 * (p.pp > 1), "state")]
        if (p.pp > 1 and not frozen) or (traits.accumulates_whole and microbatches > 1):
            dtype = precision.compute if traits.accumulates_whole else precision.reduced
            lines.append(Line(f"whole gradients {dtype}", held.parameters * BYTES_OF[dtype], "state"))
        return lines
    if p.zero == 3 or frozen or p.dp * p.cp == 1:
        return []
    twice = traits.gradient_buckets and precision.gradients != precision.weights and p.zero < 2
    buckets = min(traits.bucket_bytes, held.parameters * BYTES_OF[precision.gradients])
    return [
        Line("gradients awaiting reduction", held.parameters * BYTES_OF[precision.weights] * twice, "state"),
        Line("reduction buckets", buckets, "state"),
    ]


def sharded(parallelism: Parallelism) -> bool:
    """Whether ZeRO has more than one rank to shard over."""
    return parallelism.shards * parallelism.cp > 1


def optimizer_lines(held: Holding, execution: Execution, *, stepped: bool = True) -> list[Line]:
    """Master weights and moments; none on the device where they are offloaded."""
    precision = execution.precision
    if execution.lora_rank is not None:
        size = 2 * BYTES_OF[precision.moments] * stepped
        return [Line("moments of adapters", adapter_parameters(held, execution) * size, "state")]
    if execution.offload != "none":
        return []
    mine = updated_parameters(held, execution)
    return [
        Line("master weights float32", mine * 4 * precision.master, "state"),
        Line(f"moments {precision.moments}", mine * 2 * BYTES_OF[precision.moments] * stepped, "state"),
    ]


def updated_parameters(held: Holding, execution: Execution) -> float:
    """Parameters that this device's optimizer updates: its shard, or the adapters; none where it is offloaded."""
    if execution.lora_rank is not None:
        return adapter_parameters(held, execution)
    if execution.offload != "none":
        return 0.0
    dense, routed = shards(execution.parallelism, 1)
    return held.dense / dense + held.experts / routed


def shards(parallelism: Parallelism, stage: int) -> tuple[int, int]:
    """Ranks over which ZeRO cuts what it shards from `stage` on: of dense parameters, of routed experts.

    Context-parallel ranks hold the same weights, so they share like data-parallel ones. An expert's replicas are what
    expert parallelism leaves of the data-, context- and tensor-parallel ranks.
    """
    if parallelism.zero < stage:
        return 1, 1
    dense = parallelism.shards * parallelism.cp
    return dense, max(1, dense * parallelism.tp // parallelism.ep)


def weight_bytes(precision: Precision) -> tuple[float, float, float]:
    """Bytes a parameter of (matrices, embeddings with head and norms, routed experts)."""
    weights = BYTES_OF[precision.weights]
    return weights, max(2.0, weights), BYTES_OF[precision.expert_weights]


def adapter_parameters(held: Holding, execution: Execution) -> float:
    """Parameters of low-rank adapters beside every cut matrix (Hu et al. 2021, arXiv:2106.09685).

    A matrix of in × out numbers gets rank·(in + out). Summed over matrices of sides near √(in·out) that is about
    2·rank·Σ√(in·out); with seven matrices a layer the layer's total P gives 2·rank·√(7·P).
    """
    if execution.lora_rank is None or not held.layer:
        return 0.0
    layers = held.cut / held.layer
    return float(layers * 2 * execution.lora_rank * (7 * held.layer) ** 0.5)


def _root(architecture: Architecture, part: Slice, tp: int, heads: tuple[str, ...]) -> float:
    """Embedding and heads of a rank; a tied head on another rank than the embedding is a copy of it."""
    size = 0.0
    if part.embedding:
        size += architecture.embedding_parameters / tp
    if part.head and "lm" in heads:
        size += architecture.head_parameters("lm") / tp
        size += architecture.hidden * architecture.vocabulary / tp * part.tied
    if part.head and any(head != "lm" for head in heads):
        size += architecture.head_parameters("value")
    return size
