"""Pieces that the graphs of algorithms are put together from."""

from __future__ import annotations

from collections.abc import Sequence

from rpeg.ir import WEIGHTS, Call, Edge, Graph, Kind, Model, Op, Scope, Stage, verify

INITIAL = "checkpoint"
"""What a weights edge carries before the first update: the weights that the job begins with."""

ACTOR = Model("actor", "actor", trainable=True, heads=("lm",))
CRITIC = Model("critic", "critic", trainable=True, heads=("value",))
REFERENCE = Model("reference", "reference", trainable=False, heads=("lm",))

PROMPTS = Stage("prompts", Kind.HOST, (Call(None, (Op("read_prompts", Scope.BATCH, (), ("prompts",)),)),))
GENERATE = Stage(
    "generate",
    Kind.GENERATE,
    (Call("actor", (Op("sample", Scope.SAMPLE, ("prompts",), ("rollouts", "behaviour_logprobs")),)),),
)
REWARD = Stage("reward", Kind.HOST, (Call(None, (Op("verify", Scope.SAMPLE, ("rollouts",), ("rewards",)),)),))


def assessment(name: str, model: str, op: str, gives: str) -> Stage:
    """One forward of `model` over the responses: `op` is logprob or value."""
    return Stage(name, Kind.INFERENCE, (Call(model, (Op(op, Scope.TOKEN, ("rollouts",), (gives,)),)),))


def host(name: str, ops: Sequence[Op]) -> Stage:
    return Stage(name, Kind.HOST, (Call(None, tuple(ops)),))


def trainer(name: str, model: str, loss_op: str, needs: Sequence[str]) -> Stage:
    """Updates `model` by a loss of the responses and of `needs`."""
    op = Op(loss_op, Scope.MINIBATCH, ("rollouts", *needs))
    return Stage(name, Kind.TRAIN, (Call(model, (op,)),))


def connect(name: str, models: Sequence[Model], stages: Sequence[Stage]) -> Graph:
    """The graph in which every need is met by the stage that gives it, and every model by the stage that trains it.

    Weights edges are synchronous (delay 1): a stage uses the version that the step before has published.
    """
    givers = {datum: stage.name for stage in stages for datum in stage.gives}
    trainers = {model: stage.name for stage in stages if stage.kind is Kind.TRAIN for model in stage.models}
    edges = [Edge(givers[datum], s.name, datum) for s in stages for datum in sorted(s.needs)]
    edges += [
        Edge(trainers[model], s.name, f"{WEIGHTS}{model}", delay=1, initial=INITIAL)
        for s in stages
        for model in s.models
        if model in trainers
    ]
    return verify(Graph(name, tuple(models), tuple(stages), tuple(edges)))


def with_evaluation(graph: Graph, every: int) -> Graph:
    """Adds a stage that answers held-out prompts every n steps, and once more after the last."""
    ops = (Op("sample", Scope.SAMPLE), Op("verify", Scope.SAMPLE))
    stage = Stage("evaluate", Kind.GENERATE, (Call("actor", ops),), every=every)
    train = graph.trainer("actor")
    assert train is not None
    edge = Edge(train.name, stage.name, f"{WEIGHTS}actor", delay=1, initial=INITIAL)
    return verify(Graph(graph.name, graph.models, (*graph.stages, stage), (*graph.edges, edge)))
