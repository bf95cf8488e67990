"""What a sound run proves, whatever its timing; and each kind of lie is caught by the property that is about it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plans import (
    MEMORY_BYTES,
    PLANS,
    asynchronous,
    colocated,
    in_parts,
    keeping,
    resting,
    run,
    selecting,
    split,
    streamed,
    streamed_groups,
    tensor_parallel,
)
from rpeg.errors import VerificationError
from rpeg.plan import Item, ItemKind
from rpeg.trace import OVER_QUOTA, Entry, Span, Trace, What, read_traces, write_trace
from rpeg.verify import PROPERTIES, demand, prove
from rpeg.workload import Selection, Workload, constant

BY_NAME = sorted(PLANS)


@pytest.mark.parametrize("name", BY_NAME)
@given(
    seed=st.integers(0, 2**16),
    steps=st.integers(1, 5),
    first_step=st.integers(0, 3),
    latency=st.sampled_from([0.0, 1e-3, 0.5]),
)
@settings(max_examples=12, deadline=None)
def test_sound_runs_are_proven(name: str, seed: int, steps: int, first_step: int, latency: float) -> None:
    trace = run(PLANS[name](), first_step + steps, first_step, seed, latency_seconds=latency)
    assert prove(trace).findings == ()


@pytest.mark.parametrize("name", BY_NAME)
@given(shift=st.dictionaries(st.sampled_from(["device0", "device1", "host0.0"]), st.floats(-1e6, 1e6)))
@settings(max_examples=10, deadline=None)
def test_a_constant_shift_of_a_workers_clock_is_legal(name: str, shift: dict[str, float]) -> None:
    assert prove(run(PLANS[name](), 3, clocks=shift)).findings == ()


@pytest.mark.parametrize("name", BY_NAME)
def test_items_that_take_no_time_are_proven_too(name: str) -> None:
    trace = run(PLANS[name](), 3, seconds=lambda item: 0.0, latency_seconds=0.0)
    assert prove(trace).findings == ()


@given(cut=st.floats(0, 1))
@settings(max_examples=25, deadline=None)
def test_a_run_that_was_cut_short_proves_what_it_contains(cut: float) -> None:
    whole = run(streamed(), 3)
    entries = whole.entries[: int(cut * len(whole.entries))]
    last = entries[-1].seq if entries else -1
    spans = tuple(s for s in whole.spans if s.launch <= last)
    assert prove(replace(whole, entries=entries, spans=spans, complete=False)).findings == ()
    if len(entries) < len(whole.entries):
        assert "every_item_ran" in prove(replace(whole, entries=entries, spans=spans)).broken


def test_a_trace_proves_the_same_from_disk(tmp_path: Path) -> None:
    trace = run(asynchronous(), 4)
    write_trace(trace, tmp_path)
    (read,) = read_traces(tmp_path)
    assert prove(read) == prove(trace)


def test_a_proof_tells_what_it_looked_at() -> None:
    proof = prove(run(split(), 4))
    counts = dict(proof.counts)
    assert counts["steps"] == 4
    assert counts["samples trained"] == 4 * 8
    assert proof.text().startswith(f"proven: {len(PROPERTIES) + 1} properties")
    assert demand(proof) is proof


# -- lies -----------------------------------------------------------------------------------------------------------


def span_of(trace: Trace, name: str, step: int, lane: str | None = None) -> Span:
    return next(
        s for s in trace.spans if s.item.name == name and s.item.step == step and lane in (None, s.lane)
    )


def entry_of(trace: Trace, what: What, name: str, step: int) -> Entry:
    return next(e for e in trace.entries if e.what is what and e.item.name == name and e.item.step == step)


def with_span(trace: Trace, span: Span, **changes: object) -> Trace:
    changed = replace(span, **changes)  # type: ignore[arg-type]
    return replace(trace, spans=tuple(changed if s is span else s for s in trace.spans))


def with_entry(trace: Trace, entry: Entry, **changes: object) -> Trace:
    changed = replace(entry, **changes)  # type: ignore[arg-type]
    return replace(trace, entries=tuple(changed if e is entry else e for e in trace.entries))


def renumbered(trace: Trace, entries: list[Entry]) -> Trace:
    """The log in another order, with sequence numbers, times and the spans' references made to fit it."""
    times = sorted(e.seconds for e in entries)
    new = [replace(e, seq=i, seconds=t) for i, (e, t) in enumerate(zip(entries, times, strict=True))]
    seq = {old.seq: fresh.seq for old, fresh in zip(entries, new, strict=True)}
    spans = tuple(replace(s, launch=seq.get(s.launch, s.launch)) for s in trace.spans)
    return replace(trace, entries=tuple(new), spans=spans)


