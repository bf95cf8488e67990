"""Serving at fixed concurrency: as soon as a request is answered, the next one comes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rpeg.architecture import Architecture
from rpeg.cost.execution import Execution
from rpeg.cost.generating.capacity import pool_of
from rpeg.cost.generating.forward import Forward, Leaf, forward_of
from rpeg.cost.generating.load import decode
from rpeg.cost.generating.policy import Policy
from rpeg.cost.generating.prompts import Prompts, between, together
from rpeg.cost.kernels import Amount
from rpeg.cost.machine import Machine
from rpeg.cost.tree import Cost, sequence

# Shares of the requests in flight that may be decoding, at which steps are asked; between them they are interpolated.
_DECODING = np.asarray([0.05, 0.25, 0.5, 0.75, 1.0])
_ROUNDS = 20
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
    load = _Requests(forward, most, prompt_length, response_length, context)
    rows, first = _steady(load)
    steps, prompts = load.parts(rows)
    token = _total(steps) + _total(prompts)
    named = (("decode", steps), ("prompts of others", prompts))
    parts = [sequence(name, _costs(leaves, forward.layout.devices)) for name, leaves in named]
    return Serving(float(token), first, rows, sequence("token", parts))


@dataclass(frozen=True)
class _Requests:
    """most: requests that the cache holds. prompt, response: tokens of each. context: of a decoding one, on average."""

    forward: Forward
    most: float
    prompt: int
    response: int
    context: float

    @property
    def mixed(self) -> bool:
        return self.forward.serving.mixed

    def parts(self, rows: Amount) -> tuple[list[Leaf], list[Leaf]]:
        """Of one token while `rows` requests decode: a decode step, and the share of others' prompts in it.

        Where prompts run in passes of their own, before anything else, requests that are answered together are
        replaced together, and only those of a burst that are already prefilled wait for the rest: half of them on
        average.
        """
        others = (rows - 1.0) / self.response * (1.0 if self.mixed else 0.5)
        a_step = rows / self.response if self.mixed else rows
        added, times = between(self.forward, float(self.prompt), rows, self.context, a_step)
        steps = self.forward.leaves(decode(rows, self.context))
        return steps, [leaf.times(np.maximum(others, 0.0) * times) for leaf in added]

    @property
    def alone_seconds(self) -> float:
        """A prompt by itself."""
        prompt = Prompts(float(self.prompt), self.prompt * self.prompt / 2, 1.0)
        return float(_total(together(self.forward, prompt, self.forward.layout.attention_dp)))


def _steady(load: _Requests) -> tuple[float, float]:
    """Requests that decode at a time, and seconds until a first token: in and out are balanced by iteration."""
    grid = np.maximum(1.0, _DECODING * load.most)
    steps, prompts = load.parts(grid)
    token = np.broadcast_to(_total(steps) + _total(prompts), grid.shape)
    alone = load.alone_seconds
    if not load.mixed:
        return load.most, alone * max(1.0, load.most / 2)
    rows, first = load.most, alone
    for _ in range(_ROUNDS):
        each = float(np.interp(rows, grid, token))
        first = max(alone, each)
        answered = load.response * each
        rows = 0.5 * rows + 0.5 * max(1.0, load.most * answered / (answered + first))
    return rows, first


def _total(leaves: list[Leaf]) -> Amount:
    return sum(leaf.seconds for leaf in leaves)


def _costs(leaves: list[Leaf], devices: int) -> list[Cost]:
    return [
        leaf.cost(float(leaf.seconds), float(leaf.flops) * devices, float(leaf.bytes) * devices)
        for leaf in leaves
    ]
