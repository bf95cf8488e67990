"""What does it cost to write down what a run does?

    python benchmarks/trace_overhead.py
    python benchmarks/trace_overhead.py --steps 30

Trains examples of one device in this process, where the driver and all workers are, and adds up the CPU seconds that go
into the trace: making entries and spans into JSON, asking for the memory held, writing lines. What they are of the CPU
seconds of the steps is the overhead; CPU seconds, because those are the same on a machine that does other things, too,
and of one process, where nothing overlaps: an upper bound for runs whose driver writes while workers work. The third job
is the worst case: half a second's work cut into sixteen parts, each of which is a line or two for every stage.

What a gang of many devices adds is an entry that names them all and the samples of the step, and the span of each device,
which it writes by itself. Results go to results/trace_overhead.json; exits 1 where tracing takes 1 % or more of a step of
the examples by their best plans.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from rich.console import Console

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from learning import example, plan_of
from rpeg.job import Job
from rpeg.plan import Item, ItemKind, Plan
from rpeg.report.live import PlainView
from rpeg.report.tables import table
from rpeg.runtime import Options, prepare_directory, train
from rpeg.runtime import worker as workers
from rpeg.trace import Entry, JsonLines, Span, What, read_traces
from runtime.runs import plan_for

MOST = 0.01
"""The share of a step that tracing may take."""
WARM = 2
"""Steps at the begin of a run that are not counted: what is loaded at first use belongs to no step."""


@dataclass
class Spent:
    """CPU seconds inside the functions that are watched, and calls of them; one inside another counts once."""

    seconds: float = 0.0
    calls: int = 0
    inside: bool = False

    def watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            if self.inside:
                return function(*arguments, **named)
            self.inside, began = True, time.thread_time()
            try:
                return function(*arguments, **named)
            finally:
                self.seconds += time.thread_time() - began
                self.calls += 1
                self.inside = False

        return timed


@dataclass(frozen=True)
class Overhead:
    """Of one job. seconds: CPU, of a step and of tracing it."""

    job: str
    steps: int
    lines_a_step: float
    step_seconds: float
    tracing_seconds: float

    @property
    def share(self) -> float:
        return self.tracing_seconds / self.step_seconds


class Steps(PlainView):
    """Notes the CPU seconds, and those of tracing, at the end of each step.

    Asking for the time takes some of it, the more the longer the caches have worked on something else: what it takes is
    learned from a function that does nothing, called whenever something is written.
    """

    def __init__(self, spent: Spent, steps: int) -> None:
        super().__init__(Console(quiet=True), steps)
        self.spent, self.idle = spent, Spent()
        self.nothing = self.idle.watched(lambda: None)
        self.ends: list[tuple[float, float]] = []

    def on_entry(self, entry: Entry) -> None:
        self.nothing()

    def on_step(self, record: Any) -> None:
        asking = self.idle.seconds / self.idle.calls
        self.ends.append((time.process_time(), self.spent.seconds - self.spent.calls * asking))


@contextmanager
def watching() -> Iterator[Spent]:
    spent = Spent()
    watched = [(Entry, "to_json"), (Span, "to_json"), (JsonLines, "write"), (workers, "_memory_bytes")]
    with ExitStack() as stack:
        for owner, name in watched:
            stack.enter_context(patch.object(owner, name, spent.watched(getattr(owner, name))))
        yield spent


def overhead(job: Job, plan: Plan) -> Overhead:
    options = Options(in_process=True, overwrite=True, export=False)
    with TemporaryDirectory() as output, watching() as spent:
        here = job.model_copy(update={"output": output})
        directory, _, start = prepare_directory(here, plan, options)
        view = Steps(spent, here.steps)
        train(here, plan, directory, start, options, view)
        (trace,) = read_traces(directory.path)
    (begin, traced), (end, all_traced) = view.ends[WARM], view.ends[-1]
    counted = len(view.ends) - 1 - WARM
    lines = (len(trace.entries) + len(trace.spans)) / job.steps
    return Overhead(job.name, counted, lines, (end - begin) / counted, (all_traced - traced) / counted)


def line_seconds(devices: int, samples: int, repeats: int = 200) -> dict[str, float]:
    """CPU seconds of the lines of a gang of so many devices: an entry of the driver, a span of one of them."""
    item, lanes = Item(ItemKind.RUN, "train_actor", 7), tuple(f"device{i}" for i in range(devices))
    ids = tuple(range(samples))
    entry = Entry(1, 1.0, What.LAUNCH, item, lanes, ids=ids, versions={"actor": 7})
    digests = {"actor@7": "0" * 64, "actor@8": "1" * 64}
    share = ids[: max(1, samples // devices)]
    span = Span(lanes[0], lanes[0], item, 1, 1.0, 2.0, {"actor": 7}, {"actor": 8}, digests, share, 9, 9)
    found = {}
    with TemporaryDirectory() as directory, JsonLines(Path(directory) / "lines") as lines:
        for name, line in (("entry", entry), ("span", span)):
            began = time.process_time()
            for _ in range(repeats):
                lines.write(line.to_json())
            found[name] = (time.process_time() - began) / repeats
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    asked = parser.parse_args()
    common = {"steps": asked.steps, "evaluation": {"every": 0}, "checkpoint": {"every": 0}}
    ppo, grpo = example("ppo", common), example("grpo", common)
    streamed = ppo.model_copy(update={"name": f"{ppo.name}, streamed"})
    cases = (
        (ppo, plan_of(ppo)),
        (grpo, plan_of(grpo)),
        (streamed, plan_for(streamed, rest=(0,), transforms=("stream{chunk=8,unit=sample}",))),
    )
    found = [overhead(job, plan) for job, plan in cases]
    large = {
        f"{n} devices, {s} samples": line_seconds(n, s) for n, s in ((8, 512), (256, 4096), (2048, 8192))
    }
    result = {
        "date": str(date.today()),
        "jobs": [{**asdict(o), "share": o.share} for o in found],
        "CPU seconds of a line": large,
    }
    path = Path(__file__).parent / "results" / "trace_overhead.json"
    path.write_text(json.dumps(result, indent=1) + "\n")
    console = Console(highlight=False)
    rows = [
        (
            o.job,
            f"{o.lines_a_step:.0f}",
            f"{o.step_seconds:.3f}",
            f"{o.tracing_seconds:.5f}",
            f"{o.share:.2%}",
        )
        for o in found
    ]
    console.print(table(("job", ">lines a step", ">step (CPU s)", ">tracing (CPU s)", ">share"), rows))
    for name, seconds in large.items():
        console.print(f"{name}: entry {seconds['entry'] * 1e3:.2f} ms, span {seconds['span'] * 1e3:.3f} ms")
    return 1 if any(o.share >= MOST for o in found[:2]) else 0


if __name__ == "__main__":
    sys.exit(main())
