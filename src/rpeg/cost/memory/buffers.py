"""What neither model nor activations hold: gathered units, buckets, communication buffers, contexts, unused blocks."""

from __future__ import annotations

from collections.abc import Sequence

from rpeg.architecture import Architecture
from rpeg.cost.execution import Execution
from rpeg.cost.memory.breakdown import Line, joined
from rpeg.cost.memory.state import Holding, sharded, weight_bytes
from rpeg.cost.precision import BYTES_OF
from rpeg.cost.traits import MemoryTraits
from rpeg.plan import Parallelism

MOVED_BYTES = 10**9
"""Whole weights that a publication gathers at once: OpenRLHF and verl move buckets of 0.5 to 2 GB."""


def gathered_lines(held: Holding, execution: Execution, *, backward: bool) -> list[Line]:
    """Whole layers that ZeRO-3 has gathered: the one at work and the next, and in a backward pass their gradients.

    Gradients of a layer wait whole in the dtype of the products and are copied into that of the reduction.
    """
    p = execution.parallelism
    if p.zero < 3 or not sharded(p) or (backward and p.pp > 1):  # pipelined, they stay gathered anyway
        return []
    size = _gathered_size(execution)
    unit = held.layer + held.layer_experts
    lines = [Line("gathered layers", 2 * unit * size)]
    if backward and execution.lora_rank is None:
        reduced = BYTES_OF[execution.precision.reduced]
        lines.append(Line("gradients of a gathered layer", unit * (2 + reduced)))
    return lines


def gathered_head(held: Holding, execution: Execution, *, backward: bool) -> list[Line]:
    """Embedding or head as ZeRO-3 has gathered it at the loss, and its gradient."""
    p = execution.parallelism
    if p.zero < 3 or not sharded(p) or (backward and p.pp > 1):
        return []
    size = max(2.0, _gathered_size(execution))
    trained = backward and execution.lora_rank is None
    return [Line("gathered head", held.root * (size + 2 * trained))]


def _gathered_size(execution: Execution) -> float:
    """Bytes a parameter of a gathered unit: in the dtype of the products, 16 bits where weights are narrower."""
    weights = weight_bytes(execution.precision)[0]
    compute = BYTES_OF[execution.precision.compute]
    return weights if weights < 2 else max(2.0, min(weights, compute))


def process_lines(parallelism: Parallelism, traits: MemoryTraits, engines: int = 1) -> tuple[Line, ...]:
    """Context of each process on the device, and the communication library's buffers for each group it is in."""
    sizes = (parallelism.dp, parallelism.tp, parallelism.pp, parallelism.cp, parallelism.ep)
    groups = sum(size > 1 for size in sizes)
    return joined(
        (
            Line("context", traits.context_bytes * engines, "process"),
            Line("communication buffers", traits.group_bytes * groups, "process"),
        )
    )


def finished(lines: Sequence[Line], process: Sequence[Line], traits: MemoryTraits) -> tuple[Line, ...]:
    """With libraries' workspaces, the allocator's unused blocks and what the process holds (`process_lines`).

    Long-lived tensors fill their blocks; those that come and go in many sizes leave blocks that nothing fits into.
    """
    tensors, working = [], 0.0
    for line in lines:
        if line.bytes > 0:
            tensors.append(line)
            working += line.bytes if line.pool == "working" else 0.0
    workspace = Line("workspaces", traits.workspace_bytes)
    return (*tensors, workspace, Line("unused blocks", working * traits.unused_share, "unused"), *process)


def moved_line(architecture: Architecture, execution: Execution) -> Line:
    """Whole tensors gathered to be published: a bucket, or the largest tensor where that is larger."""
    largest = architecture.hidden * architecture.vocabulary * 2.0
    return Line(
        "bucket of whole weights", max(largest, min(float(MOVED_BYTES), architecture.parameters() * 2.0))
    )
