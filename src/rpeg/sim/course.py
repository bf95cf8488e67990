"""What becomes of an item that runs: how long it takes, what leaves it and when, and which samples each lane works on.

The simulator lets it happen on its clock, fake workers on theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rpeg.ir import KEPT, Kind
from rpeg.plan import Cell, Item, ItemKind, Plan, lower
from rpeg.schedule import Event, Kept, Launch, Produced, Rejected, SyncWeights, Work, share
from rpeg.sim.costs import Batch, Costs
from rpeg.sim.lengths import Draws
from rpeg.sim.migration import finished, generated
from rpeg.sim.selection import REJECTED, judge
from rpeg.trace import OVER_QUOTA, Span

_MOST_SHARES = 256


@dataclass(frozen=True)
class Course:
    """An item from its start to its end, `seconds` later. events: (seconds from the start, what is heard of it then)."""

    seconds: float
    events: tuple[tuple[float, Event], ...] = ()


class Courses:
    """Of a plan's items, with the lengths of `draws`.

    seed: of the run. What a selector leaves to the next step is remembered between the two: ask once for each item.
    """

    def __init__(self, plan: Plan, costs: Costs, draws: Draws, seed: int) -> None:
        self._plan, self._costs, self._draws, self._seed = plan, costs, draws, seed
        self._lowered = lower(plan.graph, plan.assignments, plan.workload)
        self._left: dict[int, tuple[int, ...]] = {}  # step → what it left to the next
        self._shares: dict[tuple[int, tuple[Cell, ...]], tuple[Batch, dict[str, Batch]]] = {}

    def of(self, command: Work) -> Course:
        item, selector = command.item, self._plan.graph.selector
        if isinstance(command, Launch) and self._kind(item) is Kind.GENERATE:
            return self._generation(command)
        seconds = self._costs.duration_seconds(item, self._batch(command))
        if isinstance(command, Launch) and selector is not None and item.name == selector.name:
            return Course(seconds, tuple((seconds, event) for event in self._selection(command)))
        return Course(seconds)

    def spans(
        self,
        command: Work,
        seq: int,
        start: float,
        end: float,
        *,
        worker: str = "",
        lanes: Sequence[str] = (),
        samples: bool = True,
    ) -> list[Span]:
        """What an item's lanes tell of it. seq: of its command. start, end: seconds of the workers' clock.

        worker: "" is one for each lane. lanes: of the item's those to tell of, all without. samples: whether spans say
        which they worked on.
        """
        item, wanted = command.item, frozenset(lanes)
        reads, makes = self._versions(command)
        digests = {f"{m}@{v}": f"sim:{m}@{v}" for m, v in [*reads.items(), *makes.items()]}
        worked = self._worked(command) if samples else [((), 0)] * len(command.lanes)
        memory = self._costs.memory_bytes
        return [
            Span(
                worker or lane,
                lane,
                item,
                seq,
                start,
                end,
                reads,
                makes,
                digests,
                ids,
                tokens,
                memory(item, lane),
            )
            for lane, (ids, tokens) in zip(command.lanes, worked, strict=True)
            if not wanted or lane in wanted
        ]

    def _generation(self, launch: Launch) -> Course:
        item = launch.item
        done = generated(self._plan, self._lowered, self._costs, self._draws, item, launch.ids)
        events = tuple(
            (offset, Produced(item, part, members.ids, members.response_lengths))
            for part, offset, members in done.parts
        )
        return Course(done.seconds, events)

    def _selection(self, launch: Launch) -> list[Event]:
        """What is accepted, rejected, left over or left to the next step."""
        item, selector = launch.item, self._plan.graph.selector
        assert selector is not None
        left = self._left.pop(item.step - 1, ()) if item.part == 0 else ()
        found = judge(launch.ids, launch.wanted, self._plan.workload, self._seed, left)
        own = set(launch.ids)
        over = tuple(i for i in found.over if i in own)
        events: list[Event] = []
        if found.rejected:
            events.append(Rejected(item, found.rejected, REJECTED))
        if KEPT in selector.gives and over:
            self._left[item.step] = over
            events.append(Kept(item, over))
        elif over:
            events.append(Rejected(item, over, OVER_QUOTA))
        if late := tuple(i for i in found.over if i not in own):
            events.append(Rejected(item, late, OVER_QUOTA))
        accepted = self._draws.batch(found.accepted)
        makes = self._lowered.tasks[item.slot].makes
        return events + [Produced(item, part, accepted.ids, accepted.response_lengths) for part in makes]

    def _batch(self, command: Work) -> Batch:
        return self._draws.batch(command.ids) if isinstance(command, Launch) else Batch()

    def _kind(self, item: Item) -> Kind | None:
        return self._plan.graph.stage(item.name).kind if item.kind is ItemKind.RUN else None

    def _worked(self, command: Work) -> list[tuple[tuple[int, ...], int]]:
        """(ids, tokens) of the samples that an item works on, on each of its lanes."""
        item, lanes = command.item, command.lanes
        prompts = 0 if self._kind(item) is Kind.GENERATE else 1
        return [
            (own.ids, prompts * sum(own.prompt_lengths) + sum(own.response_lengths))
            for own in self._by_lane(item, self._finished(command), lanes)
        ]

    def _finished(self, command: Work) -> Batch:
        item = command.item
        if item.kind is ItemKind.RUN and self._lowered.tasks[item.slot].hands_over:
            return finished(self._plan, self._lowered, self._costs, self._draws, item)
        return self._batch(command)

    def _by_lane(self, item: Item, batch: Batch, lanes: tuple[str, ...]) -> list[Batch]:
        """The samples of each lane: its data-parallel ranks' shares; lanes of one model replica have the same."""
        if len(lanes) == 1 or item.kind is not ItemKind.RUN:
            return [batch] * len(lanes)
        cells = self._lowered.held.cells(self._plan.assignment(item.name), lanes)
        # stages of a step work on the same batch, which is kept alive with its shares
        key = id(batch), cells
        if key not in self._shares:
            if len(self._shares) >= _MOST_SHARES:
                self._shares.clear()
            self._shares[key] = (batch, _of_cells(batch, cells))
        own = self._shares[key][1]
        return [own[lane] for lane in lanes]

    def _versions(self, command: Work) -> tuple[dict[str, int], dict[str, int]]:
        """Versions that an item reads and makes."""
        if isinstance(command, SyncWeights):
            return {command.model: command.version}, {}
        if not isinstance(command, Launch):
            return {}, {}
        reads = dict(command.versions)
        if self._kind(command.item) is not Kind.TRAIN or not self._lowered.ends(command.item.slot):
            return reads, {}
        return reads, dict.fromkeys(reads, command.item.step + 1)


def _of_cells(batch: Batch, cells: tuple[Cell, ...]) -> dict[str, Batch]:
    equal = len({len(cell.replicas) for cell in cells}) == 1  # then each cell is as good as one rank
    ranks = [1 if equal else len(cell.replicas) for cell in cells]
    shares = iter(share(batch.ids, batch.response_lengths, sum(ranks)))
    position = {sample_id: i for i, sample_id in enumerate(batch.ids)}
    own: dict[str, Batch] = {}
    for cell, count in zip(cells, ranks, strict=True):
        ids = [i for _ in range(count) for i in next(shares)]
        own.update(dict.fromkeys(cell.lanes, batch.take([position[i] for i in ids])))
    return own
