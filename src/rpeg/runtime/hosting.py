"""Host work: prompts, rewards and the algorithm's column operations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from rpeg import algorithms
from rpeg.backends.data import Prompt, Prompts
from rpeg.backends.reward.total import Total, TotalReport
from rpeg.backends.samples import Samples
from rpeg.ir import Op
from rpeg.job import Job
from rpeg.runtime.inputs import padded_columns
from rpeg.runtime.work import Done
from rpeg.workload import Workload

REWARDS = ("rewards", "candidate_rewards")
"""What a step is rewarded with; other rewards are of baselines."""
METRIC_COLUMNS = ("advantages", "returns", "reward_kl", "importance_weights", "loss_mask")


def prompt_batch(prompts: Sequence[Prompt], workload: Workload, first_id: int) -> Samples:
    """Samples before generation: ids from `first_id` on, and prompt tokens, each prompt `samples_per_prompt` times."""
    batch = [p for p in prompts for _ in range(workload.samples_per_prompt)]
    count = len(batch)
    return Samples(
        np.arange(count, dtype=np.int64) + first_id,
        np.zeros(count, dtype=np.int64),
        prompts=np.array([t for p in batch for t in p.tokens], dtype=np.int64),
        prompt_lengths=np.array([len(p.tokens) for p in batch], dtype=np.int64),
        responses=np.zeros(0, dtype=np.int64),
    )


def asked(samples: Samples, prompts: Prompts, workload: Workload, step: int, place: int) -> list[Prompt]:
    """The prompt of each sample of a step, which begins at `place` in the stream of prompts."""
    first = place - step * workload.asked_prompts
    numbers = (samples.ids // workload.samples_per_prompt + first).tolist()
    found = {number: prompts.at(number, 1)[0] for number in dict.fromkeys(numbers)}
    return [found[number] for number in numbers]


def verify(
    samples: Samples, op: Op, prompts: Sequence[Prompt], texts: Sequence[str], total: Total
) -> tuple[Done, TotalReport]:
    """The rewards of responses, as the op names them; how many could not be scored, and why the first of them.

    prompts, texts: of each sample. Scores of a reward model come as a column of the samples.
    """
    scores = next((samples.sample[name] for name in op.needs if name in samples.sample), None)
    report = total.score(
        [p.text for p in prompts], texts, [p.answer for p in prompts], is_truncated(samples), scores
    )
    gives = op.gives[0]
    rewards = Samples(samples.ids, samples.lengths, sample={gives: report.total})
    return Done(rewards, {}, _reward_metrics(report, len(samples), gives), _warnings(report)), report


def _reward_metrics(report: TotalReport, samples: int, gives: str) -> dict[str, float]:
    total, count = ("sum/reward", "sum/rewarded") if gives in REWARDS else (f"sum/{gives}", f"sum/{gives}_of")
    metrics = {
        total: float(report.total.sum()),
        count: float(samples),
        "sum/reward_failed": float(report.failed),
        "sum/reward_timed_out": float(report.timed_out),
    }
    if len(report.parts) > 1 and samples and gives in REWARDS:
        metrics.update({f"mean/reward/{n}": float(part.scores.mean()) for n, part in report.parts.items()})
    return metrics


def _warnings(report: TotalReport) -> tuple[str, ...]:
    found = []
    if report.failed:
        found.append(f"rewards fail and count as zero: {report.reason}")
    if report.timed_out:
        found.append("rewards run into their time limit and count as zero: reward.time_limit_seconds")
    return tuple(found)


def is_truncated(samples: Samples) -> npt.NDArray[np.bool_]:
    """(n,) which responses were cut at their largest length."""
    return np.asarray(samples.sample["finish"] == 0)


def decode(samples: Samples, tokenizer: Any) -> list[str]:
    """Responses as text, without special tokens."""
    assert samples.responses is not None
    offsets = np.concatenate([[0], np.cumsum(samples.response_lengths)])
    rows = [samples.responses[a:b].tolist() for a, b in pairwise(offsets)]
    return [str(text) for text in tokenizer.batch_decode(rows, skip_special_tokens=True)]


def column_ops(
    samples: Samples, ops: Sequence[Op], job: Job, step: int, carried: Mapping[str, float]
) -> tuple[Samples, dict[str, float], dict[str, float]]:
    """What the algorithm's column operations give, one after another, in double precision; metrics; and what they carry
    on to the next step of what the last one has `carried`."""
    module, hyper = algorithms.load(job.algorithm.name), job.algorithm.hyper
    columns, mask = padded_columns(samples, torch.float64)
    if "versions" in columns:
        columns["staleness"] = (step - columns["versions"]) * mask
    columns.update({name: torch.tensor(value, dtype=torch.float64) for name, value in carried.items()})
    for op in ops:
        columns.update(module.OPS[op.name](columns, mask, hyper))
    wanted = {datum for op in ops for datum in op.gives}
    token = {n: c[mask].numpy() for n, c in columns.items() if n in wanted and c.ndim == 2}
    sample = {n: c.numpy() for n, c in columns.items() if n in wanted and c.ndim == 1}
    shown = [n for n in METRIC_COLUMNS if n in columns and n not in samples.token and bool(mask.any())]
    metrics = {f"mean/{n}": float(columns[n][mask].double().mean()) for n in shown}
    metrics.update({f"mean/{name}": value for name, value in carried.items()})
    following = {name: float(columns[name]) for name in carried}
    return Samples(samples.ids, samples.lengths, token, sample), metrics, following
