"""Whatever the layout: the updates of one process, the bytes that the cost model predicts, the collectives due."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from layouts import CONFIG, STEPS, alone, dense, exercise, spread
from training_cases import tiny_model

from rpeg.architecture.huggingface import from_config
from rpeg.backends.training.checkpoint import read_weights
from rpeg.backends.training.trainer import Trainer
from rpeg.cost import Execution
from rpeg.cost.memory.stages import slices
from rpeg.cost.memory.state import holding, parameter_line, shards
from rpeg.cost.precision import Precision
from rpeg.plan import Parallelism

TWO = [
    Parallelism(dp=2, zero=1),
    Parallelism(tp=2),
    Parallelism(dp=2, zero=2),
    Parallelism(tp=2, sequence_parallel=True),
    Parallelism(cp=2, zero=3),
    Parallelism(pp=2),
    Parallelism(pp=2, vpp=2),
    Parallelism(dp=2, ep=2),
]
FOUR = [
    Parallelism(dp=4, zero=3, shard=2),
    Parallelism(dp=2, tp=2, zero=3, sequence_parallel=True),
    Parallelism(pp=2, dp=2, zero=2),
    Parallelism(pp=2, tp=2, sequence_parallel=True),
    Parallelism(pp=2, vpp=2, tp=2, sequence_parallel=True),
]
LAYOUTS = [*TWO, *FOUR]
DENSE = [layout for layout in LAYOUTS if layout.ep == 1]
LAYERS = 4

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> dict[Parallelism, tuple[Path, list[dict[str, Any]]]]:
    """Of each layout where its state is and what its ranks found."""
    out = {}
    for layouts in (TWO, FOUR):
        directory = tmp_path_factory.mktemp("layouts")
        for number, (layout, found) in enumerate(zip(layouts, spread(layouts, directory), strict=True)):
            out[layout] = (directory / f"{number}", found)
    return out


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, tuple[Path, dict[str, Any]]]:
    """One process, without and with experts."""
    root = tmp_path_factory.mktemp("one")
    return {
        experts: (root / str(experts), alone(root / str(experts), experts=experts))
        for experts in (False, True)
    }


def close(got: Any, expected: Any, tolerance: float) -> None:
    np.testing.assert_allclose(np.asarray(got), np.asarray(expected), rtol=0, atol=tolerance)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_updates_are_those_of_one_process(layout: Parallelism, ranks: Any, one: Any) -> None:
    state, found = ranks[layout]
    own_state, own = one[layout.ep > 1]
    for rank in found:
        for mine, theirs in zip(own["metrics"], rank["metrics"], strict=True):
            assert mine == pytest.approx(theirs, rel=0, abs=1e-9)
        close(rank["canary"], own["canary"], 1e-9)
    weights, expected = read_weights(state), read_weights(own_state)
    assert weights.keys() == expected.keys()
    for name, weight in expected.items():
        torch.testing.assert_close(weights[name], weight, rtol=0, atol=1e-8)
    assert len({rank["digest"] for rank in found}) == 1


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_recompute_packing_and_chunks_change_nothing(layout: Parallelism, ranks: Any, one: Any) -> None:
    _, own = one[layout.ep > 1]
    for rank in ranks[layout][1]:
        assert rank["saving"] == pytest.approx(own["metrics"][0], rel=0, abs=1e-9)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_every_rank_scores_its_share(layout: Parallelism, ranks: Any, one: Any) -> None:
    _, found = ranks[layout]
    _, own = one[layout.ep > 1]
    first = {layout.replica_of(rank): rank for rank in reversed(range(layout.devices))}
    for column in ("logprobs", "values"):
        close(np.concatenate([found[first[i]][column] for i in range(layout.dp)]), own[column], 1e-9)
        for rank, result in enumerate(found):
            assert result[column] == found[first[layout.replica_of(rank)]][column]


@pytest.mark.parametrize("layout", DENSE, ids=str)
def test_ranks_hold_what_the_cost_model_predicts(layout: Parallelism, ranks: Any) -> None:
    """Parameters within one per cent, moments in the shares of ZeRO; a rank that gathered all would hold too much."""
    architecture = from_config(
        tiny_model(("lm",), vocabulary=64, hidden=64, layers=LAYERS).hf.config.to_dict()
    )
    execution = Execution(layout, Precision(weights="float32"))
    per_stage = layout.devices // layout.pp
    for rank, found in enumerate(ranks[layout][1]):
        part = slices(architecture, layout.pp, layout.vpp)[rank // per_stage]
        held = holding(architecture, part, layout, ("lm",))
        predicted = parameter_line(held, execution).bytes
        assert found["parameter_bytes"] == pytest.approx(predicted, rel=0.01)
        dense, _ = shards(layout, 1)
        assert found["moment_bytes"] == pytest.approx(2 * 4 * held.dense / dense, rel=0.01)


@pytest.mark.parametrize("layout", [p for p in DENSE if p.vpp == 1], ids=str)
def test_a_pass_makes_the_collectives_that_are_due(layout: Parallelism, ranks: Any) -> None:
    """Forward and backward, one micro-batch, without what pipeline stages send each other."""
    per_stage = layout.devices // layout.pp
    for rank, found in enumerate(ranks[layout][1]):
        stage = rank // per_stage
        assert found["collectives"] == due(layout, stage == 0, stage == layout.pp - 1)


def due(layout: Parallelism, first: bool, last: bool) -> dict[str, int]:
    """By the names that torch gives them."""
    counts: Counter[str] = Counter()
    layers = LAYERS // layout.pp
    if (
        layout.tp > 1
    ):  # attention and feed-forward each begin and end with one, and so does their backward pass
        if layout.sequence_parallel:
            counts["_allgather_base_"] += (
                4 * layers + 2
            )  # with the end of the cut sequence, and of its gradient
            counts["_reduce_scatter_base_"] += 4 * layers
        else:
            counts["allreduce_"] += 4 * layers
        counts["allreduce_"] += first + 3 * last  # embedding; hidden states' gradient, largest logit and sums
    if layout.cp > 1:  # queries, keys, values and the result of attention; log-probabilities
        counts["alltoall_base_"] += 8 * layers
        counts["allreduce_"] += last
    if layout.zero >= 2:  # each layer, and all else
        counts["_reduce_scatter_base_"] += layers + 1
    if layout.zero == 3:  # what the backward pass begins with is still there
        counts["_allgather_base_"] += 2 * layers + 1
        counts["allreduce_"] += (layers + 1) * (layout.shards < layout.dp)
    return {name: count for name, count in counts.items() if count}


@pytest.mark.parametrize("layout", DENSE, ids=str)
def test_a_rank_sends_its_part_alone(layout: Parallelism, ranks: Any) -> None:
    """Together the ranks send the model once, none of them more than it holds; the receiver, laid out as the following
    layout, then has the same weights and computes the same with them."""
    state, found = ranks[layout]
    whole = sum(weight.nbytes for weight in read_weights(state).values())
    sent = [rank["sent_bytes"] for rank in found]
    assert whole <= sum(sent) < 1.05 * whole
    parts = layout.tp * layout.pp * (layout.shards * layout.cp if layout.zero == 3 else 1)
    assert max(sent) < whole * (1.2 / parts + 0.1 * (parts > 1) + (parts == 1))
    for rank in found:
        assert rank["received"] == rank["digest"]
        close(rank["received_canary"], rank["canary"], 1e-12)


@pytest.mark.parametrize("layout", DENSE, ids=str)
def test_another_layout_goes_on_from_the_state(
    layout: Parallelism, ranks: Any, one: Any, tmp_path: Path
) -> None:
    own_state, _ = one[False]
    trainer = Trainer(dense(seed=5), optimizer=CONFIG)
    trainer.load_state(str(own_state))
    expected = exercise(trainer, tmp_path / "state", STEPS)["metrics"]
    here = Trainer(dense(seed=6), optimizer=CONFIG)
    here.load_state(str(ranks[layout][0]))
    assert here.digest() == ranks[layout][1][0]["digest"]
    following = [rank["continued"] for rank in ranks[layout][1] if "continued" in rank]
    for metrics in following:
        for mine, theirs in zip(expected, metrics, strict=True):
            assert mine == pytest.approx(theirs, rel=0, abs=1e-9)
