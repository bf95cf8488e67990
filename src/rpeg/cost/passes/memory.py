"""Memory of one process in each phase, as a breakdown that adds up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from rpeg.architecture import Architecture
from rpeg.cost.passes.table import Calibration
from rpeg.cost.passes.work import BYTES_OF
from rpeg.units import bytes_text

PHASES = ("load", "generate", "score", "update", "optimizer", "transfer", "checkpoint")

# A worker process with its libraries loaded, before it holds a model; used where it was not measured.
_CONTEXT_BYTES = 450e6


@dataclass(frozen=True)
class Tenant:
    """A model as it lives in a process.

    heads: of `lm` and `value`. trainable: has gradients and optimizer state. shards: ranks over which parameters
    (zero 3), gradients (2) or moments (1) lie in slices. own_copy: weights of its own; False where it is the very
    module of another tenant of this process. tp, cp, pp: degrees by which the model and its passes are cut besides.
    adapters: parameters on a rank that are trained instead of the model, before slices are made; 0: all is trained.
    """

    name: str
    architecture: Architecture
    dtype: str = "float32"
    heads: tuple[str, ...] = ("lm",)
    trainable: bool = False
    shards: int = 1
    zero: int = 0
    own_copy: bool = True
    recompute: bool = False
    tp: int = 1
    cp: int = 1
    pp: int = 1
    adapters: float = 0.0

    @property
    def parameters(self) -> float:
        """Of all heads."""
        lm = "lm" in self.heads
        value = self.architecture.head_parameters("value")
        if lm:
            return float(self.architecture.parameters("lm") + (value if "value" in self.heads else 0))
        return float(self.architecture.parameters("value"))

    @property
    def weight_bytes(self) -> float:
        """Of the whole model, however it is cut and sharded."""
        return self.parameters * BYTES_OF[self.dtype]

    @property
    def part_bytes(self) -> float:
        """Of what a rank holds of it, and of its adapters, before slices are made."""
        return self.weight_bytes / (self.tp * self.pp) + self.adapters * BYTES_OF[self.dtype]

    @property
    def trained_bytes(self) -> float:
        """Of what of this is trained, and sent."""
        return self.adapters * BYTES_OF[self.dtype] or self.part_bytes

    def held_bytes(self, zero: int) -> float:
        """What a rank holds of something as large as what is trained (as the weights, 3) that is sharded from ZeRO stage
        `zero` on."""
        size = self.part_bytes if zero == 3 else self.trained_bytes
        return size / (self.shards if self.zero >= zero else 1)


@dataclass(frozen=True)
class Use:
    """What a process does with a tenant: the largest shapes that occur.

    slots, context: of generation; 0 slots: it does not generate. microbatch, longest: of scoring and training, in
    samples and tokens; 0: it does neither. response_tokens: most response tokens of a micro-batch.
    """

    tenant: Tenant
    slots: int = 0
    context: int = 0
    microbatch: int = 0
    longest: int = 0
    response_tokens: int = 0
    publishes: bool = False
    receives: bool = False


@dataclass(frozen=True)
class Memory:
    """What a process holds in one phase: (name, bytes) parts."""

    phase: str
    parts: tuple[tuple[str, float], ...]

    @cached_property
    def bytes(self) -> float:
        """All parts together."""
        return sum([size for _, size in self.parts])

    def __str__(self) -> str:
        width = max(len(name) for name, _ in self.parts)
        lines = [f"  {name:<{width}}  {bytes_text(size):>9}" for name, size in self.parts if size]
        return "\n".join([f"{self.phase}: {bytes_text(self.bytes)}", *lines])


def phases(uses: Sequence[Use], calibration: Calibration | None = None) -> tuple[Memory, ...]:
    """Memory of a process in every phase that occurs in it, with all its tenants resident."""
    base = [("context", context_bytes(calibration)), *_residents(uses)]
    out = []
    for phase in PHASES:
        extra = [part for use in uses for part in _extra(phase, use)]
        if extra or phase == "load":
            out.append(Memory(phase, tuple(base + extra)))
    return tuple(out)


def peak(uses: Sequence[Use], calibration: Calibration | None = None) -> Memory:
    """The phase in which a process holds most."""
    return max(phases(uses, calibration), key=lambda memory: memory.bytes)


def context_bytes(calibration: Calibration | None) -> float:
    """A process before it holds a model: measured, or an assumption."""
    return _CONTEXT_BYTES if calibration is None else calibration.memory_bytes.get("context", _CONTEXT_BYTES)


def kv_bytes(architecture: Architecture, slots: int, context: int, dtype: str) -> float:
    """The slot engine's cache: one spare slot, and up to half as many columns again by the way it grows.

    Growing holds the old and the new buffer of one layer at a time.
    """
    columns = min(1.5 * context, architecture.context)
    return float((slots + 1) * columns / context * architecture.kv_elements(context) * BYTES_OF[dtype])


def activation_bytes(tenant: Tenant, rows: int, length: int) -> float:
    """What the backward pass of the backbone finds: a layer's products with their inputs, in eager mode.

    A layer keeps about 10 widths of the residual stream (norms in float32 steps, residuals), q, k and v before and
    after rotation, the attention's output and 4 inner widths; recomputed layers keep only their input. Of these tensor
    parallelism leaves the residual stream whole. The first stage of a pipeline holds as many micro-batches as it has
    stages.
    """
    a = tenant.architecture
    inner = 3 * a.query_width + 4 * a.kv_width + (4 if a.gated else 2) * a.ffn
    layer = 10 * a.hidden + inner / tenant.tp
    layers = -(-a.layers // tenant.pp)
    kept = layers * a.hidden + layer if tenant.recompute else layers * layer
    return float(tenant.pp * rows * length / tenant.cp * (kept + 4 * a.hidden) * BYTES_OF[tenant.dtype])


def logit_bytes(tenant: Tenant, response_tokens: int, *, backward: bool) -> float:
    """Logits of a micro-batch's response tokens in float32: themselves, their softmax and, backward, a gradient."""
    if "lm" not in tenant.heads:
        return 0.0
    copies = (3 if backward else 2) / (tenant.tp * tenant.cp)
    return float(copies * response_tokens * tenant.architecture.vocabulary * max(4, BYTES_OF[tenant.dtype]))


