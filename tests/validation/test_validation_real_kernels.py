"""Unfused modules move more than fused ones, the more sequences a micro-batch has."""

from __future__ import annotations

import pytest

from rpeg.cluster import Fabric, Link, device_kind
from rpeg.cost import Machine, stack
from rpeg.validation.naming import architecture_of
from rpeg.validation.real_kernels import unfused

SHAPE = {"layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 32, "ffn": 11008, "vocab": 32000}
LLAMA = architecture_of({"name": "llama", **SHAPE, "gated_mlp": True})
KIND = device_kind("a800-80gb-sxm")
MACHINE = Machine(KIND, Fabric(levels=((Link("node", 2e11, 1e-6), 8),)), stack("eager", KIND.name))


def factor(sequences: int, *, training: bool, tp: int = 8) -> float:
    return unfused(MACHINE, LLAMA, tp, sequences, training=training).stack.training.elementwise_factor


@pytest.mark.parametrize("training", [False, True])
def test_more_is_moved_than_by_fused_kernels_and_more_with_more_sequences(training):
    few, many = factor(1, training=training), factor(512, training=training)
    assert MACHINE.stack.training.elementwise_factor < few < many


def test_units_of_a_forward_are_those_counted():
    # per token: two norms and sums of 512, rotary of 1,024, activation of 1,376 and one sequence's positions
    counted = 21 * 2 * 512 + 14 * 1024 + 5 * 1376 + 71 / 2
    assert factor(1, training=False) == pytest.approx(counted / (5 * 2 * 512 + 2 * 1024 + 3 * 1376))


def test_packed_layers_launch_more_kernels_than_decoding_ones():
    traits = unfused(MACHINE, LLAMA, 8, 1, training=True).stack
    assert traits.training.host_seconds_per_layer > traits.serving.launch_seconds
