"""`train_stage` and `infer_stage`: a stage op by op on described hardware, as a tree."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from rpeg.architecture import Architecture
from rpeg.architecture.model import Head
from rpeg.cost.execution import Execution
from rpeg.cost.machine import Machine
from rpeg.cost.sequences import Sequences
from rpeg.cost.training.check import check_batch, check_layout
from rpeg.cost.training.layer import Passes, end_passes, layer_passes
from rpeg.cost.training.microbatches import MicroBatches, microbatches
from rpeg.cost.training.pipeline import Loads, hand_over, loads_of
from rpeg.cost.training.update import update_costs
from rpeg.cost.tree import Cost, sequence


@lru_cache(maxsize=8192)
def train_stage(
    architecture: Architecture,
    sequences: Sequences,
    execution: Execution,
    machine: Machine,
    *,
    updates: int = 1,
    heads: tuple[Head, ...] = ("lm",),
) -> Cost:
    """`updates` optimizer steps over `sequences` in all, on the devices of the layout.

    The tree shows the slowest pipeline stage's time; FLOPs are of all devices. InputError where the layout cannot run.
    """
    check_layout(architecture, execution, machine)
    check_batch(sequences, execution, updates)
    work = microbatches(sequences, execution, updates)
    model = _model(architecture, execution, machine, work, heads, trains=True)
    times = [passes.training_seconds for passes in model.kinds]
    loads = _loads(model, times, [end.training_seconds for end in model.ends])
    steady = _steady(model, loads, work, training=True)
    forward = _stage_seconds(model, loads, "forward")
    update = update_costs(
        architecture, execution, machine, loads.layers, forward, steady.seconds / max(1, work.count) - forward
    )
    children = [steady, *_pipeline(model, loads, work, ways=2), *update]
    if machine.stack.training.host_seconds_per_update:
        children.append(Cost("host", machine.stack.training.host_seconds_per_update, bound="host"))
    one = sequence("update", children)
    return sequence(
        "train", [one if updates == 1 else replace(_scaled(one, updates, updates), count=updates)]
    )


@lru_cache(maxsize=8192)
def infer_stage(
    architecture: Architecture,
    sequences: Sequences,
    execution: Execution,
    machine: Machine,
    *,
    heads: tuple[Head, ...] = ("lm",),
) -> Cost:
    """One forward over `sequences`: log-probabilities of the scored tokens, or values, or both."""
    check_layout(architecture, execution, machine)
    work = microbatches(sequences, execution)
    model = _model(architecture, replace(execution, recompute="none"), machine, work, heads, trains=False)
    times = [passes.forward.seconds for passes in model.kinds]
    loads = _loads(model, times, [end.forward.seconds for end in model.ends])
    steady = _steady(model, loads, work, training=False)
    return sequence("inference", [steady, *_pipeline(model, loads, work, ways=1)])


@dataclass(frozen=True, slots=True)
class _Model:
    """The layers and ends of a model for one micro-batch on one rank."""

    architecture: Architecture
    execution: Execution
    machine: Machine
    kinds: tuple[Passes, ...]
    ends: tuple[Passes, Passes]

    @property
    def ranks(self) -> int:
        """Of one pipeline stage."""
        layout = self.execution.parallelism
        return layout.dp * layout.tp * layout.cp


def _model(
    architecture: Architecture,
    execution: Execution,
    machine: Machine,
    work: MicroBatches,
    heads: tuple[Head, ...],
    *,
    trains: bool,
) -> _Model:
    cp = execution.parallelism.cp
    kinds = tuple(
        layer_passes(architecture, layer, execution, machine, work.tokens / cp, work.reach, trains)
        for layer, _ in architecture.groups
    )
    ends = end_passes(architecture, execution, machine, work.tokens / cp, work.scored / cp, heads, trains)
    return _Model(architecture, execution, machine, kinds, ends)


def _loads(model: _Model, kinds: list[float], ends: list[float]) -> Loads:
    balanced = model.machine.stack.memory.balanced_stages
    return loads_of(model.architecture, model.execution, kinds, *ends, balanced=balanced)


def _steady(model: _Model, loads: Loads, work: MicroBatches, *, training: bool) -> Cost:
    """The slowest stage busy with all micro-batches."""
    layers = model.architecture.layers
    children = []
    for (layer, count), passes in zip(model.architecture.groups, model.kinds, strict=True):
        on_stage = loads.layers * count / layers
        children.append(
            _spread(
                f"{layer.mixer} {layer.feed_forward} layer",
                passes.training() if training else (passes.forward,),
                on_stage * work.count,
                count * work.count * model.ranks,
            )
        )
    for name, passes, shown in zip(("embedding", "head"), model.ends, (loads.first, loads.last), strict=True):
        ways = passes.training() if training else (passes.forward,)
        children.append(_spread(name, ways, work.count * shown, work.count * model.ranks))
    return replace(sequence("micro-batches", children), count=max(1, work.count))


def _spread(name: str, ways: tuple[Cost, ...], seconds: float, work: float) -> Cost:
    """Time of one rank, work of all."""
    return _scaled(sequence(name, ways), seconds, work)


def _scaled(cost: Cost, seconds: float, work: float) -> Cost:
    return Cost(
        cost.name,
        cost.seconds * seconds,
        cost.flops * work,
        cost.bytes * work,
        cost.bound,
        cost.measured_seconds * seconds,
        cost.count,
        tuple(_scaled(child, seconds, work) for child in cost.children),
    )


def _pipeline(model: _Model, loads: Loads, work: MicroBatches, ways: int) -> list[Cost]:
    """Filling and draining, and what stages hand on that does not hide behind their work."""
    vpp = model.execution.parallelism.vpp
    if model.execution.parallelism.pp == 1 or not work.count:
        return []
    seconds, moved = hand_over(model.architecture, model.execution, model.machine, work, ways)
    return [
        Cost("pipeline bubble", float(loads.fill / vpp), bound="compute"),
        Cost("pipeline hand-over", float(seconds), bytes=moved, bound="network"),
    ]


def _stage_seconds(model: _Model, loads: Loads, way: str) -> float:
    """Seconds of one way of one micro-batch through the slowest stage."""
    layers = sum(
        getattr(passes, way).seconds * count
        for (_, count), passes in zip(model.architecture.groups, model.kinds, strict=True)
    )
    ends = (
        loads.first * getattr(model.ends[0], way).seconds + loads.last * getattr(model.ends[1], way).seconds
    )
    return float(layers * loads.layers / model.architecture.layers + ends)
