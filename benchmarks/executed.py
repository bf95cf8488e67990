"""Gains executed beside gains predicted: `python benchmarks/executed.py`; kept in results/executed.json, row by row.

For each of the 20 jobs of `gains.py`, with all that its table allows: the plan that the search chooses and the fully
colocated one in one layout (baseline A) are run by the real driver on fake devices at the costs of GH200 or A100, with
every item's seconds multiplied by a random factor (lognormal, ±10 %). On a virtual clock with several seeds; once on
Ray's processes with seconds scaled down, where what the driver and this machine take counts too. What is executed and
what is predicted rest on one cost model: this is evidence on driver and scheduler, not on hardware.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

from driver import Quiet
from gains import ALLOWED, A, Job, jobs
from rpeg.plan import Plan, read_plan, write_plan
from rpeg.runtime.checkpoints import Checkpoints
from rpeg.runtime.driver import Driver
from rpeg.runtime.fake.injection import Injection
from rpeg.runtime.fake.pretend import Fake, fakes, initial_weights
from rpeg.runtime.fake.virtual import VirtualLoop
from rpeg.runtime.run_directory import RunDirectory
from rpeg.search import Budget, plan_job
from rpeg.sim import StageCosts, simulate, step_time
from rpeg.trace import begin_stretch, end_stretch, fill_steps, read_traces
from rpeg.verify import prove

OUT = Path(__file__).resolve().parent / "results" / "executed.json"
NOISE, SEEDS, STEADY = 0.1, 3, 10
SCALED_STEP_SECONDS, SCALED_STEADY = 3.0, 4
"""Of the faster plan, on processes."""
BASE, BEST = "colocated", "chosen"


@dataclass(frozen=True)
class Ran:
    """A run: mean seconds of its steady step, and whether its trace is proven."""

    seconds: float
    proven: bool


def chosen(job: Job, budget: Budget, kept: Path) -> dict[str, tuple[Plan, float]]:
    """The colocated plan in one layout and the best with all that is allowed, each with its predicted seconds.

    kept: a directory for them, so that a later run need not search again.
    """
    file = kept / f"{job.name}.json"
    if not file.exists():
        wide = "sharing and staleness 1" if job.algorithm == "ppo" else "staleness 1"
        ranked = plan_job(job.problem(ALLOWED[wide]), budget=budget)
        base = {b.name: b.candidate for b in ranked.baselines}[A]
        assert base is not None
        found = {BASE: base, BEST: ranked.best}
        for name, candidate in found.items():
            write_plan(candidate.plan, kept / f"{job.name}, {name}.json")
        seconds = {name: candidate.estimate.step.mean_seconds for name, candidate in found.items()}
        file.write_text(json.dumps(seconds))
    predicted = json.loads(file.read_text())
    return {
        name: (read_plan(kept / f"{job.name}, {name}.json"), seconds) for name, seconds in predicted.items()
    }


def on_a_virtual_clock(job: Job, plans: Mapping[str, tuple[Plan, float]]) -> dict[str, Any]:
    runs = {name: [_virtual(job, plan, seed) for seed in range(SEEDS)] for name, (plan, _) in plans.items()}
    gains = [a.seconds / b.seconds for a, b in zip(runs[BASE], runs[BEST], strict=True)]
    return {
        "gain": mean(gains),
        "gains": gains,
        "seconds": {name: [run.seconds for run in found] for name, found in runs.items()},
        "proven": all(run.proven for found in runs.values() for run in found),
    }


def on_processes(job: Job, plans: Mapping[str, tuple[Plan, float]]) -> dict[str, Any]:
    """Seconds are the cost model's again: those that passed here by the scale."""
    scale = SCALED_STEP_SECONDS / plans[BEST][1]
    runs = {name: _scaled(job, plan, scale) for name, (plan, _) in plans.items()}
    return {
        "gain": runs[BASE].seconds / runs[BEST].seconds,
        "scale": scale,
        "seconds": {name: run.seconds / scale for name, run in runs.items()},
        "proven": all(run.proven for run in runs.values()),
    }


def _virtual(job: Job, plan: Plan, seed: int) -> Ran:
    fake = Fake(StageCosts(plan, _facts(job)), injection=Injection(seed, NOISE))
    return _run(plan, fake, 2 * fill_steps(plan) + STEADY)