def broken(trace: Trace) -> set[str]:
    return set(prove(trace).broken)


@pytest.mark.parametrize("name", BY_NAME)
def test_a_span_moved_before_its_input(name: str) -> None:
    trace = run(PLANS[name](), 3)
    source, span = span_of(trace, "old_logprob", 1), span_of(trace, "train_actor", 1)
    assert source.worker == span.worker
    moved = with_span(
        trace,
        span,
        start_seconds=source.start_seconds - span.seconds - 0.01,
        end_seconds=source.start_seconds - 0.01,
    )
    assert {"clocks_differ_by_a_constant", "spans_follow_their_inputs"} <= broken(moved)


@given(ahead=st.floats(-1e4, 1e4), early=st.floats(0.01, 10))
@settings(max_examples=20, deadline=None)
def test_a_span_moved_before_an_input_on_another_workers_clock(ahead: float, early: float) -> None:
    trace = run(split(), 3, clocks={"device1": ahead})
    span = span_of(trace, "old_logprob", 2)
    moved = with_span(
        trace, span, start_seconds=span.start_seconds - early, end_seconds=span.end_seconds - early
    )
    proof = prove(moved)
    assert "clocks_differ_by_a_constant" in proof.broken
    finding = next(f for f in proof.findings if f.property == "clocks_differ_by_a_constant")
    text = "\n".join(finding.counterexample)
    assert "span of old_logprob[step 2" in text
    assert "finished generate[step 2" in text  # the input that it would precede


def test_a_span_moved_behind_its_end() -> None:
    trace = run(split(), 3)
    span = span_of(trace, "reward", 1)
    moved = with_span(trace, span, start_seconds=span.start_seconds + 5, end_seconds=span.end_seconds + 5)
    assert "clocks_differ_by_a_constant" in broken(moved)
    assert broken(with_span(trace, span, end_seconds=span.start_seconds - 1)) >= {
        "spans_do_not_end_before_they_start"
    }


def test_a_part_that_left_before_its_generator_began() -> None:
    trace = run(streamed(), 3, seconds=lambda item: 1.0)
    part = entry_of(trace, What.PRODUCED, "generate", 1)
    span = span_of(trace, "generate", 1)
    late = with_span(trace, span, start_seconds=span.start_seconds + 0.9)
    assert part.seconds < late.spans[0].end_seconds + 100
    assert broken(late) == {"clocks_differ_by_a_constant"}


def test_an_item_commanded_before_its_inputs_event() -> None:
    trace = run(split(), 3)
    entries = list(trace.entries)
    launch = entry_of(trace, What.LAUNCH, "train_critic", 1)
    event = entry_of(trace, What.FINISHED, "advantage", 1)
    entries.remove(launch)
    entries.insert(entries.index(event), launch)
    proof = prove(renumbered(trace, entries))
    assert "inputs_precede_commands" in proof.broken
    assert any(
        "before advantages of advantage[step 1" in f.sentence or "before returns of" in f.sentence
        for f in proof.findings
    )


def test_an_item_commanded_before_its_part_left() -> None:
    trace = run(streamed_groups(), 3)
    entries = list(trace.entries)
    event = entry_of(trace, What.PRODUCED, "generate", 2)
    launch = next(
        e for e in entries
        if e.what is What.LAUNCH and e.item.name == "reward" and e.item.step == 2 and event.part in e.parts
    )  # fmt: skip
    entries.remove(launch)
    entries.insert(entries.index(event), launch)
    assert "inputs_precede_commands" in broken(renumbered(trace, entries))


def test_a_gap_and_a_disorder_of_the_log() -> None:
    trace = run(split(), 3)
    assert "log_has_no_gaps" in broken(
        replace(trace, entries=trace.entries[:9] + trace.entries[10:], complete=False)
    )
    assert "driver_clock_ascends" in broken(with_entry(trace, trace.entries[9], seconds=-1.0))


def test_a_missing_finish() -> None:
    trace = run(split(), 3)
    entries = [e for e in trace.entries if e is not entry_of(trace, What.FINISHED, "train_actor", 2)]
    assert "every_item_ran" in broken(renumbered(trace, entries))


