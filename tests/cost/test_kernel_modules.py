"""Sums of single kernels meet whole modules, which no table rests on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rpeg.cluster import Fabric, Link, device_kind
from rpeg.cost import Machine, stack
from rpeg.cost.kernels import Kernels, kernels_of

MODULES = json.loads((Path(__file__).parent / "facts" / "measured_modules.json").read_text())["modules"]
HIDDEN, Q_RANK, RANK, ROPE, NOPE, VALUE = 7168, 1536, 512, 64, 128, 128  # DeepSeek-V3


def attention_module(k: Kernels, heads: int, rows: int, context: int) -> float:
    """Seconds of projections down and up, absorbed products, attention over the latent cache, output, two norms."""
    dtype = "bfloat16"
    products = (
        (Q_RANK + RANK + ROPE, HIDDEN),
        (heads * (NOPE + ROPE), Q_RANK),
        (heads * RANK, NOPE),
        (heads * VALUE, RANK),
        (HIDDEN, heads * VALUE),
    )
    seconds = sum(k.gemm(rows, n, inner, dtype).seconds for n, inner in products)
    seconds += k.latent_decode(rows, context, heads, RANK, ROPE, dtype).seconds
    return float(seconds + 2 * k.memory(4.0 * rows * (Q_RANK + RANK + ROPE)).seconds)


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m["kind"])
def test_kernels_of_latent_attention_sum_up_to_the_module(module: dict[str, object]) -> None:
    kind = device_kind(str(module["kind"]))
    fabric = Fabric(((Link("node", 4.5e11, 2e-6), 8),))
    kernels = kernels_of(Machine(kind, fabric, stack("tensorrt-llm", kind.name)))
    points = np.asarray(module["points"])
    off = [np.log(attention_module(kernels, int(h), int(b), int(c)) / s) for h, b, c, s in points]
    assert abs(np.median(off)) < 0.06
    assert np.mean(np.abs(off)) < 0.15
