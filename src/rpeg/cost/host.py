"""HOST: work of the processors beside the devices, a sample at a time."""

from __future__ import annotations

from rpeg.cost.timing import Timing
from rpeg.cost.tree import Cost, sequence

# Where nothing was measured: decoding and checking one short answer in Python.
_SAMPLE_SECONDS = {"reward": 2e-4, "columns": 2e-5}


def reward(samples: int, timing: Timing) -> Cost:
    """Decoding responses and verifying them."""
    return sequence("reward", [_per_sample("reward", samples, timing)])


def columns(samples: int, timing: Timing) -> Cost:
    """Column ops such as advantages or normalisation over a batch."""
    return sequence("columns", [_per_sample("columns", samples, timing)])


def _per_sample(op: str, samples: int, timing: Timing) -> Cost:
    if samples == 0:
        return Cost(op, 0.0, bound="host", count=0)
    measured = timing.table(op, float(samples))
    seconds = samples * _SAMPLE_SECONDS[op] if measured is None else float(measured)
    share = 0.0 if measured is None else seconds
    return Cost(op, seconds, bound="host", measured_seconds=share, count=samples)
