"""`generate_stage`: a GENERATE stage of drawn lengths, integrated over the changing set of running samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from rpeg.architecture import Architecture
from rpeg.cost.execution import Execution
from rpeg.cost.generating.batch import Batch, deal
from rpeg.cost.generating.capacity import pool_of
from rpeg.cost.generating.forward import Forward, Leaf, forward_of
from rpeg.cost.generating.generation import Generation
from rpeg.cost.generating.lengths import Lengths
from rpeg.cost.generating.load import decode
from rpeg.cost.generating.places import Places, places
from rpeg.cost.generating.policy import Batching, Policy
from rpeg.cost.generating.prompts import Prompts, between, together
from rpeg.cost.generating.timeline import Intervals, Timeline, intervals, timeline
from rpeg.cost.kernels import Amount
from rpeg.cost.machine import Machine
from rpeg.cost.tree import Cost, sequence

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Stretches of a replica's course that get a step time of their own, and of all replicas together.
_STRETCHES, _ALL_STRETCHES, _FEWEST = 48, 512, 12
_ENGINE = Policy()


def generate_stage(
    architecture: Architecture,
    prompt_lengths: Ints,
    response_lengths: Ints,
    execution: Execution,
    machine: Machine,
    *,
    samples_per_prompt: int = 1,
    policy: Policy = _ENGINE,
) -> Generation:
    """Time of generating these samples, the completion of each of them, and why.

    prompt_lengths, response_lengths: (samples,) tokens, group after group of `samples_per_prompt`. Data-parallel
    replicas get blocks of whole groups; the gang ends with the slowest. InputError where the layout does not divide
    the model or groups are not whole, InfeasibleError where weights or the longest sample do not fit.

    What was asked is kept. Lengths in read-only arrays are found by their identity, others by their values.
    """
    lengths = Lengths.of(prompt_lengths, response_lengths)
    return _generated(architecture, lengths, execution, machine, samples_per_prompt, policy)


def completions(
    architecture: Architecture,
    batches: Sequence[tuple[Ints, Ints]],
    execution: Execution,
    machine: Machine,
    *,
    samples_per_prompt: int = 1,
    policy: Policy = _ENGINE,
) -> list[tuple[float, Floats]]:
    """(seconds, offset of each sample) of each of many batches, as `generate_stage` has them, without the trees.

    batches: prompt and response lengths of each. Kernels are asked once, for all batches together.
    """
    forward = forward_of(architecture, execution, machine, policy.overlapped)
    runs = [
        _run(forward, Lengths.of(*batch), execution, machine, samples_per_prompt, policy) for batch in batches
    ]
    found = []
    for run, passes in zip(runs, _passes(forward, runs), strict=True):
        offsets, entries = _completed(run, passes)
        slowest = int(np.argmax(_ends(run.batch, offsets)))
        steps = np.where(run.course.rows > 0, run.course.steps, 0.0) * _total(passes.steps)
        first = np.broadcast_to(_total(passes.first), (run.batch.replicas,))
        seconds = first[slowest] + entries[slowest].sum() + steps[slowest].sum()
        found.append((float(seconds), offsets.ravel()[run.batch.order]))
    return found


@lru_cache(maxsize=256)
def _generated(
    architecture: Architecture,
    drawn: Lengths,
    execution: Execution,
    machine: Machine,
    samples_per_prompt: int,
    policy: Policy,
) -> Generation:
    forward = forward_of(architecture, execution, machine, policy.overlapped)
    run = _run(forward, drawn, execution, machine, samples_per_prompt, policy)
    return _timed(forward, run, _passes(forward, [run])[0])


@dataclass(frozen=True)
class _Run:
    """A batch on the replicas, in steps: when its samples start and end, and the stretches of its course."""

    batch: Batch
    room: Places
    line: Timeline
    course: Intervals


@dataclass(frozen=True)
class _Passes:
    """Of a run: prompts at first, (replicas,); a prompt of those that enter later; steps, (replicas, stretches)."""

    first: list[Leaf]
    later: list[Leaf]
    steps: list[Leaf]


def _run(
    forward: Forward,
    drawn: Lengths,
    execution: Execution,
    machine: Machine,
    samples_per_prompt: int,
    policy: Policy,
) -> _Run:
    layout = forward.layout
    batch = deal(drawn, samples_per_prompt, policy.share_prefixes, layout.replicas)
    pool = pool_of(forward.architecture, execution, machine, policy)
    sharing = samples_per_prompt if policy.share_prefixes else 1
    limit = (policy.max_rows or forward.serving.max_rows) * layout.attention_dp
    room = places(batch, pool, sharing, limit, layout.attention_dp)
    return _Run(batch, room, *_course(batch, room.count, policy.batching))


def _passes(forward: Forward, runs: Sequence[_Run]) -> list[_Passes]:
    """Of each run; kernels are asked for all runs together."""
    rows, context = (
        np.concatenate([getattr(run.course, name) for run in runs]) for name in ("rows", "context")
    )
    steps = forward.leaves(decode(np.maximum(rows, 1.0), context))
    first = together(forward, _all_first(runs))
    entering = [i for i, run in enumerate(runs) if run.batch.heads[:, run.room.count :].any()]
    later = _later(forward, [runs[i] for i in entering]) if entering else []
    found, start = [], 0
    for i, run in enumerate(runs):
        own = slice(start, start + run.batch.replicas)
        start = own.stop
        at = entering.index(i) if i in entering else None
        found.append(
            _Passes(
                [leaf.at(own) for leaf in first],
                [] if at is None else [leaf.at(slice(at, at + 1)) for leaf in later],
                [leaf.at(own) for leaf in steps],
            )
        )
    return found


@lru_cache(maxsize=32)
def _course(batch: Batch, count: int, batching: Batching) -> tuple[Timeline, Intervals]:
    """In steps the course of a batch is the same on any hardware."""
    lengths = batch.responses if batching == "continuous" else _padded(batch.responses, count)
    steps = np.maximum(lengths - 1, 0)  # a sample's first token comes with its prompt
    line = timeline(batch.prompts, steps, count)
    return line, intervals(line, max(_FEWEST, min(_STRETCHES, _ALL_STRETCHES // batch.replicas)))


def _padded(responses: Ints, rows: int) -> Ints:
    """Each sample as long as the longest of its static batch; places without a sample stay empty."""
    out = responses.copy()
    for start in range(0, responses.shape[1], rows):
        part = out[:, start : start + rows]
        part[:] = np.where(part > 0, part.max(axis=1, keepdims=True), 0)
    return out


def _completed(run: _Run, passes: _Passes) -> tuple[Floats, Floats]:
    """(replicas, samples) seconds until each sample is complete, and of its prompt where it enters later."""
    entries = _entries(run.batch, passes.later, run.room.count)
    return _offsets(run.line, run.course, _total(passes.first), _total(passes.steps), entries), entries


def _ends(batch: Batch, offsets: Floats) -> Floats:
    """(replicas,) seconds until each is done."""
    return np.asarray(np.where(batch.responses > 0, offsets, 0.0).max(axis=1, initial=0.0))


def _timed(forward: Forward, run: _Run, passes: _Passes) -> Generation:
    batch, room, later = run.batch, run.room, passes.later
    offsets, entries = _completed(run, passes)
    ends = _ends(batch, offsets)
    slowest = int(np.argmax(ends))
    repeats = np.where(run.course.rows > 0, run.course.steps, 0.0)
    parts = [_cost("prefill", passes.first, np.ones(batch.replicas), slowest, forward)]
    if entries.any():
        share = np.asarray(entries.sum(axis=1) / max(float(_total(later)[0]), 1e-30))
        parts.append(
            _cost("prefill of later samples", [one.number for one in later], share, slowest, forward)
        )
    parts.append(_cost("decode", passes.steps, repeats, slowest, forward))
    return Generation(
        sequence("generate", parts),
        offsets.ravel()[batch.order],
        ends,
        int(batch.responses.sum()),
        room.count,
        room.preempted * batch.replicas,
    )


def _all_first(runs: Sequence[_Run]) -> Prompts:
    """Prompts of the samples that start at once, and what preempted ones have to repeat; (replicas of all runs,)."""
    found = [_first(run.batch, run.room) for run in runs]
    tokens, pairs, count = (
        np.concatenate([getattr(one, name) for one in found]) for name in ("tokens", "pairs", "count")
    )
    return Prompts(tokens, pairs, count)


def _first(batch: Batch, room: Places) -> Prompts:
    """The same of one run; (replicas,) arrays."""
    heads = batch.heads[:, : room.count].astype(np.float64)
    again = room.preempted * room.preempted_tokens
    return Prompts(
        heads.sum(axis=1) + again,
        (heads * heads).sum(axis=1) / 2 + again * room.preempted_tokens / 2,
        (heads > 0).sum(axis=1) + float(room.preempted),
    )


def _later(forward: Forward, runs: Sequence[_Run]) -> list[Leaf]:
    """What a prompt of the mean length of those that enter later takes, of each run."""
    rows = []
    for run in runs:
        course, heads = run.course, run.batch.heads[:, run.room.count :]
        context = float(
            (course.context * course.rows * course.steps).sum() / (course.rows * course.steps).sum()
        )
        a_step = run.room.count / max(1.0, float(run.batch.responses[run.batch.responses > 0].mean()))
        rows.append((float(heads[heads > 0].mean()), float(run.room.count), context, a_step))
    length, count, context_, a_step_ = np.array(rows).T
    leaves, times = between(forward, length, count, context_, a_step_)
    return [leaf.times(times) for leaf in leaves]


def _entries(batch: Batch, later: list[Leaf], count: int) -> Floats:
    """(replicas, samples) seconds of each sample's prompt, 0 for those that start at once."""
    seconds = np.zeros(batch.heads.shape)
    heads = batch.heads[:, count:]
    if later:
        seconds[:, count:] = heads * (float(_total(later)[0]) / float(heads[heads > 0].mean()))
    return seconds