def test_a_command_without_its_event_and_an_event_without_its_command() -> None:
    trace = run(split(), 3)
    launch = entry_of(trace, What.LAUNCH, "reward", 1)
    names = broken(renumbered(trace, [e for e in trace.entries if e is not launch]))
    assert {"events_follow_commands", "every_item_ran", "spans_answer_their_commands"} <= names


def test_an_item_that_runs_twice() -> None:
    trace = run(split(), 3)
    launch = entry_of(trace, What.LAUNCH, "train_actor", 1)
    end = entry_of(trace, What.FINISHED, "train_actor", 1)
    again = [*trace.entries, launch, end]
    twice = tuple(replace(e, seq=i) for i, e in enumerate(again))
    assert "items_run_once" in broken(replace(trace, entries=twice))


def test_an_item_that_the_plan_does_not_know() -> None:
    trace = run(split(), 3)
    launch = entry_of(trace, What.LAUNCH, "evaluate", 2)
    stranger = Item(ItemKind.RUN, "evaluate", 1)
    assert "items_are_the_plans" in broken(with_entry(trace, launch, item=stranger))
    assert "items_are_the_plans" in broken(with_entry(trace, launch, item=replace(stranger, name="nobody")))


def test_a_span_on_a_wrong_lane() -> None:
    trace = run(split(), 3)
    wrong = with_span(trace, span_of(trace, "old_logprob", 1), lane="device0")
    assert {"spans_are_on_planned_lanes", "every_lane_has_its_span", "lanes_have_one_worker"} <= broken(wrong)


def test_a_command_for_a_wrong_lane() -> None:
    trace = run(split(), 3)
    launch = entry_of(trace, What.LAUNCH, "old_logprob", 1)
    assert broken(with_entry(trace, launch, lanes=("device0",))) == {"commands_name_the_planned_lanes"}


def test_a_gang_that_lacks_a_lane_or_has_one_twice() -> None:
    trace = run(colocated(), 3)
    span = span_of(trace, "train_actor", 1, "device1")
    missing = replace(trace, spans=tuple(s for s in trace.spans if s is not span))
    assert "every_lane_has_its_span" in broken(missing)
    assert "every_lane_has_its_span" in broken(replace(trace, spans=(*trace.spans, span)))


def test_a_span_for_another_command() -> None:
    trace = run(split(), 3)
    span = span_of(trace, "reference", 1)
    assert "spans_answer_their_commands" in broken(with_span(trace, span, launch=span.launch + 1))


def swap(trace: Trace, first: Span, second: Span) -> Trace:
    """Two spans of a lane change their times."""
    new = {
        id(first): replace(first, start_seconds=second.start_seconds, end_seconds=second.end_seconds),
        id(second): replace(second, start_seconds=first.start_seconds, end_seconds=first.end_seconds),
    }
    return replace(trace, spans=tuple(new.get(id(s), s) for s in trace.spans))


@pytest.mark.parametrize("name", BY_NAME)
def test_two_spans_of_a_lane_swapped(name: str) -> None:
    trace = run(PLANS[name](), 3)
    lane = [s for s in trace.spans if s.lane == "device0"]
    assert "lanes_keep_the_order" in broken(swap(trace, lane[2], lane[3]))


def test_two_commands_of_a_lane_swapped() -> None:
    trace = run(split(), 3)
    entries = list(trace.entries)
    of = [e for e in entries if e.lanes == ("device1",)]
    a, b = entries.index(of[2]), entries.index(of[3])
    entries[a], entries[b] = entries[b], entries[a]
    assert "commands_keep_the_lane_order" in broken(renumbered(trace, entries))


def test_two_spans_that_overlap() -> None:
    trace = run(split(), 3)
    lane = [s for s in trace.spans if s.lane == "device1"]
    longer = with_span(trace, lane[2], end_seconds=lane[3].start_seconds + 0.01)
    assert "lanes_run_one_thing_at_a_time" in broken(longer)


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("change", [-1, 1, 2])
def test_one_version_changed(name: str, change: int) -> None:
    trace = run(PLANS[name](), 5)
    span = span_of(trace, "generate", 3)
    version = span.reads["actor"] + change
    names = broken(with_span(trace, span, reads={"actor": version}))
    assert "reads_are_as_commanded" in names
    if name != "latest":
        assert "exact_edges_use_their_bound" in names
    if not 2 + ("async" not in name and name != "latest") <= version <= 3:
        assert "versions_are_within_bounds" in names


