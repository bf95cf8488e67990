"""`Family`: what people run without a search, under the name that it is known by."""

from __future__ import annotations

from dataclasses import dataclass

from rpeg.search.constructions import Construction


@dataclass(frozen=True)
class Family:
    """members: constructions, the best of which stands for all. includes: families whose members are members too.

    refused: why the job allows none, in one line; "" where there are members.
    """

    name: str
    members: tuple[Construction, ...] = ()
    includes: tuple[Family, ...] = ()
    refused: str = ""
