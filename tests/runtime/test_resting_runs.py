"""What rests on the host between its runs takes nothing from whoever finds the same weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rpeg.verify import prove_run
from runtime.runs import Ran, counting, make_job, plan_for, run, tiny_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


def trained(model: Path, output: Path, offload: dict[str, str]) -> Ran:
    job = make_job(model, output, algorithm="grpo", reward=counting(model))
    return run(job, plan_for(job, rest=(0,), offload=offload), in_process=True)


@pytest.fixture(scope="module")
def awake(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return trained(model, tmp_path_factory.mktemp("awake") / "run", {})


@pytest.mark.parametrize(
    "offload",
    [
        {"generate": "all"},
        {"generate": "all", "train_actor": "optimizer"},
        {"generate": "all", "train_actor": "all"},
        {"reference": "all"},
    ],
    ids=str,
)
def test_stages_that_share_weights_rest_one_by_one(
    offload: dict[str, str], model: Path, awake: Ran, tmp_path: Path
) -> None:
    ran = trained(model, tmp_path / "run", offload)
    assert prove_run(ran.traces).findings == ()
    for name, weight in awake.weights["actor"].items():
        torch.testing.assert_close(ran.weights["actor"][name], weight, rtol=0, atol=0)