def test_a_version_changed_in_span_and_command_alike() -> None:
    trace = run(asynchronous("latest"), 5)
    span, launch = span_of(trace, "generate", 3), entry_of(trace, What.LAUNCH, "generate", 3)
    other = {2: 3, 3: 2}[span.reads["actor"]]  # within the bound, and yet not what the memory holds
    changed = with_entry(with_span(trace, span, reads={"actor": other}), launch, versions={"actor": other})
    assert "weights_in_place_are_those_read" in broken(changed)


def test_a_version_read_before_it_was_made() -> None:
    trace = run(split(), 5)
    name = next(i.name for i in (s.item for s in trace.spans) if i.kind is ItemKind.TRANSFER)
    sync, span = entry_of(trace, What.SYNC, name, 2), span_of(trace, name, 2)
    early = with_entry(with_span(trace, span, reads={"actor": 3}), sync, versions={"actor": 3})
    assert {"versions_are_made_before_they_are_read", "versions_are_within_bounds"} <= broken(early)


def test_a_training_that_makes_a_wrong_version_or_none() -> None:
    trace = run(split(), 3)
    span = span_of(trace, "train_critic", 1)
    assert "training_makes_the_next_version" in broken(with_span(trace, span, makes={"critic": 3}))
    assert "versions_are_told" in broken(with_span(trace, span, makes={}))
    assert "versions_are_told" in broken(with_span(trace, span_of(trace, "value", 1), reads={}))


def test_a_digest_changed() -> None:
    trace = run(split(), 3)
    span = next(s for s in trace.spans if s.item.kind is ItemKind.TRANSFER)
    name = next(iter(span.digests))
    assert broken(with_span(trace, span, digests={name: "other bytes"})) == {"digests_agree"}
    assert broken(with_span(trace, span, digests={})) == {"movements_are_digested"}


def test_a_real_run_that_says_that_it_was_simulated() -> None:
    """No label spares a trace the comparison of its bytes, and the digests tell which label is right."""
    real = run(split(), 3)
    simulated = replace(real, source="simulated")
    span = next(s for s in simulated.spans if s.item.kind is ItemKind.TRANSFER)
    assert broken(simulated) == {"movements_are_digested"}
    assert broken(with_span(simulated, span, digests={})) == {"movements_are_digested"}
    digests = {name: f"sim:{name}" for name in span.digests}
    assert "movements_are_digested" in broken(with_span(real, span, digests=digests))


@pytest.mark.parametrize("tokens", [-5, 0, 1, 10**9])
def test_a_span_of_too_few_or_too_many_tokens(tokens: int) -> None:
    trace = run(colocated(), 3)
    span = span_of(trace, "old_logprob", 1)
    assert broken(with_span(trace, span, tokens=tokens)) == {"tokens_are_those_of_the_samples"}


def test_tokens_of_no_samples() -> None:
    trace = run(split(), 3)
    span = next(s for s in trace.spans if s.item.kind is ItemKind.TRANSFER)
    assert broken(with_span(trace, span, tokens=10**9)) == {"tokens_are_those_of_the_samples"}
    span = span_of(trace, "generate", 1)
    assert broken(with_span(trace, span, tokens=10**9)) == {"tokens_are_those_of_the_samples"}


def test_a_digest_of_what_was_not_there() -> None:
    trace = run(split(), 3)
    span = span_of(trace, "generate", 1)
    assert "movements_are_digested" in broken(with_span(trace, span, digests={"actor": "bytes"}))


def test_a_command_of_samples_for_an_item_that_has_none() -> None:
    trace = run(colocated(), 3)
    entry = next(e for e in trace.entries if e.what is What.LAUNCH and not e.ids)
    assert "items_work_on_their_samples" in broken(with_entry(trace, entry, ids=(0, 1)))


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf])
def test_a_time_that_is_no_number(seconds: float) -> None:
    trace = run(colocated(), 3)
    span, entry = span_of(trace, "old_logprob", 1), trace.entries[7]
    assert broken(with_span(trace, span, end_seconds=seconds))
    assert "driver_clock_ascends" in broken(with_entry(trace, entry, seconds=seconds))


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize(
    ("stage", "caught"),
    [
        ("generate", "each_sample_is_generated_once"),
        ("reward", "each_sample_is_assessed_once"),
        ("old_logprob", "each_sample_is_assessed_once"),
        ("advantage", "each_sample_is_assessed_once"),
        ("train_actor", "each_sample_is_trained_once"),
    ],
)
@pytest.mark.parametrize("lie", ["dropped", "doubled", "replaced"])
def test_one_sample_dropped_doubled_or_replaced(name: str, stage: str, caught: str, lie: str) -> None:
    trace = run(PLANS[name](), 3)
    span = span_of(trace, stage, 1)
    ids = {
        "dropped": span.ids[1:],
        "doubled": (*span.ids, span.ids[0]),
        "replaced": (*span.ids[1:], 2),  # a sample of step 0
    }[lie]
    names = broken(with_span(trace, span, ids=ids))
    assert {caught, "items_work_on_their_samples"} <= names
    assert ("samples_belong_to_their_step" in names) == (lie == "replaced")


