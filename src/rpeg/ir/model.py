"""A model that takes part in a graph."""

from __future__ import annotations

from dataclasses import dataclass

HEADS = ("lm", "value", "reward")


@dataclass(frozen=True, slots=True)
class Model:
    """One set of weights. `architecture` names what the weights are of, not where they lie.

    heads: any of `lm`, `value`, `reward`; two heads on one model share its backbone.
    """

    name: str
    architecture: str
    trainable: bool
    heads: tuple[str, ...] = ("lm",)
