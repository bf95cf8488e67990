"""The layouts, micro-batches and recomputation that a stage may have on a block of described hardware."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rpeg.architecture import Architecture
from rpeg.ir import Kind, Stage
from rpeg.plan import Parallelism
from rpeg.search.problem import Problem

ROWS = 256
"""Responses that a replica of an engine holds at once: more hardly decode faster."""

TOKENS = (16384, 4096)
"""Of a micro-batch: more hardly use a device better, fewer need less memory."""

DEEPEST = 16
"""Stages of a pipeline, at most."""


def layouts(problem: Problem, stage: Stage, devices: int, width: int, align: int) -> Iterator[Parallelism]:
    """That divide the model, the block and the batch. width: devices of a node; align: that surely share one."""
    models = [problem.facts.architectures[name] for name in stage.models]
    for tp, pp in _degrees(models, devices, min(width, align)):
        for ep in _expert_degrees(models, devices, tp, width):
            dp = devices // (tp * pp)
            plain = Parallelism(
                dp=dp, tp=tp, pp=pp, ep=ep, sequence_parallel=tp > 1 and stage.kind is not Kind.GENERATE
            )
            if divides(problem, stage, plain):
                yield from sharded(problem, stage, plain, width)


def pieces(problem: Problem, stage: Stage, layout: Parallelism) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(recompute, micro-batches from the largest), for stages that score or train."""
    w = problem.workload
    updates = w.minibatches if stage.kind is Kind.TRAIN else 1
    most = max(1, min(problem.microbatch, -(-w.samples // (updates * layout.dp))))
    sizes = sorted({max(1, min(most, tokens // w.mean_tokens)) for tokens in TOKENS}, reverse=True)
    for recompute in ("none", "full") if stage.kind is Kind.TRAIN else ("none",):
        yield recompute, tuple(sizes)


def _degrees(models: Sequence[Architecture], devices: int, most: int) -> Iterator[tuple[int, int]]:
    """(tp, pp): tensor parallel within a node; pipelines of the two widest."""
    legal = [
        tp
        for tp in (2**i for i in range(7))
        if tp <= most and devices % tp == 0 and all(cuts(model, tp) for model in models)
    ]
    yield from ((tp, 1) for tp in legal)
    for tp in legal[-2:]:
        pp = 2
        while tp * pp <= devices and pp <= DEEPEST:
            if devices % (tp * pp) == 0 and all(model.layers % pp == 0 for model in models):
                yield tp, pp
            pp *= 2


def cuts(model: Architecture, tp: int) -> bool:
    """Whether tensor parallelism of this degree cuts the heads of a model equally."""
    kv = model.latent is not None or model.kv_heads % tp == 0 or tp % model.kv_heads == 0
    return model.heads % tp == 0 and kv


def _expert_degrees(models: Sequence[Architecture], devices: int, tp: int, width: int) -> Iterator[int]:
    yield 1
    counts = [model.experts.count for model in models if model.experts is not None]
    if len(counts) == len(models):
        for ep in sorted({tp, width, 4 * width}):
            if ep > 1 and ep <= devices and devices % ep == 0 and all(n % ep == 0 for n in counts):
                yield ep


def divides(problem: Problem, stage: Stage, layout: Parallelism) -> bool:
    """Whether every replica has an equal share of a minibatch, or something to generate or to score."""
    w = problem.workload
    if stage.kind is Kind.TRAIN:
        return (w.samples // w.minibatches) % layout.dp == 0
    return layout.dp <= (w.prompts if stage.kind is Kind.GENERATE else w.samples)


def sharded(problem: Problem, stage: Stage, plain: Parallelism, width: int) -> Iterator[Parallelism]:
    """Whole replicas and ZeRO, within nodes and over all, as the stage's stack does it."""
    if stage.kind is not Kind.TRAIN or plain.dp == 1:
        yield plain
    if stage.kind is Kind.GENERATE or plain.dp == 1:
        return
    if problem.facts.trainer == "megatron":
        if stage.kind is Kind.TRAIN:
            yield replace(plain, zero=1)
        return
    yield replace(plain, zero=3)
    for shard in (width // plain.tp, 8 * width // plain.tp):
        if 1 < shard < plain.dp and plain.dp % shard == 0:
            yield replace(plain, zero=3, shard=shard)
