"""Where the data of a run lie: references by the item that made them. The driver moves these, not the data."""

from __future__ import annotations

from typing import Any

from rpeg.ir import RETRY, Graph, Kind
from rpeg.plan import BEGUN, Item, ItemKind, Lowered


class Batches:
    """References to what items have made, until the step's last item has read them."""

    def __init__(self, graph: Graph, lowered: Lowered) -> None:
        self._lowered = lowered
        self._sources = {s.name for s in graph.stages if s.kind is Kind.GENERATE or s == graph.selector}
        self._selectors = {s.name for s in graph.stages if s == graph.selector}
        self._parts: dict[tuple[Item, int], Any] = {}
        self._items: dict[Item, list[Any]] = {}

    def add_part(self, item: Item, part: int, reference: Any) -> None:
        self._parts[item, part] = reference

    def add(self, item: Item, reference: Any) -> None:
        self._items.setdefault(item, []).append(reference)

    def inputs_of(self, item: Item) -> tuple[list[str], list[Any]]:
        """(datum, reference) of everything that the data edges into an item bring."""
        names: list[str] = []
        references: list[Any] = []
        for arc in self._lowered.arcs_into[item.slot]:
            if arc.src.kind is not ItemKind.RUN or arc.delay or arc.why in ("order", RETRY):
                continue
            source = arc.src.at(item.step)
            if arc.why == BEGUN:
                found = self._items[source]
            else:
                found = self._made_by(source, arc.part, arc.if_members)
            names += [arc.why] * len(found)
            references += found
        return names, references

    def forget(self, step: int) -> None:
        """Lets go of a step whose items have all ended."""
        self._parts = {key: value for key, value in self._parts.items() if key[0].step != step}
        self._items = {key: value for key, value in self._items.items() if key.step != step}

    def _made_by(self, source: Item, part: int | None, perhaps: bool) -> list[Any]:
        """perhaps: what is not there yet holds no member of the item, or it would not run.

        A round of a selector that there was no need for has made nothing.
        """
        if source.name not in self._sources:
            return self._items.get(source, [])
        perhaps = perhaps or source.name in self._selectors
        parts = self._lowered.tasks[source.slot].makes if part is None else (part,)
        keys = [(source, number) for number in parts]
        return [self._parts[key] for key in keys if not perhaps or key in self._parts]
