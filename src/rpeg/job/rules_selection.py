"""Rules for dynamic sampling: who can select, and what is left over has permission to be late."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from rpeg.errors import InputError
from rpeg.job.functions import PREFIX, check_function
from rpeg.job.problems import Problem, sentence
from rpeg.job.schema import Job
from rpeg.job.selection import Selection


def selection_is_used(job: Job) -> Iterator[Problem]:
    """What nothing selects by is a misunderstanding."""
    unused = Selection(import_from=job.selection.import_from)
    if job.selects or job.selection == unused:
        return
    hyper = type(job.algorithm.hyper)
    way = (
        "set algorithm.dynamic_sampling: true"
        if hasattr(hyper, "dynamic_sampling")
        else "choose grpo or dapo"
    )
    yield Problem(
        ("selection",), f"is given, but {job.algorithm.name} selects no groups: {way}, or remove it."
    )


def selection_rule_exists(job: Job) -> Iterator[Problem]:
    """The user's own rule is a function that can be found."""
    keep = job.selection.keep
    if keep is None:
        return
    if not keep.startswith(PREFIX):
        text = f"is {keep}, must be {PREFIX}package.module:function, of (prompt, responses, rewards)."
        yield Problem(("selection", "keep"), text)
        return
    try:
        check_function(keep, job.selection.import_from)
    except InputError as error:
        yield Problem(("selection", "keep"), sentence(error))


def leftovers_may_be_late(job: Job) -> Iterator[Problem]:
    """Samples that are kept for the next step are of weights one publication older."""
    asked, allowed = job.plan.staleness or 0, job.allow.staleness
    if job.keeps_leftovers and asked + 1 > allowed:
        text = (
            f"is keep: what is kept is trained one publication later, {asked + 1} with plan.staleness {asked}, and "
            f"allow.staleness is {allowed}. Set allow.staleness: {asked + 1}, or drop."
        )
        yield Problem(("selection", "leftover"), text)


RULES: tuple[Callable[[Job], Iterable[Problem]], ...] = (
    selection_is_used,
    selection_rule_exists,
    leftovers_may_be_late,
)
