"""Does training lift the reward? Several seeds, and a control that trains against the reward and must fail.

    python benchmarks/learn.py examples/ppo.yaml

Each run passes where the mean reward of its last 10 steps is at least 1.5 times that of its first 10 and its trace is
proven. The control has every advantage's sign flipped. Exits 1 unless all seeds pass and the control does not. Curves go
to --out as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from rpeg.cli._planning import problem_of
from rpeg.job import Job, load_job
from rpeg.job.algorithm import Algorithm, flat, parse
from rpeg.report.live import PlainView, sparkline
from rpeg.report.summary import reward_ends
from rpeg.report.tables import table
from rpeg.runtime import Options, prepare_directory, train
from rpeg.search import plan_job
from rpeg.trace import read_traces
from rpeg.verify import prove_run

RATIO = 1.5


@dataclass(frozen=True)
class Learned:
    """A run's rewards and held-out accuracies, by step."""

    name: str
    rewards: tuple[float, ...]
    ends: tuple[float, float]
    accuracies: tuple[float, ...]
    proven: bool

    @property
    def passes(self) -> bool:
        return self.proven and self.ends[1] >= RATIO * self.ends[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("job", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    console = Console(highlight=False, width=120)
    job = load_job(arguments.job)
    plan = plan_job(problem_of(job, lambda line: console.print(line, markup=False))).best.plan
    runs: list[Learned] = []
    with TemporaryDirectory() as directory:

        def learn(name: str, changed: Job) -> None:
            changed = changed.model_copy(update={"output": str(Path(directory) / "run")})
            runs.append(run(name, changed, plan))
            console.print(f"{name}: {runs[-1].ends[0]:.3f} → {runs[-1].ends[1]:.3f}", markup=False)

        for seed in arguments.seeds:
            learn(f"seed {seed}", job.model_copy(update={"seed": seed}))
        learn("control, sign flipped", flipped(job, arguments.seeds[0]))
    console.print(as_table(runs))
    if arguments.out:
        curves = {r.name: {"rewards": r.rewards, "accuracies": r.accuracies} for r in runs}
        arguments.out.write_text(json.dumps(curves, indent=1) + "\n")
    *seeds, control = runs
    sys.exit(0 if all(r.passes for r in seeds) and not control.passes else 1)


def flipped(job: Job, seed: int) -> Job:
    """The same job trained against its reward."""
    algorithm: Algorithm = parse({**flat(job.algorithm), "advantage_scale": -1.0})
    return job.model_copy(update={"algorithm": algorithm, "seed": seed})


def run(name: str, job: Job, plan: object) -> Learned:
    options = Options(overwrite=True, export=False)
    directory, found, start = prepare_directory(job, plan, options)  # type: ignore[arg-type]
    assert found is not None
    outcome = train(job, found, directory, start, options, PlainView(Console(quiet=True), job.steps))
    rewards = tuple(r.reward for r in outcome.records if r.reward is not None)
    ends = reward_ends(rewards)
    assert ends is not None
    accuracies = tuple(outcome.evaluations[step] for step in sorted(outcome.evaluations))
    return Learned(name, rewards, ends, accuracies, prove_run(read_traces(directory.path)).holds)


def as_table(runs: list[Learned]) -> object:
    columns = ("run", ">first 10", ">last 10", ">ratio", "held-out", "reward", "passes")
    return table(
        columns,
        (
            (
                r.name,
                f"{r.ends[0]:.3f}",
                f"{r.ends[1]:.3f}",
                f"{r.ends[1] / r.ends[0]:.2f}" if r.ends[0] else "–",
                " → ".join(f"{a:.2f}" for a in (r.accuracies[0], r.accuracies[-1])) if r.accuracies else "",
                sparkline(list(r.rewards), 30),
                "yes" if r.passes else "no",
            )
            for r in runs
        ),
    )


if __name__ == "__main__":
    main()
