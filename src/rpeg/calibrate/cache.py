"""Where calibrations are kept: one JSON file a machine, version set, architecture, dtype and shapes."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from rpeg.architecture import Architecture
from rpeg.calibrate import machine
from rpeg.calibrate.shapes import Shapes
from rpeg.cost import Calibration
from rpeg.cost.passes import table as files
from rpeg.cost.passes.table import SCHEMA
from rpeg.errors import InputError
from rpeg.job.cache import cache_directory


def path(architecture: Architecture, dtype: str, processes: int, shapes: Shapes) -> Path:
    """The file of a calibration; its name is a digest of all that its times depend on."""
    shape = {**architecture.to_json(), "name": ""}
    return _file("calibration", [shape, dtype, processes, dataclasses.astuple(shapes)])


def transport_path() -> Path:
    """The file of what carrying costs, which depends on the machine alone."""
    return _file("transport", [])


def _file(what: str, details: list[Any]) -> Path:
    key = [SCHEMA, machine.processor(), os.cpu_count(), machine.versions(), *details]
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    return cache_directory() / f"{what}-{digest}.json"


def load(where: Path) -> Calibration | None:
    """The calibration in a file; None where there is none that can be read."""
    if not where.exists():
        return None
    try:
        return files.read(where)
    except InputError:
        return None
