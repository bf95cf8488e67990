"""Changes of what a job works on and may do: most change what is learned."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from rpeg.errors import InputError
from rpeg.search.changes.base import Change, counted
from rpeg.search.problem import Problem
from rpeg.transforms.sharing import Sharing


@dataclass(frozen=True)
class ShorterTail(Change):
    """Responses of the same mean whose 99th percentile is only `share` times as far from the median, as a ratio."""

    share: float = 0.5

    def apply(self, problem: Problem) -> Problem:
        w = problem.workload
        if w.response_lengths.percentile(99) <= w.response_lengths.percentile(50):
            raise InputError("all responses are as long as each other: there is no tail")
        return replace(
            problem, workload=replace(w, response_lengths=w.response_lengths.with_tail(self.share))
        )

    def words(self, problem: Problem) -> str:
        before = problem.workload.response_lengths
        after = before.with_tail(self.share)
        return (
            f"a shorter tail of responses: 99th percentile {after.percentile(99):,} tokens instead of "
            f"{before.percentile(99):,}, mean {before.mean:,.0f}"
        )

    def cost(self, problem: Problem) -> str:
        return "a length penalty, or prompts of equal difficulty"

    def learning(self, problem: Problem) -> str:
        return "the model learns to answer within a length"


@dataclass(frozen=True)
class MaxResponse(Change):
    """Responses are cut at so many tokens."""

    tokens: int

    def apply(self, problem: Problem) -> Problem:
        w = problem.workload
        lengths = w.response_lengths.truncated(self.tokens)
        return replace(problem, workload=replace(w, response_lengths=lengths))

    def words(self, problem: Problem) -> str:
        return f"responses of at most {self.tokens:,} tokens"

    def cost(self, problem: Problem) -> str:
        return f"{self._cut(problem):.1%} of responses are cut".replace("%", " %")

    def learning(self, problem: Problem) -> str:
        return "nothing is learned from what is cut off" if self._cut(problem) else ""

    def _cut(self, problem: Problem) -> float:
        lengths = problem.workload.response_lengths
        return sum(share for n, share in zip(lengths.values, lengths.weights, strict=True) if n > self.tokens)


@dataclass(frozen=True)
class MeanResponse(Change):
    """Responses of so many tokens on average, all in proportion: as they grow while a model learns to reason."""

    tokens: float

    def apply(self, problem: Problem) -> Problem:
        w = problem.workload
        return replace(problem, workload=replace(w, response_lengths=w.response_lengths.scaled(self.tokens)))

    def words(self, problem: Problem) -> str:
        return f"responses of {self.tokens:,g} tokens on average"

    def cost(self, problem: Problem) -> str:
        return "another task"

    def learning(self, problem: Problem) -> str:
        return "responses of other lengths"


@dataclass(frozen=True)
class Samples(Change):
    """So many responses to each prompt."""

    per_prompt: int

    def apply(self, problem: Problem) -> Problem:
        return replace(problem, workload=replace(problem.workload, samples_per_prompt=self.per_prompt))

    def words(self, problem: Problem) -> str:
        return f"{counted(self.per_prompt, 'sample')} a prompt"

    def cost(self, problem: Problem) -> str:
        return f"{self.per_prompt * problem.workload.prompts} samples a step"

    def learning(self, problem: Problem) -> str:
        return "another batch" if self.per_prompt != problem.workload.samples_per_prompt else ""


@dataclass(frozen=True)
class Prompts(Change):
    """So many prompts a step."""

    count: int

    def apply(self, problem: Problem) -> Problem:
        return replace(problem, workload=replace(problem.workload, prompts=self.count))

    def words(self, problem: Problem) -> str:
        return f"{self.count} prompts a step"

    def cost(self, problem: Problem) -> str:
        return f"{self.count * problem.workload.samples_per_prompt} samples a step"

    def learning(self, problem: Problem) -> str:
        return "another batch" if self.count != problem.workload.prompts else ""


@dataclass(frozen=True)
class Staleness(Change):
    """Plans may train on tokens that are so many versions behind; where the job wishes for a staleness, it is this."""

    widens: ClassVar[bool] = True

    versions: int

    def apply(self, problem: Problem) -> Problem:
        own = problem.permissions
        wished = None if own.wished_staleness is None else self.versions
        return replace(problem, permissions=replace(own, staleness=self.versions, wished_staleness=wished))

    def words(self, problem: Problem) -> str:
        return f"staleness up to {self.versions}"

    def cost(self, problem: Problem) -> str:
        return "the permission (allow.staleness)"

    def learning(self, problem: Problem) -> str:
        if not self.versions:
            return ""
        return f"tokens may be {counted(self.versions, 'version')} behind the model that they train"


@dataclass(frozen=True)
class SharedBackbone(Change):
    """Actor and critic become one model with two heads."""

    def apply(self, problem: Problem) -> Problem:
        for transform in Sharing.candidates(problem.graph):
            shapes = [problem.facts.architectures[name] for name in (transform.actor, transform.critic)]
            if shapes[0] == shapes[1]:
                return replace(
                    problem,
                    graph=transform.apply(problem.graph),
                    applied=(*problem.applied, transform),
                    permissions=replace(problem.permissions, actor_critic_sharing=True),
                )
        raise InputError(
            f"{problem.graph.name} has no actor and critic of the same shape to share a backbone"
        )

    def words(self, problem: Problem) -> str:
        return "one backbone for actor and critic"

    def cost(self, problem: Problem) -> str:
        return "the permission (allow.actor_critic_sharing)"

    def learning(self, problem: Problem) -> str:
        return "both heads pull at one backbone"
