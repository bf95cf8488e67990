"""Jobs for described hardware: how devices, models and lengths are named, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rpeg.errors import JobError
from rpeg.job import Job, dump_job, parse_job
from rpeg.job.hardware import assumptions
from rpeg.search import from_job

PLANNED: dict[str, Any] = {
    "name": "planned",
    "algorithm": {"name": "grpo"},
    "models": {"actor": {"path": "meta-llama/Llama-3.1-8B-Instruct"}},
    "cluster": {"dgx-h100": 2},
    "batch": {"prompts": 64, "samples_per_prompt": 8, "minibatches": 4},
    "lengths": {"max_prompt": 512, "max_response": 2048, "expected_prompt": {"mean": 100}},
}


def job(**changes: Any) -> Job:
    return parse_job(yaml.safe_dump({**PLANNED, **changes}))


@pytest.mark.parametrize(
    ("cluster", "devices", "kinds"),
    [
        ({"dgx-h100": 4}, 32, ["h100-sxm"]),
        ({"h100": 16}, 16, ["h100-sxm"]),
        ({"A100-80GB": 4}, 4, ["a100-80gb-sxm"]),
        ({"gh200": 8}, 8, ["gh200-96gb"]),
        ({"dgx-h100": 1, "dgx-a100": 2}, 24, ["h100-sxm", "a100-80gb-sxm"]),
    ],
)
def test_clusters_by_systems_and_by_kinds(cluster: dict[str, int], devices: int, kinds: list[str]) -> None:
    found = job(cluster=cluster)
    assert found.devices == len(found.hardware) == devices
    assert sorted(kind.name for kind in found.hardware.kinds) == sorted(kinds)
    assert not found.is_local


def test_what_a_kind_leaves_open_is_said() -> None:
    assert "nodes like dgx-h100" in assumptions({"h100": 8})[0]
    assert assumptions({"dgx-h100": 1}) == ()


def test_a_clusters_file_starts_at_the_job_file(tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text("{system: dgx-a100, nodes: 3}")
    text = yaml.safe_dump({**PLANNED, "cluster": "ours.yaml"})
    found = parse_job(text, base_dir=tmp_path)
    assert found.devices == 24
    assert parse_job(dump_job(found)) == found


def test_a_planned_job_leaves_out_what_does_not_matter() -> None:
    found = job()
    assert found.dtype == "bfloat16"
    assert found.data.train == ""
    assert job(dtype="float32").dtype == "float32"


def test_prices_are_of_devices() -> None:
    assert job(prices={"h100": 2.0}).hardware.price_per_hour == pytest.approx(2.0 * 16)
    assert job(prices={"dgx-h100": 3.0}).hardware.price_per_hour == pytest.approx(3.0 * 16)


def test_models_are_known_by_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # nothing is fetched to plan
    for path in ("meta-llama/Llama-3.1-8B-Instruct", "Llama-3.1-8B"):
        source = job(models={"actor": {"path": path}}).models.source("actor", planned=True)
        assert source.architecture().layers == 32


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cluster": {"dgx-h10": 2}}, ("cluster.dgx-h10", "Did you mean 'dgx-h100'?")),
        ({"cluster": {"h100": 12}}, ("12 h100 do not fill nodes of 8", "Nearest: 8 or 16")),
        ({"cluster": {"cpu": 1, "h100": 8}}, ("cannot be mixed",)),
        ({"cluster": "nowhere.yaml"}, ("nowhere.yaml",)),
        ({"cluster": {"a100-pcie": 8}}, ("no bundled system has", "file")),
        ({"prices": {"a100": 1.0}}, ("a price is given for a100", "h100-sxm")),
        ({"software": {"engine": "vlm"}}, ("software.engine", "Did you mean 'vllm'?")),
        ({"software": {"trainer": "fsdp"}}, ("software.trainer",)),
        ({"models": {"actor": {"path": "org/Unheard-7B"}}}, ("models.actor.path", "is not known")),
        ({"cluster": "h100"}, ("h100-sxm", "{h100: 8}")),
        ({"cluster": "DGX-H100"}, ("a system", "{dgx-h100: 2}")),
        ({"cluster": "h101"}, ("no file here", "Did you mean 'h100'?", "{cpu: 2}")),
        ({"software": {"trainer": "fsdp"}}, ("no trainer 'fsdp'", "Nearest: 'flash'")),
        ({"software": {"engine": "trtllm"}}, ("Nearest: 'tensorrt-llm'",)),
        (
            {"lengths": {"max_prompt": 512, "max_response": 99, "expected_prompt": {"mean": 600}}},
            ("mean 600", "max_prompt 512"),
        ),
        (
            {"lengths": {"max_prompt": 512, "max_response": 200_000, "expected_prompt": {"mean": 9}}},
            ("context",),
        ),
    ],
)
def test_what_is_refused_says_the_way_out(changes: dict[str, Any], words: tuple[str, ...]) -> None:
    with pytest.raises(JobError) as error:
        job(**changes)
    for word in words:
        assert word in str(error.value)


def test_jobs_of_this_machine_still_need_their_data() -> None:
    local = {**PLANNED, "cluster": {"cpu": 1}, "models": {"actor": {"path": "bundled:tiny"}}}
    with pytest.raises(JobError, match=r"optimizer|reward|data"):
        parse_job(yaml.safe_dump(local))


def test_prompts_of_unknown_length_are_half_as_long_as_they_may_be() -> None:
    planned = from_job(job(lengths={"max_prompt": 512, "max_response": 2048}), 0)
    assert planned.workload.prompt_lengths.mean == pytest.approx(256, rel=0.02)
    assert any("lengths.expected_prompt" in sentence for sentence in planned.assumptions)
