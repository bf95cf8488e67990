"""How a stage runs: its `Execution` from the plan's assignment and the facts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import cast

from rpeg import cost
from rpeg.cost import FLOAT32, MIXED, Execution, Precision
from rpeg.cost.execution import Recompute
from rpeg.cost.generating.layout import layout_of
from rpeg.cost.memory.check import check as check_memory
from rpeg.cost.training.check import check_layout
from rpeg.errors import InputError, PlanError
from rpeg.ir import Kind, Stage
from rpeg.plan import Assignment, Devices, Plan
from rpeg.sim.facts import Facts
from rpeg.sim.hardware.sites import site
from rpeg.workload import Workload

# Stacks that train on 16-bit weights beside float32 master copies; others hold float32 weights and cast them.
_MASTER_COPIES = frozenset({"megatron"})


def execution_of(
    workload: Workload, facts: Facts, stage: Stage, assignment: Assignment, *, trained: bool, items: int = 1
) -> Execution:
    """Of one item of a stage. trained: it uses weights that are trained in place. items: of a part of the stage.

    Micro-batches are packed: as many tokens as `microbatch` samples of the mean length have. Logits are computed in
    chunks. Beside adapters a model rests in 16 bits, where the job says so. Engines replay captured graphs where
    they can.
    """
    layout = assignment.parallelism
    layout = layout if items == 1 else replace(layout, dp=layout.dp // items)
    if stage.kind is Kind.GENERATE:
        graphs = cost.stack(facts.engine).serving.graphs
        return Execution(layout, _serving(facts.dtype), assignment.microbatch, graphs=graphs)
    lora = facts.lora if trained else None
    if lora is not None:
        precision = replace(_serving(facts.dtype), gradients="float32", moments="float32")
    else:
        precision = _training(facts.dtype, facts.trainer) if trained else _serving(facts.dtype)
    return Execution(
        layout,
        precision,
        assignment.microbatch,
        token_budget=assignment.microbatch * workload.mean_tokens,
        recompute=cast(Recompute, assignment.recompute),  # one of them: a rule of `check`
        lora_rank=lora.rank if lora is not None else None,
        lora_targets=lora.targets if lora is not None else "all",
        logits="chunked",
    )


def software_of(facts: Facts, stage: Stage) -> str:
    """The stack that runs a stage."""
    return facts.engine if stage.kind is Kind.GENERATE else facts.trainer


def check_layouts(plan: Plan, facts: Facts) -> None:
    """PlanError where a stage's parallelism does not divide its model, naming both numbers and the nearest legal."""
    found = list(_violations(plan, facts))
    if found:
        lines = "".join(f"\n  {sentence}" for sentence in found)
        raise PlanError(f"the plan for {plan.graph.name} cannot run:{lines}")


def _violations(plan: Plan, facts: Facts) -> Iterator[str]:
    for stage in plan.graph.stages:
        assignment = plan.assignment(stage.name)
        if not isinstance(assignment.block, Devices):
            continue
        kinds = sorted({plan.cluster.device(i).kind.name for i in assignment.block.ids})
        if len(kinds) > 1:
            yield f"stage {stage.name}: its block mixes {' and '.join(kinds)}; a block has devices of one kind"
            continue
        if kinds == ["cpu"]:
            continue
        machine = site(plan.cluster, assignment.block).machine(software_of(facts, stage))
        for model in stage.models:
            architecture = facts.architectures[model]
            execution = execution_of(plan.workload, facts, stage, assignment, trained=False)
            try:
                if stage.kind is Kind.GENERATE:
                    layout_of(architecture, assignment.parallelism)
                    check_memory(architecture, execution)
                else:
                    check_layout(architecture, execution, machine)
            except InputError as error:
                yield f"stage {stage.name}: {error}"


@lru_cache(maxsize=16)
def _serving(dtype: str) -> Precision:
    """Weights that are only read."""
    if dtype in ("bfloat16", "float16"):
        return Precision(dtype, dtype, cache=dtype, activations=dtype)
    return replace(FLOAT32, compute=dtype, weights=dtype, cache=dtype, activations=dtype)


@lru_cache(maxsize=16)
def _training(dtype: str, trainer: str) -> Precision:
    if dtype not in ("bfloat16", "float16"):
        return replace(_serving(dtype), gradients=dtype, moments=dtype)
    mixed = replace(MIXED, compute=dtype, weights=dtype, activations=dtype)
    return mixed if trainer in _MASTER_COPIES else replace(mixed, weights="float32", master=False)
