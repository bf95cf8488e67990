"""What must hold before anything starts, as a list of small rules: each looks at a job and yields its problems."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from rpeg.architecture.library import find
from rpeg.errors import InputError, nearest
from rpeg.ir import Graph, Scope
from rpeg.job import rules_interruption, rules_layouts, rules_tools
from rpeg.job.hardware import LOCAL, described, part
from rpeg.job.models import ModelSource, resolve_model
from rpeg.job.paths import absolute, why_not_output
from rpeg.job.problems import Problem, sentence
from rpeg.job.records import read_records
from rpeg.job.rules_batch import bounded, divisible
from rpeg.job.rules_reward import RULES as REWARD_RULES
from rpeg.job.rules_selection import RULES as SELECTION_RULES
from rpeg.job.schema import Job
from rpeg.job.software import ALIKE, ENGINES, TRAINERS

Rule = Callable[[Job], Iterable[Problem]]

ROLES = ("actor", "critic", "reference", "reward")


def problems(job: Job) -> list[Problem]:
    """Everything that breaks a rule, in the order of `RULES`."""
    return [problem for rule in RULES for problem in rule(job)]


def models_exist(job: Job) -> Iterator[Problem]:
    """Every model that is given can be found and, if it is on this machine, is one that is known."""
    for role in ROLES:
        choice = getattr(job.models, role)
        if choice is None:
            continue
        try:
            source = resolve_model(choice.path, planned=not job.is_local)
            if source.directory is not None:
                source.context()
            if source.directory is not None or not job.is_local:
                source.architecture()
        except InputError as error:
            yield Problem(("models", role, "path"), sentence(error))


def models_are_used(job: Job) -> Iterator[Problem]:
    """A role that the algorithm has no use for is a misunderstanding."""
    used = {model.name for model in _graph(job).models}
    for role in ROLES[:3]:  # the reward model's own rule is `reward_model_is_used`
        if getattr(job.models, role) is not None and role not in used:
            text = (
                f"is given, but {job.algorithm.name} with these hyperparameters uses only "
                f"{', '.join(sorted(used))}. Remove it, or choose an algorithm with a {role}."
            )
            yield Problem(("models", role), text)
    if job.optimizer.critic_lr is not None and "critic" not in used:
        text = f"is given, but {job.algorithm.name} trains no critic. Remove it."
        yield Problem(("optimizer", "critic_lr"), text)


def context_is_long_enough(job: Job) -> Iterator[Problem]:
    """Prompt and response together fit every model's context."""
    values = (
        getattr(job.algorithm.hyper, "truncated", "") == "bootstrap"
    )  # the value after a cut is read one further
    asked = job.lengths.max_prompt + job.lengths.max_response + values
    for role in ROLES:
        source = _source(job, role)
        context = _context(source) if source is not None else None
        if context is not None and asked > context:
            text = (
                f"max_prompt {job.lengths.max_prompt} + max_response {job.lengths.max_response}"
                f"{' + 1 to bootstrap' if values else ''} = {asked} tokens, "
                f"but the context of {role} {getattr(job.models, role).path} is {context}. Lower one of them to fit."
            )
            yield Problem(("lengths",), text)


def lengths_agree(job: Job) -> Iterator[Problem]:
    """Expected lengths are ordered and within the maximum."""
    expected = job.lengths.expected_response
    prompt = job.lengths.expected_prompt
    if prompt is not None and not prompt.mean <= (prompt.p95 or prompt.mean) <= job.lengths.max_prompt:
        wide = prompt.p95 or prompt.mean
        text = f"mean {prompt.mean:g} ≤ p95 {wide:g} ≤ max_prompt {job.lengths.max_prompt} must hold."
        yield Problem(("lengths", "expected_prompt"), text)
    if expected is not None and not expected.mean <= expected.p95 <= job.lengths.max_response:
        text = (
            f"mean {expected.mean:g} ≤ p95 {expected.p95:g} ≤ max_response {job.lengths.max_response} must hold. "
            "Leave expected_response out if the lengths are not known."
        )
        yield Problem(("lengths", "expected_response"), text)


def groups_have_peers(job: Job) -> Iterator[Problem]:
    """Group-relative advantages compare the responses to one prompt: one alone has advantage zero."""
    grouped = [op.name for stage in _graph(job).stages for op in stage.ops if op.scope is Scope.GROUP]
    if grouped and job.batch.samples_per_prompt == 1:
        text = (
            f"is 1, but {job.algorithm.name} compares the responses to a prompt ({grouped[0]}): with one response "
            "every advantage is zero. Set it to 2 or more, 8 is common."
        )
        yield Problem(("batch", "samples_per_prompt"), text)


def data_is_readable(job: Job) -> Iterator[Problem]:
    """Both files can be read line by line, and hold enough prompts."""
    if not job.data.train:
        if job.is_local:
            yield Problem(("data", "train"), "is missing: give a file of prompts.")
        return
    wanted = [("train", job.data.train, ("batch", "prompts"), job.batch.prompts, "a batch")]
    if job.data.heldout is not None and job.evaluation.every:
        asked = job.evaluation.prompts
        wanted.append(("heldout", job.data.heldout, ("evaluation", "prompts"), asked, "an evaluation"))
    for name, path, key, count, what in wanted:
        try:
            found = len(read_records(path, job.data.prompt, job.data.answer))
        except InputError as error:
            yield Problem(("data", name), sentence(error))
            continue
        if found < count:
            text = f"{what} needs {count} prompts, but data.{name} holds {found}. Set it to {found} or less."
            yield Problem(key, text)


