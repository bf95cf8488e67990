"""`rpeg check`: is the job file right, and what was understood?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rpeg.job import Job
    from rpeg.job.tools import Tools

ORDER = 20


def command(
    job_file: Annotated[Path, typer.Argument(metavar="JOB.YAML", help="The job file.")],
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Do not tokenise the prompts (no transformers), nor call the reward function."
        ),
    ] = False,
) -> None:
    """Check a job file, and print what was understood. Trains nothing; a python: reward is called once.

    All problems are listed at once, each with its key, its line and the way out; then the exit code is 2.

    \b
    Examples:
      rpeg check job.yaml
      rpeg check --quick job.yaml            without tokenising the prompts
    """
    from rpeg.job import load_job

    job = load_job(job_file)
    if job.plan.layouts or job.plan.colocate or job.lora:
        from rpeg.calibrate import memory_bytes
        from rpeg.search import check_given, from_job

        check_given(from_job(job, memory_bytes()))
    for name, value in (*understood(job), *assumed(job)):
        typer.echo(f"{name:<12} {value}")
    if not quick:
        for name, value in tokenised(job):
            typer.echo(f"{name:<12} {value}")
        _try_reward(job)
    typer.echo(f"{job_file} is a valid job.")


def understood(job: Job) -> Iterator[tuple[str, str]]:
    """(what, in words) a line."""
    batch = job.batch
    yield "job", f"{job.name}: {job.steps} steps, seed {job.seed}, {job.dtype}"
    yield "algorithm", _algorithm(job)
    for model in job.graph().models:
        yield model.name, _model(job, model.name, model.trainable)
        for note in _notes(job, model.name):
            yield "", note
    yield "data", _data(job)
    for reward in job.reward:
        weight = f" × {reward.weight:g}" if len(job.reward) > 1 else ""
        yield "reward", f"{reward.name}{weight}, truncated responses: {reward.truncated}"
    yield (
        "batch",
        f"{batch.prompts} prompts × {batch.samples_per_prompt} = {batch.samples} samples a step, "
        f"{batch.minibatches} × {batch.minibatch_samples} samples an epoch, {batch.epochs} epochs: "
        f"{batch.minibatches * batch.epochs} updates a step",
    )
    if job.selects:
        yield "selection", _selection(job)
    if job.tools is not None:
        yield "tool", _tool(job.tools)
    yield "lengths", _lengths(job)
    yield "optimizer", _optimizer(job)
    if job.lora is not None:
        yield "lora", f"rank {job.lora.rank}, scale {job.lora.scale:g}, beside {_BESIDE[job.lora.targets]}"
    yield "cluster", _cluster(job)
    sharing, logprobs = _yes(job.allow.actor_critic_sharing), _yes(job.allow.behaviour_logprobs)
    yield (
        "permissions",
        f"staleness ≤ {job.allow.staleness}, sharing {sharing}, log-probabilities of generation {logprobs}, keys and "
        f"values of older weights {_yes(job.allow.keep_kv)}",
    )
    for stage, layout in job.plan.layouts.items():
        yield (
            "layout",
            f"{stage}: {', '.join(f'{key} {_value(getattr(layout, key))}' for key in layout.given)}",
        )
    if job.plan.colocate:
        yield "colocated", ", ".join(job.plan.colocate)
    yield "output", job.output


_BESIDE = {"all": "all matrices of the layers", "attention": "queries and values"}


def assumed(job: Job) -> Iterator[tuple[str, str]]:
    """What a plan takes for granted since the job does not say it."""
    from rpeg.search import assumed_lengths

    yield from (("assumed", words) for words in assumed_lengths(job))


def _algorithm(job: Job) -> str:
    """Its name, and the hyperparameters that are not its defaults."""
    from dataclasses import asdict

    hyper = job.algorithm.hyper
    usual = asdict(type(hyper)())
    given = [f"{key} {value}" for key, value in asdict(hyper).items() if value != usual[key]]
    return (
        f"{job.algorithm.name}: {', '.join((*given, 'the rest by default' if given else 'all by default'))}"
    )


def _lengths(job: Job) -> str:
    """The limits, and the means that the job expects."""
    lengths = job.lengths
    bounds = (
        ("prompt", lengths.max_prompt, lengths.expected_prompt),
        ("response", lengths.max_response, lengths.expected_response),
    )
    said = (
        f"{what} ≤ {most}" + ("" if expected is None else f" ({expected.mean:g} on average)")
        for what, most, expected in bounds
    )
    return f"{', '.join(said)} tokens"


def _selection(job: Job) -> str:
    asked = job.selection
    rule = f", and {asked.keep} wants them" if asked.keep else ""
    short = "train on what there is" if asked.shortfall == "train" else "stop"
    return (
        f"{job.batch.prompts} groups a step whose rewards differ{rule}, of up to {asked.max_rounds} rounds of "
        f"{asked.round_prompts or job.batch.prompts} prompts; beyond the quota: {asked.leftover}; short of it: {short}"
    )


def _tool(tools: Tools) -> str:
    ends = f"after {', '.join(map(repr, tools.ends))}" if tools.ends else "at the end of a sequence"
    limits = (
        f"{tools.max_calls} calls a response, {tools.time_limit_seconds:g} s each, {tools.processes} at once"
    )
    return f"{tools.function}, asked {ends}; at most {limits}"


def _value(said: object) -> str:
    """Device numbers in short."""
    from rpeg.plan.assignment import ranges

    return ranges(said) if isinstance(said, tuple) else str(said)


def _cluster(job: Job) -> str:
    if job.is_local:
        return f"{job.devices} × cpu"
    kinds = ", ".join(kind.name for kind in job.hardware.kinds)
    return f"{job.hardware.name}: {job.devices} devices ({kinds}), to plan for"


def tokenised(job: Job) -> Iterator[tuple[str, str]]:
    """How many prompts are usable; says so where transformers is not installed. InputError when too few are."""
    import importlib.util

    if not job.data.train:
        return
    if importlib.util.find_spec("transformers") is None:
        yield "prompts", "not tokenised: transformers is not installed"
        return
    from rpeg.backends.data import load_prompts, load_tokenizer, notes

    tokenizer = load_tokenizer(job.models.source("actor"))
    for split in ("train", "heldout"):
        if getattr(job.data, split) is not None:
            prompts = load_prompts(job, tokenizer, split)
            longest = max(len(prompt.tokens) for prompt in prompts.prompts)
            long = f"{prompts.dropped - prompts.empty} longer than {job.lengths.max_prompt} tokens"
            yield (
                split,
                f"{len(prompts)} kept, the longest {longest} tokens; dropped: {long}, {prompts.empty} empty",
            )
            if split == "train":
                said = notes(tokenizer, prompts.prompts, chat_template=job.data.chat_template)
                yield from (("warning", note) for note in said)


def _try_reward(job: Job) -> None:
    """InputError where the reward cannot score the first training prompt's own answer."""
    from rpeg.backends.reward import check_reward
    from rpeg.job.records import read_records

    if not job.data.train:
        return
    first = read_records(job.data.train, job.data.prompt, job.data.answer)[0]
    for reward in (*job.reward, *(job.evaluation.reward or ())):
        check_reward(reward, first.prompt, first.answer)


