"""One layer, and the two ends of a model, on one rank for one micro-batch: forward, recomputation, backward."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from rpeg.architecture import Architecture
from rpeg.architecture.model import Head, Layer
from rpeg.cost.execution import Execution
from rpeg.cost.kernels import kernels_of
from rpeg.cost.machine import Machine
from rpeg.cost.training.ends import embedding_parts, head_parts
from rpeg.cost.training.parts import Part, Setting
from rpeg.cost.training.ways import Added, Sums, added_to_ends, added_to_layer, layer_parts
from rpeg.cost.tree import Cost, sequence


@dataclass(frozen=True, slots=True)
class Passes:
    """The ways that a micro-batch takes through one layer (or one end)."""

    forward: Cost
    recompute: Cost | None
    backward: Cost

    @property
    def training_seconds(self) -> float:
        """Of all ways."""
        return (
            self.forward.seconds + self.backward.seconds + (self.recompute.seconds if self.recompute else 0.0)
        )

    def training(self) -> tuple[Cost, ...]:
        """All ways in order."""
        return tuple(cost for cost in (self.forward, self.recompute, self.backward) if cost is not None)


@lru_cache(maxsize=4096)
def layer_passes(
    architecture: Architecture,
    layer: Layer,
    execution: Execution,
    machine: Machine,
    tokens: float,
    reach: float,
    trains: bool,
) -> Passes:
    """A layer of one kind. tokens, reach: of the micro-batch on this rank. trains: it has a backward pass."""
    setting = Setting(architecture, execution, machine, kernels_of(machine), tokens, reach, trains)
    parts = layer_parts(setting, layer)
    return _passes(parts, execution.recompute, added_to_layer(setting, layer))


@lru_cache(maxsize=4096)
def end_passes(
    architecture: Architecture,
    execution: Execution,
    machine: Machine,
    tokens: float,
    scored: float,
    heads: tuple[Head, ...],
    trains: bool,
) -> tuple[Passes, Passes]:
    """Embedding and head. tokens: of the micro-batch on this rank; scored: of them for the lm head."""
    setting = Setting(architecture, execution, machine, kernels_of(machine), tokens, 0.0, trains)
    parts = embedding_parts(setting), head_parts(setting, heads, scored)
    added = added_to_ends(setting)
    return _passes(parts[0], "none", added[0]), _passes(parts[1], "none", added[1])


def _passes(parts: list[Part], recompute: str, added: Added) -> Passes:
    sums = Sums.of(parts)
    ahead, back = [], []
    if added.gather:
        ahead.append(Cost("parameter gather", added.ahead(sums.forward), bound="network"))
    if added.gather or added.scatter:
        shown = added.back(sums.backward)
        back.append(Cost("parameter gather and gradient scatter", shown, bound="network"))
    if added.accumulation:
        back.append(Cost("gradient accumulation", added.accumulation, bound="memory"))
    again = _again(parts, recompute)
    repeats = recompute == "full"
    return Passes(
        _way("forward", _leaves(parts, "forward"), added.host, ahead),
        _way("recompute", again, added.host if repeats else 0.0, ()) if again else None,
        _way("backward", _leaves(parts, "backward"), added.host, back),
    )


def _leaves(parts: Iterable[Part], way: str) -> list[Cost]:
    """Leaves of one way; equal names (two norms) are one leaf."""
    out: dict[str, Cost] = {}
    for part in parts:
        seconds, flops, moved, is_measured = part.forward if way == "forward" else part.backward
        old = out.get(part.name)
        measured = seconds if is_measured else 0.0
        if old is None:
            out[part.name] = Cost(part.name, seconds, flops, moved, part.bound, measured)
        else:
            out[part.name] = Cost(
                part.name,
                old.seconds + seconds,
                old.flops + flops,
                old.bytes + moved,
                part.bound,
                old.measured_seconds + measured,
                old.count + 1,
            )
    return list(out.values())


def _again(parts: Iterable[Part], recompute: str) -> list[Cost]:
    """What backward repeats of the forward."""
    if recompute == "none":
        return []
    if recompute == "full":
        return _leaves(parts, "forward")
    return [
        leaf.scaled(part.selective) for part in parts if part.selective for leaf in _leaves([part], "forward")
    ]


def _way(name: str, leaves: Sequence[Cost], host: float, extra: Sequence[Cost]) -> Cost:
    cost = sequence(name, (*leaves, *extra))
    wait = host - cost.seconds
    return sequence(name, (*leaves, *extra, Cost("host launches", wait, bound="host"))) if wait > 0 else cost
