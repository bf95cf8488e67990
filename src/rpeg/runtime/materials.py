"""What a worker reads at first use: tokenizer, prompts and rewards."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from rpeg.backends.data import Prompts, load_prompts, load_tokenizer
from rpeg.backends.data.respelling import Respelling, of_reward_model
from rpeg.backends.generation.protocol import Generates
from rpeg.backends.generation.tools import Toolbox
from rpeg.backends.generation.turns import Turns
from rpeg.backends.reward.total import Total, make_total
from rpeg.errors import InputError
from rpeg.job import Job


class Materials:
    """Of a job; each is loaded when it is first asked for."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def close(self) -> None:
        """Ends the processes of rewards and tools that were made."""
        for name in ("total", "judge", "toolbox"):
            if name in self.__dict__:
                getattr(self, name).close()

    @cached_property
    def tokenizer(self) -> Any:
        return load_tokenizer(self.job.models.source("actor"))

    @cached_property
    def prompts(self) -> Prompts:
        return load_prompts(self.job, self.tokenizer, "train")

    @cached_property
    def heldout(self) -> Prompts:
        return load_prompts(self.job, self.tokenizer, "heldout")

    @cached_property
    def total(self) -> Total:
        return make_total(self.job.reward)

    @cached_property
    def judge(self) -> Total:
        return make_total(self.job.evaluation_reward)

    @cached_property
    def respelling(self) -> Respelling | None:
        return of_reward_model(self.job, self.tokenizer)

    @cached_property
    def toolbox(self) -> Toolbox:
        assert self.job.tools is not None
        return Toolbox(self.job.tools)

    def in_turns(self, engine: Generates) -> Turns:
        """An engine whose responses call the job's tool. InputError for an end of turns that is no single token."""
        tools = self.job.tools
        assert tools is not None
        ends = [self._token(text) for text in tools.ends] or self.stop_token_ids
        return Turns(engine, self.toolbox.ask, self.tokenizer, frozenset(ends), tools.max_calls)

    def _token(self, text: str) -> int:
        found: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        if len(found) != 1:
            raise InputError(
                f"tools.ends: '{text}' is {len(found)} tokens of this model's tokenizer, and a turn ends with one; "
                "name a single token, or leave ends out"
            )
        return found[0]

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        eos = self.tokenizer.eos_token_id
        return () if eos is None else (int(eos),)
