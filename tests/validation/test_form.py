"""Odd but readable records: each is predicted or refused with the field, never a bug of the model."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from rpeg.errors import InputError
from rpeg.validation import Located, evaluate
from rpeg.validation.form import check_form
from rpeg.validation.kinds import kind_of_record

MODEL = {"name": "m", "layers": 4, "hidden": 512, "heads": 8, "kv_heads": 4, "ffn": 1024, "vocab": 32000}
PLACE = {"source": "s", "gpu": "H100-80GB", "n_gpus": 8, "gpus_per_node": 8, "model": MODEL}
LAYOUT = {"tp": 2, "pp": 1, "dp": 4}
CALLS = ("actor_gen", "rew_inf", "ref_inf", "critic_inf", "actor_train", "critic_train")
RECORDS: dict[str, dict[str, Any]] = {
    "train": {**PLACE, "seq_len": 512, "global_batch": 16, "tp": 2, "target": {"step_time_s": 1.0}},
    "memory": {**PLACE, "seq_len": 512, "micro_batch": 1, "mem_basis": "", "measured": {"peak_mem": 3.0}},
    "static": {
        **PLACE,
        "mode": "static",
        "engine": "vLLM",
        "batch": 4,
        "isl": 32,
        "osl": 32,
        "measured": {"latency_s": 1.0},
    },
    "loop": {
        **PLACE,
        "mode": "closed",
        "engine": "",
        "concurrency": 4,
        "isl": 32,
        "osl": 32,
        "measured": {"tpot_ms": 9.0},
    },
    "rl": {
        "kind": "rl_step",
        "source": "s",
        "measured": {"step_time_s": 9.0, "tokens_per_s_per_gpu": 100.0},
        "setting": {
            "model": "Qwen/Qwen2.5-7B",
            "gpu": "H100-80GB",
            "gpus": 8,
            "max_seq_len": 2048,
            "avg_seq_len": 500.0,
            "samples_per_step": 64,
            "train_gbs": 32,
            "gen_tp": 2,
            "train_tp": 2,
            "recipe_resolved": {"gen_pp": 1},
        },
    },
    "real": {
        "source": "s",
        "setting": {
            "system": "ReaL",
            "actor_b": 7,
            "ref_b": 7,
            "critic_b": 7,
            "reward_b": 7,
            "n_gpus": 8,
            "prompt_len": 16,
            "gen_len": 16,
            "batch_size": 32,
            "ppo_minibatches": 4,
            "gpu": "A800-80GB",
        },
        "plan": {"calls": {call: dict(LAYOUT) for call in CALLS}},
        "measured": {"iter_time_s": 9.0},
    },
    "sync": {
        "mechanism": "broadcast",
        "source": "s",
        "gpu": "H800-80GB",
        "n_gpus": 8,
        "infer_tp": 8,
        "model": "Qwen3-30B-A3B",
        "measured": {"time_s": 5.0},
    },
}
ODD = (
    "DEL",
    None,
    "",
    "8",
    -1,
    0,
    0.5,
    1e300,
    10**30,
    True,
    [],
    [1],
    {},
    {"a": 1},
    float("nan"),
    float("inf"),
)


def paths(record: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in record.items():
        yield (*above, key)
        if isinstance(value, Mapping):
            yield from paths(value, (*above, key))


def changed(record: Mapping[str, Any], path: tuple[str, ...], value: object) -> dict[str, Any]:
    out: Any = copy.deepcopy(record)
    inner = out
    for key in path[:-1]:
        inner = inner[key]
    if value == "DEL":
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return dict(out)


@pytest.mark.parametrize("name", RECORDS)
def test_the_record_itself_is_predicted(name: str) -> None:
    (outcome,) = evaluate([Located("f:1", RECORDS[name])]).outcomes
    assert outcome.predicted, outcome.reason


@pytest.mark.parametrize("name", RECORDS)
def test_no_odd_value_anywhere_is_a_bug(name: str) -> None:
    record = RECORDS[name]
    rows = [changed(record, path, value) for path in paths(record) for value in ODD]
    found = evaluate([Located(f"f:{number}", row) for number, row in enumerate(rows)])
    assert [(bug.what, bug.where) for bug in found.bugs] == []


@pytest.mark.parametrize(
    ("name", "path", "value", "says"),
    [
        ("train", ("tp",), 2.5, r"tp = 2\.5, a whole number"),
        ("static", ("batch",), 10**9, "batch = 1000000000, a number from 0 to 1,000,000"),
        ("loop", ("osl",), 0, "osl = 0, a number of at least 1"),
        ("rl", ("setting", "train_gbs"), 0, "train_gbs = 0, a number of at least 1"),
        ("real", ("plan", "calls", "ref_inf", "pp"), None, "the call ref_inf"),
        ("train", ("model", "layers"), 10**8, "layers = 100000000, a number up to 10,000"),
    ],
)
def test_the_refusal_names_the_field(name: str, path: tuple[str, ...], value: object, says: str) -> None:
    record = changed(RECORDS[name], path, value)
    kind = kind_of_record(record)
    assert kind is not None
    with pytest.raises(InputError, match=says):
        check_form(record, kind)


@pytest.mark.parametrize("name", ["train", "memory", "static", "loop"])
def test_a_model_may_be_a_name_alone(name: str) -> None:
    row = {**RECORDS[name], "model": "Llama-3.2-1B"}
    (outcome,) = evaluate([Located("f:1", row)]).outcomes
    assert outcome.predicted, outcome.reason


def test_layers_with_experts_may_be_a_list() -> None:
    experts = {"n_experts": 8, "topk": 2, "moe_ffn": 256, "moe_layer_freq": [0, 1, 1, 1]}
    (outcome,) = evaluate([Located("f:1", {**RECORDS["train"], "model": {**MODEL, **experts}})]).outcomes
    assert outcome.predicted, outcome.reason
