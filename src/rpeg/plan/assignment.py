"""Where a stage runs and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from rpeg.ir import Kind
from rpeg.plan.parallelism import Parallelism


@dataclass(frozen=True, slots=True)
class Devices:
    """A block: devices of one kind, by their number in the cluster."""

    ids: tuple[int, ...]

    def __str__(self) -> str:
        return f"devices {ranges(self.ids)}"


@dataclass(frozen=True, slots=True)
class Host:
    """`slots` workers on the processors of a node."""

    node: int = 0
    slots: int = 1

    def __str__(self) -> str:
        return f"host {self.node}" + (f" × {self.slots}" if self.slots > 1 else "")


@dataclass(frozen=True, slots=True)
class Assignment:
    """A stage's block, layout and way of running.

    microbatch: samples in one forward of a device; for GENERATE the responses that a replica holds at once.
    recompute: which activations are computed again in the backward pass: none, selective or full.
    offload: what rests in host memory between runs: none, optimizer or all.
    bundles: the data-parallel replicas are put into so many bundles that work as one: a bundle is one item where
    replicas run apart, and its devices are one lane where no other stage splits them. 0: every replica is on its own
    and every device is a lane. Plans for thousands of devices stay small by it.
    """

    stage: str
    block: Devices | Host
    parallelism: Parallelism = field(default_factory=Parallelism)
    microbatch: int = 1
    backend: str = "torch"
    recompute: str = "none"
    offload: str = "none"
    bundles: int = 0

    def devices_of(self, item: int) -> tuple[int, ...]:
        """The devices of one replica, or bundle of replicas; none on a host."""
        if isinstance(self.block, Host):
            return ()
        ranks = _ranks_of(self.parallelism, self.bundles, len(self.block.ids)).get(item, ())
        return tuple(self.block.ids[rank] for rank in ranks)

    def bundle_numbers(self) -> tuple[int, ...]:
        """Of each rank of the block the bundle (the replica, where there are none) that it is in."""
        return _bundle_numbers(
            self.parallelism, self.bundles, 0 if isinstance(self.block, Host) else len(self.block.ids)
        )

    def all_lanes(self) -> tuple[str, ...]:
        """One of each device and host slot; a plan with bundles has fewer, see `Lowered.lanes`."""
        if isinstance(self.block, Host):
            return tuple(host_lane(self.block.node, slot) for slot in range(self.block.slots))
        return tuple(device_lane(i) for i in self.block.ids)

    def replicas(self, kind: Kind) -> int:
        """How many items of one part can run apart: ranks that share no collective."""
        if isinstance(self.block, Host):
            return self.block.slots
        sharded = self.parallelism.zero == 3
        meets = sharded or self.parallelism.ep > 1
        apart = kind is Kind.GENERATE or (kind is Kind.INFERENCE and not meets)
        return (self.bundles or self.parallelism.dp) if apart else 1


@lru_cache(maxsize=1024)
def _ranks_of(parallelism: Parallelism, bundles: int, devices: int) -> Mapping[int, tuple[int, ...]]:
    """The ranks of each bundle, or replica."""
    found: dict[int, list[int]] = {}
    for rank, item in enumerate(_bundle_numbers(parallelism, bundles, devices)):
        found.setdefault(item, []).append(rank)
    return {item: tuple(ranks) for item, ranks in found.items()}


@lru_cache(maxsize=1024)
def _bundle_numbers(parallelism: Parallelism, bundles: int, devices: int) -> tuple[int, ...]:
    replicas = map(parallelism.replica_of, range(devices))
    return tuple(r * bundles // parallelism.dp if bundles else r for r in replicas)


def device_lane(device: int) -> str:
    """The lane of a device's compute."""
    return f"device{device}"


def host_lane(node: int, slot: int) -> str:
    """The lane of one host slot of a node."""
    return f"host{node}.{slot}"


def ranges(ids: tuple[int, ...]) -> str:
    """(0, 1, 2, 5) → ``0-2,5``."""
    runs: list[list[int]] = []
    for i in sorted(ids):
        if runs and i == runs[-1][1] + 1:
            runs[-1][1] = i
        else:
            runs.append([i, i])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
