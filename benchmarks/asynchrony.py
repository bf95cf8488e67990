"""What does staleness cost? Pairs of runs that differ in nothing else: same seed, same prompts in the same order.

    python benchmarks/asynchrony.py --seeds 1 2 3 4 5 6 7 8 9 10 11 12
    python benchmarks/asynchrony.py --show

Trains `JOB` on samples of the current weights and of those 1 and 2 steps old (`exact`), uncorrected, on one device in
one process. Compared is the mean reward of the last `LAST` steps: the paired difference from staleness 0, relative to
its mean, with its 95 % interval (Student's t). Curves are kept as each run ends; a run that is kept is not done again.
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

STALENESS = (0, 1, 2)
LAST = 20
PUBLISHED = 0.0047
"""The difference in final reward that the paper reports for its asynchronous runs, relative."""

JOB = {
    **SHARED,
    "algorithm": {"kl_in": "none", "kl_coefficient": None},
    "steps": 80,
    "evaluation": {"every": 0},
    "checkpoint": {"every": 0},
}
"""PPO with one model for actor and critic, without a reference: what is otherwise in examples/ppo.yaml."""

METRICS = {
    "ratio max": "actor/ratio_max",
    "clipped": "actor/clip_fraction",
    "KL behaviour–current": "actor/behaviour_kl_current",
    "effective share": "effective_share",
    **{f"{staleness} old": f"staleness_{staleness}" for staleness in STALENESS},
}
"""What shows whether staleness matters, by heading; means over the steps."""


@dataclass(frozen=True)
class Difference:
    """Of paired runs, relative to the mean of the first of each pair. half_width: of the 95 % interval."""

    mean: float
    deviation: float
    pairs: int

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
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results" / "asynchrony.json")
    parser.add_argument("--processes", type=int, default=2, help="runs at a time")
    parser.add_argument("--show", action="store_true", help="compare what is kept, and run nothing")
    arguments = parser.parse_args()
    console = Console(highlight=False, width=120)
    curves = Curves(arguments.results)
    if not arguments.show:
        jobs = {name_of(s, seed): job_of(s, seed) for seed in arguments.seeds for s in STALENESS}
        run_all(jobs, curves, arguments.processes, console)
    pairs = in_pairs(curves.by_name)
    if len(pairs) < 2:
        parser.error(
            f"{curves.path} has {len(pairs)} seeds with all of staleness {STALENESS}; at least 2 are needed"
        )
    show(pairs, console)


def name_of(staleness: int, seed: int) -> str:
    return f"staleness {staleness}, seed {seed}"


def job_of(staleness: int, seed: int) -> Job:
    plan = {"staleness": staleness, "freshness": "exact"} if staleness else {}
    allow = {"staleness": staleness}
    job = {**JOB, "seed": seed, "allow": {**SHARED["allow"], **allow}, "plan": {**SHARED["plan"], **plan}}
    return example("ppo", job)


def in_pairs(curves: Mapping[str, Curve]) -> list[tuple[Curve, ...]]:
    """By seed, the curves of each staleness; seeds that lack one are left out."""
    seeds = sorted({int(name.rpartition(" ")[2]) for name in curves})
    found = ([curves.get(name_of(s, seed)) for s in STALENESS] for seed in seeds)
    return [tuple(curve for curve in row if curve) for row in found if all(row)]


def show(pairs: Sequence[tuple[Curve, ...]], console: Console) -> None:
    proven = [curve.proven for row in pairs for curve in row]
    steps = len(pairs[0][0].rewards)
    console.print(f"{len(pairs)} paired seeds, {steps} steps; {sum(proven)} of {len(proven)} traces proven")
    console.print(
        table(
            ("staleness", ">reward", ">deviation", ">still rising", ">difference", ">95 % interval"),
            rewards(pairs),
        )
    )
    console.print(table(("staleness", *(f">{heading}" for heading in METRICS)), metrics(pairs)))
    for index, staleness in enumerate(STALENESS[1:], start=1):
        found = difference(pairs, index)
        console.print(
            f"An interval of ± {PUBLISHED:.2%} around the difference of staleness {staleness} needs "
            f"{found.pairs_for(PUBLISHED)} paired seeds here."
        )


def rewards(pairs: Sequence[tuple[Curve, ...]]) -> Iterator[tuple[str, ...]]:
    for index, staleness in enumerate(STALENESS):
        ends = [end(row[index]) for row in pairs]
        before = [mean(row[index].rewards[-2 * LAST : -LAST]) for row in pairs]
        cells = (
            f"{staleness}",
            f"{mean(ends):.3f}",
            f"{stdev(ends):.3f}",
            f"{mean(ends) - mean(before):+.3f}",
        )
        if not index:
            yield (*cells, "", "")
            continue
        found = difference(pairs, index)
        low, high = found.mean - found.half_width, found.mean + found.half_width
        yield (*cells, f"{found.mean:+.1%}", f"{low:+.1%} to {high:+.1%}")


def metrics(pairs: Sequence[tuple[Curve, ...]]) -> Iterator[tuple[str, ...]]:
    for index, staleness in enumerate(STALENESS):
        found = ([row[index].metrics.get(name, 0.0) for row in pairs] for name in METRICS.values())
        yield (f"{staleness}", *(f"{mean(values):.3g}" for values in found))


def end(curve: Curve) -> float:
    return mean(curve.rewards[-LAST:])


def difference(pairs: Sequence[tuple[Curve, ...]], index: int) -> Difference:
    """Of the curves number `index` from the first ones."""
    base = mean(end(row[0]) for row in pairs)
    relative = [(end(row[index]) - end(row[0])) / base for row in pairs]
    return Difference(mean(relative), stdev(relative), len(pairs))


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
