"""What a job asks of its plan is in every plan that is made for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rpeg.errors import InputError
from rpeg.job import Job, parse_job
from rpeg.search import from_job, plan_job

EXAMPLE = (Path(__file__).parents[2] / "examples" / "ppo.yaml").read_text()
SHARE = "share{actor=actor,critic=critic}"


def _job(allowed: bool = True, critic_lr: bool = False) -> Job:
    text = EXAMPLE.replace("cluster: {cpu: 2}", "cluster: {cpu: 1}")
    text = text.replace("actor_critic_sharing: false", f"actor_critic_sharing: {str(allowed).lower()}")
    if not critic_lr:
        text = text.replace("  critic_lr: 1.0e-3\n", "")
    return parse_job(f"{text}\nplan: {{actor_critic_sharing: true}}\n")


def test_sharing_is_in_every_plan_where_it_is_asked_for() -> None:
    problem = from_job(_job(), 2**33)
    assert {m.name: m.heads for m in problem.graph.models if m.trainable} == {"actor": ("lm", "value")}
    ranked = plan_job(problem)
    assert all(candidate.plan.applied[0] == SHARE for candidate in ranked.candidates)
    assert all(SHARE in candidate.changes for candidate in ranked.candidates)


def test_sharing_is_asked_for_only_where_it_is_allowed() -> None:
    with pytest.raises(
        InputError, match=r"plan\.actor_critic_sharing.*: is asked.*allow\.actor_critic_sharing: true"
    ):
        _job(allowed=False)


def test_a_shared_model_has_no_learning_rate_of_a_critic() -> None:
    with pytest.raises(InputError, match=r"optimizer\.critic_lr.*: is given.*no critic of its own"):
        _job(critic_lr=True)
