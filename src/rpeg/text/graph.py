"""Graphs as text, one declaration a line, and back.

    graph ppo
    model actor of tiny trainable heads lm
    model reference of tiny frozen heads lm
    stage generate: generate
      call actor
        op sample scope sample needs prompts gives rollouts,behaviour_logprobs
    edge generate -> reward rollouts chunk 8 sample
    edge train_actor -> generate weights:actor delay 1 initial checkpoint exact drain

A line that begins with `#` is a comment. `parse(text(graph)) == graph` for every graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rpeg.errors import GraphError, nearest
from rpeg.ir import Call, Chunk, Edge, Freshness, Graph, Kind, Model, OnNewWeights, Op, Scope, Stage, Unit


def text(graph: Graph) -> str:
    """The graph as text that `parse` reads back to an equal value."""
    return "\n".join(_lines(graph)) + "\n"


def _lines(graph: Graph) -> Iterator[str]:
    yield f"graph {graph.name}"
    for model in graph.models:
        trainable = "trainable" if model.trainable else "frozen"
        yield f"model {model.name} of {model.architecture} {trainable} heads {','.join(model.heads)}"
    for stage in graph.stages:
        every = f" every {stage.every}" if stage.every != 1 else ""
        parts = f" parts {stage.parts}" if stage.parts != 1 else ""
        migrates = f" migrates {stage.migrates}" if stage.migrates else ""
        yield f"stage {stage.name}: {stage.kind}{every}{parts}{migrates}"
        for call in stage.calls:
            yield f"  call {call.model or 'host'}"
            yield from (f"    {_op_text(op)}" for op in call.ops)
    yield from (_edge_text(edge) for edge in graph.edges)


def _op_text(op: Op) -> str:
    needs = f" needs {','.join(op.needs)}" if op.needs else ""
    gives = f" gives {','.join(op.gives)}" if op.gives else ""
    return f"op {op.name} scope {op.scope.name.lower()}{needs}{gives}"


def _edge_text(edge: Edge) -> str:
    words = [f"edge {edge.src} -> {edge.dst} {edge.data}"]
    if edge.delay:
        words.append(f"delay {edge.delay}")
    if edge.chunk:
        words.append(f"chunk {edge.chunk.count} {edge.chunk.unit}")
    if edge.initial:
        words.append(f"initial {edge.initial}")
    if edge.model is not None:
        words += [str(edge.freshness), str(edge.on_new_weights)]
    return " ".join(words)


def parse(source: str) -> Graph:
    """Reads what `text` prints. Raises GraphError naming the line that it cannot read."""
    name, models, stages, edges = "", [], [], []
    for number, line in enumerate(source.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            match words:
                case ["graph", name]:
                    pass
                case ["model", *rest]:
                    models.append(_parse_model(rest))
                case ["stage", *rest]:
                    stages.append(_parse_stage(rest))
                case ["call", model]:
                    call = Call(None if model == "host" else model, ())
                    stages[-1] = _replace_calls(stages[-1], (*stages[-1].calls, call))
                case ["op", *rest]:
                    last = stages[-1].calls[-1]
                    grown = Call(last.model, (*last.ops, _parse_op(rest)))
                    stages[-1] = _replace_calls(stages[-1], (*stages[-1].calls[:-1], grown))
                case ["edge", *rest]:
                    edges.append(_parse_edge(rest))
                case [word, *_]:
                    known = ("graph", "model", "stage", "call", "op", "edge")
                    raise ValueError(f"'{word}' begins no declaration. {nearest(word, known)}")
        except (ValueError, KeyError, IndexError, StopIteration) as error:
            raise GraphError(f"line {number}: cannot read '{line.strip()}': {error}") from None
    if not name:
        raise GraphError("the text declares no graph: it begins with a line 'graph NAME'")
    return Graph(name, tuple(models), tuple(stages), tuple(edges))


def _replace_calls(stage: Stage, calls: tuple[Call, ...]) -> Stage:
    return replace(stage, calls=calls)


def _parse_model(words: list[str]) -> Model:
    match words:
        case [name, "of", architecture, ("trainable" | "frozen") as state, "heads", heads]:
            return Model(name, architecture, state == "trainable", tuple(heads.split(",")))
    raise ValueError("expected 'model NAME of ARCHITECTURE trainable|frozen heads HEAD,…'")


def _parse_stage(words: list[str]) -> Stage:
    match words:
        case [name, kind, *rest] if name.endswith(":") and len(rest) % 2 == 0:
            numbers = dict(zip(rest[::2], map(int, rest[1::2]), strict=True))
            if numbers.keys() <= {"every", "parts", "migrates"}:
                return Stage(name[:-1], Kind(kind), (), **numbers)
    raise ValueError("expected 'stage NAME: KIND [every N] [parts N] [migrates N]'")


def _parse_op(words: list[str]) -> Op:
    name, rest = words[0], words[1:]
    if len(rest) % 2:
        raise ValueError("expected 'op NAME scope SCOPE [needs DATA,…] [gives DATA,…]'")
    fields = dict(zip(rest[::2], rest[1::2], strict=True))
    unknown = set(fields) - {"scope", "needs", "gives"}
    if unknown or "scope" not in fields:
        raise ValueError("expected 'op NAME scope SCOPE [needs DATA,…] [gives DATA,…]'")
    needs, gives = (tuple(fields[key].split(",")) if key in fields else () for key in ("needs", "gives"))
    return Op(name, Scope[fields["scope"].upper()], needs, gives)


def _parse_edge(words: list[str]) -> Edge:
    match words:
        case [src, "->", dst, data, *rest]:
            pass
        case _:
            raise ValueError("expected 'edge SRC -> DST DATA [delay N] [chunk N UNIT] [initial NAME] …'")
    delay, chunk, initial = 0, None, None
    freshness, on_new_weights = Freshness.EXACT, OnNewWeights.DRAIN
    tokens = iter(rest)
    for word in tokens:
        if word == "delay":
            delay = int(next(tokens))
        elif word == "chunk":
            chunk = Chunk(int(next(tokens)), Unit(next(tokens)))
        elif word == "initial":
            initial = next(tokens)
        elif word in tuple(Freshness):
            freshness = Freshness(word)
        elif word in tuple(OnNewWeights):
            on_new_weights = OnNewWeights(word)
        else:
            raise ValueError(f"'{word}' is no attribute of an edge")
    return Edge(src, dst, data, delay, chunk, initial, freshness, on_new_weights)