def test_a_sample_that_two_ranks_train() -> None:
    trace = run(colocated(), 3)
    one, other = (span_of(trace, "train_actor", 1, lane) for lane in ("device0", "device1"))
    both = with_span(trace, one, ids=(*one.ids[:-1], other.ids[0]))
    proof = prove(both)
    assert any(
        f.property == "each_sample_is_trained_once"
        and f"sample {other.ids[0]} is trained 2 times" in f.sentence
        for f in proof.findings
    )


@pytest.mark.parametrize(("stage", "moved"), [("old_logprob", "swapped"), ("train_actor", "given away")])
def test_parts_that_exchange_their_samples(stage: str, moved: str) -> None:
    """Told alike by commands and spans, every sample still worked on once."""
    trace = run(in_parts(), 3)
    parts = [e for e in trace.entries if e.what is What.LAUNCH and (e.item.name, e.item.step) == (stage, 1)]
    one, other = parts[0].ids, parts[1].ids
    new = (
        {parts[0].item: (other[0], *one[1:]), parts[1].item: (one[0], *other[1:])}
        if moved == "swapped"
        else {parts[0].item: one[1:], parts[1].item: (one[0], *other)}
    )
    entries = tuple(
        replace(e, ids=new[e.item]) if e.what is What.LAUNCH and e.item in new else e for e in trace.entries
    )
    spans = tuple(
        replace(s, ids=new[s.item], tokens=8 * len(new[s.item])) if s.item in new else s for s in trace.spans
    )
    assert broken(replace(trace, entries=entries, spans=spans)) == {"fixed_parts_hold_their_members"}


def test_lanes_of_one_rank_that_work_on_different_samples() -> None:
    trace = run(tensor_parallel(), 2)
    one, shard = (span_of(trace, "train_actor", 1, lane) for lane in ("device0", "device1"))
    assert one.ids == shard.ids
    assert broken(with_span(trace, shard, ids=())) == set()  # one of a rank's lanes may tell for all
    assert broken(with_span(trace, shard, ids=shard.ids[1:])) == {"ranks_work_on_one_share"}


def test_a_part_that_holds_other_samples() -> None:
    trace = run(streamed(), 3)
    part = entry_of(trace, What.PRODUCED, "generate", 1)
    assert "parts_hold_what_was_generated" in broken(with_entry(trace, part, ids=part.ids[1:]))
    assert "parts_hold_what_was_generated" in broken(with_entry(trace, part, ids=(part.ids[0],) * 2))
    assert {"every_part_left"} <= broken(with_entry(trace, part, part=99))


def test_memory_beyond_the_device() -> None:
    trace = run(split(), 3)
    span = span_of(trace, "train_actor", 1)
    assert broken(with_span(trace, span, memory_bytes=MEMORY_BYTES + 1)) == {"memory_is_within_the_device"}
    host = with_span(trace, span_of(trace, "reward", 1), memory_bytes=MEMORY_BYTES + 1)
    assert broken(host) == set()


def test_an_unsound_plan_proves_nothing() -> None:
    trace = run(split(), 2)
    plan = replace(trace.plan, order=trace.plan.order[:1])
    assert prove(replace(trace, plan=plan)).broken == ("plan_can_run",)


def test_a_failed_proof_names_its_counterexample() -> None:
    trace = run(split(), 3)
    proof = prove(with_span(trace, span_of(trace, "old_logprob", 1), memory_bytes=2 * MEMORY_BYTES))
    with pytest.raises(
        VerificationError, match=r"old_logprob\[step 1, part 0, replica 0\] held 2 GiB on device1"
    ) as raised:
        demand(proof)
    assert "memory is within the device:" in str(raised.value)
    assert "span of old_logprob[step 1" in str(raised.value)


