"""`Machine`: the devices of a stage, the links between them and the software that drives them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rpeg.cluster import DeviceKind
from rpeg.cluster.fabric import Fabric
from rpeg.cost.stack import Stack


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

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Kept: these are keys of caches that are asked often."""
        return hash(tuple(getattr(self, field.name) for field in dataclasses.fields(self)))

    def __getstate__(self) -> dict[str, Any]:
        """Without the kept hash: another process salts text otherwise."""
        return {key: value for key, value in self.__dict__.items() if key != "_hash"}
