"""The `reward` section: one way to score a response, or several with weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer

from rpeg.job.fields import Number, PathText, Positive, Text
from rpeg.job.functions import PREFIX

MODEL = "model"
"""The name of the reward that the graph's reward model gives."""

LONGEST_LIMIT_SECONDS = 86_400


class Reward(BaseModel):
    """How a response is scored."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Text = Field(
        description="a verifier (exact, numeric, math, format, reasoning_gym), model (of models.reward), "
        "or python:package.module:function"
    )
    weight: Number = Field(
        default=1.0, description="what the score is multiplied by before rewards are added up"
    )
    time_limit_seconds: Annotated[Positive, Field(le=LONGEST_LIMIT_SECONDS)] = Field(
        default=5.0, description="a sample whose scoring takes longer scores zero"
    )
    truncated: Literal["score", "zero", "mask"] = Field(
        default="score",
        description="a response cut at max_response: score it like others, give it zero, or leave it out of the loss",
    )
    workers: Annotated[int, Field(ge=1, le=256)] = Field(
        default=1,
        description="of functions, math, format and reasoning_gym: processes that score responses side by side",
    )
    expected_seconds: Annotated[Number, Field(ge=0)] = Field(
        default=0.0,
        description="for planning: what scoring one response takes; 0: no longer than a built-in verifier",
    )
    import_from: PathText = Field(
        default=".", description="directory (relative to the job file) to import python: from"
    )
    pattern: Text | None = Field(
        default=None, description="of format: a regular expression that the whole response must match"
    )
    tags: tuple[Text, ...] | None = Field(
        default=None,
        description="of format: tags that the response consists of, in order, such as [think, answer]",
    )

    @property
    def is_function(self) -> bool:
        """Whether it is the user's own Python function."""
        return self.name.startswith(PREFIX)

    @property
    def options(self) -> dict[str, object]:
        """What a verifier is called with beside the sample."""
        return {"pattern": self.pattern, "tags": self.tags} if self.name == "format" else {}


def response_seconds(rewards: Iterable[Reward]) -> float:
    """What the rewards of one response are expected to take, seconds: one after another, each by all its workers."""
    return sum(reward.expected_seconds / reward.workers for reward in rewards)


def labels(rewards: Iterable[Reward]) -> tuple[str, ...]:
    """A short name for each, unlike the others: a verifier's, or the function's."""
    seen: Counter[str] = Counter()
    found = []
    for reward in rewards:
        name = reward.name.rpartition(":")[2]
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}-{seen[name]}")
    return tuple(found)


def uses_model(rewards: Iterable[Reward]) -> bool:
    """Whether a reward model takes part."""
    return any(reward.name == MODEL for reward in rewards)


def masks_truncated(rewards: Iterable[Reward]) -> bool:
    """Whether truncated responses are left out of the loss."""
    return any(reward.truncated == "mask" for reward in rewards)


def as_list(value: object) -> object:
    """One reward as a list of one; a list stays."""
    if isinstance(value, Mapping | Reward):
        return [value]
    if isinstance(value, list | tuple) and value:
        return value
    raise ValueError("must be a group of keys with values (name, …), or a list of such groups.")


def as_written(rewards: tuple[Reward, ...]) -> object:
    """The inverse of `as_list`."""
    dumped = [reward.model_dump(mode="json") for reward in rewards]
    return dumped[0] if len(dumped) == 1 else dumped


Rewards = Annotated[tuple[Reward, ...], BeforeValidator(as_list), PlainSerializer(as_written)]
