"""Instances whose costs are drawn or made: for tests of the search and proofs of how good it is."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rpeg.cluster import local
from rpeg.ir import Graph, Kind
from rpeg.plan import Parallelism
from rpeg.search.anneal import Search
from rpeg.search.model import Cached, Floats, Kinds, Option, Placed, Profile, Use
from rpeg.search.problem import Permissions, Problem
from rpeg.search.space import Space
from rpeg.search.tables import Tables
from rpeg.sim import Draws, Facts
from rpeg.workload import Workload, constant, lognormal

DISPATCH_SECONDS = 0.001


@dataclass(frozen=True)
class Planted:
    """The best plan by construction: units of each stage, and its seconds there; elsewhere it costs more."""

    units: Mapping[str, int]
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class Drawn:
    """Implements `CostModel` with costs drawn from a seed. kinds: units by kind, of `each` devices.

    choices: options of a stage on a block, at most. crowding: about how many models' states fill a device.
    """

    seed: int
    units: tuple[int, ...]
    each: int = 1
    choices: int = 2
    crowding: float = 3.0
    planted: Planted | None = None
    work: Mapping[str, float] = field(default_factory=dict)

    @property
    def dispatch_seconds(self) -> float:
        return DISPATCH_SECONDS

    @property
    def kinds(self) -> tuple[Kinds, ...]:
        first, found = 0, []
        for number, units in enumerate(self.units):
            ids = tuple(range(first, first + units * self.each))
            found.append(Kinds(f"kind{number}", ids, self.each, 1.0, 0.9, 0.0))
            first += len(ids)
        return tuple(found)

    def options(self, profile: Profile, kind: int, devices: int, align: int) -> Sequence[Option]:
        stage, units = profile.stage, devices // self.each
        shape = (profile.items, profile.draws)
        if stage.kind is Kind.HOST:
            return (Option(Parallelism(), 1, "none", ((Use(np.full((1, *shape), 0.001)[0]), None),)),)
        found = []
        for choice in range(self.choices):
            seconds = self._seconds(profile, kind, units, choice) * self._factors(profile) / profile.items
            found.append(self._option(profile, kind, devices, choice, seconds))
        return tuple(sorted(found, key=lambda o: float((o.uses[0][0] or o.uses[0][1]).seconds.sum())))  # type: ignore[union-attr]

    def generation(self, placed: Placed, cache_bytes: float) -> tuple[Floats, Floats]:
        bases = sum(map(len, placed.profile.bases))
        use = placed.option.uses[0][0]
        assert use is not None
        slow = 1.0 if self.planted else 1.0 + 0.02 / max(0.02, cache_bytes)
        items = use.seconds * slow
        leaves = np.array([(i + 1) / max(1, bases) for i in range(bases)])
        return items, leaves[:, None] * items.sum(axis=0)[None, :]

    def transfer(self, model: str, source: Placed, target: Placed, relation: int) -> float:
        if self.planted:
            return 0.01
        return 0.05 + 0.5 * self._uniform("transfer", model, source.devices, target.devices, relation)

    def _seconds(self, profile: Profile, kind: int, units: int, choice: int) -> float:
        """Of a fused stage as long as of its parts."""
        return sum(self._part(name, kind, units, choice) for name in profile.stage.name.split("+"))

    def _part(self, name: str, kind: int, units: int, choice: int) -> float:
        if self.planted is not None:
            own = self.planted.units.get(name, 1)
            best = self.planted.seconds.get(name, 1.0)
            if units == own and choice == 0:
                return float(best)
            loss = 0.03 + 0.5 * self._uniform("loss", name, units, choice)
            return best * own / units * (1 + loss)
        size = self.work.get(name, 0.5 + 8 * self._uniform("work", name))
        scaling = 0.5 + 0.5 * self._uniform("scaling", name)
        speed = 0.5 + self._uniform("kind", name, kind) if len(self.units) > 1 else 1.0
        chosen = 1 + 0.4 * self._uniform("choice", name, units, choice)
        return float(size / units**scaling * chosen / speed)

    def _option(self, profile: Profile, kind: int, devices: int, choice: int, seconds: Floats) -> Option:
        stage = profile.stage
        size = (0.5 + self._uniform("size", *stage.models)) / self.crowding / (1 + 0.5 * choice)
        if self.planted:
            size = 0.01
        moves = (0.05, 0.1, 0.15)
        use = Use(seconds, size * 1.4, size * 1.2, size * 0.5, size * 0.4, 0.0, moves)
        pairs: list[tuple[Use | None, Use | None]] = [(use, use)] * len(stage.models)
        if len(pairs) > 1:
            rest = Use(seconds * 0.0, use.peak, use.peak_apart, use.weights, use.more, 0.0, moves)
            pairs = [(use, use), *[(rest, rest)] * (len(pairs) - 1)]
        if stage.kind is Kind.TRAIN:
            pairs = [(None, trained) for _, trained in pairs]
        cached = Cached(size * 0.6, size * 0.5, 0.02, 16.0, 0.05) if stage.kind is Kind.GENERATE else None
        layout = Parallelism(dp=devices, vpp=choice + 1)
        return Option(layout, 1, "none", tuple(pairs), cached)

    def _factors(self, profile: Profile) -> Floats:
        """How draws differ: by their tokens."""
        tokens = np.array([sum(batch.tokens for batch in drawn) for drawn in profile.batches], float)
        if self.planted or not tokens.any():
            return np.ones((profile.items, profile.draws))
        return np.repeat((tokens / tokens.mean())[None, :], profile.items, axis=0)

    def _uniform(self, *what: object) -> float:
        digest = hashlib.blake2b(repr((self.seed, what)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") / 2**64


def search_in(
    graph: Graph,
    model: Drawn,
    permissions: Permissions,
    *,
    draws: int = 4,
    islands: int = 0,
    workload: Workload | None = None,
) -> Search:
    """A search over a graph with these costs."""
    w = workload or Workload(60, 2, constant(16), lognormal(40, 128), 2)
    devices = sum(model.units) * model.each
    problem = Problem(graph, local(devices, devices * 2**30), w, Facts({}), permissions=permissions)
    stages = len(graph.stages)
    room = Space(model.units, (model.each,) * len(model.units), islands or min(2 * stages, 24))
    return Search(problem, model, room, Draws(w, model.seed), draws, Tables(model, room, draws))
