"""Memory of a device that generates: weights, cache, graphs and what sampling needs."""

from __future__ import annotations

from dataclasses import replace

from rpeg.architecture import Architecture
from rpeg.cost.execution import Execution
from rpeg.cost.machine import Machine
from rpeg.cost.memory.activations import forward_bytes
from rpeg.cost.memory.breakdown import Breakdown, Footprint, Line, Phase
from rpeg.cost.memory.buffers import finished, moved_line, process_lines
from rpeg.cost.memory.cache import cache_bytes, rows_that_fit
from rpeg.cost.memory.check import check
from rpeg.cost.memory.stages import Slice, slices
from rpeg.cost.memory.state import holding, parameter_line

SAMPLING_BYTES = 20.0
"""Of each logit of the rows being sampled: float32 logits and probabilities, sorted values and 8-byte indices."""

PREFILL_TOKENS = 8192
"""Tokens of the largest step of an engine: vLLM's max_num_batched_tokens on data-centre GPUs."""


def generate_memory(
    architecture: Architecture,
    execution: Execution,
    machine: Machine,
    *,
    rows: int,
    context: int,
    prefill_tokens: int = PREFILL_TOKENS,
    utilisation: float | None = None,
) -> Footprint:
    """Load, wake-up, generate, transfer and rest of an inference engine; offload `all` puts it to sleep between runs.

    rows: sequences that run at once, each up to `context` tokens. utilisation: share of the card that the engine takes
    for itself (vLLM's gpu_memory_utilization): its cache is then all that weights and working memory leave of it,
    whatever the rows need. None: the cache holds just the rows. InputError where the parallelism does not fit.
    """
    check(architecture, execution)
    cache = cache_bytes(architecture, rows, context, execution)
    if utilisation is not None:
        cache = cache_room(
            architecture,
            execution,
            machine,
            rows=rows,
            utilisation=utilisation,
            prefill_tokens=prefill_tokens,
        )
    weights, working = _weights_and_working(architecture, execution, machine, rows, prefill_tokens)
    moved = moved_line(architecture, execution)
    stored = Line("KV cache", cache, "state")
    phases: list[tuple[Phase, list[Line]]] = [
        ("load", [weights, moved]),
        ("wake-up", [weights, stored, moved]),
        ("generate", [weights, stored, *working]),
        ("transfer", [weights, moved]),
        ("rest", [weights, stored] if execution.offload != "all" else []),
    ]
    traits = machine.stack.memory
    process = process_lines(execution.parallelism, traits)
    done = tuple(Breakdown(name, finished(lines, process, traits)) for name, lines in phases)
    return Footprint(0, done)


def cache_room(
    architecture: Architecture,
    execution: Execution,
    machine: Machine,
    *,
    rows: int,
    utilisation: float = 0.9,
    prefill_tokens: int = PREFILL_TOKENS,
) -> float:
    """Bytes that an engine has for its cache on each device; 0.0 where weights and working memory take all.

    Engines measure it so: run the largest step, and take what is left of their share of the card.
    """
    weights, working = _weights_and_working(architecture, execution, machine, rows, prefill_tokens)
    traits = machine.stack.memory
    lines = finished([weights, *working], process_lines(execution.parallelism, traits), traits)
    budget = utilisation * machine.kind.usable_memory_bytes
    return max(0.0, budget - sum(line.bytes for line in lines))


def rows_in_cache(
    architecture: Architecture,
    execution: Execution,
    machine: Machine,
    *,
    rows: int,
    context: int,
    utilisation: float = 0.9,
    prefill_tokens: int = PREFILL_TOKENS,
) -> int:
    """Sequences of `context` tokens that run at once, of at most `rows` that the engine admits."""
    room = cache_room(
        architecture, execution, machine, rows=rows, utilisation=utilisation, prefill_tokens=prefill_tokens
    )
    return min(rows, rows_that_fit(architecture, context, execution, room))


def _weights_and_working(
    architecture: Architecture, execution: Execution, machine: Machine, rows: int, prefill_tokens: int
) -> tuple[Line, list[Line]]:
    """Weights of the fullest rank, and what its largest step needs. Engines keep no training state."""
    serving = replace(execution, lora_rank=None, recompute="none", offload="none")
    part = _heaviest(architecture, serving)
    held = holding(architecture, part, serving.parallelism, ("lm",))
    stack = machine.stack
    inside = forward_bytes(architecture, part, serving, stack, float(prefill_tokens), prefill_tokens)
    graphs = stack.memory.graph_bytes * execution.graphs
    return parameter_line(held, serving), [
        Line("a layer's activations", inside),
        Line("logits being sampled", rows * architecture.vocabulary * SAMPLING_BYTES, "block"),
        Line("captured graphs", graphs, "block"),
    ]


def _heaviest(architecture: Architecture, execution: Execution) -> Slice:
    p = execution.parallelism
    parts = slices(architecture, p.pp, p.vpp)
    return max((parts[0], parts[-1]), key=lambda part: holding(architecture, part, p, ("lm",)).parameters)
