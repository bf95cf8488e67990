"""The driver on workers that only pretend: what it logs, how it stops, how it fails."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from plans import make_plan, ppo_graph
from rpeg.errors import RunError
from rpeg.plan import Plan
from rpeg.runtime.checkpoints import Checkpoints
from rpeg.runtime.driver import Driver
from rpeg.runtime.run_directory import RunDirectory
from rpeg.runtime.work import Answer, Done, Part, Work
from rpeg.trace import Entry, JsonLines, Span, begin_stretch, read_traces, span_file
from rpeg.verify import prove
from runtime.runs import Silent

SPLIT = {
    **dict.fromkeys(("generate", "reference", "evaluate"), (0,)),
    **dict.fromkeys(("old_logprob", "value", "train_actor", "train_critic"), (1,)),
}


@dataclass
class Pretender:
    """A worker that waits instead of working, and fails or hangs at one stage where it is told to."""

    lane: str
    plan: Plan
    spans: JsonLines
    held: dict[str, int] = field(default_factory=dict)
    fails_at: tuple[str, int] | None = None
    hangs_at: tuple[str, int] | None = None
    random: random.Random = field(default_factory=lambda: random.Random(0))

    async def run(self, work: Work, references: list[Any]) -> AsyncIterator[Answer]:
        loop = asyncio.get_running_loop()
        start = loop.time()
        await self._pause(work)
        samples, made = list(work.ids), []
        for number, size in work.parts if work.item.name == "generate" else ():
            ids = [samples.pop(self.random.randrange(len(samples))) for _ in range(size)]
            made += ids
            yield Part(number, tuple(ids), tuple(1 for _ in ids), object())
            await self._pause(work)
        step = work.item.step
        trains = work.item.name in ("train_actor", "train_critic")
        trained = dict.fromkeys(self.plan.graph.stage(work.item.name).models, step + 1) if trains else {}
        digests = {f"{m}@{v}": f"{m}{v}" for m, v in [*work.versions, *trained.items()]}
        ids = tuple(made or work.ids)
        span = Span(
            self.lane,
            self.lane,
            work.item,
            work.seq,
            start,
            loop.time(),
            dict(work.versions),
            trained,
            digests,
            ids,
            8 * len(ids),
        )
        self.spans.write(span.to_json())
        yield Done(object(), {m: object() for m in trained}, {"sum/reward": 1.0, "sum/rewarded": 2.0})

    async def receive(self, work: Work, references: Sequence[Any]) -> AsyncIterator[Answer]:
        async for answer in self.run(work, list(references)):
            yield answer

    async def _pause(self, work: Work) -> None:
        here = (work.item.name, work.item.step)
        if here == self.fails_at:
            raise OSError("no space left on device")
        if here == self.hangs_at:
            await asyncio.sleep(3600)
        await asyncio.sleep(self.random.random() / 1000)


def make_driver(
    tmp_path: Path,
    plan: Plan,
    steps: int,
    view: Silent,
    pretend: Mapping[str, Any],
    stall_seconds: float = 30,
) -> Driver:
    directory = RunDirectory(tmp_path)
    trace = begin_stretch(tmp_path, "real", steps, 0)
    lanes = [lane.name for lane in plan.order]
    handles = {n: Pretender(n, plan, JsonLines(span_file(trace, n)), **pretend) for n in lanes}
    broadcasts = {("actor", 0): [object()], ("critic", 0): [object()]}
    keep = Checkpoints(directory, every=2, keep=1, seed=0)
    return Driver(plan, steps, 0, handles, broadcasts, trace, keep, view, stall_seconds)


def write(plan: Plan, tmp_path: Path) -> None:
    from rpeg.plan import write_plan

    write_plan(plan, tmp_path / "plan.json")


def test_steps_are_told_and_checkpoints_kept(tmp_path: Path) -> None:
    plan, view = make_plan(ppo_graph(), SPLIT), Silent([])
    write(plan, tmp_path)
    driver = make_driver(tmp_path, plan, 5, view, {})
    asyncio.run(driver.run())
    assert [line for line in view.told if line.startswith("step")] == [f"step {i}" for i in range(5)]
    assert [line for line in view.told if line.startswith("check")] == [
        "checkpoint 2",
        "checkpoint 4",
        "checkpoint 5",
    ]
    assert [c.steps for c in RunDirectory(tmp_path).checkpoints()] == [5]
    (trace,) = read_traces(tmp_path)
    assert [e.seq for e in trace.entries] == list(range(len(trace.entries)))
    assert prove(trace).broken in ((), ("every_item_ran",))  # the header is not closed here


def test_a_requested_stop_ends_with_a_checkpoint(tmp_path: Path) -> None:
    class Impatient(Silent):
        def on_step(self, record: Any) -> None:
            super().on_step(record)
            if record.step == 0:
                self.told.append(f"asked {driver.request_stop()}")

    plan, view = make_plan(ppo_graph(), SPLIT), Impatient([])
    driver = make_driver(tmp_path, plan, 50, view, {})
    asyncio.run(driver.run())
    assert driver.stopped_early
    asked = int(next(line for line in view.told if line.startswith("asked")).split()[1])
    assert asked <= 3
    assert [c.steps for c in RunDirectory(tmp_path).checkpoints()] == [asked]
    assert len(driver.records) == asked


def test_a_failing_item_is_named(tmp_path: Path) -> None:
    plan = make_plan(ppo_graph(), SPLIT)
    driver = make_driver(tmp_path, plan, 5, Silent([]), {"fails_at": ("value", 2)})
    with pytest.raises(RunError, match=r"value\[step 2, .*OSError: no space left on device"):
        asyncio.run(driver.run())
    entries: list[Entry] = [e for e in _entries(tmp_path) if e["what"] == "failed"]
    assert len(entries) == 1


def _entries(tmp_path: Path) -> list[Any]:
    import json

    return [json.loads(line) for line in (tmp_path / "trace-1" / "driver.jsonl").read_text().splitlines()]


def test_a_hang_says_who_waits_for_whom(tmp_path: Path) -> None:
    plan = make_plan(ppo_graph(), SPLIT)
    driver = make_driver(tmp_path, plan, 5, Silent([]), {"hangs_at": ("reference", 1)}, stall_seconds=0.3)
    with pytest.raises(RunError) as caught:
        asyncio.run(driver.run())
    assert "running: reference[step 1, part 0, replica 0] on device0" in str(caught.value)
    assert "waiting: advantage[step 1" in str(caught.value)
