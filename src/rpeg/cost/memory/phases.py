"""The phases of training and scoring, as breakdowns of one device."""

from __future__ import annotations

from collections.abc import Sequence

from rpeg.architecture import Architecture
from rpeg.cost.execution import Execution
from rpeg.cost.memory.activations import activation_bytes, forward_bytes
from rpeg.cost.memory.breakdown import Breakdown, Line, Phase
from rpeg.cost.memory.buffers import finished, gathered_head, gathered_lines, moved_line, process_lines
from rpeg.cost.memory.logits import logit_lines
from rpeg.cost.memory.microbatch import Microbatch
from rpeg.cost.memory.stages import Slice, kept_microbatches
from rpeg.cost.memory.state import (
    Holding,
    gradient_line,
    holding,
    optimizer_lines,
    parameter_line,
    updated_parameters,
    waiting_lines,
)
from rpeg.cost.precision import BYTES_OF
from rpeg.cost.stack import Stack

Heads = tuple[str, ...]


def train_phases(
    architecture: Architecture,
    part: Slice,
    batch: Microbatch,
    execution: Execution,
    stack: Stack,
    heads: Heads,
) -> tuple[Breakdown, ...]:
    """Load, score, update, optimizer, transfer, checkpoint, rest of a pipeline rank of a model that is trained.

    Offloaded optimizer state is never on the device; offload `all` leaves nothing there between the model's runs.
    """
    held = holding(architecture, part, execution.parallelism, heads)
    weights, gradients = parameter_line(held, execution), gradient_line(held, execution)
    optimizer = optimizer_lines(held, execution)
    between = [weights, *optimizer, *([gradients] if stack.memory.gradients_stay else [])]
    waiting = waiting_lines(held, execution, stack.memory, batch.count)
    update = [weights, gradients, *waiting, *optimizer]
    temporaries = updated_parameters(held, execution) * stack.memory.optimizer_bytes
    moved = moved_line(architecture, execution)
    working = _update(architecture, part, batch, execution, stack, held, heads)
    scoring = _forward(architecture, part, batch, execution, stack, held, heads)
    phases: list[tuple[Phase, list[Line]]] = [
        ("load", [weights, *gathered_lines(held, execution, backward=False)]),
        ("score", [*between, *scoring]),
        ("update", [*update, *working]),
        ("optimizer", [*update, Line("optimizer temporaries", temporaries)]),
        ("transfer", [*between, moved]),
        ("checkpoint", [*between, moved]),
        ("rest", between if execution.offload != "all" else []),
    ]
    return _finished(phases, execution, stack)


def infer_phases(
    architecture: Architecture,
    part: Slice,
    batch: Microbatch,
    execution: Execution,
    stack: Stack,
    heads: Heads,
) -> tuple[Breakdown, ...]:
    """Load, score and rest of a pipeline rank of a model that is not trained."""
    held = holding(architecture, part, execution.parallelism, heads)
    weights = parameter_line(held, execution)
    scoring = _forward(architecture, part, batch, execution, stack, held, heads)
    phases: list[tuple[Phase, list[Line]]] = [
        ("load", [weights, *gathered_lines(held, execution, backward=False)]),
        ("score", [weights, *scoring]),
        ("rest", [weights] if execution.offload != "all" else []),
    ]
    return _finished(phases, execution, stack)


def _finished(
    phases: Sequence[tuple[Phase, list[Line]]], execution: Execution, stack: Stack
) -> tuple[Breakdown, ...]:
    process = process_lines(execution.parallelism, stack.memory)
    return tuple([Breakdown(name, finished(lines, process, stack.memory)) for name, lines in phases])


def _update(
    architecture: Architecture,
    part: Slice,
    batch: Microbatch,
    execution: Execution,
    stack: Stack,
    held: Holding,
    heads: Heads,
) -> list[Line]:
    """What a forward and backward pass add: kept activations, and the fuller of the loss and a layer's backward."""
    kept, inside, passing = activation_bytes(
        architecture, part, execution, stack, batch.tokens, batch.longest
    )
    flying = kept_microbatches(execution.parallelism, part.rank, batch.count)
    stream = batch.tokens * architecture.hidden * BYTES_OF[execution.precision.activations]
    layer = [
        Line("a layer's activations again", inside),
        Line("gradients of activations", passing),
        *gathered_lines(held, execution, backward=True),
    ]
    loss: list[Line] = []
    if part.head:
        loss = [
            *logit_lines(architecture, execution, stack.memory, batch.scored, heads),
            Line("input of the head", 2 * stream),
            *gathered_head(held, execution, backward=True),
        ]
    p = execution.parallelism
    sent = stream * flying / (p.tp if p.sequence_parallel else 1) * (not part.head)
    return [Line("activations", flying * kept), Line("outputs sent on", sent), *_fuller(layer, loss, stack)]


def _forward(
    architecture: Architecture,
    part: Slice,
    batch: Microbatch,
    execution: Execution,
    stack: Stack,
    held: Holding,
    heads: Heads,
) -> list[Line]:
    """What a forward pass without gradients adds: the fuller of the widest layer and the logits."""
    inside = forward_bytes(architecture, part, execution, stack, batch.tokens, batch.longest)
    layer = [Line("a layer's activations", inside), *gathered_lines(held, execution, backward=False)]
    if not part.head:
        return layer
    stream = batch.tokens * architecture.hidden * BYTES_OF[execution.precision.activations]
    loss = [
        *logit_lines(architecture, execution, stack.memory, batch.scored, heads, gradient=False),
        Line("input of the head", 2 * stream),
        *gathered_head(held, execution, backward=False),
    ]
    return _fuller(layer, loss, stack)


def _fuller(one: list[Line], other: list[Line], stack: Stack) -> list[Line]:
    """The lines that take more, with the unused blocks that come with them."""

    def total(lines: list[Line]) -> float:
        share = stack.memory.unused_share
        return sum([line.bytes * (1 + share * (line.pool == "working")) for line in lines])

    return max(one, other, key=total)
