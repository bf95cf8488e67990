"""`train_reward`: a reward model from preference pairs, in this process, from its first step or checkpoint on."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Protocol

import torch

from rpeg.backends.data import load_tokenizer
from rpeg.backends.data.pairs import PairSet, tokenise_pairs
from rpeg.backends.reward_model import load_reward_model
from rpeg.backends.training import preference
from rpeg.backends.training.optimizer import OptimizerConfig
from rpeg.backends.training.trainer import Trainer
from rpeg.errors import InputError, RunError
from rpeg.job.preferences import read_preferences
from rpeg.job.reward_job import RewardJob, dump_reward_job
from rpeg.runtime.lock import locked
from rpeg.runtime.resuming import check_same
from rpeg.runtime.run_directory import Checkpoint, RunDirectory
from rpeg.trace import JsonLines

MODEL = "reward"
MAY_CHANGE = frozenset({"name", "output", "evaluation", "checkpoint", "device"})
DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.float32}


class RewardView(Protocol):
    """Whoever wants to see it go."""

    def on_pairs(self, split: str, kept: int, dropped: Mapping[str, int]) -> None: ...

    def on_step(self, step: int, steps: int, metrics: Mapping[str, float]) -> None: ...

    def on_evaluation(self, step: int, metrics: Mapping[str, float]) -> None: ...


@dataclass(frozen=True)
class RewardOutcome:
    """steps: done in all, of `asked`. evaluations: metrics on held-out pairs by the steps before."""

    directory: Path
    steps: int
    asked: int
    evaluations: Mapping[int, Mapping[str, float]]
    seconds: float

    @property
    def finished(self) -> bool:
        return self.steps == self.asked


@dataclass
class _Stop:
    asked: bool = False


def train_reward(
    job: RewardJob, view: RewardView, *, resume: bool = False, overwrite: bool = False
) -> RewardOutcome:
    """Trains and writes RUN/model, a Hugging Face sequence classifier of one label with its tokenizer.

    Resumed on the same machine it ends as if it had never been interrupted. The first Ctrl-C ends after the step, with a
    checkpoint. Raises InputError before anything starts, RunError where weights are no longer numbers.
    """
    run = RunDirectory(Path(job.output))
    start = _start(job, run, resume=resume, overwrite=overwrite)
    with locked(run.path), _interrupts() as stop:
        return _Training(job, run, start, view, stop).run()


def _start(job: RewardJob, run: RunDirectory, *, resume: bool, overwrite: bool) -> Checkpoint | None:
    if not resume:
        if run.is_used and not overwrite:
            raise InputError(
                f"{run.path} holds a run. Go on with it: --resume. Begin anew: --overwrite. Or set another output."
            )
        return None
    check_same(dump_reward_job(job), run.job, MAY_CHANGE)
    checkpoints = run.checkpoints()
    if not checkpoints:
        raise InputError(f"{run.path} holds no whole checkpoint to resume from; begin anew with --overwrite")
    return checkpoints[-1]


@dataclass
class _Training:
    job: RewardJob
    run_directory: RunDirectory
    start: Checkpoint | None
    view: RewardView
    stop: _Stop
    evaluations: dict[int, Mapping[str, float]] = field(default_factory=dict)

    def run(self) -> RewardOutcome:
        job, run = self.job, self.run_directory
        began = time.monotonic()
        tokenizer = load_tokenizer(job.source())
        train = self._pairs("train", tokenizer)
        heldout = self._pairs("heldout", tokenizer) if job.data.heldout else None
        if len(train) < job.batch.pairs:
            raise InputError(
                f"data.train holds {len(train)} usable pairs, batch.pairs is {job.batch.pairs}: lower it"
            )
        steps = job.epochs * len(train) // job.batch.pairs
        first = self.start.steps if self.start else 0
        if first >= steps:
            raise InputError(f"{run.path} has done {first} of {steps} steps: nothing is left")
        trainer = self._trainer(steps)
        self._begin(first)
        with JsonLines(run.metrics) as metrics, JsonLines(run.evaluations) as evaluations:
            done = self._steps(trainer, train, heldout, first, steps, metrics, evaluations)
        if done == steps:
            trainer.save_model(str(run.model))
            tokenizer.save_pretrained(run.model)
        return RewardOutcome(run.path, done, steps, dict(self.evaluations), time.monotonic() - began)

    def _begin(self, first: int) -> None:
        run = self.run_directory
        if self.start is None:
            run.clear()
        run.job.write_text(dump_reward_job(self.job), encoding="utf-8")
        run.drop_metrics_from(first)

    def _pairs(self, split: str, tokenizer: object) -> PairSet:
        data = self.job.data
        found = read_preferences(getattr(data, split), data.prompt, data.chosen, data.rejected, data.margin)
        pairs = tokenise_pairs(found, tokenizer, self.job.lengths.max_tokens, data.chat_template)
        self.view.on_pairs(split, len(pairs), pairs.dropped)
        if not pairs.pairs:
            dropped = ", ".join(f"{count} {why}" for why, count in pairs.dropped.items())
            raise InputError(f"data.{split}: no pair is left: {dropped}")
        return pairs

    def _trainer(self, steps: int) -> Trainer:
        job, o = self.job, self.job.optimizer
        cuda = job.device == "cuda" or (job.device == "auto" and torch.cuda.is_available())
        model = load_reward_model(
            job.source().pretrained,
            dtype=DTYPES[job.dtype],
            device="cuda" if cuda else "cpu",
            begin=job.seed,
        )
        config = OptimizerConfig(
            lr=o.lr,
            betas=o.betas,
            eps=o.eps,
            weight_decay=o.weight_decay,
            warmup_steps=o.warmup_steps,
            schedule=o.schedule,
            total_steps=steps,
            max_grad_norm=o.max_grad_norm,
        )
        compute = torch.bfloat16 if job.dtype == "bfloat16" else None
        trainer = Trainer(model, optimizer=config, compute_dtype=compute)
        if self.start is not None:
            trainer.load_state(str(self.start.path / MODEL))
        return trainer

    def _steps(
        self,
        trainer: Trainer,
        train: PairSet,
        heldout: PairSet | None,
        first: int,
        steps: int,
        metrics: JsonLines,
        evaluations: JsonLines,
    ) -> int:
        """Steps done when it ends."""
        job = self.job
        self._evaluate(trainer, heldout, first, evaluations)
        for step in range(first, steps):
            batch = train.batch(step, job.batch.pairs, job.seed)
            found = preference.update(trainer, batch, microbatch=job.batch.microbatch, center=job.center)
            metrics.write({"step": step, **found})
            self.view.on_step(step, steps, found)
            done = step + 1
            last = done == steps or self.stop.asked
            if last or (job.evaluation.every and done % job.evaluation.every == 0):
                self._evaluate(trainer, heldout, done, evaluations)
            if last or (job.checkpoint.every and done % job.checkpoint.every == 0):
                self._save(trainer, done)
            if last:
                return done
        return steps

    def _evaluate(self, trainer: Trainer, heldout: PairSet | None, done: int, lines: JsonLines) -> None:
        if heldout is None:
            return
        found = preference.compare(
            trainer, heldout.pairs, microbatch=self.job.batch.microbatch, center=self.job.center
        )
        self.evaluations[done] = found
        lines.write({"step": done, **found})
        self.view.on_evaluation(done, found)

    def _save(self, trainer: Trainer, done: int) -> None:
        if not all(bool(tensor.isfinite().all()) for tensor in trainer.parameters.local):
            raise RunError(
                f"weights are no numbers after {done} steps; begin anew with a lower learning rate"
            )
        run, job = self.run_directory, self.job
        trainer.state(str(run.begin_checkpoint(done) / MODEL))
        run.commit_checkpoint(done, job.seed, job.checkpoint.keep)


@contextmanager
def _interrupts() -> Iterator[_Stop]:
    """The first Ctrl-C asks for an end after the step, the second ends at once."""
    stop = _Stop()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
