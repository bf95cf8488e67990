"""From the seconds of probes to the tables of a `Calibration`."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from rpeg.calibrate.shapes import response_tokens
from rpeg.cost.passes.grid import Grid
from rpeg.cost.passes.table import OPS

Shape = tuple[int, ...]
Measured = Mapping[str, Mapping[Shape, float]]

# Probes that are tables as they stand.
_DIRECT = (
    "decode",
    "head",
    "head_backward",
    "optimizer",
    "publish",
    "load",
    "canary",
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "call",
    "put",
    "get",
    "reward",
    "columns",
    "join",
    "collect",
)

_SHARDED = ("forward", "backward", "update")


def tables(measured: Measured) -> dict[str, Grid]:
    """Tables by op, of seconds by probe and shape."""
    out = {op: _grid(op, measured[op]) for op in _DIRECT if measured.get(op)}
    if measured.get("same"):
        out["admit"] = _grid("admit", _admissions(measured["same"]))
        out["prefill"] = _grid("prefill", _passes(measured["distinct"], out["admit"]))
    if measured.get("leaving"):
        out["leave"] = _grid("leave", _departures(measured["staying"], measured["leaving"]))
    if measured.get("scored"):
        out["forward"] = _grid("forward", _without_head(measured["scored"], out["head"]))
        out["forward_backward"] = _grid(
            "forward_backward", _without_head(measured["trained"], out["head_backward"])
        )
    if measured.get("sharded_update"):
        out.update({f"sharded_{what}": _grid(f"sharded_{what}", _extra(measured, what)) for what in _SHARDED})
    return out


def _extra(measured: Measured, what: str) -> dict[Shape, float]:
    """What a sharded trainer takes more than a plain one; an update is all that follows on the last backward."""
    sharded, plain = measured[f"sharded_{what}"][()], measured[f"plain_{what}"][()]
    if what == "update":
        plain = measured["sharded_backward"][()]
    return {(): max(0.0, sharded - plain)}


def _admissions(same: Mapping[Shape, float]) -> dict[Shape, float]:
    """What n samples of one prompt take more than one sample of it."""
    alone = same[min(same)]
    return {shape: max(0.0, seconds - alone) for shape, seconds in same.items()}


def _passes(distinct: Mapping[Shape, float], admit: Grid) -> dict[Shape, float]:
    """A pass over n prompts without what admitting n samples takes."""
    return {shape: max(0.0, seconds - float(admit.at(shape[0]))) for shape, seconds in distinct.items()}


def _departures(staying: Mapping[Shape, float], leaving: Mapping[Shape, float]) -> dict[Shape, float]:
    return {shape: max(0.0, seconds - staying[shape]) for shape, seconds in leaving.items()}


def _without_head(whole: Mapping[Shape, float], head: Grid) -> dict[Shape, float]:
    """A micro-batch without the head over its response tokens; at least half, where noise would take more away."""
    return {
        shape: max(seconds / 2, seconds - float(head.at(response_tokens(*shape))))
        for shape, seconds in whole.items()
    }


def _grid(op: str, seconds: Mapping[Shape, float]) -> Grid:
    """A table of the measured shapes, which form a full grid."""
    axes = OPS[op]
    points = tuple(tuple(sorted({shape[axis] for shape in seconds})) for axis in range(len(axes)))
    flat = tuple(seconds[shape] for shape in itertools.product(*points))
    return Grid(axes, tuple(tuple(float(p) for p in axis) for axis in points), flat)


def averages(workers: Sequence[Measured]) -> dict[str, dict[Shape, float]]:
    """The mean over workers of what each measured: they are alike, and as many devices of one machine."""
    first = workers[0]
    return {
        op: {shape: sum(worker[op][shape] for worker in workers) / len(workers) for shape in shapes}
        for op, shapes in first.items()
    }
