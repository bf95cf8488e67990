"""The rules of graphs about parts: chunks, splits and rounds. See `verify`."""

from __future__ import annotations

from collections.abc import Iterator

from rpeg.ir.edge import Freshness, Unit
from rpeg.ir.graph import Graph
from rpeg.ir.stage import Kind, Scope


def chunks_cover_scopes(graph: Graph) -> Iterator[str]:
    for edge in graph.edges:
        if edge.chunk is None:
            continue
        if edge.model is not None:
            yield f"edge {edge.name}: weights are published whole, not in chunks"
        if edge.chunk.count < 1:
            yield f"edge {edge.name} has chunks of {edge.chunk.count}; at least 1"
        for stage in graph.stages:
            if stage.name == edge.dst and edge.chunk.unit is Unit.MINIBATCH and stage.kind is not Kind.TRAIN:
                what = f"{stage.name}, which is {stage.kind}; only training takes them"
                yield f"edge {edge.name} brings minibatches to {what}"
            if stage.name == edge.dst and stage.scope > edge.chunk.unit.covers:
                worst = max(stage.ops, key=lambda op: op.scope)
                yield (
                    f"edge {edge.name} brings parts of a {edge.chunk.unit} but {stage.name} must see a whole "
                    f"{Scope(worst.scope).name.lower()} ({worst.name})"
                )


def chunks_agree(graph: Graph) -> Iterator[str]:
    """A stage takes its data in one unit, and parts are inherited: they only ever merge downstream."""
    for stage in graph.stages:
        chunks = {edge.chunk for edge in graph.data_into(stage.name)}
        if len(chunks) > 1:
            yield f"the edges into {stage.name} bring parts of different sizes; they must agree"
        inherited = next(iter(chunks), None)
        for edge in graph.out_of(stage.name):
            if edge.chunk is None or inherited is None or edge.model is not None:
                continue
            if edge.chunk.unit is Unit.MINIBATCH:
                continue  # drawn from the whole step: its members wait for whichever parts hold them
            if edge.chunk.unit is not inherited.unit or edge.chunk.count % inherited.count:
                yield (
                    f"edge {edge.name} has chunks of {edge.chunk.count} {edge.chunk.unit} but {stage.name} takes "
                    f"{inherited.count} {inherited.unit}; parts can only be merged in whole multiples"
                )


def streams_begin_at_generation(graph: Graph) -> Iterator[str]:
    for edge in graph.edges:
        source = next((s for s in graph.stages if s.name == edge.src), None)
        if edge.chunk is None or source is None or source.kind is Kind.GENERATE:
            continue
        if edge.chunk.unit is Unit.MINIBATCH:
            continue
        if any(e.chunk is None for e in graph.data_into(source.name)) or not graph.data_into(source.name):
            yield f"edge {edge.name} has chunks but {source.name} takes the whole batch: it has no parts to pass on"


def streams_have_one_source(graph: Graph) -> Iterator[str]:
    """Two generators complete their samples in different orders: their parts are not of the same samples."""
    if not graph.is_ordered:
        return  # other rules name it
    for stage in graph.stages:
        streams = [e for e in graph.data_into(stage.name) if e.chunk and e.chunk.unit is not Unit.MINIBATCH]
        sources = graph.generators_of(stage.name)
        if streams and len(sources) > 1:
            yield f"edge {streams[0].name} brings parts, and {stage.name} joins samples of {' and '.join(sources)}"


def splits_keep_groups_whole(graph: Graph) -> Iterator[str]:
    observers = graph.observers()
    for stage in graph.stages:
        if stage.parts < 1:
            yield f"stage {stage.name} is split into {stage.parts} parts; at least 1"
        if stage.parts <= 1:
            continue
        if stage.kind not in (Kind.GENERATE, Kind.INFERENCE, Kind.HOST) or stage.name in observers:
            what = "aside from the stream of samples" if stage.name in observers else str(stage.kind)
            yield f"stage {stage.name} is split into {stage.parts} parts and is {what}; training takes minibatches"
        elif not graph.data_into(stage.name) and stage.kind is not Kind.GENERATE:
            yield f"stage {stage.name} is split into {stage.parts} parts and takes no samples"
        if stage.scope > Scope.GROUP:
            yield (
                f"stage {stage.name} is split into {stage.parts} parts but must see a whole "
                f"{Scope(stage.scope).name.lower()}"
            )
        if any(edge.chunk is not None for edge in graph.data_into(stage.name)):
            yield f"stage {stage.name} is split into {stage.parts} parts and takes a stream; choose one"


def migrated_responses_are_of_one_version(graph: Graph) -> Iterator[str]:
    """What is begun on one replica and finished on another is of the same weights."""
    for stage in graph.stages:
        if not stage.migrates:
            continue
        where = f"stage {stage.name} migrates {stage.migrates} responses"
        if stage.migrates < 0 or stage.kind is not Kind.GENERATE or stage.name in graph.observers():
            yield f"{where}; only generators of samples do, at least 1"
        if stage.parts > 1 or stage.name in graph.rounds:
            yield f"{where} and works in parts or rounds; choose one"
        if any(op.name == "sample_greedy" for op in stage.ops):
            yield f"{where} and is greedy: its responses are for several samples at once"
        for edge in graph.weights_into(stage.name):
            if edge.freshness is not Freshness.EXACT:
                yield f"{where}, and edge {edge.name} is {edge.freshness}: replicas may differ; make it exact"


def selection_is_bounded(graph: Graph) -> Iterator[str]:
    """One stage selects; all that it looks at begins in one stage, which its retry leads back to, and goes nowhere else.

    Rounds are the parts of such a step: nothing of it streams or is split.
    """
    retries = [edge for edge in graph.edges if edge.is_control]
    if not retries or not graph.is_ordered:
        return  # other rules name it
    if len(retries) > 1:
        yield f"edges {' and '.join(e.name for e in retries)} ask for further rounds; one stage selects"
        return
    retry, selector = retries[0], graph.stage(retries[0].src)
    if not any(op.name == "select" for op in selector.ops) or selector.kind is not Kind.HOST:
        yield f"edge {retry.name}: {selector.name} is no host stage with the op select"
    roots = sorted(
        n for n in graph.rounds if not any(e.delay == 0 for e in graph.data_into(n)) and n != selector.name
    )
    if roots != [retry.dst]:
        yield f"edge {retry.name} must lead to where its rounds begin: {', '.join(roots) or 'nowhere'}"
    for edge in graph.edges:
        if edge.src in graph.rounds and edge.src != selector.name and edge.dst not in graph.rounds:
            yield f"edge {edge.name} takes what {selector.name} may yet reject; take what {selector.name} gives"
        if edge.chunk is not None:
            yield f"edge {edge.name} has chunks, and {graph.name} works in rounds: take the whole of each"
    for stage in graph.stages:
        if stage.parts > 1:
            yield f"stage {stage.name} is split, and {graph.name} works in rounds: leave it whole"
        if stage.name in graph.rounds and stage.every > 1:
            yield f"stage {stage.name} fires every {stage.every} steps and works in rounds of each; it must be 1"


STREAMS = (
    chunks_cover_scopes,
    chunks_agree,
    streams_begin_at_generation,
    streams_have_one_source,
    splits_keep_groups_whole,
    migrated_responses_are_of_one_version,
    selection_is_bounded,
)
