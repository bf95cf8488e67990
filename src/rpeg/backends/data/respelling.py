"""Samples as another model's tokenizer reads them: a reward model need not share the actor's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rpeg.backends.data.prompts import Prompt, chat
from rpeg.backends.data.tokenizer import load_tokenizer
from rpeg.backends.samples import Samples
from rpeg.job import Job

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")


@dataclass(frozen=True)
class Respelling:
    """tokenizer: of the model that shall read. longest: tokens that it can see; more are cut at the beginning."""

    tokenizer: Any
    longest: int | None = None

    def of(self, samples: Samples, prompts: Sequence[Prompt], responses: Sequence[str]) -> Samples:
        """The same ids with other tokens; all but the first count as response: nobody needs the border."""
        rows = [self._tokens(prompt, response) for prompt, response in zip(prompts, responses, strict=True)]
        ones = np.ones(len(rows), dtype=np.int64)
        return Samples(
            samples.ids,
            np.array([len(row) - 1 for row in rows], dtype=np.int64),
            prompts=np.array([row[0] for row in rows], dtype=np.int64),
            prompt_lengths=ones,
            responses=np.array([token for row in rows for token in row[1:]], dtype=np.int64),
        )

    def _tokens(self, prompt: Prompt, response: str) -> list[int]:
        """A chat goes through the reader's own template, where it has one."""
        if prompt.messages and self.tokenizer.chat_template is not None:
            text = chat(self.tokenizer, (*prompt.messages, ("assistant", response)), answered=True)
            row = self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
        else:
            row = self.tokenizer(prompt.text + response, verbose=False)["input_ids"]
        row = list(row) if self.longest is None else list(row)[-self.longest :]
        return row or [self.tokenizer.eos_token_id or 0]


def respelling(actor_tokenizer: Any, tokenizer: Any, longest: int | None) -> Respelling | None:
    """None where both read alike: tokens then need no way through text."""
    if tokenizer is None or actor_tokenizer.get_vocab() == tokenizer.get_vocab():
        return None
    return Respelling(tokenizer, longest)


def of_reward_model(job: Job, actor_tokenizer: Any) -> Respelling | None:
    """How the job's reward model reads what the actor wrote; one without a tokenizer reads as the actor does."""
    source = job.models.source("reward")
    if source.directory is not None and not any(
        (source.directory / name).exists() for name in TOKENIZER_FILES
    ):
        return None
    longest = source.context() if source.directory is not None else None
    return respelling(actor_tokenizer, load_tokenizer(source), longest)
