"""`generate_stage` against a token-by-token reference, and the laws that it must keep."""

from __future__ import annotations

import heapq
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.architecture import Architecture
from rpeg.cluster import Fabric, Link, device_kind
from rpeg.cost import Execution, Machine, generate_stage, stack
from rpeg.cost.generating import Policy, decode, forward_of
from rpeg.cost.generating.prompts import Prompts, together
from rpeg.errors import InfeasibleError, InputError
from rpeg.plan import Parallelism

MODEL = Architecture("8B", "llama", 32, 4096, 32, 8, 128, 14336, 128256, 131072)
NODE = Link("node", 4.5e11, 5e-6, "test")
RACK = Link("rack", 5e10, 1e-5, "test")
LARGE = Policy(max_rows=4096, cache_bytes=1e15)


def machine(memory: float = 1.0, links: float = 1.0) -> Machine:
    kind = device_kind("h100-sxm")
    kind = replace(kind, memory_bandwidth_bytes_per_second=kind.memory_bandwidth_bytes_per_second * memory)
    levels = ((NODE, 8), (RACK, 1024))
    scaled = tuple(
        (replace(link, bandwidth_bytes_per_second=link.bandwidth_bytes_per_second * links), size)
        for link, size in levels
    )
    return Machine(kind, Fabric(scaled), stack("vllm", kind.name))


def lengths(seed: int, groups: int, n: int = 1, longest: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    prompts = np.repeat(rng.integers(20, 400, groups), n)
    responses = np.minimum(rng.lognormal(6.0, 0.9, groups * n).astype(np.int64) + 1, longest)
    return prompts, responses


def execution(**degrees: int) -> Execution:
    return Execution(parallelism=Parallelism(**degrees), graphs=True)


def reference_seconds(prompts: np.ndarray, responses: np.ndarray, places: int) -> float:
    """Decode steps one by one, each with its own rows and its own mean context; all prompts fit in the first pass."""
    forward = forward_of(MODEL, execution(), machine())
    free: list[int] = []
    starts = []
    for length in responses - 1:
        start = heapq.heappop(free) if len(free) == places else 0
        starts.append(start)
        heapq.heappush(free, start + int(length))
    starts_, ends = np.asarray(starts), np.asarray(starts) + responses - 1
    rows, contexts = [], []
    for step in range(int(ends.max())):
        active = (starts_ <= step) & (step < ends)
        rows.append(active.sum())
        contexts.append((prompts + step + 0.5 - starts_)[active].mean())
    steps = np.asarray(forward.seconds(decode(np.asarray(rows, float), np.asarray(contexts))))
    return float(steps.sum())


@pytest.mark.parametrize(("groups", "places"), [(64, 64), (300, 512), (300, 50)])
def test_agrees_with_a_token_by_token_reference(groups: int, places: int) -> None:
    prompts, responses = lengths(1, groups)
    policy = replace(LARGE, max_rows=places)
    found = generate_stage(MODEL, prompts, responses, execution(), machine(), policy=policy)
    steps = found.cost.find("decode")
    assert steps is not None
    assert steps.seconds == pytest.approx(reference_seconds(prompts, responses, places), rel=0.01)


def test_prompts_that_start_at_once_are_prefilled_in_passes_of_the_budget() -> None:
    prompts, responses = lengths(2, 100)
    found = generate_stage(MODEL, prompts, responses, execution(), machine(), policy=LARGE)
    forward = forward_of(MODEL, execution(), machine())
    load = Prompts(float(prompts.sum()), float((prompts**2).sum() / 2), 100.0)
    wanted = sum(float(leaf.seconds) for leaf in together(forward, load))
    first = found.cost.find("prefill")
    assert first is not None
    assert first.seconds == pytest.approx(wanted)


def test_ends_with_its_last_sample_and_its_slowest_replica() -> None:
    prompts, responses = lengths(3, 256)
    found = generate_stage(MODEL, prompts, responses, execution(dp=4), machine(), policy=LARGE)
    assert found.seconds == pytest.approx(found.offsets.max(), rel=1e-6)
    assert found.seconds == pytest.approx(found.replica_seconds.max(), rel=1e-6)
    assert found.replica_seconds.shape == (4,)
    assert found.tokens == responses.sum()
    assert found.tokens_per_second == pytest.approx(found.tokens / found.seconds)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), places=st.integers(4, 200), dp=st.sampled_from([1, 3]))
def test_completion_is_monotone_and_waves_keep_its_total(seed: int, places: int, dp: int) -> None:
    prompts, responses = lengths(seed, 150)
    policy = replace(LARGE, max_rows=places)
    found = generate_stage(MODEL, prompts, responses, execution(dp=dp), machine(), policy=policy)
    quantiles = [found.completed(share) for share in (0.0, 0.1, 0.5, 0.9, 1.0)]
    assert quantiles == sorted(quantiles)
    assert found.completed(1.0) == found.completed(150) == pytest.approx(found.seconds, rel=1e-6)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), places=st.sampled_from([16, 64, 512]), more=st.integers(1, 400))
