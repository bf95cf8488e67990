"""The rules that every graph obeys, as a list of small named functions.

`verify(graph)` runs them all; a transform's result passes them too. Each rule yields one sentence a violation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from rpeg.errors import GraphError, nearest
from rpeg.ir.edge import STATE, Freshness, OnNewWeights
from rpeg.ir.graph import Graph
from rpeg.ir.model import HEADS
from rpeg.ir.stage import Kind
from rpeg.ir.streams import STREAMS

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


def freshness_fits_interruption(graph: Graph) -> Iterator[str]:
    for edge in graph.edges:
        if edge.freshness is Freshness.EXACT and edge.on_new_weights is not OnNewWeights.DRAIN:
            yield f"edge {edge.name}: exact freshness requires drain, not {edge.on_new_weights}"


def rare_stages_feed_none_within_a_step(graph: Graph) -> Iterator[str]:
    every = {s.name: max(1, s.every) for s in graph.stages}  # below 1 is another rule's
    for edge in graph.edges:
        if edge.delay == 0 and every.get(edge.dst, 1) % every.get(edge.src, 1):
            yield f"edge {edge.name}: {edge.src} fires every {every[edge.src]} steps, {edge.dst} every {every[edge.dst]}"


def interrupted_stages_go_on_in_the_next_step(graph: Graph) -> Iterator[str]:
    """What is interrupted is begun of the next step, whose prompts are known, and goes on in its one item."""
    for edge in graph.edges:
        stage = next((s for s in graph.stages if s.name == edge.dst), None)
        if edge.on_new_weights is OnNewWeights.DRAIN or stage is None:
            continue
        where = f"edge {edge.name} is {edge.on_new_weights}, and {stage.name}"
        if stage.kind is not Kind.GENERATE or edge.model is None or stage.name in graph.observers():
            yield f"{where} generates nothing to train on with it"
        if stage.parts > 1 or stage.name in graph.rounds:
            yield f"{where} works in parts or rounds; choose one"
        if any(op.name == "sample_greedy" for op in stage.ops):
            yield f"{where} is greedy: its responses are for several samples at once"


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
    *STREAMS,
    freshness_fits_interruption,
    interrupted_stages_go_on_in_the_next_step,
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
