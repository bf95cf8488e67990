"""Memory of a device in every phase of training, scoring and generating."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rpeg.architecture import Architecture
from rpeg.cost.execution import Execution
from rpeg.cost.machine import Machine
from rpeg.cost.memory.activations import activation_bytes, forward_bytes
from rpeg.cost.memory.breakdown import Breakdown, Footprint, Line, Phase
from rpeg.cost.memory.buffers import finished, gathered_head, gathered_lines, moved_line
from rpeg.cost.memory.check import check
from rpeg.cost.memory.logits import logit_lines
from rpeg.cost.memory.stages import Slice, kept_microbatches, slices
from rpeg.cost.memory.state import Holding, gradient_line, holding, optimizer_lines, parameter_line
from rpeg.cost.sequences import Sequences

Heads = tuple[str, ...]


@dataclass(frozen=True)
class Microbatch:
    """The largest micro-batch on one device: tokens after context parallelism, its longest sequence, scored tokens."""

    tokens: float
    longest: int
    scored: float
    count: int


def microbatch(sequences: Sequences, execution: Execution) -> Microbatch:
    """Padded to its longest sequence, or packed up to the budget (never below one whole sequence)."""
    p = execution.parallelism
    each = max(1, execution.microbatch)
    padded = min(each, max(1, sequences.count)) * sequences.longest
    tokens = max(execution.token_budget, sequences.longest) if execution.token_budget else padded
    tokens = min(tokens, max(1, sequences.count) * sequences.longest)
    share = min(1.0, sequences.scored / sequences.tokens) if sequences.tokens else 1.0
    passes = sequences.tokens / tokens if execution.token_budget else sequences.count / each
    return Microbatch(tokens / p.cp, sequences.longest, tokens * share / p.cp, max(1, round(passes / p.dp)))


def train_memory(
    architecture: Architecture,
    sequences: Sequences,
    execution: Execution,
    machine: Machine,
    *,
    heads: Heads = ("lm",),
    rank: int | None = None,
) -> Footprint:
    """Load, score, update, optimizer step (from step 2 on), publication and checkpoint of a model that is trained.

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
        lambda part: _train_phases(architecture, part, batch, execution, machine, heads),
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
    """Load and score of a model that is not trained (reference, reward): a forward pass without gradients."""
    check(architecture, execution)
    batch = microbatch(sequences, execution)
    return _fullest(
        architecture,
        execution,
        machine,
        rank,
        lambda part: _infer_phases(architecture, part, batch, execution, machine, heads),
    )


def _fullest(
    architecture: Architecture,
    execution: Execution,
    machine: Machine,
    rank: int | None,
    phases: object,
) -> Footprint:
    """The footprint of a pipeline rank; None: the fullest of the first two, the middle and the last."""
    p = execution.parallelism
    parts = slices(architecture, p.pp, p.vpp, machine.stack.memory.balanced_stages)
    asked = sorted({0, min(1, p.pp - 1), p.pp // 2, p.pp - 1}) if rank is None else [rank]
    make = phases
    prints = [Footprint(parts[r].rank, make(parts[r])) for r in asked]  # type: ignore[operator]
    return max(prints, key=lambda footprint: footprint.peak.needed_bytes)
