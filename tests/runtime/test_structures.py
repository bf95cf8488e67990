"""What transforms make of a plan runs for real and, where it only changes the schedule, trains alike."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from rpeg.backends.models import load_model
from rpeg.job import Job
from rpeg.verify import prove_run
from runtime.runs import Ran, counting, make_job, plan_for, run, tiny_model

SHARE = "share{actor=actor,critic=critic}"
FUSE = "fuse{a=old_logprob,b=value}"
MINIBATCHES = "stream{chunk=1,unit=minibatch}"
ONE_UPDATE = {"prompts": 4, "samples_per_prompt": 4, "minibatches": 1, "microbatch": 4}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


def job_of(model: Path, output: Path, algorithm: str = "ppo", **changes: Any) -> Job:
    """A job over a few prompts."""
    few = model / "few.jsonl"
    few.write_text(
        "".join(json.dumps({"prompt": f"{i} + 7 =", "answer": str(i + 7)}) + "\n" for i in range(16))
    )
    return make_job(model, output, algorithm=algorithm, **{"data": {"train": str(few)}, **changes})


def run_with(model: Path, output: Path, *transforms: str, export: bool = False, **changes: Any) -> Ran:
    job = job_of(model, output, **changes)
    return run(job, plan_for(job, rest=(0,), transforms=transforms), in_process=True, export=export)


@pytest.fixture(scope="module")
def plain(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run_with(model, tmp_path_factory.mktemp("plain") / "run")


@pytest.fixture(scope="module")
def shared(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """PPO with one model of two heads on one device: what every plan of it must repeat."""
    return run_with(model, tmp_path_factory.mktemp("shared") / "run", SHARE, export=True)


def assert_alike(ran: Ran, expected: Ran) -> None:
    """The same rewards, losses and gradient norms to 1e-9, weights to 1e-8, and a trace that proves itself."""
    assert prove_run(ran.traces).findings == ()
    for one, other in zip(ran.records, expected.records, strict=True):
        assert one.reward == other.reward
        for name in (
            n for n in other.metrics if n.endswith(("loss", "grad_norm", "_max", "tokens", "ratio"))
        ):
            if name in one.metrics:
                assert one.metrics[name] == pytest.approx(other.metrics[name], rel=0, abs=1e-9), name
    assert ran.weights.keys() == expected.weights.keys()
    for role, tensors in expected.weights.items():
        assert ran.weights[role].keys() == tensors.keys()
        for key, tensor in tensors.items():
            torch.testing.assert_close(ran.weights[role][key], tensor, rtol=0, atol=1e-8, msg=f"{role} {key}")


SAME = {
    "split": ("split{stage=reward,parts=2}", "split{stage=value,parts=4}"),
    "split from generation on": tuple(
        f"split{{stage={stage},parts=2}}" for stage in ("generate", "reward", "value", "old_logprob")
    ),
    "minibatches": (MINIBATCHES,),
    "minibatches of a stream": ("stream{chunk=1,unit=sample}", MINIBATCHES),
    "behaviour log-probabilities of the same engine and weights": ("bypass{stage=old_logprob}",),
}


@pytest.mark.parametrize("name", SAME)
def test_structures_train_alike(name: str, model: Path, plain: Ran, tmp_path: Path) -> None:
    ran = run_with(model, tmp_path / "run", *SAME[name])
    assert_alike(ran, plain)
    stages = {span.item.name for trace in ran.traces for span in trace.spans}
    assert ("old_logprob" in stages) is ("bypass" not in SAME[name][0])


def test_a_trainer_gives_itself_what_was_pruned(model: Path, tmp_path: Path) -> None:
    whole, pruned = (
        run_with(
            model,
            tmp_path / f"run{len(texts)}",
            *texts,
            algorithm="grpo",
            batch=ONE_UPDATE,
            reward=counting(model),
        )
        for texts in ((), ("prune{stage=old_logprob}",))
    )
    assert_alike(pruned, whole)
    assert whole.records[0].metrics["actor/grad_norm"] > 0
    assert "old_logprob" not in {span.item.name for span in pruned.traces[0].spans}


@pytest.mark.parametrize("texts", [(FUSE,), ("stream{chunk=2,unit=sample}",), (FUSE, MINIBATCHES)])
def test_plans_of_a_shared_model_train_alike(
    texts: tuple[str, ...], model: Path, shared: Ran, tmp_path: Path
) -> None:
    assert_alike(run_with(model, tmp_path / "run", SHARE, *texts), shared)


def test_sharing_trains_one_model_by_both_losses(shared: Ran, plain: Ran) -> None:
    assert shared.weights.keys() == {"actor"}
    assert {"value_head.weight", "value_head.bias"} < shared.weights["actor"].keys()
    metrics = shared.records[0].metrics
    assert metrics["actor/loss"] == pytest.approx(
        metrics["actor/policy_loss"] + 0.1 * metrics["actor/value_loss"], abs=1e-3
    )
    assert metrics["actor/value_loss"] > 0
    assert shared.records[0].reward == plain.records[0].reward


@pytest.mark.parametrize("hyper", [{"value_loss_weight": 1.0}, {"value_gradient_scale": 0.0}])
def test_weight_and_scale_change_the_update(
    hyper: Mapping[str, float], model: Path, shared: Ran, tmp_path: Path
) -> None:
    """The first losses are of the same weights; what is learned from them differs."""
    ran = run_with(model, tmp_path / "run", SHARE, hyper=hyper)
    assert ran.records[0].reward == shared.records[0].reward
    assert ran.records[0].metrics["actor/grad_norm"] != pytest.approx(
        shared.records[0].metrics["actor/grad_norm"], rel=1e-6
    )


def test_a_shared_model_resumes_as_if_never_stopped(model: Path, tmp_path: Path) -> None:
    whole = job_of(model, tmp_path / "whole", steps=4)
    plan = plan_for(whole, rest=(0,), transforms=(SHARE, MINIBATCHES))
    straight = run(whole, plan, in_process=True)
    run(job_of(model, tmp_path / "parts", steps=2), plan, in_process=True)
    resumed = run(job_of(model, tmp_path / "parts", steps=4), plan, in_process=True, resume=True)
    assert prove_run(resumed.traces).findings == ()
    for key, tensor in straight.weights["actor"].items():
        torch.testing.assert_close(resumed.weights["actor"][key], tensor, rtol=0, atol=0, msg=key)


def test_a_shared_model_is_exported_as_a_language_model(shared: Ran) -> None:
    """Plain Hugging Face with the value head beside it; both come back bit for bit."""
    from transformers import AutoModelForCausalLM

    model = shared.outcome.directory / "model"
    plain = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float64)
    assert not [name for name, _ in plain.named_parameters() if "value" in name]
    both = load_model(str(model), heads=("lm", "value"), dtype=torch.float64, seed=5)
    found = {
        **dict(plain.named_parameters()),
        **{n: p for n, p in both.named_parameters() if "value_head" in n},
    }
    for key, tensor in shared.weights["actor"].items():
        torch.testing.assert_close(found[key].detach(), tensor, rtol=0, atol=0, msg=key)


ELSEWHERE = {"generate": (0,), "reference": (0,)}
ON_TWO = {
    "sharded": (True, (SHARE, FUSE, MINIBATCHES), {"zero": 3}),
    "apart, streamed into minibatches": (
        True,
        (SHARE, "stream{chunk=2,unit=sample}", MINIBATCHES),
        {"blocks": ELSEWHERE, "rest": (1,)},
    ),
    "split over two generators": (
        False,
        ("split{stage=generate,parts=2}", "split{stage=reward,parts=2}", "split{stage=value,parts=2}"),
        {"blocks": {"value": (1,)}},
    ),
}


@pytest.mark.parametrize("name", ON_TWO)
def test_structures_on_two_devices(name: str, model: Path, plain: Ran, shared: Ran, tmp_path: Path) -> None:
    """Real processes: of a shared model the merged weights travel, and the generator uses their lm part."""
    is_shared, texts, where = ON_TWO[name]
    job = job_of(model, tmp_path / "run")
    ran = run(job, plan_for(job, transforms=texts, **where))
    assert_alike(ran, shared if is_shared else plain)


def test_a_shared_model_learns_from_stale_samples(model: Path, tmp_path: Path) -> None:
    """Decoupled PPO: weights by old over behaviour probability, and the record says how far the two are apart."""
    job = job_of(model, tmp_path / "run", steps=4, hyper={"importance": "token", "importance_cap": 2.0})
    stages = {s.name for s in job.graph().stages} | {"train_actor+train_critic"}
    plan = plan_for(
        job,
        ELSEWHERE,
        rest=(1,),
        transforms=(SHARE, "async{stage=generate,staleness=1,freshness=exact}"),
        shifts={name: 1 for name in stages if name not in ("generate", "prompts")},
    )
    ran = run(job, plan)
    assert prove_run(ran.traces).findings == ()
    first, *later = (record.metrics for record in ran.outcome.records)
    assert first["staleness_0"] == 1.0
    assert first["behaviour_kl_k3"] == pytest.approx(0, abs=1e-12)
    assert first["importance_weights"] == pytest.approx(1, abs=1e-9)
    for metrics in later:
        assert metrics["staleness_1"] == 1.0
        assert metrics["behaviour_kl_k3"] > 1e-6
        assert metrics["behaviour_ratio_max"] > 1
        assert 0 < metrics["effective_share"] < 1
        assert metrics["actor/behaviour_kl_current"] > 1e-6
