"""Host memory of a node: processes, pinned buffers, offloaded state, checkpoints on their way to disk."""

from __future__ import annotations

from functools import lru_cache

from rpeg.architecture import Architecture
from rpeg.cost.execution import Execution
from rpeg.cost.machine import Machine
from rpeg.cost.memory.breakdown import Breakdown, Line
from rpeg.cost.memory.buffers import MOVED_BYTES
from rpeg.cost.memory.stages import slices
from rpeg.cost.memory.state import Holding, holding, shards
from rpeg.cost.precision import BYTES_OF
from rpeg.plan import Parallelism


def host_memory(
    architecture: Architecture,
    execution: Execution,
    machine: Machine,
    *,
    heads: tuple[str, ...] = ("lm",),
    trained: bool = True,
    asleep: int = 0,
    asynchronous_checkpoint: bool = True,
) -> Breakdown:
    """What one node's host holds while its devices train (or score) one model, each with its own process.

    asleep: models whose weights rest in host memory between their runs (engines asleep, offloaded references).
    asynchronous_checkpoint: a copy of weights and optimizer state is staged while it is written.
    """
    p, precision = execution.parallelism, execution.precision
    devices = min(machine.fabric.devices_per_node, p.devices)
    held = _largest(architecture, p, heads)
    dense, routed = shards(p, 1)
    mine = held.dense / dense + held.experts / routed
    optimizer = mine * (4 * precision.master + 2 * BYTES_OF[precision.moments]) * trained
    weights = held.parameters * BYTES_OF[precision.weights]
    whole, own = shards(p, 3)
    resting = (held.dense / whole + held.experts / own) * BYTES_OF[precision.weights]
    gradients = mine * BYTES_OF[precision.gradients] * trained
    offloaded = (optimizer + gradients) * (execution.offload != "none") + resting * (
        execution.offload == "all"
    )
    lines = [
        Line("processes", devices * machine.stack.memory.host_process_bytes, "process"),
        Line("pinned buffers", devices * 2.0 * MOVED_BYTES),
        Line("offloaded state", devices * offloaded, "state"),
        Line("weights asleep", devices * weights * asleep, "state"),
        Line(
            "checkpoint staging",
            devices * (resting + optimizer) * (trained and asynchronous_checkpoint),
            "block",
        ),
    ]
    return Breakdown("checkpoint", tuple(line for line in lines if line.bytes))


@lru_cache(maxsize=4096)
def _largest(architecture: Architecture, parallelism: Parallelism, heads: tuple[str, ...]) -> Holding:
    """Of the pipeline rank with most parameters."""
    parts = slices(architecture, parallelism.pp, parallelism.vpp)
    held = (holding(architecture, part, parallelism, heads) for part in parts)
    return max(held, key=lambda one: one.parameters)


def host_short_bytes(host: Breakdown, machine: Machine) -> float:
    """Bytes missing in a node's host memory; 0.0 where it fits or is not known."""
    if not machine.host_memory_bytes:
        return 0.0
    return max(0.0, host.device_bytes - machine.host_memory_bytes)
