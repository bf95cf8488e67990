"""`rpeg plan --json`: everything that the report shows, as plain values with their units in the names.

docs/planning.md describes each field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rpeg.plan import Assignment, Devices, plan_to_json
from rpeg.report import comparison, forecast, limits
from rpeg.report.model_error import model_errors
from rpeg.report.words import applied, slot_words, where
from rpeg.search import Candidate, Effect, Problem, Ranked
from rpeg.sim import DeviceMemory

SCHEMA = 1


def ranked_json(
    ranked: Ranked, chosen: Candidate, problem: Problem, sensitivity: Sequence[Effect] = ()
) -> dict[str, Any]:
    """JSON-ready: the chosen plan whole, what it is compared with, all estimates, and what they rest on."""
    return {
        "schema": SCHEMA,
        "job": {
            "graph": problem.graph.name,
            "cluster": problem.cluster.name,
            "devices": len(problem.cluster),
            "samples_per_step": problem.workload.samples,
        },
        "chosen": {**candidate_json(chosen), "plan": plan_to_json(chosen.plan)},
        "compared": [
            {
                **candidate_json(row.candidate),
                "name": row.label,
                "speed_up": comparison.speed_up(chosen, row.candidate),
            }
            for row in comparison.compared(ranked, chosen)
        ],
        "without_plan": [
            {"name": b.name, "reason": b.reason}
            for b in comparison.all_baselines(ranked)
            if b.candidate is None
        ],
        "other_kinds": [
            {"number": row.number, "name": row.label} for row in comparison.next_best(ranked, chosen)
        ],
        "candidates": [candidate_json(c) for c in ranked.candidates],
        "left_out": [asdict(misfit) for misfit in ranked.misfits],
        "what_if": [
            {**asdict(one), "after_seconds": one.after_seconds, "device_hours": one.device_hours}
            for one in sensitivity
        ],
        "model_error": {} if problem.is_local else {kind: asdict(e) for kind, e in model_errors().items()},
        "assumptions": list(problem.assumptions),
    }


def candidate_json(candidate: Candidate) -> dict[str, Any]:
    """A plan in short, and its estimate."""
    e, plan = candidate.estimate, candidate.plan
    return {
        "name": candidate.name,
        "layouts": {a.stage: _layout(a) for a in plan.assignments if isinstance(a.block, Devices)},
        "structure": [
            {
                "transform": str(t),
                "what": t.words,
                "changes": str(t.changes),
                "learning": t.learning,
            }
            for t in applied(plan)
        ],
        "step_seconds": {
            "mean": e.step.mean_seconds,
            "p50": e.step.p50_seconds,
            "p95": e.step.p95_seconds,
            "drawn_steps": e.step.steps,
        },
        "response_tokens_per_second": e.tokens_per_second,
        "response_tokens_per_second_per_device": e.tokens_per_second / len(plan.cluster),
        "mfu": e.mfu,
        "staleness": {**asdict(e.staleness), "mean": e.staleness.mean},
        "measured_share": e.measured_share,
        "per_1000_steps": {
            "device_hours": forecast.device_hours(candidate),
            "price": forecast.money(candidate),
            "price_source": forecast.price_source(plan.cluster),
        },
        "memory": [_memory(memory) for memory in e.memory],
        "bounds": [
            {"by": b.by, "what": b.what, "seconds": b.seconds, "gap": e.gap_to(b)} for b in e.bounds.all
        ],
        "critical_cycle": _cycle(candidate),
        "device_groups": _groups(candidate),
        "stage_seconds": dict(e.stages),
        "occupancy": dict(e.occupancy),
    }


def _layout(a: Assignment) -> dict[str, Any]:
    assert isinstance(a.block, Devices)
    return {
        "devices": list(a.block.ids),
        **asdict(a.parallelism),
        "microbatch": a.microbatch,
        "recompute": a.recompute,
        "offload": a.offload,
    }


def _memory(memory: DeviceMemory) -> dict[str, Any]:
    return {
        "of": memory.name,
        "alike": memory.alike,
        "capacity_bytes": memory.capacity_bytes,
        "held_bytes": {phase.phase: phase.bytes for phase in memory.phases},
        "left_bytes": forecast.headroom_bytes(memory),
    }


def _cycle(candidate: Candidate) -> list[Mapping[str, Any]]:
    plan, e = candidate.plan, candidate.estimate
    return [
        {
            "item": slot_words(link.src),
            "where": where(plan, link.src),
            "seconds": link.seconds,
            "then": link.why,
        }
        for link in e.critical.cycle
    ]


def _groups(candidate: Candidate) -> list[Mapping[str, Any]]:
    return [
        {"devices": list(group.ids), "stages": list(group.stages), "idle_share": share}
        for group, share in limits.idle_shares(candidate.estimate, candidate.plan)
    ]
