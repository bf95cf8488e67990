"""`lora`: what is understood and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from rpeg.errors import JobError
from rpeg.job import Job, dump_job, parse_job

PLANNED: dict[str, Any] = {
    "name": "planned",
    "algorithm": {"name": "grpo"},
    "models": {"actor": {"path": "meta-llama/Llama-3.1-8B-Instruct"}},
    "cluster": {"dgx-h100": 1},
    "batch": {"prompts": 64, "samples_per_prompt": 8},
    "lengths": {"max_prompt": 512, "max_response": 2048},
}


def job(**changes: Any) -> Job:
    return parse_job(yaml.safe_dump({**PLANNED, **changes}))


def test_a_job_trains_whole_models_unless_it_says_otherwise() -> None:
    assert job().lora is None


@pytest.mark.parametrize(
    ("said", "scale"), [({"rank": 16}, 2.0), ({"rank": 16, "alpha": 8}, 0.5), ({"rank": 1, "alpha": 3}, 3.0)]
)
def test_adapters_are_scaled_by_alpha_over_rank(said: dict[str, float], scale: float) -> None:
    found = job(lora=said)
    assert found.lora is not None
    assert found.lora.scale == scale
    assert parse_job(dump_job(found)).lora == found.lora


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({}, "lora.rank"),
        ({"rank": 0}, "at least 1"),
        ({"rank": 8, "alpha": 0}, "lora.alpha"),
        ({"rank": 8, "targets": "q_proj"}, "lora.targets"),
        ({"rank": 8, "alfa": 8}, "Did you mean 'alpha'?"),
    ],
)
def test_what_cannot_be_is_refused(said: dict[str, Any], words: str) -> None:
    with pytest.raises(JobError) as error:
        job(lora=said)
    assert words in str(error.value)