def _model(job: Job, role: str, trainable: bool) -> str:
    source = job.models.source(role, planned=not job.is_local)
    if source.directory is None and not job.is_local:
        place = f"as known by its name, {source.architecture().parameters() / 1e9:.3g}B parameters"
    else:
        place = "to be fetched when it is loaded" if source.directory is None else f"in {source.directory}"
    context = "" if source.directory is None else f", context {source.context() or 'unknown'}"
    own = "" if role == "actor" or getattr(job.models, role, None) else ", as the actor starts"
    return f"{source.label} {place}{context}, {'trained' if trainable else 'frozen'}{own}"


def _notes(job: Job, role: str) -> tuple[str, ...]:
    """What the costs of a model leave out, and fields of its config that are not known."""
    from rpeg.architecture import config_notes

    source = job.models.source(role, planned=not job.is_local)
    return () if source.directory is None else config_notes(source.config(), source.label)


def _data(job: Job) -> str:
    from rpeg.job.records import read_records

    counts = [
        f"{name} {len(read_records(path, job.data.prompt, job.data.answer))} prompts ({path})"
        for name, path in (("train", job.data.train), ("heldout", job.data.heldout))
        if path
    ]
    return ", ".join(counts) or "none"


def _optimizer(job: Job) -> str:
    asked = job.optimizer
    critic = "" if asked.critic_lr is None else f", critic {asked.critic_lr:g}"
    return f"AdamW lr {asked.lr:g}{critic}, {asked.schedule}, {asked.warmup_steps} warm-up steps"


def _yes(value: bool) -> str:
    return "allowed" if value else "not allowed"
