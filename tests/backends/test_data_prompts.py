from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.backends.data import Prompt, Prompts, load_prompts, load_tokenizer, tokenise
from rpeg.backends.data.prompts import shuffle
from rpeg.errors import InputError
from rpeg.job.models import ModelSource
from rpeg.job.records import Record

EOS = 99


class Words:
    """A tokenizer of one token a word, its length; appends an end token as some do."""

    eos_token_id = EOS
    chat_template: str | None = None

    def __call__(
        self, texts: list[str], add_special_tokens: bool, verbose: bool
    ) -> dict[str, list[list[int]]]:
        assert not verbose, "prompts that are too long are counted, not warned of"
        end = [EOS] if add_special_tokens else []
        return {"input_ids": [[len(word) for word in text.split()] + end for text in texts]}

    def apply_chat_template(self, messages: list[dict[str, str]], **options: Any) -> str:
        assert options == {"add_generation_prompt": True, "tokenize": False}
        return f"user {messages[0]['content']} assistant"


def prompts(count: int, batch_size: int, seed: int = 0) -> Prompts:
    return Prompts(tuple(Prompt(i, (i + 1,), str(i), f"prompt {i}") for i in range(count)), batch_size, seed)


@settings(deadline=None, max_examples=50)
@given(count=st.integers(1, 20), size=st.integers(1, 20), seed=st.integers(0, 2**40), first=st.integers(0, 5))
def test_every_epoch_uses_every_prompt_once(count: int, size: int, seed: int, first: int) -> None:
    """count batches of `size` are `size` epochs, whatever the shuffle and wherever epochs end."""
    data = prompts(count, size, seed)
    used = Counter(prompt.index for step in range(count) for prompt in data.batch(step))
    assert used == dict.fromkeys(range(count), size)
    resumed = prompts(count, size, seed)
    assert resumed.batch(first) == data.batch(first), "a batch depends on (seed, step) alone"


def test_batches_differ_between_seeds_and_epochs() -> None:
    a, b = prompts(50, 50, seed=0), prompts(50, 50, seed=1)
    assert a.batch(0) != b.batch(0)
    assert a.batch(0) != a.batch(1)
    assert list(shuffle(0, 0, 6)) == [3, 2, 5, 4, 0, 1], (
        "a resumed run must find the shuffle of its first part"
    )


def test_tokenise_drops_long_and_empty_prompts() -> None:
    records = [
        Record(0, "a bb ccc", "x"),
        Record(1, "a bb ccc dddd", "y"),
        Record(2, " ", "z"),
        Record(3, "a", "w"),
    ]
    kept = tokenise(records, Words(), max_prompt=3)
    assert kept == (Prompt(0, (1, 2, 3), "x", "a bb ccc"), Prompt(3, (1,), "w", "a"))


def test_chat_template() -> None:
    tokenizer = Words()
    with pytest.raises(InputError, match="no chat template"):
        tokenise([Record(0, "a", "x")], tokenizer, 9, chat_template=True)
    tokenizer.chat_template = "…"
    kept = tokenise([Record(0, "a bb", "x")], tokenizer, 9, chat_template=True)
    assert kept == (Prompt(0, (4, 1, 2, 9), "x", "user a bb assistant", (("user", "a bb"),)),)


def test_first_prompts_for_evaluation() -> None:
    assert [prompt.index for prompt in prompts(5, 2).first(3)] == [0, 1, 2]
    with pytest.raises(InputError, match="6 prompts are asked, but 5"):
        prompts(5, 2).first(6)


def test_a_real_tokenizer_from_a_directory(tmp_path: Path) -> None:
    """Characters as tokens; loaded through transformers as a model's own would be."""
    directory = tmp_path
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    core = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab={c: i for i, c in enumerate("0123456789+= ")}, merges=[])
    )
    transformers.PreTrainedTokenizerFast(tokenizer_object=core, eos_token="=").save_pretrained(directory)
    tokenizer = load_tokenizer(ModelSource("here", directory))
    job = make_job(directory, ["1+2", "10+20", "3+4"], max_prompt=4)
    loaded = load_prompts(job, tokenizer)
    assert [prompt.text for prompt in loaded.prompts] == ["1+2", "3+4"]
    assert loaded.prompts[1].tokens == (3, 10, 4)
    assert loaded.dropped == 1
    with pytest.raises(InputError, match=r"heldout: of 3 prompts 2 are kept, 3 are needed: 1 are longer"):
        load_prompts(job, tokenizer, "heldout")
    with pytest.raises(
        InputError,
        match=r"2 are needed: 3 are longer than lengths.max_prompt 2 tokens, 0 are empty",
    ):
        load_prompts(make_job(directory, ["1+2", "10+20", "3+4"], max_prompt=2), tokenizer)
    with pytest.raises(InputError, match=r"2 are needed: 0 are longer .*, 3 are empty. Give more prompts"):
        load_prompts(make_job(directory, ["", "", ""], max_prompt=2), tokenizer)


def make_job(directory: Path, texts: list[str], max_prompt: int) -> Any:
    """The parts of a job that prompts need."""
    from rpeg.job.schema import Batch, Data, Evaluation, Job, Lengths

    file = directory / "train.jsonl"
    file.write_text("".join(f'{{"prompt": "{text}", "answer": "0"}}\n' for text in texts))
    return Job.model_construct(
        name="j",
        seed=0,
        data=Data(train=str(file), heldout=str(file)),
        evaluation=Evaluation(every=1, prompts=3),
        batch=Batch(prompts=2),
        lengths=Lengths(max_prompt=max_prompt, max_response=4),
    )


def test_a_directory_without_tokenizer(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    with pytest.raises(InputError, match="tokenizer of model here cannot be loaded"):
        load_tokenizer(ModelSource("here", tmp_path))


def test_an_unreachable_hub_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """`from_pretrained` would retry for a minute."""
    hub = pytest.importorskip("huggingface_hub")
    pytest.importorskip("transformers")
    asked = []

    def refuse(self: object, label: str, timeout: float) -> None:
        asked.append(label)
        raise OSError("no route")

    monkeypatch.setattr(hub.HfApi, "model_info", refuse)
    with pytest.raises(InputError, match=r"org/name is not on this machine, and cannot be fetched: no route"):
        load_tokenizer(ModelSource("org/name", None))
    assert asked == ["org/name"]
