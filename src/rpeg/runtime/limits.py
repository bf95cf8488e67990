"""What the backends here cannot run, said before anything starts."""

from __future__ import annotations

from collections.abc import Iterator

from rpeg.backends import generation
from rpeg.errors import InputError, PlanError
from rpeg.ir import Kind, Stage
from rpeg.plan import Assignment, Devices, Plan


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
            yield from _layout(plan, stage, a)
        yield from _backend(plan, stage, a)


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
    if (
        a.backend == "vllm" and len(devices) > 1
    ):  # its process groups would be made among all of a run's workers
        yield f"stage {stage.name} has backend vllm in a plan of {len(devices)} devices; plan for one, or use torch"


def _layout(plan: Plan, stage: Stage, a: Assignment) -> Iterator[str]:
    p = a.parallelism
    cut = [f"{degree} {getattr(p, degree)}" for degree in ("tp", "pp", "cp", "ep") if getattr(p, degree) > 1]
    whole = stage.kind is Kind.GENERATE or any(
        plan.graph.model(model).heads == ("reward",) for model in stage.models
    )
    if cut and whole:
        holder = "generation" if stage.kind is Kind.GENERATE else "a reward model's stage"
        yield f"stage {stage.name} has {', '.join(cut)}; {holder} holds whole models here: use dp"
    assert isinstance(a.block, Devices)
    ascending = tuple(sorted(a.block.ids))
    if (cut or p.shard) and a.block.ids != ascending:  # process groups number their ranks so
        yield f"stage {stage.name} is cut over devices {a.block.ids}; name them in ascending order: {ascending}"
    if p.vpp > 1:
        yield f"stage {stage.name} has vpp {p.vpp}; stages of a pipeline are not interleaved here: use 1"
    if p.ep > 1 and (p.tp > 1 or p.zero):
        yield f"stage {stage.name} has ep {p.ep} with tp {p.tp} and zero {p.zero}; with experts apart use tp 1 and zero 0"
    if p.ep > p.dp * p.cp or p.dp * p.cp % p.ep:
        yield f"stage {stage.name} has ep {p.ep}, which does not divide dp {p.dp} × cp {p.cp}"


def _structure(stage: Stage) -> Iterator[str]:
    """What transforms made of a stage that workers do not know how to run."""
    beyond = stage.gives - {"old_logprobs"}
    if stage.kind is Kind.TRAIN and beyond:
        given = ", ".join(sorted(beyond))
        yield f"stage {stage.name} gives {given} itself; use a plan that does not prune what gave it"
