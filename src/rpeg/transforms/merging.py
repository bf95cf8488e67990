"""Joining stages, calls and edges: what sharing and fusion have in common."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rpeg.errors import GraphError
from rpeg.ir import Call, Edge, Graph, Stage


def merge_stages(graph: Graph, first: str, second: str) -> Graph:
    """Both stages as one that makes the calls of both, `first`'s ahead, in the place of the earlier one; not verified.

    Edges keep their data, delay and freshness. What one stage handed to the other stays inside. Raises GraphError where
    the two take the same datum in different ways.
    """
    a, b = graph.stage(first), graph.stage(second)
    name = f"{first}+{second}"
    both = replace(a, name=name, calls=join_calls((*a.calls, *b.calls)))
    place = min(graph.stages.index(a), graph.stages.index(b))
    others = [(i, s) for i, s in enumerate(graph.stages) if s not in (a, b)]
    stages = (*(s for i, s in others if i < place), both, *(s for i, s in others if i > place))
    ends = {first: name, second: name}
    edges = (replace(e, src=ends.get(e.src, e.src), dst=ends.get(e.dst, e.dst)) for e in graph.edges)
    outer = (e for e in edges if e.model is not None or e.src != e.dst)
    return replace(graph, stages=stages, edges=distinct(outer))


def join_calls(calls: Iterable[Call]) -> tuple[Call, ...]:
    """Calls of one model become one forward where none between them gives what the later one needs."""
    joined: list[Call] = []
    for call in calls:
        place = next((i for i, c in enumerate(joined) if c.model == call.model), None)
        between = joined[place:] if place is not None else []
        given = {datum for c in between for op in c.ops for datum in op.gives}
        if place is None or any(given & set(op.needs) for op in call.ops):
            joined.append(call)
        else:
            joined[place] = Call(call.model, (*joined[place].ops, *call.ops))
    return tuple(joined)


def distinct(edges: Iterable[Edge]) -> tuple[Edge, ...]:
    """Each edge once. Raises GraphError naming two of one name that differ."""
    found: dict[str, Edge] = {}
    for edge in edges:
        other = found.setdefault(edge.name, edge)
        if other != edge:
            raise GraphError(f"{edge.dst} would take {edge.data} {_difference(other, edge)}")
    return tuple(found.values())


def without(graph: Graph, stage: Stage) -> Graph:
    """Without a stage, its edges and the frozen models that only it called; not verified."""
    stages = tuple(s for s in graph.stages if s != stage)
    called = {model for s in stages for model in s.models}
    models = tuple(m for m in graph.models if m.trainable or m.name in called)
    edges = tuple(e for e in graph.edges if stage.name not in (e.src, e.dst))
    return replace(graph, models=models, stages=stages, edges=edges)


def _difference(one: Edge, other: Edge) -> str:
    """``with delay 1 and with delay 2``: the first field in which two edges differ."""
    for field in ("delay", "chunk", "freshness", "on_new_weights", "initial"):
        a, b = getattr(one, field), getattr(other, field)
        if a != b:
            return f"with {field} {_shown(a)} and with {field} {_shown(b)}"
    return "from two stages"


def _shown(value: object) -> str:
    count, unit = getattr(value, "count", None), getattr(value, "unit", None)
    return f"{count} {unit}" if unit is not None else str(value)
