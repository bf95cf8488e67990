"""What the driver costs: `python benchmarks/driver.py`; kept in results/driver.json.

GRPO of an 8B model on 256 and on 2,048 GH200, 16 samples a device and step, every device a lane of its own: all stages on
all devices, or assessment and training on a quarter of them. Each replica of a generator is an item, and so is each
transfer to it; assessment and training are gangs. The real driver runs it on fake devices: Ray actors of many devices
each, the cost model's seconds scaled down. Printed are

- the driver's processor time an item (a gang on all devices is one), all threads of its process, and of its event loop;
- calls (one of each process that an item is on) and lanes, an item;
- the latency of a dispatch: from the writing of a command to the start of its work, by this machine's one clock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from rpeg.cluster import system
from rpeg.ir import Kind
from rpeg.job import load_job
from rpeg.plan import Assignment, Devices, Host, Parallelism, Plan, check, lower, write_plan
from rpeg.runtime.checkpoints import Checkpoints
from rpeg.runtime.driver import Driver
from rpeg.runtime.fake.pretend import Fake, fakes, initial_weights
from rpeg.runtime.run_directory import Checkpoint, RunDirectory
from rpeg.search import from_job
from rpeg.sim import Draws, StageCosts, ordered, simulate
from rpeg.trace import Entry, Trace, begin_stretch, end_stretch, read_traces
from rpeg.transforms import parse
from rpeg.verify import prove

EXAMPLE = Path(__file__).parents[1] / "examples" / "plan-gh200.yaml"
OUT = Path(__file__).resolve().parent / "results" / "driver.json"
STEP_SECONDS = {256: 3.0, 2048: 12.0}
"""That a step is to take here: the cost model's are scaled to it."""


class Quiet:
    """A watcher that shows nothing."""

    def on_entry(self, entry: Entry) -> None:
        pass

    def on_step(self, record: object) -> None:
        pass

    def on_evaluation(self, step: int, accuracy: float, metrics: Mapping[str, float]) -> None:
        pass

    def on_checkpoint(self, checkpoint: Checkpoint) -> None:
        pass

    def on_warning(self, text: str) -> None:
        pass


