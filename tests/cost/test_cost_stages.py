"""Laws that hold of every stage: monotone in the tables and in the work, complete, consistent."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.architecture import Architecture
from rpeg.cluster import Link, device_kind
from rpeg.cost import (
    OPS,
    Calibration,
    Cost,
    Grid,
    Timing,
    call,
    collective,
    columns,
    generate,
    infer,
    move_samples,
    publish,
    receive,
    reward,
    shuffled,
    train,
)
from rpeg.cost.passes.microbatches import split
from rpeg.plan import Parallelism

SMALL = Architecture("small", "llama", 2, 64, 4, 2, 16, 96, 260, 128, tied_embeddings=True)
ROOFLINE = Timing(device_kind("cpu"), link=Link("node", 1e9, 1e-4))
POINTS = {"rows": (1.0, 8.0, 64.0), "ranks": (2.0, 4.0)}
CUTS = (Parallelism(tp=2), Parallelism(cp=2), Parallelism(pp=2), Parallelism(tp=2, pp=2))
TRAINED = (
    *((Parallelism(dp=2, zero=zero), "none") for zero in (0, 1, 3)),
    (Parallelism(dp=2, tp=2), "selective"),
    (Parallelism(dp=2, pp=2), "full"),
    (Parallelism(dp=2, pp=2, vpp=2), "none"),
    (Parallelism(dp=2, cp=2, zero=1), "none"),
)
LENGTHS = st.lists(st.tuples(st.integers(1, 12), st.integers(1, 20)), min_size=4, max_size=16)


def measured(raised: tuple[str, int] | None = None) -> Timing:
    """Tables that differ op by op, optionally with one entry (or, below 0, every entry) of one raised."""
    tables = {}
    for k, (op, axes) in enumerate(OPS.items()):
        points = tuple(POINTS.get(axis, (4.0, 64.0, 1024.0)) for axis in axes)
        mesh = np.meshgrid(*points, indexing="ij") if axes else []
        values = 1e-4 * (k + 1) + 1e-6 * sum(mesh, np.zeros(()))
        flat = np.ravel(values)
        if raised is not None and raised[0] == op:
            flat[raised[1] % len(flat) if raised[1] >= 0 else slice(None)] *= 3
        tables[op] = Grid(axes, points, tuple(flat.tolist()))
    return replace(ROOFLINE, calibration=Calibration("cpu", "m", "float32", "d", "a", tables=tables))


def arrays(lengths: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    prompts, responses = zip(*lengths, strict=True)
    return np.array(prompts), np.array(responses)


def stages(lengths: list[tuple[int, int]], timing: Timing) -> dict[str, Cost]:
    prompts, responses = arrays(lengths)
    minibatches = shuffled(len(lengths), minibatches=2, epochs=2, dp=2, seed=0, step=0)
    common = {"microbatch": 3, "logprobs": True, "timing": timing}
    return {
        "generate": generate(SMALL, prompts, responses, samples_per_prompt=1, slots=4, timing=timing).cost,
        "infer": infer(SMALL, prompts, responses, **common),
        "sharded infer": infer(
            SMALL, prompts, responses, layout=Parallelism(dp=2, zero=3), sharded=True, **common
        ),
        **{str(layout): infer(SMALL, prompts, responses, layout=layout, **common) for layout in CUTS},
        **{
            f"train {layout} {recompute}": train(
                SMALL,
                prompts,
                responses,
                minibatches=minibatches,
                layout=layout,
                recompute=recompute,
                **common,
            )
            for layout, recompute in TRAINED
        },
        "generate over two": generate(
            SMALL, prompts, responses, samples_per_prompt=1, slots=4, timing=timing, tp=2
        ).cost,
        "publish": publish(1000.0, timing, shards=2),
        "receive": receive(1000.0, timing, across=True),
        "samples": move_samples(1000.0, timing, len(lengths)),
        "reward": reward(len(lengths), timing),
        "columns": columns(len(lengths), timing),
        "call": call(timing, 3),
    }


@settings(deadline=None, max_examples=25)
@given(LENGTHS, st.sampled_from(sorted(OPS)), st.integers(0, 20))
def test_raising_a_table_entry_never_lowers_a_cost(lengths, op: str, entry: int) -> None:
    before, after = stages(lengths, measured()), stages(lengths, measured(raised=(op, entry)))
    for name, cost in before.items():
        assert after[name].seconds >= cost.seconds - 1e-12, name


def test_every_op_matters_somewhere() -> None:
    lengths = [(5, 7), (9, 20), (3, 2), (12, 15), (5, 5), (6, 11)]
    before = stages(lengths, measured())
    for op in OPS:
        after = stages(lengths, measured(raised=(op, -1)))
        assert any(after[name].seconds > cost.seconds for name, cost in before.items()), op


@settings(deadline=None, max_examples=25)
@given(LENGTHS, st.data())
def test_longer_responses_never_take_less_to_score(lengths, data) -> None:
    grown = [(p, r + data.draw(st.integers(0, 5))) for p, r in lengths]
    for timing in (ROOFLINE, measured()):
        small, large = (
            infer(SMALL, *arrays(x), microbatch=3, logprobs=True, timing=timing).seconds
            for x in (lengths, grown)
        )
        assert large >= small - 1e-12


@settings(deadline=None, max_examples=25)
@given(LENGTHS)
def test_one_more_sample_never_takes_less(lengths) -> None:
    more = [*lengths, (4, 4)]
    for timing in (ROOFLINE, measured()):
        options = {"microbatch": 3, "logprobs": True, "timing": timing}
        assert (
            infer(SMALL, *arrays(more), **options).seconds
            >= infer(SMALL, *arrays(lengths), **options).seconds - 1e-12
        )
        assert reward(len(more), timing).seconds >= reward(len(lengths), timing).seconds


@settings(deadline=None, max_examples=25)
@given(LENGTHS, st.integers(1, 8))
def test_the_last_sample_is_there_when_generation_ends(lengths, slots: int) -> None:
    prompts, responses = arrays(lengths)
    for timing in (ROOFLINE, measured()):
        out = generate(SMALL, prompts, responses, samples_per_prompt=1, slots=slots, timing=timing)
        assert out.offsets.max() == pytest.approx(out.cost.seconds)
        assert out.offsets.min() > 0
        assert out.completed(len(lengths)) == pytest.approx(out.cost.seconds)
        assert out.completed(1) == pytest.approx(out.offsets.min())


@pytest.mark.parametrize("tp", [2, 4])
def test_the_last_sample_is_there_when_ranks_have_generated_together(tp: int) -> None:
    prompts, responses = arrays([(5, 7), (9, 20), (3, 2), (12, 15)])
    for timing in (ROOFLINE, measured()):
        out = generate(SMALL, prompts, responses, samples_per_prompt=1, slots=2, timing=timing, tp=tp)
        assert out.offsets.max() == pytest.approx(out.cost.seconds)


@pytest.mark.parametrize("layout", CUTS, ids=str)
def test_ranks_share_the_work_of_large_models_and_pay_for_what_they_send(layout: Parallelism) -> None:
    """On a fast link the time is divided, up to the fill of a pipeline; on a slow one it is longer than alone."""
    large = replace(SMALL, hidden=2048, ffn=8192, layers=16, head_dim=512)
    prompts, responses = np.full(32, 64), np.full(32, 64)
    common = {"microbatch": 2, "logprobs": True}
    alone = infer(large, prompts, responses, timing=ROOFLINE, **common).seconds
    for link, within in ((Link("node", 1e12, 1e-7), (0.4, 0.7)), (Link("node", 1e5, 1e-1), (1.0, 1e9))):
        timing = replace(ROOFLINE, link=link)
        found = infer(large, prompts, responses, timing=timing, layout=layout, **common).seconds / alone
        low = 2 * within[0] / layout.devices if within[1] < 1 else within[0]
        assert low <= found <= within[1], (link, found)


def test_recomputation_costs_a_forward_pass_or_less() -> None:
    rows = [[np.arange(8)]]
    seconds = {
        recompute: train(
            SMALL,
            np.full(8, 20),
            np.full(8, 20),
            minibatches=rows,
            microbatch=4,
            logprobs=True,
            timing=ROOFLINE,
            recompute=recompute,
        ).seconds
        for recompute in ("none", "selective", "full")
    }
    assert seconds["none"] < seconds["selective"] < seconds["full"] < 4 / 3 * seconds["none"]


def test_with_slots_for_all_shorter_responses_come_first() -> None:
    responses = np.array([5, 1, 30, 12])
    offsets = generate(
        SMALL, np.full(4, 6), responses, samples_per_prompt=2, slots=8, timing=ROOFLINE
    ).offsets
    assert np.argsort(offsets).tolist() == np.argsort(responses).tolist()


@settings(deadline=None, max_examples=30)
@given(LENGTHS, st.integers(1, 6))
def test_micro_batches_hold_every_token(lengths, microbatch: int) -> None:
    prompts, responses = arrays(lengths)
    parts = split(prompts, responses, microbatch)
    assert parts.rows.sum() == len(lengths)
    assert parts.response_tokens.sum() == responses.sum()
    assert parts.length[0] == (prompts + responses).max()
    assert (np.diff(parts.length) <= 0).all()
    assert parts.padded_tokens >= (prompts + responses).sum()
    assert len(split(prompts[:0], responses[:0], microbatch)) == 0


def test_the_slowest_rank_gives_the_time() -> None:
    prompts, responses = np.full(4, 5), np.array([3, 3, 60, 60])
    balanced = [[np.array([0, 2]), np.array([1, 3])]]
    skewed = [[np.array([0, 1]), np.array([2, 3])]]
    a, b = (
        train(SMALL, prompts, responses, minibatches=m, microbatch=1, logprobs=True, timing=ROOFLINE).seconds
        for m in (balanced, skewed)
    )
    assert b > a


def test_minibatches_partition_each_epoch_and_are_a_function_of_seed_and_step() -> None:
    drawn = shuffled(24, minibatches=3, epochs=2, dp=2, seed=1, step=4)
    assert len(drawn) == 6
    for epoch in (drawn[:3], drawn[3:]):
        assert sorted(np.concatenate([rows for ranks in epoch for rows in ranks])) == list(range(24))
    again = shuffled(24, minibatches=3, epochs=2, dp=2, seed=1, step=4)
    other = shuffled(24, minibatches=3, epochs=2, dp=2, seed=1, step=5)
    assert np.array_equal(drawn[0][0], again[0][0])
    assert not np.array_equal(drawn[0][0], other[0][0])


def test_collectives_of_one_rank_are_free_and_need_a_link_otherwise() -> None:
    assert collective("x", "all_reduce", 1, 1e6, ROOFLINE).seconds == 0
    with pytest.raises(ValueError, match="no link"):
        collective("x", "all_reduce", 2, 1e6, replace(ROOFLINE, link=None))
    ring = collective("x", "all_reduce", 4, 1e6, ROOFLINE)
    assert ring.seconds == pytest.approx(6 * 1e-4 + 2 * 3 / 4 * 1e6 / 1e9)
    assert ring.bound == "network"


def test_estimates_say_what_share_was_measured() -> None:
    lengths = [(5, 7)] * 8
    assert all(
        cost.measured_share == pytest.approx(1.0)
        for name, cost in stages(lengths, measured()).items()
        if cost.name != "receive" and "pp2" not in name  # what a link alone tells
    )
    assert all(cost.measured_share == 0.0 for cost in stages(lengths, ROOFLINE).values())
    half = measured()
    half = replace(
        half, calibration=replace(half.calibration, tables={"forward": half.calibration.tables["forward"]})
    )
    assert 0 < stages(lengths, half)["infer"].measured_share < 1


def test_tables_of_another_device_or_dtype_are_not_used() -> None:
    timing = measured()
    for other in (
        replace(timing, kind=device_kind("h100-sxm")),
        replace(timing, dtype="float64"),
    ):
        assert (
            infer(
                SMALL, np.array([5]), np.array([7]), microbatch=1, logprobs=True, timing=other
            ).measured_share
            == 0
        )
