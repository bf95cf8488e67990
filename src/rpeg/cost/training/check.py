"""Layouts that cannot run are refused with both numbers and the nearest that can."""

from __future__ import annotations

from rpeg.architecture import Architecture
from rpeg.cost.execution import Execution
from rpeg.cost.machine import Machine
from rpeg.cost.sequences import Sequences
from rpeg.errors import InputError


def check_layout(architecture: Architecture, execution: Execution, machine: Machine) -> None:
    """Whether the layout divides heads, layers, experts and devices. InputError says what does not and what would."""
    a, layout = architecture, execution.parallelism
    name = a.name or "the model"
    if a.heads % layout.tp:
        raise InputError(
            f"{name} has {a.heads} heads: tp = {layout.tp} does not divide them. {nearest_divisors(layout.tp, a.heads)}"
        )
    if a.kv_heads % layout.tp and layout.tp % a.kv_heads:
        choices = [n for n in divisors(a.heads) if a.kv_heads % n == 0 or n % a.kv_heads == 0]
        raise InputError(
            f"{name} has {a.kv_heads} kv_heads: tp = {layout.tp} neither divides them nor is a multiple of them. "
            f"{_nearest(layout.tp, choices)}"
        )
    if layout.pp * layout.vpp > a.layers + 2:  # embedding and head may be stages of their own
        raise InputError(
            f"{name} has {a.layers} layers: pp × vpp = {layout.pp} × {layout.vpp} = {layout.pp * layout.vpp} stages "
            f"would leave some empty. {nearest_divisors(layout.pp * layout.vpp, a.layers)}"
        )
    _check_experts(architecture, execution)
    if layout.devices > machine.fabric.devices:
        raise InputError(
            f"the layout {layout} needs {layout.devices} devices, there are {machine.fabric.devices}. Nearest: dp = "
            f"{max(1, machine.fabric.devices // layout.devices_per_replica)} where a replica takes "
            f"{layout.devices_per_replica}"
        )


def _check_experts(architecture: Architecture, execution: Execution) -> None:
    layout, experts = execution.parallelism, architecture.experts
    if layout.ep == 1:
        return
    if experts is None:
        raise InputError(f"{architecture.name} has no experts: ep = {layout.ep} is to be 1")
    if experts.count % layout.ep:
        raise InputError(
            f"{architecture.name} has {experts.count} experts: ep = {layout.ep} does not divide them. "
            f"{nearest_divisors(layout.ep, experts.count)}"
        )
    ranks = layout.tp * layout.cp * layout.dp
    if ranks % layout.ep:
        choices = [n for n in divisors(experts.count) if ranks % n == 0]
        raise InputError(
            f"ep = {layout.ep} does not divide the {ranks} ranks of a pipeline stage (tp × cp × dp). "
            f"{_nearest(layout.ep, choices)}"
        )


def check_batch(sequences: Sequences, execution: Execution, updates: int) -> None:
    """Whether the batch falls into whole micro-batches on every replica in every update, where they are padded."""
    if execution.token_budget or not sequences.count:
        return
    dp = execution.parallelism.dp
    if sequences.count % (updates * dp):
        step = updates * dp
        low = sequences.count // step * step
        raise InputError(
            f"a batch of {sequences.count} sequences does not divide into {updates} updates × dp = {dp}. "
            f"Nearest: {low or step} or {low + step} sequences; {nearest_divisors(dp, sequences.count // updates, 'dp')}"
        )
    share = sequences.count // (updates * dp)
    if share % execution.microbatch:
        raise InputError(
            f"micro-batches of {execution.microbatch} do not divide the {share} sequences that each of dp = {dp} "
            f"replicas has in an update. {nearest_divisors(execution.microbatch, share)}"
        )


def divisors(number: int) -> list[int]:
    """All of them, ascending."""
    return [n for n in range(1, number + 1) if number % n == 0]


def nearest_divisors(wrong: int, number: int, name: str = "") -> str:
    """A sentence that names the nearest divisors of `number` below and above `wrong`."""
    return _nearest(wrong, divisors(number), name)


def _nearest(wrong: int, choices: list[int], name: str = "") -> str:
    below = [n for n in choices if n < wrong]
    above = [n for n in choices if n > wrong]
    near = [str(n) for n in (*below[-1:], *above[:1])]
    return f"Nearest legal{' ' + name if name else ''}: {' or '.join(near)}"
