"""What a stage takes by itself on described hardware, whoever shares its devices: rows for the search's tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

from rpeg import cost
from rpeg.cluster import Cluster
from rpeg.cost.generating import Policy, with_logprobs
from rpeg.cost.memory import sequence_cache_bytes
from rpeg.cost.memory.breakdown import Breakdown
from rpeg.cost.memory.check import check as check_memory
from rpeg.cost.network import offload
from rpeg.cost.training.check import check_layout
from rpeg.errors import InputError
from rpeg.ir import Freshness, Graph, Kind, Stage
from rpeg.plan import Assignment, Copy, Devices, ItemKind, Lowered, Plan, Slot
from rpeg.sim.costs import Batch, Floats, answered
from rpeg.sim.facts import Facts
from rpeg.sim.hardware.costs import HardwareCosts, fetch_seconds, fetched_bytes
from rpeg.sim.hardware.layouts import execution_of, software_of
from rpeg.sim.hardware.memory import CACHE, PHASES, uses
from rpeg.sim.hardware.sites import Site, site
from rpeg.sim.hardware.together import Use
from rpeg.sim.hardware.weights import transfer_cost
from rpeg.sim.overlap import in_a_row
from rpeg.workload import Workload

Resting = Literal["none", "optimizer", "all"]
RESTING: tuple[Resting, Resting, Resting] = ("none", "optimizer", "all")


class Taken(NamedTuple):
    """Of one model that a stage calls, bytes on each device: at the peak, and of what stays."""

    peak: float
    resting: float


@dataclass(frozen=True)
class Held:
    """Of one model that a stage calls, on each device: bytes at the peak, also where its trainer's optimizer is away;
    of weights and of the rest that stay; of the process. moves: seconds for the weights, the rest, both to the host or
    back. host: bytes of a node's host where nothing, the optimizer, all is offloaded; of its processes."""

    peak: float
    peak_apart: float
    weights: float
    more: float
    process: float
    moves: tuple[float, float, float]
    host: tuple[float, float, float, float]


@dataclass(frozen=True)
class Engine:
    """Of a generator, on each device, without its cache: bytes at the peak and while generating; of the longest
    sequence in the cache; of the process. wake: seconds."""

    peak: float
    generating: float
    sequence: float
    process: float
    wake: float


