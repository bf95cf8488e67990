"""What ReaL's modules launch and pass through memory, counted in its source, over what fused kernels do.

Source: openpsi-project/ReaLHF at commit c3889be8, of which the measured plans are: impl/model/modules/{attn,mlp}.py,
impl/model/utils/functional.py, impl/model/parallelism/model_parallel/modules.py. A unit is one 16-bit number of an
activation, read or written.
"""

from __future__ import annotations

from dataclasses import replace

from rpeg.architecture import Architecture
from rpeg.cost import Machine

# A root-mean-square norm in seven kernels, most on float32 copies (18 units forward, 39 backward), and a sum (3).
_NORM = (21.0, 42.0)
# Rotary positions: concatenate q and k, turn halves, two products, a sum, two more concatenations.
_ROTARY = (14.0, 13.0)
# Sigmoid-weighted unit and product apart.
_ACTIVATION = (5.0, 9.0)
# Gradients of what q, k, v and gate, up read are added up in passes over whole, not yet scattered activations.
_SUMMED = 13.0
# Every layer finds the tokens' positions again from a (sequences, tokens) mask and its running sum in 64 bits: 71 bytes
# an entry.
_POSITIONS = 71.0 / 2
# The same in fused kernels, which the stage costs count (`rpeg.cost.training.mixers`, `feedforward`).
_FUSED_NORM, _FUSED_ROTARY, _FUSED_ACTIVATION = (5.0, 6.0), (2.0, 2.0), (3.0, 5.0)
# Kernels of one layer: decoding (the attention kernel turns and stores keys itself), and of packed sequences, with
# positions, rotary and one collective more for each part.
_DECODING_KERNELS, _PACKED_KERNELS = 31, 52


def unfused(
    machine: Machine, architecture: Architecture, tp: int, sequences: int, *, training: bool
) -> Machine:
    """The machine with the traffic and launches of these modules. sequences: of a micro-batch.

    Training has two forwards, one of them repeated, for each backward.
    """
    a = architecture
    whole, norm = float(a.hidden), 2.0 * a.hidden / tp  # two norms and sums a layer, sequence parallel
    rotary, inner = (a.heads + a.kv_heads) * a.head_dim / tp, a.ffn / tp
    positions = _POSITIONS * sequences

    def units(
        way: int, norms: tuple[float, float], turn: tuple[float, float], act: tuple[float, float]
    ) -> float:
        return norms[way] * norm + turn[way] * rotary + act[way] * inner

    forward = units(0, _NORM, _ROTARY, _ACTIVATION) + positions
    fused = units(0, _FUSED_NORM, _FUSED_ROTARY, _FUSED_ACTIVATION)
    if training:
        backward = units(1, _NORM, _ROTARY, _ACTIVATION) + _SUMMED * whole
        forward = 2.0 * forward + backward
        fused = 2.0 * fused + units(1, _FUSED_NORM, _FUSED_ROTARY, _FUSED_ACTIVATION)
    launches = machine.stack.serving.launch_seconds * _PACKED_KERNELS / _DECODING_KERNELS
    traits = replace(
        machine.stack.training, elementwise_factor=forward / fused, host_seconds_per_layer=launches
    )
    return replace(machine, stack=replace(machine.stack, training=traits))
