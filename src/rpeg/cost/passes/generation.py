"""GENERATE: continuous batching over actual lengths, on one replica."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rpeg.architecture import Architecture
from rpeg.cost.passes import work
from rpeg.cost.passes.host import collecting
from rpeg.cost.passes.slots import Schedule, groups_of, schedule
from rpeg.cost.passes.timing import Timing
from rpeg.cost.tree import Cost, sequence

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Generation:
    """What a replica takes to answer its prompts, and when each sample is there.

    offsets: (n,) seconds from the start to the completion of each sample, in input order.
    """

    cost: Cost
    offsets: Floats

    def completed(self, samples: int) -> float:
        """Seconds until so many samples are complete, whichever they are."""
        return float(np.sort(self.offsets)[samples - 1]) if samples else 0.0


def generate(
    architecture: Architecture,
    prompt_lengths: Ints,
    response_lengths: Ints,
    *,
    samples_per_prompt: int,
    slots: int,
    timing: Timing,
) -> Generation:
    """Prefill, decode with a shrinking and refilled set of active samples, and their departures.

    prompt_lengths, response_lengths: (n,) of this replica's samples, group after group.
    """
    groups = groups_of(len(prompt_lengths), samples_per_prompt)
    plan = schedule(prompt_lengths, response_lengths, groups, slots)
    collect = collecting(len(prompt_lengths), timing)
    cost = sequence("generate", [collect, *_parts(architecture, plan, timing)])
    before_step = np.zeros(plan.steps + 1)
    after_step = np.zeros(plan.steps + 1)
    np.add.at(before_step, plan.admissions[:, 0], _admission_seconds(architecture, plan, timing))
    after_step[1:] = _decode_seconds(architecture, plan, timing) + _leave_seconds(plan, timing)
    # done[s]: admissions up to and including step s, and the decode steps before it
    done = np.cumsum(before_step) + np.cumsum(after_step)
    # a sample leaves after decode step finish − 1: the admission at step `finish` is not yet done, unless the
    # sample came with it and its first token was its last
    leaves = done[plan.finish] - np.where(response_lengths > 1, before_step[plan.finish], 0.0)
    share = np.arange(1, len(leaves) + 1) * (collect.seconds / max(1, len(leaves)))
    offsets = np.empty(len(leaves))
    order = np.argsort(leaves, kind="stable")
    offsets[order] = leaves[order] + share
    return Generation(cost, offsets)


def _parts(architecture: Architecture, plan: Schedule, timing: Timing) -> list[Cost]:
    _, samples, prompts, longest = plan.admissions.T
    some = prompts > 0
    dtype = timing.dtype
    parts = [
        timing.cost(
            "prefill",
            "prefill",
            prompts[some],
            longest[some],
            work=work.prefill(architecture, prompts[some], longest[some], dtype),
        ),
        timing.cost("admit", "admit", samples, work=work.Work(0.0, 0.0, np.ones(len(samples)))),
        timing.cost(
            "decode",
            "decode",
            plan.rows,
            plan.context,
            work=work.decode(architecture, plan.rows, plan.context, dtype),
        ),
    ]
    leaving = plan.leaving[plan.leaving > 0]
    return [*parts, timing.cost("leave", "leave", leaving, work=work.Work(0.0, 0.0, np.ones(len(leaving))))]


def _admission_seconds(architecture: Architecture, plan: Schedule, timing: Timing) -> Floats:
    _, samples, prompts, longest = plan.admissions.T
    passes = timing.seconds(
        "prefill",
        np.maximum(prompts, 1),
        np.maximum(longest, 1),
        work=work.prefill(architecture, prompts, longest, timing.dtype),
    )
    admit = timing.seconds("admit", samples, work=work.Work(0.0, 0.0, np.ones(len(samples))))
    return np.asarray(np.where(prompts > 0, passes, 0.0) + admit)


def _decode_seconds(architecture: Architecture, plan: Schedule, timing: Timing) -> Floats:
    each = work.decode(architecture, plan.rows, plan.context, timing.dtype)
    return timing.seconds("decode", plan.rows, plan.context, work=each)


def _leave_seconds(plan: Schedule, timing: Timing) -> Floats:
    seconds = timing.seconds(
        "leave", np.maximum(plan.leaving, 1), work=work.Work(0.0, 0.0, np.ones(plan.steps))
    )
    return np.asarray(np.where(plan.leaving > 0, seconds, 0.0))
