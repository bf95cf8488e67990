"""What does staleness cost? Pairs of runs that differ in nothing else: same seed, same prompts in the same order.

    python benchmarks/asynchrony.py --seeds 1 2 3 4 5 6 7 8 9 10 11 12
    python benchmarks/asynchrony.py --show

Trains `JOB` on samples of the current weights and of those 1 and 2 steps old (`exact`), as they come and corrected by
truncated importance weights, on one device in one process. Compared is the mean reward of the last `LAST` steps: the
paired difference from the synchronous run, relative to the mean of these, with its 95 % interval (Student's t). Curves
are kept as each run ends; a run that is kept is not done again.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from pathlib import Path
from statistics import NormalDist, mean, stdev

from rich.console import Console

from learning import SHARED, Curve, Curves, example, run_all
from rpeg.job import Job
from rpeg.report.tables import table

LAST = 20
PUBLISHED = 0.0047
"""The largest relative difference in final reward that was published for staleness 1."""

JOB = {
    **SHARED,
    "steps": 80,
    "evaluation": {"every": 0},
    "checkpoint": {"every": 0},
}
"""PPO with one model for actor and critic, without a reference: what is otherwise in examples/ppo.yaml."""
NO_REFERENCE = {"kl_in": "none", "kl_coefficient": None}
CORRECTED = {"importance": "token", "importance_cap": 2.0}

SYNCHRONOUS = "staleness 0"
SETTINGS = {
    SYNCHRONOUS: (0, NO_REFERENCE),
    "staleness 1": (1, NO_REFERENCE),
    "staleness 2": (2, NO_REFERENCE),
    "staleness 1, corrected": (1, {**NO_REFERENCE, **CORRECTED}),
    "staleness 2, corrected": (2, {**NO_REFERENCE, **CORRECTED}),
}
"""Staleness and what is otherwise in the section `algorithm`, by name."""

METRICS = {
    "ratio max": "actor/ratio_max",
    "clipped": "actor/clip_fraction",
    "KL behaviour–current": "actor/behaviour_kl_current",
    "effective share": "effective_share",
    **{f"{age} old": f"staleness_{age}" for age in range(3)},
}
"""What shows whether staleness matters, by heading; means over the steps."""


@dataclass(frozen=True)
class Pair:
    """Two runs of a seed."""

    synchronous: Curve
    other: Curve


@dataclass(frozen=True)
class Difference:
    """Of the ends of pairs, relative to the mean end of the synchronous runs. half_width: of the 95 % interval."""

    mean: float
    deviation: float
    pairs: int

    @classmethod
    def of(cls, pairs: Sequence[Pair]) -> Difference:
        base = mean(end(pair.synchronous) for pair in pairs)
        found = [(end(pair.other) - end(pair.synchronous)) / base for pair in pairs]
        return cls(mean(found), stdev(found), len(found))

    @property
    def half_width(self) -> float:
        return t_quantile(self.pairs - 1) * self.deviation / sqrt(self.pairs)

    def pairs_for(self, half_width: float) -> int:
        """How many would make the interval so narrow."""
        n = 2
        while t_quantile(n - 1) * self.deviation / sqrt(n) > half_width:
            n = max(n + 1, ceil((NORMAL * self.deviation / half_width) ** 2))
        return n


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=range(1, 13))
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS), metavar="NAME")
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results" / "asynchrony.json")
    parser.add_argument("--processes", type=int, default=2, help="runs at a time")
    parser.add_argument("--show", action="store_true", help="compare what is kept, and run nothing")
    arguments = parser.parse_args()
    console = Console(highlight=False, width=120)
    curves = Curves(arguments.results)
    if not arguments.show:
        names = [(setting, seed) for seed in arguments.seeds for setting in arguments.settings]
        jobs = {name_of(*name): job_of(*name) for name in names}
        run_all(jobs, curves, arguments.processes, console)
    show(curves.by_name, console)


def name_of(setting: str, seed: int) -> str:
    return f"{setting}, seed {seed}"


def job_of(setting: str, seed: int) -> Job:
    staleness, algorithm = SETTINGS[setting]
    plan = {"staleness": staleness, "freshness": "exact"} if staleness else {}
    changes = {
        **JOB,
        "algorithm": algorithm,
        "seed": seed,
        "allow": {**SHARED["allow"], "staleness": staleness},
        "plan": {**SHARED["plan"], **plan},
    }
    return example("ppo", changes)


def show(curves: Mapping[str, Curve], console: Console) -> None:
    proven = sum(curve.proven for curve in curves.values())
    console.print(f"{proven} of {len(curves)} traces proven")
    by_setting = {name: found for name in SETTINGS if len(found := in_pairs(curves, name)) > 1}
    headings = ("", ">seeds", ">reward", ">deviation", ">still rising", ">difference", ">95 % interval")
    console.print(table(headings, (reward_row(name, pairs) for name, pairs in by_setting.items())))
    console.print(table(("", *(f">{heading}" for heading in METRICS)), metric_rows(by_setting)))
    for name, pairs in by_setting.items():
        if name != SYNCHRONOUS:
            console.print(
                f"{name}: an interval of ± {PUBLISHED:.2%} around its difference needs "
                f"{Difference.of(pairs).pairs_for(PUBLISHED)} paired seeds here."
            )


def in_pairs(curves: Mapping[str, Curve], setting: str) -> list[Pair]:
    """Of the seeds that have both runs."""
    seeds = sorted({int(name.rpartition(" ")[2]) for name in curves})
    found = [(curves.get(name_of(SYNCHRONOUS, seed)), curves.get(name_of(setting, seed))) for seed in seeds]
    return [Pair(first, second) for first, second in found if first and second]


def reward_row(name: str, pairs: Sequence[Pair]) -> tuple[str, ...]:
    """Mean of the last `LAST` steps, its deviation over seeds, its rise over the `LAST` steps before; the difference."""
    ends = [end(pair.other) for pair in pairs]
    before = [mean(pair.other.rewards[-2 * LAST : -LAST]) for pair in pairs]
    cells = (
        name,
        f"{len(pairs)}",
        f"{mean(ends):.3f}",
        f"{stdev(ends):.3f}",
        f"{mean(ends) - mean(before):+.3f}",
    )
    if name == SYNCHRONOUS:
        return (*cells, "", "")
    found = Difference.of(pairs)
    low, high = found.mean - found.half_width, found.mean + found.half_width
    return (*cells, f"{found.mean:+.1%}", f"{low:+.1%} to {high:+.1%}")


def metric_rows(by_setting: Mapping[str, Sequence[Pair]]) -> Iterator[tuple[str, ...]]:
    for name, pairs in by_setting.items():
        found = (mean(pair.other.metrics.get(metric, 0.0) for pair in pairs) for metric in METRICS.values())
        yield (name, *(f"{value:.3g}" for value in found))


def end(curve: Curve) -> float:
    return mean(curve.rewards[-LAST:])


NORMAL = NormalDist().inv_cdf(0.975)


def t_quantile(degrees: int) -> float:
    """97.5 % quantile of Student's t, to 0.01 from 4 degrees of freedom on (Abramowitz and Stegun 1964, 26.7.5)."""
    z, n = NORMAL, degrees
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * n**4)
    )


if __name__ == "__main__":
    main()
