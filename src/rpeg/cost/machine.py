"""`Machine`: the devices of a stage, the links between them and the software that drives them."""

from __future__ import annotations

from dataclasses import dataclass

from rpeg.cluster import DeviceKind
from rpeg.cluster.fabric import Fabric
from rpeg.cost.stack import Stack
from rpeg.hashing import kept_hash


@kept_hash
@dataclass(frozen=True)
class Machine:
    """What the times of a stage rest on, beside its own shapes.

    kind: of every device. fabric: how they are joined. stack: the software that runs the stage.
    host_memory_bytes: of one node.
    """

    kind: DeviceKind
    fabric: Fabric
    stack: Stack
    host_memory_bytes: float = 0.0
