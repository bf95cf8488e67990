"""Dynamic sampling: every candidate is judged once, the quota is filled in as few rounds as it takes, in prompt order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rpeg.ir import KEPT
from rpeg.plan import Item
from rpeg.trace import Entry, What
from rpeg.verify.evidence import Breach, Evidence, Property


def every_candidate_is_judged_once(evidence: Evidence) -> Iterator[Breach]:
    """What a round looked at is accepted, rejected or kept; and what the step before has kept, in the first round."""
    for item, entries in _verdicts(evidence):
        command = evidence.commands.get(item)
        if command is None or item not in evidence.finished:
            continue
        judged = Counter(i for entry in entries for i in entry.ids)
        left = _kept_before(evidence, item)
        due = {*command.ids, *left}
        known = item.part > 0 or item.step > evidence.trace.first_step
        for sample in sorted(due - judged.keys()):
            yield f"sample {sample} is neither accepted nor rejected by {item}", (command, *entries)
        for sample in sorted(i for i, n in judged.items() if n > 1):
            yield f"sample {sample} is judged {judged[sample]} times by {item}", tuple(entries)
        beyond = sorted(i for i in judged.keys() - due if known or not _is_of(evidence, i, item.step - 1))
        for sample in beyond:
            yield f"{item} judges sample {sample}, which is none of its candidates", tuple(entries)


def groups_are_accepted_whole(evidence: Evidence) -> Iterator[Breach]:
    each = evidence.trace.plan.workload.samples_per_prompt
    for item, entries in _verdicts(evidence):
        for entry in entries:
            groups = Counter(i // each for i in entry.ids)
            for group in sorted(g for g, n in groups.items() if n != each):
                yield (
                    f"{item}: {groups[group]} of the {each} responses to prompt {group} are {entry.what}",
                    (entry,),
                )


def accepted_are_the_first(evidence: Evidence) -> Iterator[Breach]:
    """Whoever is kept or turned down because the quota is full comes after all that were accepted."""
    for item, entries in _verdicts(evidence):
        accepted = [i for e in entries if e.what is What.PRODUCED for i in e.ids]
        over = [i for e in entries if e.what is What.KEPT for i in e.ids]
        if accepted and over and min(over) < max(accepted):
            yield (
                f"{item} keeps sample {min(over)} for the next step and accepts {max(accepted)}, which comes later",
                tuple(entries),
            )


def rounds_end_when_the_quota_is_filled(evidence: Evidence) -> Iterator[Breach]:
    """A round is told what its step lacks, takes no more, and runs only where something lacks."""
    quota, selector = evidence.trace.plan.workload.samples, evidence.trace.plan.graph.selector
    for item, command in evidence.commands.items():
        if selector is None or item.name not in evidence.trace.plan.graph.rounds:
            continue
        lacking = quota - evidence.accepted_before(item.step, item.part)
        if item.part > 0 and lacking <= 0:
            yield f"{item} was commanded, and the quota of {quota} samples was filled before", (command,)
        if item.name != selector.name:
            continue
        if command.wanted != lacking:
            yield f"{item} was told that {command.wanted} samples lack; {lacking} did", (command,)
        taken = evidence.accepted_before(item.step, item.part + 1) - (quota - lacking)
        if taken > lacking:
            yield f"{item} accepts {taken} samples where {lacking} lacked", (command,)


def _verdicts(evidence: Evidence) -> Iterator[tuple[Item, list[Entry]]]:
    selector = evidence.trace.plan.graph.selector
    found: dict[Item, list[Entry]] = {}
    for entry in evidence.trace.entries:
        judges = entry.what in (What.PRODUCED, What.REJECTED, What.KEPT)
        if selector is not None and judges and entry.item.name == selector.name:
            found.setdefault(entry.item, []).append(entry)
    yield from found.items()


def _kept_before(evidence: Evidence, item: Item) -> set[int]:
    """What the step before left to the first round of a step."""
    selector = evidence.trace.plan.graph.selector
    if item.part > 0 or selector is None or KEPT not in selector.gives:
        return set()
    entries = (e for e in evidence.trace.entries if e.what is What.KEPT and e.item.step == item.step - 1)
    return {i for entry in entries for i in entry.ids}


def _is_of(evidence: Evidence, sample: int, step: int) -> bool:
    return sample // evidence.trace.plan.workload.asked == step


SELECTION: tuple[Property, ...] = (
    every_candidate_is_judged_once,
    groups_are_accepted_whole,
    accepted_are_the_first,
    rounds_end_when_the_quota_is_filled,
)
