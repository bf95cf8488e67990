"""Lanes that do the same, shown as one: a screen has room for a dozen, and a plan may have thousands."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rpeg.plan import Plan, ranges

MOST_SEEN = 8


@dataclass(frozen=True)
class Group:
    """Lanes that run the same stages. seen: those of them that stand for all."""

    name: str
    lanes: tuple[str, ...]

    @property
    def seen(self) -> tuple[str, ...]:
        count = min(MOST_SEEN, len(self.lanes))
        return tuple(self.lanes[len(self.lanes) * i // count] for i in range(count))


def lane_groups(plan: Plan, most: int) -> tuple[Group, ...]:
    """Each lane by itself where there are at most `most`; else those of the same stages together, devices first."""
    lanes = sorted((lane.name for lane in plan.order), key=_place)
    if len(lanes) <= most:
        return tuple(Group(lane, (lane,)) for lane in lanes)
    stages = {lane.name: frozenset(turn.slot.name for turn in lane.turns) for lane in plan.order}
    alike: dict[tuple[str, frozenset[str]], list[str]] = {}
    for lane in lanes:
        alike.setdefault((_kind(lane), stages[lane]), []).append(lane)
    return tuple(Group(_name(own), tuple(own)) for own in alike.values())


def _kind(lane: str) -> str:
    return re.match(r"[a-z]*", lane)[0]  # type: ignore[index]


def _numbers(lane: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", lane)]


def _place(lane: str) -> tuple[bool, list[int]]:
    return _kind(lane) == "host", _numbers(lane)


def _name(lanes: list[str]) -> str:
    """``device0-63``; ``8 × host`` where names have more than a number."""
    numbers = [_numbers(lane) for lane in lanes]
    if len(lanes) == 1:
        return lanes[0]
    if all(len(own) == 1 for own in numbers):
        text = ranges(tuple(own[0] for own in numbers))
        if len(text) <= 12:
            return f"{_kind(lanes[0])}{text}"
    return f"{len(lanes)} × {_kind(lanes[0])}"
