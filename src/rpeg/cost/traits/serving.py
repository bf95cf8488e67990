"""`ServingTraits`: what an inference engine adds to its kernels."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ServingTraits:
    """Serving.

    step_seconds: of the host for one step: scheduling, inputs, answers.
    row_seconds: what each sequence of the step adds to that.
    gap_seconds: between two steps on the device, where the host prepares the next one while the device works.
    gap_row_seconds: what each sequence of the step adds to that.
    launch_seconds: of the host for one layer's kernels where no graph is replayed.
    graphs: decode steps can be replayed as captured graphs.
    prompt_budget: most tokens of a pass with prompts (chunked prefill).
    static_scales: 8-bit products with one scale a tensor take inputs that the kernel before has already narrowed.
    experts_too: whose measured products over experts stand for kernels that the engine's tuner also has, "": none.
    mixed: prompts are processed in the same passes as decode steps; else in passes between them.
    balanced: attention groups wait for each other with their prompts, so that all of them have one in the same pass.
    pipeline: interleaved: pipeline stages work on different micro-batches at once; serial: one after another.
    max_rows: sequences that a replica runs at once at most.
    memory_share: of the card that weights, activations and cache may take together.
    reserve_bytes: of it that activations, graphs and buffers take.
    """

    step_seconds: float = 1e-3
    row_seconds: float = 3e-5
    gap_seconds: float = 3e-4
    gap_row_seconds: float = 0.0
    launch_seconds: float = 3.5e-4
    graphs: bool = True
    prompt_budget: int = 8192
    static_scales: bool = False
    experts_too: str = ""
    mixed: bool = True
    balanced: bool = False
    pipeline: str = "interleaved"
    max_rows: int = 256
    memory_share: float = 0.9
    reserve_bytes: float = 2.3e9
