"""`RewardJob`: the job file of `rpeg train-reward`, which trains a reward model on preference pairs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field, ValidationError

from rpeg.errors import InputError, JobError
from rpeg.job import document, models, paths, sources
from rpeg.job.fields import Count, CountOrNone, Decay, Flag, NonNegative, PathText, Positive, Seed, Size, Text
from rpeg.job.models import ModelSource, resolve_model
from rpeg.job.problems import Problem, section_of, sentence, stop, translate
from rpeg.job.schema import Checkpoint, ModelChoice
from rpeg.job.section import Section


class Pairs(Section):
    """Preference pairs: files and fields."""

    train: PathText = Field(description="pairs: whatever `data.train` of a job may be, such as a JSONL file")
    heldout: PathText | None = Field(default=None, description="pairs that are never trained on")
    prompt: Text = Field(default="prompt", description="the field with the prompt: text or chat messages")
    chosen: Text = Field(default="chosen", description="the field with the better response: text or messages")
    rejected: Text = Field(default="rejected", description="the field with the worse response")
    margin: Text | None = Field(
        default=None, description="the field with how much better it is; default: none"
    )
    chat_template: Flag = Field(
        default=False, description="whether prompt and response go through the tokenizer's chat template"
    )


class PairBatch(Section):
    """What one step trains on."""

    pairs: Size = Field(default=64, description="pairs a step")
    microbatch: Size = Field(default=32, description="pairs in one forward and backward pass, at most")


class PairLengths(Section):
    """Lengths in tokens."""

    max_tokens: Size = Field(description="of prompt and response together, at most; longer pairs are dropped")


class RewardOptimizer(Section):
    """AdamW."""

    lr: NonNegative = Field(description="learning rate")
    warmup_steps: CountOrNone = Field(default=0, description="steps over which the rate rises from zero")
    schedule: Literal["constant", "linear", "cosine"] = Field(
        default="linear", description="how the rate falls after the warm-up, to zero at the last step"
    )
    weight_decay: NonNegative = Field(default=0.0, description="decoupled weight decay")
    max_grad_norm: Positive = Field(default=1.0, description="gradients are scaled down to this norm")
    betas: tuple[Decay, Decay] = Field(
        default=(0.9, 0.999), description="decay of the first and second moment"
    )
    eps: Positive = Field(default=1e-8, description="added to the root of the second moment")


class Watching(Section):
    """When held-out pairs are compared."""

    every: CountOrNone = Field(
        default=0, description="steps between evaluations; 0: only the first and the last"
    )


class RewardJob(Section):
    """A reward model's training. After `load_reward_job` every path in it is absolute."""

    name: Text = Field(description="a name for the run")
    model: ModelChoice = Field(
        description="where it starts: {path: a language model or a sequence classifier}"
    )
    dtype: Literal["float32", "float64", "bfloat16"] = Field(
        default="float32", description="of the matrix products; with bfloat16 the weights stay in float32"
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="auto: a GPU where there is one"
    )
    data: Pairs = Field(description="train: a file of preference pairs")
    batch: PairBatch = Field(default_factory=PairBatch, description="pairs, microbatch")
    lengths: PairLengths = Field(description="max_tokens")
    optimizer: RewardOptimizer = Field(description="lr, and more")
    center: NonNegative = Field(
        default=0.0, description="weight of the squared sum of a pair's rewards, which keeps them near zero"
    )
    epochs: Annotated[Count, Field(le=1024)] = Field(default=1, description="times each pair is trained on")
    seed: Seed = Field(default=0, description="fixes the new head and the order of the pairs")
    evaluation: Watching = Field(default_factory=Watching, description="every")
    checkpoint: Checkpoint = Field(default_factory=Checkpoint, description="what is kept to resume from")
    output: PathText = Field(description="the run's directory (relative to where rpeg is started)")

    def source(self) -> ModelSource:
        """Where the model's files are. InputError when they cannot be found."""
        return resolve_model(self.model.path)


def load_reward_job(path: str | Path) -> RewardJob:
    """Reads and checks a job file; as `rpeg.job.load_job`. JobError lists all problems at once."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = (
            "there is no such file" if isinstance(error, FileNotFoundError) else f"cannot be read: {error}"
        )
        raise JobError(f"{path}: {reason}. See examples/reward-model.yaml.") from None
    return parse_reward_job(text, str(path), file.absolute().parent)


def parse_reward_job(text: str, file: str = "reward.yaml", base_dir: str | Path = ".") -> RewardJob:
    """As `load_reward_job`, from text."""
    parsed = document.parse(text, file)
    try:
        job = _located(RewardJob.model_validate(parsed.data), Path(base_dir))
    except ValidationError as error:
        found = translate(error, lambda path: section_of(RewardJob, path))
    else:
        found = list(_problems(job))
    if found:
        raise stop(file, [problem.located(parsed.lines) for problem in found])
    return job


def dump_reward_job(job: RewardJob) -> str:
    """YAML that `parse_reward_job` reads back to an equal job, from any directory."""
    return yaml.safe_dump(job.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def _located(job: RewardJob, base_dir: Path) -> RewardJob:
    model = job.model.path
    chosen = paths.absolute(model, base_dir) if models.is_local(model, base_dir) else model

    def place(path: str | None) -> str | None:
        return path if not path or path.startswith(sources.PREFIXES) else paths.absolute(path, base_dir)

    return job.model_copy(
        update={
            "model": ModelChoice(path=chosen),
            "data": job.data.model_copy(
                update={"train": place(job.data.train), "heldout": place(job.data.heldout)}
            ),
            "output": paths.absolute(job.output, Path()),
        }
    )


def _problems(job: RewardJob) -> Iterator[Problem]:
    try:
        source = job.source()
        context = source.context() if source.directory is not None else None
        if source.gguf_file is not None:
            text = (
                f"{job.model.path} is a GGUF file, which holds no classifier. Give a Hugging Face directory."
            )
            yield Problem(("model", "path"), text)
        elif context is not None and context < job.lengths.max_tokens:
            text = f"is {job.lengths.max_tokens}, but the context of {job.model.path} is {context}. Lower it to fit."
            yield Problem(("lengths", "max_tokens"), text)
    except InputError as error:
        yield Problem(("model", "path"), sentence(error))
    for name in ("train", "heldout"):
        path = getattr(job.data, name)
        if path and not path.startswith(sources.PREFIXES) and not os.path.isdir(path.partition("#")[0]):
            try:
                sources.data_path(path)
            except InputError as error:
                yield Problem(("data", name), sentence(error))
    if job.evaluation.every and job.data.heldout is None:
        yield Problem(("data", "heldout"), "is missing, but evaluation.every is set: give a file of pairs.")
    if (reason := paths.why_not_output(job.output)) is not None:
        yield Problem(("output",), reason)
