"""Ray, which carries the workers: started here by itself on one machine, joined where an address is given."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rpeg.runtime.ray_calls import RayCalls
from rpeg.runtime.weights import Broadcast
from rpeg.runtime.work import Station
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

# Nobody looks at the tasks of a private Ray.
PRIVATE = {"RAY_task_events_report_interval_ms": "0"}


@contextmanager
def ray_cluster(workers: int, address: str | None) -> Iterator[str]:
    """Ray for as long as the block runs; gives the address that processes on this node are reached at.

    Without `address` a private, silent Ray is started on the loopback interface and ended again.
    """
    os.environ.update({k: v for k, v in ENVIRONMENT.items() if k.startswith("RAY_") or address is None})
    import ray
    from ray._private import services

    if address is None:
        os.environ.update(PRIVATE)
        # Ray takes a loopback address for a mistake and listens on every interface instead.
        services.resolve_ip_for_localhost = lambda host: host
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR, "namespace": "rpeg"}
    if address is None:
        options |= {
            "address": "local",  # one that runs already, which Ray would otherwise join, is somebody else's
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


class RayHandle(RayCalls):
    """One worker, as the driver calls it."""

    def __init__(self, station: Station) -> None:
        import ray

        gpus = 1 if station.device.startswith("cuda") else 0
        actor = ray.remote(RayWorker).options(num_cpus=1, num_gpus=gpus, max_restarts=0, name=None)
        super().__init__(actor.remote(station))
        self.station = station
