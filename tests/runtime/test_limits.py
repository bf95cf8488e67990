"""Engines that are not there for a stage are refused before anything starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plans import make_plan, ppo_graph
from rpeg.errors import PlanError
from rpeg.plan import Parallelism, Plan
from rpeg.runtime import limits
from rpeg.runtime.limits import check_backends

EVERYWHERE = {s.name: (0, 1) for s in ppo_graph().stages}


@pytest.mark.parametrize(
    ("stage", "backend", "said"),
    [
        ("train_actor", "megatron", "backend megatron; use torch"),
        ("generate", "vlm", "backend vlm: unknown generation backend 'vlm'.*'vllm'"),
    ],
)
def test_what_no_backend_does_is_refused(stage: str, backend: str, said: str) -> None:
    plan = make_plan(ppo_graph(), EVERYWHERE)
    check_backends(plan)
    assignments = tuple(replace(a, backend=backend) if a.stage == stage else a for a in plan.assignments)
    with pytest.raises(PlanError, match=f"stage {stage} has {said}"):
        check_backends(replace(plan, assignments=assignments))


def test_vllm_is_there_and_generates_on_one_device_a_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    installed = set()
    monkeypatch.setattr(limits.importlib.util, "find_spec", lambda name: name if name in installed else None)
    plan = make_plan(ppo_graph(), EVERYWHERE)

    def on_vllm(parallelism: Parallelism) -> Plan:
        return replace(
            plan,
            assignments=tuple(
                replace(a, backend="vllm", parallelism=parallelism) if a.stage == "generate" else a
                for a in plan.assignments
            ),
        )

    with pytest.raises(PlanError, match="stage generate has backend vllm, and vllm is not installed here"):
        check_backends(on_vllm(Parallelism(dp=2)))
    installed.add("vllm")
    check_backends(on_vllm(Parallelism(dp=2)))
    with pytest.raises(
        PlanError, match="stage generate has backend vllm and replicas of 2 devices; use dp alone"
    ):
        check_backends(on_vllm(Parallelism(tp=2)))


def test_responses_of_a_cut_model_call_no_tool() -> None:
    plan = make_plan(ppo_graph(), EVERYWHERE)
    assignments = tuple(
        replace(a, parallelism=Parallelism(tp=2)) if a.stage == "generate" else a for a in plan.assignments
    )
    cut = replace(plan, assignments=assignments)
    check_backends(cut)
    check_backends(plan, calls_tools=True)
    with pytest.raises(PlanError, match="stage generate is cut over 2 devices and its responses call a tool"):
        check_backends(cut, calls_tools=True)
