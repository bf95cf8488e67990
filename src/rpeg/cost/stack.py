"""`Stack`: what a software stack does to time and memory, as a few physical quantities.

Each bundled stack is a file under `data/stacks`: a quantity stands there with its value (`by_kind`: where device
kinds differ), what it means and where the value comes from. A quantity that a file leaves out keeps the default of
its field, which `data/stacks/defaults.yaml` documents in the same form.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, TypeVar

import yaml

from rpeg.cost.traits import KernelTraits, MemoryTraits, NetworkTraits, ServingTraits, TrainingTraits
from rpeg.errors import InputError, nearest
from rpeg.fields import Fields
from rpeg.hashing import kept_hash

_DATA = resources.files("rpeg.cost") / "data" / "stacks"
_DEFAULTS = "defaults"

Traits = TypeVar("Traits", KernelTraits, NetworkTraits, TrainingTraits, MemoryTraits, ServingTraits)


@kept_hash
@dataclass(frozen=True)
class Stack:
    """One software stack on one kind of device."""

    name: str
    kernels: KernelTraits = field(default_factory=KernelTraits)
    network: NetworkTraits = field(default_factory=NetworkTraits)
    training: TrainingTraits = field(default_factory=TrainingTraits)
    memory: MemoryTraits = field(default_factory=MemoryTraits)
    serving: ServingTraits = field(default_factory=ServingTraits)


@dataclass(frozen=True)
class Quantity:
    """One tunable as its file documents it. by_kind: (device kind, value) pairs."""

    stack: str
    section: str
    name: str
    value: Any
    what: str
    source: str
    by_kind: tuple[tuple[str, Any], ...] = ()

    def on(self, kind: str) -> Any:
        """The value on a kind of device."""
        return dict(self.by_kind).get(kind, self.value)


def stacks() -> tuple[str, ...]:
    """Names of the bundled stacks."""
    names = (file.name.removesuffix(".yaml") for file in _DATA.iterdir() if file.name.endswith(".yaml"))
    return tuple(sorted(name for name in names if name != _DEFAULTS))


@cache
def stack(name: str, kind: str = "") -> Stack:
    """A bundled stack as it is on a kind of device. InputError names the nearest when there is none."""
    if name not in stacks():
        raise InputError(f"there is no software stack '{name}'. {nearest(name, stacks())}")
    values: dict[str, dict[str, Any]] = {}
    for quantity in (*quantities(_DEFAULTS), *quantities(name)):
        values.setdefault(quantity.section, {})[quantity.name] = quantity.on(kind)
    return Stack(
        name,
        _traits(KernelTraits, values.get("kernels", {}), name),
        _traits(NetworkTraits, values.get("network", {}), name),
        _traits(TrainingTraits, values.get("training", {}), name),
        _traits(MemoryTraits, values.get("memory", {}), name),
        _traits(ServingTraits, values.get("serving", {}), name),
    )


@cache
def quantities(name: str) -> tuple[Quantity, ...]:
    """Every quantity that a stack's file gives."""
    data = yaml.safe_load((_DATA / f"{name}.yaml").read_text(encoding="utf-8")) or {}
    out = []
    for section, entries in data.items():
        for key, entry in (entries or {}).items():
            fields = Fields(f"stack {name}, {section}.{key}", entry)
            by_kind = tuple(fields.mapping("by_kind", {}).items())
            value, what = fields.get("value"), fields.text("what")
            out.append(Quantity(name, section, key, value, what, fields.text("source"), by_kind))
            fields.finish()
    return tuple(out)


def _traits(of: type[Traits], values: dict[str, Any], name: str) -> Traits:
    known = {f.name for f in dataclasses.fields(of)}
    for key in values:
        if key not in known:
            raise InputError(f"stack {name} has no quantity '{key}'. {nearest(key, known)}")
    return of(**values)