def test_longer_responses_and_more_samples_are_never_faster(seed: int, places: int, more: int) -> None:
    prompts, responses = lengths(seed, 96)
    policy = replace(LARGE, max_rows=places)

    def seconds(p: np.ndarray, r: np.ndarray) -> float:
        return generate_stage(MODEL, p, r, execution(), machine(), policy=policy).seconds

    usual = seconds(prompts, responses)
    longer = responses.copy()
    longer[seed % 96] += more
    assert seconds(prompts, longer) >= usual * (1 - 2e-3)  # means over stretches of steps differ by so much
    assert seconds(prompts, responses + more) > usual
    assert seconds(np.r_[prompts, prompts], np.r_[responses, responses]) > usual


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), tp=st.sampled_from([1, 2, 8]), pp=st.sampled_from([1, 2]))
def test_faster_memory_and_links_never_hurt(seed: int, tp: int, pp: int) -> None:
    prompts, responses = lengths(seed, 64)

    def seconds(on: Machine) -> float:
        return generate_stage(MODEL, prompts, responses, execution(tp=tp, pp=pp), on, policy=LARGE).seconds

    usual = seconds(machine())
    assert seconds(machine(memory=2.0)) <= usual
    assert seconds(machine(links=2.0)) <= usual


@pytest.mark.parametrize("places", [8, 512])
def test_sharing_the_prompt_of_a_group_is_never_slower(places: int) -> None:
    prompts, responses = lengths(4, 16, n=8)
    prompts = prompts * 20
    policy = replace(LARGE, max_rows=places)

    def seconds(share: bool) -> float:
        chosen = replace(policy, share_prefixes=share)
        return generate_stage(
            MODEL, prompts, responses, execution(), machine(), samples_per_prompt=8, policy=chosen
        ).seconds

    assert seconds(True) < seconds(False)


def test_a_static_batch_runs_all_rows_to_the_longest() -> None:
    prompts, responses = lengths(5, 64)
    static = replace(LARGE, batching="static", max_rows=16)
    found = generate_stage(MODEL, prompts, responses, execution(), machine(), policy=static)
    continuous = generate_stage(
        MODEL, prompts, responses, execution(), machine(), policy=replace(static, batching="continuous")
    )
    assert found.seconds > continuous.seconds
    whole = replace(static, max_rows=64)
    longest = generate_stage(MODEL, prompts, responses, execution(), machine(), policy=whole)
    padded = np.full(64, responses.max())
    same = generate_stage(MODEL, prompts, padded, execution(), machine(), policy=LARGE)
    assert longest.seconds == pytest.approx(same.seconds, rel=1e-3)
    assert longest.completed(1) == pytest.approx(longest.seconds)


def test_a_smaller_cache_makes_waves_and_preempts() -> None:
    prompts, responses = lengths(6, 256)
    token = 2 * 32 * 8 * 128 * 2
    roomy = generate_stage(MODEL, prompts, responses, execution(), machine(), policy=LARGE)
    tight = replace(LARGE, cache_bytes=20_000 * token)
    found = generate_stage(MODEL, prompts, responses, execution(), machine(), policy=tight)
    assert roomy.places == 256
    assert roomy.preempted == 0
    assert found.places < 60
    assert found.preempted > 0
    assert found.seconds > roomy.seconds
    assert found.cost.find("prefill of later samples") is not None


def test_without_graphs_decoding_waits_for_launches() -> None:
    prompts, responses = lengths(7, 8)
    slow = machine()
    serving = replace(
        slow.stack.serving, launch_seconds=1e-3, step_seconds=0.0, row_seconds=0.0, gap_seconds=0.0
    )
    slow = replace(slow, stack=replace(slow.stack, serving=serving))
    with_graphs = generate_stage(MODEL, prompts, responses, execution(), slow, policy=LARGE)
    eager = replace(execution(), graphs=False)
    without = generate_stage(MODEL, prompts, responses, eager, slow, policy=LARGE)
    assert without.seconds > 1.9 * with_graphs.seconds
    assert without.seconds == pytest.approx(responses.max() * 32e-3, rel=0.05)


@pytest.mark.parametrize(
    ("degrees", "words"),
    [
        ({"tp": 3}, ["tp = 3", "32 attention heads", "2 or 4"]),
        ({"pp": 5}, ["pp = 5", "32 layers", "4 or 8"]),
    ],
)
def test_a_layout_that_does_not_divide_names_both_numbers(degrees: dict[str, int], words: list[str]) -> None:
    prompts, responses = lengths(8, 4)
    with pytest.raises(InputError) as error:
        generate_stage(MODEL, prompts, responses, execution(**degrees), machine())
    assert all(word in str(error.value) for word in words)


def test_a_replica_takes_as_long_as_its_longest_response_not_as_its_tokens() -> None:
    # tokens and longest response of three replicas of one rollout (verl issue 658): 19.4, 19.0 and 19.8 ms of the longest
    ratios = []
    for tokens, longest in ((28_013, 3_768), (42_765, 6_233), (41_247, 8_412)):
        responses = np.array([longest] + [(tokens - longest) // 31] * 31)
        prompts = np.full(32, 200)
        found = generate_stage(MODEL, prompts, responses, execution(), machine(), policy=LARGE)
        ratios.append((found.seconds / longest, found.seconds / tokens))
    by_longest, by_tokens = zip(*ratios, strict=True)
    assert max(by_longest) / min(by_longest) < 1.05
    assert max(by_tokens) / min(by_tokens) > 1.4


def test_broken_groups_and_what_does_not_fit_are_named() -> None:
    prompts, responses = lengths(9, 10)
    with pytest.raises(InputError, match=r"10 samples are not whole groups of 4. Nearest: 8 or 12"):
        generate_stage(MODEL, prompts, responses, execution(), machine(), samples_per_prompt=4)
    with pytest.raises(InfeasibleError, match=r"a sample of .* tokens holds"):
        generate_stage(MODEL, prompts, responses, execution(), machine(), policy=Policy(cache_bytes=1e6))
    huge = replace(MODEL, name="80B", layers=320)
    with pytest.raises(InfeasibleError, match="leave no cache"):
        generate_stage(huge, prompts, responses, execution(), machine())
