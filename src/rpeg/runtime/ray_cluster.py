"""Ray, which carries the workers: started here by itself on one machine, joined where an address is given."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rpeg.runtime.weights import Broadcast
from rpeg.runtime.work import Answer, Station, Work, unbundle, unpack
from rpeg.runtime.worker import Worker

LOOPBACK = "127.0.0.1"
# One thread a process: a device is one core, and libraries that spawn more would take the neighbours'.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "PYTHONWARNINGS": "ignore",
}


@contextmanager
def ray_cluster(workers: int, address: str | None) -> Iterator[str]:
    """Ray for as long as the block runs; gives the address that processes on this node are reached at.

    Without `address` a private, silent Ray is started on the loopback interface and ended again.
    """
    os.environ.update({k: v for k, v in ENVIRONMENT.items() if k.startswith("RAY_") or address is None})
    import ray
    from ray._private import services

    if address is None:
        # Ray takes a loopback address for a mistake and listens on every interface instead.
        services.resolve_ip_for_localhost = lambda host: host
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "namespace": "rpeg"}
    if address is None:
        options |= {
            "num_cpus": workers,
            "include_dashboard": False,
            "_node_ip_address": LOOPBACK,
            "object_store_memory": _object_store_bytes(),
        }
    else:
        options |= {"address": address, "runtime_env": {"env_vars": ENVIRONMENT}}
    ray.init(**options)
    try:
        yield LOOPBACK if address is None else str(ray.util.get_node_ip_address())
    finally:
        ray.shutdown()


def _object_store_bytes() -> int:
    """A tenth of the machine's memory, between 256 MiB and 8 GiB: weights and batches of a few steps."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(max(total // 10, 256 * 1024**2), 8 * 1024**3)


class RayWorker(Worker):
    """A worker whose weights travel as references: what they point to stays on its node until it is wanted."""

    def publish_initial(self) -> dict[tuple[str, int], Any]:
        import ray

        # Kept here: a reference inside an answer does not keep alive what it points to.
        self._initial = {version: ray.put(weights) for version, weights in super().publish_initial().items()}
        return self._initial

    def fetch(self, reference: Any) -> Broadcast:
        import ray

        found: Broadcast = ray.get(reference)
        return found


class RayHandle:
    """One worker, as the driver calls it."""

    def __init__(self, station: Station) -> None:
        import ray

        gpus = 1 if station.device.startswith("cuda") else 0
        actor = ray.remote(RayWorker).options(num_cpus=1, num_gpus=gpus, max_restarts=0, name=None)
        self.station = station
        self.actor: Any = actor.remote(station)

    def call(self, method: str, *arguments: Any) -> Awaitable[Any]:
        answer: Awaitable[Any] = getattr(self.actor, method).remote(*arguments)
        return answer

    def run(self, work: Work, references: list[Any]) -> AsyncIterator[Answer]:
        if work.streams:
            return self._streamed(
                self.actor.stream.options(num_returns="streaming").remote(work, *references)
            )
        return self._whole(self.actor.run.options(num_returns=1 + work.contents).remote(work, *references))

    def receive(self, work: Work, references: Sequence[Any]) -> AsyncIterator[Answer]:
        """In a list, references arrive as such: the worker takes one at a time."""
        return self._whole(self.actor.receive.remote(work, list(references)))

    def move(self, work: Work) -> AsyncIterator[Answer]:
        return self._whole(self.actor.move.remote(work))

    @staticmethod
    async def _whole(references: Any) -> AsyncIterator[Answer]:
        """One reference, or the headers' and one for each content: a call without a stream costs half as much."""
        first, *contents = references if isinstance(references, list) else [references]
        for answer in unbundle(await first, contents):
            yield answer

    @staticmethod
    async def _streamed(stream: Any) -> AsyncIterator[Answer]:
        async for reference in stream:
            answer, count = await reference
            yield unpack(answer, [await anext(stream) for _ in range(count)])