@dataclass(frozen=True)
class Alone:
    """Costs and memory of one stage of a graph under an assignment.

    trained: the models whose weights it uses in place of their trainers'; of others it has copies.
    """

    graph: Graph
    cluster: Cluster
    workload: Workload
    facts: Facts
    stage: Stage
    assignment: Assignment
    trained: frozenset[str] = frozenset()

    def host_seconds(self, batch: Batch) -> float:
        """Of an item of a stage that has no model."""
        tree, _ = self._costs().answer(Slot(ItemKind.RUN, self.stage.name), batch)
        return tree.seconds

    @property
    def can_run(self) -> bool:
        """Whether the layout divides the models of a stage that trains or scores."""
        try:
            execution = self.execution(self.stage.kind is Kind.TRAIN)
            for model in self.stage.models:
                check_layout(self.facts.architectures[model], execution, self.machine)
                check_memory(self.facts.architectures[model], execution)
        except InputError:
            return False
        return True

    def taken(self) -> tuple[Taken, ...]:
        """Of every model that the stage calls; see `held` for all of it."""
        if self.stage.kind is Kind.GENERATE:
            return (Taken(0.0, self._engine_weights()),)
        return tuple(Taken(_peak(use), sum(use.resting)) for use in self._uses)

    def generation(self, batches: Sequence[Batch], cache_bytes: float) -> list[tuple[float, Floats]]:
        """(seconds, offset of each sample) of a generator's items with a cache of this size on each device.

        Raises InputError or InfeasibleError where the layout or a sample does not fit.
        """
        asked = [answered(self.stage, batch, self.workload.samples_per_prompt) for batch in batches]
        count = min((each for _, _, each in asked), default=1)
        rows = [in_a_row(self.graph, self.stage, self.assignment, len(b.ids), count) for b, _, _ in asked]
        found = cost.completions(
            self.facts.architectures[self.stage.models[0]],
            [
                (row.lengths(batch.lengths[0]), row.lengths(batch.lengths[1])) if row else batch.lengths
                for (batch, _, _), row in zip(asked, rows, strict=True)
            ],
            self.execution(False),
            with_logprobs(self.machine),
            samples_per_prompt=count,
            policy=Policy(max_rows=self.assignment.microbatch, cache_bytes=cache_bytes),
        )
        sizes = (fetched_bytes(self.graph, self.stage, batch) for batch in batches)
        fetched = [
            fetch_seconds(self.stage, self.assignment, self.site, size) if size else 0.0 for size in sizes
        ]
        own = [row.last(one[1]) if row else one for one, row in zip(found, rows, strict=True)]
        return [
            (max(seconds + before, float(offsets.max()) + before), offsets[place] + before)
            for (seconds, offsets), before, (_, place, _) in zip(own, fetched, asked, strict=True)
        ]

    def held(self) -> tuple[Held, ...]:
        """Of every model that the stage calls."""
        if self.stage.kind is Kind.GENERATE:
            host = self._host(self.stage.models[0], ("none",) * 3)
            return (Held(0.0, 0.0, self._engine_weights(), 0.0, 0.0, (0.0, 0.0, 0.0), host),)
        whole = apart = self._uses
        if self.stage.kind is Kind.INFERENCE and self.trained:
            apart = tuple(uses(self._plan("optimizer"), self._lowered(), self.facts, (self.stage.name,)))
        return tuple(self._held(*pair) for pair in zip(whole, apart, strict=True))

    @cached_property
    def _uses(self) -> tuple[Use, ...]:
        return tuple(uses(self._plan(), self._lowered(), self.facts, (self.stage.name,)))

    @cached_property
    def engine(self) -> Engine:
        """Of a generator."""
        phases = {p.phase: p for p in self._serving.phases}
        architecture = self.facts.architectures[self.stage.models[0]]
        return Engine(
            max(_without_cache(phases[n]) for n in ("load", *PHASES[Kind.GENERATE], "transfer")),  # type: ignore[index]
            _without_cache(phases["generate"]),
            sequence_cache_bytes(architecture, self.workload.longest, self.execution(False)),
            phases["generate"].pool_bytes("process"),
            self.machine.stack.network.wake_seconds,
        )

    @cached_property
    def _serving(self) -> cost.Footprint:
        return cost.generate_memory(
            self.facts.architectures[self.stage.models[0]],
            self.execution(False),
            self.machine,
            rows=self.assignment.microbatch,
            context=self.workload.longest,
        )

    def _engine_weights(self) -> float:
        rest = self._serving.phase("rest")
        lines = [line for line in rest.lines if line.pool == "state"] if rest is not None else []
        return sum(line.bytes for line in lines if line.name.startswith("parameters"))

    def _held(self, use: Use, apart: Use) -> Held:
        weights, more = use.resting
        model = use.tenant.split(" copy for ")[0]
        sizes = (weights, more, weights + more)
        machine = self.machine
        moves = tuple(offload(size, machine).seconds if size else 0.0 for size in sizes)
        return Held(
            _peak(use),
            _peak(apart),
            weights,
            more,
            max(phase.pool_bytes("process") for phase in use.phases),
            moves,  # type: ignore[arg-type]
            self._host(model, RESTING),
        )

    def _host(self, model: str, ways: tuple[Resting, Resting, Resting]) -> tuple[float, float, float, float]:
        """Bytes of a node's host under each way of resting, and of its processes."""
        found = {how: self._host_breakdown(model, how) for how in dict.fromkeys(ways)}
        processes = found[ways[0]].pool_bytes("process")
        none, optimizer, both = (found[how].device_bytes - processes for how in ways)
        return none, optimizer, both, processes

    def _host_breakdown(self, model: str, how: Resting) -> Breakdown:
        trained = self.stage.kind is Kind.TRAIN
        execution = self.execution(trained)
        execution = execution if how == "none" else replace(execution, offload=how)
        heads = self.graph.model(model).heads
        architecture = self.facts.architectures[model]
        return cost.host_memory(architecture, execution, self.machine, heads=heads, trained=trained)

    def execution(self, trained: bool) -> cost.Execution:
        """trained: with weights that are trained in place."""
        return self._trained if trained else self._served

    @cached_property
    def _trained(self) -> cost.Execution:
        return execution_of(self.workload, self.facts, self.stage, self.assignment, trained=True)

    @cached_property
    def _served(self) -> cost.Execution:
        return execution_of(self.workload, self.facts, self.stage, self.assignment, trained=False)

    @cached_property
    def machine(self) -> cost.Machine:
        """The devices under the software that runs the stage."""
        return self.site.machine(software_of(self.facts, self.stage))

    @cached_property
    def site(self) -> Site:
        """Where its block lies."""
        assert isinstance(self.assignment.block, Devices)
        return site(self.cluster, self.assignment.block)

    def _costs(self) -> HardwareCosts:
        return HardwareCosts(self._plan(), self.facts, self._lowered())

    def _plan(self, trainers: Resting = "none") -> Plan:
        """The stage alone, beside the trainers of its models on the same devices."""
        names = {t.name for model in self.stage.models if (t := self.graph.trainer(model)) is not None} - {
            self.stage.name
        }
        others = (replace(self.assignment, stage=name, offload=trainers) for name in sorted(names))
        return Plan(self.graph, self.cluster, self.workload, (self.assignment, *others))

    def _lowered(self) -> Lowered:
        trained = self.stage.kind is Kind.TRAIN
        copies = tuple(
            Copy("", model, trainer.name, ("",) if trained else (self.stage.name,), 1, Freshness.EXACT)
            for model in self.stage.models
            if (trainer := self.graph.trainer(model)) is not None and model not in self.trained
        )
        return Lowered({}, (), (), copies)


def transfer_seconds(
    graph: Graph,
    cluster: Cluster,
    workload: Workload,
    facts: Facts,
    model: str,
    ends: Sequence[Assignment],
) -> float:
    """Of a model's weights from its trainer's layout to a consumer's; ends: both, at their blocks."""
    copy = Copy("", model, ends[0].stage, (ends[1].stage,), 1, Freshness.EXACT)
    return transfer_cost(Plan(graph, cluster, workload, tuple(ends)), facts, copy).seconds


def _peak(use: Use) -> float:
    return max(phase.device_bytes for phase in use.phases)


def _without_cache(phase: Breakdown) -> float:
    return phase.device_bytes - sum(line.bytes for line in phase.lines if line.name == CACHE)
