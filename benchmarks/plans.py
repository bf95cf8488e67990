"""Predicted beside measured step time of the plans for a job, run in turn.

    python benchmarks/plans.py examples/ppo.yaml --rounds 5 --steps 10

Every round runs each plan once for the same steps, one plan after another, so that slow phases of a machine meet all of
them alike. Measured is the median over rounds of a run's median step; its interval is the 95 % bootstrap interval of that
median. Prints a table, writes it as JSON with --out, and exits 1 where a prediction is off by more than 25 %, or where
the plan ranked first is more than 5 % slower than the fastest measured and not within its interval.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
from rich.console import Console
from rich.table import Table

from rpeg.cli._planning import problem_of
from rpeg.job import Job, load_job
from rpeg.report.compare import compare
from rpeg.report.live import PlainView
from rpeg.report.tables import table
from rpeg.runtime import Options, prepare_directory, train
from rpeg.search import Candidate, Problem, plan_job
from rpeg.sim import StageCosts, simulate
from rpeg.trace import read_traces
from rpeg.units import seconds_text
from rpeg.verify import prove_run

TOLERANCE, BEST_WITHIN = 0.25, 0.05


@dataclass
class Row:
    """A plan with its predicted median step and the median step of each round."""

    candidate: Candidate
    predicted_seconds: float
    rounds_seconds: list[float] = field(default_factory=list)
    proven: bool = True

    @property
    def measured_seconds(self) -> float:
        return median(self.rounds_seconds)

    @property
    def error(self) -> float:
        return self.predicted_seconds / self.measured_seconds - 1

    def interval_seconds(self) -> tuple[float, float]:
        """95 % bootstrap interval of the median over rounds."""
        draws = np.random.default_rng(0).choice(self.rounds_seconds, (2000, len(self.rounds_seconds)))
        low, high = np.percentile(np.median(draws, axis=1), [2.5, 97.5])
        return float(low), float(high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("job", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=10, help="steps of each run; the first two do not count")
    parser.add_argument(
        "--most", type=int, default=10, help="plans: the fastest of each kind, in the order of the table"
    )
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    console = Console(highlight=False, width=120)
    job = load_job(arguments.job)
    evaluation = job.evaluation.model_copy(update={"every": 0})
    job = job.model_copy(update={"steps": arguments.steps, "evaluation": evaluation})
    rows = predictions(job, arguments.most, console)
    with TemporaryDirectory() as directory:
        for number in range(arguments.rounds):
            for row in rows:
                measure(row, job, Path(directory) / "run")
            console.print(f"round {number + 1} of {arguments.rounds}", markup=False)
    console.print(as_table(rows))
    failures = verdict(rows)
    for failure in failures:
        console.print(failure, markup=False)
    if arguments.out:
        arguments.out.write_text(json.dumps([as_json(row) for row in rows], indent=1) + "\n")
    sys.exit(1 if failures else 0)


def predictions(job: Job, most: int, console: Console) -> list[Row]:
    """The fastest plan of each placement, streamed and whole apart, in the order of their predicted times."""
    problem = problem_of(job, lambda line: console.print(line, markup=False))
    kinds: dict[tuple[object, ...], Candidate] = {}
    for candidate in plan_job(problem).candidates:
        of = candidate.construction
        kinds.setdefault((of.placement.name, bool(of.parts), of.staleness), candidate)
    return [Row(c, predicted_seconds(c, job, problem)) for c in list(kinds.values())[:most]]


def predicted_seconds(candidate: Candidate, job: Job, problem: Problem) -> float:
    """Median of the simulated steps, more of them than a run has, as lengths are drawn."""
    trace = simulate(candidate.plan, StageCosts(candidate.plan, problem.facts), 30, job.seed)
    step = compare(trace, trace).step.predicted
    assert step is not None
    return step


def measure(row: Row, job: Job, output: Path) -> None:
    """Runs the plan once and keeps the median of its steady steps."""
    job = job.model_copy(update={"output": str(output)})
    options = Options(overwrite=True, export=False)
    run, plan, start = prepare_directory(job, row.candidate.plan, options)
    assert plan is not None
    train(job, plan, run, start, options, PlainView(Console(quiet=True), job.steps))
    traces = read_traces(run.path)
    row.proven &= prove_run(traces).holds
    measured = compare(traces[0], traces[0], skip=2).step.measured
    assert measured is not None
    row.rounds_seconds.append(measured)


def verdict(rows: list[Row]) -> list[str]:
    """What is not as it should be, in words."""
    found = [
        f"{r.candidate.name}: predicted {seconds_text(r.predicted_seconds)}, measured "
        f"{seconds_text(r.measured_seconds)}: {r.error:+.0%}, more than {TOLERANCE:.0%} off"
        for r in rows
        if abs(r.error) > TOLERANCE
    ]
    found += [f"{r.candidate.name}: a trace is not proven" for r in rows if not r.proven]
    best = min(rows, key=lambda r: r.measured_seconds)
    first = rows[0]
    behind = first.measured_seconds / best.measured_seconds - 1
    if behind > BEST_WITHIN and first.interval_seconds()[0] > best.interval_seconds()[1]:
        found.append(
            f"{first.candidate.name} is ranked first and {behind:.0%} slower than {best.candidate.name}"
        )
    return found


def as_table(rows: list[Row]) -> Table:
    columns = ("plan", ">parts", ">predicted", ">measured", ">95 % interval", ">error", "trace")
    return table(columns, (_cells(r) for r in rows))


def _cells(row: Row) -> tuple[str, ...]:
    low, high = row.interval_seconds()
    of = row.candidate.construction
    name = of.placement.name + (f", staleness {of.staleness}" if of.staleness else "")
    return (
        name,
        of.parts,
        seconds_text(row.predicted_seconds),
        seconds_text(row.measured_seconds),
        f"{seconds_text(low)} – {seconds_text(high)}",
        f"{row.error:+.0%}",
        "proven" if row.proven else "not proven",
    )


def as_json(row: Row) -> dict[str, object]:
    return {
        "plan": row.candidate.name,
        "predicted_seconds": row.predicted_seconds,
        "measured_seconds": row.measured_seconds,
        "interval_seconds": row.interval_seconds(),
        "rounds_seconds": row.rounds_seconds,
        "proven": row.proven,
    }


if __name__ == "__main__":
    main()
