"""`HardwareCosts`: the seconds of items on described hardware, op by op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import cast

import numpy as np

from rpeg import cost
from rpeg.architecture import Head
from rpeg.cost import Cost, Sequences, Timing
from rpeg.cost.generating import Policy, with_logprobs
from rpeg.cost.kernels import Amount
from rpeg.ir import Call, Graph, Kind, Stage
from rpeg.plan import Assignment, Devices, Host, ItemKind, Lowered, Plan, Slot
from rpeg.sim.costs import Answer, Batch, Ints, answered
from rpeg.sim.facts import Facts
from rpeg.sim.hardware.layouts import execution_of
from rpeg.sim.hardware.memory import cache_of
from rpeg.sim.hardware.sites import Site, site
from rpeg.sim.hardware.weights import moves, transfer_cost
from rpeg.sim.overlap import in_a_row, overlaps
from rpeg.workload import Workload


class HardwareCosts:
    """Costs of a plan whose devices are described: what the op-by-op model says of each item.

    caches: bytes that generators have for keys and values, where somebody knows that already.
    """

    def __init__(
        self, plan: Plan, facts: Facts, lowered: Lowered, caches: Mapping[str, float] | None = None
    ) -> None:
        self._plan, self._facts, self._lowered = plan, facts, lowered
        self._copies = {copy.name: copy for copy in lowered.copies}
        self._caches = dict(caches or {})
        self._rests = {rest.name: rest for rest in lowered.rests}

    @cached_property
    def dispatch_seconds(self) -> float:
        """One call through the runtime."""
        return cost.call(self._host_timing).seconds

    def question(self, slot: Slot) -> object:
        """All that an answer rests on beside the lengths and the facts; numbers of devices are not among it."""
        if slot.kind is ItemKind.TRANSFER:
            copy = self._copies[slot.name]
            ends = [self._plan.assignment(name) for name in (copy.trainer, copy.stages[0])]
            return (
                "transfer",
                copy,
                *[(a.parallelism, self._place(a), a.block == ends[0].block) for a in ends],
            )
        if slot.kind is not ItemKind.RUN:
            rest = self._rests[slot.name]
            return slot.kind, rest.what, self.question(Slot(ItemKind.RUN, rest.stage, 0, slot.replica))
        stage, assignment = self._plan.graph.stage(slot.name), self._plan.assignment(slot.name)
        if isinstance(assignment.block, Host):
            return stage, assignment.block.slots
        how = (
            assignment.parallelism,
            assignment.microbatch,
            assignment.recompute,
            assignment.offload,
            assignment.bundles,
        )
        observed = slot.replica if stage.name in self._plan.graph.observers() else 0
        cache = self._cache(stage.name) if stage.kind is Kind.GENERATE else 0.0
        resting = tuple(self._plan.assignment(t).offload for t in self._sharing(stage))
        ahead = overlaps(self._plan.graph, stage)
        return stage, how, self._place(assignment), observed, cache, resting, ahead

    def answer(self, slot: Slot, batch: Batch) -> Answer:
        """The cost of a slot's item on these samples; of a generator with the offset of each."""
        if slot.kind is ItemKind.TRANSFER:
            return transfer_cost(self._plan, self._facts, self._copies[slot.name]), ()
        if slot.kind is not ItemKind.RUN:
            coming, going = moves(self._plan, self._lowered, self._facts, self._rests[slot.name].stage)
            return cost.sequence(str(slot.kind), coming if slot.kind is ItemKind.RELOAD else going), ()
        stage, assignment = self._plan.graph.stage(slot.name), self._plan.assignment(slot.name)
        if isinstance(assignment.block, Host):
            return cost.sequence(stage.name, self._host(stage, batch)), ()
        arriving = [self._moved(stage, assignment, batch)]
        if stage.kind is Kind.GENERATE:
            return self._generate(stage, assignment, slot, batch, arriving)
        work = self._train if stage.kind is Kind.TRAIN else self._infer
        return cost.sequence(stage.name, [*arriving, *work(stage, assignment, batch)]), ()

    def _generate(
        self, stage: Stage, assignment: Assignment, slot: Slot, batch: Batch, arriving: Sequence[Cost]
    ) -> Answer:
        w, observes = self._plan.workload, stage.name in self._plan.graph.observers()
        asked, place, each = answered(stage, batch, w.samples_per_prompt)
        prompts, responses = self._held_out(assignment, slot) if observes else asked.lengths
        if not len(prompts):
            return cost.sequence(stage.name, arriving), ()
        machine = self._site(assignment).machine(self._facts.engine)
        each = 1 if observes else each
        row = in_a_row(self._plan.graph, stage, assignment, len(prompts), each)
        found = cost.generate_stage(
            self._facts.architectures[stage.models[0]],
            row.lengths(prompts) if row else prompts,
            row.lengths(responses) if row else responses,
            self._execution(stage, assignment, trained=False),
            machine if observes else with_logprobs(machine),
            samples_per_prompt=each,
            policy=Policy(max_rows=assignment.microbatch, cache_bytes=self._cache(stage.name)),
        )
        generated, offsets = row.cost(found.cost, found.offsets) if row else (found.cost, found.offsets)
        tree = cost.sequence(stage.name, [*arriving, generated])
        if observes:
            return tree, ()
        return tree, tuple((offsets + sum(part.seconds for part in arriving))[place].tolist())

    def _held_out(self, assignment: Assignment, slot: Slot) -> tuple[Ints, Ints]:
        """Lengths of an item's share of the evaluation."""
        count = len(range(slot.replica, self._facts.evaluation_prompts, assignment.replicas(Kind.GENERATE)))
        quantiles = (np.arange(count) + 0.5) / max(1, count)
        w = self._plan.workload
        return w.prompt_lengths.quantiles(quantiles), w.response_lengths.quantiles(quantiles)

    def _infer(self, stage: Stage, assignment: Assignment, batch: Batch) -> list[Cost]:
        machine = self._site(assignment).machine(self._facts.trainer)
        trees = []
        for call in stage.calls:
            assert call.model is not None
            asked = asked_heads(self._plan.graph, call)
            trained = self._trains(stage, call.model)
            execution = self._execution(stage, assignment, trained=trained)
            architecture = self._facts.architectures[call.model]
            trees.append(cost.infer_stage(architecture, batch.sequences, execution, machine, heads=asked))
        return trees

    def _train(self, stage: Stage, assignment: Assignment, batch: Batch) -> list[Cost]:
        w = self._plan.workload
        sequences = _times(batch.sequences, w.epochs)
        machine = self._site(assignment).machine(self._facts.trainer)
        execution = self._execution(stage, assignment, trained=True)
        trees = []
        for model in stage.models:
            heads = cast("tuple[Head, ...]", self._plan.graph.model(model).heads)
            architecture = self._facts.architectures[model]
            trees.append(
                cost.train_stage(
                    architecture, sequences, execution, machine, updates=updates_of(w, batch), heads=heads
                )
            )
        return trees

    def _host(self, stage: Stage, batch: Batch) -> list[Cost]:
        if any(op.name in ("verify", "reward") for op in stage.ops):
            return [cost.reward(len(batch.ids), self._host_timing, self._facts.reward_seconds)]
        return [cost.columns(len(batch.ids) or self._plan.workload.samples, self._host_timing)]

    def _moved(self, stage: Stage, assignment: Assignment, batch: Batch) -> Cost:
        """Samples that the stage's edges bring."""
        size = fetched_bytes(self._plan.graph, stage, batch)
        if not size:
            return Cost("fetch samples", 0.0, bound="network")
        seconds = fetch_seconds(stage, assignment, self._site(assignment), size)
        return Cost("fetch samples", seconds, bytes=size, bound="network")

    def _execution(self, stage: Stage, assignment: Assignment, *, trained: bool) -> cost.Execution:
        """Of one item."""
        items = assignment.replicas(stage.kind)
        return execution_of(self._plan.workload, self._facts, stage, assignment, trained=trained, items=items)

    def _trains(self, stage: Stage, model: str) -> bool:
        """Whether a stage uses weights that are trained in place."""
        copy = self._lowered.copy_for(stage.name, model)
        return copy is None and self._plan.graph.trainer(model) is not None

    def _sharing(self, stage: Stage) -> tuple[str, ...]:
        """Trainers whose weights a stage uses in place."""
        found = [self._plan.graph.trainer(m) for m in stage.models if self._trains(stage, m)]
        return tuple(trainer.name for trainer in found if trainer is not None)

    def _cache(self, stage: str) -> float:
        if stage not in self._caches:
            self._caches[stage] = cache_of(self._plan, self._lowered, self._facts, stage)
        return self._caches[stage]

    def _site(self, assignment: Assignment) -> Site:
        assert isinstance(assignment.block, Devices)
        return site(self._plan.cluster, assignment.block)

    def _place(self, assignment: Assignment) -> tuple[str, int]:
        """What of a block's place decides costs: its kind, and where in the fabric it begins."""
        found = self._site(assignment)
        return found.kind.name, found.first

    @cached_property
    def _host_timing(self) -> Timing:
        return Timing(self._plan.cluster.kinds[0], self._facts.dtype)


