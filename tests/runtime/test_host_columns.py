"""Column operations in the runtime: what is carried from step to step, what is left out, what is measured."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from rpeg import algorithms
from rpeg.algorithms import aggregation, shaping
from rpeg.backends.samples import Samples, join
from rpeg.backends.training.tally import Tally
from rpeg.errors import RunError
from rpeg.runtime.carried import Carried
from rpeg.runtime.hosting import column_ops
from rpeg.runtime.mismatch import batch_metrics
from rpeg.runtime.run_directory import RunDirectory
from rpeg.runtime.training import trained_lengths

INITIAL = {"kl_coefficient": 0.5}


def _job(name: str, **hyper: Any) -> Any:
    """What the column operations read of a job."""
    return SimpleNamespace(
        algorithm=SimpleNamespace(name=name, hyper=algorithms.load(name).Hyper(**hyper)),
    )


def _ops(job: Any) -> Any:
    graph = algorithms.load(job.algorithm.name).graph(job.algorithm.hyper)
    return graph.stage("advantage").ops


def _samples() -> Samples:
    """Three responses to one prompt, of 2, 1 and 3 tokens; the second was cut, the third is partly stale."""
    old = np.array([-1.0, -1.0, -0.5, -2.0, -2.0, -2.0])
    return Samples(
        np.arange(3),
        np.array([2, 1, 3]),
        {
            "old_logprobs": old,
            "ref_logprobs": old - 0.25,
            "behaviour_logprobs": old - np.log([1, 1, 1, 1, 2, 4]),
            "versions": np.array([5, 5, 5, 4, 4, 5]),
        },
        {"rewards": np.array([1.0, 0.0, 1.0]), "group": np.zeros(3, np.int64), "finish": np.array([1, 0, 1])},
    )


def test_each_step_goes_on_from_the_one_before(tmp_path: Path) -> None:
    kept = Carried(tmp_path, "advantage")
    assert kept.before(0, INITIAL) == INITIAL
    for step, value in ((0, 0.25), (1, 0.125), (2, 0.0625)):
        kept.write(step, {"kl_coefficient": value})
    assert kept.before(3, INITIAL) == {"kl_coefficient": 0.0625}
    assert kept.before(2, INITIAL) == {"kl_coefficient": 0.125}  # resumed at step 2
    kept.write(2, {"kl_coefficient": 0.07})
    assert kept.before(3, INITIAL) == {"kl_coefficient": 0.07}


def test_a_torn_line_is_passed_over_and_a_missing_step_named(tmp_path: Path) -> None:
    kept = Carried(tmp_path, "advantage")
    kept.write(0, {"kl_coefficient": 0.25})
    with kept.path.open("a") as file:
        file.write('{"step": 1, "val')
    kept.write(1, {"kl_coefficient": 0.125})
    assert kept.before(1, INITIAL) == {"kl_coefficient": 0.25}
    assert kept.before(2, INITIAL) == {"kl_coefficient": 0.125}
    with pytest.raises(RunError, match="step 7 needs kl_coefficient of step 6"):
        kept.before(7, INITIAL)


def test_nothing_carried_leaves_no_file_and_an_overwritten_run_no_state(tmp_path: Path) -> None:
    kept = Carried(tmp_path, "advantage")
    kept.write(0, {})
    assert not kept.path.parent.exists()
    assert kept.before(9, {}) == {}
    kept.write(0, INITIAL)
    RunDirectory(tmp_path).clear()
    assert not kept.path.exists()


def test_the_coefficient_in_use_is_shown_and_the_next_one_carried() -> None:
    job = _job("rloo", kl_target=0.1, kl_horizon=30, kl_coefficient=0.5)
    carried = shaping.carried(job.algorithm.hyper)
    _, metrics, following = column_ops(_samples(), _ops(job), job, 5, carried)
    assert metrics["mean/kl_coefficient"] == 0.5
    assert metrics["mean/reward_kl"] == pytest.approx(0.25)
    assert following == pytest.approx({"kl_coefficient": 0.5 * (1 + 0.2 * 3 / 30)})


def test_corrections_reach_the_trainer_as_columns() -> None:
    job = _job("dapo", importance="token", importance_cap=3.0, truncated="mask", staleness_bound=0)
    batch, metrics, following = column_ops(_samples(), _ops(job), job, 5, {})
    assert following == {}
    assert batch.token["loss_mask"].tolist() == [1, 1, 0, 0, 0, 1]
    np.testing.assert_allclose(batch.token["importance_weights"], [1, 1, 0, 0, 0, 3])
    assert metrics["mean/loss_mask"] == pytest.approx(0.5)
    assert trained_lengths(batch).tolist() == [2, 0, 1]
    weights = aggregation.token_weights(trained_lengths(batch), "sequence_mean_token_mean")
    assert (weights * trained_lengths(batch)).sum() == pytest.approx(1)
    assert trained_lengths(_samples()).tolist() == [2, 1, 3]


def test_mismatch_and_staleness_are_measured() -> None:
    found = batch_metrics(_samples(), 6)
    assert found["staleness_1"] == pytest.approx(4 / 6)
    assert found["staleness_2"] == pytest.approx(2 / 6)
    assert found["behaviour_ratio_max"] == pytest.approx(4)
    assert found["behaviour_kl"] == pytest.approx(-np.log(8) / 6)
    of_versions = batch_metrics(_samples().columns(["versions"]), 6)
    assert "behaviour_kl" not in of_versions
    assert of_versions["staleness_max"] == 2


def test_columns_of_samples_alone_may_be_of_other_responses() -> None:
    greedy = Samples(
        np.arange(3), np.array([9, 9, 9]), sample={"baseline_rewards": np.array([1.0, 2.0, 3.0])}
    )
    for order in ([greedy, _samples()], [_samples(), greedy]):
        found = join(order, [2, 0])
        assert found.lengths.tolist() == [3, 2]
        assert found.sample["baseline_rewards"].tolist() == [3.0, 1.0]


def test_the_largest_is_put_together_as_the_largest() -> None:
    tally, mask = Tally(), torch.tensor([[True, False], [True, True]])
    for top in (3.0, 2.0):
        values = torch.tensor([[top, 99.0], [1.0, 1.0]])
        tally.add(torch.zeros(()), {"ratio": values, "ratio_max": values}, mask, 3)
    _, tokens, metrics = tally.reduce(None, torch.device("cpu"))
    assert tokens == 6
    assert metrics == {"ratio": pytest.approx(9 / 6), "ratio_max": 3.0}
