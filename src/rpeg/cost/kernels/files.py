"""`KernelFile`: the kernel tables of one kind of device, with what they were measured on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rpeg.cluster import DeviceKind
from rpeg.cost.kernels.table import Table
from rpeg.errors import InputError
from rpeg.fields import Fields

SCHEMA = 1


@dataclass(frozen=True)
class KernelFile:
    """Tables of one kind.

    reference: the advertised peaks that the efficiencies are counted against (`peaks_of` of the kind).
    provenance: what was measured, by whom, when, under which licence.
    observations: what else was measured, such as launches, copies, layers and collectives; no table rests on it.
    """

    kind: str
    reference: Mapping[str, Any]
    provenance: Mapping[str, Any]
    tables: tuple[Table, ...]
    observations: Mapping[str, Any] = field(default_factory=dict)

    def dumps(self) -> str:
        """As JSON, a table a line."""
        head = {
            "schema": SCHEMA,
            "kind": self.kind,
            "provenance": self.provenance,
            "reference": self.reference,
        }
        if self.observations:
            head["observations"] = self.observations
        lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
        tables = ",\n".join(json.dumps(table.to_json(), separators=(",", ":")) for table in self.tables)
        return "{\n" + ",\n".join(lines) + ',\n"tables": [\n' + tables + "\n]\n}\n"

    @staticmethod
    def loads(text: str, where: str) -> KernelFile:
        """What `dumps` wrote. InputError names the file and what is wrong with it."""
        try:
            data = json.loads(text)
        except json.JSONDecodeError as error:
            raise InputError(f"kernel file {where} is not JSON: {error}") from error
        fields = Fields(f"kernel file {where}", data)
        schema = fields.number("schema")
        if schema != SCHEMA:
            raise InputError(f"kernel file {where} has schema {schema:g}, this version reads {SCHEMA}")
        file = KernelFile(
            fields.text("kind"),
            fields.mapping("reference"),
            fields.mapping("provenance"),
            tuple(Table.from_json(table) for table in fields.get("tables")),
            fields.mapping("observations", {}),
        )
        fields.finish()
        return file


def read(path: Path) -> KernelFile:
    """The kernel file at a path."""
    return KernelFile.loads(path.read_text(encoding="utf-8"), str(path))


def peaks_of(kind: DeviceKind) -> dict[str, Any]:
    """The advertised peaks that efficiencies of this kind are counted against."""
    return {
        "memory_bandwidth_bytes_per_second": kind.memory_bandwidth_bytes_per_second,
        "peak_flops": dict(kind.peak_flops),
    }
