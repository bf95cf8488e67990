"""Useful work of a step: what the model needs, however it is carried out.

MFU counts no recomputation, padding or repeated prefill (Chowdhery et al. 2022, PaLM, arXiv:2204.02311, appendix B):
2 FLOP a parameter that a token meets and, in each attention layer, 4 FLOP a pair of a query and a key that it sees
and a head's width; backward twice the forward. Logits count where they are asked for: at response tokens.
"""

from __future__ import annotations

from rpeg.architecture import Architecture
from rpeg.ir import Kind, Stage
from rpeg.plan import Plan
from rpeg.sim.costs import Batch
from rpeg.sim.facts import Facts


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
    pairs = list(zip(batch.prompt_lengths, batch.response_lengths, strict=True))
    if stage.kind is Kind.GENERATE and plan.graph.out_of(stage.name):
        each = plan.workload.samples_per_prompt  # a prompt is read once for its group
        read = sum(_forward(architecture, p, 0) for p, _ in pairs)
        return sum(_forward(architecture, p + r, r) for p, r in pairs) - read * (each - 1) / each
    passes = {Kind.INFERENCE: 1, Kind.TRAIN: 3 * plan.workload.epochs}.get(stage.kind, 0)
    return passes * sum(_forward(architecture, p + r, r) for p, r in pairs) if passes else 0.0


def _forward(architecture: Architecture, tokens: int, scored: int) -> float:
    """One sequence, with logits of `scored` of its tokens."""
    a = architecture
    head = a.hidden * a.vocabulary
    body = a.active_parameters - a.embedding_parameters - a.head_parameters()
    return 2.0 * (tokens * body + scored * head) + _attention(a, tokens)


def _attention(a: Architecture, tokens: int) -> float:
    total = 0.0
    for layer, count in a.groups:
        width, seen = 2 * a.query_width, tokens  # of keys and of values
        if layer.mixer == "latent" and a.latent:
            width = a.heads * (a.latent.query_head_dim + a.latent.value_head_dim)
            seen = min(tokens, a.latent.selected or tokens)
        elif layer.mixer == "window" and a.window:
            seen = min(tokens, a.window)
        elif layer.mixer != "full":
            continue
        total += count * 2.0 * width * (seen * (seen + 1) / 2 + (tokens - seen) * seen)
    return total