def evaluation_has_data(job: Job) -> Iterator[Problem]:
    """Evaluation needs prompts that are not trained on."""
    if job.evaluation.every and job.data.heldout is None:
        text = (
            f"is missing, but evaluation.every is {job.evaluation.every}: give a JSONL file, "
            "or set evaluation.every: 0."
        )
        yield Problem(("data", "heldout"), text)
    if job.evaluation.samples > 1 and not job.evaluation.temperature:
        text = (
            f"is 0, greedy, but evaluation.samples is {job.evaluation.samples}: all responses to a prompt are alike. "
            "Set a temperature, such as 1.0, or samples: 1."
        )
        yield Problem(("evaluation", "temperature"), text)


def chat_has_a_template(job: Job) -> Iterator[Problem]:
    """A system message is said in a chat."""
    if job.data.system is not None and not job.data.chat_template:
        yield Problem(
            ("data", "system"), "is given, but chat_template is false: set it to true, or leave it out."
        )


def cluster_exists(job: Job) -> Iterator[Problem]:
    """Known systems and kinds, whole nodes; not more processes than this machine has cores to pin them to."""
    if not job.cluster:
        text = f"is empty: give devices by kind, such as {{cpu: {cores()}}}, or systems, such as {{dgx-h100: 4}}."
        yield Problem(("cluster",), text)
    elif isinstance(job.cluster, dict) and len(job.cluster) == 1 and job.is_local:
        count = job.devices
        if count > cores():
            text = f"{count} devices are asked, but {cores()} cores are there. Set it to {cores()} or less."
            yield Problem(("cluster", LOCAL), text)
    elif isinstance(job.cluster, dict) and (wrong := list(_wrong_parts(job.cluster))):
        yield from wrong
    else:
        try:
            described(job.cluster, job.prices)
        except InputError as error:
            yield Problem(("cluster",), sentence(error))


def _wrong_parts(cluster: Mapping[str, int]) -> Iterator[Problem]:
    for name, count in cluster.items():
        try:
            part(name, count)
        except InputError as error:
            yield Problem(("cluster", name), sentence(error))


def software_exists(job: Job) -> Iterator[Problem]:
    """Stacks that are known; their files are listed, not read."""
    for role, known in (("engine", ENGINES), ("trainer", TRAINERS)):
        name = getattr(job.software, role)
        if name not in known:
            alike = ALIKE[role].get(name.lower())
            hint = f"Nearest: '{alike}'. Known: {', '.join(known)}." if alike else nearest(name, known)
            yield Problem(("software", role), f"there is no {role} '{name}'. {hint}")


def staleness_is_allowed(job: Job) -> Iterator[Problem]:
    """A plan may be stale only as far as the user permits."""
    asked, allowed = job.plan.staleness, job.allow.staleness
    if asked is not None and asked > allowed:
        text = (
            f"{asked} is asked, but allow.staleness permits {allowed}. Staleness changes what is learned: "
            f"set allow.staleness: {asked} to permit it, or ask for {allowed} or less."
        )
        yield Problem(("plan", "staleness"), text)
    elif job.plan.freshness == "latest" and (allowed if asked is None else asked) == 0:
        text = "latest has no effect at staleness 0: allow and ask for staleness, or leave freshness out."
        yield Problem(("plan", "freshness"), text)


def sharing_has_a_critic(job: Job) -> Iterator[Problem]:
    """A permission that nothing can use is a misunderstanding."""
    heads = {head for model in _graph(job).models if model.trainable for head in model.heads}
    if job.allow.actor_critic_sharing and "value" not in heads:
        text = f"is true, but {job.algorithm.name} trains no critic. Remove it, or choose an algorithm with a critic."
        yield Problem(("allow", "actor_critic_sharing"), text)


def sharing_is_allowed(job: Job) -> Iterator[Problem]:
    """Sharing is asked for only where it is permitted, and then nothing is said of a critic of its own."""
    if not job.plan.actor_critic_sharing:
        return
    if not job.allow.actor_critic_sharing:
        text = "is asked, and changes what is learned. Set allow.actor_critic_sharing: true to permit it."
        yield Problem(("plan", "actor_critic_sharing"), text)
    for key, value in (("models", job.models.critic), ("optimizer", job.optimizer.critic_lr)):
        if value is not None:
            name = "critic" if key == "models" else "critic_lr"
            text = "is given, but plan.actor_critic_sharing leaves no critic of its own. Remove one of them."
            yield Problem((key, name), text)


def output_is_writable(job: Job) -> Iterator[Problem]:
    """The output directory can be made, or is there for this run alone."""
    reason = why_not_output(absolute(job.output, Path()))
    if reason is not None:
        yield Problem(("output",), reason)


RULES: tuple[Rule, ...] = (
    models_exist,
    models_are_used,
    data_is_readable,
    *REWARD_RULES,
    bounded,
    divisible,
    groups_have_peers,
    *SELECTION_RULES,
    *rules_tools.RULES,
    context_is_long_enough,
    lengths_agree,
    cluster_exists,
    software_exists,
    staleness_is_allowed,
    sharing_has_a_critic,
    sharing_is_allowed,
    *rules_interruption.RULES,
    *rules_layouts.RULES,
    evaluation_has_data,
    chat_has_a_template,
    output_is_writable,
)


def _graph(job: Job) -> Graph:
    return job.graph()


def _source(job: Job, role: str) -> ModelSource | None:
    """The role's own model, if it is given and can be found; what is wrong with it is for `models_exist`."""
    choice = getattr(job.models, role)
    try:
        source = resolve_model(choice.path, planned=not job.is_local) if choice is not None else None
        if source is not None and source.directory is not None:
            source.context()
    except InputError:
        return None
    return source


def _context(source: ModelSource) -> int | None:
    """Tokens that a model can see, where its config or its name tells."""
    if source.directory is not None:
        return source.context()
    known = find(source.label)
    return known.context if known is not None else None


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
