"""`Change`: one named way in which a problem is made different, with what it costs and what it does to learning."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

from rpeg.cluster import Cluster, local, node_devices, resized, slowest_link, systems, with_faster_links
from rpeg.errors import InputError
from rpeg.job.hardware import described, priced
from rpeg.search.problem import Problem
from rpeg.transforms.sharing import Sharing
from rpeg.units import GIB


class Change(ABC):
    """A frozen value. It changes nothing of what is learned unless `learning` says what, in words.

    widens: whether all that it brings is plans that the problem does not have.
    """

    widens: ClassVar[bool] = False

    @abstractmethod
    def apply(self, problem: Problem) -> Problem:
        """The problem with this change. InputError where it cannot be made."""

    @abstractmethod
    def words(self, problem: Problem) -> str:
        """What it is, for this problem: ``72 devices``."""

    @abstractmethod
    def cost(self, problem: Problem) -> str:
        """What has to be given for it, in words."""

    def learning(self, problem: Problem) -> str:
        """What it changes of what is learned; "" for nothing."""
        return ""


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
            return f"{_counted(self.count, 'process', 'processes')} that share this machine"
        nodes, rest = divmod(self.count, node_devices(problem.cluster))
        whole = f" ({_counted(nodes, 'node')})" if nodes and not rest else ""
        return _counted(self.count, "device") + whole

    def cost(self, problem: Problem) -> str:
        if problem.is_local:
            return "nothing but parallel work"
        now, then = problem.cluster, self.apply(problem).cluster
        more = self.count - len(now)
        words = f"{_counted(abs(more), 'device')} {'more' if more >= 0 else 'fewer'}"
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
        return f"{_counted(len(cluster), 'device')} of kind {kind.name}, {kind.usable_memory_bytes / GIB:.0f} GiB each"

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


@dataclass(frozen=True)
class ShorterTail(Change):
    """Responses of the same mean whose 99th percentile is only `share` times as far from the median, as a ratio."""

    share: float = 0.5

    def apply(self, problem: Problem) -> Problem:
        w = problem.workload
        if w.response_lengths.percentile(99) <= w.response_lengths.percentile(50):
            raise InputError("all responses are as long as each other: there is no tail")
        return replace(
            problem, workload=replace(w, response_lengths=w.response_lengths.with_tail(self.share))
        )

    def words(self, problem: Problem) -> str:
        before = problem.workload.response_lengths
        after = before.with_tail(self.share)
        return (
            f"a shorter tail of responses: 99th percentile {after.percentile(99):,} tokens instead of "
            f"{before.percentile(99):,}, mean {before.mean:,.0f}"
        )

    def cost(self, problem: Problem) -> str:
        return "a length penalty, or prompts of equal difficulty"

    def learning(self, problem: Problem) -> str:
        return "the model learns to answer within a length"


@dataclass(frozen=True)
class MaxResponse(Change):
    """Responses are cut at so many tokens."""

    tokens: int

    def apply(self, problem: Problem) -> Problem:
        w = problem.workload
        lengths = w.response_lengths.truncated(self.tokens)
        return replace(problem, workload=replace(w, response_lengths=lengths))

    def words(self, problem: Problem) -> str:
        return f"responses of at most {self.tokens:,} tokens"

    def cost(self, problem: Problem) -> str:
        return f"{self._cut(problem):.1%} of responses are cut".replace("%", " %")

    def learning(self, problem: Problem) -> str:
        return "nothing is learned from what is cut off" if self._cut(problem) else ""

    def _cut(self, problem: Problem) -> float:
        lengths = problem.workload.response_lengths
        return sum(share for n, share in zip(lengths.values, lengths.weights, strict=True) if n > self.tokens)


@dataclass(frozen=True)
class MeanResponse(Change):
    """Responses of so many tokens on average, all in proportion: as they grow while a model learns to reason."""

    tokens: float

    def apply(self, problem: Problem) -> Problem:
        w = problem.workload
        return replace(problem, workload=replace(w, response_lengths=w.response_lengths.scaled(self.tokens)))

    def words(self, problem: Problem) -> str:
        return f"responses of {self.tokens:,g} tokens on average"

    def cost(self, problem: Problem) -> str:
        return "another task"

    def learning(self, problem: Problem) -> str:
        return "responses of other lengths"


@dataclass(frozen=True)
class Samples(Change):
    """So many responses to each prompt."""

    per_prompt: int

    def apply(self, problem: Problem) -> Problem:
        return replace(problem, workload=replace(problem.workload, samples_per_prompt=self.per_prompt))

    def words(self, problem: Problem) -> str:
        return f"{_counted(self.per_prompt, 'sample')} a prompt"

    def cost(self, problem: Problem) -> str:
        return f"{self.per_prompt * problem.workload.prompts} samples a step"

    def learning(self, problem: Problem) -> str:
        return "another batch" if self.per_prompt != problem.workload.samples_per_prompt else ""


@dataclass(frozen=True)
class Prompts(Change):
    """So many prompts a step."""

    count: int

    def apply(self, problem: Problem) -> Problem:
        return replace(problem, workload=replace(problem.workload, prompts=self.count))

    def words(self, problem: Problem) -> str:
        return f"{self.count} prompts a step"

    def cost(self, problem: Problem) -> str:
        return f"{self.count * problem.workload.samples_per_prompt} samples a step"

    def learning(self, problem: Problem) -> str:
        return "another batch" if self.count != problem.workload.prompts else ""


@dataclass(frozen=True)
class Staleness(Change):
    """Plans may train on tokens that are so many versions behind; where the job wishes for a staleness, it is this."""

    widens: ClassVar[bool] = True

    versions: int

    def apply(self, problem: Problem) -> Problem:
        own = problem.permissions
        wished = None if own.wished_staleness is None else self.versions
        return replace(problem, permissions=replace(own, staleness=self.versions, wished_staleness=wished))

    def words(self, problem: Problem) -> str:
        return f"staleness up to {self.versions}"

    def cost(self, problem: Problem) -> str:
        return "the permission (allow.staleness)"

    def learning(self, problem: Problem) -> str:
        if not self.versions:
            return ""
        return f"tokens may be {_counted(self.versions, 'version')} behind the model that they train"


@dataclass(frozen=True)
class SharedBackbone(Change):
    """Actor and critic become one model with two heads."""

    def apply(self, problem: Problem) -> Problem:
        for transform in Sharing.candidates(problem.graph):
            shapes = [problem.facts.architectures[name] for name in (transform.actor, transform.critic)]
            if shapes[0] == shapes[1]:
                return replace(
                    problem,
                    graph=transform.apply(problem.graph),
                    applied=(*problem.applied, transform),
                    permissions=replace(problem.permissions, actor_critic_sharing=True),
                )
        raise InputError(
            f"{problem.graph.name} has no actor and critic of the same shape to share a backbone"
        )

    def words(self, problem: Problem) -> str:
        return "one backbone for actor and critic"

    def cost(self, problem: Problem) -> str:
        return "the permission (allow.actor_critic_sharing)"

    def learning(self, problem: Problem) -> str:
        return "both heads pull at one backbone"


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
    return f"{abs(more):,.2f} an hour {'more' if more >= 0 else 'less'}"


def _counted(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"
