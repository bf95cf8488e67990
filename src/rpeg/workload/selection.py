"""`Selection`: how a step finds enough groups that are worth training on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rpeg.errors import InputError
from rpeg.fields import Fields

MOST_ROUNDS = 64


@dataclass(frozen=True)
class Selection:
    """A step asks `round_prompts` prompts a round, until its quota of groups is accepted or `max_rounds` are over.

    rejected: the share of groups that selection turns down, in [0, 1): for predictions alone.
    """

    round_prompts: int
    max_rounds: int
    rejected: float = 0.0

    def __post_init__(self) -> None:
        if self.round_prompts < 1 or not 1 <= self.max_rounds <= MOST_ROUNDS:
            raise InputError(
                f"selection has {self.max_rounds} rounds of {self.round_prompts} prompts; 1 to {MOST_ROUNDS} rounds of 1 "
                "or more are needed"
            )
        if not 0 <= self.rejected < 1:
            raise InputError(f"selection rejects {self.rejected} of all groups, it is to be in [0, 1)")

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; `from_json` reads it back."""
        return {
            "round_prompts": self.round_prompts,
            "max_rounds": self.max_rounds,
            "rejected": self.rejected,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Selection:
        """The selection that `to_json` wrote. InputError names a missing or an unknown field."""
        fields = Fields("selection", data)
        selection = Selection(
            fields.count("round_prompts"), fields.count("max_rounds"), fields.number("rejected", 0.0)
        )
        fields.finish()
        return selection
