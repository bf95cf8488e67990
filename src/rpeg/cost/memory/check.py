"""Refuses parallelism that does not divide the model."""

from __future__ import annotations

from rpeg.architecture import Architecture
from rpeg.cost.execution import Execution
from rpeg.errors import InputError


def check(architecture: Architecture, execution: Execution) -> None:
    """InputError with both numbers and the nearest legal choices, where tp or ep do not divide heads or experts.

    More tensor-parallel ranks than key and value heads are legal where they are a multiple: heads are copied. More
    expert-parallel ranks than experts are legal where they are a multiple: each expert is cut.
    """
    p, name = execution.parallelism, architecture.name
    if architecture.heads % p.tp:
        raise InputError(
            f"{name} has {architecture.heads} heads, tp = {p.tp} does not divide them; {_near(architecture.heads, p.tp)}"
        )
    if max(architecture.kv_heads, p.tp) % min(architecture.kv_heads, p.tp) and not architecture.latent:
        raise InputError(
            f"{name} has {architecture.kv_heads} kv_heads, tp = {p.tp} neither divides nor multiplies them;"
            f" {_near(architecture.kv_heads, p.tp)}"
        )
    if p.ep > 1 and architecture.experts is None:
        raise InputError(f"{name} has no experts, ep = {p.ep} needs some; the only legal choice is ep = 1")
    if architecture.experts and max(architecture.experts.count, p.ep) % min(architecture.experts.count, p.ep):
        raise InputError(
            f"{name} has {architecture.experts.count} experts, ep = {p.ep} does not divide them;"
            f" {_near(architecture.experts.count, p.ep)}"
        )

    ranks = p.dp * p.cp * p.tp
    if ranks % p.ep:
        raise InputError(
            f"ep = {p.ep} does not divide the {ranks} ranks of dp = {p.dp} × cp = {p.cp} × tp = {p.tp};"
            f" {_near(ranks, p.ep)}"
        )


def _near(total: int, asked: int) -> str:
    divisors = [n for n in range(1, total + 1) if total % n == 0]
    below = max((n for n in divisors if n < asked), default=1)
    above = min((n for n in divisors if n > asked), default=total)
    return (
        f"the nearest legal choices are {below} and {above}"
        if below != above
        else f"the nearest legal choice is {below}"
    )
