"""Distils measured collectives of `aiconfigurator-core` into `src/rpeg/cost/data/network/<kind>.json`.

Usage: python scripts/distil_network.py DIRECTORY, the `aiconfigurator_core/systems/data` of an installation; needs
pyarrow. Message sizes there are in elements and latencies in milliseconds. Kept are sizes that are a power of four,
the newest version of each library, two bytes an element. Systems without NVLink are left out: what their collectives
reach is their host's doing.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

ROOT = Path(__file__).parents[1] / "src" / "rpeg" / "cost" / "data" / "network"
# System of the package: device kind, and NVLink bytes a second of one device and direction (NVIDIA's datasheets).
SYSTEMS = {
    "a100_sxm": ("a100-80gb-sxm", 3.0e11),
    "h100_sxm": ("h100-sxm", 4.5e11),
    "h200_sxm": ("h200", 4.5e11),
    "b200_sxm": ("b200", 9.0e11),
    "b300_sxm": ("b300", 9.0e11),
    "gb200": ("gb200", 9.0e11),
    "gb300": ("gb300", 9.0e11),
}
ENGINES = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm"}
OPS = {"alltoall": "all_to_all"}
ELEMENT_BYTES = 2


def main(data: Path) -> None:
    ROOT.mkdir(parents=True, exist_ok=True)
    version = (
        (data.parents[1] / "VERSION").read_text().strip()
        if (data.parents[1] / "VERSION").exists()
        else "0.12.0"
    )
    for system, (kind, rate) in SYSTEMS.items():
        files, nccl = [], newest(data.glob(f"{system}/comm/nccl/*/nccl_perf.parquet"))
        files.append(nccl)
        tables = {"nccl": curves(pq.read_table(nccl).to_pylist())}
        for folder, engine in ENGINES.items():
            file = newest(data.glob(f"{system}/comm/{folder}/*/custom_allreduce_perf.parquet"))
            rows = [
                row for row in pq.read_table(file).to_pylist() if not row["kernel_source"].endswith("_eager")
            ]
            tables[engine] = curves(rows)
            files.append(file)
        document = {
            "schema": 1,
            "kind": kind,
            "link_bandwidth_bytes_per_second": rate,
            "provenance": {
                "what": "microseconds of collectives within a node over size in bytes and ranks",
                "package": "aiconfigurator-core",
                "version": version,
                "licence": "Apache-2.0, Copyright NVIDIA CORPORATION & AFFILIATES",
                "url": "https://pypi.org/project/aiconfigurator-core/",
                "files": [str(file.relative_to(data)) for file in files],
            },
            "libraries": tables,
        }
        (ROOT / f"{kind}.json").write_text(compact(document))


def newest(files: Iterable[Path]) -> Path:
    """By the numbers of the version in its path."""
    return max(files, key=lambda file: [int(n) for n in re.findall(r"\d+", file.parent.name)])


def curves(rows: list[dict[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """{op: {ranks: {bytes: microseconds}}}, rising with the size."""
    found: dict[str, dict[int, dict[int, float]]] = {}
    for row in rows:
        size = int(row["message_size"]) * ELEMENT_BYTES
        wanted = size.bit_length() % 2 == 1 and size >= 1024 and size & (size - 1) == 0
        if row.get("nccl_dtype", "half") == "half" and wanted:
            op = OPS.get(row["op_name"], row["op_name"])
            found.setdefault(op, {}).setdefault(int(row["num_gpus"]), {})[size] = float(row["latency"]) * 1e3
    return {op: {str(n): rising(found[op][n]) for n in sorted(found[op])} for op in sorted(found)}


def rising(points: dict[int, float]) -> dict[str, float]:
    """Noise that would make more bytes take less time is cut off."""
    out, most = {}, 0.0
    for size in sorted(points):
        most = max(most, points[size])
        out[str(size)] = float(f"{most:.4g}")
    return out


def compact(document: dict[str, Any]) -> str:
    """One line for each curve."""
    text = json.dumps(document, indent=1)
    return re.sub(r"\{([^{}]*)\}", lambda m: "{" + " ".join(m[1].split()) + "}", text) + "\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