def test_what_is_used_while_it_rests_in_host_memory() -> None:
    trace = run(resting(), 3)
    assert prove(trace).holds
    reload = span_of(trace, "reference:model", 1, "device0")
    used = span_of(trace, "reference", 1, "device0")
    late = with_span(trace, reload, start_seconds=used.end_seconds + 1, end_seconds=used.end_seconds + 1.1)
    finding = next(f for f in prove(late).findings if f.property == "what_rests_is_there_when_used")
    assert (
        "reference[step 1, part 0, replica 0] ran on device0 while reference:model was in host memory"
        in finding.sentence
    )
    twice = replace(trace, spans=(*trace.spans, replace(reload, end_seconds=reload.start_seconds + 0.01)))
    assert "what_rests_is_there_when_used" in broken(twice)


def verdicts(trace: Trace, what: What, why: str = "") -> Entry:
    return next(e for e in trace.entries if e.what is what and e.item.name == "select" and e.why == why)


def test_a_candidate_that_is_judged_never_or_twice() -> None:
    trace = run(selecting(), 3)
    assert prove(trace).holds
    rejected = verdicts(trace, What.REJECTED, "drawn")
    silent = with_entry(trace, rejected, ids=rejected.ids[2:])
    assert broken(silent) == {"every_candidate_is_judged_once"}
    accepted = next(e for e in trace.entries if e.what is What.PRODUCED and e.item == rejected.item)
    both = with_entry(trace, rejected, ids=(*rejected.ids, *accepted.ids[:2]))
    assert broken(both) == {"every_candidate_is_judged_once"}


def test_what_was_kept_is_not_lost() -> None:
    trace = run(keeping(), 8)
    kept = verdicts(trace, What.KEPT)
    finding = prove(with_entry(trace, kept, ids=(*kept.ids, 8, 9))).findings[0]
    assert finding.property == "every_candidate_is_judged_once"
    other = trace.entries[kept.seq + 1 :]
    later = next(e for e in other if e.what is What.PRODUCED and set(e.ids) & set(kept.ids))
    assert later.item.step == kept.item.step + 1
    lost = with_entry(trace, later, ids=tuple(i for i in later.ids if i not in kept.ids))
    assert "every_candidate_is_judged_once" in broken(lost)


def test_a_rejected_group_that_is_trained() -> None:
    trace = run(selecting(), 3)
    rejected = verdicts(trace, What.REJECTED, "drawn")
    span = span_of(trace, "train_actor", rejected.item.step)
    trained = with_span(trace, span, ids=(*rejected.ids[:2], *span.ids[2:]))
    assert "each_sample_is_trained_once" in broken(trained)


def test_half_a_group_is_accepted() -> None:
    trace = run(selecting(), 3)
    rejected = verdicts(trace, What.REJECTED, "drawn")
    assert "groups_are_accepted_whole" in broken(with_entry(trace, rejected, ids=rejected.ids[1:]))


def test_a_later_prompt_that_is_preferred() -> None:
    trace = run(selecting(), 6)
    over = verdicts(trace, What.REJECTED, OVER_QUOTA)
    accepted = next(e for e in trace.entries if e.what is What.PRODUCED and e.item == over.item)
    swapped = with_entry(trace, over, ids=(*accepted.ids[:2], *over.ids[2:]))
    now = next(e for e in swapped.entries if e.what is What.PRODUCED and e.item == over.item)
    swapped = with_entry(swapped, now, ids=(*accepted.ids[2:], *over.ids[:2]))
    assert "accepted_are_the_first" in broken(swapped)


def test_a_round_that_nobody_needed_and_one_too_few() -> None:
    trace = run(selecting(), 3)
    first = next(e for e in trace.entries if e.what is What.LAUNCH and e.item.name == "select")
    assert "rounds_end_when_the_quota_is_filled" in broken(with_entry(trace, first, wanted=first.wanted + 2))
    easy = Workload(4, 2, constant(4), constant(8), 2, selection=Selection(4, 3, 0.0))
    filled = run(selecting(easy), 2)
    assert prove(filled).holds
    assert {e.item.part for e in filled.entries if e.item.name == "generate"} == {0}
    extra = Entry(len(filled.entries), 1e3, What.LAUNCH, Item(ItemKind.RUN, "reward", 0, 1), ("host0.0",))
    assert "rounds_end_when_the_quota_is_filled" in broken(replace(filled, entries=(*filled.entries, extra)))
