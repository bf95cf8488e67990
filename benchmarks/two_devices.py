"""Plans on two devices: how near the chosen one comes to its bound and to the best colocated one; what streams bring.

    python benchmarks/two_devices.py --out benchmarks/results/two_devices.json
    python benchmarks/two_devices.py --only grpo --rounds 5

Of each workload these plans run in turn, so that slow phases of the machine meet all of them alike: the one that planning
chooses; the fastest that has every stage on both devices; and of the placement that streams are predicted to help most,
the streamed plan and the one without. Printed of each workload, with medians over rounds of a run's median step:

    bound      the step over the larger of two bounds at the *measured* times of items: the busiest lane, and the cycle of
               dependencies without lanes; 1.10 is 10 % above
    colocated  the chosen plan's step over the colocated one's; 1 where the chosen plan is colocated
    streams    measured gain of streaming, less 1, over the simulated one, less 1

Exits 1 where a chosen plan is more than 10 % above its bound or more than 2 % slower than the colocated one, or where all
streams together bring less than 0.8 of what was simulated. Workloads that the output has already are left out.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

from learning import SHARED, example
from rpeg.cli._planning import problem_of
from rpeg.job import Job
from rpeg.plan import Lowered, Plan, Slot, digest, lower
from rpeg.report.compare import compare
from rpeg.report.live import PlainView
from rpeg.report.occupancy import steady_window
from rpeg.runtime import Options, prepare_directory, train
from rpeg.search import Candidate, Ranked, plan_job
from rpeg.sim.bounds import busiest_lane, dependencies, lane_seconds
from rpeg.sim.events import Times
from rpeg.trace import Trace, What, read_traces
from rpeg.verify import prove_run
from slow_reward import SECONDS

ABOVE_BOUND, SLOWER, OF_GAIN = 0.10, 0.02, 0.8
SKIP = 2
"""Steps at the start of a run that do not count."""

SLOW = {
    "reward": {
        "name": "python:slow_reward:judged",
        "import_from": str(Path(__file__).parent),
        "workers": 4,
        "expected_seconds": SECONDS,
    },
    "batch": {"prompts": 64},
}
BIG = {"batch": {"prompts": 48}}
STALE = {"allow": {"staleness": 1}, "plan": {"staleness": 1}}
WORKLOADS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "ppo": ("ppo", {}),
    "ppo, 48 prompts": ("ppo", BIG),
    "ppo, one minibatch": ("ppo", {"batch": {"prompts": 48, "minibatches": 1}}),
    "ppo, slow reward": ("ppo", SLOW),
    "ppo, shared": ("ppo", {**SHARED, **BIG}),
    "ppo, staleness 1": ("ppo", {**BIG, **STALE}),
    "grpo": ("grpo", {}),
    "grpo, 48 prompts": ("grpo", BIG),
    "grpo, 16 samples a prompt": ("grpo", {"batch": {"prompts": 24, "samples_per_prompt": 16}}),
    "grpo, staleness 1": ("grpo", {**BIG, **STALE}),
}


@dataclass(frozen=True)
class Row:
    """What one workload shows; names are of plans, steps in seconds. streams: None where none is predicted to help."""

    chosen: str
    colocated: str
    steps_seconds: Mapping[str, tuple[float, ...]]
    above_bound: float
    over_colocated: float
    streamed: str | None
    simulated_gain: float | None
    measured_gain: float | None
    proven: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10, help="of each run; the first two do not count")
    parser.add_argument("--only", help="workloads whose name has this in it")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    console = Console(highlight=False, width=140)
    kept = json.loads(arguments.out.read_text()) if arguments.out and arguments.out.exists() else {}
    for name, (base, changes) in WORKLOADS.items():
        if name in kept or (arguments.only or "") not in name:
            continue
        job = example(base, {**changes, "cluster": {"cpu": 2}, "evaluation": {"every": 0}})
        row = measured(job.model_copy(update={"steps": arguments.steps}), arguments.rounds)
        kept[name] = asdict(row)
        console.print(line(name, kept[name]), markup=False)
        if arguments.out:
            arguments.out.write_text(json.dumps(kept, indent=1) + "\n")
    failures = list(verdict(kept))
    for failure in failures:
        console.print(failure, markup=False)
    sys.exit(1 if failures else 0)


def measured(job: Job, rounds: int) -> Row:
    """Plans a workload and runs its plans in turn."""
    ranked = plan_job(problem_of(job, lambda _: None))
    colocated = next(c for c in by_time(ranked) if c.construction.placement.name == "colocated")
    pair = streamed_pair(ranked)
    plans = {digest(c.plan): c for c in (ranked.chosen, colocated, *(pair or ()))}
    steps: dict[str, list[float]] = defaultdict(list)
    bounds: list[float] = []
    proven = True
    with TemporaryDirectory() as directory:
        for _ in range(rounds):
            for key, candidate in plans.items():
                traces = run(job, candidate.plan, Path(directory) / "run")
                proven = proven and prove_run(traces).holds
                found = compare(traces[0], traces[0], skip=SKIP).step.measured
                assert found is not None
                steps[key].append(found)
                if candidate is ranked.chosen:
                    bounds.append(above_bound(traces[0]))
    step = {key: median(seconds) for key, seconds in steps.items()}
    whole, streamed = (step[digest(c.plan)] for c in pair) if pair else (None, None)
    chosen = digest(ranked.chosen.plan)
    return Row(
        ranked.chosen.name,
        colocated.name,
        {candidate.name: tuple(steps[key]) for key, candidate in plans.items()},
        median(bounds),
        step[chosen] / step[digest(colocated.plan)],
        pair[1].name if pair else None,
        simulated(pair[0]) / simulated(pair[1]) if pair else None,
        whole / streamed if whole and streamed else None,
        proven,
    )


def by_time(ranked: Ranked) -> list[Candidate]:
    return sorted(ranked.candidates, key=simulated)


def simulated(candidate: Candidate) -> float:
    return candidate.estimate.step.mean_seconds


def streamed_pair(ranked: Ranked) -> tuple[Candidate, Candidate] | None:
    """(whole, streamed) of the placement and staleness at which a stream is predicted to gain most."""
    whole: dict[tuple[str, int], Candidate] = {}
    for c in by_time(ranked):
        if not c.construction.parts:
            whole.setdefault((c.construction.placement.name, c.construction.staleness), c)
    pairs = [
        (whole[key], c)
        for c in by_time(ranked)
        if c.construction.parts
        and (key := (c.construction.placement.name, c.construction.staleness)) in whole
    ]
    best = max(pairs, key=lambda pair: simulated(pair[0]) / simulated(pair[1]), default=None)
    return best if best and simulated(best[0]) > simulated(best[1]) else None


def run(job: Job, plan: Plan, output: Path) -> tuple[Trace, ...]:
    """The trace that a plan leaves."""
    here = job.model_copy(update={"output": str(output)})
    options = Options(overwrite=True, export=False)
    directory, _, start = prepare_directory(here, plan, options)
    train(here, plan, directory, start, options, PlainView(Console(quiet=True), here.steps))
    return read_traces(directory.path)


def above_bound(trace: Trace) -> float:
    """The mean steady step over the larger bound at the mean times of its items."""
    plan = trace.plan
    lowered = lower(plan.graph, plan.assignments, plan.workload)
    window = steady_window(trace, SKIP)
    times = item_times(trace, lowered, range(window.first_step, window.first_step + window.steps))
    bounds = (busiest_lane(lane_seconds(lowered, plan.order, times)), dependencies(lowered, times))
    return window.seconds / window.steps / max(bound.seconds for bound in bounds)


def item_times(trace: Trace, lowered: Lowered, steps: range) -> Times:
    """Mean seconds of each item on its slowest lane, and from its command to the leaving of each part."""
    longest: dict[Slot, dict[int, float]] = defaultdict(dict)
    for span in trace.spans:
        if span.item.step in steps:
            by_step = longest[span.item.slot]
            by_step[span.item.step] = max(by_step.get(span.item.step, 0.0), span.seconds)
    begun = {entry.item: entry.seconds for entry in trace.entries if entry.what.begins}
    left: dict[tuple[Slot, int], list[float]] = defaultdict(list)
    for entry in trace.entries:
        if entry.what is What.PRODUCED and entry.part is not None and entry.item.step in steps:
            left[entry.item.slot, entry.part].append(entry.seconds - begun[entry.item])
    durations = {slot: mean(longest[slot].values()) if slot in longest else 0.0 for slot in lowered.tasks}
    # A part cannot leave after its item's end: what lies between is the way to the driver, which no bound counts.
    return durations, {key: min(mean(offsets), durations[key[0]]) for key, offsets in left.items()}


def line(name: str, row: Mapping[str, Any]) -> str:
    streams = "no stream helps"
    if row["simulated_gain"] is not None:
        streams = f"streams {row['measured_gain']:.3f} of simulated {row['simulated_gain']:.3f}"
    proven = "proven" if row["proven"] else "NOT PROVEN"
    return (
        f"{name}: {row['chosen']}; bound × {row['above_bound']:.3f}; colocated × {row['over_colocated']:.3f}; "
        f"{streams}; {proven}"
    )


def verdict(rows: Mapping[str, Mapping[str, Any]]) -> Iterable[str]:
    """What is not as it should be, in words."""
    for name, row in rows.items():
        if row["above_bound"] > 1 + ABOVE_BOUND:
            yield f"{name}: {row['above_bound'] - 1:.0%} above the bound"
        if row["over_colocated"] > 1 + SLOWER:
            yield f"{name}: {row['over_colocated'] - 1:.1%} slower than {row['colocated']}"
        if not row["proven"]:
            yield f"{name}: a trace is not proven"
    pairs = [(r["measured_gain"] - 1, r["simulated_gain"] - 1) for r in rows.values() if r["simulated_gain"]]
    if pairs and (share := sum(m for m, _ in pairs) / sum(s for _, s in pairs)) < OF_GAIN:
        yield f"streams bring {share:.2f} of what was simulated"


if __name__ == "__main__":
    main()
