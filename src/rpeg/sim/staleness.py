"""How old the weights are that a run's samples come from: not the bound, but what happens under it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from rpeg.ir import Kind
from rpeg.plan import Item
from rpeg.trace import Trace, What


@dataclass(frozen=True)
class Staleness:
    """Over some steps of a trace.

    shares: of the samples, by age: entry k is the share that a version k publications older generated than the one that
    is trained when they are (waiting in queues included). bound: the greatest age that the plan allows.
    lost: of the generated samples, the share that a selector turned down.
    """

    shares: tuple[float, ...]
    bound: int
    lost: float

    @property
    def mean(self) -> float:
        """Publications that a sample is behind on average."""
        return sum(age * share for age, share in enumerate(self.shares))


def staleness(trace: Trace, steps: Collection[int]) -> Staleness:
    """Of the samples that were generated for these steps, by whichever generator."""
    graph = trace.plan.graph
    generators = {s.name for s in graph.stages if s.kind is Kind.GENERATE} - graph.observers()
    delays = [edge.delay for name in generators for edge in graph.weights_into(name)]
    versions: dict[Item, int] = {}
    ages: Counter[int] = Counter()
    lost = 0
    for entry in trace.entries:
        if entry.item.step not in steps:
            continue
        if entry.what is What.LAUNCH and entry.item.name in generators and entry.versions:
            versions[entry.item] = min(entry.versions.values())
        elif entry.what is What.PRODUCED and entry.item in versions:
            ages[entry.item.step - versions[entry.item]] += len(entry.ids)
        elif entry.what is What.REJECTED:
            lost += len(entry.ids)
    total = sum(ages.values())
    shares = tuple(ages[age] / total for age in range(max(ages) + 1)) if total else ()
    return Staleness(shares, max((delay - 1 for delay in delays), default=0), lost / total if total else 0.0)
