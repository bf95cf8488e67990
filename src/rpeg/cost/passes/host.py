"""Work of processors a sample at a time: rewards, column ops, and what surrounds a stage's own work."""

from __future__ import annotations

from rpeg.cost.passes.timing import Timing
from rpeg.cost.tree import Cost, sequence

# Where nothing was measured: so much Python a sample, on a processor of the 2020s.
_SAMPLE_SECONDS = {"reward": 5e-5, "columns": 2e-5, "join": 5e-6, "collect": 1e-5}


def reward(samples: int, timing: Timing, own_seconds: float = 0.0) -> Cost:
    """Decoding responses and verifying them. own_seconds: of each, what the job's own rewards take beyond that."""
    steps = [_per_sample("reward", samples, timing)]
    if own_seconds:
        steps.append(Cost("own reward", samples * own_seconds, bound="host", count=samples))
    return sequence("reward", steps)


def columns(samples: int, timing: Timing) -> Cost:
    """Column ops such as advantages or normalisation over a batch."""
    return sequence("columns", [_per_sample("columns", samples, timing)])


def joining(samples: int, timing: Timing) -> Cost:
    """Joining the batches that an item is given, by sample id."""
    return _per_sample("join", samples, timing)


def collecting(samples: int, timing: Timing) -> Cost:
    """Making requests of prompts, and a batch of responses."""
    return _per_sample("collect", samples, timing)


def _per_sample(op: str, samples: int, timing: Timing) -> Cost:
    if samples == 0:
        return Cost(op, 0.0, bound="host", count=0)
    measured = timing.table(op, float(samples))
    seconds = samples * _SAMPLE_SECONDS[op] if measured is None else float(measured)
    share = 0.0 if measured is None else seconds
    return Cost(op, seconds, bound="host", measured_seconds=share, count=samples)