def _offsets(line: Timeline, course: Intervals, first: Floats, step: Floats, entries: Floats) -> Floats:
    """(replicas, samples) seconds until each sample is complete."""
    spent = np.cumsum(np.where(course.rows > 0, step, 0.0) * course.steps, axis=1)
    clock = np.concatenate([np.zeros((len(spent), 1)), spent], axis=1)
    # Replicas one after another on one axis, so that all are asked at once.
    shift = (float(course.edges.max()) + 1.0) * np.arange(len(clock))[:, None]
    ends = (line.ends + shift).ravel()
    out = np.interp(ends, (course.edges + shift).ravel(), clock.ravel()).reshape(line.ends.shape)
    if entries.any():
        replicas, samples = entries.shape
        before = np.searchsorted((line.starts + shift).ravel(), ends).reshape(entries.shape)
        entered = np.maximum(before - samples * np.arange(replicas)[:, None], np.arange(1, samples + 1))
        waited = np.concatenate([np.zeros((replicas, 1)), np.cumsum(entries, axis=1)], axis=1)
        out += np.take_along_axis(waited, entered, axis=1)
    return np.asarray(out + np.atleast_1d(first)[:, None])


def _total(leaves: list[Leaf]) -> Floats:
    return np.asarray(sum(leaf.seconds for leaf in leaves))


def _cost(name: str, leaves: list[Leaf], repeats: Floats, slowest: int, forward: Forward) -> Cost:
    """Seconds of the slowest replica, FLOP and bytes of all devices; the first axis of all arrays is the replica."""
    devices, own, flat = forward.layout.devices, np.atleast_1d(repeats[slowest]), repeats.ravel()
    own_sum, whole = float(own.sum()), float(flat.sum())

    def total(amount: Amount) -> float:
        if isinstance(amount, float) or amount.ndim == 0:
            return float(amount) * whole * devices
        return float(amount.ravel() @ flat) * devices

    def seconds(amount: Amount) -> float:
        if isinstance(amount, float) or amount.ndim == 0:
            return float(amount) * own_sum
        return float(np.atleast_1d(amount[slowest]) @ own)

    return sequence(
        name, [leaf.cost(seconds(leaf.seconds), total(leaf.flops), total(leaf.bytes)) for leaf in leaves]
    )
