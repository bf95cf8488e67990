"""`LoRA`: adapters that are trained instead of the models that they are beside."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from rpeg.job.fields import Count, Positive
from rpeg.job.section import Section


class LoRA(Section):
    """Low-rank adapters (arXiv:2106.09685) beside matrices of trained models; the models themselves stay as they are."""

    rank: Annotated[Count, Field(le=4096)] = Field(description="columns of an adapter, such as 16")
    alpha: Positive | None = Field(
        default=None, description="adapters are scaled by alpha / rank; default: twice the rank"
    )
    targets: Literal["all", "attention"] = Field(
        default="all", description="all: every matrix of the layers; attention: queries and values alone"
    )

    @property
    def scale(self) -> float:
        """By which what an adapter gives is multiplied."""
        return 2.0 if self.alpha is None else self.alpha / self.rank
