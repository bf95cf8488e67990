"""Plans of layouts that a job gives: what is said is kept, what is left open is chosen."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems import problem as local_problem

from rpeg import algorithms, architecture
from rpeg.cluster import system
from rpeg.errors import InfeasibleError, InputError
from rpeg.ir import Kind
from rpeg.job import StageLayout
from rpeg.plan import Assignment, Devices, Parallelism, check
from rpeg.search import Given, Permissions, Problem, check_given, plan_job
from rpeg.search.given import blocks, cut, sized
from rpeg.search.own import own_plan
from rpeg.sim import Facts
from rpeg.workload import Workload, constant, lognormal

DEGREES = st.sampled_from((None, 1, 2, 4, 8))


@cache
def _problem(actor: str = "Qwen2.5-7B") -> Problem:
    module = algorithms.load("grpo")
    graph = module.graph(module.Hyper())
    work = Workload(32, 4, constant(200), lognormal(300, 1000), minibatches=2)
    facts = Facts({model.name: architecture.named(actor) for model in graph.models}, "bfloat16")
    return Problem(graph, system("dgx-h100"), work, facts, 16, Permissions())


def _given(*colocated: str, **layouts: dict[str, Any]) -> Given:
    return Given(tuple((name, StageLayout(**keys)) for name, keys in layouts.items()), colocated)


def _assignment(found: object, stage: str) -> Assignment:
    return found.candidate.plan.assignment(stage)  # type: ignore[attr-defined, no-any-return]


@given(
    wish=st.builds(
        StageLayout, tp=DEGREES, pp=DEGREES, dp=DEGREES, cp=DEGREES, zero=st.sampled_from((None, 0, 1, 3))
    ),
    devices=st.sampled_from((1, 2, 8, 12, 64)),
    free=st.builds(Parallelism, tp=st.sampled_from((1, 2, 8)), zero=st.sampled_from((0, 3))),
)
def test_a_cut_has_the_degrees_that_are_said_and_makes_up_the_devices(
    wish: StageLayout, devices: int, free: Parallelism
) -> None:
    found = cut(wish, free, devices, generates=False)
    if found is not None:
        assert found.devices == devices
        for name in ("tp", "pp", "dp", "cp"):
            assert getattr(wish, name) in (None, getattr(found, name))
    elif wish == StageLayout():
        assert devices % free.tp


def test_what_is_said_of_sizes_is_kept() -> None:
    free = Assignment("train", Devices((0,)), microbatch=8, recompute="none", offload="optimizer")
    found = sized(StageLayout(microbatch=2, recompute="full"), free)
    assert (found.microbatch, found.recompute, found.offload) == (2, "full", "optimizer")
    assert sized(StageLayout(), free) == free


def test_counts_are_of_the_first_devices_for_generation_and_of_the_last_for_others() -> None:
    kinds = {"generate": Kind.GENERATE, "train": Kind.TRAIN, "score": Kind.INFERENCE}
    free = dict.fromkeys(kinds, (0, 1, 2, 3))
    found = blocks(_given(generate={"devices": 1}, train={"devices": 3}), kinds, free, 4)
    assert found == {"generate": (0,), "train": (1, 2, 3), "score": (0, 1, 2, 3)}
    found = blocks(_given("train", "score", train={"devices": (2, 3)}), kinds, free, 4)
    assert found == {"generate": (0, 1, 2, 3), "train": (2, 3), "score": (2, 3)}


LAYOUTS = [
    {"generate": {"devices": (0, 1, 2, 3), "tp": 2}, "train_actor": {"devices": (4, 5, 6, 7), "zero": 3}},
    {
        "generate": {"tp": 4, "microbatch": 16},
        "train_actor": {"tp": 4, "pp": 2, "microbatch": 1, "recompute": "full"},
    },
    {"train_actor": {"dp": 2, "tp": 2, "cp": 2, "zero": 1, "recompute": "selective", "offload": "optimizer"}},
    {"reference": {"devices": 2, "tp": 2, "offload": "all"}, "generate": {"devices": 6}},
]


@pytest.mark.parametrize("layouts", LAYOUTS)
def test_every_key_that_is_said_is_in_the_plan(layouts: dict[str, dict[str, Any]]) -> None:
    found = own_plan(replace(_problem(), given=_given(**layouts)))
    assert found.candidate is not None, found.reason
    check(found.candidate.plan)
    assert found.candidate.estimate.fits
    for stage, keys in layouts.items():
        a = _assignment(found, stage)
        assert isinstance(a.block, Devices)
        for key, value in keys.items():
            if key == "devices":
                assert a.block.ids == value if isinstance(value, tuple) else len(a.block.ids) == value
            else:
                assert getattr(a.parallelism if key in Parallelism.__dataclass_fields__ else a, key) == value


def test_colocated_stages_are_on_the_same_devices() -> None:
    said = _given("reference", "train_actor", train_actor={"devices": 4})
    found = own_plan(replace(_problem(), given=said))
    assert (
        _assignment(found, "reference").block
        == _assignment(found, "train_actor").block
        == Devices((4, 5, 6, 7))
    )


def test_scoring_by_a_trainers_model_takes_its_layout_where_nothing_else_is_said() -> None:
    found = own_plan(
        replace(_problem(), given=_given("old_logprob", "train_actor", train_actor={"tp": 4, "pp": 2}))
    )
    assert _assignment(found, "old_logprob").parallelism == _assignment(found, "train_actor").parallelism


def test_no_structure_is_changed_that_is_not_asked_for() -> None:
    free = replace(_problem(), given=_given(generate={"devices": 4}))
    found = own_plan(free)
    assert found.candidate is not None
    assert found.candidate.plan.applied == ()
    stale = replace(free, permissions=Permissions(staleness=1, wished_staleness=1))
    found = own_plan(stale)
    assert found.candidate is not None
    assert found.candidate.plan.applied == ("async{stage=generate,staleness=1,freshness=exact}",)


def test_what_does_not_fit_says_where_and_how_much_is_missing() -> None:
    said = _given(
        "train_actor", "generate", train_actor={"devices": (0,), "microbatch": 16, "recompute": "none"}
    )
    found = own_plan(replace(_problem(), given=said))
    assert found.candidate is None
    for word in ("does not fit", "device 0", "GiB", "train_actor", "needed"):
        assert word in found.reason


@pytest.mark.parametrize(
    ("layouts", "words"),
    [
        ({"generate": {"devices": (0, 1, 2, 3, 4), "tp": 5}}, ("tp = 5", "28")),
        ({"train_actor": {"devices": (0, 1, 2), "tp": 3}}, ("tp = 3", "28 heads")),
        ({"train_actor": {"ep": 2}}, ("no experts", "ep = 2")),
        ({"train_actor": {"dp": 3, "tp": 2}}, ("dp 3 × tp 2", "8 devices")),
    ],
)
def test_layouts_that_do_not_divide_a_model_name_both_numbers(
    layouts: dict[str, dict[str, Any]], words: tuple[str, ...]
) -> None:
    with pytest.raises(InputError) as error:
        check_given(replace(_problem(), given=_given(**layouts)))
    for word in words:
        assert word in str(error.value)
    assert own_plan(replace(_problem(), given=_given(**layouts))).candidate is None


def test_the_plan_stands_beside_the_best_one_that_is_found_without_it() -> None:
    free = plan_job(local_problem("grpo", prompts=4))
    said = _given(generate={"devices": (0,)}, train_actor={"devices": (1,), "microbatch": 1})
    found = plan_job(replace(local_problem("grpo", prompts=4), given=said))
    assert [c.plan for c in found.candidates] == [c.plan for c in free.candidates]
    assert found.own is not None
    assert found.chosen is found.own.candidate
    assert free.chosen is free.best
    lost = replace(found, own=replace(found.own, candidate=None, reason="does not fit"))
    with pytest.raises(InfeasibleError, match=r"does not fit.*the best plan is"):
        _ = lost.chosen


@pytest.mark.parametrize(("ids", "size"), [((1,), 1), ((0, 1), 3)])
def test_processes_of_this_machine_take_devices_and_sizes(ids: tuple[int, ...], size: int) -> None:
    said = _given(generate={"devices": ids}, train_actor={"microbatch": size})
    found = own_plan(replace(local_problem(), given=said))
    assert _assignment(found, "generate").block == Devices(ids)
    assert _assignment(found, "train_actor").microbatch == size
