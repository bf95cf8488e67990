"""What an `aiconfigurator-core` installation holds: Parquet files of single kernels' timings.

``systems/data/<system>/<op>/<engine>/<version>/<name>.parquet``; latencies are in milliseconds. `pyarrow` is imported
only when something is read.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

# A column name to its values.
Columns = dict[str, Any]

# Directories of the package by our names of device kinds.
SYSTEMS = {
    "a100-80gb-sxm": "a100_sxm",
    "h100-sxm": "h100_sxm",
    "h200": "h200_sxm",
    "b200": "b200_sxm",
    "b300": "b300_sxm",
    "gb200": "gb200",
    "gb300": "gb300",
    "l40s": "l40s",
}
LIBRARIES = {"vllm": "vllm", "trtllm": "tensorrt-llm", "sglang": "sglang"}
DTYPES = {"bfloat16": "bfloat16", "fp8": "float8", "fp8_block": "float8-block", "nvfp4": "float4"}


def versions(folder: Path, engine: str, name: str) -> list[Path]:
    """The files of this name of all versions of an engine, oldest first."""
    return sorted(folder.glob(f"{engine}/*/{name}.parquet"), key=lambda file: _version(file.parent.name))


def newest(folder: Path, name: str) -> list[Path]:
    """The file of this name of each engine's newest version."""
    return [files[-1] for engine in sorted(LIBRARIES) if (files := versions(folder, engine, name))]


def _version(text: str) -> tuple[tuple[int, str], ...]:
    """Sorts 0.10 after 0.9 and rc20 after rc9."""
    parts: list[tuple[int, str]] = []
    for part in text.replace("rc", ".-1.").split("."):
        parts.append((int(part), "") if part.lstrip("-").isdigit() else (0, part))
    return (*parts, (0, ""))  # so that a release comes after its candidates


def library_of(file: Path) -> str:
    return LIBRARIES[file.parent.parent.name]


def columns_of(file: Path) -> Columns:
    parquet = importlib.import_module("pyarrow.parquet")
    table = parquet.read_table(file)
    return {name: table.column(name).to_numpy(zero_copy_only=False) for name in table.column_names}
