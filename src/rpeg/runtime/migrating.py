"""Responses on their way from the replica that has begun them to the one that finishes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from rpeg.backends.generation.protocol import Request, Response, to_samples
from rpeg.backends.samples import Samples

UNFINISHED = -1
"""In the column `finish`: the response goes on."""
DRAWN = "drawn"


@dataclass
class HandOver:
    """Where an item leaves its last responses to another. stop: ends its generation. beyond: those that were finished
    in the same moment as the last of its own."""

    stop: Callable[[], None]
    beyond: list[Response] = field(default_factory=list)


def handed_over(finished: Iterable[Response], unfinished: Iterable[Request]) -> Samples:
    """As one batch: what a replica leaves to another, and what it has finished too late for its own parts."""
    going_on = [request.ended("length") for request in unfinished]
    responses = sorted([*finished, *going_on], key=lambda response: response.id)
    late = {response.id for response in going_on}
    # Every token with its number, what a tool has written too: which those are is in a column of its own.
    batch = to_samples(replace(r, drawn=np.ones(len(r), dtype=np.bool_)) for r in responses)
    finish = np.where([response.id in late for response in responses], UNFINISHED, batch.sample["finish"])
    drawn = np.concatenate([response.drawn for response in responses]) if responses else np.zeros(0, bool)
    return replace(
        batch, token={**batch.token, DRAWN: drawn}, sample={**batch.sample, "finish": finish.astype(np.int64)}
    )


def taken_over(samples: Samples) -> tuple[list[Response], list[Request]]:
    """(finished, unfinished) of what `handed_over` made."""
    finished: list[Response] = []
    unfinished: list[Request] = []
    for row in range(len(samples)):
        response, finish = _of_row(samples.rows([row]))
        if finish == UNFINISHED:
            unfinished.append(response.going_on())
        else:
            finished.append(response)
    return finished, unfinished


def _of_row(one: Samples) -> tuple[Response, int]:
    assert one.prompts is not None
    assert one.responses is not None
    finish = int(one.sample["finish"][0])
    response = Response(
        int(one.ids[0]),
        int(one.sample["group"][0]),
        tuple(one.prompts.tolist()),
        one.responses,
        one.token["behaviour_logprobs"],
        one.token["versions"],
        one.token[DRAWN],
        "length" if finish == 0 else "stop",
    )
    return response, finish
