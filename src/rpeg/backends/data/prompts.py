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
    """index: the record's place in its file. tokens: as the model reads them. text: what tokens spell."""

    index: int
    tokens: tuple[int, ...]
    answer: str
    text: str


@dataclass(frozen=True)
class Prompts:
    """All usable prompts of a file in its order. dropped: how many had no token (`empty`) or more than `max_prompt`.

    Steps walk through one shuffle of all prompts after another: step s takes the places s·size … (s+1)·size − 1 of
    epoch after epoch, so that a run resumes at any step with nothing but the step's number, and every prompt is used
    equally often. A batch may span the end of an epoch.
    """

    prompts: tuple[Prompt, ...]
    batch_size: int
    seed: int
    dropped: int = 0
    empty: int = 0

    def __len__(self) -> int:
        return len(self.prompts)

    def batch(self, step: int) -> list[Prompt]:
        """The `batch_size` prompts of a step."""
        places = range(step * self.batch_size, (step + 1) * self.batch_size)
        return [self.prompts[self._at(place)] for place in places]

    def first(self, count: int) -> list[Prompt]:
        """The first prompts of the file: the same at every evaluation. InputError when there are fewer."""
        if count > len(self):
            raise InputError(
                f"{count} prompts are asked, but {len(self)} of at most max_prompt tokens are there"
            )
        return list(self.prompts[:count])

    def _at(self, place: int) -> int:
        epoch, offset = divmod(place, len(self))
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
    read = _read(records, tokenizer, job.data.chat_template)
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
    return Prompts(kept, job.batch.prompts, job.seed, long + empty, empty)


def tokenise(
    records: Iterable[Record], tokenizer: Any, max_prompt: int, chat_template: bool = False
) -> tuple[Prompt, ...]:
    """Records as prompts, without those longer than `max_prompt` tokens and empty ones."""
    return _usable(_read(list(records), tokenizer, chat_template), max_prompt)


def _usable(prompts: Iterable[Prompt], max_prompt: int) -> tuple[Prompt, ...]:
    return tuple(prompt for prompt in prompts if 0 < len(prompt.tokens) <= max_prompt)


def _read(records: Sequence[Record], tokenizer: Any, chat_template: bool) -> list[Prompt]:
    """All records as prompts, of whatever length."""
    texts = [_chat(tokenizer, record.prompt) if chat_template else record.prompt for record in records]
    # A chat template writes the special tokens itself. Not verbose: what is too long is dropped here, and counted.
    rows = tokenizer(texts, add_special_tokens=not chat_template, verbose=False)["input_ids"] if texts else []
    return [
        Prompt(record.index, _open_ended(row, tokenizer.eos_token_id), record.answer, text)
        for record, text, row in zip(records, texts, rows, strict=True)
    ]


def _chat(tokenizer: Any, prompt: str) -> str:
    if tokenizer.chat_template is None:
        raise InputError(
            "data.chat_template is true, but the tokenizer has no chat template. Set it to false."
        )
    messages = [{"role": "user", "content": prompt}]
    return str(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))


def _open_ended(tokens: list[int], eos: int | None) -> tuple[int, ...]:
    """Without an end-of-sequence token at the end, which some tokenizers append: the response continues here."""
    return tuple(tokens[:-1] if tokens and tokens[-1] == eos else tokens)
