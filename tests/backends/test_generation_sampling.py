import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.backends.generation.protocol import Sampling
from rpeg.backends.generation.sampling import draw, mix, stream_keys, truncate, uniforms
from rpeg.errors import InputError


def test_uniforms_are_splitmix64():
    """The published test vector of SplitMix64 for state 1234567."""
    words = np.asarray([6457827717110365317, 3203168211198807973, 9817491932198370423], dtype=np.uint64)
    got = uniforms(np.full(3, 1234567, dtype=np.uint64), np.arange(3))
    assert got.tolist() == ((words >> np.uint64(11)).astype(np.float64) * 2.0**-53).tolist()


def test_mix_is_a_bijection_on_a_sample():
    assert len(set(mix(np.arange(10_000, dtype=np.uint64)).tolist())) == 10_000


def test_uniforms_look_uniform_over_ids_and_over_positions():
    ids, positions = np.meshgrid(np.arange(300), np.arange(300), indexing="ij")
    grid = uniforms(stream_keys(3, ids.ravel()), positions.ravel()).reshape(300, 300)
    counts = np.histogram(grid, bins=100, range=(0, 1))[0]
    assert ((counts - 900) ** 2 / 900).sum() < 160  # chi-square, 99 degrees of freedom: mean 99, sd 14
    assert abs(np.corrcoef(grid[:-1].ravel(), grid[1:].ravel())[0, 1]) < 0.02
    assert abs(np.corrcoef(grid[:, :-1].ravel(), grid[:, 1:].ravel())[0, 1]) < 0.02


def test_seeds_give_unrelated_streams():
    ids, zeros = np.arange(2000), np.zeros(2000, dtype=np.int64)
    a, b = (uniforms(stream_keys(seed, ids), zeros) for seed in (0, 1))
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.08
    assert not np.intersect1d(a, b).size
    assert np.array_equal(a, uniforms(stream_keys(0, ids), zeros))


def test_draws_follow_the_distribution():
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]]).expand(40_000, 4)
    uniform = uniforms(stream_keys(0, np.arange(40_000)), np.zeros(40_000, dtype=np.int64))
    tokens, logprobs = draw(logits, Sampling(temperature=2.0), uniform)
    expected = torch.softmax(logits[0].double() / 2.0, -1).numpy()
    assert np.bincount(tokens, minlength=4) / 40_000 == pytest.approx(expected, abs=0.01)
    assert logprobs == pytest.approx(np.log(expected)[tokens], abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(
    scores=st.lists(st.floats(-30, 30), min_size=1, max_size=12),
    uniform=st.one_of(st.just(0.0), st.just(1 - 2.0**-53), st.floats(0, 1, exclude_max=True)),
    top_k=st.integers(0, 14),
    top_p=st.floats(0.01, 1.0),
)
def test_a_drawn_token_is_never_one_that_was_cut(scores, uniform, top_k, top_p):
    sampling = Sampling(top_k=top_k, top_p=top_p)
    logits = torch.tensor([scores], dtype=torch.float64)
    tokens, logprobs = draw(logits, sampling, np.asarray([uniform]))
    weights = truncate((logits - logits.max()).exp(), sampling)
    assert weights[0, tokens[0]] > 0
    assert logprobs[0] == pytest.approx(float(logits.log_softmax(-1)[0, tokens[0]]), abs=1e-12)
    if top_k:
        assert int((weights > 0).sum()) <= top_k


def test_nucleus_is_the_smallest_set_that_reaches_top_p():
    weights = torch.tensor([[0.1, 0.4, 0.3, 0.2]], dtype=torch.float64)
    assert truncate(weights, Sampling(top_p=0.65)).tolist() == [[0.0, 0.4, 0.3, 0.0]]
    assert truncate(weights, Sampling(top_p=0.75)).tolist() == [[0.0, 0.4, 0.3, 0.2]]
    assert truncate(weights, Sampling(top_k=3, top_p=0.01)).tolist() == [[0.0, 0.4, 0.0, 0.0]]


def test_greedy_takes_the_first_maximum_and_its_logprob():
    logits = torch.tensor([[1.0, 3.0, 3.0]])
    tokens, logprobs = draw(logits, Sampling(greedy=True), np.asarray([0.999]))
    assert tokens.tolist() == [1]
    assert logprobs[0] == pytest.approx(float(logits.double().log_softmax(-1)[0, 1]), abs=1e-12)


@pytest.mark.parametrize(
    ("field", "value"),
    [("temperature", 0.0), ("temperature", float("nan")), ("top_p", 0.0), ("top_p", 1.1), ("top_k", -1)],
)
def test_sampling_refuses_what_makes_no_sense(field, value):
    with pytest.raises(InputError, match=field):
        Sampling(**{field: value})
