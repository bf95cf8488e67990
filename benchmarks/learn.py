"""Does training lift the reward? Several seeds, and a control that trains against the reward and must fail.

    python benchmarks/learn.py ppo grpo --seeds 1 2 3
    python benchmarks/learn.py --show

Each of `VARIANTS` is a job of examples/, here on one device in one process. A run passes where the mean reward of its
last 10 steps is at least twice that of its first 10, or 0.8, and its trace is proven. Where a reward model is trained on
(`rpeg train-reward examples/reward-model.yaml` makes it), what counts is the verifier that it stands for. The control
has every advantage's sign flipped. Curves are kept in --results, one file a variant, each as soon as its run has ended;
a run that is kept is not done again. Exits 1 unless all seeds pass and the control does not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from learning import SHARED, Curve, Curves, ends, example, run_all
from rpeg.job import Job
from rpeg.job.algorithm import flat, parse
from rpeg.report.step_lines import sparkline
from rpeg.report.tables import table

CONTROL = "control, sign flipped"
RATIO, ENOUGH = 2.0, 0.8
RESULTS = Path(__file__).parent / "results"

JUDGED = {"reward": [{"name": "model", "truncated": "zero"}, {"name": "numeric", "weight": 0}]}
VARIANTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "ppo": ("ppo", {}),
    "ppo-shared": ("ppo", SHARED),
    "ppo-reward-model": ("ppo-reward-model", JUDGED),
    "grpo": ("grpo", {}),
    **{name: ("grpo", {"algorithm": {"name": name, "kl_coefficient": None}}) for name in ("rloo", "dapo")},
}
"""Example and what is otherwise in it, section by section; None takes a key away."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("variants", nargs="*", help=f"of {', '.join(VARIANTS)} [default: all]")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--results", type=Path, default=RESULTS, help="a directory")
    parser.add_argument("--processes", type=int, default=2, help="runs at a time")
    parser.add_argument("--show", action="store_true", help="draw the curves that are kept, and run nothing")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.variants if name not in VARIANTS]:
        parser.error(f"there is no variant {', '.join(unknown)}; there are {', '.join(VARIANTS)}")
    console = Console(highlight=False, width=120)
    learned = True
    for variant in arguments.variants or VARIANTS:
        curves = Curves(arguments.results / f"learn_{variant.replace('-', '_')}.json")
        if not arguments.show:
            console.print(f"{variant}:")
            run_all(jobs_of(variant, arguments.seeds), curves, arguments.processes, console)
        if curves.by_name:
            console.print(table((variant, *COLUMNS), rows(curves.by_name)))
        learned &= all(passes(curve) is (name != CONTROL) for name, curve in curves.by_name.items())
    sys.exit(0 if learned else 1)


def jobs_of(variant: str, seeds: Iterable[int]) -> dict[str, Job]:
    """The runs of a variant, by name."""
    jobs = {f"seed {seed}": example(*VARIANTS[variant]).model_copy(update={"seed": seed}) for seed in seeds}
    first = next(iter(jobs.values()))
    return {**jobs, CONTROL: flipped(first)}


def flipped(job: Job) -> Job:
    """The same job trained against its reward."""
    return job.model_copy(update={"algorithm": parse({**flat(job.algorithm), "advantage_scale": -1.0})})


def passes(curve: Curve) -> bool:
    first, last = ends(curve.rewards)
    return curve.proven and last >= min(RATIO * first, ENOUGH)


COLUMNS = (">first 10", ">last 10", ">ratio", "held-out", "reward", ">seconds", "passes")


def rows(curves: Mapping[str, Curve]) -> Iterator[tuple[str, ...]]:
    for name, curve in curves.items():
        first, last = ends(curve.rewards)
        yield (
            name,
            f"{first:.3f}",
            f"{last:.3f}",
            f"{last / first:.2f}" if first else "–",
            " → ".join(f"{a:.2f}" for a in (curve.accuracies[0], curve.accuracies[-1]))
            if curve.accuracies
            else "",
            sparkline(list(curve.rewards), 40),
            f"{curve.seconds:.0f}",
            "yes" if passes(curve) else "no",
        )


if __name__ == "__main__":
    main()
