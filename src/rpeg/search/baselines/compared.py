"""Families as estimated baselines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rpeg.search.baselines.family import Family
from rpeg.search.candidate import Baseline, Candidate, Misfit
from rpeg.search.estimator import Estimator, Sketch
from rpeg.search.placements import sizes_of


@dataclass
class Compared:
    """The best member of each family; of families that include others never slower than those."""

    estimator: Estimator
    _known: dict[str, Baseline] = field(default_factory=dict)

    def baseline(self, family: Family) -> Baseline:
        """Its best member over many steps, or why there is none."""
        if family.name not in self._known:
            self._known[family.name] = self._baseline(family)
        return self._known[family.name]

    def _baseline(self, family: Family) -> Baseline:
        if family.refused:
            return Baseline(family.name, None, family.refused)
        finals = [b.candidate for f in family.includes if (b := self.baseline(f)).candidate is not None]
        sketched = list(self._sketched(family, min(map(_mean_seconds, finals), default=math.inf)))
        found = [one for one in sketched if isinstance(one, Sketch)]
        finals += [self.estimator.final(one) for one in self._leading(found)]
        if not finals:
            return Baseline(family.name, None, _reason([one for one in sketched if isinstance(one, Misfit)]))
        return Baseline(family.name, min(finals, key=_mean_seconds))

    def _sketched(self, family: Family, limit: float) -> Iterator[Sketch | Misfit]:
        """Members over a few steps; of a family that works in turn those whose stages alone take less than the best."""
        alone = self.estimator.in_turn_seconds
        bounds = {m.name: alone(m) if family.in_turn else 0.0 for m in family.members}
        for member in sorted(family.members, key=lambda m: bounds[m.name]):
            if bounds[member.name] >= limit < math.inf:
                break
            found = self.estimator.sketched(member)
            if isinstance(found, Sketch):
                limit = min(limit, found.seconds)
            yield found

    def _leading(self, found: Sequence[Sketch]) -> list[Sketch]:
        """The fastest, or the same with all offloaded that can be: what rests on a device takes room from a cache."""
        if not found:
            return []
        best = min(found, key=lambda one: one.seconds)
        if self.estimator.problem.is_local:
            return [best]
        *_, least = sizes_of(self.estimator.problem)
        emptied = self.estimator.sketch(best.construction, least)
        return [emptied if isinstance(emptied, Sketch) and emptied.seconds < best.seconds else best]


def _mean_seconds(candidate: Candidate) -> float:
    return candidate.estimate.step.mean_seconds


def _reason(misfits: Sequence[Misfit]) -> str:
    """Of the member that came nearest to fitting."""
    if not misfits:
        return "no plan of this kind"
    short = [one for one in misfits if one.short_bytes]
    return min(short, key=lambda one: one.short_bytes).reason if short else misfits[0].reason
