"""What `check` refuses, and how it says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rpeg.errors import GraphError, PlanError
from rpeg.plan import Assignment, Devices, Host, Lane, Parallelism, Plan, Turn, check, violations
from rpeg.plan.check import ORDER_RULES, STATIC_RULES, every_stage_is_assigned_once
from rpeg.transforms import parse
from samples_of_plans import assign, grpo, plan_of, ppo, reordered, workload

GOOD = plan_of(ppo(), assign(ppo(), (0, 1)))
PRUNED = parse("prune{stage=old_logprobs}").apply(grpo())


def _assigned(stage: str, **changes: object) -> Plan:
    found = (replace(a, **changes) if a.stage == stage else a for a in GOOD.assignments)  # type: ignore[arg-type]
    return replace(GOOD, assignments=tuple(found))


def _turns(lane: str) -> tuple[Turn, ...]:
    return next(o.turns for o in GOOD.order if o.name == lane)


def _shifted(stage: str, shift: int) -> Plan:
    def shifted(lane: Lane) -> Lane:
        turns = (replace(t, shift=shift) if t.slot.name == stage else t for t in lane.turns)
        return replace(lane, turns=tuple(turns))

    return replace(GOOD, order=tuple(map(shifted, GOOD.order)))


def _swapped() -> Plan:
    """One device runs the values before the reference, the trainer before both: it waits for what comes after it."""
    turns = _turns("device0")
    trainer = next(t for t in turns if t.slot.name == "train_critic")
    return reordered(GOOD, "device0", (trainer, *(t for t in turns if t != trainer)))


def _offloaded(**offload: str) -> Plan:
    assignments = assign(ppo(), (0,))
    return plan_of(
        ppo(), tuple(replace(a, offload=offload.get(a.stage, "none")) for a in assignments), devices=2
    )


ONE = Parallelism()
BROKEN: tuple[tuple[str, Plan, str], ...] = (
    (
        "every_stage_is_assigned_once",
        replace(GOOD, assignments=GOOD.assignments[1:]),
        "generate has no assignment",
    ),
    (
        "every_stage_is_assigned_once",
        replace(GOOD, assignments=(*GOOD.assignments, GOOD.assignments[0])),
        "generate is assigned 2 times",
    ),
    (
        "every_stage_is_assigned_once",
        replace(GOOD, assignments=(*GOOD.assignments[1:], Assignment("generat", Host()))),
        "Did you mean 'generate'?",
    ),
    (
        "blocks_exist",
        _assigned("values", block=Devices((0, 2))),
        "uses device 2; the cluster has devices 0 to 1",
    ),
    ("blocks_exist", _assigned("values", block=Devices(())), "empty block"),
    ("blocks_exist", _assigned("values", block=Devices((0, 0))), "names a device twice"),
    ("blocks_exist", _assigned("reward", block=Host(1)), "host 1; the cluster has hosts 0 to 0"),
    ("blocks_exist", _assigned("reward", block=Host(0, 0)), "0 host slots"),
    ("kinds_fit_blocks", _assigned("reward", block=Devices((0,))), "reward is host work"),
    ("kinds_fit_blocks", _assigned("values", block=Host(0)), "values calls critic and is given host 0"),
    ("parallelism_fits_blocks", _assigned("values", parallelism=ONE), "over 1 devices and a block of 2"),
    ("parallelism_fits_blocks", _assigned("values", microbatch=0), "micro-batches of 0"),
    ("parallelism_fits_blocks", _assigned("values", recompute="ful"), "Did you mean 'full'?"),
    ("parallelism_fits_blocks", _assigned("values", offload="disk"), "offload 'disk' is unknown"),
    (
        "generators_hold_whole_models",
        _assigned("generate", parallelism=Parallelism(dp=2, zero=3)),
        "generate has dp2 zero3: its replicas run apart",
    ),
    (
        "batches_divide",
        plan_of(ppo(), assign(ppo(), (0, 1)), workload(minibatches=8)),
        "minibatches of 1 samples do not divide over dp 2; dp 1 would",
    ),
    (
        "batches_divide",
        plan_of(ppo(), assign(ppo(), (0, 1)), workload(prompts=1)),
        "dp 2 and 1 prompts; a replica would have none",
    ),
    (
        "parts_are_supported",
        plan_of(ppo(), assign(ppo(), (0,)), applied=(parse("stream{chunk=9}"),)),
        "chunks of 9 samples exceed the batch",
    ),
    (
        "parts_are_supported",
        plan_of(ppo(), assign(ppo(), (0, 1)), applied=(parse("split{stage=reward,parts=8}"),)),
        "reward is split into 8 parts of whole groups and has 4 prompts; at most 4 parts",
    ),
    (
        "migrated_responses_are_some_of_each_replica",
        plan_of(ppo(), assign(ppo(), (0,)), applied=(parse("migrate{stage=generate,responses=2}"),)),
        "has one replica; nothing would move",
    ),
    (
        "migrated_responses_are_some_of_each_replica",
        plan_of(ppo(), assign(ppo(), (0, 1)), applied=(parse("migrate{stage=generate,responses=3}"),)),
        "do not divide over 2 replicas; a multiple of 2 would",
    ),
    (
        "migrated_responses_are_some_of_each_replica",
        plan_of(
            grpo(),
            assign(grpo(), (0, 1)),
            applied=(parse("stream{chunk=1,unit=group}"), parse("migrate{stage=generate,responses=2}")),
        ),
        "2 replicas × groups of 2; a multiple of 4 would",
    ),
    (
        "migrated_responses_are_some_of_each_replica",
        plan_of(ppo(), assign(ppo(), (0, 1)), applied=(parse("migrate{stage=generate,responses=8}"),)),
        "of 2 replicas with 4 each; at most 6",
    ),
    (
        "parts_are_supported",
        plan_of(ppo(), assign(ppo(), (0, 1)), applied=(parse("split{stage=generate,parts=4}"),)),
        "4 prompts over 2 replicas; at most 2 parts",
    ),
    (
        "parts_are_supported",
        plan_of(
            ppo(),
            assign(ppo(), (0,)),
            replace(workload(), epochs=2),
            applied=(parse("stream{chunk=1,unit=minibatch}"),),
        ),
        "there are 2 epochs",
    ),
    (
        "own_scores_are_of_current_weights",
        plan_of(PRUNED, assign(PRUNED, (0,)), workload(minibatches=2)),
        "train_actor gives old_logprobs itself and takes 2 updates a step",
    ),
    (
        "lanes_hold_their_slots",
        reordered(GOOD, "device0", _turns("device0")[1:]),
        "lane device0 does not run",
    ),
    (
        "lanes_hold_their_slots",
        reordered(GOOD, "device0", (*_turns("device0"), _turns("device0")[0])),
        "2 times a period",
    ),
    (
        "lanes_hold_their_slots",
        reordered(GOOD, "device0", (*_turns("device0"), *_turns("host0.0"))),
        "which is not assigned to it",
    ),
    ("lanes_hold_their_slots", replace(GOOD, order=(*GOOD.order, Lane("device7", ()))), "no stage uses it"),
    (
        "shifts_are_one_a_slot",
        reordered(GOOD, "device0", tuple(replace(t, shift=1) for t in _turns("device0"))),
        "has shifts [0, 1] on different lanes",
    ),
    ("shifts_are_one_a_slot", _shifted("values", -1), "has shift -1; at least 0"),
    ("shifts_respect_arcs", _shifted("values", 1), "raise its shift to 1 or lower the other"),
    ("order_cannot_deadlock", _swapped(), "these wait for each other in one period: "),
    ("offload_is_of_own_memory", _offloaded(reward="all"), "reward has offload all and no model; use none"),
    (
        "offload_is_of_own_memory",
        _offloaded(reference="optimizer"),
        "reference has offload optimizer and trains nothing; use none or all",
    ),
    (
        "offload_is_of_own_memory",
        _offloaded(values="all", train_critic="optimizer"),
        "values has offload all and uses the memory of train_critic, whose offload is optimizer; set it there",
    ),
)


@pytest.mark.parametrize(
    ("rule", "plan", "words"), BROKEN, ids=[f"{r}-{i}" for i, (r, _, _) in enumerate(BROKEN)]
)
def test_a_plan_that_cannot_run_is_refused_by_its_rule(rule: str, plan: Plan, words: str) -> None:
    sentences = [sentence for name, sentence in violations(plan) if name == rule]
    assert any(words in sentence for sentence in sentences), violations(plan)
    with pytest.raises(PlanError, match=rule):
        check(plan)


def test_every_rule_is_tested() -> None:
    rules = (every_stage_is_assigned_once, *STATIC_RULES, *ORDER_RULES)
    assert {rule for rule, _, _ in BROKEN} == {rule.__name__ for rule in rules}


def test_a_good_plan_is_returned() -> None:
    assert check(GOOD) is GOOD


def test_the_graph_is_checked_too() -> None:
    graph = GOOD.graph.with_edges(GOOD.graph.edges[1:])
    with pytest.raises(GraphError, match="needs_are_met"):
        check(replace(GOOD, graph=graph))


def test_a_deadlock_names_its_cycle() -> None:
    (sentence,) = (s for rule, s in violations(_swapped()) if rule == "order_cannot_deadlock")
    names = [part.split("[")[0] for part in sentence.split(": ")[1].split(" → ")]
    assert names[0] == names[-1]
    assert "train_critic" in names
