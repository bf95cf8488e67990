"""`Calibration`: what was measured on a machine, with where, when and with what."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rpeg.cost.passes.grid import Grid
from rpeg.errors import InputError, nearest

SCHEMA = 1

# Every op that a table may hold, and its axes. Seconds of one call on one device.
OPS: Mapping[str, tuple[str, ...]] = {
    # generation engine: passes over distinct prompts, samples that enter, one token for each row against so long
    # a cache, samples that leave at once
    "prefill": ("rows", "tokens"),
    "admit": ("rows",),
    "decode": ("rows", "context"),
    "leave": ("rows",),
    # requests from prompts and a batch from responses, around a generation
    "collect": ("samples",),
    # training backend: the backbone over a padded micro-batch, and the lm head over its response tokens
    "forward": ("rows", "length"),
    "forward_backward": ("rows", "length"),
    "head": ("tokens",),
    "head_backward": ("tokens",),
    # once an update, over the parameters that a rank holds
    "optimizer": ("parameters",),
    # what slices over ranks (ZeRO-3) add: to a micro-batch forward, to one forward and backward, and to an update,
    # whose optimizer step it includes
    "sharded_forward": (),
    "sharded_backward": (),
    "sharded_update": (),
    # weights: flatten and digest by the trainer, check and load by the generator
    "publish": ("bytes",),
    "load": ("bytes",),
    # log-probabilities of a fixed prompt, by either side, after a transfer
    "canary": (),
    # collectives over so many ranks; bytes of the whole tensor
    "all_reduce": ("ranks", "bytes"),
    "all_gather": ("ranks", "bytes"),
    "reduce_scatter": ("ranks", "bytes"),
    # runtime: an object into and out of the store, one remote call
    "put": ("bytes",),
    "get": ("bytes",),
    "call": (),
    # joining the batches that an item is given, by sample id
    "join": ("samples",),
    # host: decoding and verifying responses; column ops such as advantages
    "reward": ("samples",),
    "columns": ("samples",),
}
_FIELDS = (
    "schema",
    "device",
    "machine",
    "dtype",
    "date",
    "versions",
    "architecture",
    "tables",
    "memory_bytes",
)


@dataclass(frozen=True)
class Calibration:
    """Tables of measured seconds, for one architecture in one dtype on one kind of device.

    device: name of the device kind. machine: the processor as it calls itself. date: ISO 8601.
    memory_bytes: measured sizes, such as `context`: a worker process before it holds a model.
    """

    device: str
    machine: str
    dtype: str
    date: str
    architecture: str
    versions: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, Grid] = field(default_factory=dict)
    memory_bytes: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for op, grid in self.tables.items():
            if op not in OPS:
                raise InputError(f"the calibration of {self.machine} has a table '{op}'. {nearest(op, OPS)}")
            if grid.axes != OPS[op]:
                raise InputError(f"the calibration table '{op}' has axes {grid.axes}, {OPS[op]} are needed")

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; `from_json` reads it back."""
        return {
            "schema": SCHEMA,
            "device": self.device,
            "machine": self.machine,
            "dtype": self.dtype,
            "date": self.date,
            "architecture": self.architecture,
            "versions": dict(self.versions),
            "memory_bytes": dict(self.memory_bytes),
            "tables": {op: grid.to_json() for op, grid in self.tables.items()},
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Calibration:
        """The calibration that `to_json` wrote. InputError names a wrong, missing or unknown field."""
        if data.get("schema") != SCHEMA:
            raise InputError(
                f"the calibration has schema {data.get('schema')!r}, {SCHEMA} is read: calibrate again"
            )
        for key in data:
            if key not in _FIELDS:
                raise InputError(f"a calibration has no field '{key}'. {nearest(key, _FIELDS)}")
        try:
            names = ("device", "machine", "dtype", "date", "architecture")
            return Calibration(
                **{name: str(data[name]) for name in names},
                versions={str(k): str(v) for k, v in data["versions"].items()},
                tables={op: Grid.from_json(grid) for op, grid in data["tables"].items()},
                memory_bytes={str(k): float(v) for k, v in data["memory_bytes"].items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(f"the calibration is broken: {error!r}") from error


def read(path: str | Path) -> Calibration:
    """The calibration in a JSON file."""
    try:
        return Calibration.from_json(json.loads(Path(path).read_text(encoding="utf-8")))
    except (OSError, json.JSONDecodeError) as error:
        raise InputError(f"{path} cannot be read as a calibration: {error}") from error


def write(calibration: Calibration, path: str | Path) -> None:
    """The calibration as a JSON file, there whole or not at all."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(".partial")
    partial.write_text(json.dumps(calibration.to_json(), indent=1), encoding="utf-8")
    partial.replace(target)
