"""Weights from a training to a generation layout, planned shard to shard."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from rpeg.architecture import Architecture, Head
from rpeg.cluster import Fabric
from rpeg.cost.network.shards import CLASSES, Floats, Grid, Held, Ints, grid, layer_weights, overlap, volume
from rpeg.cost.precision import BYTES_OF
from rpeg.errors import InputError

Bools = npt.NDArray[np.bool_]

# Pieces for each device of a node, from which on it is cheaper to look at the node's devices than at all pieces.
_MANY_PIECES = 8


@dataclass(frozen=True)
class Transfer:
    """What must move so that every receiver holds its shard; bytes in the receivers' dtype.

    model_bytes: one whole copy. needed_bytes: all receivers' shards together. local_bytes: of these, what the device
    itself holds already. node_bytes: what another device of its node holds. fabric_bytes: the rest, from other nodes.
    Each receiver takes a piece from the nearest holder; holders of equal pieces share the sending evenly.
    receive_node_bytes, receive_fabric_bytes: of the receiver that lacks most. send_fabric_bytes: of the busiest sender.
    senders, receivers: devices. expert_ranks: over which the senders deal experts. convert: dtypes differ, so that
    local bytes are rewritten.
    """

    model_bytes: float
    needed_bytes: float
    local_bytes: float
    node_bytes: float
    fabric_bytes: float
    receive_node_bytes: float
    receive_fabric_bytes: float
    receive_needed_bytes: float
    send_fabric_bytes: float
    senders: int
    receivers: int
    expert_ranks: int
    convert: bool

    @property
    def moved_bytes(self) -> float:
        """Bytes that cross links."""
        return self.node_bytes + self.fabric_bytes

    @property
    def missing_bytes(self) -> float:
        """Bytes of the receivers' shards that they do not hold; planned shard to shard, this is all that moves."""
        return self.needed_bytes - self.local_bytes

    @property
    def nothing(self) -> bool:
        """Whether every receiver holds all that it needs, as it needs it."""
        return not self.convert and self.missing_bytes <= 1e-9 * self.needed_bytes


@lru_cache(maxsize=512)
def transfer(
    architecture: Architecture, source: Held, target: Held, fabric: Fabric, head: Head = "lm"
) -> Transfer:
    """The plan of one transfer. InputError where a layout has more stages than the model has layers."""
    for held in (source, target):
        chunks = held.parallelism.pp * held.parallelism.vpp
        if chunks > architecture.layers:
            raise InputError(
                f"{architecture.name} has {architecture.layers} layers, which cannot be cut into {chunks} pipeline "
                f"stages; at most pp × vpp = {architecture.layers}"
            )
    size = BYTES_OF[target.dtype]
    weights = layer_weights(architecture, head)
    needed, local, near = (np.zeros(target.parallelism.devices) for _ in range(3))
    sent = np.zeros(source.parallelism.devices)
    for name in CLASSES:
        if weights[name].any():
            part = _Class(name, weights[name] * size, source, target, fabric)
            needed += part.needed
            local += part.local
            near += part.near
            sent += part.sent
    far = np.maximum(needed - near, 0.0)
    return Transfer(
        model_bytes=float(sum(w.sum() for w in weights.values()) * size),
        needed_bytes=float(needed.sum()),
        local_bytes=float(local.sum()),
        node_bytes=float((near - local).sum()),
        fabric_bytes=float(far.sum()),
        receive_node_bytes=float((near - local).max()),
        receive_fabric_bytes=float(far.max()),
        receive_needed_bytes=float(needed.max()),
        send_fabric_bytes=float(sent.max()),
        senders=source.parallelism.devices,
        receivers=target.parallelism.devices,
        expert_ranks=source.parallelism.ep,
        convert=source.dtype != target.dtype,
    )


