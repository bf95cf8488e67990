"""Groups of outcomes with their statistics, and the JSON form of a whole validation."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rpeg.validation.evaluate import Evaluation, Judged
from rpeg.validation.outcome import KINDS, Kind, Outcome
from rpeg.validation.statistics import Fits, Statistics, fits, statistics

Key = TypeVar("Key", bound=Hashable)
_IDS_NAMED = 5


@dataclass(frozen=True)
class Group:
    """Statistics of some records of one kind. source: "" where they are of several."""

    kind: Kind
    source: str
    statistics: Statistics
    fits: Fits
    judged: tuple[Judged, ...]

    def worst(self, count: int) -> tuple[Judged, ...]:
        """The records that are furthest off."""
        return tuple(sorted(_compared(self.judged), key=lambda one: -_factor(one.outcome))[:count])

    def to_json(self, worst: int = 0) -> dict[str, Any]:
        """Shares as fractions of 1; `fits` only where something is known of what fits, `worst` where asked."""
        s, f = self.statistics, self.fits
        out: dict[str, Any] = {"kind": self.kind, "count": s.count, "predicted": s.predicted}
        out |= {"mape": s.mape, "median_ape": s.median_ape, "p90_ape": s.p90_ape, "bias": s.bias}
        out |= {"spearman": s.spearman, "ordered": s.ordered, "pairs": s.pairs}
        if f != Fits():
            parts = {"ran": f.ran, "oom": f.oom, "crashed_or_oom": f.crashed}
            out["fits"] = {key: {"fits": part[0], "does_not_fit": part[1]} for key, part in parts.items()}
            out["fits"] |= {"false_alarms": f.false_alarms, "right": f.right}
        if worst:
            out["worst"] = [_outcome_json(one.outcome) for one in self.worst(worst)]
        return out


@dataclass(frozen=True)
class Reason:
    """Why records of a kind were not predicted. ids: of the first few."""

    kind: Kind
    reason: str
    count: int
    core: int
    ids: tuple[str, ...]


@dataclass(frozen=True)
class Summary:
    """A validation; `suspect` records are in none of the groups, only counted."""

    sources: tuple[Group, ...]
    overall: tuple[Group, ...]
    core: tuple[Group, ...]
    unpredicted: tuple[Reason, ...]
    suspect: Mapping[Kind, int]
    evaluation: Evaluation
    broken: tuple[str, ...] = ()

    def to_json(self, worst: int = 0) -> dict[str, Any]:
        """`sources`, `overall`, `core` as `Group.to_json`; a source of several kinds has a further entry NAME [kind].

        mape_by_source: mean over the sources of their mape. ordered_by_source: of pairs within one source.
        """

        def kinds(groups: Sequence[Group], core: bool) -> dict[str, Any]:
            return {g.kind: g.to_json(worst) | self._by_source_json(g.kind, core) for g in groups}

        return {
            "sources": {name: group.to_json(worst) for name, group in _named(self.sources).items()},
            "overall": kinds(self.overall, core=False),
            "core": kinds(self.core, core=True),
            "unpredicted": [
                {"kind": r.kind, "reason": r.reason, "count": r.count, "core": r.core, "ids": list(r.ids)}
                for r in self.unpredicted
            ],
            "suspect": dict(self.suspect),
            "other_records": dict(self.evaluation.others),
            "broken": list(self.broken),
            "bugs": [{"id": b.id, "kind": b.kind, "what": b.what} for b in self.evaluation.bugs],
        }

    def by_source(self, kind: Kind, *, core: bool = False) -> float | None:
        """Mean over the sources of a kind of their mean absolute percentage errors."""
        means = [s.mape for s in self._of_sources(kind, core) if s.mape is not None]
        return sum(means) / len(means) if means else None

    def _of_sources(self, kind: Kind, core: bool) -> list[Statistics]:
        groups = [g for g in self.sources if g.kind == kind]
        if not core:
            return [g.statistics for g in groups]
        return [_group(kind, g.source, [j for j in g.judged if j.outcome.core]).statistics for g in groups]

    def _by_source_json(self, kind: Kind, core: bool) -> dict[str, Any]:
        found = self._of_sources(kind, core)
        pairs = sum(s.pairs for s in found)
        right = sum(s.ordered * s.pairs for s in found if s.ordered is not None)
        ordered = right / pairs if pairs else None
        return {"mape_by_source": self.by_source(kind, core=core), "ordered_by_source": ordered}


def summarise(evaluation: Evaluation, broken: Sequence[str] = ()) -> Summary:
    """The groups and counts of an evaluation."""
    trusted = [one for one in evaluation.judged if not one.outcome.suspect]
    suspect = _grouped((one for one in evaluation.judged if one.outcome.suspect), lambda o: o.kind)
    by_source = _grouped(trusted, lambda o: (o.kind, o.source))
    ordered = sorted(by_source.items(), key=lambda item: (KINDS.index(item[0][0]), item[0][1]))
    return Summary(
        sources=tuple(_group(kind, source, rows) for (kind, source), rows in ordered),
        overall=_by_kind(trusted),
        core=_by_kind([one for one in trusted if one.outcome.core]),
        unpredicted=_reasons(trusted),
        suspect={kind: len(rows) for kind, rows in suspect.items()},
        evaluation=evaluation,
        broken=tuple(broken),
    )


def _group(kind: Kind, source: str, judged: Sequence[Judged]) -> Group:
    compared = [one.outcome for one in _compared(judged)]
    measured = [o.measured for o in compared if o.measured is not None]
    predicted = [o.predicted for o in compared if o.predicted is not None]
    seen = [
        (o.fits, o.confirmed, o.predicted_fits)
        for o in (one.outcome for one in judged)
        if o.fits is not None and o.predicted_fits is not None
    ]
    count = sum(not _label_only(one.outcome) for one in judged)
    return Group(kind, source, statistics(count, measured, predicted), fits(seen), tuple(judged))


def _by_kind(judged: Sequence[Judged]) -> tuple[Group, ...]:
    grouped = _grouped(judged, lambda outcome: outcome.kind)
    return tuple(_group(kind, "", grouped[kind]) for kind in KINDS if kind in grouped)


def _compared(judged: Iterable[Judged]) -> list[Judged]:
    return [one for one in judged if one.outcome.error is not None]


def _label_only(outcome: Outcome) -> bool:
    """It says that a setting did not run, and has no number to compare with."""
    return outcome.fits is False and outcome.measured is None


def _factor(outcome: Outcome) -> float:
    """How many times too much or too little: twice and half are equally bad."""
    assert outcome.predicted is not None
    assert outcome.measured is not None
    return max(outcome.predicted / outcome.measured, outcome.measured / outcome.predicted)


def _reasons(judged: Iterable[Judged]) -> tuple[Reason, ...]:
    """Of records with neither an error nor a label that was predicted; most frequent first within each kind."""
    missed = [one for one in judged if one.outcome.error is None and one.outcome.predicted_fits is None]
    grouped = _grouped(missed, lambda outcome: (outcome.kind, outcome.reason or "no figure to compare with"))
    reasons = [
        Reason(
            kind,
            reason,
            len(rows),
            sum(one.outcome.core for one in rows),
            tuple(one.outcome.id for one in rows[:_IDS_NAMED]),
        )
        for (kind, reason), rows in grouped.items()
    ]
    return tuple(sorted(reasons, key=lambda r: (KINDS.index(r.kind), -r.count, r.reason)))


def _named(groups: Iterable[Group]) -> dict[str, Group]:
    """Each source under its name; its further kinds under ``NAME [kind]``."""
    out: dict[str, Group] = {}
    for group in groups:
        out[group.source if group.source not in out else f"{group.source} [{group.kind}]"] = group
    return out


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    return {key: getattr(outcome, key) for key in ("id", "setting", "measured", "predicted", "unit", "error")}


def _grouped(judged: Iterable[Judged], key: Callable[[Outcome], Key]) -> dict[Key, list[Judged]]:
    out: dict[Key, list[Judged]] = {}
    for one in judged:
        out.setdefault(key(one.outcome), []).append(one)
    return out
