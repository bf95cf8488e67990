"""Does training lift the reward? Several seeds, and a control that trains against the reward and must fail.

    python benchmarks/learn.py ppo-shared --seeds 1 2 3
    python benchmarks/learn.py my-job.yaml

Known by name are `VARIANTS` of the jobs in examples/. Each run passes where the mean reward of its last 10 steps is at
least twice that of its first 10, or 0.8, and its trace is proven. The control has every advantage's sign flipped. Exits
1 unless all seeds pass and the control does not. Curves go to --out as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from rich.console import Console

from rpeg.cli._planning import problem_of
from rpeg.job import Job, load_job, parse_job
from rpeg.job.algorithm import Algorithm, flat, parse
from rpeg.report.live import PlainView, sparkline
from rpeg.report.summary import reward_ends
from rpeg.report.tables import table
from rpeg.runtime import Options, prepare_directory, train
from rpeg.search import plan_job
from rpeg.trace import read_traces
from rpeg.verify import prove_run

CONTROL = "control, sign flipped"
RATIO, ENOUGH = 2.0, 0.8

EXAMPLES = Path(__file__).parents[1] / "examples"
SHARED = {
    "allow": {"actor_critic_sharing": True},
    "plan": {"actor_critic_sharing": True},
    "optimizer": {"critic_lr": None},
}
VARIANTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "ppo": ("ppo", {}),
    "ppo-shared": ("ppo", SHARED),
    "grpo": ("grpo", {}),
    **{name: ("grpo", {"algorithm": {"name": name, "kl_coefficient": None}}) for name in ("rloo", "dapo")},
}
"""Example and what is otherwise in it, section by section; None takes a key away."""


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
        return self.proven and self.ends[1] >= min(RATIO * self.ends[0], ENOUGH)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("job", help=f"a job file, or one of {', '.join(VARIANTS)}")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--no-control", action="store_true", help="leave the control out")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    console = Console(highlight=False, width=120)
    job = job_of(arguments.job)
    plan = plan_job(problem_of(job, lambda line: console.print(line, markup=False))).best.plan
    runs: list[Learned] = []
    with TemporaryDirectory() as directory:

        def learn(name: str, changed: Job) -> None:
            changed = changed.model_copy(update={"output": str(Path(directory) / "run")})
            runs.append(run(name, changed, plan))
            console.print(f"{name}: {runs[-1].ends[0]:.3f} → {runs[-1].ends[1]:.3f}", markup=False)

        for seed in arguments.seeds:
            learn(f"seed {seed}", job.model_copy(update={"seed": seed}))
        if not arguments.no_control:
            learn(CONTROL, flipped(job, arguments.seeds[0]))
    console.print(as_table(runs))
    if arguments.out:
        curves = {r.name: {"rewards": r.rewards, "accuracies": r.accuracies} for r in runs}
        arguments.out.write_text(json.dumps(curves, indent=1) + "\n")
    sys.exit(0 if all(r.passes is (r.name != CONTROL) for r in runs) else 1)


def job_of(name: str) -> Job:
    """The job of a variant by its name, or of a file."""
    if name not in VARIANTS:
        return load_job(Path(name))
    example, changes = VARIANTS[name]
    path = EXAMPLES / f"{example}.yaml"
    job = yaml.safe_load(path.read_text(encoding="utf-8"))
    for section, values in changes.items():
        job[section] = {k: v for k, v in {**job.get(section, {}), **values}.items() if v is not None}
    return parse_job(yaml.safe_dump(job), f"{name}.yaml", EXAMPLES)


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
