"""Layouts that a job's `plan` gives: what is understood and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from rpeg.errors import JobError
from rpeg.job import Job, dump_job, parse_job

PLANNED: dict[str, Any] = {
    "name": "planned",
    "algorithm": {"name": "ppo"},
    "models": {"actor": {"path": "meta-llama/Llama-3.1-8B-Instruct"}},
    "cluster": {"dgx-h100": 2},
    "batch": {"prompts": 64, "samples_per_prompt": 8, "minibatches": 4},
    "lengths": {"max_prompt": 512, "max_response": 2048},
}


def job(plan: dict[str, Any], **changes: Any) -> Job:
    return parse_job(yaml.safe_dump({**PLANNED, **changes, "plan": plan}))


@pytest.mark.parametrize(
    ("said", "understood"),
    [
        (8, 8),
        ("8", 8),
        ("0-3", (0, 1, 2, 3)),
        ("0-1,8", (0, 1, 8)),
        ([4, 5], (4, 5)),
        ("7-7", (7,)),
    ],
)
def test_devices_are_a_count_or_numbers(said: object, understood: object) -> None:
    found = job({"layouts": {"generate": {"devices": said}}})
    assert found.plan.layouts["generate"].devices == understood
    assert parse_job(dump_job(found)).plan == found.plan


def test_a_job_with_layouts_is_written_and_read_again() -> None:
    found = job(
        {
            "layouts": {
                "generate": {"devices": "0-7", "tp": 4, "microbatch": 64, "offload": "none"},
                "train_actor": {"devices": 8, "pp": 2, "zero": 1, "recompute": "selective"},
            },
            "colocate": ["value", "train_critic"],
        }
    )
    assert parse_job(dump_job(found)).plan == found.plan
    assert found.plan.layouts["generate"].given == ("devices", "tp", "microbatch", "offload")
    assert not found.plan.layouts["generate"].model_copy(update={"tp": None}).cuts
    assert found.plan.layouts["train_actor"].cuts


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"layouts": {"generat": {}}}, ("plan.layouts.generat", "Did you mean 'generate'?")),
        ({"layouts": {"reward": {"tp": 2}}}, ("plan.layouts.reward", "is no stage")),
        ({"layouts": {"generate": {"tpp": 2}}}, ("plan.layouts.generate.tpp", "Did you mean 'tp'?")),
        ({"layouts": {"generate": {"tp": 0}}}, ("tp", "at least 1")),
        ({"layouts": {"generate": 8}}, ("plan.layouts.generate", "group of keys")),
        ({"layouts": {"generate": {"devices": "a-b"}}}, ("'a-b'", "0-31")),
        ({"layouts": {"generate": {"devices": "5-2"}}}, ("'5-2'", "0-31")),
        ({"layouts": {"generate": {"devices": 0}}}, ("is 0", "at least 1")),
        ({"layouts": {"generate": {"devices": True}}}, ("a number",)),
        ({"layouts": {"generate": {"devices": "8-16"}}}, ("names device 16", "0 to 15")),
        ({"layouts": {"generate": {"devices": 17}}}, ("is 17", "16 devices")),
        ({"layouts": {"generate": {"devices": [1, 1]}}}, ("twice",)),
        (
            {"layouts": {"train_actor": {"devices": 8, "tp": 3}}},
            ("tp 3 does not divide 8 devices; tp 2 or 4 would",),
        ),
        (
            {"layouts": {"train_actor": {"devices": 8, "tp": 2, "pp": 2, "dp": 1}}},
            ("dp 1 × tp 2 × pp 2 = 4 does not use all of 8 devices; dp 2 would",),
        ),
        (
            {"layouts": {"train_actor": {"devices": 16, "tp": 4, "pp": 3}}},
            ("tp 4 × pp 3 = 12 does not divide 16 devices; pp 2 or 4 would",),
        ),
        (
            {"layouts": {"train_actor": {"devices": 16, "tp": 3, "pp": 5}}},
            ("does not divide 16 devices; change tp and pp",),
        ),
        ({"layouts": {"train_actor": {"dp": 16, "tp": 2}}}, ("dp 16 × tp 2 = 32", "16 devices")),
        ({"layouts": {"train_actor": {"dp": 3}}}, ("dp", "is 3", "128 samples", "2 or 4")),
        ({"layouts": {"generate": {"zero": 3}}}, ("no effect", "whole models")),
        ({"layouts": {"value": {"recompute": "full"}}}, ("no effect", "nothing is trained")),
        ({"layouts": {"value": {"offload": "optimizer"}}}, ("offload", "all or none")),
        ({"colocate": ["generate", "train_actr"]}, ("'train_actr'", "Did you mean 'train_actor'?")),
        ({"colocate": ["generate"]}, ("names one stage",)),
        (
            {
                "layouts": {"generate": {"devices": "0-7"}, "train_actor": {"devices": "8-15"}},
                "colocate": ["generate", "train_actor"],
            },
            ("different devices", "generate 0-7", "train_actor 8-15"),
        ),
    ],
)
def test_what_cannot_be_is_refused_with_both_values_and_the_way_out(
    plan: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(JobError) as error:
        job(plan)
    for word in words:
        assert word in str(error.value)


def test_more_replicas_than_prompts_are_refused() -> None:
    batch = {"prompts": 4, "samples_per_prompt": 8}
    with pytest.raises(JobError, match=r"generate\.dp.*is 8.*4 prompts"):
        job({"layouts": {"generate": {"dp": 8}}}, batch=batch)


def test_more_replicas_than_samples_are_refused_with_the_formula() -> None:
    batch = {"prompts": 2, "samples_per_prompt": 4}
    with pytest.raises(
        JobError, match=r"value\.dp.*is 16.*2 prompts × 4 = 8 samples: ⌊8 / 16⌋ = 0.*8 or less"
    ):
        job({"layouts": {"value": {"dp": 16}}}, batch=batch)


def test_vllm_is_not_cut_over_processes_of_this_machine() -> None:
    changes = {
        "models": {"actor": {"path": "bundled:tiny"}},
        "cluster": {"cpu": 2},
        "reward": {"name": "numeric"},
    }
    changes |= {"data": {"train": "bundled:chain_sum/train.jsonl"}, "optimizer": {"lr": 1e-4}, "steps": 1}
    lengths = {"max_prompt": 16, "max_response": 16}
    cut = {"layouts": {"generate": {"tp": 2, "backend": "vllm"}}}
    with pytest.raises(JobError, match=r"generate\.tp.*is 2, and vllm runs on one device"):
        job(cut, **changes, lengths=lengths, output="run")


def test_stages_are_those_of_the_structure_that_is_asked_for() -> None:
    allow = {"actor_critic_sharing": True}
    shared = {"actor_critic_sharing": True, "layouts": {"train_actor+train_critic": {"tp": 2}}}
    assert job(shared, allow=allow).plan.layouts
    with pytest.raises(JobError, match="is no stage"):
        job({**shared, "layouts": {"train_critic": {"tp": 2}}}, allow=allow)
