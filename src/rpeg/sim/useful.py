"""Useful work of a step: what the model needs, however it is carried out.

MFU counts no recomputation, padding or repeated prefill (Chowdhery et al. 2022, PaLM, arXiv:2204.02311, appendix B):
2 FLOP a parameter that a token meets and, in each attention layer, 4 FLOP a pair of a query and a key that it sees
and a head's width; backward twice the forward. Logits count where they are asked for: at response tokens.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from rpeg.architecture import Architecture
from rpeg.ir import Kind, Stage
from rpeg.plan import Plan
from rpeg.sim.costs import Batch
from rpeg.sim.facts import Facts

Floats = npt.NDArray[np.float64]


def useful_flops(plan: Plan, facts: Facts, batch: Batch) -> float:
    """Of all stages on one step's samples; evaluations, whose lengths are their own, and host work count nothing."""
    return sum(
        _of_stage(plan, stage, facts.architectures[model], batch) / stage.every
        for stage in plan.graph.stages
        for model in stage.models
        if model in facts.architectures
    )


def peak_flops(plan: Plan, dtype: str) -> float:
    """FLOP a second of all devices of the cluster, used or not: they are all paid for."""
    return sum(plan.cluster.device(i).kind.peak(dtype) for i in range(len(plan.cluster)))


def _of_stage(plan: Plan, stage: Stage, architecture: Architecture, batch: Batch) -> float:
    prompts, responses = (lengths.astype(np.float64) for lengths in batch.lengths)
    if stage.kind is Kind.GENERATE and plan.graph.out_of(stage.name):
        each = plan.workload.samples_per_prompt  # a prompt is read once for its group
        read = _forward(architecture, prompts, np.zeros_like(prompts))
        return _forward(architecture, prompts + responses, responses) - read * (each - 1) / each
    passes = {Kind.INFERENCE: 1, Kind.TRAIN: 3 * plan.workload.epochs}.get(stage.kind, 0)
    return passes * _forward(architecture, prompts + responses, responses) if passes else 0.0


def _forward(architecture: Architecture, tokens: Floats, scored: Floats) -> float:
    """Sequences of so many tokens each, with logits of `scored` of them. Both (samples,)."""
    a = architecture
    head = a.hidden * a.vocabulary
    body = a.active_parameters - a.embedding_parameters - a.head_parameters()
    linear = 2.0 * (float(tokens.sum()) * body + float(scored.sum()) * head)
    return linear + _attention(a, tokens)


def _attention(a: Architecture, tokens: Floats) -> float:
    total = 0.0
    for layer, count in a.groups:
        width, seen = 2 * a.query_width, tokens  # of keys and of values
        if layer.mixer == "latent" and a.latent:
            width = a.heads * (a.latent.query_head_dim + a.latent.value_head_dim)
            seen = np.minimum(tokens, a.latent.selected or np.inf)
        elif layer.mixer == "window" and a.window:
            seen = np.minimum(tokens, a.window)
        elif layer.mixer != "full":
            continue
        pairs = seen * (seen + 1) / 2 + (tokens - seen) * seen
        total += count * 2.0 * width * float(pairs.sum())
    return total
