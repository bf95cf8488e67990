"""`train_seconds` and `infer_seconds`: what `train_stage` and `infer_stage` take, of many layouts and batches at once.

For a search, which asks for seconds alone. Kernels rest on how a layout cuts tensors and on the micro-batch: layouts
that cut alike ask them once, at the sizes of all their micro-batches. What sharding adds is the same for every batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from rpeg.cost.training.ways import Sums, Ways, added_to_ends, added_to_layer, layer_parts
from rpeg.plan import Parallelism


def train_seconds(
    architecture: Architecture,
    lengths: Lengths,
    executions: Sequence[Execution],
    machine: Machine,
    *,
    updates: Floats | int = 1,
    heads: tuple[Head, ...] = ("lm",),
) -> Floats:
    """(executions, batches) seconds of `train_stage`. All executions pack their micro-batches and can run.

    updates: optimizer steps over each batch.
    """
    out = np.empty((len(executions), len(lengths.tokens)))
    host = machine.stack.training.host_seconds_per_update
    for i, model in _models(architecture, lengths, executions, machine, heads, updates, trains=True):
        loads = model.loads([ways.training for ways in model.kinds], [ways.training for ways in model.ends])
        steady, bubble = model.steady(loads, "training"), model.pipeline(loads, ways=2)
        forward = model.once(loads, "forward")
        backward = steady / np.maximum(model.work.count, 1.0) - forward
        added = update(architecture, model.execution, machine, loads.layers, forward, backward).seconds
        out[i] = (steady + bubble + added + host) * updates
    return out


def infer_seconds(
    architecture: Architecture,
    lengths: Lengths,
    executions: Sequence[Execution],
    machine: Machine,
    *,
    heads: tuple[Head, ...] = ("lm",),
) -> Floats:
    """(executions, batches) seconds of `infer_stage`. All executions pack their micro-batches and can run."""
    out = np.empty((len(executions), len(lengths.tokens)))
    for i, model in _models(architecture, lengths, executions, machine, heads, 1, trains=False):
        loads = model.loads([ways.forward for ways in model.kinds], [ways.forward for ways in model.ends])
        out[i] = model.steady(loads, "forward") + model.pipeline(loads, ways=1)
    return out


@dataclass(frozen=True)
class _Model:
    """A model under one execution, for one micro-batch of each of many batches on one rank."""

    architecture: Architecture
    execution: Execution
    machine: Machine
    work: MicroBatches
    kinds: tuple[Ways, ...]
    ends: tuple[Ways, Ways]

    def loads(self, kinds: Sequence[Amount], ends: Sequence[Amount]) -> Loads:
        """Of pipeline stages."""
        balanced = self.machine.stack.memory.balanced_stages
        return loads_of(self.architecture, self.execution, kinds, *ends, balanced=balanced)

    def once(self, loads: Loads, way: str) -> Amount:
        """Seconds of one micro-batch in the slowest stage, one way or all of training."""
        kinds = zip(self.architecture.groups, self.kinds, strict=True)
        layers: Amount = sum(getattr(ways, way) * count for (_, count), ways in kinds)
        first, last = (getattr(ways, way) for ways in self.ends)
        return layers * loads.layers / self.architecture.layers + first * loads.first + last * loads.last

    def steady(self, loads: Loads, way: str) -> Amount:
        """The slowest stage busy with all micro-batches."""
        return self.once(loads, way) * self.work.count

    def pipeline(self, loads: Loads, ways: int) -> Amount:
        """Filling and draining, and handing on."""
        if self.execution.parallelism.pp == 1:
            return 0.0
        handed, _ = hand_over(self.architecture, self.execution, self.machine, self.work, ways)
        return np.where(self.work.count > 0, loads.fill / self.execution.parallelism.vpp + handed, 0.0)


def _models(
    architecture: Architecture,
    lengths: Lengths,
    executions: Sequence[Execution],
    machine: Machine,
    heads: tuple[Head, ...],
    passes: Floats | int,
    *,
    trains: bool,
) -> Iterator[tuple[int, _Model]]:
    """With the place of each among the executions."""
    alike: dict[Execution, list[int]] = {}
    for i, execution in enumerate(executions):
        alike.setdefault(_cut(execution), []).append(i)
    count = len(lengths.tokens)
    for shape, members in alike.items():
        works = {
            (e.parallelism.dp, e.token_budget): packed(lengths, e, passes)
            for e in map(executions.__getitem__, members)
        }
        tokens, scored, reach = (
            np.concatenate([getattr(work, name) for work in works.values()])
            for name in ("tokens", "scored", "reach")
        )
        cp = shape.parallelism.cp
        setting = Setting(architecture, shape, machine, kernels_of(machine), tokens / cp, reach)
        layers = [Sums.of(layer_parts(setting, layer)) for layer, _ in architecture.groups]
        ends = [
            Sums.of(parts) for parts in (embedding_parts(setting), head_parts(setting, heads, scored / cp))
        ]
        place = {key: slice(n * count, (n + 1) * count) for n, key in enumerate(works)}
        for i in members:
            e = executions[i]
            key = e.parallelism.dp, e.token_budget
            recompute = e.recompute if trains else "none"
            own = replace(setting, execution=e)
            kinds = tuple(
                Ways.of(sums.at(place[key]), added_to_layer(own, layer, trains), recompute)
                for (layer, _), sums in zip(architecture.groups, layers, strict=True)
            )
            first, last = (
                Ways.of(sums.at(place[key]), added, "none")
                for sums, added in zip(ends, added_to_ends(own), strict=True)
            )
            yield i, _Model(architecture, e, machine, works[key], kinds, (first, last))


def _cut(execution: Execution) -> Execution:
    """What of an execution the kernels of a micro-batch rest on."""
    p = execution.parallelism
    cut = Parallelism(tp=p.tp, cp=p.cp, ep=p.ep, sequence_parallel=p.sequence_parallel)
    return replace(execution, parallelism=cut, microbatch=1, token_budget=0, recompute="none", offload="none")
