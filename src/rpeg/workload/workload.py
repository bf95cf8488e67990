"""`Workload`: what one training step works on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rpeg.errors import InputError
from rpeg.fields import Fields
from rpeg.workload.lengths import Ints, Lengths, normal_cdf
from rpeg.workload.selection import Selection

MOST = 100_000_000
"""Of prompts, samples, minibatches and epochs: a number beyond is a slip."""


@dataclass(frozen=True)
class Workload:
    """The work of a step: `prompts` × `samples_per_prompt` samples, trained `epochs` times in `minibatches`.

    correlation: of response lengths within a group (same prompt), in [0, 1], as a Gaussian copula.
    selection: with it `prompts` is a quota: the groups to train on, of those that its rounds ask for.
    """

    prompts: int
    samples_per_prompt: int
    prompt_lengths: Lengths
    response_lengths: Lengths
    minibatches: int = 1
    epochs: int = 1
    correlation: float = 0.0
    selection: Selection | None = None

    def __post_init__(self) -> None:
        for name in ("prompts", "samples_per_prompt", "minibatches", "epochs"):
            if getattr(self, name) < 1:
                raise InputError(f"workload has {name} = {getattr(self, name)}, at least 1 is needed")
        if self.samples % self.minibatches:
            raise InputError(
                f"{self.samples} samples a step cannot be split into {self.minibatches} equal minibatches"
            )
        if not 0 <= self.correlation <= 1:
            raise InputError(f"workload has correlation = {self.correlation}, it is to be within 0 and 1")

    @property
    def samples(self) -> int:
        """Samples that a step trains on."""
        return self.prompts * self.samples_per_prompt

    @property
    def rounds(self) -> int:
        """Rounds of generation that a step may take."""
        return 1 if self.selection is None else self.selection.max_rounds

    @property
    def round_prompts(self) -> int:
        """Prompts of a round."""
        return self.prompts if self.selection is None else self.selection.round_prompts

    @property
    def asked_prompts(self) -> int:
        """Prompts that a step may ask for, in all of its rounds."""
        return self.rounds * self.round_prompts

    @property
    def asked(self) -> int:
        """Samples that a step may generate: step t has the ids t · asked … (t + 1) · asked - 1."""
        return self.asked_prompts * self.samples_per_prompt

    @property
    def updates(self) -> int:
        """Optimizer steps of a training step."""
        return self.minibatches * self.epochs

    @property
    def longest(self) -> int:
        """Most tokens of a prompt and its response together."""
        return self.prompt_lengths.maximum + self.response_lengths.maximum

    @property
    def mean_tokens(self) -> int:
        """Of a prompt and its response together, rounded up."""
        return math.ceil(self.prompt_lengths.mean + self.response_lengths.mean)

    def draw(self, seed: int, step: int) -> tuple[Ints, Ints]:
        """Prompt and response lengths of all that one step may ask, each (asked,) int64, group after group.

        The same for the same seed and step on any machine; samples of a group share their prompt's length.
        """
        generator = np.random.Generator(np.random.Philox(key=np.array([seed, step], dtype=np.uint64)))
        prompts = self.prompt_lengths.quantiles(generator.random(self.asked_prompts))
        shape = (self.asked_prompts, self.samples_per_prompt)
        if self.correlation == 0:
            uniform = generator.random(shape)
        else:
            group, own = generator.standard_normal((self.asked_prompts, 1)), generator.standard_normal(shape)
            uniform = normal_cdf(math.sqrt(self.correlation) * group + math.sqrt(1 - self.correlation) * own)
        return np.repeat(prompts, self.samples_per_prompt), self.response_lengths.quantiles(uniform).ravel()

    def draw_accepted(self, seed: int, step: int) -> npt.NDArray[np.bool_]:
        """(asked_prompts,) which groups selection would accept, each by chance; the same on any machine."""
        rejected = 0.0 if self.selection is None else self.selection.rejected
        drawn = np.random.default_rng((seed, step, 0x73656C)).random(self.asked_prompts)
        return np.asarray(drawn >= rejected)

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; `from_json` reads it back."""
        return {
            "prompts": self.prompts,
            "samples_per_prompt": self.samples_per_prompt,
            "prompt_lengths": self.prompt_lengths.to_json(),
            "response_lengths": self.response_lengths.to_json(),
            "minibatches": self.minibatches,
            "epochs": self.epochs,
            "correlation": self.correlation,
            **({} if self.selection is None else {"selection": self.selection.to_json()}),
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Workload:
        """The workload that `to_json` wrote. InputError names a missing or an unknown field."""
        fields = Fields("workload", data)
        workload = Workload(
            fields.count("prompts", most=MOST),
            fields.count("samples_per_prompt", most=MOST),
            Lengths.from_json(fields.mapping("prompt_lengths")),
            Lengths.from_json(fields.mapping("response_lengths")),
            fields.count("minibatches", 1, most=MOST),
            fields.count("epochs", 1, most=MOST),
            fields.number("correlation", 0.0),
            Selection.from_json(fields.mapping("selection")) if "selection" in fields.data else None,
        )
        fields.finish()
        return workload
