"""What is on a device at once: the use that runs, with all that others keep there, as the lane's order has it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rpeg.cost import Memory
from rpeg.cost.memory.breakdown import Breakdown
from rpeg.ir import Kind
from rpeg.plan import Lane, Lowered, side_by_side, together

ORDER = ("load", "wake-up", "reload", "generate", "score", "update", "optimizer", "transfer", "checkpoint")


@dataclass(frozen=True)
class Use:
    """A stage's use of weights on a device. tenant: whose they are; two uses of one tenant share them.

    phases: breakdowns of the phases that the use brings about, by name. resting: (weights, optimizer and more) bytes
    that stay on the device while others use it, before any offloading; offload: what of them goes to the host.
    """

    stage: str
    kind: Kind
    tenant: str
    phases: tuple[Breakdown, ...]
    resting: tuple[float, float]
    offload: str

    @property
    def rest_bytes(self) -> float:
        """What stays on the device between the uses of the tenant."""
        weights, more = self.resting
        return weights * (self.offload != "all") + more * (self.offload == "none")


@dataclass(frozen=True)
class Residency:
    """beside: (stage that runs, another's rest that is there meanwhile). moving: sets of rests there while one moves.

    Empty where a lane has no order yet: then each rest is there only while it is used.
    """

    beside: frozenset[tuple[str, str]] = frozenset()
    moving: frozenset[frozenset[str]] = frozenset()


def residency(lane: Lane | None, lowered: Lowered) -> Residency:
    """Of one lane, from its order alone."""
    if lane is None or not lowered.rests:
        return Residency()
    return Residency(side_by_side(lane, lowered), together(lane, lowered))


def phases_of(found: Sequence[Use], order: Residency) -> tuple[Memory, ...]:
    """Of each phase the fullest use, with what every other tenant keeps there meanwhile."""
    by_phase: dict[str, list[Memory]] = {}
    for use in found:
        there = {name for stage, name in order.beside if stage == use.stage}
        others = tuple(_others(found, use, there))
        for phase in use.phases:
            own = [(f"{use.tenant} {line.name}", line.bytes) for line in phase.lines]
            by_phase.setdefault(phase.phase, []).append(Memory(phase.phase, (*own, *others)))
    process = max((phase.pool_bytes("process") for use in found for phase in use.phases), default=0.0)
    for names in order.moving:
        held = _resting(found, names).items()
        parts = (("process", process), *((f"{tenant} {what}", size) for (tenant, what), size in held if size))
        by_phase.setdefault("reload", []).append(Memory("reload", parts))
    return tuple(max(by_phase[name], key=lambda m: m.bytes) for name in ORDER if name in by_phase)


def _others(found: Sequence[Use], use: Use, there: Collection[str]) -> Iterator[tuple[str, float]]:
    """What the tenants that `use` does not work with keep on the device, and its own state that it has no part in."""
    tenants: dict[str, float] = {}
    for (tenant, what), size in _resting(found, there).items():
        own = tenant == use.tenant
        if own and what in ("weights", _MORE.get(use.kind)):
            continue
        if own and use.kind is Kind.INFERENCE and what == "optimizer" and use.offload == "none":
            continue  # its phases have the trainer's state where that never leaves
        tenants[tenant] = tenants.get(tenant, 0.0) + size
    yield from ((f"{tenant} at rest", size) for tenant, size in tenants.items() if size)


_MORE: Mapping[Kind, str] = {Kind.TRAIN: "optimizer", Kind.GENERATE: "cache"}
"""What a use of each kind keeps beside weights."""


def _resting(found: Sequence[Use], there: Collection[str]) -> Mapping[tuple[str, str], float]:
    """Bytes by (tenant, what) while nothing of it runs: all that never leaves, and the rests that are `there`."""
    sizes: dict[tuple[str, str], float] = {}
    for use in found:
        weights, more = use.resting
        whole, kept = f"{use.stage}:model" in there, _MORE.get(use.kind)
        if use.offload == "all" and not whole:
            weights = 0.0
        if use.offload != "none" and not whole and f"{use.stage}:optimizer" not in there:
            more = 0.0
        for what, size in (("weights", weights), (kept, more)):
            if what is not None:
                sizes[use.tenant, what] = max(sizes.get((use.tenant, what), 0.0), size)
    return sizes
