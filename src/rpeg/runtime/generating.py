"""A generator's item: responses leave in base parts as they complete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from rpeg.backends.generation.protocol import Generates, Request, Response, Sampling
from rpeg.backends.generation.turns import Turns
from rpeg.backends.samples import Samples
from rpeg.ir import Graph, Op, Unit
from rpeg.job import Job
from rpeg.runtime.migrating import HandOver
from rpeg.workload import Workload


def sampling_of(job: Job, stop_token_ids: tuple[int, ...], *, temperature: float | None = None) -> Sampling:
    """The job's sampling section, at another temperature where one is given; 0 is greedy."""
    s = job.sampling
    asked = s.temperature if temperature is None else temperature
    return Sampling(
        temperature=asked or 1.0,
        top_p=s.top_p,
        top_k=s.top_k,
        max_new_tokens=job.lengths.max_response,
        stop_token_ids=stop_token_ids,
        greedy=not asked,
    )


def requests_of(prompts: Samples, ids: Sequence[int], workload: Workload) -> list[Request]:
    """One request a sample; `prompts` holds the step's samples without responses."""
    mine = prompts.take(ids)
    assert mine.prompts is not None
    assert mine.prompt_lengths is not None
    requests, start = [], 0
    for sample_id, length in zip(mine.ids.tolist(), mine.prompt_lengths.tolist(), strict=True):
        tokens = tuple(mine.prompts[start : start + length].tolist())
        requests.append(Request(sample_id, sample_id // workload.samples_per_prompt, tokens))
        start += length
    return requests


def once_a_prompt(
    requests: Sequence[Request], answer: Callable[[list[Request]], Iterable[Response]]
) -> Iterator[Response]:
    """The answer to each request, where all requests of one prompt have the same: it is generated once."""
    alike: dict[int, list[int]] = {}
    for request in requests:
        alike.setdefault(request.group, []).append(request.id)
    firsts = {ids[0] for ids in alike.values()}
    for response in answer([request for request in requests if request.id in firsts]):
        yield from (replace(response, id=number) for number in alike[response.group])


def streams_by_group(graph: Graph, stage: str) -> bool:
    """Whether the parts of a generator hold whole groups."""
    return any(edge.chunk is not None and edge.chunk.unit is Unit.GROUP for edge in graph.out_of(stage))


def in_parts(
    responses: Iterable[Response],
    parts: Sequence[tuple[int, int]],
    group_size: int,
    hand_over: HandOver | None = None,
) -> Iterator[tuple[int, list[Response]]]:
    """(base part, its responses) as soon as each is full, in completion order.

    parts: (number, samples) in the order in which they leave. group_size: responses that count as complete together;
    1 where parts are of samples. hand_over: responses end when all parts are full, and it is told what has come beyond.
    """
    pending: dict[int, list[Response]] = {}
    complete: list[Response] = []
    waiting = iter(parts)
    current = next(waiting, None)
    for response in responses:
        group = pending.setdefault(response.group if group_size > 1 else response.id, [])
        group.append(response)
        if len(group) == group_size:
            complete += pending.pop(response.group if group_size > 1 else response.id)
        while current is not None and len(complete) >= current[1]:
            number, size = current
            yield number, complete[:size]
            complete = complete[size:]
            current = next(waiting, None)
        if current is None and hand_over is not None:
            hand_over.stop()
    beyond = [*complete, *(response for group in pending.values() for response in group)]
    if hand_over is not None:
        hand_over.beyond += beyond
    if current is not None or (beyond and hand_over is None):
        raise RuntimeError(
            f"a generator owes parts {[p for p in (current, *waiting) if p]} and is left with {len(complete)} responses "
            f"and {len(pending)} open groups"
        )


def with_stand_ins(batch: Samples, ops: Sequence[Op]) -> Samples:
    """With the generator's own log-probabilities under every name that they stand in for (`bypass`)."""
    names = [datum for op in ops if op.name == "behaviour" for datum in op.gives]
    return batch.with_columns(dict.fromkeys(names, batch.token["behaviour_logprobs"])) if names else batch


def rollout_metrics(batches: Sequence[Samples]) -> dict[str, float]:
    """Sums over what a generator's item made: samples, tokens, cut responses."""
    finish: Counter[str] = Counter()
    for batch in batches:
        finish["samples"] += len(batch)
        finish["response_tokens"] += int(batch.lengths.sum())
        finish["truncated"] += int((batch.sample["finish"] == 0).sum())
    return {f"sum/{name}": float(count) for name, count in finish.items()}


def of_calls(engine: Generates) -> tuple[dict[str, float], tuple[str, ...]]:
    """What became of the calls of tools since it was last asked: sums, and a sentence where some failed."""
    if not isinstance(engine, Turns):
        return {}, ()
    called = engine.take_called()
    counts = {
        "calls": called.calls,
        "failed": called.failed,
        "timed_out": called.timed_out,
        "tokens": called.tokens,
        "seconds": called.seconds,
    }
    warnings = (
        (f"calls of the tool fail, and responses read an error: {called.failure}",) if called.failure else ()
    )
    return {f"sum/tool_{name}": float(count) for name, count in counts.items()}, warnings
