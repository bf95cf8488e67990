"""Plans with their estimates: what a ranking is made of."""

from __future__ import annotations

from dataclasses import dataclass

from rpeg.plan import Plan
from rpeg.search.constructions import Construction
from rpeg.search.infeasible import Shortage
from rpeg.sim import Estimate
from rpeg.transforms import Changes


@dataclass(frozen=True)
class Candidate:
    """A plan that fits, and what it is estimated to take."""

    construction: Construction
    plan: Plan
    estimate: Estimate

    @property
    def name(self) -> str:
        return self.construction.name

    @property
    def changes(self) -> tuple[str, ...]:
        """The transforms that change what is learned, as text."""
        return tuple(str(t) for t in self.construction.applied if t.changes is not Changes.SCHEDULE)


@dataclass(frozen=True)
class Misfit:
    """A construction that cannot be had. short_bytes: what is missing on its tightest device; 0 for another reason."""

    name: str
    reason: str
    short_bytes: float = 0.0
    shortage: Shortage | None = None


@dataclass(frozen=True)
class Baseline:
    """A plan that people would run without a search. name: what it is known as.

    candidate: None where there is none. reason: why, in one line.
    """

    name: str
    candidate: Candidate | None
    reason: str = ""


@dataclass(frozen=True)
class Ranked:
    """Candidates by mean step time, and what was left out; of those as fast as the fastest the simplest is first.

    baselines: what the best one is compared with, each estimated as the candidates are.
    """

    candidates: tuple[Candidate, ...]
    misfits: tuple[Misfit, ...]
    baselines: tuple[Baseline, ...] = ()

    @property
    def best(self) -> Candidate:
        return self.candidates[0]