def _residents(uses: Sequence[Use]) -> list[tuple[str, float]]:
    parts = []
    for tenant in dict.fromkeys(use.tenant for use in uses):
        if tenant.own_copy:
            parts.append((f"{tenant.name} parameters", tenant.held_bytes(3)))
        if tenant.trainable:
            parts.append((f"{tenant.name} gradients", tenant.held_bytes(2)))
            parts.append((f"{tenant.name} moments", 2 * tenant.held_bytes(1)))
    return parts


def _extra(phase: str, use: Use) -> list[tuple[str, float]]:
    """What comes on top of the residents in a phase, because of this use."""
    tenant, name = use.tenant, use.tenant.name
    a = tenant.architecture
    if phase == "load":
        return [(f"{name} file", tenant.weight_bytes if tenant.own_copy else 0.0)]
    if phase == "generate" and use.slots:
        return [
            (f"{name} KV cache", kv_bytes(a, use.slots, use.context, tenant.dtype) / tenant.tp),
            # drawing tokens holds logits, scores, weights and their cumulative sums in float64
            (f"{name} logits", float(use.slots * a.vocabulary * (BYTES_OF[tenant.dtype] + 4 * 8))),
        ]
    if phase == "score" and use.microbatch and not tenant.trainable:
        return _scoring(use)
    if phase == "update" and use.microbatch and tenant.trainable:
        return [
            (f"{name} activations", activation_bytes(tenant, use.microbatch, use.longest)),
            (f"{name} logits", logit_bytes(tenant, use.response_tokens, backward=True)),
            (f"{name} gathered layer", _gathered(tenant)),
        ]
    if phase == "optimizer" and use.microbatch and tenant.trainable:
        return [(f"{name} reduction", tenant.held_bytes(2))]
    if phase == "transfer" and (use.publishes or use.receives):
        return [(f"{name} bucket", tenant.trained_bytes * (1 + (tenant.zero == 3 and tenant.shards > 1)))]
    if phase == "checkpoint" and tenant.trainable:
        return [(f"{name} full tensors", tenant.trained_bytes)]
    return []


def _scoring(use: Use) -> list[tuple[str, float]]:
    tenant = use.tenant
    a = tenant.architecture
    widest = 6 * a.hidden + (a.query_width + 2 * a.kv_width + 3 * a.ffn) / tenant.tp
    activations = use.microbatch * use.longest / tenant.cp * widest * BYTES_OF[tenant.dtype]
    return [
        (f"{tenant.name} activations", float(activations)),
        (f"{tenant.name} logits", logit_bytes(tenant, use.response_tokens, backward=False)),
        (f"{tenant.name} gathered layer", _gathered(tenant)),
    ]


def _gathered(tenant: Tenant) -> float:
    """Two whole layers at once under ZeRO-3: the one at work and the next."""
    if tenant.zero < 3 or tenant.shards == 1:
        return 0.0
    return float(2 * tenant.architecture.layer_parameters / tenant.tp * BYTES_OF[tenant.dtype])
