"""Every broken job gives one clear message that names the key, and exit code 2."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from job_files import REMOVE, VALID, changed, write_job, write_model, write_records

from rpeg.errors import JobError
from rpeg.job import load_job

MORE_THAN_CORES = (os.cpu_count() or 1) + 1

# name: (changes, the key that the message names, what it must say)
BROKEN: dict[str, tuple[dict[str, Any], str, tuple[str, ...]]] = {
    "unknown key": ({"stepz": 3}, "stepz", ("not a key here", "Did you mean 'steps'")),
    "unknown nested key": ({"batch.prompt": 3}, "batch.prompt", ("Did you mean 'prompts'",)),
    "unknown key, nothing near": ({"qqq": 1}, "qqq", ("Known: algorithm, allow",)),
    "missing key": ({"steps": REMOVE}, "steps", ("is missing: training steps",)),
    "missing nested key": ({"lengths.max_response": REMOVE}, "lengths.max_response", ("is missing",)),
    "missing section": ({"models": REMOVE}, "models", ("is missing: actor",)),
    "section is a number": ({"batch": 3}, "batch", ("is 3", "group of keys")),
    "section left empty": ({"data": None}, "data", ("is None", "group of keys")),
    "no steps": ({"steps": 0}, "steps", ("is 0", "at least 1")),
    "steps not whole": ({"steps": 2.5}, "steps", ("is 2.5", "whole number")),
    "steps a word": ({"steps": "many"}, "steps", ("is 'many'", "must be a number")),
    "steps a flag": ({"steps": True}, "steps", ("is True", "must be a number")),
    "steps a list": ({"steps": [1]}, "steps", ("is [1]", "must be a number")),
    "negative lr": ({"optimizer.lr": -1e-3}, "optimizer.lr", ("is -0.001", "at least 0")),
    "lr not finite": ({"optimizer.lr": float("nan")}, "optimizer.lr", ("finite",)),
    "three betas": ({"optimizer.betas": [0.9, 0.9, 0.9]}, "optimizer.betas", ("list",)),
    "beta of one": ({"optimizer.betas": [0.9, 1.0]}, "optimizer.betas.1", ("less than 1",)),
    "schedule": ({"optimizer.schedule": "cosin"}, "optimizer.schedule", ("is 'cosin'", "cosine")),
    "temperature zero": ({"sampling.temperature": 0}, "sampling.temperature", ("is 0", "greater than 0")),
    "top_p above one": ({"sampling.top_p": 1.5}, "sampling.top_p", ("at most 1",)),
    "dtype": ({"dtype": "float16"}, "dtype", ("is 'float16'", "float32, float64, bfloat16")),
    "flag a word": ({"data.chat_template": "maybe"}, "data.chat_template", ("true or false",)),
    "name a number": ({"name": 3}, "name", ("is 3", "must be text")),
    "name empty": ({"name": " "}, "name", ("is empty",)),
    "algorithm": ({"algorithm.name": "pppo"}, "algorithm.name", ("pppo", "Did you mean 'ppo'")),
    "algorithm without name": ({"algorithm.name": REMOVE}, "algorithm.name", ("is missing",)),
    "algorithm a word": ({"algorithm": "ppo"}, "algorithm", ("is 'ppo'", "name and hyperparameters")),
    "hyperparameter": ({"algorithm.lamb": 0.9}, "algorithm.lamb", ("Did you mean 'lam'",)),
    "hyperparameter a word": ({"algorithm.lam": "high"}, "algorithm.lam", ("is 'high'", "must be a number")),
    "hyperparameter that may be null": ({"algorithm.value_clip": "x"}, "algorithm.value_clip", ("a number",)),
    "hyperparameter of a few": (
        {"algorithm.kl_in": "los"},
        "algorithm.kl_in",
        ("reward", "Did you mean 'loss'"),
    ),
    "hyperparameter out of range": ({"algorithm.lam": 1.5}, "algorithm", ("lam", "1.5")),
    "model missing": (
        {"models.actor.path": "./modle"},
        "models.actor.path",
        ("modle", "Did you mean 'model'"),
    ),
    "model bundled": (
        {"models.actor.path": "bundled:nope"},
        "models.actor.path",
        ("no bundled model 'nope'",),
    ),
    "model package": (
        {"models.actor.path": "package:no_such"},
        "models.actor.path",
        ("pip install no_such",),
    ),
    "model spelling": ({"models.actor.path": "a/b/c"}, "models.actor.path", ("Hugging Face id org/name",)),
    "critic missing": ({"models.critic": {"path": "./none"}}, "models.critic.path", ("no directory",)),
    "critic for grpo": (
        {"algorithm": {"name": "grpo"}, "models.critic": {"path": "./model"}},
        "models.critic",
        ("grpo", "Remove it"),
    ),
    "critic_lr for grpo": (
        {"algorithm": {"name": "grpo"}, "optimizer.critic_lr": 1e-3},
        "optimizer.critic_lr",
        ("no critic",),
    ),
    "grpo alone": (
        {"algorithm": {"name": "grpo"}, "batch.samples_per_prompt": 1},
        "batch.samples_per_prompt",
        ("is 1", "2 or more"),
    ),
    "data missing": (
        {"data.train": "trian.jsonl"},
        "data.train",
        ("trian.jsonl", "Did you mean 'train.jsonl'"),
    ),
    "data a directory": ({"data.train": "model"}, "data.train", ("is a directory",)),
    "data bundled": ({"data.train": "bundled:nope.jsonl"}, "data.train", ("no bundled data file",)),
    "data field": (
        {"data.prompt": "promt", "evaluation": {}},
        "data.train",
        (":1: has no field 'promt'", "Did you mean 'prompt'"),
    ),
    "batch larger than data": ({"batch.prompts": 10}, "batch.prompts", ("needs 10", "holds 8", "8 or less")),
    "evaluation larger than data": ({"evaluation.prompts": 7}, "evaluation.prompts", ("needs 7", "holds 6")),
    "no heldout": ({"data.heldout": REMOVE}, "data.heldout", ("is missing", "evaluation.every is 1")),
    "minibatches": (
        {"batch.minibatches": 3},
        "batch.minibatches",
        ("4 × samples_per_prompt 2 = 8 samples", "3 minibatches", "minibatches 2 or 4", "prompts 3 or 6"),
    ),
    "a batch beyond all data": (
        {"batch.prompts": 2**19, "batch.minibatches": 3, "evaluation": {}, "data.train": "absent.jsonl"},
        "batch.minibatches",
        ("do not divide into 3", "minibatches 2 or 4", "prompts 524286 or 524289"),
    ),
    "context": ({"lengths.max_response": 17}, "lengths", ("16 + max_response 17 = 33", "is 32")),
    "expected longer than maximum": (
        {"lengths.expected_response": {"mean": 4, "p95": 9}},
        "lengths.expected_response",
        ("p95 9", "max_response 8"),
    ),
    "reward": ({"reward.name": "numerc"}, "reward.name", ("numerc", "Did you mean 'numeric'")),
    "reward module": ({"reward.name": "python:no_such:f"}, "reward.name", ("no module 'no_such'",)),
    "reward function": ({"reward.name": "python:json:loadss"}, "reward.name", ("Did you mean 'loads'",)),
    "reward spelling": ({"reward.name": "python:json"}, "reward.name", ("python:package.module:function",)),
    "time limit": ({"reward.time_limit_seconds": 0}, "reward.time_limit_seconds", ("greater than 0",)),
    "device kind": ({"cluster": {"cpus": 1}}, "cluster.cpus", ("Did you mean 'cpu'",)),
    "device count": ({"cluster": {"cpu": 0}}, "cluster.cpu", ("at least 1",)),
    "no devices": ({"cluster": {}}, "cluster", ("is empty",)),
    "more devices than cores": (
        {"cluster": {"cpu": MORE_THAN_CORES}, "batch": {"prompts": 4, "samples_per_prompt": MORE_THAN_CORES}},
        "cluster.cpu",
        (f"{MORE_THAN_CORES} devices", "cores are there"),
    ),
    "staleness without permission": (
        {"plan": {"staleness": 1}},
        "plan.staleness",
        ("1 is asked", "allow.staleness permits 0", "set allow.staleness: 1"),
    ),
    "sharing without a critic": (
        {"algorithm": {"name": "grpo"}, "allow": {"actor_critic_sharing": True}},
        "allow.actor_critic_sharing",
        ("is true", "grpo trains no critic"),
    ),
    "interruption with exact weights": (
        {"plan": {"on_new_weights": "reprefill"}, "allow": {"staleness": 2}},
        "plan.on_new_weights",
        ("exact, the default", "Set freshness: latest"),
    ),
    "kept keys and values without permission": (
        {"plan": {"on_new_weights": "keep_kv", "freshness": "latest"}, "allow": {"staleness": 2}},
        "plan.on_new_weights",
        ("changes what is learned", "allow.keep_kv: true"),
    ),
    "latest without staleness": ({"plan": {"freshness": "latest"}}, "plan.freshness", ("no effect",)),
    "output is a file": ({"output": __file__}, "output", ("is a file",)),
    "output is the root": ({"output": "/"}, "output", ("/ holds other files", "such as /run")),
    "output of the kernel": ({"output": "/proc/x"}, "output", ("/proc/x is below /proc",)),
    "output with NUL": ({"output": "a\0b"}, "output", ("NUL byte",)),
    "import_from with NUL": (
        {"reward.name": "python:json:loads", "reward.import_from": "a\0b"},
        "reward.import_from",
        ("NUL byte",),
    ),
    "output too long": ({"output": "x" * 5000}, "output", ("name of 5000 bytes", "255")),
    "model too long": ({"models.actor.path": "a/" * 2500}, "models.actor.path", ("longer than a path",)),
    "data too long": ({"data.train": "x" * 5000}, "data.train", ("name of 5000 bytes",)),
    "output of nobody": ({"output": "~nosuchuser/x"}, "output", ("home of user 'nosuchuser'",)),
    "model of nobody": ({"models.actor.path": "~nosuchuser/x"}, "models.actor.path", ("nosuchuser",)),
    "data of nobody": ({"data.train": "~nosuchuser/x"}, "data.train", ("nosuchuser",)),
    "data a device": ({"data.train": "/dev/null"}, "data.train", ("a regular file is needed",)),
    "name with half a character": ({"name": "a\ud800"}, "name", ("lone surrogate",)),
    "too many samples": (
        {
            "batch.prompts": 2**19,
            "batch.samples_per_prompt": 4,
            "evaluation": {},
            "data.train": "absent.jsonl",
        },
        "batch",
        ("= 2097152 samples a step, 1048576 are allowed",),
    ),
    **{
        f"{key} too large": ({key: "1e12"}, key, ("must be at most",))
        for key in (
            "steps",
            "batch.samples_per_prompt",
            "batch.microbatch",
            "batch.epochs",
            "allow.staleness",
            "plan.staleness",
            "lengths.max_response",
            "evaluation.prompts",
            "checkpoint.keep",
            "cluster.cpu",
        )
    },
    "output below a file": ({"output": f"{__file__}/run"}, "output", ("is a file",)),
}

LARGE = ("a batch beyond all data", "too many samples")  # their data is missing too: it would be large


@pytest.mark.parametrize("name", BROKEN)
def test_broken_job_names_the_key_and_the_way_out(name: str, tmp_path: Path) -> None:
    changes, key, says = BROKEN[name]
    path = write_job(tmp_path, changes)
    message = refusal(path)
    assert f"{path}:{key}" in message
    assert len(message.splitlines()) == 1 or name in LARGE, "one problem, one line"
    for words in says:
        assert words in message


def doubled(first: str, repeat: str, times: int) -> str:
    """`first` binds a0; each line after it binds the next name to the one before, twice."""
    lines = (f"a{n}: &a{n} {repeat.replace('%', f'a{n - 1}')}\n" for n in range(1, times + 1))
    return first + "".join(lines)


TEXTS = {
    "empty": ("", "the file is empty"),
    "only a comment": ("# nothing\n", "the file is empty"),
    "a list": ("- a\n- b\n", "not keys with values"),
    "a word": ("ppo\n", "holds 'ppo', not keys"),
    "bad indentation": ("name: a\n  steps: 3\n", ":2:8: is not valid YAML"),
    "open bracket": ("cluster: {cpu: 2\nsteps: 1\n", "is not valid YAML"),
    "tab": ("batch:\n\tprompts: 4\n", ":2:1: is not valid YAML"),
    "alias of itself": ("name: &a {b: *a}\n", "name (line 1): is {"),
    "bad alias": ("name: *x\n", "is not valid YAML"),
    "python tag": ("name: !!python/object/apply:os.system [true]\n", "is not valid YAML"),
    "twice": ("steps: 1\nname: a\nsteps: 2\n", "steps (line 3): the key is given twice, on lines 1 and 3"),
    "twice, nested": ("batch: {prompts: 1, prompts: 2}\n", "batch.prompts (line 1): the key is given twice"),
    "aliases that explode": (
        doubled("a0: &a0 [x, x]\n", "[*%, *%]", 39),
        "its aliases (*name) expand to",
    ),
    "merges that explode": (
        doubled("a0: &a0 {x: 1}\n", "{<<: [*%, *%]}", 39),
        "its aliases (*name) expand to",
    ),
    "a name of many levels": (
        doubled("a0: &a0 [x, x]\n", "[*%, *%]", 8) + "name: *a8\n",
        "must be text",
    ),
    "an integer that Python does not spell": ("name: 0x" + "f" * 5000, "an integer of 20000 bits"),
    "key a number": ("3: a\n", "a key must be text"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_text_that_is_no_job(name: str, tmp_path: Path) -> None:
    text, says = TEXTS[name]
    path = tmp_path / "job.yaml"
    path.write_text(text)
    message = refusal(path)
    assert message.startswith(str(path))
    assert says in message


LINES = {
    "empty": ("\n\n", "holds no records"),
    "not JSON": ('{"prompt": "a", "answer": "b"}\n{"prompt": \n', "train.jsonl:2: is not JSON"),
    "not an object": ("[1]\n", "train.jsonl:1: holds [1]"),
    "prompt a number": ('{"prompt": 1, "answer": "b"}\n', "field 'prompt' is 1, text is needed"),
    "answer a list": ('{"prompt": "a", "answer": []}\n', "field 'answer' is []"),
    "too deep": ("[" * 100_000 + "\n", "train.jsonl:1: is not JSON"),
    "half a character": (
        '{"prompt": "a\\ud800b", "answer": "1"}\n',
        "train.jsonl:1: field 'prompt' is 'a\\ud800b'",
    ),
    "answer not finite": ('{"prompt": "a", "answer": NaN}\n', "train.jsonl:1: is not JSON: NaN is no JSON"),
    "field missing in a later line": (
        '{"prompt": "a", "answer": "b"}\n\n{"prompt": "a"}\n',
        "train.jsonl:3: has no",
    ),
}


@pytest.mark.parametrize("name", LINES)
def test_data_that_cannot_be_used(name: str, tmp_path: Path) -> None:
    text, says = LINES[name]
    path = write_job(tmp_path)
    (tmp_path / "train.jsonl").write_text(text)
    assert says in refusal(path)


def test_data_may_start_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = write_job(tmp_path)
    data = tmp_path / "train.jsonl"
    data.write_bytes(b"\xef\xbb\xbf" + data.read_bytes())
    assert load_job(path).data.train == str(data)


def test_output_is_new_empty_or_an_earlier_run(tmp_path: Path) -> None:
    output = tmp_path / "run"
    path = write_job(tmp_path, {"output": str(output)})
    output.mkdir()
    load_job(path)
    (output / ".lock").touch()
    load_job(path)
    (output / "notes.txt").touch()
    assert f"{output} holds other files" in refusal(path)
    (output / "plan.json").touch()
    load_job(path)


@pytest.mark.parametrize("context", [1.5, "32", True, 0, [32]])
def test_context_that_is_no_count(context: object, tmp_path: Path) -> None:
    path = write_job(tmp_path)
    config = {"model_type": "llama", "max_position_embeddings": context}
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    assert "says max_position_embeddings: " in refusal(path)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model_type": "lama"}, "model_type 'lama' of"),
        ({"num_local_experts": 8}, "num_local_experts = 8, which is not known for model_type 'llama'"),
        ({"hidden_size": None}, "hidden_size"),
    ],
)
def test_a_model_that_cannot_be_described(change: dict[str, object], says: str, tmp_path: Path) -> None:
    path = write_job(tmp_path)
    file = tmp_path / "model" / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    assert says in refusal(path)


def test_no_such_file(tmp_path: Path) -> None:
    assert "there is no such file" in refusal(tmp_path / "absent.yaml")


def test_not_text(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(b"\xff\xfe\x00\x01")
    assert "cannot be read as text" in refusal(path)


def test_directory_without_config(tmp_path: Path) -> None:
    path = write_job(tmp_path)
    (tmp_path / "model" / "config.json").unlink()
    assert "holds no config.json" in refusal(path)


def test_context_of_the_critic_counts(tmp_path: Path) -> None:
    path = write_job(tmp_path, {"models.critic": {"path": "./short"}})
    write_model(tmp_path / "short", context=23)
    message = refusal(path)
    assert "= 24 tokens" in message
    assert "context of critic" in message
    assert message.endswith("is 23. Lower one of them to fit.")


def test_hub_id_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    message = refusal(write_job(tmp_path, {"models.actor.path": "org/name"}))
    assert "org/name is not in the cache" in message


def test_minibatches_that_devices_cannot_share(tmp_path: Path) -> None:
    cores = os.cpu_count() or 1
    if cores < 2:
        pytest.skip("two devices need two cores")
    message = refusal(write_job(tmp_path, {"cluster": {"cpu": 2}, "batch.minibatches": 8}))
    assert "8 minibatches are 1 samples each, which 2 devices cannot share" in message
    assert "minibatches 4, or prompts 8" in message


def test_all_problems_at_once_with_their_lines(tmp_path: Path) -> None:
    path = write_job(tmp_path, {"batch.minibatches": 3, "reward.name": "nope", "plan": {"staleness": 2}})
    message = refusal(path)
    lines = path.read_text().splitlines()
    assert message.splitlines()[0] == f"{path} has 3 problems:"
    for key, text in (("batch.minibatches", "minibatches: 3"), ("reward.name", "name: nope")):
        assert f"{key} (line {lines.index('  ' + text) + 1})" in message


def test_values_are_shown_without_control_characters(tmp_path: Path) -> None:
    message = refusal(write_job(tmp_path, {"dtype": "float\x1b[31m16" + "x" * 200}))
    assert "\x1b" not in message
    assert "x1b" in message
    assert len(message) < 400


def test_the_valid_job_is_valid(tmp_path: Path) -> None:
    """Else every test above could pass for the wrong reason."""
    assert load_job(write_job(tmp_path)).name == VALID["name"]
    assert changed({}) == VALID
    assert write_records(tmp_path / "more.jsonl", 2).read_text().count("\n") == 2


def refusal(path: Path) -> str:
    with pytest.raises(JobError) as caught:
        load_job(path)
    assert caught.value.exit_code == 2
    return str(caught.value)
