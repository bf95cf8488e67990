"""`Family`: what people run without a search, under the name that it is known by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rpeg.search.candidate import Candidate
from rpeg.search.constructions import Construction


def _none(candidate: Candidate) -> bool:
    return False


@dataclass(frozen=True)
class Family:
    """members: constructions, the best of which stands for all. includes: families whose members are members too.

    refused: why the job allows none, in one line; "" where there are members. takes: whether a plan that a search has
    found is of this family too. in_turn: stages of a member run one after another.
    """

    name: str
    members: tuple[Construction, ...] = ()
    includes: tuple[Family, ...] = ()
    refused: str = ""
    takes: Callable[[Candidate], bool] = _none
    in_turn: bool = False