def _scaled(job: Job, plan: Plan, scale: float) -> Ran:
    fake = Fake(StageCosts(plan, _facts(job)), scale, Injection(0, NOISE))
    steps = 2 * fill_steps(plan) + SCALED_STEADY
    simulate(plan, fake.work, steps, samples=False)  # workers then only wait
    return _run(plan, fake, steps)


def _facts(job: Job) -> Any:
    return job.problem(ALLOWED["synchronous"]).facts


def _run(plan: Plan, fake: Fake, steps: int) -> Ran:
    with TemporaryDirectory() as place:
        directory = Path(place)
        write_plan(plan, directory / "plan.json")
        stretch = begin_stretch(directory, "fake", steps, 0)
        with asyncio.Runner(loop_factory=VirtualLoop if fake.scale is None else None) as runner:
            runner.run(_drive(plan, fake, steps, stretch))
        end_stretch(stretch)
        (trace,) = read_traces(directory)
    return Ran(step_time(trace).mean_seconds, prove(trace).holds)


async def _drive(plan: Plan, fake: Fake, steps: int, trace: Path) -> None:
    with fakes(plan, fake, 0, trace, None) as handles:
        keep = Checkpoints(RunDirectory(trace.parent), every=0, keep=1, seed=0)
        stall_seconds = 1e9 if fake.scale is None else 300.0
        weights = initial_weights(plan, 0)
        driver = Driver(plan, steps, 0, handles, weights, trace, keep, Quiet(), stall_seconds)
        for handle in dict.fromkeys(handles.values()):
            await handle.ready()
        await driver.run()
        for handle in dict.fromkeys(handles.values()):
            await handle.close()


def row_of(job: Job, plans: Mapping[str, tuple[Plan, float]]) -> dict[str, Any]:
    predicted = {name: seconds for name, (_, seconds) in plans.items()}
    return {
        "devices": f"fake devices, {job.kind} costs",
        "transforms": list(plans[BEST][0].applied),
        "predicted_seconds": predicted,
        "predicted_gain": predicted[BASE] / predicted[BEST],
    }


def line(name: str, row: dict[str, Any], how: str) -> str:
    found = row[how]
    proven = "proven" if found["proven"] else "NOT proven"
    gains = f"predicted {row['predicted_gain']:.3f} ×, executed {found['gain']:.3f} ×"
    return f"{name} ({row['devices']}), {how}: {gains}; {proven}"


def summary(rows: dict[str, dict[str, Any]]) -> Iterator[str]:
    for how in HOWS:
        found = [row for row in rows.values() if how in row]
        if found:
            ratios = sorted(row[how]["gain"] / row["predicted_gain"] for row in found)
            proven = sum(row[how]["proven"] for row in found)
            yield (
                f"{how}: executed over predicted gain {ratios[0]:.3f} – {ratios[-1]:.3f}, median {median(ratios):.3f}; "
                f"{proven} of {len(found)} jobs proven"
            )


HOWS = {"virtual clock": on_a_virtual_clock, "processes": on_processes}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--plans", type=Path, default=Path(gettempdir()) / "rpeg-executed", help="kept here")
    parser.add_argument("--jobs", type=int, nargs="*", help="numbers of jobs, 0 … 19 (default: all)")
    parser.add_argument("--how", choices=HOWS, nargs="*", default=list(HOWS))
    parser.add_argument("--again", action="store_true", help="what is there already too")
    a = parser.parse_args()
    a.plans.mkdir(parents=True, exist_ok=True)
    budget = Budget(chains=2, rounds=3, burst=4000)  # that of results/gains.json
    rows = json.loads(a.out.read_text())["jobs"] if a.out.exists() else {}
    for number in range(len(jobs())) if a.jobs is None else a.jobs:
        job = jobs()[number]
        due = [how for how in a.how if a.again or how not in rows.get(job.name, {})]
        if not due:
            continue
        plans = chosen(job, budget, a.plans)
        row = rows[job.name] = rows.get(job.name, {}) | row_of(job, plans)
        for how in due:
            row[how] = HOWS[how](job, plans)
            print(line(job.name, row, how), flush=True)
            kept = {"noise": NOISE, "seeds": SEEDS, "jobs": rows}
            a.out.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(*summary(rows), sep="\n")


if __name__ == "__main__":
    main()
