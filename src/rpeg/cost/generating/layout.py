"""`Layout`: how an engine cuts a model over the devices of one replica."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from rpeg.architecture import Architecture
from rpeg.errors import InputError
from rpeg.plan import Parallelism


@dataclass(frozen=True)
class Layout:
    """One replica: ranks that must step together.

    tp: ranks that share each sequence's attention. pp: stages. attention_dp: groups of tp ranks with sequences of
    their own whose experts are shared. ep: ranks over which experts are dealt. expert_tp: ranks over which the
    matrices of one expert are cut. replicas: that share nothing.
    """

    tp: int
    pp: int
    attention_dp: int
    ep: int
    expert_tp: int
    replicas: int

    @property
    def devices(self) -> int:
        """Of one replica."""
        return self.tp * self.pp * self.attention_dp


@lru_cache(maxsize=4096)
def layout_of(architecture: Architecture, parallelism: Parallelism) -> Layout:
    """How engines run this model under these degrees; InputError names both numbers and the nearest legal degrees.

    Without expert parallelism experts are cut like dense layers, over tp. With ep ≤ tp the ranks of a tensor-parallel
    group deal experts among them, each cut over tp / ep. With ep > tp data-parallel ranks share experts (attention
    data parallelism), so ep / tp of them make one replica.
    """
    p, a = parallelism, architecture
    _divides("tp", p.tp, "attention heads", a.heads, a.name)
    _divides("pp", p.pp, "layers", a.layers, a.name)
    if a.latent is None and a.kv_heads % p.tp and p.tp % a.kv_heads:
        raise InputError(
            f"{a.name}: tp = {p.tp} neither divides nor is a multiple of its {a.kv_heads} key-value heads."
            f" {nearest_divisors(p.tp, a.kv_heads)}"
        )
    if a.experts is None:
        return Layout(p.tp, p.pp, 1, 1, 1, p.dp * p.cp)
    _divides("ep", p.ep, "experts", a.experts.count, a.name)
    if p.ep <= p.tp:
        _divides("ep", p.ep, "tensor-parallel ranks", p.tp, a.name)
        return Layout(p.tp, p.pp, 1, p.ep, p.tp // p.ep, p.dp * p.cp)
    if p.ep % p.tp or (p.dp * p.cp) % (p.ep // p.tp):
        raise InputError(
            f"{a.name}: ep = {p.ep} is not made of whole tensor-parallel groups of {p.tp} out of {p.dp * p.cp}"
            f" data-parallel ones. {nearest_divisors(p.ep, p.tp * p.dp * p.cp)}"
        )
    sharing = p.ep // p.tp
    return Layout(p.tp, p.pp, sharing, p.ep, 1, p.dp * p.cp // sharing)


def nearest_divisors(value: int, number: int) -> str:
    """A sentence with the divisors of `number` next to `value`."""
    divisors = [d for d in range(1, number + 1) if number % d == 0]
    below = max((d for d in divisors if d <= value), default=None)
    above = min((d for d in divisors if d >= value), default=None)
    near = sorted({d for d in (below, above) if d is not None})
    return f"Nearest that does: {' or '.join(map(str, near))}."


def _divides(name: str, degree: int, what: str, number: int, model: str) -> None:
    if number % degree:
        raise InputError(
            f"{model}: {name} = {degree} does not divide its {number} {what}. {nearest_divisors(degree, number)}"
        )
