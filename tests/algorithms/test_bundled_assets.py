"""The bundled task and model are what the example jobs take them for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

import rpeg

ASSETS = Path(rpeg.__file__).parent / "assets"
MODEL = ASSETS / "tiny"


def rows(name: str) -> list[dict[str, str]]:
    lines = (ASSETS / "chain_sum" / name).read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(("name", "count"), [("train.jsonl", 4000), ("heldout.jsonl", 256)])
def test_every_problem_is_an_addition_with_its_sum(name: str, count: int) -> None:
    problems = rows(name)
    assert len(problems) == count
    for row in problems:
        first, plus, second, equals = row["prompt"].split(" ")
        assert (plus, equals) == ("+", "=")
        assert str(int(first) + int(second)) == row["answer"]


def test_nothing_held_out_is_trained_on() -> None:
    train = {row["prompt"] for row in rows("train.jsonl")}
    heldout = {row["prompt"] for row in rows("heldout.jsonl")}
    assert len(train) == 4000
    assert len(heldout) == 256
    assert not train & heldout


def test_weights_are_small_and_only_safetensors() -> None:
    assert {file.suffix for file in MODEL.iterdir()} == {".json", ".safetensors"}
    assert (MODEL / "model.safetensors").stat().st_size < 3_000_000


def test_each_byte_is_its_own_token() -> None:
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    text = "53 + 29 = \n\té☃"
    assert tokenizer.encode(text).ids == list(text.encode())
    assert tokenizer.decode(list(text.encode())) == text


def test_end_and_padding_agree_between_model_and_tokenizer() -> None:
    tokenizer = Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    config = json.loads((MODEL / "config.json").read_text(encoding="utf-8"))
    generation = json.loads((MODEL / "generation_config.json").read_text(encoding="utf-8"))
    assert config["eos_token_id"] == generation["eos_token_id"] == tokenizer.token_to_id("</s>")
    assert config["pad_token_id"] == generation["pad_token_id"] == tokenizer.token_to_id("<pad>")
    assert config["vocab_size"] == tokenizer.get_vocab_size()
