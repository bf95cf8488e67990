"""The worker: one process for a device or a host slot, running one item at a time.

It decides nothing. The driver says what to run and when; the worker runs it, writes a span, and answers with what
became of it. Between two processes travel references to batches, not the batches.
"""

from __future__ import annotations

import os
import resource
import socket
import sys
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist

from rpeg.algorithms import shaping
from rpeg.backends.data import Prompt, Prompts, load_prompts, load_tokenizer
from rpeg.backends.data.respelling import Respelling, of_reward_model
from rpeg.backends.generation.protocol import Request, Response, to_samples
from rpeg.backends.reward.total import Total, make_total
from rpeg.backends.samples import Samples
from rpeg.errors import RunError
from rpeg.ir import KEPT, Kind, Op, Stage
from rpeg.plan import Assignment, Devices, ItemKind, lower
from rpeg.runtime import assessing, evaluating, generating, hosting, training, weights
from rpeg.runtime.carried import Carried
from rpeg.runtime.holdings import DTYPES, Holding, Holdings
from rpeg.runtime.inputs import Inputs
from rpeg.runtime.mismatch import batch_metrics
from rpeg.runtime.reading import reading_of
from rpeg.runtime.selecting import Selector
from rpeg.runtime.work import Answer, Done, Part, Station, Work, bundle, pack
from rpeg.schedule import share
from rpeg.trace import JsonLines, Span, span_file


@dataclass
class Notes:
    """What a span will say besides its times."""

    reads: dict[str, int] = field(default_factory=dict)
    makes: dict[str, int] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    ids: list[int] = field(default_factory=list)
    tokens: int = 0


