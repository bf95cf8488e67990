"""The device kinds that come with RPEG, a source beside each number, and the names that people call them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import yaml

from rpeg.cluster.device import DeviceKind
from rpeg.cluster.sources import DATA, load, names, sourced
from rpeg.errors import InputError, nearest

_MEMORY = re.compile(r"(?<![a-z0-9])(\d+)\s*(?:gib|gb|g)\b")
_SIZE_TOLERANCE = 0.1  # 96 GB of memory are also sold as 95, 180 as 192


def device_kinds() -> tuple[str, ...]:
    """Names of the bundled device kinds."""
    return names("kinds")


@cache
def device_kind(name: str) -> DeviceKind:
    """A bundled device kind by its own name. InputError names the nearest when there is none of this name."""
    if name not in device_kinds():
        raise InputError(_unknown(name))
    data = load("kinds", name)
    entries = {key: sourced(f"device kind {name}", key, entry) for key, entry in data.items()}
    values: dict[str, Any] = {key: value for key, (value, _) in entries.items()}
    return DeviceKind.from_json(
        {"name": name, **values, "sources": {key: source for key, (_, source) in entries.items()}}
    )


@cache
def kind_named(text: str) -> DeviceKind:
    """The bundled kind that a name means: "H100", "NVIDIA A100-SXM4-80GB", "GB200-186GB", "RTX 4090".

    What a name leaves open is decided by `data/aliases.yaml`: "A100" is the SXM module of 80 GB.
    InputError for unknown devices, and where the name gives a memory size that the kind does not have.
    """
    if text.lower() in device_kinds():
        return device_kind(text.lower())
    spelled = _MEMORY.sub(r"\1gb", text.lower())
    for words, name in _aliases():
        if all(any(_stands_in(word, spelled) for word in either) for either in words):
            kind = device_kind(name)
            _check_memory(text, spelled, kind, words)
            return kind
    raise InputError(_unknown(text))


def relatives(kind: DeviceKind) -> Iterator[DeviceKind]:
    """A kind, then those whose measured kernels stand in for its own, the nearest first."""
    yield kind
    if kind.like is not None and kind.like in device_kinds():
        yield from relatives(device_kind(kind.like))


@cache
def _aliases() -> tuple[tuple[tuple[tuple[str, ...], ...], str], ...]:
    """(words that must all stand in the name, each with its alternatives; kind), in the order of trial."""
    rows = yaml.safe_load((DATA / "aliases.yaml").read_text(encoding="utf-8"))
    return tuple((tuple(tuple(str(w).split("|")) for w in row["words"]), row["kind"]) for row in rows)


def _stands_in(word: str, text: str) -> bool:
    return re.search(rf"(?<![a-z0-9]){re.escape(word)}(?![a-z0-9])", text) is not None


def _check_memory(text: str, spelled: str, kind: DeviceKind, words: tuple[tuple[str, ...], ...]) -> None:
    """Refuses a size that is neither the kind's nor one that its alias names."""
    known = {word for either in words for word in either}
    has = kind.memory_bytes / 2**30
    for size in re.findall(r"(?<![a-z0-9])(\d+)gb(?![a-z0-9])", spelled):
        if f"{size}gb" not in known and abs(int(size) - has) > _SIZE_TOLERANCE * has:
            raise InputError(
                f"device '{text}' has {size} GB, the nearest kind {kind.name} has {has:.0f}. {_DESCRIBE}"
            )


def _unknown(text: str) -> str:
    spellings = {word: name for words, name in _aliases() for either in words[:1] for word in either}
    known = spellings.get(text.lower())
    hint = f"Did you mean '{known}'?" if known else nearest(text.lower(), [*device_kinds(), *spellings])
    return f"there is no device kind '{text}'. {hint} {_DESCRIBE}"


_DESCRIBE = (
    "Or describe it under 'kinds' in your cluster's file: name, memory_bytes, memory_bandwidth_bytes_per_second, "
    "peak_flops, host_bandwidth_bytes_per_second, like (a kind whose measured kernels stand in)."
)
