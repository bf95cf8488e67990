"""What no backend can run is said before anything starts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plans import make_plan, ppo_graph
from rpeg.errors import PlanError
from rpeg.plan import Parallelism, Plan
from rpeg.runtime.limits import check_backends

EVERYWHERE = {s.name: (0, 1) for s in ppo_graph().stages}


def changed(stage: str, **fields: object) -> Plan:
    plan = make_plan(ppo_graph(), EVERYWHERE)
    assignments = tuple(replace(a, **fields) if a.stage == stage else a for a in plan.assignments)  # type: ignore[arg-type]
    return replace(plan, assignments=assignments)


def test_plans_of_replicas_and_shards_are_taken() -> None:
    check_backends(make_plan(ppo_graph(), EVERYWHERE))
    check_backends(changed("train_actor", parallelism=Parallelism(dp=2, zero=3)))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"parallelism": Parallelism(tp=2)}, "tp 2; use dp"),
        ({"parallelism": Parallelism(dp=2, zero=1)}, "zero 1; use 0 .* or 3"),
        ({"recompute": "selective"}, "recompute selective"),
        ({"offload": "optimizer"}, "offload optimizer"),
        ({"backend": "megatron"}, "backend megatron; use torch"),
    ],
)
def test_what_no_backend_does_is_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(PlanError, match=f"stage train_actor has {said}"):
        check_backends(changed("train_actor", **fields))
