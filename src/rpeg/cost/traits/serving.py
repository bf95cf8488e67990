"""`ServingTraits`: what an inference engine adds to its kernels."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ServingTraits:
    """Serving.

    host_seconds_per_step: between two steps, when the device waits for scheduling and sampled tokens.
    host_seconds_per_row: what each sequence of the step adds to that.
    host_seconds_per_layer: launches of one layer's kernels where no graph is replayed; the device's work hides it.
    prompt_budget: most tokens of a pass with prompts (chunked prefill).
    mixed: prompts are processed in the same passes as decode steps; else in passes between them.
    pipeline: interleaved: pipeline stages work on different micro-batches at once; serial: one after another.
    max_rows: sequences that a replica runs at once at most.
    memory_share: of the card that weights, activations and cache may take together.
    reserve_bytes: of it that activations, graphs and buffers take.
    """

    host_seconds_per_step: float = 0.0
    host_seconds_per_row: float = 0.0
    host_seconds_per_layer: float = 0.0
    prompt_budget: int = 8192
    mixed: bool = True
    pipeline: str = "interleaved"
    max_rows: int = 256
    memory_share: float = 0.9
    reserve_bytes: float = 2e9
