"""Dynamic sampling: every candidate is judged once, the quota is filled in as few rounds as it takes, in prompt order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rpeg.plan import Item
from rpeg.trace import OVER_QUOTA, Entry, What
from rpeg.verify.evidence import Breach, Evidence, Property


def every_candidate_is_judged_once(evidence: Evidence) -> Iterator[Breach]:
    """What a round looked at is accepted, rejected or kept; and what the step before has kept, in the first round."""
    asked = evidence.trace.plan.workload.asked
    for item, entries in _verdicts(evidence):
        command = evidence.commands.get(item)
        if command is None or item not in evidence.finished:
            continue
        judged = Counter(i for entry in entries for i in entry.ids)
        left = evidence.kept_for(item.step) if item.part == 0 else frozenset()
        due = {*command.ids, *(left or ())}
        for sample in sorted(due - judged.keys()):
            yield f"sample {sample} is neither accepted nor rejected by {item}", (command, *entries)
        for sample in sorted(i for i, n in judged.items() if n > 1):
            yield f"sample {sample} is judged {judged[sample]} times by {item}", tuple(entries)
        beyond = judged.keys() - due
        for sample in sorted(
            beyond if left is not None else (i for i in beyond if i // asked != item.step - 1)
        ):
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
        over = [i for e in entries if e.what is What.KEPT or e.why == OVER_QUOTA for i in e.ids]
        if accepted and over and min(over) < max(accepted):
            yield (
                f"{item} has no room for sample {min(over)} and accepts {max(accepted)}, which comes later",
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


SELECTION: tuple[Property, ...] = (
    every_candidate_is_judged_once,
    groups_are_accepted_whole,
    accepted_are_the_first,
    rounds_end_when_the_quota_is_filled,
)
