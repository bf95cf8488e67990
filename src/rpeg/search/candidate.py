"""Plans with their estimates: what a ranking is made of."""

from __future__ import annotations

from dataclasses import dataclass

from rpeg.errors import InfeasibleError
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

    baselines: what the best one is compared with, each estimated as the candidates are. own: the plan of the layouts
    that the job gives; None where it gives none.
    """

    candidates: tuple[Candidate, ...]
    misfits: tuple[Misfit, ...]
    baselines: tuple[Baseline, ...] = ()
    own: Baseline | None = None

    @property
    def best(self) -> Candidate:
        return self.candidates[0]

    @property
    def chosen(self) -> Candidate:
        """What the job asks for, else the best. Raises InfeasibleError where what it asks for cannot be had."""
        if self.own is None:
            return self.best
        if self.own.candidate is None:
            raise InfeasibleError(self.why_not_own)
        return self.own.candidate

    @property
    def why_not_own(self) -> str:
        """What is wrong with the layouts that the job gives, and the way out; "" where nothing is."""
        if self.own is None or self.own.candidate is not None:
            return ""
        return (
            f"there is no plan of the layouts that the job gives: {self.own.reason}. Change plan.layouts, or leave it "
            f"out: the best plan is {self.best.name}"
        )
