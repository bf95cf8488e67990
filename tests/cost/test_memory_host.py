"""Host memory: what rests there is what a model has, and a frozen one has weights alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rpeg.architecture import named
from rpeg.cluster import device_kind, fabric, system
from rpeg.cost import Execution, Machine, host_memory, stack
from rpeg.plan import Parallelism

MODEL = named("Qwen/Qwen3-8B")
MACHINE = Machine(device_kind("h100-sxm"), fabric(system("dgx-h100")), stack("flash", "h100-sxm"))


def offloaded_bytes(*, trained: bool) -> float:
    execution = replace(Execution(), parallelism=Parallelism(dp=8), offload="all")
    lines = host_memory(MODEL, execution, MACHINE, trained=trained).lines
    return sum(line.bytes for line in lines if line.name == "offloaded state")


def test_a_frozen_model_that_is_offloaded_is_its_weights_once_a_process() -> None:
    weights_bytes = 2 * MODEL.parameters()
    assert offloaded_bytes(trained=False) == pytest.approx(8 * weights_bytes, rel=0.01)


def test_a_trained_one_has_gradients_moments_and_master_weights_beside() -> None:
    assert offloaded_bytes(trained=True) > 5 * offloaded_bytes(trained=False)
