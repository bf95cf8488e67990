"""What goes wrong in silence: steps that look like training and teach nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rpeg.runtime.record import StepRecord

TRUNCATED_MANY = 0.2
TRUNCATED_ALMOST_ALL = 0.9
STEPS = 3
"""So many steps in a row are no accident."""


def alarms(records: Sequence[StepRecord]) -> Iterator[str]:
    """Sentences about the last steps of a run, the newest last; most are said of several steps in a row."""
    first = records[0]
    if len(records) == 1 and first.truncated > TRUNCATED_MANY:
        yield (
            f"{first.truncated:.0%} of the first responses were cut at lengths.max_response: their rewards say little. "
            "Raise it, or see reward.truncated"
        )
    last = records[-STEPS:]
    if len(last) < STEPS:
        return
    if all(record.truncated > TRUNCATED_ALMOST_ALL for record in last):
        yield (
            f"more than {TRUNCATED_ALMOST_ALL:.0%} of the responses were cut for {STEPS} steps: "
            "raise lengths.max_response"
        )
    if all(_gradient_is_zero(record) for record in last):
        yield (
            f"the gradient of the actor has been zero for {STEPS} steps: all rewards of a group are equal, or all "
            "samples are masked. Look at them: rpeg samples"
        )
    if all(record.metrics.get("reward_failed", 0) >= _rewarded(record) > 0 for record in last):
        yield f"every reward has failed for {STEPS} steps"


def _gradient_is_zero(record: StepRecord) -> bool:
    return record.metrics.get("actor/grad_norm", 1.0) == 0.0


def _rewarded(record: StepRecord) -> float:
    return record.metrics.get("samples", 0.0)
