"""How a stage is cut over its devices."""

from __future__ import annotations

from dataclasses import dataclass

from rpeg.errors import PlanError


@dataclass(frozen=True, slots=True)
class Parallelism:
    """Degrees of data, tensor, pipeline, context and expert parallelism, and the ZeRO stage.

    Ranks are numbered with tp fastest, then cp, dp and pp.
    zero: 0 keeps whole replicas, 1 shards optimizer state, 2 gradients too, 3 parameters too (FSDP).
    shard: data-parallel ranks over which ZeRO shards; 0: all of them; fewer: hybrid sharding, replicas of shards.
    Expert parallelism reuses tensor-, context- and data-parallel ranks, so it does not multiply the devices.
    vpp: virtual stages that each pipeline rank holds (interleaved 1F1B).
    sequence_parallel: what tensor parallelism leaves whole is cut along the sequence (Korthikanti et al. 2022).
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    zero: int = 0
    shard: int = 0
    vpp: int = 1
    sequence_parallel: bool = False

    def __post_init__(self) -> None:
        for name in ("dp", "tp", "pp", "cp", "ep", "vpp"):
            if getattr(self, name) < 1:
                raise PlanError(f"{name} = {getattr(self, name)}; a degree of parallelism is at least 1")
        if self.zero not in (0, 1, 2, 3):
            raise PlanError(f"zero = {self.zero}; it is 0, 1, 2 or 3")
        if self.shard < 0 or (self.shard and self.dp % self.shard):
            raise PlanError(f"shard = {self.shard} does not divide dp = {self.dp}; 0 shards over all of them")

    @property
    def devices(self) -> int:
        return self.dp * self.tp * self.pp * self.cp

    @property
    def devices_per_replica(self) -> int:
        return self.tp * self.pp * self.cp

    def replica_of(self, rank: int) -> int:
        """The data-parallel replica that a rank belongs to."""
        return rank // (self.tp * self.cp) % self.dp

    @property
    def layout(self) -> tuple[int, ...]:
        """What decides which bytes lie on which device: two stages of equal layout and block share weights."""
        sharded = self.zero == 3 and self.shards > 1
        return (self.dp, self.tp, self.pp, self.ep, self.vpp, self.shards if sharded else 0)

    @property
    def shards(self) -> int:
        """Ranks over which ZeRO cuts what it shards."""
        return self.shard or self.dp

    def __str__(self) -> str:
        words = [f"{k}{getattr(self, k)}" for k in ("dp", "tp", "pp", "cp", "ep") if getattr(self, k) > 1]
        words += [f"vpp{self.vpp}"] if self.vpp > 1 else []
        words += ["sp"] if self.sequence_parallel else []
        words += [f"zero{self.zero}"] if self.zero else []
        words += [f"over {self.shard}"] if self.zero and self.shard else []
        return " ".join(words) or "single"
