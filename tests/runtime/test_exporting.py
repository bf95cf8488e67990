"""What leaves a checkpoint as a Hugging Face directory is what was trained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from rpeg.backends.models import load_model
from rpeg.backends.training.checkpoint import read_weights
from rpeg.cli.main import make_app
from rpeg.errors import InputError
from rpeg.runtime import RunDirectory
from rpeg.runtime.exporting import export_model
from runtime.runs import Ran, make_job, plan_for, run, tiny_model

PROMPTS = torch.tensor([[5, 17, 3, 80, 41, 7, 12, 9], [60, 2, 33, 44, 5, 6, 100, 21]])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def trained(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """PPO, whose critic has no lm head, with a checkpoint after each step."""
    job = make_job(
        model, tmp_path_factory.mktemp("trained") / "run", dtype="float32", checkpoint={"every": 1}
    )
    return run(job, plan_for(job, rest=(0,)), in_process=True)


def policy(model: Path, checkpoint: Path) -> torch.nn.Module:
    """The model in memory as it was trained, put together without what exports."""
    held = load_model(str(model), heads=("lm",), dtype=torch.float32)
    with torch.no_grad():
        parameters = dict(held.hf.named_parameters())
        for name, tensor in read_weights(checkpoint / "actor").items():
            parameters[name].copy_(tensor)
    return held.hf


@pytest.mark.parametrize("steps", [1, 2])
def test_any_checkpoint_gives_the_same_logits_and_greedy_output(
    steps: int, model: Path, trained: Ran, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    directory = RunDirectory(trained.outcome.directory)
    found = export_model(directory, steps, None, tmp_path / "out", None)
    exported = AutoModelForCausalLM.from_pretrained(found)
    held = policy(model, directory.path / f"checkpoint-{steps:06d}")
    with torch.no_grad():
        assert torch.equal(exported(PROMPTS).logits, held(PROMPTS).logits)
    options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(exported.generate(PROMPTS, **options), held.generate(PROMPTS, **options))
    assert AutoTokenizer.from_pretrained(found).eos_token_id == 258
    assert not any(file.suffix in (".bin", ".pt", ".pkl") for file in found.iterdir())


def test_tied_weights_are_written_once_in_the_dtype_asked_for(
    model: Path, trained: Ran, tmp_path: Path
) -> None:
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    directory = RunDirectory(trained.outcome.directory)
    sizes = {}
    for dtype in ("float32", "bfloat16"):
        found = export_model(directory, None, "actor", tmp_path / dtype, dtype)
        tensors = load_file(found / "model.safetensors")
        assert not any("lm_head" in name for name in tensors)
        assert {str(tensor.dtype) for tensor in tensors.values()} == {f"torch.{dtype}"}
        assert json.loads((found / "config.json").read_text())["dtype"] == dtype
        loaded = AutoModelForCausalLM.from_pretrained(found)
        assert loaded.lm_head.weight.data_ptr() == loaded.get_input_embeddings().weight.data_ptr()
        sizes[dtype] = sum(tensor.nbytes for tensor in tensors.values())
    assert sizes["float32"] == 2 * sizes["bfloat16"]


def test_by_the_command(trained: Ran, tmp_path: Path) -> None:
    run_path = trained.outcome.directory
    told = CliRunner().invoke(make_app(), ["export-model", str(run_path), "--steps", "1"])
    assert told.exit_code == 0, told.output
    assert Path(told.output.strip()) == run_path / "actor-000001"
    again = CliRunner().invoke(make_app(), ["export-model", str(run_path), "--steps", "1"])
    assert again.exit_code == 2
    assert "exists; give another --output" in again.output


def test_what_is_not_there_is_said(trained: Ran, tmp_path: Path) -> None:
    directory = RunDirectory(trained.outcome.directory)
    with pytest.raises(InputError, match="no checkpoint after 9 steps, only after 1, 2"):
        export_model(directory, 9, None, tmp_path / "out", None)
    with pytest.raises(InputError, match="holds no reference; trained are: actor, critic"):
        export_model(directory, None, "reference", tmp_path / "out", None)
    with pytest.raises(InputError, match="no whole checkpoint"):
        export_model(RunDirectory(tmp_path), None, None, None, None)
    assert not list(tmp_path.iterdir())


def test_a_critic_is_written_with_its_head(trained: Ran, tmp_path: Path) -> None:
    found = export_model(RunDirectory(trained.outcome.directory), None, "critic", tmp_path / "out", None)
    loaded = load_model(str(found), heads=("value",), dtype=torch.float32)
    last = RunDirectory(trained.outcome.directory).checkpoints()[-1].path
    weights = read_weights(last / "critic")
    assert torch.equal(loaded.value_head.weight, weights["value_head.weight"])
