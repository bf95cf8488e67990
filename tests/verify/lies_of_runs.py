"""Lies that only all stretches of a resumed run tell together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

from rpeg.ir import Kind
from rpeg.verify import Evidence, effective_stretches
from verify.lies import Run, of_run, pick, with_ids, with_spans, work_of


@of_run("stretches_are_of_one_plan")
def a_stretch_is_of_another_workload(run: Run, draw: Random) -> Run | None:
    if len(run) < 2:
        return None
    at = draw.randrange(1, len(run))
    plan, workload = run[at].plan, run[at].plan.workload
    lengths = workload.response_lengths
    other = replace(lengths, values=tuple(n + 1 for n in lengths.values))
    changed = replace(run[at], plan=replace(plan, workload=replace(workload, response_lengths=other)))
    return (*run[:at], changed, *run[at + 1 :])


@of_run("stretches_are_of_one_plan")
def a_stretch_is_of_another_seed(run: Run, draw: Random) -> Run | None:
    if len(run) < 2 or any(trace.seed is None for trace in run):
        return None
    at = draw.randrange(1, len(run))
    return (*run[:at], replace(run[at], seed=(run[at].seed or 0) + 1), *run[at + 1 :])


def _owned(run: Run) -> Mapping[int, int]:
    return effective_stretches([t.first_step for t in run], max(t.steps for t in run))


@of_run("every_step_is_trained_once")
def a_step_is_trained_by_no_stretch(run: Run, draw: Random) -> Run | None:
    """A stretch ends before the last step that it is counted for."""
    if len(run) < 2:
        return None
    owned = _owned(run)
    steps = [step for step, i in owned.items() if i < len(run) - 1]
    step = pick(draw, steps)
    if step is None:
        return None
    trace = run[owned[step]]
    evidence = Evidence(trace)
    trainers = [s.name for s in trace.plan.graph.stages if s.kind is Kind.TRAIN and step % s.every == 0]
    ends = [e for item, e in evidence.finished.items() if item.name in trainers and item.step == step]
    if not ends:
        return None
    end = min(e.seq for e in ends)
    entries = tuple(e for e in trace.entries if e.seq < end)
    spans = tuple(s for s in trace.spans if s.launch < end)
    at = owned[step]
    return (*run[:at], replace(trace, entries=entries, spans=spans, complete=False), *run[at + 1 :])


@of_run("every_sample_counts_once")
def two_stretches_train_a_sample(run: Run, draw: Random) -> Run | None:
    if len(run) < 2:
        return None
    owned = _owned(run)
    at = len(run) - 1
    here = [e for e in work_of(run[at], Kind.TRAIN) if owned.get(e.item.step) == at]
    there = [
        e
        for i, trace in enumerate(run[:at])
        for e in work_of(trace, Kind.TRAIN)
        if owned.get(e.item.step) == i
    ]
    pair = pick(draw, ((a, b) for a in here for b in there if a.item.name == b.item.name))
    if pair is None:
        return None
    own, other = pair[0].ids[0], draw.choice(pair[1].ids)
    changed = with_ids(
        run[at],
        lambda item, ids: tuple(other if i == own else i for i in ids) if item == pair[0].item else ids,
    )
    return (*run[:at], changed)


@of_run("resumed_weights_are_those_left")
def a_stretch_begins_with_other_weights(run: Run, draw: Random) -> Run | None:
    """Told alike by all of it."""
    if len(run) < 2:
        return None
    owned = [effective_stretches([t.first_step for t in run[:i]], t.first_step) for i, t in enumerate(run)]
    found = []
    for i, trace in enumerate(run[1:], 1):
        first = trace.first_step
        left = run[owned[i][first - 1]] if first - 1 in owned[i] else None
        names = {n for s in trace.spans for n in s.digests if n.endswith(f"@{first}")}
        left_names = {n for s in left.spans for n in s.digests} if left else set()
        found += [(i, name) for name in sorted(names & left_names)]
    pair = pick(draw, found)
    if pair is None:
        return None
    at, name = pair
    changed = with_spans(
        run[at],
        lambda s: replace(s, digests={k: f"{d}'" if k == name else d for k, d in s.digests.items()}),
    )
    return (*run[:at], changed, *run[at + 1 :])
