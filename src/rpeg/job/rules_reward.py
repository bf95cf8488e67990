"""Rules for rewards: each can be computed, and a reward model is one."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import rpeg
from rpeg.errors import InputError, nearest
from rpeg.job.functions import PREFIX, check_function
from rpeg.job.models import ModelSource, resolve_model
from rpeg.job.problems import Problem, sentence, show
from rpeg.job.rewards import MODEL, Reward, uses_model
from rpeg.job.schema import Job

_VERIFIERS = Path(rpeg.__file__).parent / "backends" / "reward" / "verifiers"
PACKAGES = {"math": "math_verify", "reasoning_gym": "reasoning_gym"}
"""What some verifiers are, and `pip install 'rpeg[rewards]'` brings."""
VALUE_HEAD_FILE = "value_head.safetensors"
CLASSIFIER = "ForSequenceClassification"


def verifiers() -> tuple[str, ...]:
    """Names of the built-in verifiers: the files of `backends/reward/verifiers`, listed and not imported."""
    return tuple(sorted(path.stem for path in _VERIFIERS.glob("[!_]*.py")))


def rewards_exist(job: Job) -> Iterator[Problem]:
    """A built-in verifier by its name, or a function that can be found."""
    for key, reward in _all(job):
        text = _why_unknown(reward)
        if text is not None:
            yield Problem((*key, "name"), text)
        elif job.is_local and reward.name in PACKAGES:
            package = PACKAGES[reward.name]
            if importlib.util.find_spec(package) is None:
                text = f"{reward.name} needs {package}, which is not installed: pip install 'rpeg[rewards]'."
                yield Problem((*key, "name"), text)


def _why_unknown(reward: Reward) -> str | None:
    name = reward.name
    if name.startswith(PREFIX):
        try:
            check_function(name, reward.import_from)
        except InputError as error:
            return sentence(error)
        return None
    known = (*verifiers(), MODEL)
    if name in known:
        return None
    return f"there is no verifier '{name}'. {nearest(name, known)} Your own: python:package.module:function."


def format_is_said(job: Job) -> Iterator[Problem]:
    """`format` by a pattern that is a regular expression, or by tags; nobody else takes these."""
    for key, reward in _all(job):
        if reward.name != "format":
            for name in ("pattern", "tags"):
                if getattr(reward, name) is not None:
                    yield Problem((*key, name), f"is for the verifier format, not {reward.name}. Remove it.")
        elif (reward.pattern is None) == (not reward.tags):
            yield Problem(
                (*key, "name"),
                "format needs either pattern, a regular expression, or tags, such as [think, answer].",
            )
        elif reward.pattern is not None:
            try:
                re.compile(reward.pattern)
            except (re.error, RecursionError, OverflowError) as error:
                text = f"is {show(reward.pattern)}, which is no regular expression: {error}. Escape special characters."
                yield Problem((*key, "pattern"), text)


def truncated_is_one_policy(job: Job) -> Iterator[Problem]:
    """A sample is left out of the loss or not, whatever rewards it has."""
    policies = {reward.truncated for reward in job.reward}
    if "mask" in policies and len(policies) > 1:
        text = f"is {' and '.join(sorted(policies))}: mask leaves a sample out of the loss, so all rewards must say it."
        yield Problem(("reward", "0", "truncated"), text)


def reward_model_is_used(job: Job) -> Iterator[Problem]:
    """`models.reward` and a reward of the name `model` go together."""
    uses, given = uses_model(job.reward), job.models.reward is not None
    if uses and not given:
        text = "is missing, but a reward is `model`: give a sequence classifier, as `rpeg train-reward` writes one."
        yield Problem(("models", "reward"), text)
    if given and not uses:
        yield Problem(
            ("models", "reward"),
            "is given, but no reward is `model`. Add reward: {name: model}, or remove it.",
        )
    if sum(reward.name == MODEL for reward in job.reward) > 1:
        yield Problem(("reward",), "names `model` more than once; there is one reward model. Keep one.")
    if job.evaluation.every and not job.evaluation_reward:
        text = (
            "is missing: held-out responses are scored by verifiers, and the job's reward is a model. Give one, such as "
            "{name: numeric}, or set evaluation.every: 0."
        )
        yield Problem(("evaluation", "reward"), text)


def reward_model_gives_one_number(job: Job) -> Iterator[Problem]:
    """A classifier of one label, or a language model with a value head, where its files are here."""
    if job.models.reward is None:
        return
    try:
        source = resolve_model(job.models.reward.path, planned=not job.is_local)
        text = _why_no_reward_model(source)
    except InputError:  # `models_exist` says what is wrong
        return
    if text is not None:
        yield Problem(("models", "reward", "path"), text)


def _why_no_reward_model(source: ModelSource) -> str | None:
    if source.directory is None or os.path.isfile(source.directory / VALUE_HEAD_FILE):
        return None
    config = source.config()
    kinds = config.get("architectures") or ()
    if not any(str(kind).endswith(CLASSIFIER) for kind in kinds):
        return (
            f"{source.label} is {', '.join(map(str, kinds)) or 'of no known kind'}, a sequence classifier is needed. "
            "Train one from preference pairs: rpeg train-reward."
        )
    labels = config.get("num_labels", len(config.get("id2label") or (0, 1)))
    if labels != 1:
        return f"{source.label} has {json.dumps(labels)} labels, a reward is one number. Take a classifier of one label."
    return None


def _all(job: Job) -> Iterator[tuple[tuple[str, ...], Reward]]:
    """(key path, reward) of every reward of the job."""
    for above, rewards in (
        (("reward",), job.reward),
        (("evaluation", "reward"), job.evaluation.reward or ()),
    ):
        for index, reward in enumerate(rewards):
            yield (*above, str(index)), reward


RULES: tuple[Callable[[Job], Iterable[Problem]], ...] = (
    rewards_exist,
    format_is_said,
    truncated_is_one_policy,
    reward_model_is_used,
    reward_model_gives_one_number,
)
