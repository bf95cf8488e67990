"""Generation ahead: the next step begins in slots that fall free, and goes on under newer weights within the bound."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.backends.generation.protocol import More, Request, Response, Sampling, nothing_more
from rpeg.backends.generation.slots import SlotEngine
from rpeg.backends.samples import Samples
from rpeg.errors import RunError
from rpeg.runtime.ahead import Ahead
from rpeg.runtime.training import check_whole
from rpeg.verify import prove_run
from runtime.runs import Ran, make_job, plan_for, run, tiny_model

LATER = ("reward", "reference", "old_logprob", "value", "advantage", "train_actor", "train_critic")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


def run_ahead(
    model: Path,
    output: Path,
    *,
    how: str = "reprefill",
    staleness: int = 2,
    blocks: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    in_process: bool = True,
) -> Ran:
    job = make_job(
        model,
        output,
        dtype="float32",
        steps=6,
        allow={"staleness": staleness, "keep_kv": how == "keep_kv"},
        lengths={"max_prompt": 16, "max_response": 24},
    )
    plan = plan_for(
        job,
        blocks,
        rest=(0,),
        transforms=(
            f"async{{stage=generate,staleness={staleness},freshness=latest}}",
            f"ahead{{stage=generate,how={how}}}",
        ),
        shifts=dict.fromkeys(LATER, 1),
    )
    return run(job, plan, in_process=in_process)


@pytest.mark.parametrize("how", ["reprefill", "keep_kv"])
def test_responses_go_on_at_their_step_within_the_bound(how: str, model: Path, tmp_path: Path) -> None:
    done = run_ahead(model, tmp_path / "run", how=how)
    assert prove_run(done.traces).findings == ()
    records = done.records
    assert [r.metrics["samples"] for r in records] == [16] * 6
    assert records[0].metrics["ahead_tokens"] == 0
    assert sum(r.metrics["ahead_tokens"] for r in records) > 20
    assert max(r.metrics["staleness_max"] for r in records) == 2
    assert all(r.metrics["staleness_1"] > 0 for r in records[2:])
    assert all(r.metrics["again_tokens"] == 0 for r in records)
    differ = [abs(r.metrics["behaviour_kl"]) for r in records]
    assert all(np.isfinite(differ))


def test_nothing_begins_that_would_be_too_old(model: Path, tmp_path: Path) -> None:
    """With staleness 1 in a schedule that uses it, the next step's tokens would be of two versions ago."""
    done = run_ahead(model, tmp_path / "run", staleness=1)
    assert prove_run(done.traces).findings == ()
    assert [r.metrics["staleness_max"] for r in done.records] == [0, 1, 1, 1, 1, 1]
    assert sum(r.metrics["ahead_tokens"] for r in done.records[2:]) == 0


@pytest.mark.slow
def test_replicas_go_on_each_with_its_own(model: Path, tmp_path: Path) -> None:
    done = run_ahead(model, tmp_path / "run", blocks={"generate": (0, 1)}, in_process=False)
    assert prove_run(done.traces).findings == ()
    assert [r.metrics["samples"] for r in done.records] == [16] * 6
    assert sum(r.metrics["ahead_tokens"] for r in done.records) > 20
    assert max(r.metrics["staleness_max"] for r in done.records) == 2


class Counting:
    """An engine of no model: the response of sample i has `lengths[i]` tokens, a token a step."""

    def __init__(self, lengths: Mapping[int, int], slots: int) -> None:
        self.lengths, self.slots = lengths, slots
        self.unfinished: tuple[Request, ...] = ()
        self.steps = 0
        self._stopping = False

    def stop(self) -> None:
        self._stopping = True

    def generate(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        *,
        seed: int,
        version: int,
        more: More = nothing_more,
    ) -> Iterator[Response]:
        self._stopping = False
        waiting, rows = list(requests), dict[int, tuple[Request, list[int]]]()
        while True:
            waiting += more()
            if self._stopping or not (waiting or rows):
                break
            self.steps += 1
            while waiting and len(rows) < self.slots:
                request = waiting.pop(0)
                rows[request.id] = (request, list(request.begun.versions))
            for i, (request, versions) in list(rows.items()):
                versions.append(version)
                if len(versions) == self.lengths[i]:
                    n = len(versions)
                    del rows[i]
                    yield Response(
                        i,
                        0,
                        request.prompt,
                        np.arange(n),
                        np.zeros(n),
                        np.array(versions),
                        np.ones(n, bool),
                        "stop",
                    )
        self.unfinished = (
            *(Request(i, 0, r.prompt, _begun(versions)) for i, (r, versions) in rows.items()),
            *waiting,
        )


def _begun(versions: list[int]):  # type: ignore[no-untyped-def]
    from rpeg.backends.generation.protocol import Begun

    n = len(versions)
    return Begun((0,) * n, (0.0,) * n, tuple(versions), (True,) * n)


