"""What a weight transfer takes, by the ways in which people do it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil
from typing import Literal

from rpeg.architecture import Architecture
from rpeg.cost.machine import Machine
from rpeg.cost.network.collectives import collective
from rpeg.cost.network.transfer import Transfer
from rpeg.cost.tree import Bound, Cost, parallel, sequence

Strategy = Literal["p2p", "broadcast", "ipc", "staged"]

BUCKET_BYTES = 1e9
"""Of one bucket where nothing is said: checkpoint engines use 1 to 8 GiB (verl and NeMo RL configurations)."""


# What an engine's load_weights does before it looks at a tensor: it lists its own modules and parameters, some 24 a
# layer (counted in vllm-project/vllm, model_executor/models/qwen3_moe.py), each in 0.8 µs (measured: PyTorch 2.13, one
# CPU core, dict(model.named_parameters()) over as many).
_LISTED_PER_LAYER, _LISTED_SECONDS = 24, 0.8e-6


@dataclass(frozen=True, slots=True)
class Tensors:
    """Named tensors of a checkpoint: those of routed experts, and the others. layers: of the model."""

    others: int = 0
    experts: int = 0
    layers: int = 0

    @property
    def count(self) -> int:
        """All of them."""
        return self.others + self.experts


NO_TENSORS = Tensors()


def sync(
    plan: Transfer,
    machine: Machine,
    strategy: Strategy = "p2p",
    *,
    tensors: Tensors = NO_TENSORS,
    bucket_bytes: float = BUCKET_BYTES,
    one_by_one: bool = False,
    overlapped: bool = False,
) -> Cost:
    """The cost of a transfer; nothing where layouts and dtypes coincide on the same devices.

    p2p: each receiver takes what it lacks from the nearest holder.
    broadcast: the trainer gathers whole tensors bucket by bucket, one rank broadcasts them to all receivers.
    ipc: trainers and engines share devices; whole tensors are gathered and handed over as device pointers.
    staged: shards rest in host memory; each device loads its share and broadcasts it (checkpoint-engine).
    tensors: of the model; the receiving engine loads each by a call of its host, and a trainer gathers each by a
    collective, which brings one expert of each expert-parallel rank.
    one_by_one: each tensor is broadcast and loaded by calls of its own, without buckets, while the trainer gathers
    the next. overlapped: the trainer gathers one bucket while another is broadcast.
    """
    if plan.nothing:
        return Cost("weights", 0.0, bound="network")
    if one_by_one:
        return sequence("weights", [_one_by_one(plan, machine, tensors)])
    ways = {"p2p": _p2p, "broadcast": _broadcast, "ipc": _ipc, "staged": _staged}
    buckets = max(1, ceil(plan.model_bytes / bucket_bytes))
    handing = Cost("hand over", buckets * machine.stack.network.bucket_seconds, bound="host", count=buckets)
    parts = ways[strategy](plan, machine, tensors)
    if overlapped:
        parts = [parallel("gather, broadcast and load", parts)]
    return sequence("weights", [*parts, handing])


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


def named_tensors(architecture: Architecture, *, scaled: bool = False) -> Tensors:
    """Tensors of a checkpoint in Hugging Face's naming, where each expert has its own.

    scaled: each matrix of a layer but a router's comes with its scales, as in float8 checkpoints.
    """
    others, routed, times = 3, 0, 2 if scaled else 1  # embedding, final norm, head
    for layer, layers in architecture.groups:
        matrices, vectors = _mixer_tensors(architecture, layer.mixer)
        experts, inner = architecture.experts, 3 if architecture.gated else 2
        if layer.feed_forward == "moe" and experts is not None:
            each = 3 if experts.gated else 2
            matrices += each * (experts.shared_ffn > 0)
            vectors += 2  # router and norm
            routed += layers * times * each * experts.count
        elif layer.feed_forward == "dense":
            matrices, vectors = matrices + inner, vectors + 1
        others += layers * (matrices * times + vectors)
    return Tensors(others, routed, architecture.layers)


def _mixer_tensors(architecture: Architecture, mixer: str) -> tuple[int, int]:
    """Matrices and vectors of what mixes tokens, with the norm before it."""
    if mixer == "none":
        return 0, 0
    if mixer == "latent":  # two for queries, two for keys and values, the output; a norm of each latent
        return 5, 3
    if mixer == "recurrent":  # in, out, convolution; decay, skip, step, norm
        return 3, 5
    return 4, 1 + 2 * architecture.qk_norm + 3 * architecture.qkv_bias


def _p2p(plan: Transfer, machine: Machine, tensors: Tensors) -> list[Cost]:
    busiest = max(plan.receive_fabric_bytes, plan.send_fabric_bytes)
    links = [
        _link("node", plan.receive_node_bytes, machine, inner=True),
        _link("fabric", busiest, machine, inner=False),
    ]
    return [parallel("move", links), _loading(plan, machine, tensors)]


def _broadcast(plan: Transfer, machine: Machine, tensors: Tensors) -> list[Cost]:
    within = plan.senders + plan.receivers <= machine.fabric.devices_per_node
    send = _link("broadcast", plan.model_bytes, machine, inner=within)
    both = parallel("broadcast and load", [send, _loading(plan, machine, tensors)])
    return [_gather(plan, machine, tensors), both]


def _one_by_one(plan: Transfer, machine: Machine, tensors: Tensors) -> Cost:
    gather, both = _broadcast(plan, machine, tensors)
    send, load = both.children
    listed = tensors.count * tensors.layers * _LISTED_PER_LAYER * _LISTED_SECONDS
    load = replace(load, seconds=load.seconds + listed, bound="host")
    return parallel("gather, broadcast and load", [gather, send, load])


def _ipc(plan: Transfer, machine: Machine, tensors: Tensors) -> list[Cost]:
    return [_gather(plan, machine, tensors), _loading(plan, machine, tensors)]


def _staged(plan: Transfer, machine: Machine, tensors: Tensors) -> list[Cost]:
    share = plan.model_bytes / plan.receivers
    spread = collective("broadcast", "broadcast", plan.model_bytes, plan.receivers, machine)
    both = parallel("broadcast and load", [spread, _loading(plan, machine, tensors)])
    return [offload(share, machine, "to device"), both]


def _gather(plan: Transfer, machine: Machine, tensors: Tensors) -> Cost:
    """Whole tensors on each trainer, one after another: a collective each, which its host sets up."""
    if plan.senders == 1:
        return Cost("gather", 0.0, bound="network")
    count = max(1, tensors.others + ceil(tensors.experts / plan.expert_ranks))
    each = collective("gather", "all_gather", plan.model_bytes / count, plan.senders, machine)
    host = count * machine.stack.network.gather_seconds
    whole = replace(each.scaled(count), count=count)
    return whole if whole.seconds > host else replace(whole, seconds=host, bound="host")


def _loading(plan: Transfer, machine: Machine, tensors: Tensors) -> Cost:
    """The engine copies its shard out of each tensor: a pass over memory, and the host's calls."""
    copied = 2 * plan.receive_needed_bytes
    memory = copied / machine.kind.memory_bandwidth_bytes_per_second
    host = tensors.count * machine.stack.network.tensor_seconds
    bound: Bound = "host" if host > memory else "memory"
    return Cost("load", max(memory, host), 0.0, copied, bound, count=max(tensors.count, 1))


def _link(name: str, size_bytes: float, machine: Machine, *, inner: bool) -> Cost:
    traits, levels = machine.stack.network, machine.fabric.levels
    link = levels[0][0] if inner else levels[min(1, len(levels) - 1)][0]
    rate = link.bandwidth_bytes_per_second * (traits.efficiency if inner else traits.fabric_efficiency)
    return Cost(
        name, link.latency_seconds + size_bytes / rate if size_bytes > 0 else 0.0, 0.0, size_bytes, "network"
    )
