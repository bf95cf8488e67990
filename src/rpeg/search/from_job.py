"""From a job file to a `Problem`."""

from __future__ import annotations

from rpeg.architecture import Architecture
from rpeg.cluster import Cluster, local
from rpeg.cost import Calibration
from rpeg.ir import Graph
from rpeg.job import Job, hardware
from rpeg.job.records import read_records
from rpeg.job.rewards import response_seconds
from rpeg.search.given import Given
from rpeg.search.placements import MOST_SLOTS
from rpeg.search.problem import Permissions, Problem
from rpeg.search.structures import generators
from rpeg.sim import Facts
from rpeg.sim.bases import bases
from rpeg.transforms import Transform
from rpeg.transforms.ahead import GenerationAhead
from rpeg.transforms.sharing import Sharing
from rpeg.workload import Lengths, Selection, Workload, constant, lognormal, observed

# Tokenisers of at most so many tokens work on bytes; others average about 4 bytes of English text a token.
_BYTE_LEVEL_VOCABULARY = 512
_BYTES_PER_TOKEN = 4


def from_job(job: Job, memory_bytes: int, calibration: Calibration | None = None) -> Problem:
    """What a job asks to be planned. memory_bytes: of the machine that the job's devices share.

    Raises InputError where a model or the data cannot be read. Loads neither weights nor tokenizer.
    """
    graph = job.graph()
    applied = wished(job, graph)
    for transform in applied:
        graph = transform.apply(graph)
    architectures = {model.name: model_architecture(job, model.name) for model in graph.models}
    prompts, prompt_source = _prompt_lengths(job, architectures["actor"])
    responses, response_source = _response_lengths(job)
    workload = Workload(
        job.batch.prompts,
        job.batch.samples_per_prompt,
        prompts,
        responses,
        job.batch.minibatches,
        job.batch.epochs,
        job.lengths.correlation,
        _selection(job),
    )
    facts = Facts(
        architectures,
        job.dtype,
        job.evaluation.prompts * job.evaluation.samples if job.evaluation.every else 0,
        calibration,
        job.software.engine,
        job.software.trainer,
        response_seconds(job.reward),
        response_seconds(job.evaluation_reward),
        job.lora,
        bases(job, graph),
    )
    assumptions = tuple(
        filter(
            None,
            (prompt_source, response_source, _selection_source(job), *_hardware_sources(job, calibration)),
        )
    )
    return Problem(
        graph,
        cluster_of(job, memory_bytes),
        workload,
        facts,
        job.batch.microbatch,
        permissions_of(job),
        assumptions,
        applied,
        Given(tuple(job.plan.layouts.items()), job.plan.colocate),
    )


def _selection(job: Job) -> Selection | None:
    if not job.selects:
        return None
    asked = job.selection
    return Selection(asked.round_prompts or job.batch.prompts, asked.max_rounds, asked.expected_rejected)


def _selection_source(job: Job) -> str:
    if not job.selects:
        return ""
    kept = "; groups that are kept for the next step save no rounds" if job.keeps_leftovers else ""
    share = f"{job.selection.expected_rejected:.0%}"
    return f"selection: {share} of groups are rejected (selection.expected_rejected){kept}"


def wished(job: Job, graph: Graph) -> tuple[Transform, ...]:
    """The transforms that the job's wishes for its plan name."""
    sharing = tuple(Sharing.candidates(graph))[:1] if job.plan.actor_critic_sharing else ()
    how = job.plan.on_new_weights
    samplers = [stage for stage in generators(graph) if all(op.name == "sample" for op in stage.ops)]
    ahead = tuple(GenerationAhead(stage.name, how) for stage in samplers) if how != "drain" else ()
    return (*sharing, *ahead)


def permissions_of(job: Job) -> Permissions:
    """What the job lets a plan change of what is learned."""
    return Permissions(
        job.allow.staleness - job.keeps_leftovers,
        job.plan.staleness,
        job.plan.freshness or "exact",
        job.allow.actor_critic_sharing,
        job.allow.behaviour_logprobs,
        job.allow.keep_kv,
    )


def cluster_of(job: Job, memory_bytes: int) -> Cluster:
    """The devices that a job asks for: processes on one machine, or described hardware."""
    return local(job.devices, memory_bytes) if job.is_local else job.hardware


def model_architecture(job: Job, role: str) -> Architecture:
    """The shape of the model that a role starts from."""
    return job.models.source(role, planned=not job.is_local).architecture()


def most_rows(job: Job) -> int:
    """The most samples that any device works on at once: what a calibration must reach."""
    return min(job.batch.samples, MOST_SLOTS)


def _prompt_lengths(job: Job, actor: Architecture) -> tuple[Lengths, str]:
    if not job.data.train:
        return _expected_prompts(job)
    records = read_records(job.data.train, job.data.prompt, job.data.answer)
    sizes = [len(record.prompt.encode()) for record in records]
    if actor.vocabulary > _BYTE_LEVEL_VOCABULARY:
        note = f"prompts: {_BYTES_PER_TOKEN} bytes a token (the tokenizer was not loaded)"
        sizes = [-(-size // _BYTES_PER_TOKEN) for size in sizes]
    else:
        note = ""
    kept = [max(1, size) for size in sizes if size <= job.lengths.max_prompt]
    return (observed(kept) if kept else constant(job.lengths.max_prompt)), note


def assumed_lengths(job: Job) -> tuple[str, ...]:
    """What prompts and responses are taken to be where the job has neither data nor a word on them."""
    prompts = "" if job.data.train else _expected_prompts(job)[1]
    return tuple(filter(None, (prompts, _response_lengths(job)[1])))


def _expected_prompts(job: Job) -> tuple[Lengths, str]:
    longest, expected = job.lengths.max_prompt, job.lengths.expected_prompt
    if expected is None and longest >= 4:
        note = (
            f"prompts: lognormal of mean {longest / 2:g} tokens, half of max_prompt; say better with "
            "lengths.expected_prompt, or data.train"
        )
        return lognormal(longest / 2, longest), note
    if expected is None or expected.mean >= longest:
        return constant(longest), ""
    if expected.p95 is not None and expected.mean < expected.p95:
        return lognormal(expected.mean, longest, p95=expected.p95), ""
    return lognormal(expected.mean, longest), f"prompts: lognormal of mean {expected.mean:g} tokens"


def _response_lengths(job: Job) -> tuple[Lengths, str]:
    longest, expected = job.lengths.max_response, job.lengths.expected_response
    if expected is not None and expected.mean < expected.p95 <= longest:
        return lognormal(expected.mean, longest, p95=expected.p95), ""
    if expected is not None and expected.mean < longest:
        return lognormal(expected.mean, longest), f"responses: lognormal of mean {expected.mean:g} tokens"
    if longest < 4 or expected is not None:
        return constant(longest), ""
    mean = longest / 2
    note = (
        f"responses: lognormal of mean {mean:g} tokens, half of max_response; say better with "
        "lengths.expected_response"
    )
    return lognormal(mean, longest), note


def _hardware_sources(job: Job, calibration: Calibration | None) -> tuple[str, ...]:
    if not job.is_local:
        software = job.software
        return (
            f"software: {software.engine} generates, {software.trainer} trains and scores, logits in chunks",
            *hardware.assumptions(job.cluster),
        )
    if calibration is not None:
        return ()
    return ("times: rooflines of advertised peaks, nothing was measured (rpeg calibrate)",)
