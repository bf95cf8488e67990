"""How published labels name the layout of a serving replica, as degrees of parallelism.

`tp`, `attention_dp`, `moe_tp` and `ep` describe the same ranks twice: attention is cut over tp × attention_dp, experts
over moe_tp × ep. Two spellings are in use that count ranks squared, as rows with equal measurements under both
spellings show: tp 64 · moe_tp 8 · ep 8 is tp 8 · ep 8 on 8 ranks, attention_dp 64 · moe_tp 8 · ep 8 is attention_dp 8 ·
ep 8, and tp 4 · attention_dp 4 · ep 16 is attention_dp 4 · ep 4 on 4 ranks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from rpeg.errors import InputError
from rpeg.plan import Parallelism

# Ranks that one attention is cut over at most: those of a node.
_WIDEST_TP = 8


# Since which version an engine prepares a step while the device is at the one before, by default: vLLM 0.14
# (release notes of 2026-01: asynchronous scheduling), SGLang 0.4 (overlap scheduler), TensorRT-LLM 1.0 (PyTorch
# backend, overlap scheduler).
_AHEAD_SINCE = {"vllm": (0, 14), "sglang": (0, 4), "trtllm": (1, 0), "tensorrt": (1, 0)}


def schedules_ahead(engine: str) -> bool:
    """Whether this engine, "vllm 0.12.0", prepares steps ahead; so does one whose version is not said."""
    words = engine.lower().split() or [""]
    since = next((least for name, least in _AHEAD_SINCE.items() if words[0].startswith(name)), (0, 0))
    found = re.match(r"v?(\d+)\.(\d+)", words[1]) if len(words) > 1 else None
    return found is None or (int(found[1]), int(found[2])) >= since


def degrees(record: Mapping[str, Any]) -> Parallelism:
    """The parallelism of one replica."""
    tp, dp, moe_tp, ep = (int(record.get(key) or 1) for key in ("tp", "attention_dp", "moe_tp", "ep"))
    pp = int(record.get("pp") or 1)
    ranks = tp * dp
    side = math.isqrt(ranks)
    if side > 1 and side * side == ranks:
        if moe_tp == ep == side and tp == ranks:
            return Parallelism(tp=side, pp=pp, ep=side)
        if moe_tp == ep == side and dp == ranks:
            return Parallelism(dp=side, pp=pp, ep=side)
        if tp == dp == side and ep == ranks:
            return Parallelism(dp=side, pp=pp, ep=side)
    if tp > _WIDEST_TP:
        raise InputError(
            f"tp = {tp} with moe_tp = {moe_tp}: no attention is cut that far. It counts the devices of pools for prompts"
            " and for decoding together, and how they are divided is not recorded"
        )
    if ep > ranks:  # experts are dealt among the ranks of an attention that the label leaves out
        tp = ep
    # Experts shared by data-parallel ranks are dealt; cut over them (moe_tp), each rank holds and reads as much.
    shared = ep if dp == 1 else max(ep, ranks)
    return Parallelism(tp=tp, dp=dp, pp=pp, ep=shared)
