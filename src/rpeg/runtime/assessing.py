"""An assessment's item: log-probabilities and values of responses under a model."""

from __future__ import annotations

from collections.abc import Sequence

from rpeg.backends.samples import Array, Samples
from rpeg.backends.training.trainer import Trainer
from rpeg.errors import RunError
from rpeg.ir import Call, Op


def assess(
    samples: Samples, calls: Sequence[tuple[Call, Trainer]], *, temperature: float, microbatch: int
) -> Samples:
    """The ids, the lengths and the columns that the ops of the calls give."""
    columns: dict[str, Array] = {}
    for call, trainer in calls:
        columns.update(_call(samples, call.ops, trainer, temperature, microbatch))
    return Samples(samples.ids, samples.lengths, columns)


def _call(
    samples: Samples, ops: Sequence[Op], trainer: Trainer, temperature: float, microbatch: int
) -> dict[str, Array]:
    names = {op.name: op.gives[0] for op in ops}
    unknown = set(names) - {"logprob", "value"}
    if unknown:
        raise RunError(f"assessment knows the ops logprob and value, not {', '.join(sorted(unknown))}")
    if len(names) == 2:  # fused: one forward of a shared backbone
        both = trainer.logprobs_and_values(samples, temperature=temperature, microbatch=microbatch)
        return {names["logprob"]: both["logprobs"], names["value"]: both["values"]}
    if "value" in names:
        return {names["value"]: trainer.values(samples, microbatch=microbatch)}
    return {names["logprob"]: trainer.logprobs(samples, temperature=temperature, microbatch=microbatch)}
