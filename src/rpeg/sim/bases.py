"""Frozen models that need no memory of their own: trained ones compute the same with their adapters switched off."""

from __future__ import annotations

from collections.abc import Mapping

from rpeg.ir import Graph, Stage
from rpeg.job import Job
from rpeg.plan import Plan


def bases(job: Job, graph: Graph) -> dict[str, str]:
    """By frozen model the trained one that starts from the same files and has its heads; none without adapters."""
    if job.lora is None:
        return {}
    trained = [model for model in graph.models if model.trainable]
    found = {}
    for model in graph.models:
        alike = (
            t.name
            for t in trained
            if set(model.heads) <= set(t.heads) and job.models.of(model.name) == job.models.of(t.name)
        )
        if not model.trainable and (name := next(alike, None)) is not None:
            found[model.name] = name
    return found


def base_of(plan: Plan, alike: Mapping[str, str], stage: Stage, model: str) -> str | None:
    """The trained model that a stage finds a frozen one in: where both lie alike and neither leaves the devices.

    alike: see `bases`.
    """
    trainer = plan.graph.trainer(alike[model]) if model in alike else None
    if trainer is None:
        return None
    own, theirs = plan.assignment(stage.name), plan.assignment(trainer.name)
    same = own.block == theirs.block and own.parallelism.layout == theirs.parallelism.layout
    return alike[model] if same and "all" not in (own.offload, theirs.offload) else None
