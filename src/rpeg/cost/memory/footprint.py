"""Memory of the fullest device of a gang that trains or scores, in every phase that occurs."""

from __future__ import annotations

from collections.abc import Callable

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
    """The footprint of a pipeline rank; None: the fullest one.

    Of ranks with equal layers the first keeps most micro-batches; the last has the head, the first the embedding.
    """
    p = execution.parallelism
    parts = slices(architecture, p.pp, p.vpp, machine.stack.memory.balanced_stages)
    if rank is None:
        first = {part.groups: part.rank for part in reversed(parts)}
        asked = sorted({*first.values(), p.pp - 1})
    else:
        asked = [rank]
    return max(
        (Footprint(at, phases(parts[at])) for at in asked),
        key=lambda footprint: footprint.peak.device_bytes,
    )
