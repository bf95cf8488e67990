"""`train_stage` and `infer_stage`: cases worked by hand, and messages."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from rpeg.architecture import Architecture, Experts
from rpeg.cluster import Fabric, Link, device_kind
from rpeg.cost import Cost, Execution, Machine, Sequences, infer_stage, stack, train_stage
from rpeg.cost.kernels import Kernels, kernels_of
from rpeg.cost.training.layer import layer_passes
from rpeg.cost.training.microbatches import microbatches, padded
from rpeg.cost.training.pipeline import loads_of
from rpeg.errors import InputError
from rpeg.plan import Parallelism

MODEL = Architecture("8B", "llama", 32, 4096, 32, 8, 128, 14336, 128256, 131072)
MIXTURE = replace(MODEL, name="mixture", experts=Experts(64, 4, 1024, shared_ffn=2048))
FABRIC = Fabric(((Link("node", 4.5e11, 2e-6, "test"), 8), (Link("rack", 5e10, 4e-6, "test"), 4096)))


def machine(name: str = "megatron", kind: str = "h100-sxm") -> Machine:
    return Machine(device_kind(kind), FABRIC, stack(name, kind))


def execution(microbatch: int = 1, **degrees: Any) -> Execution:
    return Execution(Parallelism(**degrees), microbatch=microbatch)


def leaf(cost: Cost, *path: str) -> Cost:
    for name in path:
        cost = next(child for child in cost.children if child.name == name)
    return cost


def test_work_is_six_flops_a_parameter_and_token_and_attention() -> None:
    sequences = Sequences.equal(64, 2048)
    cost = train_stage(MODEL, sequences, execution(dp=2, tp=2, pp=2), machine())
    products = 6 * (MODEL.parameters() - MODEL.vocabulary * MODEL.hidden) * sequences.tokens
    attention = 3.5 * 4 * sequences.squares / 2 * MODEL.query_width * MODEL.layers
    assert cost.flops == pytest.approx(products + attention, rel=0.01)


@pytest.mark.parametrize(
    "degrees",
    [{}, {"tp": 4}, {"pp": 4}, {"cp": 2}, {"dp": 8, "zero": 3}, {"dp": 2, "tp": 2, "pp": 2, "zero": 1}],
)
def test_shards_do_as_much_work_as_the_whole(degrees: dict[str, int]) -> None:
    sequences = Sequences.equal(32, 4096)
    whole = train_stage(MODEL, sequences, execution(), machine()).flops
    assert train_stage(MODEL, sequences, execution(**degrees), machine()).flops == pytest.approx(
        whole, rel=1e-6
    )


def test_shapes_of_products_under_tensor_parallelism(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[float, int, int]] = []
    real = Kernels.gemm

    def spy(self: Kernels, m: float, n: int, k: int, dtype: str) -> Any:
        seen.append((m, n, k))
        return real(self, m, n, k, dtype)

    monkeypatch.setattr(Kernels, "gemm", spy)
    layer_passes.__wrapped__(MODEL, MODEL.layer, execution(tp=4), machine(), 3072.0, 1536.0, True)
    assert (3072.0, (32 + 2 * 8) * 128 // 4, 4096) in seen  # q, k and v
    assert (3072.0, 4096, 4096 // 4) in seen  # attention out
    assert (3072.0, 2 * 14336 // 4, 4096) in seen  # gate and up
    assert (3072.0, 4096, 14336 // 4) in seen  # down


def test_experts_have_the_rows_of_their_share() -> None:
    seen = {
        part.name: part
        for part in layer_passes(
            MIXTURE, MIXTURE.layer, execution(dp=8, ep=8), machine(), 4096.0, 2048.0, True
        ).forward.children
    }
    # 4,096 tokens × 4 of 64 experts, 8 of them on each rank: 16,384 rows through three matrices.
    up, down = seen["experts up"], seen["experts down"]
    per_product = kernels_of(machine()).gemm(4096 * 4 / 8, 2048, 4096, "bfloat16").flops
    assert up.flops == pytest.approx(8 * per_product * machine().stack.training.grouped_products)
    assert down.flops == pytest.approx(up.flops / 2)
    assert seen["expert parallel"].seconds > 0


def test_the_bubble_is_the_fill_over_the_virtual_stages() -> None:
    sequences = Sequences.equal(64, 2048)
    plain = train_stage(MODEL, sequences, execution(pp=4), machine())
    woven = train_stage(MODEL, sequences, execution(pp=4, vpp=4), machine())
    bubbles = [leaf(cost, "update", "pipeline bubble").seconds for cost in (plain, woven)]
    assert bubbles[0] == pytest.approx(4 * bubbles[1])
    loads = loads_of(MODEL, execution(pp=4), [1.0], 0.0, 0.0)
    assert (loads.layers, loads.fill) == (8.0, 24.0)  # 3 of 4 stages of 8 layers wait
    assert (
        loads_of(MODEL, execution(pp=4), [1.0], 0.0, 2.0).last == 1.0
    )  # the head makes its stage the slowest


def test_balanced_stages_give_the_head_fewer_layers() -> None:
    even = loads_of(MODEL, execution(pp=4), [1.0], 0.0, 4.0)
    balanced = loads_of(MODEL, execution(pp=4), [1.0], 0.0, 4.0, balanced=True)
    assert (even.layers, even.last) == (8, 1.0)
    assert balanced.layers + 4 * balanced.last <= 9  # 36 layers' worth of time over 4 stages


def test_full_recomputation_repeats_the_forward() -> None:
    sequences = Sequences.equal(8, 2048)
    none = train_stage(MODEL, sequences, execution(), machine())
    full = train_stage(MODEL, sequences, replace(execution(), recompute="full"), machine())
    some = train_stage(MODEL, sequences, replace(execution(), recompute="selective"), machine())
    layer = "full dense layer"
    forward = leaf(none, "update", "micro-batches", layer, "forward").seconds
    assert leaf(full, "update", "micro-batches", layer, "recompute").seconds == pytest.approx(forward)
    assert none.seconds < some.seconds < full.seconds


def test_updates_split_the_batch_and_add_optimizer_steps() -> None:
    sequences = Sequences.equal(64, 2048)
    one = train_stage(MODEL, sequences, execution(dp=2, zero=1), machine())
    four = train_stage(MODEL, sequences, execution(dp=2, zero=1), machine(), updates=4)
    assert leaf(four, "update").count == 4
    assert leaf(four, "update", "optimizer").seconds == pytest.approx(
        4 * leaf(one, "update", "optimizer").seconds
    )
    assert four.flops == pytest.approx(one.flops)


def test_adapters_skip_weight_gradients_and_most_of_the_optimizer() -> None:
    sequences = Sequences.equal(16, 4096)
    whole = train_stage(MODEL, sequences, execution(), machine())
    lora = train_stage(MODEL, sequences, replace(execution(), lora_rank=16), machine())
    assert 0.6 < lora.seconds / whole.seconds < 0.85
    assert leaf(lora, "update", "optimizer").seconds < 0.02 * leaf(whole, "update", "optimizer").seconds


def test_scoring_is_the_forward_alone_and_scalar_heads_are_cheap() -> None:
    sequences = Sequences.equal(16, 4096)
    train = train_stage(MODEL, sequences, execution(), machine())
    infer = infer_stage(MODEL, sequences, execution(), machine())
    value = infer_stage(MODEL, sequences, execution(), machine(), heads=("value",))
    assert 0.25 < infer.seconds / train.seconds < 0.4
    assert value.seconds < infer.seconds
    scored = infer_stage(MODEL, Sequences.equal(16, 4096, 1024), execution(), machine())
    assert value.seconds < scored.seconds < infer.seconds


def test_eager_launches_bind_small_layers_and_graphs_lift_them() -> None:
    sequences = Sequences.equal(8, 256)
    eager = train_stage(MODEL, sequences, execution(tp=8), machine("eager"))
    graphs = train_stage(MODEL, sequences, replace(execution(tp=8), graphs=True), machine("eager"))
    assert eager.find("host launches") is not None
    assert graphs.find("host launches") is None
    assert graphs.seconds < eager.seconds


def test_packing_equals_padding_where_lengths_are_equal_and_saves_where_they_are_not() -> None:
    equal = Sequences.equal(64, 2048)
    padding, packing = execution(microbatch=4), replace(execution(), token_budget=4 * 2048)
    assert microbatches(equal, padding) == microbatches(equal, packing)
    uneven = Sequences(64, 64 * 512, 64 * 1024.0**2, 4096, 64 * 256)
    assert (
        microbatches(uneven, padding).tokens * 16
        > microbatches(uneven, packing).tokens * microbatches(uneven, packing).count
    )
    assert (padded(uneven, 1), padded(uneven, 64)) == (512, 4096)
    assert padded(uneven, 8) == pytest.approx(512 + 3584 * math.log(8) / math.log(64))


def test_offloaded_optimizer_crosses_the_host_link() -> None:
    sequences = Sequences.equal(16, 2048)
    cost = train_stage(MODEL, sequences, replace(execution(), offload="optimizer"), machine())
    moved = leaf(cost, "update", "optimizer offload")
    assert moved.bound == "host"
    assert moved.seconds > 2 * MODEL.parameters() * 12 / machine().kind.host_bandwidth_bytes_per_second


def test_gathers_of_sharded_weights_hide_behind_long_micro_batches_only() -> None:
    def shown(length: int) -> float:
        cost = train_stage(MODEL, Sequences.equal(64, length), execution(dp=64, zero=3), machine())
        return sum(c.seconds for _, c in cost.walk() if "gather" in c.name) / cost.seconds

    assert shown(8192) < 0.1 < 0.4 < shown(256)


@pytest.mark.parametrize(
    ("architecture", "degrees", "count", "words"),
    [
        (MODEL, {"tp": 3}, 8, ["32 heads", "tp = 3", "2 or 4"]),
        (replace(MODEL, heads=48, kv_heads=6), {"tp": 4}, 8, ["6 kv_heads", "tp = 4", "3 or 6"]),
        (MODEL, {"pp": 64}, 8, ["32 layers", "64", "32"]),
        (MODEL, {"dp": 2, "ep": 2}, 8, ["no experts", "ep = 2"]),
        (MIXTURE, {"dp": 6, "ep": 6}, 12, ["64 experts", "ep = 6", "4 or 8"]),
        (MIXTURE, {"dp": 4, "ep": 8}, 8, ["4 ranks", "ep = 8", "4"]),
        (MODEL, {"dp": 8192}, 8192, ["8192 devices", "4096"]),
        (MODEL, {"dp": 3}, 8, ["8 sequences", "dp = 3", "6 or 9"]),
        (MODEL, {"dp": 2, "microbatch": 3}, 8, ["micro-batches of 3", "4 sequences", "2 or 4"]),
    ],
)
def test_what_cannot_run_is_refused_with_both_numbers(
    architecture: Architecture, degrees: dict[str, int], count: int, words: list[str]
) -> None:
    with pytest.raises(InputError) as caught:
        train_stage(architecture, Sequences.equal(count, 128), execution(**degrees), machine())
    for word in words:
        assert word in str(caught.value)


def test_kv_heads_may_be_copied_and_layers_may_be_uneven() -> None:
    few = replace(MODEL, kv_heads=2)
    assert train_stage(few, Sequences.equal(8, 128), execution(tp=8), machine()).seconds > 0
    assert (
        train_stage(replace(MODEL, layers=30), Sequences.equal(8, 128), execution(pp=4), machine()).seconds
        > 0
    )


def test_stalls_of_collectives_are_seen_over_efa_between_nodes_alone() -> None:
    def seconds(transport: str, **degrees: int) -> float:
        node, rack = FABRIC.levels
        fabric = Fabric((node, (replace(rack[0], transport=transport), rack[1])))
        on = replace(machine("flash"), fabric=fabric)
        return train_stage(MODEL, Sequences.equal(16, 1024), execution(**degrees), on).seconds

    assert seconds("efa", tp=8, pp=2) > 2 * seconds("", tp=8, pp=2)
    assert seconds("efa", tp=4, pp=2) == seconds("", tp=4, pp=2)  # within one node