class _Class:
    """One class of parameters on its way: bytes by receiver (needed, local, near) and by sender (sent)."""

    def __init__(self, name: str, weights: Floats, source: Held, target: Held, fabric: Fabric) -> None:
        layers = len(weights) - 2
        a, b = grid(name, layers, source.parallelism), grid(name, layers, target.parallelism)
        by_stage = (b.stages * weights) @ a.stages.T
        by_piece = overlap(b.pieces, a.pieces)
        self.needed = (b.stages @ weights)[b.stage] * volume(b.pieces)[b.piece]
        self.local = _local(a, b, by_stage, by_piece, source, target)
        self.near = np.minimum(_near(a, b, by_stage, by_piece, source, target, fabric), self.needed)
        self.sent = _sent(a, b, by_stage, by_piece)
        far = float((self.needed - self.near).sum())
        self.sent *= far / max(float(self.needed.sum()), 1e-30)


def _local(a: Grid, b: Grid, by_stage: Floats, by_piece: Floats, source: Held, target: Held) -> Floats:
    """(receivers,) what a receiver holds as a device of the source."""
    out = np.zeros(len(b.stage))
    first, last = max(source.first, target.first), min(source.last, target.last)
    if first < last:
        mine, theirs = (
            slice(first - target.first, last - target.first),
            slice(first - source.first, last - source.first),
        )
        out[mine] = by_stage[b.stage[mine], a.stage[theirs]] * by_piece[b.piece[mine], a.piece[theirs]]
    return out


def _near(
    a: Grid, b: Grid, by_stage: Floats, by_piece: Floats, source: Held, target: Held, fabric: Fabric
) -> Floats:
    """(receivers,) what is held within the receiver's node, by itself or others; equal pieces count once."""
    width = fabric.devices_per_node
    from_node = (source.first + np.arange(len(a.stage))) // width
    to_node = (target.first + np.arange(len(b.stage))) // width
    low, high = max(from_node[0], to_node[0]), min(from_node[-1], to_node[-1])
    out = np.zeros(len(b.stage))
    if low > high:
        return out
    ours, mine = (from_node >= low) & (from_node <= high), (to_node >= low) & (to_node <= high)
    if len(a.stages) * len(a.pieces) > _MANY_PIECES * width:
        out[mine] = _by_mates(a, b, by_stage, by_piece, from_node, to_node[mine], mine)
        return out
    held = np.zeros((high - low + 1, len(a.stages), len(a.pieces)))
    held[from_node[ours] - low, a.stage[ours], a.piece[ours]] = 1.0
    of_stage = by_stage @ held
    reach = (of_stage.reshape(-1, len(a.pieces)) @ by_piece.T).reshape(*of_stage.shape[:2], len(b.pieces))
    out[mine] = reach[to_node[mine] - low, b.stage[mine], b.piece[mine]]
    return out


def _by_mates(
    a: Grid, b: Grid, by_stage: Floats, by_piece: Floats, from_node: Ints, to_node: Ints, mine: Bools
) -> Floats:
    """The same sender by sender of the node: cheaper where each of them holds another of very many pieces."""
    place = (from_node * len(a.stages) + a.stage) * len(a.pieces) + a.piece
    _, inverse, counts = np.unique(place, return_inverse=True, return_counts=True)
    weight = 1.0 / counts[inverse]
    first, end = np.searchsorted(from_node, to_node), np.searchsorted(from_node, to_node, side="right")
    stage, piece = b.stage[mine], b.piece[mine]
    out = np.zeros(len(to_node))
    for step in range(int((end - first).max(initial=0))):
        mate = np.minimum(first + step, len(from_node) - 1)
        shared = by_stage[stage, a.stage[mate]] * by_piece[piece, a.piece[mate]] * weight[mate]
        out += np.where(first + step < end, shared, 0.0)
    return out


def _sent(a: Grid, b: Grid, by_stage: Floats, by_piece: Floats) -> Floats:
    """(senders,) what all receivers need of a sender's piece, shared by the holders of that piece."""
    demand = by_stage.T @ b.holders @ by_piece
    return np.asarray((demand / np.maximum(a.holders, 1.0))[a.stage, a.piece], dtype=np.float64)
