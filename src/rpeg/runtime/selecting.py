"""A selector's item: groups that are worth training on, until the quota of a step is filled.

What it leaves to the next step is in the run's directory, so that a resumed run goes on with it: the place in the prompts
(`carried`), and where the job keeps them the accepted groups that the quota had no room for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from rpeg.algorithms.groups import informative
from rpeg.backends.samples import Samples, concatenate
from rpeg.errors import RunError
from rpeg.ir import KEPT, Graph
from rpeg.job import Job
from rpeg.job.functions import import_function
from rpeg.runtime.carried import Carried
from rpeg.runtime.leftover import Leftover
from rpeg.runtime.work import Verdict
from rpeg.trace import OVER_QUOTA
from rpeg.workload import Workload

EQUAL, UNWANTED = "equal rewards", "selection.keep"
CANDIDATE_REWARDS, REWARDS = "candidate_rewards", "rewards"

Keep = Callable[..., object]


@dataclass(frozen=True)
class Selected:
    """accepted: to train on, in the order of prompts. verdicts: on all others. metrics: in groups."""

    accepted: Samples
    verdicts: tuple[Verdict, ...]
    metrics: Mapping[str, float]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Selector:
    """What the selecting stage of a graph does in the run of directory `run`."""

    graph: Graph
    job: Job
    workload: Workload
    run: Path

    def first_place(self, step: int) -> int:
        """The place in the stream of prompts at which a step begins."""
        if self.graph.selector is None:
            return step * self.workload.prompts
        return int(self._state.before(step, {"place": 0.0})["place"])

    def place(self, step: int, number: int) -> int:
        """The place at which a round of a step begins."""
        return self.first_place(step) + number * self.workload.round_prompts

    def select(
        self,
        step: int,
        number: int,
        candidates: Samples,
        wanted: int,
        told: Callable[[], tuple[Sequence[str], Sequence[str]]],
    ) -> Selected:
        """candidates: of round `number`, with their rewards. wanted: samples that the step lacks.

        told: the text of each candidate's prompt and response, for the user's own rule. Raises RunError where the last
        round leaves the quota unfilled and the job wants no smaller step.
        """
        own = candidates.rows(np.argsort(candidates.ids))
        why = self._refused(own, told)
        passed = _with_rewards(own.rows([i for i, reason in enumerate(why) if not reason]))
        left = self._leftover.read(step) if number == 0 else None
        taken = passed if left is None else concatenate([left, passed])
        accepted, over = taken.rows(range(min(wanted, len(taken)))), taken.rows(range(wanted, len(taken)))
        verdicts = [
            Verdict(tuple(int(own.ids[i]) for i, found in enumerate(why) if found == reason), reason)
            for reason in (EQUAL, UNWANTED)
        ]
        verdicts += self._beyond(step, over)
        self._state.write(step, {"place": float(self.place(step, number + 1))})
        lacking = wanted - len(accepted) if number == self.workload.rounds - 1 else 0
        metrics = self._metrics(len(own), accepted, verdicts, lacking)
        return Selected(accepted, tuple(v for v in verdicts if v.ids), metrics, self._short(step, lacking))

    def _beyond(self, step: int, over: Samples) -> tuple[Verdict, Verdict]:
        """(what is dropped, what is kept) of accepted samples that there is no room for; of older ones none is kept."""
        if self.graph.selector is None or KEPT not in self.graph.selector.gives:
            return Verdict(_ids(over), OVER_QUOTA), Verdict((), kept=True)
        own = over.ids >= step * self.workload.asked
        late, kept = (over.rows(np.flatnonzero(rows)) for rows in (~own, own))
        self._leftover.write(step, kept)
        return Verdict(_ids(late), OVER_QUOTA), Verdict(_ids(kept), kept=True)

    def _refused(self, own: Samples, told: Callable[[], tuple[Sequence[str], Sequence[str]]]) -> list[str]:
        """Why each sample's group is refused; empty for those that are not."""
        if not len(own):
            return []
        group = torch.as_tensor(own.sample["group"])
        rewards = own.sample[CANDIDATE_REWARDS]
        differ = informative(torch.as_tensor(rewards), group).tolist()
        why = ["" if good else EQUAL for good in differ]
        if self._keep is None:
            return why
        prompts, texts = told()
        each = self.workload.samples_per_prompt
        for start in range(0, len(own), each):
            rows = range(start, start + each)
            if not why[start] and not self._wants(
                prompts[start], [texts[i] for i in rows], [float(rewards[i]) for i in rows]
            ):
                why[start : start + each] = [UNWANTED] * each
        return why

    def _wants(self, prompt: str, responses: Sequence[str], rewards: Sequence[float]) -> bool:
        assert self._keep is not None
        try:
            return bool(self._keep(prompt, responses, rewards))
        except Exception as error:
            name = self.job.selection.keep
            raise RunError(f"selection.keep: {name} raised {type(error).__name__}: {error}") from error

    def _metrics(
        self, asked: int, accepted: Samples, verdicts: Sequence[Verdict], lacking: int
    ) -> dict[str, float]:
        """Groups by what became of them, summed over the rounds of a step."""
        each = self.workload.samples_per_prompt
        counts = {
            "rounds": 1,
            "asked": asked // each,
            "accepted": len(accepted) // each,
            "equal": sum(len(v.ids) for v in verdicts if v.why == EQUAL) // each,
            "unwanted": sum(len(v.ids) for v in verdicts if v.why == UNWANTED) // each,
            "over": sum(len(v.ids) for v in verdicts if v.why == OVER_QUOTA) // each,
            "kept": sum(len(v.ids) for v in verdicts if v.kept) // each,
            "lacking": lacking // each,
        }
        return {f"sum/selection/{name}": float(count) for name, count in counts.items()}

    def _short(self, step: int, lacking: int) -> tuple[str, ...]:
        if not lacking:
            return ()
        w, each = self.workload, self.workload.samples_per_prompt
        found = w.prompts - lacking // each
        text = (
            f"{w.rounds} rounds of {w.round_prompts} prompts gave {found} of the {w.prompts} groups that step {step} is "
            "to train on"
        )
        ways = "raise selection.max_rounds or round_prompts, or give prompts that are neither too easy nor too hard"
        if self.job.selection.shortfall == "stop":
            raise RunError(f"{text}: {ways}; selection.shortfall: train goes on with what there is")
        return (f"{text}; it goes on with these (counted in selection/lacking). To have more, {ways}",)

    @property
    def _state(self) -> Carried:
        return Carried(self.run, self._stage)

    @property
    def _leftover(self) -> Leftover:
        return Leftover(self.run, self._stage)

    @property
    def _stage(self) -> str:
        assert self.graph.selector is not None
        return self.graph.selector.name

    @cached_property
    def _keep(self) -> Keep | None:
        asked = self.job.selection
        return import_function(asked.keep, asked.import_from) if asked.keep is not None else None


def _with_rewards(samples: Samples) -> Samples:
    """Candidates that were accepted have their rewards under the name that later stages know."""
    sample = dict(samples.sample)
    sample[REWARDS] = sample.pop(CANDIDATE_REWARDS)
    return replace(samples, sample=sample)


def _ids(samples: Samples) -> tuple[int, ...]:
    return tuple(samples.ids.tolist())
