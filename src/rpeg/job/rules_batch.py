"""How a batch divides: samples by minibatches, a minibatch by devices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import gcd

from rpeg.job.problems import Problem
from rpeg.job.schema import Job


def divisible(job: Job) -> Iterator[Problem]:
    """Equal minibatches, equal shares of each for every device; otherwise both numbers and the nearest legal ones."""
    batch, devices = job.batch, max(1, job.devices)
    made = (
        f"prompts {batch.prompts} × samples_per_prompt {batch.samples_per_prompt} = {batch.samples} samples"
    )
    if batch.samples % batch.minibatches:
        text = f"{made} do not divide into {batch.minibatches} minibatches. {_way_out(job, devices)}"
        yield Problem(("batch", "minibatches"), text)
    elif batch.minibatch_samples % devices:
        text = (
            f"{made} in {batch.minibatches} minibatches are {batch.minibatch_samples} samples each, "
            f"which {devices} devices cannot share equally. {_way_out(job, devices)}"
        )
        yield Problem(("batch", "minibatches"), text)


def _way_out(job: Job, devices: int) -> str:
    """The legal values next to what is asked, changing one number at a time."""
    batch = job.batch
    minibatches = _around(batch.minibatches, _legal_minibatches(batch.samples, devices))
    multiple = batch.minibatches * devices
    step = multiple // gcd(multiple, batch.samples_per_prompt)
    below = batch.prompts // step * step
    prompts = [value for value in (below, below + step) if value > 0]
    ways = [f"minibatches {_either(minibatches)}"] if minibatches else []
    return f"Nearest legal: {', or '.join([*ways, f'prompts {_either(prompts)}'])}."


def _legal_minibatches(samples: int, devices: int) -> list[int]:
    return [n for n in range(1, samples + 1) if samples % n == 0 and samples // n % devices == 0]


def _around(value: int, legal: Iterable[int]) -> list[int]:
    """The largest legal value below and the smallest above."""
    legal = list(legal)
    below, above = [v for v in legal if v < value], [v for v in legal if v > value]
    return [*below[-1:], *above[:1]]


def _either(values: Iterable[int]) -> str:
    return " or ".join(map(str, values))
