"""What must not change between the stretches of a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Set
from pathlib import Path
from typing import Any

import yaml

from rpeg.errors import InputError
from rpeg.job import Job, dump_job
from rpeg.job.records import read_records
from rpeg.plan import Plan

MAY_CHANGE = frozenset(
    {"name", "output", "steps", "evaluation", "checkpoint", "allow", "plan", "samples", "loggers", "cluster"}
)
"""Sections of a job that a resumed run may have otherwise than the run that it goes on with."""


def check_same_job(job: Job, kept: Path) -> None:
    """Raises InputError naming every key that differs from the job that the run was begun with, with both values.

    More steps would also change a learning rate that falls to zero at the last one.
    """
    free = MAY_CHANGE if job.optimizer.schedule == "constant" else MAY_CHANGE - {"steps"}
    check_same(dump_job(job), kept, free)


def check_same(job: str, kept: Path, free: Set[str]) -> None:
    """As `check_same_job`, for any job as text. free: sections that may differ."""
    if not kept.exists():
        return
    before, now = _read_mapping(kept, yaml.safe_load), yaml.safe_load(job)
    different = [
        f"{key} was {old!r} and is {new!r}"
        for key, old, new in _differences(before, now)
        if key.partition(".")[0] not in free
    ]
    if different:
        raise InputError(
            f"{kept.parent} was begun with another job: {'; '.join(different)}. Go on with the job as it was "
            f"({kept}), or begin anew: --overwrite"
        )


def check_same_work(plan: Plan, kept: Plan, file: Path) -> None:
    """Raises InputError where a plan is not of the graph and the workload that the run was begun with: where stages run,
    and how they are cut, may change from stretch to stretch."""
    for what, old, new in (
        ("graph", kept.graph, plan.graph),
        ("transforms", kept.applied, plan.applied),
        ("workload", kept.workload, plan.workload),
    ):
        if old != new:
            raise InputError(
                f"{file} is of another {what} than the plan given ({kept.graph.name}, {' '.join(kept.applied) or 'no'} "
                f"transforms; {plan.graph.name}, {' '.join(plan.applied) or 'no'} transforms). Give a plan that differs "
                "in layout alone, or begin anew: --overwrite"
            )


def check_same_data(job: Job, kept: Path) -> None:
    """Notes what the prompts are, or raises InputError where they are not what was noted when the run began.

    A resumed run goes on at a place in the data: in other data it would be another place.
    """
    now = {"train": _digest(job)}
    if not kept.exists():
        kept.write_text(json.dumps(now) + "\n", encoding="utf-8")
        return
    before = _read_mapping(kept, json.loads)
    if before != now and not isinstance(before.get("train"), Mapping):
        raise InputError(f"{kept} is damaged. Repair it, or begin anew: --overwrite")
    if before != now:
        raise InputError(
            f"{job.data.train} has {now['train']['records']} records, digest {now['train']['digest']}, and had "
            f"{before['train'].get('records')}, digest {before['train'].get('digest')}, when the run began. Give the "
            "data as they were, or begin anew: --overwrite"
        )


def _read_mapping(file: Path, parse: Callable[[str], Any]) -> Mapping[str, Any]:
    """InputError where a file of the run's directory is not what was written into it."""
    try:
        found = parse(file.read_text(encoding="utf-8"))
    except (ValueError, yaml.YAMLError) as error:
        raise InputError(
            f"{file} is damaged: {str(error).splitlines()[0]}. Repair it, or begin anew: --overwrite"
        ) from None
    if not isinstance(found, Mapping):
        raise InputError(f"{file} is damaged: it has no keys. Repair it, or begin anew: --overwrite")
    return found


def _digest(job: Job) -> dict[str, int | str]:
    records = read_records(job.data.train, job.data.prompt, job.data.answer)
    digest = hashlib.blake2b(digest_size=8)
    for record in records:
        digest.update(json.dumps([record.prompt, record.answer, record.messages]).encode())
    return {"records": len(records), "digest": digest.hexdigest()}


def _differences(
    before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    for key in dict.fromkeys((*before, *now)):
        old, new = before.get(key), now.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _differences(old, new, f"{prefix}{key}.")
        elif old != new:
            yield f"{prefix}{key}", old, new
