"""A calibration worker: one pinned single-thread process that times ops while its peers do the same.

Run as ``python -m rpeg.calibrate.worker TASK RESULT``: two paths of JSON files. A process of its own and not a fork,
so that a caller with threads or an accelerator is no hindrance and needs no `__main__` guard.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rpeg.architecture import Architecture, to_config
from rpeg.calibrate.shapes import Shapes, points


def main(task_path: str, result_path: str) -> None:
    """Reads a task, measures, writes the result."""
    task = json.loads(Path(task_path).read_text(encoding="utf-8"))
    os.sched_setaffinity(0, {int(task["core"])})
    result = measure(task)
    Path(result_path).write_text(json.dumps(result), encoding="utf-8")


def measure(task: dict[str, Any]) -> dict[str, Any]:
    """``seconds``: [probe, shape, seconds] rows. ``context_bytes``: of this process before it held a model."""
    import torch
    import torch.distributed as dist

    from rpeg.calibrate import generation, host, sharding, training, weights
    from rpeg.calibrate.probe import Probe, rounds

    torch.set_num_threads(1)
    torch.manual_seed(0)
    if task["ranks"] > 1:
        dist.init_process_group(
            "gloo", init_method=f"file://{task['rendezvous']}", rank=task["rank"], world_size=task["ranks"]
        )
    architecture, dtype = Architecture.from_json(task["architecture"]), getattr(torch, task["dtype"])
    where = points(architecture, Shapes(**task["shapes"]), task["dtype"])
    context = resident_bytes()
    policy = build(architecture, dtype)
    # The engine runs first: the trainer flattens the parameters of its module for good.
    groups: list[Callable[[], Iterable[Probe]]] = [
        lambda: generation.probes(
            policy.hf, where, torch.device("cpu"), architecture.context, architecture.vocabulary
        ),
        lambda: training.probes(policy, where, architecture.hidden),
        lambda: weights.probes(build(architecture, dtype)),
        lambda: host.probes(where),
    ]
    if task["ranks"] > 1:
        groups.append(lambda: weights.collective_probes(where, dtype))
        groups.append(lambda: sharding.probes(lambda: build(architecture, dtype)))
    rows: list[list[Any]] = []
    for make in groups:
        # Made when their turn comes and let go of after it: each holds models of its own.
        probes = list(make())
        if task["ranks"] > 1:
            dist.barrier()
        rounds(probes, task["rounds"], task["budget_seconds"])
        rows += [[p.op, list(p.shape), p.median_seconds] for p in probes]
        del probes
        gc.collect()
    if task["ranks"] > 1:
        dist.destroy_process_group()
    return {"seconds": rows, "context_bytes": context}


def build(architecture: Architecture, dtype: Any) -> Any:
    """A policy model of this shape with drawn weights."""
    from transformers import AutoConfig, AutoModelForCausalLM

    from rpeg.backends.models import PolicyModel

    config = to_config(architecture)
    shape = AutoConfig.for_model(config.pop("model_type"), **config)
    model = AutoModelForCausalLM.from_config(shape, dtype=dtype, attn_implementation="sdpa")
    return PolicyModel(model, ("lm",)).eval()


def resident_bytes() -> int:
    """Memory of this process that no other shares and that is not on disk, plus what it maps (Linux: VmRSS)."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    main(*sys.argv[1:])
