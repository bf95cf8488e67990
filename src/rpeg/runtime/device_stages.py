"""The stages that a device runs: generation, evaluation, scoring and training."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from rpeg.backends.generation.protocol import Generates, Request, Response, to_samples
from rpeg.backends.generation.turns import Turns
from rpeg.backends.samples import Samples
from rpeg.errors import RunError
from rpeg.ir import KEPT, Edge, Kind, OnNewWeights, Stage
from rpeg.plan import BEGUN, Assignment, Devices, Lowered, ids_to_generate
from rpeg.runtime import assessing, evaluating, generating, hosting, migrating, training, weights
from rpeg.runtime.ahead import Ahead
from rpeg.runtime.holdings import Holding, Holdings
from rpeg.runtime.inputs import Inputs
from rpeg.runtime.materials import Materials
from rpeg.runtime.mismatch import batch_metrics
from rpeg.runtime.notes import Notes
from rpeg.runtime.run_directory import WRITTEN
from rpeg.runtime.saving import Saver
from rpeg.runtime.selecting import Selector
from rpeg.runtime.work import Answer, Done, Part, Save, Station, Work
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
        self._ahead: dict[str, Ahead] = {}
        self._turns: dict[str, Turns] = {}
        self.saver = Saver()

    def run(self, work: Work, stage: Stage, inputs: Inputs, notes: Notes) -> Generator[Answer, None, Done]:
        """A `Part` for each base part of a generator; returns the end."""
        if stage.kind is Kind.GENERATE and not self.graph.out_of(stage.name):
            return self._evaluate(work, stage, notes)
        if stage.kind is Kind.GENERATE:
            return (yield from self._generate(work, stage, inputs, notes))
        if stage.kind is Kind.INFERENCE:
            return self._assess(work, stage, inputs, notes)
        if stage.kind is Kind.TRAIN:
            return self._train(work, stage, inputs, notes)
        raise RunError(f"stage {stage.name} is {stage.kind}, which no device runs")

    def _generate(
        self, work: Work, stage: Stage, inputs: Inputs, notes: Notes
    ) -> Generator[Answer, None, Done]:
        holding = self._reads(work, stage.name, stage.models[0], notes)
        task = self.lowered.tasks[work.item.slot]
        done: list[Response] = []
        if task.finishes:
            done, requests = migrating.taken_over(inputs.of(BEGUN))
        else:
            requests = generating.requests_of(inputs.joined(work.ids), work.ids, self.workload)
        greedy = any(op.name == "sample_greedy" for op in stage.ops)
        sampling = generating.sampling_of(
            self.job, self.materials.stop_token_ids, temperature=0.0 if greedy else None
        )
        engine = self._generates(stage.name)
        edge = next(edge for edge in self.graph.weights_into(stage.name) if edge.model == holding.model)
        ahead = self._ahead.setdefault(stage.name, Ahead()) if edge.on_new_weights is not DRAIN else None

        def answer(asked: list[Request]) -> Iterable[Response]:
            if ahead is None:
                return chain(
                    done, engine.generate(asked, sampling, seed=self.job.seed, version=holding.version)
                )
            return ahead.generate(
                engine,
                asked,
                self._following(work, edge, holding.version),
                sampling,
                step=work.item.step,
                oldest=edge.version_bound(work.item.step),
                slots=self.plan.assignment(stage.name).microbatch,
                seed=self.job.seed,
                version=holding.version,
            )

        responses = generating.once_a_prompt(requests, answer) if greedy else answer(requests)
        group = self.workload.samples_per_prompt if generating.streams_by_group(self.graph, stage.name) else 1
        batches, tells = [], holding.trainer.grid.speaks
        hand_over = migrating.HandOver(engine.stop) if task.hands_over else None
        for number, part in generating.in_parts(responses, work.parts, group, hand_over):
            batch = generating.with_stand_ins(to_samples(part), stage.ops)
            batches.append(batch)
            notes.ids += batch.ids.tolist()
            notes.tokens += int(batch.lengths.sum())
            if tells:
                yield Part(number, tuple(batch.ids.tolist()), tuple(batch.lengths.tolist()), batch)
        if not tells:
            return Done()
        metrics = {} if greedy else generating.rollout_metrics(batches)
        if ahead is not None:
            metrics |= {"sum/ahead_tokens": float(ahead.carried), "sum/again_tokens": float(ahead.dropped)}
        left = hand_over and migrating.handed_over(hand_over.beyond, engine.unfinished)
        called, warnings = generating.of_calls(engine)
        return Done(left, metrics={} if greedy else metrics | called, warnings=warnings)

    def _generates(self, stage: str) -> Generates:
        """The engine of a stage, with the job's tool between turns if it has one."""
        engine = self.holdings.engine(stage)
        if self.job.tools is None:
            return engine
        if stage not in self._turns:
            self._turns[stage] = self.materials.in_turns(engine)
        return self._turns[stage]

    def _following(self, work: Work, edge: Edge, version: int) -> list[Request]:
        """The next step's requests of a generator's replica, if tokens of this version may be trained at it."""
        step = work.item.step + 1
        if step >= self.job.steps or version < edge.version_bound(step):
            return []
        prompts = self.materials.prompts.at(self.selector.place(step, 0), self.workload.round_prompts)
        batch = hosting.prompt_batch(prompts, self.workload, step * self.workload.asked)
        ids = ids_to_generate(self.lowered.tasks[work.item.slot], self.workload, step)
        return generating.requests_of(batch, ids, self.workload)

    def _evaluate(self, work: Work, stage: Stage, notes: Notes) -> Done:
        """Answers to this replica's share of the held-out prompts, and their rewards by verifiers."""
        holding = self._reads(work, stage.name, stage.models[0], notes)
        replicas = self.plan.assignment(stage.name).replicas(stage.kind)
        asked = self.job.evaluation
        prompts = self.materials.heldout.first(asked.prompts)
        requests = evaluating.requests_of(prompts, asked.samples, work.item.replica, replicas)
        sampling = generating.sampling_of(
            self.job, self.materials.stop_token_ids, temperature=asked.temperature
        )
        engine = self._generates(stage.name)
        answers = to_samples(engine.generate(requests, sampling, seed=self.job.seed, version=holding.version))
        notes.tokens = int(answers.lengths.sum())
        if not holding.trainer.grid.speaks:
            return Done()
        texts, own = (
            hosting.decode(answers, self.materials.tokenizer),
            [prompts[request.group] for request in requests],
        )
        cut = hosting.is_truncated(answers)
        report = self.materials.judge.score([p.text for p in own], texts, [p.answer for p in own], cut)
        first = next(iter(report.parts.values())).scores
        columns = [c.reshape(-1, asked.samples) for c in (report.total, first, answers.lengths, cut)]
        return Done(metrics=evaluating.metrics(*columns, solved=asked.solved))

    def _assess(self, work: Work, stage: Stage, inputs: Inputs, notes: Notes) -> Done:
        assignment = self.plan.assignment(stage.name)
        ids = work.ids
        samples = inputs.joined(ids)
        if assignment.replicas(stage.kind) == 1 and isinstance(assignment.block, Devices):
            rank, ranks = self._rank_in(assignment)
            ids = share(ids, samples.lengths.tolist(), ranks)[rank]
            samples = samples.take(ids)
        models = [
            (call, self._reads(work, stage.name, call.model, notes))
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
            holding = self._reads(work, stage.name, call.model, notes)
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

    def _reads(self, work: Work, stage: str, model: str, notes: Notes) -> Holding:
        """What a stage reads a model from; refuses a version that the driver did not launch it for."""
        holding = self.holdings.for_stage(stage, model)
        if holding.trainer.is_resting("weights"):
            raise RunError(f"{work.item} finds {model} at rest in host memory")
        launched = dict(work.versions)
        if model in launched:
            if holding.version != launched[model]:
                raise RunError(
                    f"{work.item} was launched for {model}@{launched[model]} and finds @{holding.version}"
                )
            notes.reads[model] = holding.version
            notes.digests[f"{model}@{holding.version}"] = holding.digest
        return holding

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
