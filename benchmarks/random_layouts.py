"""Does every plan that is accepted run, and train as one device does? Random layouts of every stage, in double precision.

    python benchmarks/random_layouts.py --plans 20
    python benchmarks/random_layouts.py --plans 5 --seed 40 --processes 4

Each plan draws an algorithm of `benchmarks/invariance.py`, with or without adapters, a structure, and for every stage a
block of devices, degrees of parallelism, a ZeRO stage, chunks, micro-batch, recomputation and what rests on the host.
Those that `check` and `check_runnable` refuse are drawn anew. Exits 1 unless all runs pass (see there).
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from invariance import (
    ALGORITHMS,
    MEMORY_BYTES,
    STRUCTURES,
    Ran,
    differences,
    job_of,
    random_model,
    run_plan,
    structured,
)
from rpeg.cluster import local
from rpeg.errors import PlanError, RpegError
from rpeg.ir import Kind, Stage
from rpeg.job import Job
from rpeg.plan import Assignment, Devices, Host, Parallelism, Plan, Slot, check, lower
from rpeg.schedule import list_order
from rpeg.sim.runnable import check_runnable
from rpeg.workload import Workload, constant

LORA = {"rank": 4, "alpha": 8}
ONE = Assignment("", Devices((0,)), microbatch=4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plans", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="of the first plan; each has its own")
    parser.add_argument("--processes", type=int, choices=(2, 4), nargs="+", default=(2, 4))
    parser.add_argument("--results", type=Path, help="a file to add each plan to, as a line of JSON")
    arguments = parser.parse_args()
    console, passed = Console(highlight=False, width=120), True
    with TemporaryDirectory() as directory:
        root = Path(directory)
        model = random_model(root / "model")
        alone: dict[tuple[str, bool], Ran] = {}
        for seed in range(arguments.seed, arguments.seed + arguments.plans):
            draws = random.Random(seed)
            algorithm, adapters = draws.choice(ALGORITHMS), draws.random() < 0.3
            lora = {"lora": LORA} if adapters else {}
            if (algorithm, adapters) not in alone:
                job = job_of(algorithm, model, root / f"{algorithm}-{adapters}", **lora)
                alone[algorithm, adapters] = run_plan(job, assembled(job, 1, "whole", lambda _: ONE))
            job = job_of(algorithm, model, root / f"{seed}", **lora)
            plan = drawn(job, draws, draws.choice(arguments.processes))
            try:
                found = differences(alone[algorithm, adapters], run_plan(job, plan))
            except RpegError as error:
                found = {"passed": False, "error": str(error)}
            passed &= found["passed"]
            said = {a.stage: str(a.parallelism) for a in plan.assignments if isinstance(a.block, Devices)}
            console.print(f"{seed} {algorithm}{' lora' * adapters} {said}\n   {found}")
            if arguments.results:
                with arguments.results.open("a", encoding="utf-8") as file:
                    row = {"seed": seed, "algorithm": algorithm, "lora": adapters, "layouts": said, **found}
                    file.write(json.dumps(row) + "\n")
    raise SystemExit(not passed)


def drawn(job: Job, draws: random.Random, processes: int) -> Plan:
    """The first that is accepted."""
    architectures = {m.name: job.models.source("actor").architecture() for m in job.graph().models}
    while True:
        try:
            plan = assembled(
                job, processes, draws.choice(STRUCTURES), lambda stage: assignment(stage, draws, processes)
            )
            check_runnable(plan, architectures)
        except PlanError:
            continue
        return plan


def assembled(job: Job, processes: int, structure: str, assigned: Callable[[Stage], Assignment]) -> Plan:
    """With what `assigned` gives each stage that calls a model, in the order of upward ranks. PlanError as `check`."""
    graph, applied = structured(job.graph(), job, structure)
    batch = job.batch
    workload = Workload(batch.prompts, batch.samples_per_prompt, constant(9), constant(6), batch.minibatches)
    assignments = tuple(
        Assignment(s.name, Host()) if s.kind is Kind.HOST else replace(assigned(s), stage=s.name)
        for s in graph.stages
    )
    lowered = lower(graph, assignments, workload)
    durations: dict[Slot, float] = dict.fromkeys(lowered.tasks, 1.0)
    offsets = {(t.slot, part): 1.0 for t in lowered.tasks.values() for part in t.covers}
    order = list_order(lowered, dict.fromkeys(lowered.tasks, 0), durations, offsets)
    cluster = local(processes, processes * MEMORY_BYTES)
    return check(Plan(graph, cluster, workload, assignments, order, applied))


def assignment(stage: Stage, draws: random.Random, processes: int) -> Assignment:
    size = draws.choice([n for n in (1, 2, 4) if n <= processes])
    first = draws.randrange(0, processes - size + 1)
    trains, generates = stage.kind is Kind.TRAIN, stage.kind is Kind.GENERATE
    layout = draws.choice(list(layouts(size, generates)))
    if trains or (stage.kind is Kind.INFERENCE and draws.random() < 0.3):
        layout = replace(layout, zero=draws.choice((0, 1, 2, 3) if trains else (0, 3)))
    return Assignment(
        stage.name,
        Devices(tuple(range(first, first + size))),
        layout,
        draws.choice((1, 2, 4)),
        recompute=draws.choice(("none", "selective", "full")) if trains else "none",
        offload=draws.choice(("none", "none", "optimizer", "all") if trains else ("none", "none", "all")),
    )


def layouts(size: int, generates: bool) -> Iterator[Parallelism]:
    for dp, tp, pp, cp in product((1, 2, 4), repeat=4):
        if dp * tp * pp * cp != size or (generates and pp * cp > 1):
            continue
        for vpp in (1, 2) if pp == 2 else (1,):
            yield Parallelism(dp=dp, tp=tp, pp=pp, cp=cp, vpp=vpp)
            if tp > 1 and not generates:
                yield Parallelism(dp=dp, tp=tp, pp=pp, cp=cp, vpp=vpp, sequence_parallel=True)


if __name__ == "__main__":
    main()
