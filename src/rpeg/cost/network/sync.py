"""What a weight transfer takes, by the ways in which people do it."""

from __future__ import annotations

from math import ceil
from typing import Literal

from rpeg.architecture import Architecture
from rpeg.cost.machine import Machine
from rpeg.cost.network.collectives import collective
from rpeg.cost.network.transfer import Transfer
from rpeg.cost.tree import Cost, parallel, sequence

Strategy = Literal["p2p", "broadcast", "ipc", "staged"]

BUCKET_BYTES = 1e9
"""Of one bucket where nothing is said: checkpoint engines use 1 to 8 GiB (verl and NeMo RL configurations)."""


def sync(
    plan: Transfer,
    machine: Machine,
    strategy: Strategy = "p2p",
    *,
    tensors: int = 0,
    bucket_bytes: float = BUCKET_BYTES,
) -> Cost:
    """The cost of a transfer; nothing where layouts and dtypes coincide on the same devices.

    p2p: each receiver takes what it lacks from the nearest holder.
    broadcast: the trainer gathers whole tensors bucket by bucket, one rank broadcasts them to all receivers.
    ipc: trainers and engines share devices; whole tensors are gathered and handed over as device pointers.
    staged: shards rest in host memory; each device loads its share and broadcasts it (checkpoint-engine).
    tensors: named tensors of the model, each of which the receiving engine loads by a call of its host.
    """
    if plan.nothing:
        return Cost("weights", 0.0, bound="network")
    ways = {"p2p": _p2p, "broadcast": _broadcast, "ipc": _ipc, "staged": _staged}
    buckets = max(1, ceil(plan.model_bytes / bucket_bytes))
    handing = Cost("hand over", buckets * machine.stack.network.bucket_seconds, bound="host", count=buckets)
    return sequence("weights", [*ways[strategy](plan, machine, _loading(plan, machine, tensors)), handing])


def transient_bytes(plan: Transfer, strategy: Strategy, bucket_bytes: float = BUCKET_BYTES) -> float:
    """Buffers on a receiving device while it takes weights: two buckets, so that one fills as the other is read."""
    if plan.nothing:
        return 0.0
    most = plan.receive_node_bytes + plan.receive_fabric_bytes if strategy == "p2p" else plan.model_bytes
    return 2 * min(bucket_bytes, most)


def offload(size_bytes: float, machine: Machine, name: str = "offload") -> Cost:
    """Bytes of one device to host memory, or back, over its host link."""
    rate = machine.kind.host_bandwidth_bytes_per_second * machine.stack.network.host_efficiency
    return Cost(name, size_bytes / rate, 0.0, size_bytes, "memory")


def copied(size_bytes: float, machine: Machine, name: str = "copy") -> Cost:
    """Bytes of one device from or to pageable host memory, which the host's processors copy once more."""
    network = machine.stack.network
    pinned = machine.kind.host_bandwidth_bytes_per_second * network.host_efficiency
    seconds = size_bytes / min(network.pageable_bytes_per_second, pinned)
    return Cost(name, seconds, 0.0, size_bytes, "host")


def named_tensors(architecture: Architecture) -> int:
    """Tensors of a checkpoint in Hugging Face's naming: each expert has its own.

    Per layer: q, k, v, o and two norms; gate (where there is one), up and down; a router, and those of each expert.
    """
    count = 3
    for layer, layers in architecture.groups:
        mixer = 0 if layer.mixer == "none" else 6 + 2 * architecture.qk_norm + 3 * architecture.qkv_bias
        inner = 3 if architecture.gated else 2
        experts = architecture.experts
        if layer.feed_forward == "moe" and experts is not None:
            inner = 1 + (3 if experts.gated else 2) * (experts.count + (experts.shared_ffn > 0))
        count += layers * (mixer + (0 if layer.feed_forward == "none" else inner))
    return count


def _p2p(plan: Transfer, machine: Machine, loading: Cost) -> list[Cost]:
    busiest = max(plan.receive_fabric_bytes, plan.send_fabric_bytes)
    return [
        parallel(
            "move",
            [
                _link("node", plan.receive_node_bytes, machine, inner=True),
                _link("fabric", busiest, machine, inner=False),
            ],
        ),
        loading,
    ]


def _broadcast(plan: Transfer, machine: Machine, loading: Cost) -> list[Cost]:
    gather = collective("gather", "all_gather", plan.model_bytes, plan.senders, machine)
    within = plan.senders + plan.receivers <= machine.fabric.devices_per_node
    send = _link("broadcast", plan.model_bytes, machine, inner=within)
    return [gather, parallel("broadcast and load", [send, loading])]


def _ipc(plan: Transfer, machine: Machine, loading: Cost) -> list[Cost]:
    return [collective("gather", "all_gather", plan.model_bytes, plan.senders, machine), loading]


def _staged(plan: Transfer, machine: Machine, loading: Cost) -> list[Cost]:
    share = plan.model_bytes / plan.receivers
    spread = collective("broadcast", "broadcast", plan.model_bytes, plan.receivers, machine)
    return [offload(share, machine, "to device"), parallel("broadcast and load", [spread, loading])]


def _loading(plan: Transfer, machine: Machine, tensors: int) -> Cost:
    """The engine copies its shard out of each tensor: a pass over memory, and the host's calls."""
    copied = 2 * plan.receive_needed_bytes
    memory = copied / machine.kind.memory_bandwidth_bytes_per_second
    host = tensors * machine.stack.network.tensor_seconds
    return Cost(
        "load", max(memory, host), 0.0, copied, "host" if host > memory else "memory", count=max(tensors, 1)
    )


def _link(name: str, size_bytes: float, machine: Machine, *, inner: bool) -> Cost:
    traits, levels = machine.stack.network, machine.fabric.levels
    link = levels[0][0] if inner else levels[min(1, len(levels) - 1)][0]
    rate = link.bandwidth_bytes_per_second * (traits.efficiency if inner else traits.fabric_efficiency)
    return Cost(
        name, link.latency_seconds + size_bytes / rate if size_bytes > 0 else 0.0, 0.0, size_bytes, "network"
    )
