"""`measure`: the calibration of this machine for one architecture, from the cache or in half a minute."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from rpeg.architecture import Architecture
from rpeg.calibrate import cache, machine
from rpeg.calibrate.shapes import Shapes
from rpeg.calibrate.tables import averages, tables
from rpeg.cost import Calibration
from rpeg.cost.passes import table as files
from rpeg.errors import InputError, RunError
from rpeg.units import GIB

DTYPES = ("float32", "float64", "bfloat16")
_TIMEOUT_SECONDS = 300
# Every op is timed in so many rounds over all of them, in each for about so long.
ROUNDS, BUDGET_SECONDS = 3, 0.02


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
    carried = _transport(fresh)
    calibration = Calibration(
        device="cpu",
        machine=f"{machine.processor()}, {processes} processes of one thread at once",
        dtype=dtype,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        architecture=architecture.name,
        versions=machine.versions(),
        tables=tables(
            {**averages([_by_shape(result["seconds"]) for result in results]), **_by_shape(carried)}
        ),
        memory_bytes={"context": max(result["context_bytes"] for result in results)},
    )
    files.write(calibration, where)
    return calibration


def _by_shape(rows: list[list[Any]]) -> dict[str, dict[tuple[int, ...], float]]:
    out: dict[str, dict[tuple[int, ...], float]] = {}
    for op, shape, seconds in rows:
        out.setdefault(op, {})[tuple(shape)] = seconds
    return out


def _transport(fresh: bool) -> list[list[Any]]:
    """The rows of `transport.measure`, from the cache or from a process of its own, since it starts Ray."""
    where = cache.transport_path()
    if not fresh and where.exists():
        rows: list[list[Any]] = json.loads(where.read_text(encoding="utf-8"))
        return rows
    with tempfile.TemporaryDirectory(prefix="rpeg-calibrate-") as folder:
        result = Path(folder) / "result.json"
        worker = _start("transport", [result], Path(folder) / "log")
        _wait([worker], [Path(folder) / "log"])
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_text(result.read_text(encoding="utf-8"), encoding="utf-8")
    return _transport(fresh=False)


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
                "rounds": ROUNDS,
                "budget_seconds": BUDGET_SECONDS,
                "rank": rank,
                "ranks": processes,
                "core": cores[rank],
                "rendezvous": str(base / "rendezvous"),
            }
            (base / f"task{rank}.json").write_text(json.dumps(task), encoding="utf-8")
        logs = [base / f"log{rank}" for rank in range(processes)]
        results = [base / f"result{rank}.json" for rank in range(processes)]
        workers = [
            _start("worker", [base / f"task{rank}.json", results[rank]], logs[rank])
            for rank in range(processes)
        ]
        _wait(workers, logs)
        return [json.loads(result.read_text(encoding="utf-8")) for result in results]


def _start(module: str, arguments: list[Path], log: Path) -> subprocess.Popen[bytes]:
    """One thread a worker, also in what libraries start before they are asked."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    threads["TOKENIZERS_PARALLELISM"] = "false"
    with log.open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", f"rpeg.calibrate.{module}", *map(str, arguments)],
            env={**os.environ, **threads, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )


def _wait(workers: list[subprocess.Popen[bytes]], logs: list[Path]) -> None:
    """Until all have ended; the first that fails or is late ends the others."""
    deadline = monotonic() + _TIMEOUT_SECONDS
    try:
        while pending := [worker for worker in workers if worker.poll() is None]:
            _check(workers, logs)
            if monotonic() > deadline:
                raise RunError(
                    f"{len(pending)} calibration workers have not ended after {_TIMEOUT_SECONDS} s"
                )
            sleep(0.05)
        _check(workers, logs)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def _check(workers: list[subprocess.Popen[bytes]], logs: list[Path]) -> None:
    for worker, log in zip(workers, logs, strict=True):
        if worker.poll():
            said = log.read_text(encoding="utf-8", errors="replace")[-2000:]
            if worker.returncode == -signal.SIGKILL:
                raise RunError(
                    "a calibration worker was killed, most likely for lack of memory: this model's layers need more than "
                    f"the {machine.memory_bytes() / GIB:.0f} GiB here. Plan without measuring: rpeg plan --no-measure"
                )
            raise RunError(f"a calibration worker ended with code {worker.returncode}:\n{said}")
