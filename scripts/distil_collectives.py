"""Makes the bundled tables of measured collectives from an unpacked `aiconfigurator-core` wheel.

    python scripts/distil_collectives.py PATH/TO/aiconfigurator_core VERSION

Writes `src/rpeg/cost/data/network/<kind>.json`. Each curve: a collective of a library between `ranks` devices of one
node (of an NVLink domain), seconds over bytes. Bytes are of the whole tensor as in nccl-tests: of the result of an
all-gather, of the input of a reduce-scatter, of all that one rank holds before an all-to-all. The package counts
messages in elements and latencies in milliseconds. Needs pyarrow.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from rpeg.cost.kernels.distil.package import LIBRARIES, SYSTEMS, columns_of, versions

OUT = Path(__file__).parents[1] / "src" / "rpeg" / "cost" / "data" / "network"
NAMES = {"alltoall": "all_to_all"}
# Eager launches of the engines' own all-reduce measure the host, which stages count; the graph's measure the kernel.
SKIPPED = "eager"
# These machines joined their devices over the sockets' link: 1 GB/s between 8, 5 between 4. No property of the kind.
WITHOUT_NCCL = ("l40s",)
GRID = [float(2**i) for i in range(9, 31)]


def main(package: str, version: str) -> None:
    """Distils all kinds that have collectives."""
    data = Path(package) / "systems" / "data"
    for kind, system in SYSTEMS.items():
        curves, files = [], []
        for read in (_nccl, _engines):
            made, used = read(data / system / "comm", kind)
            curves += made
            files += used
        provenance = {
            "what": "seconds of collectives within a node or NVLink domain over bytes of the whole tensor",
            "package": "aiconfigurator-core",
            "version": version,
            "licence": "Apache-2.0, Copyright NVIDIA CORPORATION & AFFILIATES",
            "url": "https://pypi.org/project/aiconfigurator-core/",
            "files": sorted({str(file.relative_to(data)) for file in files}),
        }
        lines = ",\n".join(json.dumps(curve, separators=(",", ":")) for curve in curves)
        head = f'{{"schema": 1,\n"kind": "{kind}",\n"provenance": {json.dumps(provenance)},\n"curves": [\n'
        (OUT / f"{kind}.json").write_text(head + lines + "\n]}\n", encoding="utf-8")
        print(f"{kind}: {len(curves)} curves")


def _nccl(folder: Path, kind: str) -> tuple[list[dict[str, Any]], list[Path]]:
    files = [] if kind in WITHOUT_NCCL else versions(folder, "nccl", "nccl_perf")
    if not files:
        return [], []
    columns = columns_of(files[-1])
    half = columns["nccl_dtype"] == "half"
    out = []
    for op in sorted(set(columns["op_name"])):
        for ranks in sorted(set(columns["num_gpus"])):
            keep = half & (columns["op_name"] == op) & (columns["num_gpus"] == ranks)
            out += _curve("nccl", NAMES.get(op, op), ranks, columns, keep)
    return out, files[-1:]


def _engines(folder: Path, kind: str) -> tuple[list[dict[str, Any]], list[Path]]:
    out, used = [], []
    for engine in sorted(LIBRARIES):
        for file in versions(folder, engine, "custom_allreduce_perf")[-1:]:
            columns = columns_of(file)
            used.append(file)
            fast = np.asarray([SKIPPED not in source for source in columns["kernel_source"]])
            for ranks in sorted(set(columns["num_gpus"])):
                keep = fast & (columns["num_gpus"] == ranks)
                out += _curve(LIBRARIES[engine], "all_reduce", ranks, columns, keep)
    return out, used


def _curve(
    library: str, collective: str, ranks: int, columns: dict[str, Any], keep: Any
) -> list[dict[str, Any]]:
    """Medians at the powers of two, 2-byte elements."""
    size, seconds = columns["message_size"][keep] * 2.0, columns["latency"][keep] * 1e-3
    points = [(at, float(np.median(seconds[size == at]))) for at in GRID if (size == at).any()]
    if not points:
        return []
    rounded = [float(f"{value:.3g}") for _, value in points]
    head = {"collective": collective, "library": library, "ranks": int(ranks)}
    return [{**head, "bytes": [int(at) for at, _ in points], "seconds": rounded}]


if __name__ == "__main__":
    main(*sys.argv[1:])
