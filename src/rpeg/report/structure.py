"""A plan in words: who is where, with which layout, and what was changed about the step."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from rpeg.ir import Kind
from rpeg.plan import Assignment, Devices, Plan
from rpeg.plan.assignment import ranges
from rpeg.report.tables import percent, table
from rpeg.report.words import applied, device_groups
from rpeg.sim import Staleness

LAYOUT = ("stage", "devices", "layout", ">batch", "recompute", "at rest")
LAYOUT_LEGEND = "batch: samples in one forward; of generation the responses that a replica holds at once"


def placement(plan: Plan) -> Iterator[str]:
    """A line for each group of devices."""
    for group in device_groups(plan):
        yield f"{group.name}: {', '.join(group.stages)}"


def layouts(plan: Plan) -> Table:
    """A row for each stage that calls models: devices, parallelism, micro-batch, recomputation, offloading."""
    return table(LAYOUT, (_row(plan, a) for a in plan.assignments if isinstance(a.block, Devices)))


def changes(plan: Plan) -> Iterator[str]:
    """A line for each structural change: its text, what it does and what it changes in what is learned."""
    for transform in applied(plan):
        yield f"{transform}: {transform.words}; changes in learning: {transform.learning}"
    if not plan.applied:
        yield "as the algorithm says: nothing is changed about the step"


def staleness(found: Staleness) -> Iterator[str]:
    """How far behind samples are where they may be, and how many are never trained on; nothing for a synchronous plan."""
    if found.bound:
        ages = ", ".join(f"{age}: {percent(share)}" for age, share in enumerate(found.shares) if share)
        yield f"samples are {found.mean:.2f} publications behind on average, at most {found.bound} ({ages})"
    if found.lost:
        yield f"{percent(found.lost)} of what is generated is turned down"


def differences(plan: Plan, other: Plan) -> Iterator[str]:
    """What another plan has otherwise: a line for each stage that it has too, and one for its structure."""
    for a in plan.assignments:
        theirs = next(
            (b for b in other.assignments if a.stage in b.stage.split("+")), None
        )  # or what it is fused into
        if theirs is None or not (isinstance(a.block, Devices) and isinstance(theirs.block, Devices)):
            continue
        cells = zip(_NAMED, _row(other, theirs), _row(plan, a), strict=True)
        changed = [f"{name}{b} instead of {own}" for name, b, own in cells if b != own]
        if changed:
            yield f"{a.stage}: {', '.join(changed)}"
    if plan.applied != other.applied:
        yield f"structure: {_structure(other)} instead of {_structure(plan)}"


_NAMED = ("", "devices ", "", "batch ", "recompute ", "")


def _structure(plan: Plan) -> str:
    return ", ".join(plan.applied) or "no changes"


def _row(plan: Plan, a: Assignment) -> tuple[str, ...]:
    assert isinstance(a.block, Devices)
    kind = plan.graph.stage(a.stage).kind
    recompute = a.recompute if kind is Kind.TRAIN else ""
    return a.stage, ranges(a.block.ids), str(a.parallelism), str(a.microbatch), recompute, _at_rest(a, kind)


def _at_rest(a: Assignment, kind: Kind) -> str:
    if a.offload == "none":
        return "on the device"
    return (
        "asleep" if kind is Kind.GENERATE else f"{'all' if a.offload == 'all' else 'optimizer'} on the host"
    )
