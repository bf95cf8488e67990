"""What carrying costs: a call through Ray, and a batch of so many bytes from one worker to another.

It depends on the machine alone and is cached apart from the tables of an architecture. Calls are made as a run makes
them: an asyncio driver, one actor a device, answers that stream back.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import statistics
import sys
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

_ACTORS = 2
_CALLS = 30
_TRANSFERS = 8

SIZES = (4096, 262144, 2_097_152, 16_777_216)


def measure(sizes: tuple[int, ...] = SIZES) -> list[list[Any]]:
    """[probe, shape, seconds] rows of `call`, and of `put` and `get` by bytes. Starts and ends a private Ray."""
    import ray

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(
        num_cpus=_ACTORS,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        _node_ip_address="127.0.0.1",
        object_store_memory=256 * 1024**2,
    )
    try:
        return asyncio.run(_measure([ray.remote(_Echo).remote(core) for core in range(_ACTORS)], sizes))
    finally:
        ray.shutdown()


class _Echo:
    """An actor that answers as a worker does: a header, then contents one by one."""

    def __init__(self, core: int) -> None:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[core % len(cores)]})

    def make(self, size_bytes: int) -> Any:
        """Yields a header and, unless it is of 0 bytes, an array."""
        import numpy as np

        yield size_bytes
        if size_bytes:
            yield np.zeros(size_bytes, dtype=np.uint8)

    def take(self, array: Any) -> Any:
        """Yields a header after having touched the array."""
        yield int(array[::4096].sum())


async def _measure(actors: list[Any], sizes: tuple[int, ...]) -> list[list[Any]]:
    first, second = actors
    for actor in actors:
        await _call(actor.make, 0)
    driver = process_time()
    call = statistics.median([(await _call(first.make, 0))[0] for _ in range(_CALLS)])
    # Every core is a device here: what the driver computes for a call is taken from the devices in equal parts.
    taken = (process_time() - driver) / _CALLS / len(actors)
    rows: list[list[Any]] = [["call", [], call + taken]]
    for size in sizes:
        puts, gets = [], []
        for _ in range(_TRANSFERS):
            seconds, answers = await _call(first.make, size)
            puts.append(seconds)
            gets.append((await _call(second.take, answers[1]))[0])
        rows.append(["put", [size], max(0.0, statistics.median(puts) - call)])
        rows.append(["get", [size], max(0.0, statistics.median(gets) - call)])
    return rows


async def _call(method: Any, argument: Any) -> tuple[float, list[Any]]:
    """Seconds from the call to the last answer, and references to the answers."""
    start = perf_counter()
    references = []
    async for reference in method.options(num_returns="streaming").remote(argument):
        references.append(reference)
    await references[0]
    return perf_counter() - start, references


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(measure()), encoding="utf-8")
