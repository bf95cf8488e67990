"""What limits a step: its critical cycle, idle devices, and the bounds that no other plan of a kind can beat."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rpeg.plan import Devices, Plan
from rpeg.plan.lanes import lanes_of
from rpeg.report.tables import percent
from rpeg.report.words import DeviceGroup, device_groups, device_name, name_words, slot_words, where
from rpeg.sim import Bound, Estimate
from rpeg.units import seconds_text

_SHOWN_SHARE = 0.005
"""Of the critical cycle: less is not worth a word."""


def critical(estimate: Estimate, plan: Plan) -> Iterator[str]:
    """What limits the step: the cycle of items that wait for each other, with the share of each and where it runs."""
    cycle = estimate.critical.cycle
    total = sum(link.seconds for link in cycle)
    if not total:
        return
    shares: dict[tuple[str, str], float] = {}
    for link in cycle:
        name = slot_words(link.src), where(plan, link.src)
        shares[name] = shares.get(name, 0.0) + link.seconds
    shown = [(name, place, s / total) for (name, place), s in shares.items() if s >= _SHOWN_SHARE * total]
    places = {place for _, place, _ in shown if place}
    one = places.pop() if len(places) == 1 else ""
    parts = (
        f"{name}{f' ({place})' if place and not one else ''} {percent(share)}" for name, place, share in shown
    )
    over = f", {estimate.critical.steps} steps long" if estimate.critical.steps > 1 else ""
    on = f" on {one}" if one else ""
    yield f"one after the other{on}{over}: {' → '.join(parts)}"


def idle_shares(estimate: Estimate, plan: Plan) -> tuple[tuple[DeviceGroup, float], ...]:
    """Of each group of devices the share of the step in which they have nothing to do."""
    busy: dict[int, float] = {}
    for lane, devices in lanes_of(plan.assignments).devices.items():
        for device in devices:
            busy[device] = estimate.occupancy.get(lane, 0.0)
    return tuple(
        (group, max(0.0, 1 - sum(busy.get(i, 0.0) for i in group.ids) / len(group.ids)))
        for group in device_groups(plan)
    )


def busy_share(estimate: Estimate, plan: Plan) -> float:
    """Of all devices of the cluster in a step; those that nothing uses are not busy."""
    busy = sum((1 - share) * len(group.ids) for group, share in idle_shares(estimate, plan))
    return busy / len(plan.cluster)


def idle(estimate: Estimate, plan: Plan) -> Iterator[str]:
    """A line for each group of devices, and one for those that no stage uses."""
    for group, share in idle_shares(estimate, plan):
        yield f"{group.name} {percent(share)} ({', '.join(group.stages)})"
    used = {i for a in plan.assignments if isinstance(a.block, Devices) for i in a.block.ids}
    unused = tuple(i for i in range(len(plan.cluster)) if i not in used)
    if unused:
        yield f"{device_name(unused)} are in no stage's block: idle, and paid for"


_BOUNDS = {"lane": "busiest device", "dependencies": "dependencies", "work": "total work"}


def bounds(estimate: Estimate) -> Iterator[str]:
    """A line for each bound, the highest first: its seconds, the gap to it, what it means and what it leaves open."""
    for bound in sorted(estimate.bounds.all, key=lambda bound: -bound.seconds):
        gap = percent(estimate.gap_to(bound))
        yield f"{_BOUNDS[bound.by]}: {seconds_text(bound.seconds)} at least (gap {gap}): {_meaning(bound)}"


def _meaning(bound: Bound) -> str:
    if bound.by == "lane":
        return (
            f"{_lane_words(bound.what)} is busy so long, in any order; less takes another placement or layout"
        )
    if bound.by == "dependencies":
        stages = bound.what.split(" → ")
        words = " → ".join(name_words(name) for name in stages)
        return f"{words} wait for each other, on any number of such devices; less takes another layout or structure"
    return (
        f"all devices of {bound.what} need so long for the work at the best efficiency that the search has seen; less "
        "takes a layout or structure that it has not"
    )


def _lane_words(lane: str) -> str:
    """``device3`` → ``device 3``, ``devices0-7`` → ``devices 0-7``."""
    return re.sub(r"^(devices?|host)(?=\d)", r"\1 ", lane)
