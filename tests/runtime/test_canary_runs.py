"""Runs whose engine has weights of its own: each load is answered for, and one that is not stops the run."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Self

import pytest
import torch

from rpeg.backends.generation.protocol import Setup
from rpeg.backends.generation.slots import SlotEngine
from rpeg.errors import RpegError
from rpeg.runtime import holdings
from runtime.runs import make_job, plan_for, run, tiny_model

LATER = ("reward", "reference", "old_logprob", "value", "advantage", "train_actor", "train_critic")
STALE = {
    "transforms": ("async{stage=generate,staleness=1,freshness=exact}",),
    "shifts": dict.fromkeys(LATER, 1),
}


class OwnWeights(SlotEngine):
    """Holds a copy of the model, with a head that is no longer tied."""

    @classmethod
    def made(cls, setup: Setup) -> Self:
        module = copy.deepcopy(setup.module)
        module.lm_head.weight = torch.nn.Parameter(module.lm_head.weight.detach().clone())  # type: ignore[union-attr, operator]
        return super().made(replace(setup, module=module))


class ForgetsTheHead(OwnWeights):
    """Takes each parameter of a sender once: a tied head stays as it was."""

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]], version: int) -> None:
        super().load_weights(((n, t) for n, t in weights if n != "lm_head.weight"), version)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize(
    "options", [{}, STALE, STALE | {"offload": {"generate": "all"}}], ids=["in place", "sent", "rests"]
)
def test_an_engine_with_weights_of_its_own_gives_the_same_run(
    options: dict[str, object], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a learning rate that changes everything at once: what the trainer recomputes is what the engine noted."""
    jobs = [
        make_job(model, tmp_path / name, steps=3, optimizer={"lr": 0.05}, allow={"staleness": 1})
        for name in ("shared", "own")
    ]
    plan = plan_for(jobs[0], rest=(0,), **options)  # type: ignore[arg-type]
    shared = run(jobs[0], plan, in_process=True)
    monkeypatch.setattr(holdings, "make_engine", lambda _, setup: OwnWeights.made(setup))
    own = run(jobs[1], plan, in_process=True)
    for a, b in zip(own.records, shared.records, strict=True):
        assert a.metrics["tokens"] == b.metrics["tokens"]
        assert a.metrics["actor/loss"] == pytest.approx(b.metrics["actor/loss"], abs=1e-9)
    if not options.get("transforms"):
        assert all(abs(record.metrics["behaviour_kl"]) < 1e-12 for record in own.records)


def test_a_head_that_stays_behind_stops_the_run(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = make_job(model, tmp_path / "run", steps=3, optimizer={"lr": 0.05})
    monkeypatch.setattr(holdings, "make_engine", lambda _, setup: ForgetsTheHead.made(setup))
    with pytest.raises(RpegError, match=r"canary: trainer and engine differ by .*Check tied"):
        run(job, plan_for(job, rest=(0,)), in_process=True)


def test_a_canary_fits_into_an_engine_for_short_responses(model: Path, tmp_path: Path) -> None:
    job = make_job(model, tmp_path / "run", steps=1, lengths={"max_prompt": 10, "max_response": 4})
    assert run(job, plan_for(job, rest=(0,)), in_process=True).outcome.finished
