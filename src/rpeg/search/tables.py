"""`Tables`: what the cost model has answered, as rows for the compiled search; asked when the search first needs it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from rpeg.ir import Model
from rpeg.search.core.layout import (
    LEVELS,
    MISSING_LEVEL,
    MISSING_OPTIONS,
    MISSING_TRANSFER,
    PER_OCTAVE,
    SLOTS,
    Floats,
    Ints,
    Rows,
    Shape,
    Site,
)
from rpeg.search.core.structs import Struct, rows_struct
from rpeg.search.model import CostModel, Option, Placed, Profile, Use
from rpeg.search.space import Space
from rpeg.search.structure import Structure


class Tables:
    """Rows, and what each of them stands for."""

    def __init__(self, model: CostModel, space: Space, draws: int) -> None:
        self._model, self._space, self._draws = model, space, draws
        self._profiles: list[Profile] = []
        self._numbers: dict[object, int] = {}
        self._layouts: dict[Hashable, int] = {}
        self._held: dict[Hashable, int] = {}
        self._models: dict[Model, int] = {}
        self.placed: list[Placed] = []
        self._count = 0
        self.asked = 0
        kinds, most = len(model.kinds), max(space.units) + 1
        aligns = max(kind.width for kind in model.kinds).bit_length()
        self.rows = Rows(
            where=np.full((8, kinds, most, aligns, 2), -1, np.int64),
            layout=np.zeros(64, np.int64),
            holds=np.zeros(64, np.int64),
            least=np.zeros(64),
            work=np.full((8, kinds), math.inf),
            core=np.full((64, SLOTS, 2), -1, np.int64),
            held=np.zeros((64, SLOTS, 2, 8)),
            host=np.zeros((64, SLOTS, 4)),
            engine=np.zeros((64, 6)),
            levels=np.full((64, LEVELS), -1, np.int64),
            seconds=np.zeros(1 << 12),
            moved=np.full((1 << 12, 2), -1, np.int64),
        )
        self._transfers = 0
        self._native: tuple[Rows, Struct] | None = None

    def copy(self) -> Tables:
        """With rows of its own."""
        made = copy(self)
        made._native = None
        made.rows = Rows(**{name: array.copy() for name, array in self.rows._asdict().items()})
        made.placed, made._profiles = list(self.placed), list(self._profiles)
        made._numbers, made._layouts = dict(self._numbers), dict(self._layouts)
        made._held, made._models = dict(self._held), dict(self._models)
        return made

    @property
    def site(self) -> Site:
        """The devices, for the compiled search."""
        kinds = self._model.kinds
        return Site(
            capacity=np.array([kind.capacity_bytes for kind in kinds]),
            share=np.array([kind.share for kind in kinds]),
            units=np.array(self._space.units, np.int64),
            unit=np.array(self._space.unit, np.int64),
            width=np.array([kind.width for kind in kinds], np.int64),
            host=np.array([kind.host_bytes for kind in kinds]),
            draws=self._draws,
            dispatch=self._model.dispatch_seconds,
        )

    def shape(self, structure: Structure) -> Shape:
        """A structure's, with the rows of its profiles and the numbers of its models that all structures share."""
        numbers = [self._number(profile) for profile in structure.profiles]
        edges = structure.shape.edges.copy()
        for edge in edges:
            model = structure.bare.models[edge[5]]
            edge[5] = self._models.setdefault(model, len(self._models))
        return structure.shape._replace(profile=np.array(numbers, np.int64), edges=edges)

    @property
    def native(self) -> Struct:
        """The rows, for the core."""
        if self._native is None or self._native[0] is not self.rows:
            self._native = self.rows, rows_struct(self.rows)
        return self._native[1]

    def fill(self, structure: Structure, miss: Sequence[int]) -> None:
        """Asks the cost model for what an evaluation missed."""
        self.asked += 1
        code, a, b, c, d = miss[:5]
        if code == MISSING_OPTIONS:
            self._options(self._number(structure.profiles[a]), b, c, d)
        elif code == MISSING_LEVEL:
            self._level(a, b)
        elif code == MISSING_TRANSFER:
            ends = structure.profiles[d], structure.profiles[miss[5]]
            self._transfer(a, b, c, miss[6], ends)

    def options(self, structure: Structure, stage: int, kind: int, units: int, align: int) -> range:
        """The rows of a stage's options on a block."""
        number = self._number(structure.profiles[stage])
        if self.rows.where[number, kind, units, align, 0] < 0:
            self._options(number, kind, units, align)
        first, count = (int(self.rows.where[number, kind, units, align, i]) for i in (0, 1))
        return range(first, first + count)

    def layout_number(self, option: Option) -> int:
        """Of its layout: options of one number can share weights."""
        return self._layouts.setdefault(option.parallelism.layout, len(self._layouts))

    def _number(self, profile: Profile) -> int:
        number = self._numbers.setdefault(profile.key, len(self._numbers))
        if number == len(self._profiles):
            self._profiles.append(profile)
            if number >= len(self.rows.where):
                r = self.rows
                self.rows = r._replace(where=_grown(r.where, -1), work=_grown(r.work, math.inf))
        return number

    def _options(self, number: int, kind: int, units: int, align: int) -> None:
        profile = self._profiles[number]
        devices = units * self._space.unit[kind]
        found = self._model.options(profile, kind, devices, 1 << align)
        first = self._count
        for option in found:
            self._row(Placed(profile, option, kind, devices))
        self.rows.where[number, kind, units, align] = first, len(found)
        self._works(number, kind, units, self.rows.least[first : first + len(found)])

    def _works(self, number: int, kind: int, units: int, seconds: Floats) -> None:
        """Keeps the least work, in seconds × units, that a profile was seen to be on devices of a kind."""
        if len(seconds) and seconds.min() > 0:
            least = float(seconds.min()) * max(1, units)
            self.rows.work[number, kind] = min(self.rows.work[number, kind], least)

    def _row(self, placed: Placed) -> None:
        row = self._count
        while row >= len(self.rows.layout):
            r = self.rows
            self.rows = r._replace(
                layout=_grown(r.layout, 0),
                holds=_grown(r.holds, 0),
                least=_grown(r.least, 0),
                core=_grown(r.core, -1),
                held=_grown(r.held, 0),
                host=_grown(r.host, 0),
                engine=_grown(r.engine, 0),
                levels=_grown(r.levels, -1),
            )
        self._count += 1
        self.placed.append(placed)
        self.rows.layout[row] = self.layout_number(placed.option)
        self.rows.holds[row] = self._held.setdefault(placed.holds, len(self._held))
        for slot, pair in enumerate(placed.option.uses):
            for variant, use in enumerate(pair):
                if use is not None:
                    self._use(row, slot, variant, use)
            if placed.option.engine is None:
                self.rows.least[row] += min(use.mean_seconds for use in pair if use is not None)
        engine = placed.option.engine
        if engine is not None:
            self.rows.engine[row] = (
                engine.peak, engine.generating, engine.sequence, engine.rows, engine.wake, engine.process
            )  # fmt: skip

    def _use(self, row: int, slot: int, variant: int, use: Use) -> None:
        if use.seconds.size:
            self.rows.core[row, slot, variant] = self._put(use.seconds)
        self.rows.held[row, slot, variant] = (
            use.peak, use.weights, use.more, *use.moves, use.peak_apart, use.process
        )  # fmt: skip
        self.rows.host[row, slot] = use.host

    def _level(self, row: int, level: int) -> None:
        placed = self.placed[row]
        assert placed.option.engine is not None
        size = placed.option.engine.sequence * 2.0 ** (level / PER_OCTAVE)
        items, bases = self._model.generation(placed, size)
        seconds = float(items.mean(axis=1).sum())
        known = self.rows.least[row]
        self.rows.least[row] = min(known, seconds) if known else seconds
        self.rows.levels[row, level] = self._put(np.concatenate([items.ravel(), bases.ravel()]))

    def _transfer(
        self, source: int, target: int, relation: int, number: int, ends: tuple[Profile, Profile]
    ) -> None:
        """ends: the profiles of this structure, as rows may come from others with other names of stages."""
        model = next(model for model, own in self._models.items() if own == number)
        here, there = (
            replace(self.placed[row], profile=p) for row, p in zip((source, target), ends, strict=True)
        )
        seconds = self._model.transfer(model.name, here, there, relation)
        holds = int(self.rows.holds[source]), int(self.rows.holds[target])
        key = ((holds[0] << 20 | holds[1]) << 2 | relation) << 6 | number
        if 2 * self._transfers >= len(self.rows.moved):
            self._rehash()
        self.rows.moved[_find(self.rows.moved, key)] = key, self._put(np.array([seconds]))
        self._transfers += 1

    def _rehash(self) -> None:
        old = self.rows.moved
        moved = np.full((2 * len(old), 2), -1, np.int64)
        for key, place in old[old[:, 0] >= 0].tolist():
            moved[_find(moved, key)] = key, place
        self.rows = self.rows._replace(moved=moved)

    _used = 0

    def _put(self, values: Floats) -> int:
        """Seconds into the pool; their place."""
        at, flat = self._used, values.ravel()
        while at + len(flat) > len(self.rows.seconds):
            self.rows = self.rows._replace(seconds=_grown(self.rows.seconds, 0))
        self.rows.seconds[at : at + len(flat)] = flat
        self._used += len(flat)
        return at


def _find(table: Ints, key: int) -> int:
    """The place of a key in an open hash table, or that where it would go; as the core looks for it."""
    size = len(table)
    place = ((key * 40503 + (key >> 17)) & (2**64 - 1)) % size
    while table[place, 0] not in (key, -1):
        place = (place + 1) % size
    return place


def _grown(array: np.typing.NDArray[Any], fill: float) -> np.typing.NDArray[Any]:
    """Twice as long."""
    return np.concatenate([array, np.full_like(array, fill)])
