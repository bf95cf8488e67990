"""The arcs between the items of a step: samples, rounds, weights, and what rests in host memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from rpeg.ir import STATE, Edge, Kind
from rpeg.plan.item import ItemKind
from rpeg.plan.lowered import Arc, Lowered, Task
from rpeg.plan.members import Minibatches, Prompts
from rpeg.plan.resting import Rest, rest_slots
from rpeg.plan.shares import Shares

BEGUN = "begun responses"
"""Why an item that finishes responses waits for those that hand them over."""


def arcs(shares: Shares, lowered: Lowered) -> Iterator[Arc]:
    """All of them, some more than once."""
    for edge in shares.graph.edges:
        if edge.is_control or edge.data in STATE:
            yield from _round_arcs(edge, lowered)
        elif edge.model is None:
            yield from _data_arcs(shares, edge, lowered)
        else:
            yield from _weights_arcs(edge, lowered)
    for stage in shares.graph.stages:
        if stage.migrates:
            yield from _migration_arcs(lowered, stage.name)
        if stage.kind is Kind.TRAIN:  # each minibatch begins with what the one before has made
            for first, second in pairwise(lowered.tasks_of(stage.name)):
                yield Arc(first.slot, second.slot, 0, "order")
    for rest in lowered.rests:
        yield from _rest_arcs(lowered, rest)


def _round_arcs(edge: Edge, lowered: Lowered) -> Iterator[Arc]:
    """To the next round of a step, or from the last round of a step to the first of the next."""
    src, dst = lowered.tasks_of(edge.src), lowered.tasks_of(edge.dst)
    last, first = src[-1].slot.part, 0
    for one in src:
        for other in dst:
            following = other.slot.part == one.slot.part + 1
            across = one.slot.part == last and other.slot.part == first
            if across if edge.delay else following:
                yield Arc(one.slot, other.slot, edge.delay, edge.data)


def _migration_arcs(lowered: Lowered, stage: str) -> Iterator[Arc]:
    """What is begun goes to where it is finished."""
    tasks = lowered.tasks_of(stage)
    for src in tasks:
        for dst in tasks:
            if src.hands_over and dst.finishes:
                yield Arc(src.slot, dst.slot, 0, BEGUN)


def _data_arcs(shares: Shares, edge: Edge, lowered: Lowered) -> Iterator[Arc]:
    streams = shares.graph.stage(edge.src).kind is Kind.GENERATE and edge.chunk is not None
    consumers = lowered.tasks_of(edge.dst)
    split = any(isinstance(dst.members, Prompts) for dst in consumers)
    by_round = edge.src in shares.graph.rounds and edge.dst in shares.graph.rounds
    for src in lowered.tasks_of(edge.src):
        held = shares.held(src.covers, src.members) if split and src.covers else None
        partial = _is_known_late(shares, src)
        leaving = src.makes or src.covers
        for dst in consumers:
            shared = set(leaving) & set(dst.covers)
            if leaving and dst.covers and not shared:
                continue
            if by_round and src.slot.part != dst.slot.part:
                continue
            if held and isinstance(dst.members, Prompts) and not held.meets(dst.members):
                continue
            fixed = src.members is not None and isinstance(dst.members, Minibatches)
            asked = dst.members is not None and (streams or partial or fixed)
            for part in sorted(shared) if streams else (None,):
                yield Arc(src.slot, dst.slot, edge.delay, edge.data, part, asked)


def _is_known_late(shares: Shares, task: Task) -> bool:
    """Whether which samples an item holds is known only when they have completed: those of some parts of a stream."""
    generates = shares.graph.stage(task.slot.name).kind is Kind.GENERATE
    whole = len(task.covers) == len(shares.everything(task.slot.name))
    return not generates and task.members is None and not whole


def _weights_arcs(edge: Edge, lowered: Lowered) -> Iterator[Arc]:
    trainer = lowered.tasks_of(edge.src)
    first, last = trainer[0].slot, trainer[-1].slot
    consumers = lowered.tasks_of(edge.dst)
    assert edge.model is not None
    copy = lowered.copy_for(edge.dst, edge.model)
    if edge.src == edge.dst:
        yield Arc(last, first, edge.delay, edge.data)
    elif copy is None:
        for dst in consumers:
            yield Arc(last, dst.slot, edge.delay, edge.data)
            yield Arc(dst.slot, first, 0, "order")
    else:
        for transfer in lowered.tasks.values():
            if transfer.slot.kind is not ItemKind.TRANSFER or transfer.slot.name != copy.name:
                continue
            yield Arc(last, transfer.slot, edge.delay, edge.data)
            for task in consumers:
                if set(task.lanes) & set(transfer.lanes):
                    yield Arc(transfer.slot, task.slot, 0, edge.data)
                    yield Arc(task.slot, transfer.slot, 1, "order")


def _rest_arcs(lowered: Lowered, rest: Rest) -> Iterator[Arc]:
    """Reload, then all that use it on the same lanes, then offload, then the next reload."""
    users = [task for slot, task in lowered.tasks.items() if rest.uses(slot)]
    for slot, task in lowered.tasks.items():
        if slot.kind is ItemKind.RELOAD and slot.name == rest.name:
            reload, offload = rest_slots(rest, slot.replica)
            here = [user for user in users if set(user.lanes) & set(task.lanes)]
            for user in here:
                yield Arc(reload, user.slot, 0, "reload")
                yield Arc(user.slot, offload, 0, "order")
            if not here:  # a replica that no part of a stream falls to
                yield Arc(reload, offload, 0, "order")
            yield Arc(offload, reload, 1, "order")
