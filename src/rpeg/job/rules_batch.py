"""How a batch divides: samples by minibatches, a minibatch by devices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import gcd

from rpeg.job.fields import LARGEST
from rpeg.job.problems import Problem
from rpeg.job.schema import Job

_FAR = 10_000  # no use to anyone who asked for a number this far off


def bounded(job: Job) -> Iterator[Problem]:
    """The samples of a step fit a machine's memory, if only as numbers."""
    batch = job.batch
    if batch.samples > LARGEST:
        text = (
            f"prompts {batch.prompts} × samples_per_prompt {batch.samples_per_prompt} = {batch.samples} samples a step, "
            f"{LARGEST} are allowed. Lower one of them."
        )
        yield Problem(("batch",), text)


def divisible(job: Job) -> Iterator[Problem]:
    """Equal minibatches, equal shares of each for every device; otherwise both numbers and the nearest legal ones."""
    batch, devices = job.batch, max(1, job.devices) if job.is_local else 1
    made = (
        f"prompts {batch.prompts} × samples_per_prompt {batch.samples_per_prompt} = {batch.samples} samples"
    )
    if batch.samples % batch.minibatches:
        text = f"{made} do not divide into {batch.minibatches} minibatches. {_way_out(job, devices)}"
        yield Problem(("batch", "minibatches"), text)
    elif job.is_local and batch.minibatch_samples % devices:
        text = (
            f"{made} in {batch.minibatches} minibatches are {batch.minibatch_samples} samples each, "
            f"which {devices} devices cannot share equally. {_way_out(job, devices)}"
        )
        yield Problem(("batch", "minibatches"), text)


def _way_out(job: Job, devices: int) -> str:
    """The legal values next to what is asked, changing one number at a time."""
    batch = job.batch
    minibatches = _nearest_minibatches(batch.minibatches, batch.samples, devices)
    multiple = batch.minibatches * devices
    step = multiple // gcd(multiple, batch.samples_per_prompt)
    below = batch.prompts // step * step
    prompts = [value for value in (below, below + step) if value > 0]
    ways = [f"minibatches {_either(minibatches)}"] if minibatches else []
    return f"Nearest legal: {', or '.join([*ways, f'prompts {_either(prompts)}'])}."


def _nearest_minibatches(asked: int, samples: int, devices: int) -> list[int]:
    """The largest legal number below and the smallest above, if they are not far away."""

    def first(candidates: Iterable[int]) -> list[int]:
        return [next((n for n in candidates if samples % n == 0 and samples // n % devices == 0), 0)]

    below = first(range(asked - 1, max(0, asked - _FAR), -1))
    above = first(range(asked + 1, min(samples, asked + _FAR) + 1))
    return [n for n in (*below, *above) if n]


def _either(values: Iterable[int]) -> str:
    return " or ".join(map(str, values))
