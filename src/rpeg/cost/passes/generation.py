"""GENERATE: continuous batching over actual lengths, on one replica."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rpeg.architecture import Architecture
from rpeg.cost.passes import work
from rpeg.cost.passes.cuts import retimed, step_seconds
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
    tp: int = 1,
) -> Generation:
    """Prefill, decode with a shrinking and refilled set of active samples, and their departures.

    prompt_lengths, response_lengths: (n,) of this replica's samples, group after group. tp: ranks that share them.
    """
    groups = groups_of(len(prompt_lengths), samples_per_prompt)
    plan = schedule(prompt_lengths, response_lengths, groups, slots)
    engine = _Engine(architecture, plan, tp, timing)
    collect = collecting(len(prompt_lengths), timing)
    cost = sequence("generate", [collect, *engine.parts()])
    before_step = np.zeros(plan.steps + 1)
    after_step = np.zeros(plan.steps + 1)
    np.add.at(before_step, plan.admissions[:, 0], engine.admission_seconds())
    after_step[1:] = engine.decode_seconds() + engine.leave_seconds()
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


@dataclass(frozen=True)
class _Engine:
    """A schedule on `tp` ranks."""

    architecture: Architecture
    plan: Schedule
    tp: int
    timing: Timing

    def parts(self) -> list[Cost]:
        """The tree's leaves."""
        _, samples, prompts, longest = self.plan.admissions.T
        some, dtype, timing = prompts > 0, self.timing.dtype, self.timing
        shape = prompts[some], longest[some]
        admitted = work.Work(0.0, 0.0, np.ones(len(samples)))
        prefill = timing.cost(
            "prefill", "prefill", *shape, work=work.prefill(self.architecture, *shape, dtype)
        )
        rows = self.plan.rows, self.plan.context
        decode = timing.cost("decode", "decode", *rows, work=work.decode(self.architecture, *rows, dtype))
        leaving = self.plan.leaving[self.plan.leaving > 0]
        left = work.Work(0.0, 0.0, np.ones(len(leaving)))
        return [
            self._shared(prefill, self._prefill_seconds(*shape)),
            timing.cost("admit", "admit", samples, work=admitted),
            self._shared(decode, self.decode_seconds()),
            timing.cost("leave", "leave", leaving, work=left),
        ]

    def _shared(self, whole: Cost, seconds: Floats) -> Cost:
        """A leaf as one of the ranks has it."""
        return whole if self.tp == 1 else retimed(whole, float(seconds.sum()), self.tp)

    def admission_seconds(self) -> Floats:
        """(admissions,) seconds of each."""
        _, samples, prompts, longest = self.plan.admissions.T
        passes = self._prefill_seconds(np.maximum(prompts, 1), np.maximum(longest, 1))
        admit = self.timing.seconds("admit", samples, work=work.Work(0.0, 0.0, np.ones(len(samples))))
        return np.asarray(np.where(prompts > 0, passes, 0.0) + admit)

    def _prefill_seconds(self, prompts: Ints, longest: Ints) -> Floats:
        each = work.prefill(self.architecture, prompts, longest, self.timing.dtype)
        whole = self.timing.seconds("prefill", prompts, longest, work=each)
        return self._of_ranks(whole, prompts * longest, prompts)

    def decode_seconds(self) -> Floats:
        """(steps,) seconds of each."""
        rows, context = self.plan.rows, self.plan.context
        each = work.decode(self.architecture, rows, context, self.timing.dtype)
        return self._of_ranks(self.timing.seconds("decode", rows, context, work=each), rows, rows)

    def _of_ranks(self, whole: Floats, tokens: Ints, rows: Ints) -> Floats:
        one = np.ones(1)
        shortest = work.decode(self.architecture, one, one, self.timing.dtype)
        least = float(self.timing.seconds("decode", one, one, work=shortest)[0])
        passed, drawn = tokens.astype(np.float64), rows.astype(np.float64)
        return step_seconds(self.architecture, whole, least, passed, drawn, self.tp, self.timing)

    def leave_seconds(self) -> Floats:
        """(steps,) seconds of each."""
        some = work.Work(0.0, 0.0, np.ones(self.plan.steps))
        seconds = self.timing.seconds("leave", np.maximum(self.plan.leaving, 1), work=some)
        return np.asarray(np.where(self.plan.leaving > 0, seconds, 0.0))
