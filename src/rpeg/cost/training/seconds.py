"""`Layouts`: seconds of training and of scoring under many layouts, of many batches at once.

For a search, which asks for seconds alone. Kernels rest on how a layout cuts tensors and on the micro-batch: layouts
that cut alike ask them once, at the sizes of all their micro-batches. What sharding adds is the same for every batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rpeg.architecture import Architecture
from rpeg.architecture.model import Head
from rpeg.cost.execution import Execution
from rpeg.cost.kernels import Amount, kernels_of
from rpeg.cost.machine import Machine
from rpeg.cost.training.ends import embedding_parts, head_parts
from rpeg.cost.training.microbatches import Floats, Lengths, MicroBatches, packed
from rpeg.cost.training.parts import Setting
from rpeg.cost.training.pipeline import Loads, hand_over, loads_of
from rpeg.cost.training.update import update
from rpeg.cost.training.ways import Added, Sums, Ways, added_to_ends, added_to_layer, layer_parts
from rpeg.plan import Parallelism


@dataclass(frozen=True)
class _Kernels:
    """Of one micro-batch of each of many batches. kinds: of a layer of each kind; ends: embedding and head."""

    work: MicroBatches
    kinds: tuple[Sums, ...]
    ends: tuple[Sums, Sums]


class Layouts:
    """A model that is trained (scored) under each of these executions, with each of these batches.

    executions: pack their micro-batches, can run, and differ in parallelism, micro-batch and recomputation alone.
    updates: optimizer steps over each batch, where it is trained; 0: it is scored.
    """

    def __init__(
        self,
        architecture: Architecture,
        lengths: Lengths,
        executions: Sequence[Execution],
        machine: Machine,
        *,
        heads: tuple[Head, ...] = ("lm",),
        updates: Floats | int = 0,
    ) -> None:
        self._architecture, self._machine, self._heads = architecture, machine, heads
        self._executions, self._lengths, self._updates = executions, lengths, updates
        self._trains = bool(np.any(updates))
        self._kernels = self._asked()
        self._known: dict[Parallelism, tuple[list[Added], tuple[Added, Added]]] = {}

    def least_seconds(self, i: int) -> Floats:
        """(batches,) no more than `seconds`: kernels alone, in a pipeline of equal stages. Costs next to nothing."""
        execution, asked = self._executions[i], self._kernels[i]
        once = sum(
            self._once(sums, execution) * count
            for (_, count), sums in zip(self._architecture.groups, asked.kinds, strict=True)
        )
        once = once + sum(self._once(sums, execution) for sums in asked.ends)
        p = execution.parallelism
        busy = once * ((asked.work.count - 1.0 / p.vpp) / p.pp + 1.0 / p.vpp)
        return np.asarray(np.where(asked.work.count > 0, busy, 0.0) * (self._updates if self._trains else 1))

    def seconds(self, i: int) -> Floats:
        """(batches,) of execution i, as `train_stage` and `infer_stage` have them."""
        execution = self._executions[i]
        model = self._model(execution, self._kernels[i])
        way = "training" if self._trains else "forward"
        loads = model.loads(way)
        steady = model.once(loads, way) * model.work.count
        if not self._trains:
            return np.asarray(steady + model.pipeline(loads, ways=1))
        forward = model.once(loads, "forward")
        backward = steady / np.maximum(model.work.count, 1.0) - forward
        added = update(self._architecture, execution, self._machine, loads.layers, forward, backward).seconds
        host = self._machine.stack.training.host_seconds_per_update
        return np.asarray((steady + model.pipeline(loads, ways=2) + added + host) * self._updates)

    def _once(self, sums: Sums, execution: Execution) -> Amount:
        if not self._trains:
            return sums.forward
        again = {"none": 0.0, "full": sums.forward}.get(execution.recompute, sums.selective)
        return sums.forward + sums.backward + again

    def _model(self, execution: Execution, asked: _Kernels) -> _Model:
        kinds, ends = self._added(execution)
        layers = tuple(map(Ways.of, asked.kinds, kinds, (execution.recompute,) * len(kinds)))
        first, last = map(Ways.of, asked.ends, ends, ("none", "none"))
        return _Model(self._architecture, execution, self._machine, asked.work, layers, (first, last))

    def _added(self, execution: Execution) -> tuple[list[Added], tuple[Added, Added]]:
        """To layers of each kind, to the ends: the same for all micro-batches of a layout."""
        known = self._known.get(execution.parallelism)
        if known is None:
            a, machine = self._architecture, self._machine
            setting = Setting(a, execution, machine, kernels_of(machine), 0.0, 0.0, self._trains)
            layers = [added_to_layer(setting, layer) for layer, _ in a.groups]
            known = self._known[execution.parallelism] = layers, added_to_ends(setting)
        return known

    def _asked(self) -> list[_Kernels]:
        """Of every execution."""
        alike: dict[Parallelism, list[int]] = {}
        for i, execution in enumerate(self._executions):
            alike.setdefault(_cut(execution.parallelism), []).append(i)
        found: dict[int, _Kernels] = {}
        for cut, members in alike.items():
            found |= self._of_cut(cut, members)
        return [found[i] for i in range(len(self._executions))]

    def _of_cut(self, cut: Parallelism, members: Sequence[int]) -> dict[int, _Kernels]:
        """Of the executions that cut tensors so: kernels are asked at the sizes of all of them together."""
        passes = self._updates if self._trains else 1
        executions = {i: self._executions[i] for i in members}
        keys = {i: (e.parallelism.dp, e.token_budget) for i, e in executions.items()}
        works = {key: packed(self._lengths, self._executions[i], passes) for i, key in keys.items()}
        tokens, scored, reach = (
            np.concatenate([getattr(work, name) for work in works.values()])
            for name in ("tokens", "scored", "reach")
        )
        shape = replace(self._executions[members[0]], parallelism=cut)
        a, machine = self._architecture, self._machine
        setting = Setting(a, shape, machine, kernels_of(machine), tokens / cut.cp, reach, self._trains)
        layers = [Sums.of(layer_parts(setting, layer)) for layer, _ in a.groups]
        ends = [
            Sums.of(embedding_parts(setting)),
            Sums.of(head_parts(setting, self._heads, scored / cut.cp)),
        ]
        count = len(self._lengths.tokens)
        made = {}
        for n, (key, work) in enumerate(works.items()):
            own = slice(n * count, (n + 1) * count)
            first, last = (sums.at(own) for sums in ends)
            made[key] = _Kernels(work, tuple(sums.at(own) for sums in layers), (first, last))
        return {i: made[key] for i, key in keys.items()}


@dataclass(frozen=True)
class _Model:
    """A model under one execution, for one micro-batch of each of many batches on one rank."""

    architecture: Architecture
    execution: Execution
    machine: Machine
    work: MicroBatches
    kinds: tuple[Ways, ...]
    ends: tuple[Ways, Ways]

    def loads(self, way: str) -> Loads:
        """Of pipeline stages."""
        kinds, ends = ([getattr(ways, way) for ways in some] for some in (self.kinds, self.ends))
        balanced = self.machine.stack.memory.balanced_stages
        return loads_of(self.architecture, self.execution, kinds, *ends, balanced=balanced)

    def once(self, loads: Loads, way: str) -> Amount:
        """Seconds of one micro-batch in the slowest stage, one way or all of training."""
        kinds = zip(self.architecture.groups, self.kinds, strict=True)
        layers: Amount = sum(getattr(ways, way) * count for (_, count), ways in kinds)
        first, last = (getattr(ways, way) for ways in self.ends)
        return layers * loads.layers / self.architecture.layers + first * loads.first + last * loads.last

    def pipeline(self, loads: Loads, ways: int) -> Amount:
        """Filling and draining, and handing on."""
        if self.execution.parallelism.pp == 1:
            return 0.0
        handed, _ = hand_over(self.architecture, self.execution, self.machine, self.work, ways)
        return np.where(self.work.count > 0, loads.fill / self.execution.parallelism.vpp + handed, 0.0)


def _cut(p: Parallelism) -> Parallelism:
    """What of a layout the kernels of a micro-batch rest on."""
    return Parallelism(tp=p.tp, cp=p.cp, ep=p.ep, sequence_parallel=p.sequence_parallel)
