"""Ray, which carries the workers: started here by itself on one machine, joined where an address is given."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rpeg.errors import InputError
from rpeg.plan import Plan
from rpeg.runtime.placement import ACCELERATOR_LABEL, RACK_LABEL, Host, needs, place
from rpeg.runtime.ray_calls import RayCalls
from rpeg.runtime.visit import check_alike, look
from rpeg.runtime.weights import Broadcast
from rpeg.runtime.work import Station
from rpeg.runtime.worker import Worker

LOOPBACK = "127.0.0.1"
CONNECT_SECONDS = 15.0
# One thread a process: a device is one core, and libraries that spawn more would take the neighbours'.
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "PYTHONWARNINGS": "ignore",
}
# Nobody looks at the tasks of a private Ray.
PRIVATE = {"RAY_task_events_report_interval_ms": "0"}
RESERVE_SECONDS = 30.0
"""How long to wait for what other jobs of the cluster hold."""


@dataclass(frozen=True)
class Seat:
    """Where a worker is. address: of its node, for the others. options: by which Ray puts it there."""

    address: str
    options: Mapping[str, Any] = field(default_factory=dict)


@contextmanager
def ray_cluster(workers: int, address: str | None) -> Iterator[str]:
    """Ray for as long as the block runs; gives the address that processes on this node are reached at.

    Without `address` a private, silent Ray is started on the loopback interface and ended again. InputError where no
    cluster answers.
    """
    if address is not None and address.startswith("ray://"):
        raise InputError(
            f"{address} is Ray's client protocol; run rpeg on a node of the cluster (`ray job submit` does) with its "
            "HOST:PORT, or --address auto"
        )
    if address is not None and address != "auto":
        _demand_listener(address)
    os.environ.update({k: v for k, v in ENVIRONMENT.items() if k.startswith("RAY_") or address is None})
    import ray
    from ray._private import services, worker

    worker.print_to_stdstream = lambda *_, **__: None  # what it says of a lost worker, the run says itself
    if address is None:
        os.environ.update(PRIVATE)
    if address is None or address.startswith("127."):
        # Ray takes a loopback address for a mistake, and listens on every interface or looks elsewhere instead.
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
    try:
        ray.init(**options)
    except ConnectionError as error:
        raise InputError(
            f"no Ray cluster answers at {address}: {str(error).splitlines()[0]} Start one by `ray start --head`, or "
            "leave out --address"
        ) from None
    try:
        yield LOOPBACK if address is None else str(ray.util.get_node_ip_address())
    finally:
        ray.shutdown()


@contextmanager
def seats(
    plan: Plan, lanes: list[str], address: str | None, here: str, trace: Path
) -> Iterator[Mapping[str, Seat]]:
    """A place for the worker of each lane, by the plan's nodes, for as long as the block runs.

    address, here: what `ray_cluster` was given and gave. InputError where the cluster lacks nodes or devices, is busy,
    or has a node that cannot do its part.
    """
    if address is None:
        yield {lane: Seat(here) for lane in lanes}
        return
    placed = place(needs(plan), _hosts())
    check_alike(_visits(placed, trace), str(trace.resolve()))
    with _reserved(plan, placed) as found:
        yield found


def _hosts() -> list[Host]:
    """The nodes of the cluster that are alive."""
    import ray

    return [
        Host(
            node["NodeID"],
            node["NodeManagerAddress"],
            int(node["Resources"].get("CPU", 0)),
            int(node["Resources"].get("GPU", 0)),
            node["Labels"].get(RACK_LABEL, ""),
            node["Labels"].get(ACCELERATOR_LABEL, ""),
        )
        for node in ray.nodes()
        if node["Alive"]
    ]


def _visits(placed: Mapping[int, Host], trace: Path) -> dict[str, dict[str, str]]:
    """What `look` finds on each node."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    asked = {}
    for host in placed.values():
        there = NodeAffinitySchedulingStrategy(host.id, soft=False)
        task = ray.remote(look).options(num_cpus=0, scheduling_strategy=there)
        asked[host.address] = task.remote(str(trace.resolve()))
    found = {}
    for address, answer in asked.items():
        try:
            found[address] = dict(ray.get(answer))
        except Exception as error:  # noqa: BLE001 - a node without our code answers with anything
            raise InputError(
                f"node {address} cannot run a worker: {str(error).strip().splitlines()[-1]}"
            ) from None
    return found


@contextmanager
def _reserved(plan: Plan, placed: Mapping[int, Host]) -> Iterator[Mapping[str, Seat]]:
    """A placement group with a bundle for each worker, on the node of its plan's node: all of them, or none."""
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    workers = [(lane, gpus, placed[need.node]) for need in needs(plan) for lane, gpus in need.lanes.items()]
    group = ray.util.placement_group(
        [{"CPU": 1.0, **({"GPU": 1.0} if gpus else {})} for _, gpus, _ in workers],
        bundle_label_selector=[{"ray.io/node-id": host.id} for _, _, host in workers],
    )
    try:
        if not group.wait(RESERVE_SECONDS):
            free = ray.available_resources()
            raise InputError(
                f"the cluster has had no room for {len(workers)} workers for {RESERVE_SECONDS:g} s: free are "
                f"{free.get('CPU', 0):g} cores and {free.get('GPU', 0):g} GPUs. Wait for other jobs to end"
            )
        yield {
            lane: Seat(
                host.address,
                {"scheduling_strategy": PlacementGroupSchedulingStrategy(group, bundle)},
            )
            for bundle, (lane, _, host) in enumerate(workers)
        }
    finally:
        ray.util.remove_placement_group(group)


def _demand_listener(address: str) -> None:
    """InputError at once where nobody listens: Ray would try for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise InputError(f"--address is '{address}', must be HOST:PORT of a Ray cluster's head, or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        raise InputError(
            f"no Ray cluster answers at {address}: {error}. Start one by `ray start --head`, or leave out --address"
        ) from None


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

    def __init__(self, station: Station, seat: Seat) -> None:
        import ray

        gpus = 1 if station.device.startswith("cuda") else 0
        actor = ray.remote(RayWorker).options(
            num_cpus=1, num_gpus=gpus, max_restarts=0, name=None, **seat.options
        )
        super().__init__(actor.remote(station))
        self.station = station

    def end(self) -> None:
        import ray

        ray.kill(self.actor)
