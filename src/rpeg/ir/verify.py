"""The rules that every graph obeys, as a list of small named functions.

`verify(graph)` runs them all; a transform's result passes them too. Each rule yields one sentence a violation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from rpeg.errors import GraphError, nearest
from rpeg.ir.edge import STATE, Freshness, OnNewWeights, Unit
from rpeg.ir.graph import Graph
from rpeg.ir.model import HEADS
from rpeg.ir.stage import Kind, Scope

Rule = Callable[[Graph], Iterator[str]]


def names_are_unique(graph: Graph) -> Iterator[str]:
    for what, names in (
        ("model", [m.name for m in graph.models]),
        ("stage", [s.name for s in graph.stages]),
        ("edge", [e.name for e in graph.edges]),
    ):
        yield from (f"{what} '{name}' occurs {n} times" for name, n in Counter(names).items() if n > 1)


def edges_join_stages(graph: Graph) -> Iterator[str]:
    known = [s.name for s in graph.stages]
    for edge in graph.edges:
        for end in (edge.src, edge.dst):
            if end not in known:
                yield f"edge {edge.name} names the unknown stage '{end}'. {nearest(end, known)}"


def models_are_declared(graph: Graph) -> Iterator[str]:
    known = {m.name for m in graph.models}
    used = {name for s in graph.stages for name in s.models}
    for stage in graph.stages:
        for name in stage.models:
            if name not in known:
                yield f"stage {stage.name} calls the unknown model '{name}'. {nearest(name, known)}"
    yield from (f"model {name} is declared and never called" for name in sorted(known - used))
    for model in graph.models:
        for head in model.heads:
            if head not in HEADS:
                yield f"model {model.name} has the unknown head '{head}'. {nearest(head, HEADS)}"


def kinds_fit_calls(graph: Graph) -> Iterator[str]:
    for stage in graph.stages:
        if not stage.calls:
            yield f"stage {stage.name} makes no call"
        if stage.kind is Kind.HOST and stage.models:
            yield f"stage {stage.name} runs on the host and cannot call model {stage.models[0]}"
        if stage.kind not in (Kind.HOST, Kind.UPDATE) and not stage.models:
            yield f"stage {stage.name} is {stage.kind} and calls no model"
        if stage.kind is Kind.TRAIN and stage.every > 1:
            yield f"stage {stage.name} trains every {stage.every} steps; each step publishes a version, so it must be 1"
        if stage.every < 1:
            yield f"stage {stage.name} fires every {stage.every} steps; it must be at least 1"


def training_is_of_trainable_models(graph: Graph) -> Iterator[str]:
    trainable = {m.name: m.trainable for m in graph.models}
    trained = Counter(name for s in graph.stages if s.kind is Kind.TRAIN for name in s.models)
    for name, count in trained.items():
        if not trainable.get(name, True):
            yield f"model {name} is frozen and yet trained"
        if count > 1:
            yield f"model {name} is trained by {count} stages; one publishes its versions"
    for name, is_trainable in trainable.items():
        if is_trainable and not trained[name]:
            yield f"model {name} is trainable and no stage trains it"


def trainable_models_are_fed(graph: Graph) -> Iterator[str]:
    """Whoever calls a trainable model says which version it may use."""
    for stage in graph.stages:
        fed = {edge.model for edge in graph.weights_into(stage.name)}
        for name in stage.models:
            trainer = graph.trainer(name)
            if trainer is not None and name not in fed:
                yield f"stage {stage.name} calls {name} without an edge weights:{name} from {trainer.name}"


def weights_come_from_their_trainer(graph: Graph) -> Iterator[str]:
    for edge in graph.edges:
        if edge.model is None:
            continue
        trainer = graph.trainer(edge.model)
        if trainer is None or trainer.name != edge.src:
            source = trainer.name if trainer else "no stage"
            yield f"edge {edge.name}: {edge.model} is trained by {source}, not by {edge.src}"
        if any(s.name == edge.dst and edge.model not in s.models for s in graph.stages):
            yield f"edge {edge.name}: stage {edge.dst} does not call {edge.model}"


def delays_are_of_state(graph: Graph) -> Iterator[str]:
    for edge in graph.edges:
        if edge.data in STATE and edge.delay != 1:
            yield f"edge {edge.name} has delay {edge.delay}; what a step leaves is the next one's: 1"
        elif edge.model is None and edge.data not in STATE and edge.delay != 0:
            yield f"edge {edge.name} carries data over {edge.delay} steps; only state has a delay"
        if edge.model is not None and edge.delay < 1:
            yield f"edge {edge.name} has delay {edge.delay}; weights of a step are published at its end: at least 1"
        if edge.delay >= 1 and not edge.initial:
            yield f"edge {edge.name} has delay {edge.delay} and names no initial value"
        if edge.src == edge.dst and edge.delay != 1:
            yield f"edge {edge.name}: a trainer continues from its own last version, so its delay is 1, not {edge.delay}"


def cycles_have_delay(graph: Graph) -> Iterator[str]:
    known = {s.name for s in graph.stages}
    if any(not {edge.src, edge.dst} <= known for edge in graph.edges):
        return  # another rule names the edge; what waits for a stage that is not there is in no cycle
    try:
        graph.order()
    except GraphError as error:
        yield str(error).removeprefix(f"graph {graph.name}: ")


def data_are_given_once(graph: Graph) -> Iterator[str]:
    givers = Counter(datum for s in graph.stages for datum in s.gives)
    yield from (f"{datum} is given by {n} stages; one must" for datum, n in givers.items() if n > 1)
    for edge in graph.edges:
        if edge.model is not None:
            continue
        for stage in graph.stages:
            if stage.name == edge.src and edge.data not in stage.gives:
                yield f"edge {edge.name}: {edge.src} gives {', '.join(sorted(stage.gives)) or 'nothing'}"


def needs_are_met(graph: Graph) -> Iterator[str]:
    for stage in graph.stages:
        arriving = {edge.data for edge in graph.data_into(stage.name)}
        yield from (
            f"stage {stage.name} needs {d} and no edge brings it" for d in sorted(stage.needs - arriving)
        )
        yield from (
            f"stage {stage.name} is brought {d} and needs it not" for d in sorted(arriving - stage.needs)
        )


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
    if any(cycles_have_delay(graph)) or any(edges_join_stages(graph)):
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


def selection_is_bounded(graph: Graph) -> Iterator[str]:
    """One stage selects; all that it looks at begins in one stage, which its retry leads back to, and goes nowhere else.

    Rounds are the parts of such a step: nothing of it streams or is split.
    """
    retries = [edge for edge in graph.edges if edge.is_control]
    if not retries or any(cycles_have_delay(graph)) or any(edges_join_stages(graph)):
        return
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


def freshness_fits_interruption(graph: Graph) -> Iterator[str]:
    for edge in graph.edges:
        if edge.freshness is Freshness.EXACT and edge.on_new_weights is not OnNewWeights.DRAIN:
            yield f"edge {edge.name}: exact freshness requires drain, not {edge.on_new_weights}"


def rare_stages_feed_none_within_a_step(graph: Graph) -> Iterator[str]:
    every = {s.name: max(1, s.every) for s in graph.stages}  # below 1 is another rule's
    for edge in graph.edges:
        if edge.delay == 0 and every.get(edge.dst, 1) % every.get(edge.src, 1):
            yield f"edge {edge.name}: {edge.src} fires every {every[edge.src]} steps, {edge.dst} every {every[edge.dst]}"


RULES: tuple[Rule, ...] = (
    names_are_unique,
    edges_join_stages,
    models_are_declared,
    kinds_fit_calls,
    training_is_of_trainable_models,
    trainable_models_are_fed,
    weights_come_from_their_trainer,
    delays_are_of_state,
    cycles_have_delay,
    data_are_given_once,
    needs_are_met,
    chunks_cover_scopes,
    chunks_agree,
    streams_begin_at_generation,
    streams_have_one_source,
    splits_keep_groups_whole,
    selection_is_bounded,
    freshness_fits_interruption,
    rare_stages_feed_none_within_a_step,
)


def violations(graph: Graph) -> tuple[tuple[str, str], ...]:
    """(rule name, sentence) of everything that is wrong; empty for a sound graph."""
    return tuple((rule.__name__, sentence) for rule in RULES for sentence in rule(graph))


def verify(graph: Graph) -> Graph:
    """The graph itself, if it is sound. Raises GraphError listing every violation with its rule's name."""
    found = violations(graph)
    if found:
        lines = "".join(f"\n  {rule}: {sentence}" for rule, sentence in found)
        raise GraphError(
            f"graph {graph.name} breaks {len(found)} rule{'s' if len(found) > 1 else ''}:{lines}"
        )
    return graph