def fetched_bytes(graph: Graph, stage: Stage, batch: Batch) -> float:
    """Of the samples of a batch that a stage's edges bring."""
    return batch.data_bytes([edge.data for edge in graph.data_into(stage.name)])


def fetch_seconds(stage: Stage, assignment: Assignment, place: Site, size_bytes: Amount) -> Amount:
    """Over the slowest link to the block; each replica takes its own samples."""
    link = place.fabric.levels[-1][0]
    replicas = max(1, assignment.parallelism.dp // assignment.replicas(stage.kind))
    return link.latency_seconds + size_bytes / replicas / link.bandwidth_bytes_per_second


def updates_of(workload: Workload, batch: Batch) -> int:
    """Optimizer steps over a batch, of all epochs; fewer than a step's where samples come as they are ready."""
    return max(1, workload.minibatches * len(batch.ids) // workload.samples) * workload.epochs


def asked_heads(graph: Graph, call: Call) -> tuple[Head, ...]:
    """The heads whose outputs a call gives."""
    assert call.model is not None
    heads, gives = graph.model(call.model).heads, {datum for op in call.ops for datum in op.gives}
    logprobs = {datum for datum in gives if "logprob" in datum}
    found = tuple(h for h in heads if (logprobs if h == "lm" else gives - logprobs))
    return cast("tuple[Head, ...]", found or heads)


def _times(sequences: Sequences, epochs: int) -> Sequences:
    """All epochs' samples."""
    s = sequences
    return replace(
        s,
        count=s.count * epochs,
        tokens=s.tokens * epochs,
        squares=s.squares * epochs,
        scored=s.scored * epochs,
    )