class Worker:
    """Runs the items of one lane."""

    def __init__(self, station: Station) -> None:
        self.station, self.plan, self.job = station, station.plan, station.job
        self.graph, self.workload = station.plan.graph, station.plan.workload
        self.lowered = lower(self.graph, self.plan.assignments, self.workload)
        self._spans = JsonLines(span_file(station.trace, station.name))
        self.reading = reading_of(station)
        self.selector = Selector(self.graph, self.job, self.workload, station.trace.parent)
        self._reports = training.Reports()
        _settle(station)

    def meeting_point(self) -> str:
        """Where the device workers find each other: a file on one machine, else a free port of this one's node."""
        if self.station.address.startswith("127."):
            return (
                f"file://{self.station.trace}/rendezvous"  # a store over TCP would listen on every interface
            )
        with socket.socket() as probe:
            probe.bind((self.station.address, 0))
            return f"tcp://{self.station.address}:{probe.getsockname()[1]}"

    def prepare(self, meeting_point: str) -> int:
        """Loads what the lane needs; collective over the device workers. Answers the bytes of memory that it holds."""
        if self.station.rank is not None:
            world = len(self.station.lanes_by_rank)
            if world > 1:
                if self.station.address.startswith("127."):
                    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
                backend = "nccl" if self.station.device.startswith("cuda") else "gloo"
                dist.init_process_group(
                    backend, init_method=meeting_point, rank=self.station.rank, world_size=world
                )
            self.holdings = Holdings(self.station, self.lowered)
        return _memory_bytes(self.station)

    def publish_initial(self) -> dict[str, Any]:
        """This rank's part of the weights that the run begins with, of the models that it trains."""
        broadcasts: dict[str, Any] = {}
        for model, holding in self.holdings.trained.items():
            broadcasts.update(self._publish(holding, model, holding.version))
        return broadcasts

    def receive_initial(self, broadcasts: Mapping[str, Sequence[Any]]) -> None:
        """Brings copies to the version that the run begins with, and puts to rest what rests on the host."""
        for holding in self.holdings.copies.values():
            self._receive(holding, broadcasts[holding.model])
        for rest in self.lowered.rests:
            self.holdings.offload(rest)

    def run(self, work: Work, *batches: Samples) -> Any:
        """An item of a stage from which nothing is expected before its end: its answers, bundled."""
        return bundle(self.answers(work, batches), work.contents)

    def stream(self, work: Work, *batches: Samples) -> Iterator[Any]:
        """The answers to an item one by one, each packed."""
        for answer in self.answers(work, batches):
            yield from pack(answer)

    def answers(self, work: Work, batches: Sequence[Samples]) -> Iterator[Answer]:
        """An item of a stage. A `Part` for each base part of a generator, and `Done` at the end."""
        stage = self.graph.stage(work.item.name)
        inputs = Inputs(work.data, batches)
        # The end must be written before it is told: whoever reads the log then finds the span.
        with self._span(work) as notes:
            if stage.kind is Kind.GENERATE and not self.graph.out_of(stage.name):
                done = self._evaluate(work, stage, notes)
            elif stage.kind is Kind.GENERATE:
                done = yield from self._generate(work, stage, inputs, notes)
            elif stage.kind is Kind.INFERENCE:
                done = self._assess(work, stage, inputs, notes)
            elif stage.kind is Kind.TRAIN:
                done = self._train(work, stage, inputs, notes)
            elif stage == self.graph.selector:
                done = yield from self._select(work, inputs, notes)
            elif stage.kind is Kind.HOST:
                done = self._host(work, stage, inputs, notes)
            else:
                raise RunError(f"stage {stage.name} is {stage.kind}, which no backend runs")
        yield done

    def receive(self, work: Work, references: Sequence[Any]) -> Any:
        """A transfer: takes a version, of which each reference is a part, into the copy that the item names."""
        with self._span(work) as notes:
            holding = self.holdings.copies[work.item.name]
            if holding.version != dict(work.versions)[holding.model] or not holding.digest:
                self._receive(holding, references)
            notes.reads[holding.model] = holding.version
            notes.digests[f"{holding.model}@{holding.version}"] = holding.digest
        return bundle([Done()], work.contents)

    def fetch(self, reference: Any) -> weights.Broadcast:
        """What a reference to weights points to; among workers of one process it is the thing itself."""
        found: weights.Broadcast = reference
        return found

    def move(self, work: Work) -> Any:
        """A reload or an offload of what rests on the host between its runs."""
        with self._span(work):
            rest = next(rest for rest in self.lowered.rests if rest.name == work.item.name)
            if work.item.kind is ItemKind.RELOAD:
                self.holdings.reload(rest)
            else:
                self.holdings.offload(rest)
        return bundle([Done()], work.contents)

    def export(self, model: str, directory: str) -> None:
        """Writes a trained model as a Hugging Face directory with its tokenizer; collective over its trainer's block."""
        self.holdings.trained[model].trainer.reload("weights")
        self.holdings.trained[model].trainer.save_model(directory)
        trainer = self.graph.trainer(model)
        assert trainer is not None
        if self.station.lane == self.plan.assignment(trainer.name).all_lanes()[0]:
            self.tokenizer.save_pretrained(directory)

    def close(self) -> None:
        """Ends cleanly."""
        self._spans.close()
        for name in ("total", "judge"):
            if name in self.__dict__:
                getattr(self, name).close()
        if dist.is_initialized():
            dist.destroy_process_group()

    # Stages

    def _generate(
        self, work: Work, stage: Stage, inputs: Inputs, notes: Notes
    ) -> Generator[Answer, None, Done]:
        holding = self._reads(work, stage.name, stage.models[0], notes)
        requests = generating.requests_of(inputs.joined(work.ids), work.ids, self.workload)
        greedy = any(op.name == "sample_greedy" for op in stage.ops)
        sampling = generating.sampling_of(self.job, self._stop_token_ids, temperature=0.0 if greedy else None)
        engine = self.holdings.engine(stage.name)

        def answer(asked: list[Request]) -> Iterable[Response]:
            return engine.generate(asked, sampling, seed=self.job.seed, version=holding.version)

        responses = generating.once_a_prompt(requests, answer) if greedy else answer(requests)
        group = self.workload.samples_per_prompt if generating.streams_by_group(self.graph, stage.name) else 1
        batches = []
        for number, part in generating.in_parts(responses, work.parts, group):
            batch = generating.with_stand_ins(to_samples(part), stage.ops)
            batches.append(batch)
            notes.ids += batch.ids.tolist()
            notes.tokens += int(batch.lengths.sum())
            yield Part(number, tuple(batch.ids.tolist()), tuple(batch.lengths.tolist()), batch)
        return Done(metrics={} if greedy else generating.rollout_metrics(batches))

    def _evaluate(self, work: Work, stage: Stage, notes: Notes) -> Done:
        """Answers to this replica's share of the held-out prompts, and their rewards by verifiers."""
        holding = self._reads(work, stage.name, stage.models[0], notes)
        replicas = self.plan.assignment(stage.name).replicas(stage.kind)
        asked = self.job.evaluation
        prompts = self.heldout.first(asked.prompts)
        requests = evaluating.requests_of(prompts, asked.samples, work.item.replica, replicas)
        sampling = generating.sampling_of(self.job, self._stop_token_ids, temperature=asked.temperature)
        engine = self.holdings.engine(stage.name)
        answers = to_samples(engine.generate(requests, sampling, seed=self.job.seed, version=holding.version))
        notes.tokens = int(answers.lengths.sum())
        texts, own = hosting.decode(answers, self.tokenizer), [prompts[request.group] for request in requests]
        cut = hosting.is_truncated(answers)
        report = self.judge.score([p.text for p in own], texts, [p.answer for p in own], cut)
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
        calls = [
            (call, self._reads(work, stage.name, call.model, notes).trainer)
            for call in stage.calls
            if call.model is not None
        ]
        notes.ids, notes.tokens = list(ids), int(samples.lengths.sum())
        step = work.item.step
        found = assessing.assess(
            samples,
            calls,
            temperature=self.job.sampling.temperature,
            microbatch=assignment.microbatch,
            respell=lambda batch: self._as_the_reward_model_reads(batch, step),
        )
        return Done(found if calls[0][1].grid.speaks else None)

    def _as_the_reward_model_reads(self, samples: Samples, step: int) -> Samples:
        if self.respelling is None:
            return samples
        prompts = self._asked(samples, step)
        return self.respelling.of(samples, prompts, hosting.decode(samples, self.tokenizer))

    def _train(self, work: Work, stage: Stage, inputs: Inputs, notes: Notes) -> Done:
        """The last item of a step publishes, saves and reports; of a stream of minibatches those before only update."""
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
                published.update(self._end_step(work, holding, notes))
        notes.tokens = int(samples.take(notes.ids).lengths.sum())
        if not self.lowered.ends(slot):
            return Done()
        metrics = self._reports.take(stage.name)
        return Done(published=published, metrics=metrics if tells else {})

    def _end_step(self, work: Work, holding: Holding, notes: Notes) -> dict[str, Any]:
        """The new version of a model: noted, sent where copies are fed, and saved where a checkpoint is due."""
        holding.version = work.item.step + 1
        published = self._publish(holding, holding.model, holding.version)
        notes.makes[holding.model] = holding.version
        notes.digests[f"{holding.model}@{holding.version}"] = holding.digest
        self.holdings.drop_caches(holding)
        if work.save is not None:
            holding.trainer.state(str(work.save / holding.model))
        return published

    def _host(self, work: Work, stage: Stage, inputs: Inputs, notes: Notes) -> Done:
        step = work.item.step
        if not work.data:
            place, count = self.selector.place(step, work.item.part), self.workload.round_prompts
            first = step * self.workload.asked + work.item.part * count * self.workload.samples_per_prompt
            batch = hosting.prompt_batch(self.prompts.at(place, count), self.workload, first)
            return Done(batch, metrics={"epoch": self.prompts.epochs_until(place + count)})
        samples = inputs.joined(work.ids)
        notes.ids, notes.tokens = list(work.ids), int(samples.lengths.sum())
        verifies = next((op for op in stage.ops if op.name == "verify"), None)
        if verifies is not None:
            return self._verify(samples, verifies, step)
        kept = Carried(self.station.trace.parent, stage.name)
        carried = kept.before(step, shaping.carried(self.job.algorithm.hyper))
        columns, metrics, following = hosting.column_ops(samples, stage.ops, self.job, step, carried)
        kept.write(step, following)
        self.reading.advantages(step, samples, columns)
        return Done(columns, metrics=metrics)

    def _select(self, work: Work, inputs: Inputs, notes: Notes) -> Generator[Answer, None, Done]:
        samples, step = inputs.joined(sorted(work.ids)), work.item.step
        notes.ids, notes.tokens = list(work.ids), int(samples.lengths.sum())

        def told() -> tuple[list[str], list[str]]:
            texts = hosting.decode(samples, self.tokenizer)
            return [prompt.text for prompt in self._asked(samples, step)], texts

        found = self.selector.select(step, work.item.part, samples, work.wanted, told)
        yield from found.verdicts
        batch = generating.with_stand_ins(found.accepted, self.graph.stage(work.item.name).ops)
        for number, _ in work.parts:
            yield Part(number, tuple(batch.ids.tolist()), tuple(batch.lengths.tolist()), batch)
        return Done(metrics=dict(found.metrics), warnings=found.warnings)

    def _asked(self, samples: Samples, step: int) -> list[Prompt]:
        place = self.selector.first_place(step)
        return hosting.asked(samples, self.prompts, self.workload, step, place)

    def _verify(self, samples: Samples, op: Op, step: int) -> Done:
        prompts = self._asked(samples, step)
        texts = hosting.decode(samples, self.tokenizer)
        done, report = hosting.verify(samples, op, prompts, texts, self.total)
        if op.gives[0] in hosting.REWARDS:
            self.reading.texts(step, samples, prompts, texts, report)
        return done

    # Weights

    def _publish(self, holding: Holding, model: str, version: int) -> dict[str, Any]:
        """Notes the digest; this rank's part of the weights, where copies are fed from here."""
        fed = any(copy.model == model for copy in self.lowered.copies)
        broadcast = weights.publish(holding, version, fed=fed)
        return {model: broadcast} if broadcast is not None else {}

    def _receive(self, holding: Holding, references: Sequence[Any]) -> None:
        weights.receive(holding, map(self.fetch, references), DTYPES[self.job.dtype])
        self.holdings.drop_caches(holding)

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
        bounds = [
            edge.version_bound(step)
            for stage in self.graph.stages
            if stage.kind is Kind.GENERATE and self.graph.out_of(stage.name)
            for edge in self.graph.weights_into(stage.name)
        ]
        older = self.graph.selector is not None and KEPT in self.graph.selector.gives
        training.check_staleness(samples, max(0, min(bounds, default=0) - older), step, step)

    def _rank_in(self, assignment: Assignment) -> tuple[int, int]:
        """(this worker's data-parallel rank in a gang, ranks)."""
        parallelism = assignment.parallelism
        return parallelism.replica_of(assignment.all_lanes().index(self.station.lane)), parallelism.dp

    # What is loaded at first use

    @cached_property
    def tokenizer(self) -> Any:
        return load_tokenizer(self.job.models.source("actor"))

    @cached_property
    def prompts(self) -> Prompts:
        return load_prompts(self.job, self.tokenizer, "train")

    @cached_property
    def heldout(self) -> Prompts:
        return load_prompts(self.job, self.tokenizer, "heldout")

    @cached_property
    def total(self) -> Total:
        return make_total(self.job.reward)

    @cached_property
    def judge(self) -> Total:
        return make_total(self.job.evaluation_reward)

    @cached_property
    def respelling(self) -> Respelling | None:
        return of_reward_model(self.job, self.tokenizer)

    @property
    def _stop_token_ids(self) -> tuple[int, ...]:
        eos = self.tokenizer.eos_token_id
        return () if eos is None else (int(eos),)

    @contextmanager
    def _span(self, work: Work) -> Iterator[Notes]:
        notes, start = Notes(), time.monotonic()
        yield notes
        span = Span(
            self.station.name,
            self.station.lane,
            work.item,
            work.seq,
            start,
            time.monotonic(),
            notes.reads,
            notes.makes,
            notes.digests,
            tuple(notes.ids),
            notes.tokens,
            _memory_bytes(self.station),
        )
        self._spans.write(span.to_json())


def _demand_finite(holding: Holding, step: int) -> None:
    """Weights that are no numbers are neither published nor kept."""
    if not all(bool(tensor.isfinite().all()) for tensor in holding.trainer.parameters.local):
        raise RunError(
            f"{holding.model} has weights that are no numbers after the updates of step {step}; "
            "go on from a checkpoint with a lower learning rate"
        )


def _settle(station: Station) -> None:
    """One thread a device; a CPU device stays on its core."""
    torch.set_num_threads(1)
    if station.core is not None and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {station.core})
    if station.device.startswith("cuda"):
        torch.cuda.set_device(torch.device(station.device))


def _memory_bytes(station: Station) -> int:
    """The most that the process has held: of the device's memory, or resident for a CPU device."""
    if station.device.startswith("cuda"):
        return int(torch.cuda.max_memory_allocated())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)
