"""Runs that train adapters: what is kept, sent and written of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from rpeg.backends.adapters import is_adapter
from rpeg.backends.headed import named_parameters
from rpeg.errors import RunError
from rpeg.plan import Parallelism
from rpeg.runtime import RunDirectory, device_stages
from rpeg.runtime.exporting import export_model
from rpeg.runtime.holdings import Holding
from rpeg.verify import prove_run
from runtime.runs import Ran, counting, make_job, plan_for, run, tiny_model

LORA = {"rank": 4, "alpha": 8.0}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


def trained(model: Path, output: Path, algorithm: str = "grpo", **layouts: Parallelism) -> Ran:
    hyper = {"kl_coefficient": 0.1} if algorithm == "grpo" else {}
    job = make_job(
        model, output, algorithm=algorithm, hyper=hyper, lora=LORA, reward=counting(model), cluster={"cpu": 2}
    )
    if layouts:
        return run(job, plan_for(job, layouts=layouts), export=True)
    return run(job, plan_for(job, rest=(0,)), export=True, in_process=True)


@pytest.fixture(scope="module")
def single(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return trained(model, tmp_path_factory.mktemp("single") / "run")


def test_a_checkpoint_holds_adapters_and_the_export_is_merged(model: Path, single: Ran) -> None:
    assert prove_run(single.traces).findings == ()
    kept = single.weights["actor"]
    assert kept
    assert all(map(is_adapter, kept))
    before = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float64)
    after = AutoModelForCausalLM.from_pretrained(single.outcome.directory / "model", dtype=torch.float64)
    scale = LORA["alpha"] / LORA["rank"]
    beside = {name.rpartition(".lora_")[0] for name in kept}
    assert len(beside) == 14
    for (name, old), (_, new) in zip(named_parameters(before), named_parameters(after), strict=True):
        module = name.removesuffix(".weight")
        if module in beside:
            old = old + scale * kept[f"{module}.lora_b"] @ kept[f"{module}.lora_a"]
            assert (
                new - old
            ).abs().max() < 1e-6  # the file of the model that was read is in single precision
        else:
            torch.testing.assert_close(new, old, rtol=0, atol=0)


def test_a_checkpoint_is_exported_as_the_run_exports(single: Ran, tmp_path: Path) -> None:
    directory = RunDirectory(single.outcome.directory)
    found = export_model(directory, None, None, tmp_path / "out", None)
    one, other = (
        dict(AutoModelForCausalLM.from_pretrained(path, dtype=torch.float64).named_parameters())
        for path in (found, directory.model)
    )
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_the_first_step_is_no_way_from_the_reference(single: Ran) -> None:
    """The reference is the trainer's own model, without adapters."""
    first, second = single.records
    assert first.metrics["actor/ref_kl"] < 0.5 * second.metrics["actor/ref_kl"]


@pytest.mark.slow
def test_adapters_train_alike_over_two_devices(model: Path, single: Ran, tmp_path: Path) -> None:
    cut = Parallelism(tp=2, sequence_parallel=True)
    both = {"train_actor": cut, "old_logprob": cut, "reference": cut}
    ran = trained(model, tmp_path / "run", **both)
    assert prove_run(ran.traces).findings == ()
    for one, other in zip(single.records, ran.records, strict=True):
        assert one.reward == other.reward
        for name in ("actor/loss", "actor/grad_norm", "actor/ref_kl"):
            assert other.metrics[name] == pytest.approx(one.metrics[name], rel=0, abs=1e-9)
    for name, weight in single.weights["actor"].items():
        torch.testing.assert_close(ran.weights["actor"][name], weight, rtol=0, atol=1e-8)


def test_a_run_goes_on_from_its_adapters(model: Path, single: Ran, tmp_path: Path) -> None:
    """One step, then another from the checkpoint: bit by bit as two in one run."""
    made = {"hyper": {"kl_coefficient": 0.1}, "lora": LORA, "reward": counting(model)}
    job = make_job(model, tmp_path / "run", algorithm="grpo", steps=1, **made)  # type: ignore[arg-type]
    run(job, plan_for(job, rest=(0,)), in_process=True)
    longer = make_job(model, tmp_path / "run", algorithm="grpo", steps=2, **made)  # type: ignore[arg-type]
    resumed = run(longer, None, in_process=True, resume=True)
    for name, weight in single.weights["actor"].items():
        torch.testing.assert_close(resumed.weights["actor"][name], weight, rtol=0, atol=0)


def test_a_version_that_no_update_has_reached_is_not_published() -> None:
    holding = Holding("actor", None, 3, digest="same")  # type: ignore[arg-type]
    moved = {"applied": 2.0, "lr": 1e-5, "grad_norm": 0.3}
    with pytest.raises(RunError, match="actor@3 has the weights of the version before it"):
        device_stages._demand_change(holding, "same", moved)
    device_stages._demand_change(holding, "other", moved)
    device_stages._demand_change(holding, "same", {**moved, "applied": 0.0})
    device_stages._demand_change(holding, "same", {**moved, "lr": 0.0})
