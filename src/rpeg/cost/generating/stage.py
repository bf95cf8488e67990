"""`generate_stage`: a GENERATE stage of drawn lengths, integrated over the changing set of running samples."""

from __future__ import annotations

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
    layout = forward.layout
    batch = deal(drawn, samples_per_prompt, policy.share_prefixes, layout.replicas)
    pool = pool_of(architecture, execution, machine, policy)
    sharing = samples_per_prompt if policy.share_prefixes else 1
    limit = (policy.max_rows or forward.serving.max_rows) * layout.attention_dp
    room = places(batch, pool, sharing, limit, layout.attention_dp)
    return _timed(forward, batch, *_course(batch, room.count, policy.batching), room)


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


def _timed(forward: Forward, batch: Batch, line: Timeline, course: Intervals, room: Places) -> Generation:
    steps = forward.leaves(decode(np.maximum(course.rows, 1.0), course.context))
    first = together(forward, _first(batch, room))
    later = _later(forward, batch, course, room)
    entries = _entries(batch, later, room.count)
    offsets = _offsets(line, course, _total(first), _total(steps), entries)
    ends = np.where(batch.responses > 0, offsets, 0.0).max(axis=1, initial=0.0)
    slowest = int(np.argmax(ends))
    repeats = np.where(course.rows > 0, course.steps, 0.0)
    parts = [_cost("prefill", first, np.ones(batch.replicas), slowest, forward)]
    if entries.any():
        share = np.asarray(entries.sum(axis=1) / max(_total(later), 1e-30))
        parts.append(_cost("prefill of later samples", later, share, slowest, forward))
    parts.append(_cost("decode", steps, repeats, slowest, forward))
    return Generation(
        sequence("generate", parts),
        offsets.ravel()[batch.order],
        ends,
        int(batch.responses.sum()),
        room.count,
        room.preempted * batch.replicas,
    )


def _first(batch: Batch, room: Places) -> Prompts:
    """Prompts of the samples that start at once, and what preempted ones have to repeat; (replicas,) arrays."""
    heads = batch.heads[:, : room.count].astype(np.float64)
    again = room.preempted * room.preempted_tokens
    found = Prompts(
        heads.sum(axis=1) + again,
        (heads * heads).sum(axis=1) / 2 + again * room.preempted_tokens / 2,
        (heads > 0).sum(axis=1) + float(room.preempted),
    )
    if batch.replicas > 1:
        return found
    return Prompts(float(found.tokens[0]), float(found.pairs[0]), float(found.count[0]))


def _later(forward: Forward, batch: Batch, course: Intervals, room: Places) -> list[Leaf]:
    """What a prompt of the mean length of those that enter later takes."""
    heads = batch.heads[:, room.count :]
    if not heads.any():
        return []
    context = float((course.context * course.rows * course.steps).sum() / (course.rows * course.steps).sum())
    a_step = room.count / max(1.0, float(batch.responses[batch.responses > 0].mean()))
    leaves, times = between(forward, float(heads[heads > 0].mean()), float(room.count), context, a_step)
    return [leaf.times(times) for leaf in leaves]


def _entries(batch: Batch, later: list[Leaf], count: int) -> Floats:
    """(replicas, samples) seconds of each sample's prompt, 0 for those that start at once."""
    seconds = np.zeros(batch.heads.shape)
    heads = batch.heads[:, count:]
    if later:
        seconds[:, count:] = heads * (_total(later) / float(heads[heads > 0].mean()))
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
