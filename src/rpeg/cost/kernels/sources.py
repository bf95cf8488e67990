"""`Source`: where the kernel tables of a device kind come from.

In this order: a file of the user's own (``$RPEG_KERNELS``, else ``kernels-<kind>.json`` in the cache directory, where
`rpeg calibrate --kernels` writes it), the user's installation of `aiconfigurator-core` where it is another version than
the bundled tables are from, the bundled tables; else the same of the siblings that the kind names in `like`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, lru_cache
from importlib import resources
from pathlib import Path
from statistics import median

from rpeg.cluster import DeviceKind
from rpeg.cluster.kinds import relatives
from rpeg.cost.kernels import installed
from rpeg.cost.kernels.files import KernelFile, read
from rpeg.cost.kernels.table import Table
from rpeg.errors import InputError
from rpeg.job.cache import cache_directory

_MAKE = "rpeg calibrate --kernels --out FILE"
_DATA = resources.files("rpeg.cost") / "data" / "kernels"

# The least that a kernel of an accelerator takes; the fastest of aiconfigurator-core's products take 2.4 µs.
FLOOR_SECONDS = 2e-6
# Whose efficiency stands in where a dtype was not measured: the next wider that runs on the same units.
_NEXT = {
    "float4": "float8",
    "float8-block": "float8",
    "float8": "bfloat16",
    "int4": "bfloat16",
    "float16": "bfloat16",
    "tfloat32": "bfloat16",
}
_SAME = {"float16": "bfloat16"}  # as fast on every kind
# Asked after the stack's own; the first has the most tables.
_LIBRARIES = ("", "vllm", "sglang", "tensorrt-llm")


@dataclass(frozen=True)
class Source:
    """Tables for one kind. own: measured on it, not on a sibling. what: a line that says where they are from."""

    tables: Mapping[tuple[str, str, str, int], Table]
    own: bool
    what: str
    floor_seconds: float = 0.0
    _found: dict[tuple[str, str, str, float], tuple[Table | None, bool]] = field(
        default_factory=dict, repr=False
    )

    def find(self, op: str, dtype: str, library: str, head_dim: float) -> tuple[Table | None, bool]:
        """The nearest table, and whether it is of this op in this dtype; (None, False) without any of the op."""
        key = (op, dtype, library, head_dim)
        if key not in self._found:
            self._found[key] = self._search(*key)
        return self._found[key]

    def _search(self, op: str, dtype: str, library: str, head_dim: float) -> tuple[Table | None, bool]:
        if (op, dtype) == ("experts", "float8"):
            scaled = self._either_scale(library)
            if scaled is not None:
                return scaled, True
        exact = True
        wanted: str | None = _SAME.get(dtype, dtype)
        while wanted is not None:
            for name in (library, *_LIBRARIES, *sorted({key[2] for key in self.tables})):
                sizes = sorted(key[3] for key in self.tables if key[:3] == (op, wanted, name))
                if sizes:
                    nearest = min((size for size in sizes if size >= head_dim), default=sizes[-1])
                    return self.tables[op, wanted, name, nearest], exact
            wanted, exact = _NEXT.get(wanted), False
        return None, False

    def _either_scale(self, library: str) -> Table | None:
        """8-bit experts of a library, scaled by tensor or by block: whichever kernel is better on the whole.

        A scale a tensor or a block moves the same bytes; where one kernel was left untuned (vLLM's with a scale a
        tensor reaches a third of its own with blocks on Hopper) nobody serves or trains by it.
        """
        both = (self.tables.get(("experts", dtype, library, 0)) for dtype in ("float8", "float8-block"))
        return max(filter(None, both), key=lambda table: median(table.logs), default=None)


@lru_cache(maxsize=64)
def source_of(kind: DeviceKind) -> Source:
    """The tables for a kind, by the order above."""
    floor = FLOOR_SECONDS if kind.multiprocessors else 0.0
    for relative in relatives(kind):
        name, own = relative.name, relative.name == kind.name
        file, what = _file(name)
        if file is not None:
            tables = {(t.op, t.dtype, t.library, t.head_dim): t for t in file.tables}
            return Source(tables, own, what if own else f"{what}; efficiency of the sibling {name}", floor)
    return Source({}, False, "no kernel tables: rooflines", floor)


def _file(name: str) -> tuple[KernelFile | None, str]:
    for path in user_files(name):
        if path.exists():
            file = read(path)
            if file.kind == name:
                return file, f"measured kernels of {path}, {file.provenance.get('date', 'undated')}"
    mine = bundled(name)
    version = "" if mine is None else str(mine.provenance.get("version", ""))
    found = installed.tables(name, version)
    if found is not None:
        return found, f"installed aiconfigurator-core {found.provenance['version']}"
    if mine is None:
        return None, ""
    return mine, f"bundled tables of {mine.provenance['package']} {version}"


def user_files(name: str) -> tuple[Path, ...]:
    """Where a user's own kernel file for a kind may lie, the first that exists counts.

    InputError where $RPEG_KERNELS names a file that does not exist: estimates would silently rest on other tables.
    """
    own = os.environ.get("RPEG_KERNELS")
    if own and not Path(own).expanduser().exists():
        raise InputError(
            f"$RPEG_KERNELS names {own}, which does not exist: unset it, or write the file by `{_MAKE}`"
        )
    return (*((Path(own).expanduser(),) if own else ()), cache_directory() / f"kernels-{name}.json")


@cache
def bundled(name: str) -> KernelFile | None:
    """The bundled tables of a kind, None where there are none."""
    file = _DATA / f"{name}.json"
    return KernelFile.loads(file.read_text(encoding="utf-8"), file.name) if file.is_file() else None


def bundled_kinds() -> tuple[str, ...]:
    """Kinds that come with measured kernels."""
    return tuple(sorted(f.name.removesuffix(".json") for f in _DATA.iterdir() if f.name.endswith(".json")))
