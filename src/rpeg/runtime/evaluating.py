"""An evaluation: held-out prompts, answered and scored."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

from rpeg.backends.data import Prompt
from rpeg.backends.generation.protocol import Request
from rpeg.backends.samples import Array


def requests_of(prompts: Sequence[Prompt], samples: int, replica: int, replicas: int) -> list[Request]:
    """`samples` requests for each prompt of a replica's share: every replicas-th one. Ids do not depend on the share."""
    return [
        Request(number * samples + k, number, prompts[number].tokens)
        for number in range(replica, len(prompts), replicas)
        for k in range(samples)
    ]


def pass_at(count: int, solved: int, k: int) -> float:
    """The chance that of k responses, drawn from `count` of which `solved` are right, one is right at least.

    1 - C(count - solved, k) / C(count, k), unbiased (Chen et al. 2021, arXiv:2107.03374, eq. 1). k ≤ count.
    """
    return 1.0 - comb(count - solved, k) / comb(count, k)


def metrics(
    rewards: Array, first: Array, lengths: Array, truncated: Array, *, solved: float
) -> dict[str, float]:
    """Sums over prompts, which the driver divides by their number.

    rewards, first, lengths, truncated: (prompts, samples): the total reward, the first one before its weight (which
    says what is solved: at least `solved`), response tokens, whether cut.
    """
    prompts, samples = rewards.shape
    right = (first >= solved).sum(1).tolist()
    at = {k: sum(pass_at(samples, r, k) for r in right) for k in powers(samples)}
    return {
        "sum/eval_reward": float(rewards.mean(1).sum()),
        "sum/eval_prompts": float(prompts),
        **{f"sum/eval/pass@{k}": value for k, value in at.items()},
        f"sum/eval/mean@{samples}": float(first.mean(1).sum()),
        "sum/eval/response_length": float(lengths.mean(1).sum()),
        "sum/eval/truncated": float(truncated.mean(1).sum()),
    }


def powers(samples: int) -> list[int]:
    """1, 2, 4, … and `samples` itself."""
    return sorted({2**n for n in range(samples.bit_length())} | {samples})
