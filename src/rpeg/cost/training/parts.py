"""`Setting` and `Part`: what one rank computes of one micro-batch, and one kernel or collective of it both ways."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rpeg.architecture import Architecture
from rpeg.cost.execution import Execution
from rpeg.cost.kernels import Amount, Kernels, Timed
from rpeg.cost.machine import Machine
from rpeg.cost.network import Collective, collective_seconds
from rpeg.cost.precision import BYTES_OF
from rpeg.cost.traits import TrainingTraits
from rpeg.cost.tree import Bound

NOTHING = Timed(0.0, 0.0, 0.0)

# Products that keep more than 8 bits whatever the recipe: head, router (TransformerEngine's fp8 recipes cover the
# linear layers of transformer blocks only).
_WIDE = {"float8": "bfloat16", "float4": "bfloat16"}


@dataclass(frozen=True, slots=True)
class Setting:
    """One micro-batch on one rank.

    tokens: of the micro-batch that this context-parallel rank holds. reach: keys that the average query sees in full
    causal attention (half the length that attention costs follow). Both may be arrays, of many micro-batches at once.
    trains: there is a backward pass; else that of products, attention and passes over memory is not asked.
    """

    architecture: Architecture
    execution: Execution
    machine: Machine
    kernels: Kernels
    tokens: Amount
    reach: Amount
    trains: bool = True

    @property
    def whole(self) -> Amount:
        """Tokens of the micro-batch on all context-parallel ranks."""
        return self.tokens * self.execution.parallelism.cp

    @property
    def split(self) -> Amount:
        """Tokens that this rank holds where sequence parallelism cuts what tensor parallelism leaves whole."""
        layout = self.execution.parallelism
        return self.tokens / layout.tp if layout.sequence_parallel else self.tokens

    @property
    def traits(self) -> TrainingTraits:
        """What the stack adds to the kernels."""
        return self.machine.stack.training

    @property
    def wide(self) -> str:
        """The dtype of products that are not done in 8 bits or fewer."""
        compute = self.execution.precision.compute
        return _WIDE.get(compute, compute)

    @property
    def accumulate(self) -> str:
        """The dtype of the weight gradients that products add to; where a pass of its own adds, of activations."""
        precision = self.execution.precision
        return precision.gradients if self.traits.fused else precision.activations

    @property
    def repeated_products(self) -> float:
        """Share of products that selective recomputation repeats: every second one, where it is by operation."""
        return 0.5 if self.machine.stack.memory.selective == "products" else 0.0

    @property
    def activation_bytes(self) -> float:
        """Of one number of an activation."""
        return BYTES_OF[self.execution.precision.activations]


class Part(NamedTuple):
    """One operation: forward, backward, and the share of the forward that selective recomputation repeats."""

    name: str
    forward: Timed
    backward: Timed
    bound: Bound
    selective: float = 0.0


def add(*timed: Timed) -> Timed:
    """One after another."""
    seconds = flops = moved = 0.0
    for t in timed:
        seconds, flops, moved = seconds + t.seconds, flops + t.flops, moved + t.bytes
    return Timed(seconds, flops, moved, all(t.measured for t in timed))


def times(timed: Timed, factor: float) -> Timed:
    """`factor` such kernels."""
    return Timed(timed.seconds * factor, timed.flops * factor, timed.bytes * factor, timed.measured)


def linear(
    setting: Setting, name: str, m: Amount, n: int, k: int, dtype: str = "", *, selective: float = 0.0
) -> Part:
    """(m, k) × (k, n): backward has the gradients of input (m, n) × (n, k) and weight (k, m) × (m, n).

    With low-rank adapters the weight's gradient is not computed; two narrow products each way are added.
    """
    kernels = setting.kernels
    dtype = dtype or setting.execution.precision.compute
    forward, rank = kernels.gemm(m, n, k, dtype), setting.execution.lora_rank
    backward = NOTHING
    if rank is not None:
        narrow = add(kernels.gemm(m, rank, k, setting.wide), kernels.gemm(m, n, rank, setting.wide))
        forward = add(forward, narrow)
        if setting.trains:
            backward = add(kernels.gemm(m, k, n, dtype), times(narrow, 2.0))
    elif setting.trains:
        backward = kernels.gemm_backward(m, n, k, dtype, setting.accumulate)
    forward, backward = sustained(setting, forward, dtype), sustained(setting, backward, dtype)
    if BYTES_OF[dtype] < 2.0 and not setting.traits.fused:
        ahead, back = _scaling(setting, m, n, k)
        forward, backward = add(forward, ahead), add(backward, back)
    return Part(name, forward, backward, bound_of(setting, forward, dtype), selective)


def _scaling(setting: Setting, m: Amount, n: int, k: int) -> tuple[Timed, Timed]:
    """What dynamic scaling adds where no kernel does it on the way: products count the cast of their first operand.

    Forward: a maximum over the input (2 bytes an element), a maximum over and a cast of the weight (5). Backward: a
    maximum over the output's gradient and a second cast of it along the other axis (5), a second cast of the weight (3).
    """
    kernels = setting.kernels
    return kernels.memory(2.0 * m * k + 5.0 * n * k), kernels.memory(5.0 * m * n + 3.0 * n * k)


def sustained(setting: Setting, timed: Timed, dtype: str) -> Timed:
    """A product in the middle of a long run: tables hold short bursts, before the power limit lowers the clock.

    Products of fewer bits draw less: half of the excess.
    """
    size, excess = BYTES_OF[dtype], setting.traits.sustained_products - 1.0
    slower = 1.0 + excess * (1.0 if size == 2.0 else 0.5 if size < 2.0 else 0.0)
    return Timed(timed.seconds * slower, timed.flops, timed.bytes, timed.measured)


def passes(setting: Setting, name: str, elements: Amount, forward: float, backward: float) -> Part:
    """Reads and writes of so many activations: each way so many times `elements`."""
    size = elements * setting.activation_bytes * setting.traits.elementwise_factor
    kernels = setting.kernels
    back = kernels.memory(size * backward) if setting.trains else NOTHING
    return Part(name, kernels.memory(size * forward), back, "memory")


def exchange(
    setting: Setting,
    name: str,
    kind: Collective,
    size: Amount,
    ranks: int,
    stride: int,
    times: int,
    hidden: float,
) -> Part:
    """`times` collectives of `size` bytes each way, of which the share `hidden` runs behind products."""
    seconds = collective_seconds(kind, size, ranks, setting.machine, stride=stride) if ranks > 1 else 0.0
    once = Timed(seconds * times * (1.0 - hidden), 0.0, size * times if ranks > 1 else 0.0)
    return Part(name, once, once, "network")


def bound_of(setting: Setting, timed: Timed, dtype: str) -> Bound:
    """Whether the advertised peaks make this kernel's arithmetic or its memory traffic take longer; of many alike, of
    all together."""
    kind, flops, moved = setting.machine.kind, timed.flops, timed.bytes
    if isinstance(flops, np.ndarray):
        flops, moved = flops.sum(), moved.sum()
    memory = moved / kind.memory_bandwidth_bytes_per_second
    return "compute" if flops / kind.peak(dtype) >= memory else "memory"
