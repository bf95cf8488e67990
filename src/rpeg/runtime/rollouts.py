"""The stages in which a device generates: responses that are trained on, and answers to held-out prompts."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from itertools import chain

from rpeg.backends.generation.protocol import Generates, Request, Response, to_samples
from rpeg.backends.generation.turns import Turns
from rpeg.ir import Edge, OnNewWeights, Stage
from rpeg.plan import BEGUN, Lowered, ids_to_generate
from rpeg.runtime import evaluating, generating, hosting, migrating
from rpeg.runtime.ahead import Ahead
from rpeg.runtime.holdings import Holdings
from rpeg.runtime.inputs import Inputs
from rpeg.runtime.launched import read_by
from rpeg.runtime.materials import Materials
from rpeg.runtime.notes import Notes
from rpeg.runtime.selecting import Selector
from rpeg.runtime.work import Answer, Done, Part, Station, Work


class Rollouts:
    """What one device generates, with the engines over the models that it holds."""

    def __init__(
        self,
        station: Station,
        lowered: Lowered,
        holdings: Holdings,
        materials: Materials,
        selector: Selector,
    ) -> None:
        self.plan, self.job = station.plan, station.job
        self.graph, self.workload = station.plan.graph, station.plan.workload
        self.lowered, self.holdings, self.materials, self.selector = lowered, holdings, materials, selector
        self._ahead: dict[str, Ahead] = {}
        self._turns: dict[str, Turns] = {}

    def generate(
        self, work: Work, stage: Stage, inputs: Inputs, notes: Notes
    ) -> Generator[Answer, None, Done]:
        """A `Part` for each base part, as its responses complete; returns the end."""
        holding = read_by(work, self.holdings, stage.models[0], notes)
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
        ahead = (
            self._ahead.setdefault(stage.name, Ahead())
            if edge.on_new_weights is not OnNewWeights.DRAIN
            else None
        )

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

    def evaluate(self, work: Work, stage: Stage, notes: Notes) -> Done:
        """Answers to this replica's share of the held-out prompts, and their rewards by verifiers."""
        holding = read_by(work, self.holdings, stage.models[0], notes)
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
