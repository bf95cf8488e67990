"""Rules for responses that go on under new weights: what they need of staleness, freshness and permission."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from rpeg.job.problems import Problem
from rpeg.job.schema import Job

KEY = ("plan", "on_new_weights")


def interruption_is_possible(job: Job) -> Iterator[Problem]:
    """Only where a response may be of several versions, and the next step's prompts are known. That the newest weights
    have an effect is another rule's."""
    how, asked = job.plan.on_new_weights, job.plan
    if how == "drain":
        return
    if asked.freshness != "latest":
        said = asked.freshness or "exact, the default"
        text = (
            f"is {how}, and plan.freshness is {said}: which tokens are of which version is a matter of timing. Set "
            "freshness: latest, or drain."
        )
        yield Problem(KEY, text)
    if job.selects:
        text = f"is {how}, and dynamic sampling knows a step's prompts only when the last step is full. Set drain."
        yield Problem(KEY, text)


def kept_keys_and_values_are_allowed(job: Job) -> Iterator[Problem]:
    """Attention over states of other weights is a policy that no trainer can recompute."""
    if job.plan.on_new_weights == "keep_kv" and not job.allow.keep_kv:
        text = "is keep_kv, which changes what is learned. Set allow.keep_kv: true to permit it, or take reprefill."
        yield Problem(KEY, text)


RULES: tuple[Callable[[Job], Iterable[Problem]], ...] = (
    interruption_is_possible,
    kept_keys_and_values_are_allowed,
)
