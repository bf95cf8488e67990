"""Weights: who read which version, from where, and that both ends held the same bytes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping

from rpeg.ir import Edge, Freshness, Kind
from rpeg.plan import Item, ItemKind
from rpeg.trace import Entry, Span
from rpeg.verify.evidence import Breach, Evidence, Property

SIMULATED_DIGEST = "sim:"
"""How the digests begin that a simulator and fake workers write."""


def versions_are_told(evidence: Evidence) -> Iterator[Breach]:
    """A span reads every trainable model that its stage calls and makes those that it trains, and no others."""
    for span in evidence.trace.spans:
        if evidence.task(span.item) is None:
            continue
        called, trained = _models(evidence, span.item)
        for verb, told, due in (("reads", span.reads, called), ("makes", span.makes, trained)):
            if set(told) != due:
                yield f"{span.item} {verb} {_names(set(told))}; it should tell of {_names(due)}", (span,)


def reads_are_as_commanded(evidence: Evidence) -> Iterator[Breach]:
    for item, command in evidence.commands.items():
        for span in evidence.spans.get(item, ()):
            if dict(span.reads) != dict(command.versions):
                yield (
                    f"{item} read {_versions(span.reads)} on {span.lane}; #{command.seq} commanded "
                    f"{_versions(command.versions)}",
                    (span, command),
                )


def versions_are_within_bounds(evidence: Evidence) -> Iterator[Breach]:
    """Over an edge of delay d, step t reads a version of t+1-d … t.

    A stretch that is resumed begins with its first step's version, and with the older ones that exact edges read.
    """
    first = evidence.trace.first_step
    for span, edge, version in _reads(evidence):
        step, exact = span.item.step, edge.freshness is Freshness.EXACT
        least = max(edge.version_bound(step), 0 if exact else first)
        if not least <= version <= max(step, first):
            yield (
                f"{span.item} read {edge.model}@{version}; {edge.name} of delay {edge.delay} allows versions "
                f"{least} to {max(step, first)}",
                (span,),
            )


def exact_edges_use_their_bound(evidence: Evidence) -> Iterator[Breach]:
    for span, edge, version in _reads(evidence):
        bound = edge.version_bound(span.item.step)
        if edge.freshness is Freshness.EXACT and version != bound:
            yield (
                f"{span.item} read {edge.model}@{version}; {edge.name} is exact: it reads {edge.model}@{bound}",
                (span,),
            )


def training_makes_the_next_version(evidence: Evidence) -> Iterator[Breach]:
    for span in evidence.trace.spans:
        if evidence.kind(span.item) is not Kind.TRAIN:
            continue
        for model, version in span.makes.items():
            read = span.reads.get(model)
            if read is not None and (read, version) != (span.item.step, span.item.step + 1):
                yield (
                    f"{span.item} read {model}@{read} and made {model}@{version}; step {span.item.step} reads "
                    f"{model}@{span.item.step} and makes {model}@{span.item.step + 1}",
                    (span,),
                )


def versions_are_made_before_they_are_read(evidence: Evidence) -> Iterator[Breach]:
    """By happens-before; the stretch's first version of each model, and older ones, were there at its begin."""
    first = evidence.trace.first_step
    for item, command in evidence.commands.items():
        for model, version in command.versions.items():
            if version <= first:
                continue
            maker = _maker(evidence, model, version)
            made = evidence.finished.get(maker) if maker is not None else None
            if made is None or made.seq > command.seq:
                when = f"was made by #{made.seq}" if made is not None else "was never made"
                yield (
                    f"{item} was commanded to read {model}@{version}, which {when}",
                    (command, made) if made is not None else (command,),
                )


def weights_in_place_are_those_read(evidence: Evidence) -> Iterator[Breach]:
    """What an item reads is what its memory held: what was last loaded into its copy, or last trained in place."""
    history = _History(evidence)
    for item, command in evidence.commands.items():
        if item.kind is not ItemKind.RUN or evidence.task(item) is None:
            continue
        for model, version in command.versions.items():
            held, since = history.held(item, command, model)
            if held != version:
                yield (
                    f"{item} was commanded to read {model}@{version}; its memory held {model}@{held}",
                    (command, since) if since is not None else (command,),
                )


def digests_agree(evidence: Evidence) -> Iterator[Breach]:
    """All that tell of a version tell the same bytes."""
    first: dict[str, Span] = {}
    for span in evidence.trace.spans:
        for name, digest in span.digests.items():
            other = first.setdefault(name, span)
            if other.digests[name] != digest:
                yield (
                    f"{name} has the digest {other.digests[name]} in {other.item} and {digest} in {span.item}",
                    (other, span),
                )


