"""Does verification catch every lie, and is it silent where there is none?

    python benchmarks/mutations.py
    python benchmarks/mutations.py --mutated 200 --clean 40 --seed 7

Sound runs are drawn from plans of all kinds (those of tests/verify/sound_runs.py: colocated, split, streamed, replicas,
minibatches, asynchronous, shared, fused, selection, offload, resumed …; random plans; and a few that really run, on one
device in this process). Each mutation of tests/verify/mutations.py breaks one named property by construction, and they
take turns: caught is a lie only where that property fails. Clean runs are sound ones after legal shifts: other clocks,
other times, concurrent things in another order, a crash at the end. Counts go to benchmarks/results/mutations.json; exits
1 where a lie slips through or a clean run raises an alarm.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from itertools import cycle
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from rpeg.verify import prove_run
from verify.legal_shifts import shifted
from verify.mutations import MUTATIONS
from verify.real_runs import real_runs
from verify.sound_runs import random_plans, sound_runs

RANDOM_PLANS = 60
MOST_RUNS_A_LIE = 400
"""A mutation that finds nothing to lie about in so many runs is given up."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutated", type=int, default=1000)
    parser.add_argument("--clean", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results" / "mutations.json")
    asked = parser.parse_args()
    began, draw = time.monotonic(), Random(asked.seed)
    with TemporaryDirectory() as directory:
        runs = sound_runs(draw, random_plans(RANDOM_PLANS, asked.seed), real_runs(Path(directory)))
        kinds: Counter[str] = Counter()
        caught, slipped = Counter(), []  # type: ignore[var-annotated]
        for mutation in cycle(MUTATIONS):
            if caught.total() + len(slipped) == asked.mutated:
                break
            for _ in range(MOST_RUNS_A_LIE):
                kind, run = next(runs)
                lie = mutation.apply(run, draw)
                if lie is not None:
                    break
            else:
                raise SystemExit(f"{mutation.name} found nothing to lie about in {MOST_RUNS_A_LIE} runs")
            kinds[kind] += 1
            if mutation.breaks in (broken := prove_run(lie).broken):
                caught[mutation.breaks] += 1
            else:
                slipped.append([kind, mutation.name, mutation.breaks, list(broken)])
        alarms = []
        for _ in range(asked.clean):
            kind, run = next(runs)
            kinds[kind] += 1
            alarms += [[kind, *broken] for broken in [prove_run(shifted(run, draw)).broken] if broken]
    result = {
        "seed": asked.seed,
        "mutated": asked.mutated,
        "caught by the named property": caught.total(),
        "slipped": slipped,
        "clean": asked.clean,
        "alarms": alarms,
        "mutations": len(MUTATIONS),
        "by property": dict(sorted(caught.items())),
        "by kind of run": dict(sorted(kinds.items())),
        "seconds": round(time.monotonic() - began),
    }
    asked.results.write_text(json.dumps(result, indent=1) + "\n")
    print(
        f"{caught.total()} of {asked.mutated} lies caught by the property that they break; {len(slipped)} slipped"
    )
    print(f"{len(alarms)} alarms in {asked.clean} clean runs; {result['seconds']} s")
    for line in (*slipped, *alarms):
        print(line)
    return 1 if slipped or alarms else 0


if __name__ == "__main__":
    sys.exit(main())
