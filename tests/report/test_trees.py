"""Cost trees as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans_shown import node_plans, shown

from rpeg.cost import Cost, parallel, sequence
from rpeg.errors import InputError
from rpeg.report.explained import memory, parts, stages, title, trees_of
from rpeg.report.trees import combination, lines, tree

LEAF = Cost("gemm", 0.25, 1e12, 1e9, "compute", 0.25)
SECONDS = st.floats(1e-2, 1e3)


def test_equal_replicas_are_one_line_with_their_count() -> None:
    found = list(lines(parallel("generate on 8 replicas", [LEAF] * 8)))
    assert [(line.name, line.count) for line in found] == [
        ("generate on 8 replicas (of the slowest)", 1),
        ("gemm", 8),
    ]
    assert "8 × 250.0000" in shown(tree(parallel("generate", [LEAF] * 8)))


def test_of_replicas_that_differ_the_slowest_is_shown_and_the_spread_of_the_others() -> None:
    costs = [Cost("generate", float(i), children=(Cost("decode", float(i)),)) for i in range(1, 9)]
    names = [line.name for line in lines(parallel("all", costs))]
    assert names == ["all (of the slowest)", "generate", "decode", "… 7 others, 1.0000 to 7.0000 s"]


@given(st.lists(st.tuples(st.sampled_from("abc"), SECONDS), min_size=1, max_size=12))
def test_the_lines_under_a_sum_add_up_to_it(children: list[tuple[str, float]]) -> None:
    whole = sequence("whole", [Cost(name, seconds) for name, seconds in children])
    root, *below = lines(whole)
    assert sum(line.count * line.cost.seconds for line in below) == pytest.approx(root.cost.seconds)


@given(st.lists(SECONDS, min_size=2, max_size=6))
def test_how_parts_make_up_a_whole_is_said(seconds: list[float]) -> None:
    costs = [Cost("part", s) for s in seconds]
    assert combination(sequence("sum", costs)) == ""
    assert combination(parallel("slowest", costs)) == "of the slowest"
    between = Cost("both", (sum(seconds) + max(seconds)) / 2, children=tuple(costs))
    assert combination(between) == "overlapping"


def test_a_tree_ends_at_the_depth_that_is_asked_for() -> None:
    deep = sequence("step", [sequence("layer", [sequence("forward", [LEAF])])])
    at = shown(tree(deep, 1))
    assert [word in at for word in ("step", "layer", "forward")] == [True, True, False]
    assert "gemm" in shown(tree(deep))


def test_folded_names_keep_their_indentation() -> None:
    long = Cost("gather and scatter of the gradients of every layer", 1.0)
    text = shown(tree(sequence("a", [long])), width=60)
    inside = text.splitlines()[3:]
    assert len(inside) > 1
    assert all(line.startswith("  ") for line in inside)


def test_stages_and_memory_are_tables_in_words() -> None:
    _, ranked = node_plans()
    estimate = ranked.best.estimate
    assert "train_actor" in shown(stages(estimate))
    assert "there is" in shown(*memory(estimate.memory, 80))
    text = shown(*parts(estimate.memory))
    assert text.count("together") == len(estimate.memory)
    with pytest.raises(InputError, match="Did you mean 'update'"):
        list(parts(estimate.memory, "updates"))


def test_the_parts_of_memory_add_up() -> None:
    _, ranked = node_plans()
    for device in ranked.best.estimate.memory:
        for phase in device.phases:
            assert sum(size for _, size in phase.parts) == pytest.approx(phase.bytes)


def test_trees_of_a_stage_are_its_own_and_those_of_what_is_moved_for_it() -> None:
    plan = node_plans()[1].best.plan
    found = {
        "generate": LEAF,
        "train_actor": LEAF,
        "transfer train_actor->generate:weights:actor": LEAF,
        "reload generate:model": LEAF,
    }
    assert list(trees_of(plan, found, ["generate"])) == [key for key in found if key != "train_actor"]
    assert trees_of(plan, found, []) == found
    assert title("reload generate:model") == "generate wakes up"
    with pytest.raises(InputError, match="Did you mean 'generate'"):
        trees_of(plan, found, ["generat"])