@settings(max_examples=100, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 12), min_size=20, max_size=20),
    slots=st.integers(1, 8),
    staleness=st.integers(0, 3),
    lags=st.lists(st.integers(0, 3), min_size=5, max_size=5),
)
def test_every_sample_of_a_step_is_given_once_and_no_token_is_too_old(
    lengths: list[int], slots: int, staleness: int, lags: list[int]
) -> None:
    """Whatever version each step is given, as long as it is within the bound."""
    ahead, engine = Ahead(), Counting(dict(enumerate(lengths)), slots)
    version = 0
    for step in range(5):
        oldest = max(0, step - staleness)
        version = max(version, oldest, step - lags[step])
        requests, following = (
            [Request(i, 0, (1,)) for i in range(4 * s, 4 * s + 4)] if s < 5 else [] for s in (step, step + 1)
        )
        if version < max(0, step + 1 - staleness):
            following = []
        got = list(
            ahead.generate(
                engine,  # type: ignore[arg-type]
                requests,
                following,
                Sampling(),
                step=step,
                oldest=oldest,
                slots=slots,
                seed=0,
                version=version,
            )
        )
        assert sorted(r.id for r in got) == [r.id for r in requests]
        for r in got:
            assert len(r) == lengths[r.id]
            assert oldest <= r.versions.min() <= r.versions.max() <= step
            assert (np.diff(r.versions) >= 0).all()
        assert ahead.dropped == 0


def test_slots_that_would_wait_for_the_longest_response_are_used() -> None:
    """Long tails: most responses are short and one in sixteen is long. A step's engine steps fall towards what the work
    takes in all slots; without it they are those of the longest response."""
    rng = np.random.default_rng(0)
    slots, steps, each = 16, 12, 48
    lengths = dict(enumerate(np.where(rng.random(steps * each) < 1 / 16, 200, 20).tolist()))

    def engine_steps(*, ahead: bool) -> int:
        engine, state = Counting(lengths, slots), Ahead()
        for step in range(steps):
            own = [Request(i, 0, (1,)) for i in range(each * step, each * step + each)]
            following = [Request(r.id + each, 0, (1,)) for r in own] if ahead and step + 1 < steps else []
            got = state.generate(
                engine,  # type: ignore[arg-type]
                own,
                following,
                Sampling(),
                step=step,
                oldest=0,
                slots=slots,
                seed=0,
                version=step,
            )
            assert len(list(got)) == each
        return engine.steps

    least = sum(lengths.values()) / slots
    with_it, without = engine_steps(ahead=True), engine_steps(ahead=False)
    assert least <= with_it < 0.6 * without


def test_a_response_that_would_be_too_old_begins_anew_and_is_counted() -> None:
    ahead, engine = Ahead(), Counting({0: 3, 1: 3, 2: 9}, slots=3)

    def step(
        number: int, ids: Sequence[int], following: Sequence[int], version: int, oldest: int
    ) -> list[Response]:
        return list(
            ahead.generate(
                engine,  # type: ignore[arg-type]
                [Request(i, 0, (1,)) for i in ids],
                [Request(i, 0, (1,)) for i in following],
                Sampling(),
                step=number,
                oldest=oldest,
                slots=3,
                seed=0,
                version=version,
            )
        )

    step(0, (0, 1), (2,), version=0, oldest=0)
    (late,) = step(1, (2,), (), version=1, oldest=1)
    assert late.versions.tolist() == [1] * 9
    assert (ahead.carried, ahead.dropped) == (0, 3)


def test_without_new_weights_the_samples_are_those_of_generation_step_by_step() -> None:
    from transformers import AutoModelForCausalLM, LlamaConfig

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
        bos_token_id=None,
        eos_token_id=None,
    )
    module = AutoModelForCausalLM.from_config(config).to(torch.float64)
    sampling = Sampling(max_new_tokens=16, stop_token_ids=(3, 4, 5))
    requests = [Request(i, i, (7 + i,)) for i in range(24)]
    options = {"pad_token_id": 0, "device": torch.device("cpu"), "max_length": 64}
    plain = SlotEngine(module, slots=24, **options)  # type: ignore[arg-type]
    whole = {r.id: r.tokens.tolist() for r in plain.generate(requests, sampling, seed=1, version=0)}
    ahead, engine = Ahead(), SlotEngine(module, slots=4, **options)  # type: ignore[arg-type]
    got: dict[int, list[int]] = {}
    for step in range(4):
        own, following = requests[6 * step : 6 * step + 6], requests[6 * step + 6 : 6 * step + 12]
        found = ahead.generate(
            engine, own, following, sampling, step=step, oldest=0, slots=4, seed=1, version=step
        )
        got |= {r.id: r.tokens.tolist() for r in found}
        assert step == 0 or ahead.carried > 0
    assert got == whole


def test_a_response_of_several_versions_is_refused_where_generators_are_drained() -> None:
    ints = lambda *values: np.array(values, dtype=np.int64)  # noqa: E731
    samples = Samples(ints(7, 8, 9), ints(2, 0, 3), {"versions": ints(4, 4, 3, 3, 4)})
    check_whole(samples.take([7, 8]), step=5)
    check_whole(samples.take([8]), step=5)
    with pytest.raises(RunError, match=r"step 5 was given sample 9 with tokens of versions 3 to 4.*drains"):
        check_whole(samples, step=5)
