"""What the backends here cannot run, said before anything starts."""

from __future__ import annotations

from collections.abc import Iterator

from rpeg.errors import PlanError
from rpeg.ir import Kind, Stage
from rpeg.plan import Devices, Plan


def check_backends(plan: Plan) -> None:
    """Raises PlanError naming every stage whose assignment asks for what no backend does."""
    found = list(_violations(plan))
    if found:
        raise PlanError(
            "no backend here can run this plan:" + "".join(f"\n  {sentence}" for sentence in found)
        )


def _violations(plan: Plan) -> Iterator[str]:
    for stage in plan.graph.stages:
        a = plan.assignment(stage.name)
        yield from _structure(stage)
        if stage.kind is Kind.UPDATE:
            yield f"stage {stage.name} is an update of weights outside training; only training updates weights"
        if isinstance(a.block, Devices):
            for degree in ("tp", "pp", "cp", "ep"):
                if getattr(a.parallelism, degree) > 1:
                    yield f"stage {stage.name} has {degree} {getattr(a.parallelism, degree)}; use dp, with zero 0 or 3"
            if a.parallelism.zero not in (0, 3):
                yield f"stage {stage.name} has zero {a.parallelism.zero}; use 0 (replicas) or 3 (sharded)"
        if a.recompute == "selective":
            yield f"stage {stage.name} has recompute selective; use none or full"
        if a.offload != "none":
            yield f"stage {stage.name} has offload {a.offload}; use none"
        if a.backend != "torch":
            yield f"stage {stage.name} has backend {a.backend}; use torch"


def _structure(stage: Stage) -> Iterator[str]:
    """What transforms made of a stage that workers do not know how to run."""
    beyond = stage.gives - {"old_logprobs"}
    if stage.kind is Kind.TRAIN and beyond:
        given = ", ".join(sorted(beyond))
        yield f"stage {stage.name} gives {given} itself; use a plan that does not prune what gave it"
