"""How tokenizers read prompts: what goes wrong in silence, chats, and a reward model that reads otherwise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rpeg.backends.data import Prompt, Prompts, chat, load_prompts, load_tokenizer, notes
from rpeg.backends.data.respelling import of_reward_model, respelling
from rpeg.backends.samples import Samples
from rpeg.errors import InputError
from rpeg.job import resolve_model
from runtime.runs import make_job

TEMPLATE = (
    "{% for m in messages %}[{{m.role}}]{{m.content}}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)
STRICT = "{% if messages[0].role == 'system' %}{{ raise_exception('no system here') }}{% endif %}"


def tiny() -> object:
    return load_tokenizer(resolve_model("bundled:tiny"))


def test_what_goes_wrong_in_silence_is_said() -> None:
    tokenizer = tiny()
    plain = [Prompt(0, (65, 66), "", "AB")]
    assert list(notes(tokenizer, plain, chat_template=False)) == []
    bos = tokenizer.bos_token_id
    twice = [*plain, Prompt(1, (bos, bos, 65), "", "A")]
    (said,) = notes(tokenizer, twice, chat_template=False)
    assert said.startswith("1 of 2 prompts begin with two")
    tokenizer.chat_template = TEMPLATE
    (said,) = notes(tokenizer, plain, chat_template=False)
    assert "data.chat_template is false" in said
    assert list(notes(tokenizer, plain, chat_template=True)) == []
    tokenizer.eos_token = None
    (said,) = notes(tokenizer, plain, chat_template=True)
    assert "no end-of-sequence token" in said


def test_chats_go_through_the_template(tmp_path: Path) -> None:
    rows = [
        '{"prompt": "1+1", "answer": 2}',
        '{"prompt": [{"role": "system", "content": "own"}, {"role": "user", "content": "1+2"}], "answer": 3}',
    ] * 2
    (tmp_path / "train.jsonl").write_text("\n".join(rows))
    tokenizer = tiny()
    tokenizer.chat_template = TEMPLATE
    data = {"train": str(tmp_path / "train.jsonl"), "chat_template": True, "system": "Add."}
    lengths = {"max_prompt": 40, "max_response": 6}
    job = make_job(Path("bundled:tiny"), tmp_path / "run", data=data, lengths=lengths)
    texts = [prompt.text for prompt in load_prompts(job, tokenizer).prompts]
    assert texts[:2] == ["[system]Add.[user]1+1[assistant]", "[system]own[user]1+2[assistant]"]
    without = job.model_copy(update={"data": job.data.model_copy(update={"chat_template": False})})
    with pytest.raises(InputError, match=r"record 1 is a chat of 2 messages: set data\.chat_template: true"):
        load_prompts(without, tokenizer)
    tokenizer.chat_template = STRICT
    with pytest.raises(InputError, match="refuses messages of system, user: no system here"):
        chat(tokenizer, (("system", "a"), ("user", "b")))


def test_without_a_shuffle_epochs_follow_the_file() -> None:
    rows = tuple(Prompt(i, (i + 1,), "", "") for i in range(5))
    data = Prompts(rows, 2, seed=3, shuffled=False)
    assert [p.index for step in range(5) for p in data.batch(step)] == [0, 1, 2, 3, 4] * 2
    assert (data.epoch(0), data.epoch(4)) == (0.4, 2.0)


def samples() -> Samples:
    return Samples(
        np.array([7, 9]),
        np.array([2, 1]),
        prompts=np.array([65, 66, 67]),
        prompt_lengths=np.array([2, 1]),
        responses=np.array([68, 258, 69]),
    )


def test_a_reward_model_with_another_tokenizer_reads_text() -> None:
    actor, other = tiny(), tiny()
    assert respelling(actor, other, None) is None, "the same vocabulary: tokens go as they are"
    other.add_tokens(["AB"])
    reader = respelling(actor, other, 6)
    assert reader is not None
    plain = [Prompt(0, (65, 66), "", "AB"), Prompt(1, (67,), "", "C")]
    read = reader.of(samples(), plain, ["D", "E" * 9])
    assert read.ids.tolist() == [7, 9]
    assert (read.prompt_lengths + read.lengths).tolist() == [2, 6], (
        "AB is one token; the longer is cut in front"
    )
    assert read.responses.tolist()[-5:] == [69] * 5
    other.chat_template = TEMPLATE
    wide = respelling(actor, other, None)
    assert wide is not None
    chats = [Prompt(0, (65,), "", "rendered by the actor", (("user", "x"),))] * 2
    read = wide.of(samples(), chats, ["y", "z"])
    first = [read.prompts[0], *read.responses[: read.lengths[0]]]
    assert bytes(int(t) for t in first) == b"[user]x[assistant]y"


def test_a_reward_model_without_a_tokenizer_reads_as_the_actor(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    (tmp_path / "classifier").mkdir()
    config = (
        '{"model_type": "llama", "architectures": ["LlamaForSequenceClassification"], "id2label": {"0": "r"}}'
    )
    (tmp_path / "classifier" / "config.json").write_text(config)
    save_file({"x": np.zeros(1)}, tmp_path / "classifier" / "model.safetensors")
    models = {"actor": {"path": "bundled:tiny"}, "reward": {"path": str(tmp_path / "classifier")}}
    job = make_job(Path("bundled:tiny"), tmp_path / "run")
    job = job.model_copy(update={"models": type(job.models).model_validate(models)})
    assert of_reward_model(job, tiny()) is None
