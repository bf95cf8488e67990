"""How a stage is cut over its devices."""

from __future__ import annotations

from dataclasses import dataclass

from rpeg.errors import PlanError


@dataclass(frozen=True, slots=True)
class Parallelism:
    """Degrees of data, tensor, pipeline, context and expert parallelism, and the ZeRO stage.

    zero: 0 keeps whole replicas, 1 shards optimizer state, 2 gradients too, 3 parameters too (FSDP).
    Expert parallelism reuses the data-parallel ranks, so it does not multiply the devices.
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    zero: int = 0

    def __post_init__(self) -> None:
        for name in ("dp", "tp", "pp", "cp", "ep"):
            if getattr(self, name) < 1:
                raise PlanError(f"{name} = {getattr(self, name)}; a degree of parallelism is at least 1")
        if self.zero not in (0, 1, 2, 3):
            raise PlanError(f"zero = {self.zero}; it is 0, 1, 2 or 3")

    @property
    def devices(self) -> int:
        return self.dp * self.tp * self.pp * self.cp

    @property
    def devices_per_replica(self) -> int:
        return self.tp * self.pp * self.cp

    @property
    def layout(self) -> tuple[int, ...]:
        """What decides which bytes lie on which device: two stages of equal layout and block share weights."""
        return (self.dp, self.tp, self.pp, self.ep, self.zero if self.dp > 1 and self.zero == 3 else 0)

    def __str__(self) -> str:
        words = [f"{k}{getattr(self, k)}" for k in ("dp", "tp", "pp", "cp", "ep") if getattr(self, k) > 1]
        return " ".join(words + ([f"zero{self.zero}"] if self.zero else [])) or "single"