def planned(devices: int, split: bool) -> tuple[Plan, StageCosts]:
    """A plan whose every device is a lane, and its costs, asked once already."""
    problem = from_job(load_job(EXAMPLE), 0)
    graph = parse("async{staleness=1}").apply(problem.graph) if split else problem.graph
    workload = replace(problem.workload, prompts=2 * devices)
    first = devices * 3 // 4 if split else 0
    generators, others = range(first or devices), range(first, devices)

    def assigned(stage: str, kind: Kind) -> Assignment:
        if kind is Kind.HOST:
            return Assignment(stage, Host())
        if kind is Kind.GENERATE:
            return Assignment(
                stage, Devices(tuple(generators)), Parallelism(dp=len(generators) // 2, tp=2), 256
            )
        ids = tuple(generators if stage == "reference" else others)
        return Assignment(stage, Devices(ids), Parallelism(dp=len(ids), zero=3), 1, recompute="full")

    assignments = tuple(assigned(stage.name, stage.kind) for stage in graph.stages)
    cluster = system("alps", nodes=devices // 4, devices=4)
    bare = Plan(graph, cluster, workload, assignments, (), ("async{staleness=1}",) if split else ())
    costs, draws = StageCosts(bare, problem.facts), Draws(workload, 0)
    shifts = {s.name: int(split) for s in graph.stages if s.name not in ("prompts", "generate")}
    plan = check(ordered(bare, shifts, costs, draws))
    return plan, costs


def measured(devices: int, split: bool, steps: int, processes: int) -> dict[str, Any]:
    began = time.monotonic()
    plan, costs = planned(devices, split)
    predicted = simulate(
        plan, costs, steps, samples=False
    )  # workers then look answers up, and need no processor
    real = max(e.seconds for e in predicted.entries) / steps
    print(f"{devices} devices: planned and simulated in {time.monotonic() - began:.0f} s", flush=True)
    fake = Fake(costs, STEP_SECONDS[devices] / real, processes=processes)
    with TemporaryDirectory() as place:
        directory = Path(place)
        write_plan(plan, directory / "plan.json")
        stretch = begin_stretch(directory, "fake", steps, 0)
        spent = asyncio.run(driven(plan, fake, steps, stretch))
        end_stretch(stretch)
        (trace,) = read_traces(directory)
    proof = prove(trace)
    row = {
        "devices": devices,
        "plan": "split" if split else "colocated",
        "lanes": len(lower(plan.graph, plan.assignments, plan.workload).lanes),
        "processes": processes,
        "steps": steps,
        "scale": fake.scale,
        **figures(trace, spent, processes),
        "broken": list(proof.broken),
    }
    print(*lines(row), sep="\n", flush=True)
    return row


async def driven(plan: Plan, fake: Fake, steps: int, trace: Path) -> dict[str, float]:
    """Seconds of a run, and of the driver's processor: of all its threads, and of the event loop's."""
    with fakes(plan, fake, 0, trace, None) as handles:
        keep = Checkpoints(RunDirectory(trace.parent), every=0, keep=1, seed=0)
        weights = initial_weights(plan, 0)
        driver = Driver(plan, steps, 0, handles, weights, trace, keep, Quiet(), 300.0)
        for handle in dict.fromkeys(handles.values()):  # processes are up before anything is timed
            await handle.ready()
        before = time.monotonic(), time.process_time(), time.thread_time()
        await driver.run()
        after = time.monotonic(), time.process_time(), time.thread_time()
        for handle in dict.fromkeys(handles.values()):
            await handle.close()
    run, process, loop = (b - a for a, b in zip(before, after, strict=True))
    return {"run_seconds": run, "process_seconds": process, "loop_seconds": loop}


def figures(trace: Trace, spent: Mapping[str, float], processes: int) -> dict[str, Any]:
    commands = {e.item: e for e in trace.entries if e.what.begins}
    workers: dict[object, set[str]] = {}
    starts: dict[object, float] = {}
    for span in trace.spans:
        workers.setdefault(span.item, set()).add(span.worker)
        starts[span.item] = max(starts.get(span.item, 0.0), span.start_seconds)
    latency = np.array([starts[item] - command.seconds for item, command in commands.items()])
    items, calls = len(commands), sum(map(len, workers.values()))
    p50, p99 = np.percentile(latency, [50, 99])
    return {
        "items": items,
        "calls": calls,
        "lane_runs": len(trace.spans),
        "entries": len(trace.entries),
        **spent,
        "driver_ms_an_item": 1e3 * spent["process_seconds"] / items,
        "driver_ms_a_call": 1e3 * spent["process_seconds"] / calls,
        "loop_ms_an_item": 1e3 * spent["loop_seconds"] / items,
        "dispatch_p50_ms": 1e3 * float(p50),
        "dispatch_p99_ms": 1e3 * float(p99),
    }


def lines(row: Mapping[str, Any]) -> list[str]:
    return [
        f"{row['devices']} devices, {row['plan']}, {row['lanes']} lanes on {row['processes']} processes: "
        f"{row['items']} items, {row['calls']} calls, {row['lane_runs']} runs of lanes in {row['run_seconds']:.1f} s",
        f"  driver {row['driver_ms_an_item']:.3f} ms an item ({row['driver_ms_a_call']:.3f} a call), of which its loop "
        f"{row['loop_ms_an_item']:.3f}",
        f"  dispatch p50 {row['dispatch_p50_ms']:.1f} ms, p99 {row['dispatch_p99_ms']:.1f} ms; "
        + (f"NOT proven: {', '.join(row['broken'])}" if row["broken"] else "the trace is proven"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--devices", type=int, nargs="*", default=list(STEP_SECONDS))
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, default=OUT)
    a = parser.parse_args()
    rows = [measured(n, split, a.steps, a.processes) for n in a.devices for split in (False, True)]
    result = {
        "date": date.today().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "runs": rows,
    }
    a.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
