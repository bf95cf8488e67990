"""`PassCosts`: the seconds of items on this machine's own processes, from measured whole passes."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from rpeg import cost
from rpeg.cost import Cost, Timing
from rpeg.ir import Kind, Stage
from rpeg.plan import Assignment, Copy, Devices, ItemKind, Lowered, Plan, Rest, Slot
from rpeg.schedule import share
from rpeg.sim.costs import Answer, Batch, answered
from rpeg.sim.facts import Facts
from rpeg.sim.overlap import in_a_row, overlaps

Ints = npt.NDArray[np.int64]


class PassCosts:
    """Costs of a plan on this machine's own processes, from passes measured through RPEG's own backends."""

    def __init__(self, plan: Plan, facts: Facts, lowered: Lowered) -> None:
        self._plan, self._facts, self._lowered = plan, facts, lowered
        self._copies = {copy.name: copy for copy in lowered.copies}
        self._rests = {rest.name: rest for rest in lowered.rests}

    @cached_property
    def dispatch_seconds(self) -> float:
        """One call through the runtime."""
        return cost.call(self._host_timing).seconds

    def question(self, slot: Slot) -> object:
        """All that an answer rests on beside the lengths and the facts."""
        if slot.kind is ItemKind.TRANSFER:
            return "transfer", self._copies[slot.name]
        if slot.kind is not ItemKind.RUN:
            rest = self._rests[slot.name]
            return slot.kind, rest, self._plan.assignment(rest.stage)
        stage, assignment = self._plan.graph.stage(slot.name), self._plan.assignment(slot.name)
        replica = slot.replica if stage.kind is Kind.GENERATE else 0
        ahead = overlaps(self._plan.graph, stage)
        return stage, assignment, replica, ahead, self._publishing(stage, slot)

    def answer(self, slot: Slot, batch: Batch) -> Answer:
        """The cost of a slot's item on these samples; of a generator with the offset of each."""
        if slot.kind is ItemKind.TRANSFER:
            return self._transfer(self._copies[slot.name]), ()
        if slot.kind is not ItemKind.RUN:
            return self._move(slot.kind, self._rests[slot.name]), ()
        return self._stage(self._plan.graph.stage(slot.name), self._plan.assignment(slot.name), slot, batch)

    def _stage(self, stage: Stage, assignment: Assignment, slot: Slot, batch: Batch) -> Answer:
        if stage.kind is Kind.GENERATE and not self._plan.graph.out_of(stage.name):
            return self._evaluation(stage, assignment, slot), ()
        if stage.kind is Kind.GENERATE:
            return self._generate(stage, assignment, batch)
        work = {Kind.INFERENCE: self._infer, Kind.TRAIN: self._train}.get(stage.kind, self._host)
        parts = [
            self._inputs(stage, batch),
            *work(stage, assignment, batch),
            *self._publish(stage, assignment, slot),
            self._outputs(stage, batch),
        ]
        return cost.sequence(stage.name, parts), ()

    def _generate(self, stage: Stage, assignment: Assignment, batch: Batch) -> Answer:
        asked, place, each = answered(stage, batch, self._plan.workload.samples_per_prompt)
        row = in_a_row(self._plan.graph, stage, assignment, len(asked.ids), 1)
        found = cost.generate(
            self._facts.architectures[stage.models[0]],
            *(map(row.lengths, asked.lengths) if row else asked.lengths),
            samples_per_prompt=each,
            slots=assignment.microbatch,
            timing=self._timing(assignment),
            tp=assignment.parallelism.tp,
        )
        inputs = self._inputs(stage, batch)
        own = row.cost(found.cost, found.offsets) if row else (found.cost, found.offsets)
        tree = cost.sequence(stage.name, [inputs, own[0], self._outputs(stage, batch)])
        return tree, tuple((own[1] + inputs.seconds)[place].tolist())

    def _evaluation(self, stage: Stage, assignment: Assignment, slot: Slot) -> Cost:
        """Greedy answers to this replica's share of the held-out prompts, and their scores."""
        replicas = assignment.replicas(stage.kind)
        count = len(range(slot.replica, self._facts.evaluation_prompts, replicas))
        quantiles = (np.arange(count) + 0.5) / max(1, count)
        w, timing = self._plan.workload, self._timing(assignment)
        found = cost.generate(
            self._facts.architectures[stage.models[0]],
            w.prompt_lengths.quantiles(quantiles),
            w.response_lengths.quantiles(quantiles),
            samples_per_prompt=1,
            slots=assignment.microbatch,
            timing=timing,
            tp=assignment.parallelism.tp,
        )
        return cost.sequence(
            stage.name, [found.cost, cost.reward(count, timing, self._facts.evaluation_reward_seconds)]
        )

    def _infer(self, stage: Stage, assignment: Assignment, batch: Batch) -> list[Cost]:
        prompts, responses = batch.lengths
        timing, layout = self._timing(assignment), assignment.parallelism
        gang = assignment.replicas(stage.kind) == 1
        ranks = _rank_rows(batch, layout.dp if gang else 1)
        trees = []
        for call in stage.calls:
            assert call.model is not None
            logprobs = any("logprob" in datum for op in call.ops for datum in op.gives)
            own = [
                cost.infer(
                    self._facts.architectures[call.model],
                    prompts[rows],
                    responses[rows],
                    microbatch=assignment.microbatch,
                    logprobs=logprobs,
                    timing=timing,
                    layout=layout,
                    sharded=gang and layout.zero == 3,
                )
                for rows in ranks
            ]
            trees.append(own[0] if len(own) == 1 else cost.parallel("infer on each rank", own))
        return trees

    def _train(self, stage: Stage, assignment: Assignment, batch: Batch) -> list[Cost]:
        prompts, responses = batch.lengths
        w, timing, dp = self._plan.workload, self._timing(assignment), assignment.parallelism.dp
        seed = sum(batch.response_lengths)
        count = max(1, w.minibatches * len(batch.ids) // w.samples)  # fewer where they come as they are ready
        drawn = cost.shuffled(len(batch.ids), minibatches=count, epochs=w.epochs, dp=1, seed=seed, step=0)
        minibatches = [_shares(rows[0], responses, dp) for rows in drawn]
        trees = []
        for model in stage.models:
            architecture = self._facts.architectures[model]
            lm = "lm" in self._plan.graph.model(model).heads
            trees.append(
                cost.train(
                    architecture,
                    prompts,
                    responses,
                    minibatches=minibatches,
                    microbatch=assignment.microbatch,
                    logprobs=lm,
                    timing=timing,
                    layout=assignment.parallelism,
                    recompute=assignment.recompute,
                    adapters=self._facts.adapters(model),
                )
            )
        return trees

    def _publishing(self, stage: Stage, slot: Slot) -> tuple[tuple[str, tuple[str, ...], bool], ...]:
        """(model, its heads, whether copies are fed) of each that an item makes a version of."""
        if stage.kind is not Kind.TRAIN or not self._lowered.ends(slot):
            return ()
        fed = {copy.model for copy in self._lowered.copies}
        return tuple((m, self._plan.graph.model(m).heads, m in fed) for m in stage.models)

    def _publish(self, stage: Stage, assignment: Assignment, slot: Slot) -> list[Cost]:
        p = assignment.parallelism
        shards = p.tp * p.pp * (p.shards * p.cp if p.zero == 3 else 1)
        return [
            cost.publish(self._sent_bytes(model), self._timing(assignment), shards=shards, sent=sent)
            for model, _, sent in self._publishing(stage, slot)
        ]

    def _host(self, stage: Stage, assignment: Assignment, batch: Batch) -> list[Cost]:
        if any(op.name in ("verify", "reward") for op in stage.ops):
            return [cost.reward(len(batch.ids), self._host_timing, self._facts.reward_seconds)]
        return [cost.columns(len(batch.ids) or self._plan.workload.samples, self._host_timing)]

    def _inputs(self, stage: Stage, batch: Batch) -> Cost:
        """Fetching what the stage's edges bring, and joining it by sample."""
        data = [edge.data for edge in self._plan.graph.data_into(stage.name)]
        samples = len(batch.ids) if data else 0
        moved = cost.move_samples(batch.data_bytes(data), self._host_timing, samples)
        return cost.sequence("inputs", [part for part in moved.children if data and part.name != "put"])

    def _outputs(self, stage: Stage, batch: Batch) -> Cost:
        """Storing what the stage gives, once, whoever fetches it."""
        moved = cost.move_samples(batch.data_bytes(sorted(stage.gives)), self._host_timing)
        return cost.sequence(
            "outputs", [part for part in moved.children if stage.gives and part.name == "put"]
        )

    def _transfer(self, copy: Copy) -> Cost:
        trainer, consumer = (self._plan.assignment(name) for name in (copy.trainer, copy.stages[0]))
        assert isinstance(trainer.block, Devices)
        assert isinstance(consumer.block, Devices)
        cluster = self._plan.cluster
        nodes = [{cluster.node_of(i) for i in block.ids} for block in (trainer.block, consumer.block)]
        both = Devices((*trainer.block.ids, *consumer.block.ids))
        timing = self._timing_of(both)
        return cost.receive(self._sent_bytes(copy.model), timing, across=nodes[0] != nodes[1])

    def _move(self, kind: ItemKind, rest: Rest) -> Cost:
        """To a device's memory and back over its host link: weights, and a trainer's two moments. Gradients are dropped.

        Frozen weights are only read: they are dropped, not sent back.
        """
        graph, assignment = self._plan.graph, self._plan.assignment(rest.stage)
        assert isinstance(assignment.block, Devices)
        trains, moved = graph.stage(rest.stage).kind is Kind.TRAIN, 0.0
        for model in graph.stage(rest.stage).models:
            back = kind is ItemKind.OFFLOAD and graph.trainer(model) is None
            moved += self._weight_bytes(model) * (rest.what == "model" and not back)
            moved += 2 * self._sent_bytes(model) * trains
        link = self._plan.cluster.device(assignment.block.ids[0]).kind.host_bandwidth_bytes_per_second
        return Cost(str(kind), moved / link, bytes=moved, bound="host")

    def _sent_bytes(self, model: str) -> float:
        """Of what of a trained model is trained, and so sent: adapters, or all."""
        adapters = self._facts.adapters(model) * cost.BYTES_OF[self._facts.dtype]
        return adapters or self._weight_bytes(model)

    def _weight_bytes(self, model: str) -> float:
        heads, architecture = self._plan.graph.model(model).heads, self._facts.architectures[model]
        if "lm" not in heads:
            return cost.weight_bytes(architecture, self._facts.dtype, "value")
        value = architecture.head_parameters("value") if "value" in heads else 0
        whole = architecture.parameters("lm") + value
        return (
            cost.weight_bytes(architecture, self._facts.dtype, "lm") * whole / architecture.parameters("lm")
        )

    def _timing(self, assignment: Assignment) -> Timing:
        assert isinstance(assignment.block, Devices)
        return self._timing_of(assignment.block)

    def _timing_of(self, block: Devices) -> Timing:
        cluster, facts = self._plan.cluster, self._facts
        kind = cluster.device(block.ids[0]).kind
        return Timing(kind, facts.dtype, cluster.link_of(block.ids), facts.calibration)

    @cached_property
    def _host_timing(self) -> Timing:
        return Timing(self._plan.cluster.kinds[0], self._facts.dtype, None, self._facts.calibration)


def _rank_rows(batch: Batch, ranks: int) -> list[Ints]:
    rows = range(len(batch.ids))
    return [np.array(own, dtype=np.int64) for own in share(rows, batch.response_lengths, ranks)]


def _shares(rows: Ints, responses: Ints, ranks: int) -> list[Ints]:
    """The rows of each rank, as the trainer shares a minibatch."""
    own = share([int(i) for i in rows], [int(responses[i]) for i in rows], ranks)
    return [np.array(part, dtype=np.int64) for part in own]
