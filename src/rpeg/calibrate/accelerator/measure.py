"""`measure_kernels`: the kernel file of the device at hand."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch

from rpeg.calibrate import machine
from rpeg.calibrate.accelerator import collectives, observe
from rpeg.calibrate.accelerator.clock import Clock, clock_of
from rpeg.calibrate.accelerator.grids import ACCELERATOR, CORE, Grids
from rpeg.calibrate.accelerator.ops import Op, ops
from rpeg.cluster import DeviceKind, device_kind, kind_named
from rpeg.cost.kernels.distil.grid import isotonic
from rpeg.cost.kernels.files import KernelFile, peaks_of
from rpeg.cost.kernels.ideal import computes_as, ideal_seconds
from rpeg.cost.kernels.reference import REFERENCES
from rpeg.cost.kernels.table import STEP, Table
from rpeg.cost.kernels.work import ATTENTION_DTYPE
from rpeg.errors import InputError

Say = Callable[[str], None]


def device_of(name: str = "auto") -> torch.device:
    """auto: CUDA where there is one. InputError where CUDA is asked and there is none."""
    if name not in ("auto", "cpu", "cuda"):
        raise InputError(f"device '{name}' cannot be measured; known: auto, cpu, cuda")
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise InputError("no CUDA device is visible to torch here; --device cpu measures the processor")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def kind_of(device: torch.device, name: str | None = None) -> DeviceKind:
    """The kind that a device is; name: says so where it calls itself otherwise."""
    if name is not None:
        return kind_named(name)
    return device_kind("cpu") if device.type == "cpu" else kind_named(torch.cuda.get_device_name(device))


def measure_kernels(
    device: torch.device,
    kind: DeviceKind,
    *,
    processes: int = 1,
    grids: Grids | None = None,
    clock: Clock | None = None,
    say: Say = lambda line: None,
) -> KernelFile | None:
    """Times every table and what else the device does. None in those processes of a launcher that do not write.

    clock: the device's own by default. processes: collectives are measured between so many, which are started here;
    a launcher's own processes count instead where this is one of them. A CPU is measured as one core that runs one
    thread.
    """
    grids = grids or (CORE if device.type == "cpu" else ACCELERATOR)
    curves = _collectives(device, processes, grids, say)
    if int(os.environ.get("RANK", "0")) != 0 and collectives.launched():
        return None
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        torch.manual_seed(0)
        clock = clock or clock_of(device)
        dtype = "float32" if device.type == "cpu" else "bfloat16"
        tables = [_measured(op, kind, clock, say) for op in ops(grids, device, dtype, kind.l2_bytes)]
        say("launches, copies, a layer …")
        observations: dict[str, Any] = {
            "launch_seconds": observe.launch_seconds(device, clock),
            "copies": observe.copies(device, clock),
            "layers": [observe.layer(grids, device, dtype, clock)],
            "collectives": curves,
        }
    finally:
        torch.set_num_threads(threads)
    return KernelFile(kind.name, peaks_of(kind), _provenance(device), tuple(tables), observations)


def _collectives(device: torch.device, processes: int, grids: Grids, say: Say) -> list[collectives.Curve]:
    if collectives.launched():
        rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        say(f"collectives between the {ranks} processes of the launcher …")
        return collectives.measure(rank, ranks, "env://", device.type, grids.messages)
    if processes < 2:
        return []
    if device.type == "cuda" and processes > torch.cuda.device_count():
        raise InputError(
            f"{processes} processes asked of {torch.cuda.device_count()} devices: each needs its own"
        )
    say(f"collectives between {processes} processes …")
    return collectives.between(processes, device.type, grids.messages)


def _measured(op: Op, kind: DeviceKind, clock: Clock, say: Say) -> Table:
    """Seconds at every combination of the axes, made to rise, as a table of efficiency."""
    axes = tuple(op.axes)
    points = tuple(op.axes[axis] for axis in axes)
    count = len(list(itertools.product(*points)))
    say(
        f"{op.op}{f', head dimension {op.head_dim}' if op.head_dim else ''}: {count} shapes over {' × '.join(axes)} …"
    )
    seconds = [clock.seconds(op.calls(*where)) for where in itertools.product(*points)]
    table = Table(op.op, op.dtype, "", op.head_dim, axes, points, ())
    compute = computes_as(kind, ATTENTION_DTYPE if op.op in ("decode_attention", "memory") else op.dtype)
    ideal = np.log(
        ideal_seconds(kind, REFERENCES[op.op](table, *np.meshgrid(*points, indexing="ij")), compute)
    )
    rising = isotonic(np.log(np.asarray(seconds)).reshape([len(p) for p in points]))
    logs = np.round((ideal - rising).ravel() / STEP) * STEP
    return Table(op.op, op.dtype, "", op.head_dim, axes, points, tuple(logs.tolist()))


def _provenance(device: torch.device) -> dict[str, Any]:
    name = machine.processor() if device.type == "cpu" else torch.cuda.get_device_name(device)
    return {
        "what": "efficiency of kernels measured by rpeg calibrate",
        "device": name,
        "versions": machine.versions(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
