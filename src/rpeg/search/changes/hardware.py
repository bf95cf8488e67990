"""Changes of what a job runs on, and of how: nothing that is learned changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from rpeg.cluster import Cluster, local, node_devices, resized, slowest_link, systems, with_faster_links
from rpeg.errors import InputError
from rpeg.job.hardware import described, priced
from rpeg.search.changes.base import Change, counted
from rpeg.search.problem import Problem
from rpeg.units import GIB


@dataclass(frozen=True)
class Microbatch(Change):
    """At most so many samples in a forward and backward pass of a device."""

    samples: int

    def apply(self, problem: Problem) -> Problem:
        return replace(problem, microbatch=self.samples)

    def words(self, problem: Problem) -> str:
        return f"micro-batches of at most {self.samples}"

    def cost(self, problem: Problem) -> str:
        return "smaller passes use devices less well"


@dataclass(frozen=True)
class Devices(Change):
    """So many devices of the problem's kind: whole nodes or a part of one; processes that share this machine."""

    widens: ClassVar[bool] = True

    count: int

    def apply(self, problem: Problem) -> Problem:
        if problem.is_local:
            cluster = local(self.count, _memory(problem))
        else:
            cluster = resized(problem.cluster, self.count)
        return replace(problem, cluster=cluster)

    def words(self, problem: Problem) -> str:
        if problem.is_local:
            return f"{counted(self.count, 'process', 'processes')} that share this machine"
        nodes, rest = divmod(self.count, node_devices(problem.cluster))
        whole = f" ({counted(nodes, 'node')})" if nodes and not rest else ""
        return counted(self.count, "device") + whole

    def cost(self, problem: Problem) -> str:
        if problem.is_local:
            return "nothing but parallel work"
        now, then = problem.cluster, self.apply(problem).cluster
        more = self.count - len(now)
        words = f"{counted(abs(more), 'device')} {'more' if more >= 0 else 'fewer'}"
        return ", ".join(filter(None, (words, _price(now, then))))


@dataclass(frozen=True)
class OfKind(Change):
    """Devices of another kind, or of a system's, at the system's price. count: None for as many as there are."""

    name: str
    count: int | None = None

    def apply(self, problem: Problem) -> Problem:
        if problem.is_local:
            raise InputError(
                f"the devices are processes of this machine: there is no {self.name} instead. "
                f"Put cluster: {{{self.name}: 8}} into the job to plan for it."
            )
        count = self.count or len(problem.cluster)
        if self.name in systems():
            cluster = resized(described({self.name: 1}, {}), count)
        else:
            cluster = described({self.name: count}, {})
        return replace(problem, cluster=cluster)

    def words(self, problem: Problem) -> str:
        cluster = self.apply(problem).cluster
        kind = cluster.kinds[0]
        return f"{counted(len(cluster), 'device')} of kind {kind.name}, {kind.usable_memory_bytes / GIB:.0f} GiB each"

    def cost(self, problem: Problem) -> str:
        return _price(problem.cluster, self.apply(problem).cluster) or "a price that is not known here"


@dataclass(frozen=True)
class Price(Change):
    """A device of a kind, or of a system's, costs so much an hour."""

    name: str
    per_device_hour: float

    def apply(self, problem: Problem) -> Problem:
        return replace(problem, cluster=priced(problem.cluster, {self.name: self.per_device_hour}))

    def words(self, problem: Problem) -> str:
        return f"{self.name} at {self.per_device_hour:,.2f} an hour"

    def cost(self, problem: Problem) -> str:
        return _price(problem.cluster, self.apply(problem).cluster) or "a price where there was none"


@dataclass(frozen=True)
class Memory(Change):
    """This machine with so much memory for its processes."""

    total_bytes: int

    def apply(self, problem: Problem) -> Problem:
        if not problem.is_local:
            raise InputError("devices that are described have the memory of their kind: take another kind")
        return replace(problem, cluster=local(len(problem.cluster), self.total_bytes))

    def words(self, problem: Problem) -> str:
        each = self.total_bytes / len(problem.cluster)
        return f"{self.total_bytes / GIB:.2f} GiB for the processes, devices of {each / GIB:.2f} GiB each"

    def cost(self, problem: Problem) -> str:
        return f"{(self.total_bytes - _memory(problem)) / GIB:.2f} GiB more memory"


@dataclass(frozen=True)
class FasterLinks(Change):
    """The slowest links that join the devices are so many times as fast."""

    factor: float = 2.0

    def apply(self, problem: Problem) -> Problem:
        if problem.is_local:
            raise InputError("links between processes of this machine are as fast as its memory")
        if len(problem.cluster) == 1:
            raise InputError("one device has no links")
        return replace(problem, cluster=with_faster_links(problem.cluster, self.factor))

    def words(self, problem: Problem) -> str:
        link = slowest_link(problem.cluster)
        rate = link.bandwidth_bytes_per_second * self.factor / 1e9
        where = "within a node" if link.level == "node" else "between nodes"
        return f"links {where} {self.factor:g} × as fast ({rate:.4g} GB/s a device)"

    def cost(self, problem: Problem) -> str:
        return "another network"


def more_nodes(problem: Problem, nodes: int = 1) -> Devices:
    """So many nodes more; where devices are processes of this machine, or a part of a node, as many devices."""
    whole = 1 if problem.is_local else node_devices(problem.cluster)
    own = len(problem.cluster)
    return Devices(own + nodes * whole if own >= whole else min(whole, own + nodes))


def _memory(problem: Problem) -> int:
    return problem.cluster.nodes[0].host_memory_bytes


def _price(before: Cluster, after: Cluster) -> str:
    """Of an hour more or less; "" where a price is not known."""
    if before.price_per_hour is None or after.price_per_hour is None:
        return ""
    more = after.price_per_hour - before.price_per_hour
    if not more:
        return "at the same price"
    return f"{abs(more):,.2f} an hour {'more' if more >= 0 else 'less'}"
