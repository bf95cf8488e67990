"""What the benchmarks of learning share: runs in processes of their own, side by side, each kept as soon as it ends."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from rich.console import Console

from rpeg.cli._planning import problem_of
from rpeg.errors import RunError
from rpeg.job import Job, parse_job
from rpeg.job.rewards import uses_model
from rpeg.plan import Plan
from rpeg.report.live import PlainView
from rpeg.runtime import Options, StepRecord, prepare_directory, train
from rpeg.search import plan_job
from rpeg.trace import read_traces
from rpeg.verify import prove_run

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
SHARED: Mapping[str, Mapping[str, Any]] = {
    "allow": {"actor_critic_sharing": True},
    "plan": {"actor_critic_sharing": True},
    "optimizer": {"critic_lr": None},
}
"""What makes a PPO job train one model of two heads."""

TRUTH = "reward/numeric"
"""The metric that says how good responses are where the reward is a model's score."""


@dataclass(frozen=True)
class Curve:
    """A run. job: a digest of its settings. rewards: the mean of each step, of a verifier whatever was trained on.

    accuracies: of each evaluation. metrics: of the trained policy, means over the steps. proven: whether its trace is.
    seconds: from its first item on.
    """

    job: str
    rewards: tuple[float, ...]
    accuracies: tuple[float, ...]
    metrics: Mapping[str, float]
    proven: bool
    seconds: float


class Curves:
    """Those of a JSON file, by name; one that is added is in the file at once."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        written = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        self.by_name: dict[str, Curve] = {name: Curve(**value) for name, value in written.items()}

    def add(self, name: str, curve: Curve) -> None:
        self.by_name[name] = curve
        lines = (f"{json.dumps(n)}: {json.dumps(asdict(c))}" for n, c in self.by_name.items())
        partial = self.path.with_suffix(".partial")
        partial.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        partial.replace(self.path)

    def have(self, name: str, job: Job) -> bool:
        """Whether this very run is there."""
        return name in self.by_name and self.by_name[name].job == digest(job)


def example(name: str, changes: Mapping[str, Any]) -> Job:
    """A job of examples/ on one device, with what is otherwise in it: sections key by key; None takes a key away."""
    job = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8"))
    for section, values in {"cluster": {"cpu": 1}, **changes}.items():
        if isinstance(values, Mapping):
            merged = {**job.get(section, {}), **values}
            job[section] = {k: v for k, v in merged.items() if v is not None}
        else:
            job[section] = values
    return parse_job(yaml.safe_dump(job), f"{name}.yaml", EXAMPLES)


def digest(job: Job) -> str:
    """Of all that it sets otherwise than the defaults are, wherever the project lies."""
    settings = job.model_dump(mode="json", exclude_defaults=True, exclude={"name", "output"})
    text = json.dumps(settings, sort_keys=True).replace(str(ROOT), "")
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def run_all(jobs: Mapping[str, Job], curves: Curves, processes: int, console: Console) -> None:
    """Runs those that `curves` do not have, `processes` at a time, in this order."""
    missing = {name: job for name, job in jobs.items() if not curves.have(name, job)}
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(run, job, plan_of(job)): name for name, job in missing.items()}
        for done in as_completed(running):
            name, curve = running[done], done.result()
            curves.add(name, curve)
            first, last = ends(curve.rewards)
            console.print(f"{name}: {first:.3f} → {last:.3f} in {curve.seconds:.0f} s", markup=False)


def ends(rewards: Sequence[float], count: int = 10) -> tuple[float, float]:
    """Means of the first and of the last `count`."""
    return mean(rewards[:count]), mean(rewards[-count:])


def plan_of(job: Job) -> Plan:
    return plan_job(problem_of(job, lambda _: None)).best.plan


def run(job: Job, plan: Plan) -> Curve:
    """Runs a job by a plan of one device, in this process."""
    options = Options(in_process=True, overwrite=True, export=False)
    with TemporaryDirectory() as output:
        here = job.model_copy(update={"output": output})
        directory, _, start = prepare_directory(here, plan, options)
        view = PlainView(Console(quiet=True), here.steps)
        outcome = train(here, plan, directory, start, options, view)
        if not outcome.finished:
            raise RunError(f"stopped after {outcome.steps} of {here.steps} steps: the run is not kept")
        proven = prove_run(read_traces(directory.path)).holds
    rewards = [r.metrics[TRUTH] if uses_model(job.reward) else r.reward for r in outcome.records]
    return Curve(
        digest(job),
        tuple(round(reward or 0.0, 6) for reward in rewards),
        tuple(outcome.evaluations[step] for step in sorted(outcome.evaluations)),
        means(outcome.records),
        proven,
        round(outcome.seconds - outcome.startup_seconds, 1),
    )


def means(records: Sequence[StepRecord]) -> dict[str, float]:
    """Of each metric over the steps that report it."""
    names = dict.fromkeys(name for record in records for name in record.metrics)
    return {
        name: float(f"{mean(r.metrics[name] for r in records if name in r.metrics):.6g}") for name in names
    }
