"""`measure`: the calibration of this machine for one architecture, from the cache or in half a minute."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rpeg.architecture import Architecture
from rpeg.calibrate import cache, machine
from rpeg.calibrate.shapes import Shapes
from rpeg.calibrate.tables import averages, tables
from rpeg.cost import Calibration
from rpeg.cost import table as files
from rpeg.errors import InputError, RunError

DTYPES = ("float32", "float64", "bfloat16")
_TIMEOUT_SECONDS = 300


def cached(architecture: Architecture, dtype: str, processes: int, shapes: Shapes) -> Calibration | None:
    """The calibration in the cache, if there is one; measures nothing."""
    return cache.load(cache.path(architecture, dtype, processes, shapes))


def measure(
    architecture: Architecture,
    dtype: str = "float32",
    processes: int = 1,
    shapes: Shapes | None = None,
    *,
    fresh: bool = False,
) -> Calibration:
    """Times ops and layers, never a stage or a step, in `processes` pinned processes that all work at once.

    fresh: measures anew although the cache has it. InputError where the machine has fewer cores than processes;
    RunError where a worker dies, with the end of what it wrote.
    """
    shapes = shapes or Shapes()
    if dtype not in DTYPES:
        raise InputError(f"dtype '{dtype}' cannot be calibrated; known: {', '.join(DTYPES)}")
    where = cache.path(architecture, dtype, processes, shapes)
    found = None if fresh else cache.load(where)
    if found is not None:
        return found
    results = _run_workers(architecture, dtype, processes, shapes)
    calibration = Calibration(
        device="cpu",
        machine=f"{machine.processor()}, {processes} processes of one thread at once",
        dtype=dtype,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        architecture=architecture.name,
        versions=machine.versions(),
        tables=tables(averages([_by_shape(result["seconds"]) for result in results])),
        memory_bytes={"context": max(result["context_bytes"] for result in results)},
    )
    files.write(calibration, where)
    return calibration


def _by_shape(rows: list[list[Any]]) -> dict[str, dict[tuple[int, ...], float]]:
    out: dict[str, dict[tuple[int, ...], float]] = {}
    for op, shape, seconds in rows:
        out.setdefault(op, {})[tuple(shape)] = seconds
    return out


def _run_workers(
    architecture: Architecture, dtype: str, processes: int, shapes: Shapes
) -> list[dict[str, Any]]:
    cores = machine.cores()
    if not 1 <= processes <= len(cores):
        raise InputError(f"{processes} processes asked of {len(cores)} cores: each needs a core of its own")
    with tempfile.TemporaryDirectory(prefix="rpeg-calibrate-") as folder:
        base = Path(folder)
        for rank in range(processes):
            task = {
                "architecture": architecture.to_json(),
                "dtype": dtype,
                "shapes": shapes.to_json(),
                "rank": rank,
                "ranks": processes,
                "core": cores[rank],
                "rendezvous": str(base / "rendezvous"),
            }
            (base / f"task{rank}.json").write_text(json.dumps(task), encoding="utf-8")
        workers = [_start(base, rank) for rank in range(processes)]
        try:
            _wait(workers, base)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
        return [json.loads((base / f"result{rank}.json").read_text("utf-8")) for rank in range(processes)]


def _start(base: Path, rank: int) -> subprocess.Popen[bytes]:
    """One thread a worker, also in what libraries start before they are asked."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    command = [sys.executable, "-m", "rpeg.calibrate.worker", str(base / f"task{rank}.json")]
    with (base / f"log{rank}").open("wb") as log:
        return subprocess.Popen(
            [*command, str(base / f"result{rank}.json")],
            env={**os.environ, **threads, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def _wait(workers: list[subprocess.Popen[bytes]], base: Path) -> None:
    for rank, worker in enumerate(workers):
        try:
            code = worker.wait(timeout=_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            raise RunError(f"calibration worker {rank} has not ended after {_TIMEOUT_SECONDS} s") from None
        if code:
            log = (base / f"log{rank}").read_text(encoding="utf-8", errors="replace")
            raise RunError(f"calibration worker {rank} ended with code {code}:\n{log[-2000:]}")
