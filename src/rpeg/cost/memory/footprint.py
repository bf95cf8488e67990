"""Memory of the fullest device of a gang that trains or scores, in every phase that occurs."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from rpeg.architecture import Architecture
from rpeg.cost.execution import Execution
from rpeg.cost.machine import Machine
from rpeg.cost.memory.breakdown import Breakdown, Footprint
from rpeg.cost.memory.check import check
from rpeg.cost.memory.microbatch import microbatch
from rpeg.cost.memory.phases import Heads, infer_phases, train_phases
from rpeg.cost.memory.stages import Slice, slices
from rpeg.cost.sequences import Sequences


def train_memory(
    architecture: Architecture,
    sequences: Sequences,
    execution: Execution,
    machine: Machine,
    *,
    heads: Heads = ("lm",),
    rank: int | None = None,
) -> Footprint:
    """Load, score, update, optimizer step (from step 2 on), transfer, checkpoint and rest of a model that is trained.

    sequences: the global batch of one update. rank: a pipeline rank; None: the one that holds most.
    InputError where the parallelism does not divide the model.
    """
    check(architecture, execution)
    batch = microbatch(sequences, execution)
    return _fullest(
        architecture,
        execution,
        machine,
        rank,
        lambda part: train_phases(architecture, part, batch, execution, machine.stack, heads),
    )


def infer_memory(
    architecture: Architecture,
    sequences: Sequences,
    execution: Execution,
    machine: Machine,
    *,
    heads: Heads = ("lm",),
    rank: int | None = None,
) -> Footprint:
    """Load, score and rest of a model that is not trained (reference, reward): a forward pass without gradients.

    sequences: the global batch. rank: a pipeline rank; None: the one that holds most. InputError as above.
    """
    check(architecture, execution)
    batch = microbatch(sequences, execution)
    return _fullest(
        architecture,
        execution,
        machine,
        rank,
        lambda part: infer_phases(architecture, part, batch, execution, machine.stack, heads),
    )


def _fullest(
    architecture: Architecture,
    execution: Execution,
    machine: Machine,
    rank: int | None,
    phases: Callable[[Slice], tuple[Breakdown, ...]],
) -> Footprint:
    """The footprint of a pipeline rank; None: the fullest one."""
    p = execution.parallelism
    parts = slices(architecture, p.pp, p.vpp, machine.stack.memory.balanced_stages)
    asked = _fullest_of(parts) if rank is None else [rank]
    return max(
        (Footprint(at, phases(parts[at])) for at in asked),
        key=lambda footprint: footprint.peak.device_bytes,
    )


@lru_cache(maxsize=1024)
def _fullest_of(parts: tuple[Slice, ...]) -> list[int]:
    """Ranks of which one is the fullest.

    A rank holds no more than one before it that has as many layers of every kind, as that keeps more micro-batches,
    unless it has the head.
    """
    asked: list[Slice] = []
    for part in parts:
        if part.head or not any(_covers(earlier, part) for earlier in asked):
            asked.append(part)
    return [part.rank for part in asked]


def _covers(one: Slice, other: Slice) -> bool:
    layers = dict(one.groups)
    return all(layers.get(layer, 0) >= count for layer, count in other.groups)
