"""What no backend here can run, said before anything starts: a plan's engines, beside its layouts."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

from rpeg.backends import generation
from rpeg.errors import InputError, PlanError
from rpeg.ir import Kind, Stage
from rpeg.plan import Assignment, Plan


def check_backends(plan: Plan, *, calls_tools: bool = False) -> None:
    """Raises PlanError naming every stage whose backend is not there for it. calls_tools: whether responses do."""
    found: list[str] = []
    for stage in plan.graph.stages:
        assignment = plan.assignment(stage.name)
        found += _backend(plan, stage, assignment)
        cut = assignment.parallelism.devices_per_replica
        if (
            calls_tools and stage.kind is Kind.GENERATE and cut > 1
        ):  # its ranks would get replies at different steps
            found.append(
                f"stage {stage.name} is cut over {cut} devices and its responses call a tool; use dp alone there"
            )
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
        needs = getattr(generation.backend(a.backend), "NEEDS", "")
    except InputError as error:
        yield f"stage {stage.name} has backend {a.backend}: {error}"
        return
    if needs and importlib.util.find_spec(needs) is None:
        yield f"stage {stage.name} has backend {a.backend}, and {needs} is not installed here; install it, or use torch"
    cut = a.parallelism.devices_per_replica
    if a.backend == "vllm" and cut > 1:
        yield f"stage {stage.name} has backend vllm and replicas of {cut} devices; use dp alone there, or torch"
