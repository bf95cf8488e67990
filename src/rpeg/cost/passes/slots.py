"""`Schedule`: what a slot-based engine runs for given lengths: prompt passes, decode steps, who finishes when.

It repeats the policy of `rpeg.backends.generation.slots` without a model: waiting samples enter free slots when a
quarter of the slots (or as many as still wait) are free; each distinct prompt is prefilled once; a decode step
gives every active sample one token; finished samples leave at once.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

REFILL_SHARE = 0.25


@dataclass(frozen=True)
class Schedule:
    """Decode steps are numbered from 0; an admission at step s comes before it.

    admissions: columns (step, samples, distinct prompts, longest of them), one row each.
    rows, context: (steps,) active samples and the longest sequence of each decode step.
    leaving: (steps,) samples that leave after each step.
    finish: (n,) the number of decode steps done when each sample leaves, in input order.
    """

    admissions: Ints
    rows: Ints
    context: Ints
    leaving: Ints
    finish: Ints

    @property
    def steps(self) -> int:
        """Decode steps in all."""
        return len(self.rows)


def schedule(prompt_lengths: Ints, response_lengths: Ints, groups: Ints, slots: int) -> Schedule:
    """The engine's schedule for samples in this order; samples of a group are neighbours and share a prompt.

    All arguments but slots: (n,). A prompt pass draws each sample's first token, so a response of n tokens takes
    n − 1 decode steps.
    """
    run = _Run(prompt_lengths.tolist(), response_lengths.tolist(), groups.tolist(), min(slots, len(groups)))
    while run.served < len(run.prompts) or run.active:
        run.advance()
    return run.result()


class _Run:
    """The state of one schedule; from event to event, not from token to token."""

    def __init__(self, prompts: list[int], responses: list[int], groups: list[int], slots: int) -> None:
        self.prompts, self.responses, self.groups, self.slots = prompts, responses, groups, slots
        self.enough = max(1, round(slots * REFILL_SHARE))
        self.step = self.served = 0
        self.active: list[tuple[int, int]] = []  # heap of (step after which it leaves, sample)
        self.longest: list[
            tuple[int, int]
        ] = []  # heap of (−(prompt − step of admission), step when it leaves)
        self.kept: int | None = None  # the group whose prompt the engine still holds
        self.finish = [0] * len(prompts)
        self.admissions: list[tuple[int, int, int, int]] = []
        self.spans: list[tuple[int, int, int]] = []  # (decode steps, rows, longest context at step 0)
        self.left: dict[int, int] = {}

    def advance(self) -> None:
        """Admits if the policy says so, then decodes up to the next departure."""
        if self.may_admit:
            free = self.slots - len(self.active)
            self.admit(range(self.served, min(self.served + free, len(self.prompts))))
        if not self.active:
            return
        # samples that were finished by their first token may have made room again: then for one step only
        until = self.step + 1 if self.may_admit else self.active[0][0]
        while self.longest[0][1] <= self.step:
            heapq.heappop(self.longest)
        self.spans.append((until - self.step, len(self.active), -self.longest[0][0]))
        self.step = until
        while self.active and self.active[0][0] == until:
            self.leave(heapq.heappop(self.active)[1])

    @property
    def may_admit(self) -> bool:
        waiting = len(self.prompts) - self.served
        return waiting > 0 and self.slots - len(self.active) >= min(self.enough, waiting)

    def admit(self, samples: range) -> None:
        self.served = samples.stop
        fresh = {self.groups[i]: self.prompts[i] for i in samples if self.groups[i] != self.kept}
        self.kept = self.groups[samples[-1]]
        self.admissions.append((self.step, len(samples), len(fresh), max(fresh.values(), default=0)))
        for i in samples:
            end = self.step + self.responses[i] - 1
            if end > self.step:
                heapq.heappush(self.active, (end, i))
                heapq.heappush(self.longest, (self.step - self.prompts[i], end))
            else:
                self.finish[i] = self.step

    def leave(self, sample: int) -> None:
        self.finish[sample] = self.step
        self.left[self.step - 1] = self.left.get(self.step - 1, 0) + 1

    def result(self) -> Schedule:
        spans = np.asarray(self.spans, dtype=np.int64).reshape(-1, 3)
        rows, offset = np.repeat(spans[:, 1], spans[:, 0]), np.repeat(spans[:, 2], spans[:, 0])
        leaving = np.zeros(self.step, dtype=np.int64)
        leaving[list(self.left)] = list(self.left.values())
        return Schedule(
            np.asarray(self.admissions, dtype=np.int64).reshape(-1, 4),
            rows,
            # a sample admitted at step s with a prompt of p tokens attends to p + 1 tokens at step s
            offset + np.arange(self.step) + 1,
            leaving,
            np.asarray(self.finish, dtype=np.int64),
        )


def groups_of(samples: int, samples_per_prompt: int) -> Ints:
    """(samples,) the group of each sample where they lie group after group."""
    return np.arange(samples) // samples_per_prompt
