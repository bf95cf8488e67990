"""The `selection` section: how dynamic sampling finds the groups that a step trains on."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from rpeg.job.fields import Count, NonNegative, PathText, Size, Text
from rpeg.workload.selection import MOST_ROUNDS

ASSUMED_REJECTED = 0.5


class Selection(BaseModel):
    """A step asks prompts in rounds, until batch.prompts groups are accepted: that is its quota."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_rounds: Annotated[Count, Field(le=MOST_ROUNDS)] = Field(
        default=4, description="rounds of generation in a step, at most"
    )
    round_prompts: Size | None = Field(
        default=None, description="prompts asked in a round; default: batch.prompts"
    )
    keep: Text | None = Field(
        default=None,
        description="python:package.module:function of (prompt, responses, rewards): whether to train on a group; beside "
        "the algorithm's own rule that rewards must differ",
    )
    import_from: PathText = Field(
        default=".", description="directory (relative to the job file) to import keep from"
    )
    leftover: Literal["drop", "keep"] = Field(
        default="drop",
        description="accepted groups beyond the quota: drop them, or keep them for the next step (staleness 1)",
    )
    shortfall: Literal["train", "stop"] = Field(
        default="train",
        description="where max_rounds do not fill the quota: train on what there is, or stop the run",
    )
    expected_rejected: Annotated[NonNegative, Field(lt=1)] = Field(
        default=ASSUMED_REJECTED, description="share of groups that are rejected, for planning"
    )
