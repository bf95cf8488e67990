"""`Problem`: everything that a search is given."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rpeg.cluster import Cluster
from rpeg.ir import Graph
from rpeg.search.given import NOTHING, Given
from rpeg.sim import Facts
from rpeg.transforms import Changes, Transform
from rpeg.transforms.asynchrony import BoundedAsynchrony
from rpeg.workload import Workload


@dataclass(frozen=True)
class Permissions:
    """What a plan may and must change of what is learned.

    staleness: versions that a trained token may be behind, at most. wished_staleness: exactly that (None: any
    permitted). freshness: of asynchronous weights edges. actor_critic_sharing: both may become one model.
    behaviour_logprobs: those of generation may stand in for old ones. keep_kv: responses may go on with keys and values
    of older weights.
    """

    staleness: int = 0
    wished_staleness: int | None = None
    freshness: str = "exact"
    actor_critic_sharing: bool = False
    behaviour_logprobs: bool = False
    keep_kv: bool = False

    def permits(self, transform: Transform) -> bool:
        """Whether a plan may use it: what changes only the schedule always, the rest by its key of a job's `allow`."""
        if transform.changes is Changes.SCHEDULE:
            return True
        if isinstance(transform, BoundedAsynchrony):
            return transform.staleness <= self.staleness
        return bool(getattr(self, transform.key, False))

    def refused(self, applied: Iterable[Transform]) -> tuple[Transform, ...]:
        """Those that a plan may not use."""
        return tuple(transform for transform in applied if not self.permits(transform))

    @property
    def choices(self) -> tuple[int, ...]:
        """The staleness values that a plan may have."""
        if self.wished_staleness is not None:
            return (self.wished_staleness,)
        return tuple(range(self.staleness + 1))


@dataclass(frozen=True)
class Problem:
    """A graph to run on a cluster for a workload, and what its costs rest on.

    microbatch: most samples in one forward and backward pass of a device. assumptions: sentences for the report, each
    about something that nobody measured or said. applied: transforms that the job asks for, which `graph` has seen.
    given: layouts that the job asks for; `plan_job` makes a plan of them beside those that it is free to choose.
    """

    graph: Graph
    cluster: Cluster
    workload: Workload
    facts: Facts
    microbatch: int = 64
    permissions: Permissions = Permissions()
    assumptions: tuple[str, ...] = ()
    applied: tuple[Transform, ...] = ()
    given: Given = NOTHING

    @property
    def is_local(self) -> bool:
        """Whether its devices are processes of this machine; else they are described."""
        return all(kind.name == "cpu" for kind in self.cluster.kinds)
