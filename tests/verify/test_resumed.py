"""Runs that were resumed: the effective ledger."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plans import PLANS, run, split
from rpeg.plan import Plan
from rpeg.trace import Trace, What
from rpeg.verify import effective_stretches, prove_run


def cut(trace: Trace, after: str, step: int) -> Trace:
    """As if the run had been killed when this stage had finished this step."""
    end = next(
        e.seq
        for e in trace.entries
        if e.what is What.FINISHED and e.item.name == after and e.item.step == step
    )
    entries = trace.entries[: end + 1]
    spans = tuple(s for s in trace.spans if s.launch <= end)
    return replace(trace, entries=entries, spans=spans, complete=False)


def resumed(plan: Plan, steps: int = 6) -> tuple[Trace, ...]:
    """Killed in step 3, resumed at 2; killed in step 4, resumed at 4."""
    first = cut(run(plan, steps), "train_actor", 3)
    second = cut(run(plan, steps, 2, seed=1), "train_actor", 4)
    return (first, second, run(plan, steps, 4, seed=2))


@pytest.mark.parametrize("name", sorted(PLANS))
def test_a_resumed_run_is_proven(name: str) -> None:
    proof = prove_run(resumed(PLANS[name]()))
    assert proof.findings == ()
    assert dict(proof.counts)["stretches"] == 3


def test_a_run_of_one_stretch_is_proven_as_that() -> None:
    trace = run(split(), 2)
    proof = prove_run((trace,))
    assert proof.holds
    assert "stretches" not in dict(proof.counts)


def test_the_last_stretch_that_began_before_a_step_counts() -> None:
    assert effective_stretches((0, 2, 4), 6) == {0: 0, 1: 0, 2: 1, 3: 1, 4: 2, 5: 2}
    assert effective_stretches((0, 4, 2), 6) == {0: 0, 1: 0, 2: 2, 3: 2, 4: 2, 5: 2}
    assert effective_stretches((), 3) == {}


def test_a_step_that_no_stretch_trained() -> None:
    first, _, last = resumed(split())
    skipping = cut(first, "train_actor", 1)  # step 3 is missing when the next begins at 4
    proof = prove_run((skipping, last))
    assert "every_step_is_trained_once" in proof.broken
    assert any("never trained step 3" in f.sentence for f in proof.findings)


def test_a_run_that_is_still_cut_short_owes_nothing_yet() -> None:
    assert prove_run(resumed(split())[:2]).holds


def test_a_sample_that_two_stretches_train() -> None:
    first, second, last = resumed(split())
    span = next(s for s in last.spans if s.item.name == "train_actor" and s.item.step == 5)
    reused = replace(span, ids=(24, *span.ids[1:]))  # a sample of step 3, which the second stretch trained
    broken = replace(last, spans=tuple(reused if s is span else s for s in last.spans))
    proof = prove_run((first, second, broken))
    assert "every_sample_counts_once" in proof.broken
    finding = next(f for f in proof.findings if f.property == "every_sample_counts_once")
    assert "sample 24 was trained by train_actor at the steps 3 and 5" in finding.sentence
    assert finding.stretch == 0


def test_weights_that_are_not_those_that_were_left() -> None:
    first, second, last = resumed(split())
    spans = tuple(replace(s, digests={k: f"new {v}" for k, v in s.digests.items()}) for s in last.spans)
    proof = prove_run((first, second, replace(last, spans=spans)))
    assert proof.broken == ("resumed_weights_are_those_left",)
    assert (
        "begins with actor@4 of digest new bytes of actor 4; stretch 2 left bytes of actor 4" in proof.text()
    )


def test_stretches_of_different_plans() -> None:
    other = run(PLANS["streamed_groups"](), 6, 2)
    assert "stretches_are_of_one_plan" in prove_run((resumed(split())[0], other)).broken


def test_a_lie_in_one_stretch_names_it() -> None:
    first, second, last = resumed(split())
    lying = replace(second, entries=second.entries[:3] + second.entries[4:])
    proof = prove_run((first, lying, last))
    assert {f.stretch for f in proof.findings if f.property == "log_has_no_gaps"} == {2}
    assert "stretch 2:" in proof.text()
