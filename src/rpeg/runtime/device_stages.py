"""The stages that a device runs: generation (`rollouts`), scoring and training."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import Any

from rpeg.backends.samples import Samples
from rpeg.errors import RunError
from rpeg.ir import KEPT, Kind, OnNewWeights, Stage
from rpeg.plan import Assignment, Devices, Lowered
from rpeg.runtime import assessing, hosting, training, weights
from rpeg.runtime.holdings import Holding, Holdings
from rpeg.runtime.inputs import Inputs
from rpeg.runtime.launched import read_by
from rpeg.runtime.materials import Materials
from rpeg.runtime.mismatch import batch_metrics
from rpeg.runtime.notes import Notes
from rpeg.runtime.rollouts import Rollouts
from rpeg.runtime.run_directory import WRITTEN
from rpeg.runtime.saving import Saver
from rpeg.runtime.selecting import Selector
from rpeg.runtime.work import Answer, Done, Save, Station, Work
from rpeg.schedule import share

DRAIN = OnNewWeights.DRAIN


class DeviceStages:
    """What one device does of each stage, with the models that it holds."""

    def __init__(
        self,
        station: Station,
        lowered: Lowered,
        holdings: Holdings,
        materials: Materials,
        selector: Selector,
    ) -> None:
        self.station, self.plan, self.job = station, station.plan, station.job
        self.graph, self.workload = station.plan.graph, station.plan.workload
        self.lowered, self.holdings, self.materials, self.selector = lowered, holdings, materials, selector
        self._reports = training.Reports()
        self.rollouts = Rollouts(station, lowered, holdings, materials, selector)
        self.saver = Saver()

    def run(self, work: Work, stage: Stage, inputs: Inputs, notes: Notes) -> Generator[Answer, None, Done]:
        """A `Part` for each base part of a generator; returns the end."""
        if stage.kind is Kind.GENERATE and not self.graph.out_of(stage.name):
            return self.rollouts.evaluate(work, stage, notes)
        if stage.kind is Kind.GENERATE:
            return (yield from self.rollouts.generate(work, stage, inputs, notes))
        if stage.kind is Kind.INFERENCE:
            return self._assess(work, stage, inputs, notes)
        if stage.kind is Kind.TRAIN:
            return self._train(work, stage, inputs, notes)
        raise RunError(f"stage {stage.name} is {stage.kind}, which no device runs")

    def _assess(self, work: Work, stage: Stage, inputs: Inputs, notes: Notes) -> Done:
        assignment = self.plan.assignment(stage.name)
        ids = work.ids
        samples = inputs.joined(ids)
        if assignment.replicas(stage.kind) == 1 and isinstance(assignment.block, Devices):
            rank, ranks = self._rank_in(assignment)
            ids = share(ids, samples.lengths.tolist(), ranks)[rank]
            samples = samples.take(ids)
        models = [
            (call, read_by(work, self.holdings, call.model, notes))
            for call in stage.calls
            if call.model is not None
        ]
        notes.ids, notes.tokens = list(ids), int(samples.lengths.sum())
        step = work.item.step
        found = assessing.assess(
            samples,
            [(call, holding.computing()) for call, holding in models],
            temperature=self.job.sampling.temperature,
            microbatch=assignment.microbatch,
            respell=lambda batch: self._as_the_reward_model_reads(batch, step),
        )
        return Done(found if models[0][1].trainer.grid.speaks else None)

    def _as_the_reward_model_reads(self, samples: Samples, step: int) -> Samples:
        if self.materials.respelling is None:
            return samples
        place = self.selector.first_place(step)
        prompts = hosting.asked(samples, self.materials.prompts, self.workload, step, place)
        return self.materials.respelling.of(
            samples, prompts, hosting.decode(samples, self.materials.tokenizer)
        )

    def _train(self, work: Work, stage: Stage, inputs: Inputs, notes: Notes) -> Done:
        """The last item of a step publishes, saves and reports; of a stream of minibatches those before only update."""
        self.saver.check()
        step, assignment = work.item.step, self.plan.assignment(stage.name)
        rank, ranks = self._rank_in(assignment)
        tells = assignment.all_lanes()[0] == self.station.lane
        slot = work.item.slot
        updates = training.Updates(step, rank, ranks, self.lowered.tasks[slot].members)
        samples = inputs.joined(work.ids)
        self._check_versions(samples, step)
        if tells:
            self._reports.add(stage.name, "", batch_metrics(samples, step))
        published: dict[str, Any] = {}
        for call in stage.calls:
            assert call.model is not None
            holding = read_by(work, self.holdings, call.model, notes)
            found, notes.ids = training.train(
                holding.trainer,
                samples,
                call.ops,
                job=self.job,
                workload=self.workload,
                updates=updates,
                microbatch=assignment.microbatch,
            )
            self._reports.add(stage.name, f"{call.model}/", found)
            _demand_finite(holding, step)
            if self.lowered.ends(slot):
                published.update(self._end_step(work, holding, found, notes))
        notes.tokens = int(samples.take(notes.ids).lengths.sum())
        if not self.lowered.ends(slot):
            return Done()
        marks = self._save(work.save, step + 1, stage.models) if work.save is not None else ()
        metrics = self._reports.take(stage.name)
        return Done(published=published, metrics=metrics if tells else {}, marks=marks)

    def _save(self, save: Save, version: int, models: Iterable[str]) -> tuple[Path, ...]:
        """Copies what is to be saved of these models' version and begins to write it; collective over their block."""
        self.saver.begin()
        wanted = [] if save.state is None else [(save.state, "")]
        wanted += [(directory, f"@{version}") for directory in save.weights]
        marks = []
        for model in models if wanted else ():
            snapshot = self.holdings.trained[model].trainer.snapshot(optimizer=save.state is not None)
            for directory, suffix in wanted:
                marks.append(directory / f"{WRITTEN}{model}{suffix}-{self.station.lane}")
                part = snapshot if not suffix else snapshot.weights()
                self.saver.save(part, directory / f"{model}{suffix}", marks[-1])
        if save.waits:
            self.saver.begin()
        return tuple(marks)

    def _end_step(
        self, work: Work, holding: Holding, found: Mapping[str, float], notes: Notes
    ) -> dict[str, Any]:
        """The new version of a model: noted, and sent where copies are fed."""
        holding.version, before = work.item.step + 1, holding.digest
        published = self.publish(holding)
        _demand_change(holding, before, found)
        notes.makes[holding.model] = holding.version
        notes.digests[f"{holding.model}@{holding.version}"] = holding.digest
        self.holdings.refresh(holding)
        return published

    def publish(self, holding: Holding) -> dict[str, Any]:
        """Notes the digest; this rank's part of the weights, where copies are fed from here."""
        fed = any(copy.model == holding.model for copy in self.lowered.copies)
        broadcast = weights.publish(holding, holding.version, fed=fed)
        return {holding.model: broadcast} if broadcast is not None else {}

    def _check_versions(self, samples: Samples, step: int) -> None:
        edges = [
            edge
            for stage in self.graph.stages
            if stage.kind is Kind.GENERATE and self.graph.out_of(stage.name)
            for edge in self.graph.weights_into(stage.name)
        ]
        older = self.graph.selector is not None and KEPT in self.graph.selector.gives
        oldest = min((edge.version_bound(step) for edge in edges), default=0) - older
        training.check_staleness(samples, max(0, oldest), step, step)
        if all(edge.on_new_weights is DRAIN for edge in edges):
            training.check_whole(samples, step)

    def _rank_in(self, assignment: Assignment) -> tuple[int, int]:
        """(this worker's data-parallel rank in a gang, ranks)."""
        parallelism = assignment.parallelism
        return parallelism.replica_of(assignment.all_lanes().index(self.station.lane)), parallelism.dp


def _demand_finite(holding: Holding, step: int) -> None:
    """Weights that are no numbers are neither published nor kept."""
    if not all(bool(tensor.isfinite().all()) for tensor in holding.trainer.parameters.local):
        raise RunError(
            f"{holding.model} has weights that are no numbers after the updates of step {step}; "
            "go on from a checkpoint with a lower learning rate"
        )


def _demand_change(holding: Holding, before: str, found: Mapping[str, float]) -> None:
    """What is published differs from what was, where the item has updated it at all.

    found: metrics of the item. A payload that no update reaches would be sent, step after step, in silence.
    """
    moved = found["applied"] > 0 and found["lr"] > 0 and found["grad_norm"] > 0
    if moved and holding.digest == before:
        raise RunError(
            f"{holding.model}@{holding.version} has the weights of the version before it ({before}) although "
            f"{found['applied']:g} updates with gradients of norm {found['grad_norm']:.3g} were applied: what is sent "
            "is not what is trained, or the learning rate is too small for its number format"
        )
