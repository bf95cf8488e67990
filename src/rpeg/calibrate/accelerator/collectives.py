"""Collectives between processes of this machine, or between those that a launcher such as torchrun has started.

Run as ``python -m rpeg.calibrate.accelerator.collectives RANK RANKS RENDEZVOUS DEVICE MESSAGES RESULT``.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from rpeg.errors import RunError

_CALLS, _WARM = 10, 3
_TIMEOUT_SECONDS = 300.0

Curve = dict[str, Any]


def launched() -> bool:
    """Whether a launcher started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def between(processes: int, device: str, messages: tuple[float, ...]) -> list[Curve]:
    """Starts so many processes, each on a device of its own where it is CUDA, and measures between them."""
    with tempfile.TemporaryDirectory(prefix="rpeg-collectives-") as folder:
        base = Path(folder)
        shared = [str(processes), f"file://{base / 'rendezvous'}", device, json.dumps(messages)]
        command = [sys.executable, "-m", "rpeg.calibrate.accelerator.collectives"]
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
        }
        logs = [base / f"log{rank}" for rank in range(processes)]
        workers = []
        for rank, log in enumerate(logs):
            with log.open("wb") as output:
                arguments = [*command, str(rank), *shared, str(base / f"result{rank}")]
                workers.append(subprocess.Popen(arguments, env=environment, stdout=output, stderr=output))
        _wait(workers, logs)
        curves: list[Curve] = json.loads((base / "result0").read_text(encoding="utf-8"))
        return curves


def measure(rank: int, ranks: int, init_method: str, device: str, messages: tuple[float, ...]) -> list[Curve]:
    """Joins the group, measures, leaves. Curves have the schema of the bundled ones; on CPU the library is gloo."""
    on_cuda = device == "cuda"
    where = torch.device("cuda", int(os.environ.get("LOCAL_RANK", rank))) if on_cuda else torch.device("cpu")
    library = "nccl" if on_cuda else "gloo"
    if on_cuda:
        torch.cuda.set_device(where)
    else:
        torch.set_num_threads(1)
    dist.init_process_group(library, init_method=init_method, rank=rank, world_size=ranks)
    curves: dict[str, Curve] = {}
    for size in messages:
        for name, call in _calls(int(size), ranks, where):
            curve = curves.setdefault(name, _empty(name, library, ranks))
            curve["bytes"].append(int(size))
            curve["seconds"].append(_seconds(call, on_cuda))
    dist.destroy_process_group()
    return list(curves.values())


def _empty(name: str, library: str, ranks: int) -> Curve:
    return {"collective": name, "library": library, "ranks": ranks, "bytes": [], "seconds": []}


def _calls(size: int, ranks: int, device: torch.device) -> Iterator[tuple[str, Callable[[], object]]]:
    """Bytes are of the whole tensor, in elements of 2 bytes (4 on CPU, where gloo adds no half numbers)."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    count = max(ranks, size // dtype.itemsize // ranks * ranks)
    whole, other = (torch.ones(count, dtype=dtype, device=device) for _ in range(2))
    part = whole[: count // ranks].clone()
    yield "all_reduce", partial(dist.all_reduce, whole)
    yield "all_gather", partial(dist.all_gather_into_tensor, whole, part)
    yield "reduce_scatter", partial(dist.reduce_scatter_tensor, part, whole)
    yield "all_to_all", partial(dist.all_to_all_single, other, whole)


def _seconds(call: Callable[[], object], on_cuda: bool) -> float:
    """The median over calls, by the clock: a collective waits for others."""
    times = []
    for _ in range(_WARM + _CALLS):
        dist.barrier()
        if on_cuda:
            torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        if on_cuda:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times[_WARM:])


def _wait(workers: list[subprocess.Popen[bytes]], logs: list[Path]) -> None:
    """Until all have ended; the first that fails or is late ends the others."""
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    try:
        while any(worker.poll() is None for worker in workers):
            _check(workers, logs)
            if time.monotonic() > deadline:
                raise RunError(
                    f"collectives between {len(workers)} processes took over {_TIMEOUT_SECONDS:.0f} s"
                )
            time.sleep(0.05)
        _check(workers, logs)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def _check(workers: list[subprocess.Popen[bytes]], logs: list[Path]) -> None:
    for worker, log in zip(workers, logs, strict=True):
        if worker.poll():
            said = log.read_text(encoding="utf-8", errors="replace")[-1500:]
            raise RunError(
                f"a process that measured collectives ended with code {worker.returncode}:\n{said}"
            )


def main(rank: str, ranks: str, init_method: str, device: str, messages: str, result: str) -> None:
    """One process of `between`."""
    curves = measure(int(rank), int(ranks), init_method, device, tuple(json.loads(messages)))
    Path(result).write_text(json.dumps(curves), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
