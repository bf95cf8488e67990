"""Serving at fixed concurrency: as soon as a request is answered, the next one comes."""

from __future__ import annotations

from dataclasses import dataclass

from rpeg.architecture import Architecture
from rpeg.cost.execution import Execution
from rpeg.cost.generating.capacity import pool_of
from rpeg.cost.generating.forward import Forward, Leaf, forward_of
from rpeg.cost.generating.load import decode
from rpeg.cost.generating.policy import Policy
from rpeg.cost.generating.prompts import Prompts, between, together
from rpeg.cost.machine import Machine
from rpeg.cost.tree import Cost, sequence

_ROUNDS = 5
_ENGINE = Policy()


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
    policy: Policy = _ENGINE,
) -> Serving:
    """Steady state of one replica that always has `concurrency` requests of these lengths.

    While a request decodes its n tokens, each other one is answered and replaced as often as it takes n steps, so a
    step carries (rows − 1) / n prompts on average. Requests that the cache cannot hold wait.
    InfeasibleError where it cannot hold one.
    """
    forward = forward_of(architecture, execution, machine, policy.overlapped)
    pool = pool_of(architecture, execution, machine, policy)
    context = prompt_length + response_length / 2
    most = min(float(concurrency), max(1.0, pool.size_bytes / float(pool.held(context))))
    state = _State(most, 0.0, 0.0, [], [])
    for _ in range(_ROUNDS):
        state = _next(forward, most, state.rows, prompt_length, response_length, context)
    named = (("decode", state.steps), ("prompts of others", state.prompts))
    parts = [sequence(name, _costs(leaves, forward.layout.devices)) for name, leaves in named]
    return Serving(state.token_seconds, state.first_seconds, state.rows, sequence("token", parts))


@dataclass(frozen=True)
class _State:
    rows: float
    token_seconds: float
    first_seconds: float
    steps: list[Leaf]
    prompts: list[Leaf]


def _next(forward: Forward, most: float, rows: float, prompt: int, response: int, context: float) -> _State:
    """Seconds with `rows` decoding, and how many of `most` requests decode when tokens take that long.

    Where prompts run in passes of their own, before anything else, requests that are answered together are replaced
    together, and only those of a burst that are already prefilled wait for the rest: half of them on average.
    """
    mixed = forward.serving.mixed
    others = (rows - 1.0) / response * (1.0 if mixed else 0.5)
    steps = forward.leaves(decode(rows, context))
    added, times = between(forward, float(prompt), rows, context, rows / response if mixed else rows)
    prompts = [leaf.times(others * times) for leaf in added]
    step, extra = _total(steps), _total(prompts)
    alone = _total(
        together(forward, Prompts(float(prompt), prompt * prompt / 2, 1.0), forward.layout.attention_dp)
    )
    first = max(step + _total(added), alone) if mixed else alone * max(1.0, rows / 2)
    answered = response * (step + extra)
    decoding = most if not mixed else max(1.0, most * answered / (answered + first))
    return _State(0.5 * rows + 0.5 * decoding, step + extra, first, steps, prompts)


def _total(leaves: list[Leaf]) -> float:
    return float(sum(leaf.seconds for leaf in leaves))


def _costs(leaves: list[Leaf], devices: int) -> list[Cost]:
    return [
        leaf.cost(float(leaf.seconds), float(leaf.flops) * devices, float(leaf.bytes) * devices)
        for leaf in leaves
    ]
