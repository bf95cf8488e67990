"""Numbers of low-rank adapters (Hu et al. 2021, arXiv:2106.09685): a matrix of in × out gets rank · (in + out)."""

from __future__ import annotations

from typing import Literal

from rpeg.architecture import Architecture, Layer

Targets = Literal["all", "attention"]
"""Adapters beside every matrix of attention and feed-forward, or beside queries and values alone."""


def layer_adapters(architecture: Architecture, layer: Layer, targets: Targets, tp: int = 1) -> float:
    """Of rank 1, of one layer on one tensor-parallel rank: the side of a matrix that is cut has its part, the other all.

    Routed experts have none. Of other parts than attention and dense feed-forward, with matrices of about equal sides,
    2 · √(7 · P) of P numbers.
    """
    a = architecture
    count = 0.0
    attends = layer.mixer in ("full", "window")
    if attends and targets == "attention":
        return 2 * a.hidden + (a.query_width + a.kv_width) / tp
    if attends:
        outward = a.query_width / tp + a.hidden
        count += 3 * a.hidden + (a.query_width + 2 * a.kv_width) / tp + outward
    parts = architecture.layer_parts(layer)
    other = parts["shared_expert"] + parts["recurrent"] + (0 if attends else parts["attention"])
    if other:
        count += 2 * (7 * other) ** 0.5 / tp
    if layer.feed_forward == "dense" and targets == "all":
        matrices = 3 if a.gated else 2
        count += matrices * (a.hidden + a.ffn / tp)
    return float(count)


def all_adapters(architecture: Architecture, rank: int, targets: Targets = "all", tp: int = 1) -> float:
    """Of a whole model, on one tensor-parallel rank."""
    each = (count * layer_adapters(architecture, layer, targets, tp) for layer, count in architecture.groups)
    return rank * sum(each)
