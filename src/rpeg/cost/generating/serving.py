"""Serving at fixed concurrency: as soon as a request is answered, the next one comes."""

from __future__ import annotations

from dataclasses import dataclass

from rpeg.architecture import Architecture
from rpeg.cost.execution import Execution
from rpeg.cost.generating.capacity import pool_of
from rpeg.cost.generating.forward import Forward, forward_of
from rpeg.cost.generating.load import decode
from rpeg.cost.generating.prompts import Prompts, between, together
from rpeg.cost.machine import Machine
from rpeg.cost.tree import Cost, sequence

_ROUNDS = 8


@dataclass(frozen=True)
class Serving:
    """A replica's steady state.

    token_seconds: between two tokens of a request, prompts of others included. first_seconds: until its first token.
    rows: requests that decode at a time. cost: of one token.
    """

    token_seconds: float
    first_seconds: float
    rows: float
    cost: Cost


def serve(
    architecture: Architecture,
    concurrency: int,
    prompt_length: int,
    response_length: int,
    execution: Execution,
    machine: Machine,
) -> Serving:
    """Steady state of one replica that always has `concurrency` requests of these lengths.

    While a request decodes its n tokens, each other one is answered and replaced as often as it takes n steps, so a
    step carries (rows − 1) / n prompts on average. Requests that the cache cannot hold wait.
    InfeasibleError where it cannot hold one.
    """
    forward = forward_of(architecture, execution, machine)
    pool = pool_of(architecture, execution, machine)
    context = prompt_length + response_length / 2
    most = min(float(concurrency), max(1.0, pool.size_bytes / float(pool.held(context))))
    rows, token, first = most, 0.0, 0.0
    for _ in range(_ROUNDS):
        token, first = _seconds(forward, rows, prompt_length, response_length, context)
        rows = 0.5 * rows + 0.5 * max(1.0, most * response_length * token / (response_length * token + first))
    return Serving(token, first, rows, _cost(forward, rows, prompt_length, response_length, context))


def _seconds(
    forward: Forward, rows: float, prompt: int, response: int, context: float
) -> tuple[float, float]:
    step = float(forward.seconds(decode(rows, context)))
    added = sum(float(leaf.seconds) for leaf in between(forward, prompt, rows, context))
    alone = Prompts(float(prompt), prompt * prompt / 2, 1.0)
    first = max(step + added, sum(float(leaf.seconds) for leaf in together(forward, alone)))
    return step + (rows - 1.0) / response * added, first


def _cost(forward: Forward, rows: float, prompt: int, response: int, context: float) -> Cost:
    steps = [leaf.cost(1.0, forward.layout.devices) for leaf in forward.leaves(decode(rows, context))]
    share = (rows - 1.0) / response
    prompts = [leaf.cost(share, forward.layout.devices) for leaf in between(forward, prompt, rows, context)]
    return sequence("token", [sequence("decode", steps), sequence("prompts of others", prompts)])
