import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.errors import InputError
from rpeg.workload import Lengths, Workload, constant, geometric, lognormal, observed

LIST = st.lists(st.integers(1, 2000), min_size=1, max_size=50)


@settings(deadline=None, max_examples=50)
@given(LIST)
def test_an_observed_histogram_keeps_mean_maximum_and_percentiles(lengths: list[int]) -> None:
    histogram = observed(lengths)
    assert histogram.mean == pytest.approx(np.mean(lengths))
    assert histogram.maximum == max(lengths)
    for percent in (0, 1, 50, 95, 100):
        expected = np.percentile(lengths, percent, method="inverted_cdf")
        assert histogram.percentile(percent) == expected


@settings(deadline=None, max_examples=50)
@given(LIST, st.integers(1, 2000))
def test_truncation_is_that_of_each_length(lengths: list[int], longest: int) -> None:
    cut = observed(lengths).truncated(longest)
    expected = observed(np.minimum(lengths, longest))
    assert cut.values == expected.values
    assert cut.weights == pytest.approx(expected.weights)


@settings(deadline=None, max_examples=50)
@given(LIST)
def test_json_round_trip_is_exact(lengths: list[int]) -> None:
    workload = Workload(4, 2, constant(7), observed(lengths), minibatches=2, epochs=3, correlation=0.25)
    assert Workload.from_json(json.loads(json.dumps(workload.to_json()))) == workload


@pytest.mark.parametrize(("mean", "longest"), [(10, 64), (40, 64), (63, 64), (900, 8192), (6000, 32768)])
def test_fitted_tails_have_the_mean_that_was_asked(mean: float, longest: int) -> None:
    for lengths in (geometric(mean, longest), lognormal(mean, longest), lognormal(mean, longest, sigma=1.2)):
        assert lengths.mean == pytest.approx(mean, rel=0.02)
        assert lengths.maximum <= longest
    assert geometric(mean, longest).maximum == longest


def test_a_percentile_widens_the_tail() -> None:
    narrow, wide = lognormal(900, 8192, p95=1500), lognormal(900, 8192, p95=2500)
    assert narrow.percentile(95) == pytest.approx(1500, rel=0.03)
    assert wide.percentile(95) == pytest.approx(2500, rel=0.03)
    assert wide.percentile(50) < narrow.percentile(50)


def test_impossible_fits_are_refused() -> None:
    with pytest.raises(InputError, match="mean length 64"):
        geometric(64, 64)
    with pytest.raises(InputError, match="p95 = 50"):
        lognormal(60, 100, p95=50)
    with pytest.raises(InputError, match="no lognormal"):
        lognormal(100, 100_000, p95=10_000)
    with pytest.raises(InputError, match="at least one"):
        observed([])


@pytest.mark.parametrize(
    ("values", "weights"), [((), ()), ((0,), (1,)), ((2, 2), (1, 1)), ((1,), (0,)), ((1, 2), (1,))]
)
def test_broken_histograms_are_refused(values: tuple, weights: tuple) -> None:
    with pytest.raises(InputError):
        Lengths(values, weights)


def test_draws_depend_on_seed_and_step_alone() -> None:
    workload = Workload(64, 8, geometric(20, 64), geometric(30, 64), minibatches=4)
    prompts, responses = workload.draw(1, 5)
    again = workload.draw(1, 5)
    assert np.array_equal(prompts, again[0])
    assert np.array_equal(responses, again[1])
    assert not np.array_equal(responses, workload.draw(1, 6)[1])
    assert not np.array_equal(responses, workload.draw(2, 5)[1])


def test_draws_follow_the_histogram() -> None:
    workload = Workload(2000, 4, constant(7), observed([3, 3, 3, 50]))
    prompts, responses = workload.draw(0, 0)
    assert prompts.shape == responses.shape == (8000,)
    assert set(prompts) == {7}
    assert set(responses) == {3, 50}
    assert np.mean(responses == 50) == pytest.approx(0.25, abs=0.02)


def test_samples_of_a_group_share_the_prompt_and_correlate() -> None:
    workload = Workload(500, 4, geometric(20, 64), geometric(30, 200))
    loose = workload.draw(3, 0)
    tight = replace(workload, correlation=0.9).draw(3, 0)
    assert np.all(loose[0].reshape(500, 4) == loose[0].reshape(500, 4)[:, :1])

    def within(lengths: np.ndarray) -> float:
        groups = lengths.reshape(500, 4)
        return float(np.corrcoef(groups[:, 0], groups[:, 1])[0, 1])

    assert abs(within(loose[1])) < 0.15
    assert within(tight[1]) > 0.7
    assert tight[1].mean() == pytest.approx(30, rel=0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompts": 0}, "prompts = 0"),
        ({"minibatches": 3}, "8 samples a step cannot be split into 3"),
        ({"correlation": 1.5}, r"correlation = 1\.5"),
        ({"minibatch": 3}, "Did you mean 'minibatches'"),
        ({"prompts": None}, "positive whole number"),
        ({"prompt_lengths": {"values": [1]}}, "weights"),
    ],
)
def test_broken_workloads_are_named(change: dict, message: str) -> None:
    data = Workload(4, 2, constant(7), constant(9)).to_json()
    with pytest.raises(InputError, match=message):
        Workload.from_json({**data, **change})