def movements_are_digested(evidence: Evidence) -> Iterator[Breach]:
    """Who makes a version and who receives it both tell its digest: else nothing was compared.

    A simulator and fake workers have no bytes: their digests say so, and no others do.
    """
    simulated = evidence.trace.source != "real"
    for span in evidence.trace.spans:
        strange = [d for d in span.digests.values() if d.startswith(SIMULATED_DIGEST) != simulated]
        if strange:
            yield f"{span.item} tells the digest {strange[0]}; the trace is {evidence.trace.source}", (span,)
        held = {f"{m}@{v}" for m, v in (*span.reads.items(), *span.makes.items())}
        for name in sorted(span.digests.keys() - held):
            yield f"{span.item} tells the digest of {name}, which it neither reads nor makes", (span,)
        told = span.reads if span.item.kind is ItemKind.TRANSFER else span.makes
        for model, version in told.items():
            if f"{model}@{version}" not in span.digests:
                yield f"{span.item} tells no digest of {model}@{version} on {span.lane}", (span,)


class _History:
    """What each memory held, by the log."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._loads: dict[str, list[Entry]] = {}  # stage or edge → the ends of its items
        for entry in sorted(evidence.finished.values(), key=lambda entry: entry.seq):
            self._loads.setdefault(entry.item.name, []).append(entry)

    def held(self, item: Item, command: Entry, model: str) -> tuple[int, Entry | None]:
        """(version, the event that brought it) in the memory that `item` reads `model` from."""
        evidence = self._evidence
        copy = evidence.lowered.copy_for(item.name, model)
        trainer = evidence.trace.plan.graph.trainer(model)
        source = copy.name if copy is not None else trainer.name if trainer is not None else ""
        lanes = set(command.lanes)
        loads = self._loads.get(source, [])
        before = bisect_left(loads, command.seq, key=lambda entry: entry.seq)
        for entry in reversed(loads[max(0, before - len(evidence.lowered.tasks)) : before]):
            task = evidence.task(entry.item)
            if task is None or entry.item not in evidence.commands:
                continue
            if copy is None and not evidence.lowered.ends(entry.item.slot):
                continue  # a minibatch before the last publishes nothing
            if copy is None:
                return entry.item.step + 1, entry
            if lanes & set(task.lanes):
                return evidence.commands[entry.item].versions.get(model, -1), entry
        first = evidence.trace.first_step
        return copy.version_before(first) if copy is not None else first, None


def _reads(evidence: Evidence) -> Iterator[tuple[Span, Edge, int]]:
    """(span of a stage or of a transfer, weights edge, version that came over it)."""
    graph = evidence.trace.plan.graph
    for span in evidence.trace.spans:
        if evidence.task(span.item) is None:
            continue
        run = span.item.kind is ItemKind.RUN
        edges = graph.weights_into(span.item.name) if run else graph.edges
        for edge in edges:
            if edge.model is not None and edge.model in span.reads and (run or edge.name == span.item.name):
                yield span, edge, span.reads[edge.model]


def _models(evidence: Evidence, item: Item) -> tuple[set[str], set[str]]:
    """(trainable models that an item calls or carries, models that it trains)."""
    graph = evidence.trace.plan.graph
    if item.kind is not ItemKind.RUN:
        return {copy.model for copy in evidence.lowered.copies if copy.name == item.name}, set()
    stage = graph.stage(item.name)
    trainable = {model for model in stage.models if graph.model(model).trainable}
    publishes = stage.kind is Kind.TRAIN and evidence.lowered.ends(item.slot)
    return trainable, trainable if publishes else set()


def _maker(evidence: Evidence, model: str, version: int) -> Item | None:
    trainer = evidence.trace.plan.graph.trainer(model)
    if trainer is None:
        return None
    last = evidence.lowered.tasks_of(trainer.name)[-1]
    return Item(ItemKind.RUN, trainer.name, version - 1, last.slot.part)


def _names(models: set[str]) -> str:
    return ", ".join(sorted(models)) or "no model"


def _versions(versions: Mapping[str, int]) -> str:
    return ", ".join(f"{model}@{version}" for model, version in versions.items()) or "nothing"


VERSIONS: tuple[Property, ...] = (
    versions_are_told,
    reads_are_as_commanded,
    versions_are_within_bounds,
    exact_edges_use_their_bound,
    training_makes_the_next_version,
    versions_are_made_before_they_are_read,
    weights_in_place_are_those_read,
    digests_agree,
    movements_are_digested,
)
