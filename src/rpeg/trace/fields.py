"""Pieces of a trace's lines that entries and spans share."""

from __future__ import annotations

from typing import Any

from rpeg.errors import InputError
from rpeg.fields import is_text, is_whole, shown
from rpeg.plan import Item, ItemKind


def item_to_json(item: Item) -> list[Any]:
    """``["run", "generate", 3, 0, 1]``: kind, stage or edge, step, part, replica."""
    return [str(item.kind), item.name, item.step, item.part, item.replica]


def item_from_json(value: Any) -> Item:
    """The item that `item_to_json` wrote. Raises InputError where the value is none."""
    match value:
        case [kind, name, step, part, replica] if (
            kind in tuple(ItemKind) and is_text(name) and all(map(is_whole, (step, part, replica)))
        ):
            return Item(ItemKind(kind), name, step, part, replica)
    raise InputError(f"the item is {shown(value)}, [kind, name, step, part, replica] is needed")
