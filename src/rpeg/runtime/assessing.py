"""An assessment's item: log-probabilities and values of responses under a model, and scores of a reward model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import numpy as np

from rpeg.backends.samples import Array, Samples
from rpeg.backends.training.trainer import Trainer
from rpeg.errors import RunError
from rpeg.ir import Call, Op

FINAL_VALUES = "final_values"


def assess(
    samples: Samples,
    calls: Sequence[tuple[Call, AbstractContextManager[Trainer]]],
    *,
    temperature: float,
    microbatch: int,
    respell: Callable[[Samples], Samples],
) -> Samples:
    """The ids, the lengths and the columns that the ops of the calls give.

    calls: each with a trainer that computes what its model does within the context. respell: the samples as a reward
    model reads them.
    """
    token: dict[str, Array] = {}
    sample: dict[str, Array] = {}
    for call, computing in calls:
        with computing as trainer:
            if any(op.name == "score" for op in call.ops):
                sample.update(_scores(samples, call.ops, trainer, microbatch, respell))
            else:
                columns, last = _call(samples, call.ops, trainer, temperature, microbatch)
                token.update(columns)
                sample.update(last)
    return Samples(samples.ids, samples.lengths, token, sample)


def _scores(
    samples: Samples,
    ops: Sequence[Op],
    trainer: Trainer,
    microbatch: int,
    respell: Callable[[Samples], Samples],
) -> dict[str, Array]:
    if len(ops) != 1:
        raise RunError(f"a reward model gives scores alone, not {', '.join(op.name for op in ops)}")
    return {ops[0].gives[0]: trainer.scores(respell(samples), microbatch=microbatch)}


def _call(
    samples: Samples, ops: Sequence[Op], trainer: Trainer, temperature: float, microbatch: int
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Columns a token, and a sample: the values after the cut of responses that were cut, where an op gives them."""
    last = next((name for op in ops for name in op.gives if name == FINAL_VALUES), None)
    if last is None:
        return _columns(samples, ops, trainer, temperature, microbatch), {}
    longer = with_one_more(samples)
    found = _columns(longer, ops, trainer, temperature, microbatch)
    values = next(op.gives[0] for op in ops if op.name == "value")
    kept = np.ones(int(longer.lengths.sum()), dtype=bool)
    added = longer.offsets[1:][longer.lengths > samples.lengths] - 1
    kept[added] = False
    final = np.zeros(len(samples), dtype=found[values].dtype)
    final[longer.lengths > samples.lengths] = found[values][added]
    return {name: column[kept] for name, column in found.items()}, {last: final}


def with_one_more(samples: Samples) -> Samples:
    """Cut responses with any token more: the value before that is the one after the cut."""
    assert samples.responses is not None
    cut = samples.sample["finish"] == 0
    ends = np.cumsum(samples.response_lengths)[cut]
    return Samples(
        samples.ids,
        samples.lengths + cut,
        prompts=samples.prompts,
        prompt_lengths=samples.prompt_lengths,
        responses=np.insert(samples.responses, ends, 0),
        whole_lengths=None if samples.whole_lengths is None else samples.whole_lengths + cut,
        drawn=None if samples.drawn is None else np.insert(samples.drawn, ends, True),
    )


def _columns(
    samples: Samples, ops: Sequence[Op], trainer: Trainer, temperature: float, microbatch: int
) -> dict[str, Array]:
    names = {op.name: op.gives[0] for op in ops}
    unknown = set(names) - {"logprob", "value"}
    if unknown:
        raise RunError(f"assessment knows the ops logprob, value and score, not {', '.join(sorted(unknown))}")
    if len(names) == 2:  # fused: one forward of a shared backbone
        both = trainer.logprobs_and_values(samples, temperature=temperature, microbatch=microbatch)
        return {names["logprob"]: both["logprobs"], names["value"]: both["values"]}
    if "value" in names:
        return {names["value"]: trainer.values(samples, microbatch=microbatch)}
    return {names["logprob"]: trainer.logprobs(samples, temperature=temperature, microbatch=microbatch)}
