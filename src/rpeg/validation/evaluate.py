"""Predicting every record: outcomes, and what could not be predicted and why."""

from __future__ import annotations

import importlib
import math
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rpeg.errors import InputError, nearest
from rpeg.validation.form import check_form
from rpeg.validation.kinds import described, did_not_run, is_confirmed, kind_of_record
from rpeg.validation.outcome import KINDS, Kind, Outcome
from rpeg.validation.read import Located
from rpeg.validation.repeats import repeated

Record = Mapping[str, Any]
Predict = Callable[[Record], Outcome]

_READERS: Mapping[Kind, str] = {kind: kind.partition("_")[0] for kind in KINDS}


@dataclass(frozen=True)
class Bug:
    """An error that no input should cause. where: file and line that raised it."""

    id: str
    kind: Kind
    what: str
    where: str


@dataclass(frozen=True)
class Judged:
    """A record and its outcome, which is kept without its cost tree (`explained` makes it again)."""

    row: Located
    outcome: Outcome


@dataclass(frozen=True)
class Evaluation:
    """judged: the records of some kind, in their order.

    others: how many records of no kind there are, by what they are. bugs: errors of the model's own.
    """

    judged: tuple[Judged, ...]
    others: Mapping[str, int] = field(default_factory=dict)
    bugs: tuple[Bug, ...] = ()

    @property
    def outcomes(self) -> tuple[Outcome, ...]:
        """Of all judged records."""
        return tuple(one.outcome for one in self.judged)


def predictors() -> dict[Kind, Predict]:
    """The reader of each kind of record."""
    return {
        kind: importlib.import_module(f"rpeg.validation.{module}").predict
        for kind, module in _READERS.items()
    }


def select(
    records: Iterable[Located], kinds: Sequence[str] = (), sources: Sequence[str] = ()
) -> list[Located]:
    """The records of these kinds whose source has one of these words in its name; all where nothing is asked.

    InputError names a kind that does not exist, or a source that no record has.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise InputError(f"there is no kind of record '{kind}'. {nearest(kind, KINDS)}")
    rows = [row for row in records if not kinds or kind_of_record(row.record) in kinds]
    for source in sources:
        if not any(source.lower() in row.source.lower() for row in rows):
            raise InputError(
                f"no record has the source '{source}'. {nearest(source, {r.source for r in rows})}"
            )
    return [row for row in rows if not sources or any(s.lower() in row.source.lower() for s in sources)]


def evaluate(
    records: Iterable[Located],
    predict: Mapping[Kind, Predict] | None = None,
    advance: Callable[[], None] = lambda: None,
) -> Evaluation:
    """Predicts each record by the reader of its kind, each measurement once; `advance` is called after each.

    What a reader refuses (InputError) is an outcome with the reason; any other error is a `Bug`, and an outcome that
    names it.
    """
    readers = predictors() if predict is None else predict
    judged: list[Judged] = []
    bugs: list[Bug] = []
    others: Counter[str] = Counter()
    rows = list(records)
    again = repeated([row.record for row in rows])
    for position, row in enumerate(rows):
        kind = kind_of_record(row.record)
        if kind is None:
            others[described(row.record)] += 1
        elif position in again:
            others[f"{kind}: measurements that another record states too, counted once"] += 1
        else:
            one, bug = _judged(row, kind, readers)
            judged.append(one)
            bugs.extend([] if bug is None else [bug])
        advance()
    return Evaluation(tuple(judged), dict(others), tuple(bugs))


def explained(judged: Judged, predict: Mapping[Kind, Predict] | None = None) -> Outcome:
    """The outcome with its cost tree."""
    return _outcome(judged.row, judged.outcome.kind, predictors() if predict is None else predict)


def _judged(row: Located, kind: Kind, readers: Mapping[Kind, Predict]) -> tuple[Judged, Bug | None]:
    try:
        return Judged(row, replace(_outcome(row, kind, readers), cost=None)), None
    except Exception as error:  # noqa: BLE001
        # one record's bug is reported, and the others go on
        bug = _bug(row, kind, error)
        return Judged(row, _refused(row, kind, f"a bug: {bug.what}")), bug


def _outcome(row: Located, kind: Kind, readers: Mapping[Kind, Predict]) -> Outcome:
    """What the reader says, with what the record itself says of its identity and standing."""
    try:
        check_form(row.record, kind)
        outcome = readers[kind](_with_shape(row.record, kind))
    except InputError as error:
        return _refused(row, kind, str(error))
    if outcome.predicted is not None and not (math.isfinite(outcome.predicted) and outcome.predicted > 0):
        raise ValueError(f"predicted {outcome.predicted} {outcome.unit}")
    reason = outcome.reason
    if outcome.measured is not None and not outcome.measured > 0:
        outcome, reason = replace(outcome, measured=None), f"measured {outcome.measured} {outcome.unit}"
    if outcome.predicted is None and not reason:
        raise ValueError("neither a prediction nor a reason for none")
    return replace(_standing(outcome, row.record), id=row.id, source=row.source, kind=kind, reason=reason)


def _with_shape(record: Record, kind: Kind) -> Record:
    """A model that is given by its name alone as the object that readers of shapes take."""
    model = record.get("model")
    shaped = kind in ("train", "infer_static", "infer_loop", "memory")
    return {**record, "model": {"name": model}} if shaped and isinstance(model, str) else record


def _refused(row: Located, kind: Kind, reason: str) -> Outcome:
    return _standing(Outcome(row.id, row.source, kind, "", None, reason=reason), row.record)


def _standing(outcome: Outcome, record: Record) -> Outcome:
    failed = did_not_run(record)
    return replace(
        outcome,
        core=record.get("core") is True,
        suspect=bool(record.get("suspect")),
        fits=False if failed else outcome.fits,
        confirmed=not failed or is_confirmed(record),
    )


def _bug(row: Located, kind: Kind, error: Exception) -> Bug:
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return Bug(row.id, kind, f"{type(error).__name__}: {error}", where)
