"""The stages that a host slot runs: prompts, rewards by verifiers, columns of numbers, selection."""

from __future__ import annotations

from collections.abc import Generator

from rpeg.algorithms import shaping
from rpeg.backends.data import Prompt
from rpeg.backends.samples import Samples
from rpeg.ir import Op, Stage
from rpeg.runtime import generating, hosting
from rpeg.runtime.carried import Carried
from rpeg.runtime.inputs import Inputs
from rpeg.runtime.materials import Materials
from rpeg.runtime.notes import Notes
from rpeg.runtime.reading import reading_of
from rpeg.runtime.selecting import Selector
from rpeg.runtime.work import Answer, Done, Part, Station, Work


class HostStages:
    """What one host slot does of each stage."""

    def __init__(self, station: Station, materials: Materials, selector: Selector) -> None:
        self.station, self.job = station, station.job
        self.graph, self.workload = station.plan.graph, station.plan.workload
        self.materials, self.selector = materials, selector
        self.reading = reading_of(station)

    def run(self, work: Work, stage: Stage, inputs: Inputs, notes: Notes) -> Generator[Answer, None, Done]:
        """Verdicts and a `Part` of a selector; returns the end."""
        if stage == self.graph.selector:
            return (yield from self._select(work, inputs, notes))
        return self._host(work, stage, inputs, notes)

    def _host(self, work: Work, stage: Stage, inputs: Inputs, notes: Notes) -> Done:
        step = work.item.step
        if not work.data:
            place, count = self.selector.place(step, work.item.part), self.workload.round_prompts
            first = step * self.workload.asked + work.item.part * count * self.workload.samples_per_prompt
            batch = hosting.prompt_batch(self.materials.prompts.at(place, count), self.workload, first)
            return Done(batch, metrics={"epoch": self.materials.prompts.epochs_until(place + count)})
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
            texts = hosting.decode(samples, self.materials.tokenizer)
            return [prompt.text for prompt in self._asked(samples, step)], texts

        found = self.selector.select(step, work.item.part, samples, work.wanted, told)
        yield from found.verdicts
        batch = generating.with_stand_ins(found.accepted, self.graph.stage(work.item.name).ops)
        for number, _ in work.parts:
            yield Part(number, tuple(batch.ids.tolist()), tuple(batch.lengths.tolist()), batch)
        return Done(metrics=dict(found.metrics), warnings=found.warnings)

    def _asked(self, samples: Samples, step: int) -> list[Prompt]:
        place = self.selector.first_place(step)
        return hosting.asked(samples, self.materials.prompts, self.workload, step, place)

    def _verify(self, samples: Samples, op: Op, step: int) -> Done:
        prompts = self._asked(samples, step)
        texts = hosting.decode(samples, self.materials.tokenizer)
        done, report = hosting.verify(samples, op, prompts, texts, self.materials.total)
        if op.gives[0] in hosting.REWARDS:
            self.reading.texts(step, samples, prompts, texts, report)
        return done
