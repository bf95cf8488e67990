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
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any

from driver import Quiet
from gains import ALLOWED, A, Job, jobs
from rpeg.plan import Plan, write_plan
from rpeg.runtime.driver import Checkpoints, Driver
from rpeg.runtime.fake.injection import Injection
from rpeg.runtime.fake.pretend import Fake, fakes, initial_weights
from rpeg.runtime.fake.virtual import VirtualLoop
from rpeg.runtime.run_directory import RunDirectory
from rpeg.search import Budget, Candidate, plan_job
from rpeg.sim import StageCosts, simulate, step_time
from rpeg.trace import begin_stretch, end_stretch, fill_steps, read_traces
from rpeg.verify import prove

OUT = Path(__file__).resolve().parent / "results" / "executed.json"
NOISE, SEEDS, STEADY = 0.1, 3, 10
SCALED_STEP_SECONDS, SCALED_STEADY = 2.0, 6
"""Of the faster plan, on processes."""


def chosen(job: Job, budget: Budget) -> tuple[Candidate, Candidate]:
    """(the best plan with all that is allowed, the colocated one in one layout)."""
    wide = "sharing and staleness 1" if job.algorithm == "ppo" else "staleness 1"
    ranked = plan_job(job.problem(ALLOWED[wide]), budget=budget)
    found = {b.name: b.candidate for b in ranked.baselines}[A]
    assert found is not None
    return ranked.best, found


def executed(job: Job, budget: Budget) -> dict[str, Any]:
    """A row, but for the run on processes."""
    best, base = chosen(job, budget)
    predicted = [c.estimate.step.mean_seconds for c in (base, best)]
    runs = [[_virtual(job, c.plan, seed) for c in (base, best)] for seed in range(SEEDS)]
    scale = SCALED_STEP_SECONDS / predicted[1]
    scaled = [_scaled(job, c.plan, scale) for c in (base, best)]
    found = [b[0] / p[0] for b, p in runs]
    return {
        "job": job.name,
        "devices": f"fake, {job.kind} costs",
        "plans": [c.name for c in (base, best)],
        "predicted_seconds": predicted,
        "predicted_gain": predicted[0] / predicted[1],
        "virtual_seconds": [[seconds for seconds, _ in pair] for pair in runs],
        "virtual_gain": mean(found),
        "virtual_gains": found,
        "scale": scale,
        "scaled_seconds": [seconds / scale for seconds, _ in scaled],
        "scaled_gain": scaled[0][0] / scaled[1][0],
        "proven": all(proven for pair in (*runs, scaled) for _, proven in pair),
    }


def _virtual(job: Job, plan: Plan, seed: int) -> tuple[float, bool]:
    fake = Fake(StageCosts(plan, _facts(job)), injection=Injection(seed, NOISE))
    return _run(plan, fake, 2 * fill_steps(plan) + STEADY)


def _scaled(job: Job, plan: Plan, scale: float) -> tuple[float, bool]:
    fake = Fake(StageCosts(plan, _facts(job)), scale, Injection(0, NOISE))
    steps = 2 * fill_steps(plan) + SCALED_STEADY
    simulate(plan, fake.work, steps, samples=False)  # workers then only wait
    return _run(plan, fake, steps)


def _facts(job: Job) -> Any:
    return job.problem(ALLOWED["synchronous"]).facts


def _run(plan: Plan, fake: Fake, steps: int) -> tuple[float, bool]:
    """(mean seconds of a steady step, whether the trace is proven)."""
    with TemporaryDirectory() as place:
        directory = Path(place)
        write_plan(plan, directory / "plan.json")
        stretch = begin_stretch(directory, "fake", steps, 0)
        with asyncio.Runner(loop_factory=VirtualLoop if fake.scale is None else None) as runner:
            runner.run(_drive(plan, fake, steps, stretch))
        end_stretch(stretch)
        (trace,) = read_traces(directory)
    return step_time(trace).mean_seconds, prove(trace).holds


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


def line(row: dict[str, Any]) -> str:
    return (
        f"{row['job']} ({row['devices']}): predicted {row['predicted_gain']:.3f} ×, executed {row['virtual_gain']:.3f} × "
        f"(virtual, ±10 %), {row['scaled_gain']:.3f} × (processes); "
        + ("proven" if row["proven"] else "NOT proven")
    )


def summary(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield f"{len(rows)} jobs, {sum(row['proven'] for row in rows)} with all their traces proven"
    for what in ("virtual", "scaled"):
        ratios = sorted(row[f"{what}_gain"] / row["predicted_gain"] for row in rows)
        yield (
            f"{what}: executed over predicted gain {ratios[0]:.3f} – {ratios[-1]:.3f}, median {median(ratios):.3f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--jobs", type=int, nargs="*", help="numbers of jobs, 0 … 19 (default: all)")
    parser.add_argument("--again", action="store_true", help="jobs that are there already too")
    a = parser.parse_args()
    budget = Budget(chains=2, rounds=3, burst=4000)  # that of results/gains.json
    rows = json.loads(a.out.read_text())["jobs"] if a.out.exists() else {}
    for number in range(len(jobs())) if a.jobs is None else a.jobs:
        job, began = jobs()[number], time.process_time()
        if job.name in rows and not a.again:
            continue
        rows[job.name] = executed(job, budget)
        print(f"{line(rows[job.name])}  {time.process_time() - began:.0f} s", flush=True)
        kept = {"noise": NOISE, "seeds": SEEDS, "jobs": rows}
        a.out.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(*summary(list(rows.values())), sep="\n")


if __name__ == "__main__":
    main()
