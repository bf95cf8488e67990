"""What no backend here can run, said before anything starts: a plan's engines, beside its layouts."""

from __future__ import annotations

from collections.abc import Iterator

from rpeg.backends import generation
from rpeg.errors import InputError, PlanError
from rpeg.ir import Kind, Stage
from rpeg.plan import Assignment, Plan


def check_backends(plan: Plan) -> None:
    """Raises PlanError naming every stage whose backend is not there for it."""
    found = [
        sentence
        for stage in plan.graph.stages
        for sentence in _backend(plan, stage, plan.assignment(stage.name))
    ]
    if found:
        raise PlanError(
            "no backend here can run this plan:" + "".join(f"\n  {sentence}" for sentence in found)
        )


def _backend(plan: Plan, stage: Stage, a: Assignment) -> Iterator[str]:
    if stage.kind is not Kind.GENERATE:
        if a.backend != "torch":
            yield f"stage {stage.name} has backend {a.backend}; use torch"
        return
    try:
        generation.backend(a.backend)
    except InputError as error:
        yield f"stage {stage.name} has backend {a.backend}: {error}"
    devices = {i for other in plan.assignments for i in getattr(other.block, "ids", ())}
    # Its process groups would be made among all of a run's workers.
    if a.backend == "vllm" and len(devices) > 1:
        yield f"stage {stage.name} has backend vllm in a plan of {len(devices)} devices; plan for one, or use torch"
