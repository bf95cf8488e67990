"""Prompts: a data file, tokenised; which of them a step uses is a pure function of (seed, step)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from rpeg.errors import InputError
from rpeg.job.records import Record, read_records
from rpeg.job.schema import Job


@dataclass(frozen=True)
class Prompt:
    """index: the record's place in its file. tokens: as the model reads them. text: what tokens spell.

    messages: (role, content) of a chat, for whoever has another template for it; empty for plain text.
    """

    index: int
    tokens: tuple[int, ...]
    answer: str
    text: str
    messages: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Prompts:
    """All usable prompts of a file in its order. dropped: how many had no token (`empty`) or more than `max_prompt`.

    Steps walk through one shuffle of all prompts after another: step s takes the places s·size … (s+1)·size − 1 of
    epoch after epoch, so that a run resumes at any step with nothing but the step's number, and every prompt is used
    equally often. A batch may span the end of an epoch. shuffled: else every epoch has the file's order.
    """

    prompts: tuple[Prompt, ...]
    batch_size: int
    seed: int
    dropped: int = 0
    empty: int = 0
    shuffled: bool = True

    def __len__(self) -> int:
        return len(self.prompts)

    def batch(self, step: int) -> list[Prompt]:
        """The `batch_size` prompts of a step."""
        return self.at(step * self.batch_size, self.batch_size)

    def at(self, place: int, count: int) -> list[Prompt]:
        """`count` prompts from a place in the stream on."""
        return [self.prompts[self._at(p)] for p in range(place, place + count)]

    def epoch(self, step: int) -> float:
        """Epochs begun and done when a step's prompts have been used."""
        return self.epochs_until((step + 1) * self.batch_size)

    def epochs_until(self, place: int) -> float:
        """Epochs begun and done at a place in the stream."""
        return place / len(self)

    def first(self, count: int) -> list[Prompt]:
        """The first prompts of the file: the same at every evaluation. InputError when there are fewer."""
        if count > len(self):
            raise InputError(
                f"{count} prompts are asked, but {len(self)} of at most max_prompt tokens are there"
            )
        return list(self.prompts[:count])

    def _at(self, place: int) -> int:
        epoch, offset = divmod(place, len(self))
        if not self.shuffled:
            return offset
        return int(shuffle(self.seed, epoch, len(self))[offset])


@lru_cache(maxsize=4)
def shuffle(seed: int, epoch: int, count: int) -> npt.NDArray[np.int64]:
    """A permutation of 0 … count − 1 that depends on nothing else."""
    return np.random.default_rng([seed, epoch]).permutation(count)


def load_prompts(job: Job, tokenizer: Any, split: str = "train") -> Prompts:
    """The prompts of a job's `data.train` or `data.heldout`, tokenised; see `tokenizer.load_tokenizer`.

    InputError when the file is wrong, or when too few prompts are left for a batch or an evaluation.
    """
    path = getattr(job.data, split)
    if path is None:
        raise InputError(f"data.{split} is not given in job {job.name}")
    records = read_records(path, job.data.prompt, job.data.answer)
    longest = job.lengths.max_prompt
    read = _read(records, tokenizer, job.data.chat_template, job.data.system)
    kept = _usable(read, longest)
    empty = sum(not prompt.tokens for prompt in read)
    long = len(read) - len(kept) - empty
    needed = job.batch.prompts if split == "train" else job.evaluation.prompts if job.evaluation.every else 1
    if len(kept) < needed:
        raise InputError(
            f"data.{split}: of {len(read)} prompts {len(kept)} are kept, {needed} are needed: {long} are longer than "
            f"lengths.max_prompt {longest} tokens, {empty} are empty. "
            + ("Raise lengths.max_prompt, or give" if long else "Give")
            + f" more prompts of 1 to {longest} tokens."
        )
    return Prompts(kept, job.batch.prompts, job.seed, long + empty, empty, job.data.shuffle)


def tokenise(
    records: Iterable[Record], tokenizer: Any, max_prompt: int, chat_template: bool = False
) -> tuple[Prompt, ...]:
    """Records as prompts, without those longer than `max_prompt` tokens and empty ones."""
    return _usable(_read(list(records), tokenizer, chat_template), max_prompt)


def _usable(prompts: Iterable[Prompt], max_prompt: int) -> tuple[Prompt, ...]:
    return tuple(prompt for prompt in prompts if 0 < len(prompt.tokens) <= max_prompt)


def _read(
    records: Sequence[Record], tokenizer: Any, chat_template: bool, system: str | None = None
) -> list[Prompt]:
    """All records as prompts, of whatever length."""
    chats = [_messages(record, chat_template, system) for record in records]
    texts = [
        chat(tokenizer, messages) if messages else record.prompt
        for record, messages in zip(records, chats, strict=True)
    ]
    # A chat template writes the special tokens itself. Not verbose: what is too long is dropped here, and counted.
    rows = tokenizer(texts, add_special_tokens=not chat_template, verbose=False)["input_ids"] if texts else []
    return [
        Prompt(record.index, _open_ended(row, tokenizer.eos_token_id), record.answer, text, messages)
        for record, text, row, messages in zip(records, texts, rows, chats, strict=True)
    ]


def _messages(record: Record, chat_template: bool, system: str | None) -> tuple[tuple[str, str], ...]:
    """The chat that a record is; empty where prompts are plain text."""
    if not chat_template:
        if record.messages:
            raise InputError(
                f"the prompt of record {record.index} is a chat of {len(record.messages)} messages: set "
                "data.chat_template: true, or name a field of plain text"
            )
        return ()
    messages = record.messages or (("user", record.prompt),)
    return messages if system is None or messages[0][0] == "system" else (("system", system), *messages)


def chat(tokenizer: Any, messages: Sequence[tuple[str, str]], *, answered: bool = False) -> str:
    """Messages as a tokenizer's chat template writes them; ready for an answer, unless it is the last of them.

    InputError where there is no template, or it refuses the messages (some know no system message).
    """
    if tokenizer.chat_template is None:
        raise InputError(
            "data.chat_template is true, but the tokenizer has no chat template. Set it to false."
        )
    turns = [{"role": role, "content": content} for role, content in messages]
    try:
        return str(tokenizer.apply_chat_template(turns, add_generation_prompt=not answered, tokenize=False))
    except Exception as error:  # noqa: BLE001  (whatever a template raises)
        roles = ", ".join(role for role, _ in messages)
        raise InputError(f"the tokenizer's chat template refuses messages of {roles}: {error}") from None


def _open_ended(tokens: list[int], eos: int | None) -> tuple[int, ...]:
    """Without an end-of-sequence token at the end, which some tokenizers append: the response continues here."""
    return tuple(tokens[:-1] if tokens and tokens[-1] == eos else tokens)
