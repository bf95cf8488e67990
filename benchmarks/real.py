"""ReaL's settings: what our plan is predicted to take, beside ReaL's heuristic and its own searched plan as measured.

    python benchmarks/real.py DATA/perf_real.jsonl [--evaluations N | --seconds S] [--chains …] [--settings …]

PPO of four LLaMA-2 models (actor, critic, reference, reward) on 8–128 A800. The heuristic, a walk at a fixed
temperature over placements and our search are predicted by one cost model: kernels launched one by one to generate,
Megatron to train. Lengths are those of the record, which gives no spread: every sample is as long as its limit. Nothing
changes what is learned. As in ReaL, the log-probabilities of generation stand for the old ones. A walk by seconds
differs from machine to machine; one by evaluations does not.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rpeg.algorithms import ppo
from rpeg.algorithms.rewarding import with_reward_model
from rpeg.cluster import system
from rpeg.errors import InputError
from rpeg.search import Baseline, Budget, Problem, plan_job
from rpeg.search.baselines.metropolis import metropolis
from rpeg.search.hardware_plan import search_of
from rpeg.sim import Facts
from rpeg.transforms.bypass import Bypass
from rpeg.validation.real import Iteration, described
from rpeg.workload import Workload, constant

OUT = Path(__file__).resolve().parent / "results" / "real.json"
HEURISTIC, SEARCHED = "ReaL-Heuristic", "ReaL"
COLUMNS = ("ours", "heuristic", "heuristic, measured", "walk", "ReaL's searched, measured")


@dataclass(frozen=True)
class Setting:
    """iteration: as the heuristic's row describes it. measured: seconds by system."""

    iteration: Iteration
    measured: Mapping[str, float]

    @property
    def name(self) -> str:
        it = self.iteration
        sizes = "/".join(str(it.models[role]) for role in ("actor", "critic"))
        return f"{sizes}B on {it.devices}, {it.samples} × ({it.prompt} + {it.response - _beyond(it)})"


def settings(path: Path) -> list[Setting]:
    """One for each setting of which the heuristic's plan is known; copies of a measurement once."""
    found: dict[object, tuple[Iteration, dict[str, float]]] = {}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    rows.sort(key=lambda row: (row.get("setting") or {}).get("system") != HEURISTIC)
    for row in rows:
        setting, seconds = row.get("setting") or {}, (row.get("measured") or {}).get("iter_time_s")
        name = setting.get("system")
        if name not in (HEURISTIC, SEARCHED) or seconds is None:
            continue
        key = tuple(setting.get(k) for k in ("actor_b", "critic_b", "n_gpus", "batch_size", "gen_len"))
        if name == HEURISTIC:
            found.setdefault(key, (described(row), {}))
        if key in found:
            found[key][1][name] = float(seconds)
    return [Setting(*pair) for pair in found.values()]


def problem_of(it: Iteration) -> Problem:
    """Four models, fixed lengths, half precision."""
    graph = with_reward_model(ppo.graph(ppo.Hyper(kl_coefficient=0.1)))
    bypass = next(iter(Bypass.candidates(graph)))
    roles = {"reference": "ref"}
    architectures = {m.name: it.architecture(roles.get(m.name, m.name)) for m in graph.models}
    return Problem(
        bypass.apply(graph),
        system("hgx-a800", nodes=it.devices // it.devices_per_node),
        Workload(it.samples, 1, constant(it.prompt), constant(it.response - _beyond(it)), it.minibatches),
        Facts(architectures, "float16", engine="eager", trainer="megatron"),
        applied=(bypass,),
    )


def _beyond(it: Iteration) -> int:
    """Tokens that ReaL's pipelines generate beyond the limit."""
    return it.layouts["actor_gen"].pp - 1


def predicted(setting: Setting, budget: Budget, limit: Limit, seed: int) -> dict[str, float | None]:
    """Seconds of an iteration by column; None where nothing fits, or nothing was measured."""
    problem = problem_of(setting.iteration)
    ranked = plan_job(problem, seed=seed, budget=budget)
    heuristic = next(b for b in ranked.baselines if b.name == "ReaL heuristic")
    return {
        COLUMNS[0]: ranked.best.estimate.step.mean_seconds,
        COLUMNS[1]: _seconds(heuristic),
        COLUMNS[2]: setting.measured.get(HEURISTIC),
        COLUMNS[3]: limit.walk(problem, seed),
        COLUMNS[4]: setting.measured.get(SEARCHED),
    }


@dataclass(frozen=True)
class Limit:
    """Of the walk: evaluations, or seconds where they are not 0."""

    evaluations: int
    seconds: float

    def walk(self, problem: Problem, seed: int) -> float | None:
        """Seconds of the best plan that fits; its tables are filled while it walks."""
        search = search_of(problem, seed)
        structure = search.structure(())
        assert structure is not None
        began = time.monotonic()
        steps = 10**9 if self.seconds else self.evaluations
        found = metropolis(
            search, structure, steps, seed, stop=lambda: 0 < self.seconds < time.monotonic() - began
        )
        return found.seconds if found.fits else None


def _seconds(baseline: Baseline) -> float | None:
    return None if baseline.candidate is None else baseline.candidate.estimate.step.mean_seconds


def table(rows: list[dict[str, Any]]) -> Iterator[str]:
    yield f"{'setting':<34}" + "".join(f"{name:>27}" for name in COLUMNS)
    for row in rows:
        yield f"{row['setting']:<34}" + "".join(f"{_text(row[name]):>27}" for name in COLUMNS)
    for over, under, what in (
        (1, 0, "the heuristic's prediction over ours"),
        (3, 0, "the walk over ours"),
        (1, 2, "the heuristic's prediction over its measurement"),
        (2, 4, "ReaL's gain over its heuristic, both measured"),
    ):
        pairs = [(row[COLUMNS[over]], row[COLUMNS[under]]) for row in rows]
        found = [a / b for a, b in pairs if a and b]
        if found:
            yield f"{what}: {min(found):.2f}–{max(found):.2f}, median {median(found):.2f} ({len(found)})"


def _text(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds:.2f} s"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument(
        "--settings", type=int, default=None, help="only the first so many, the smallest first"
    )
    parser.add_argument("--evaluations", type=int, default=20000)
    parser.add_argument("--seconds", type=float, default=0.0, help="of the walk, instead of evaluations")
    parser.add_argument("--chains", type=int, default=Budget.chains)
    parser.add_argument("--rounds", type=int, default=Budget.rounds)
    parser.add_argument("--burst", type=int, default=Budget.burst)
    parser.add_argument("--seed", type=int, default=0)
    a = parser.parse_args()
    rows: list[dict[str, Any]] = []
    found = sorted(settings(a.data), key=lambda s: (s.iteration.devices, s.name))
    for setting in found[: a.settings]:
        try:
            made = predicted(
                setting, Budget(a.chains, a.rounds, a.burst), Limit(a.evaluations, a.seconds), a.seed
            )
        except InputError as error:
            raise SystemExit(f"{setting.name}: {error}") from error
        rows.append({"setting": setting.name, **made})
        print(*list(table(rows))[len(rows) : len(rows) + 1], flush=True)
    print(*table(rows), sep="\n")
    a.out.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
