"""Pieces of a trace's lines that entries and spans share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rpeg.plan import Item, ItemKind


def item_to_json(item: Item) -> list[Any]:
    """``["run", "generate", 3, 0, 1]``: kind, stage or edge, step, part, replica."""
    return [str(item.kind), item.name, item.step, item.part, item.replica]


def item_from_json(value: Sequence[Any]) -> Item:
    kind, name, step, part, replica = value
    return Item(ItemKind(kind), str(name), int(step), int(part), int(replica))


def versions_from_json(value: Mapping[str, Any]) -> dict[str, int]:
    return {str(model): int(version) for model, version in value.items()}
