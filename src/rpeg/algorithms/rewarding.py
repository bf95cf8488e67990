"""A reward model in an algorithm's graph: a forward over the responses before they are rewarded."""

from __future__ import annotations

from dataclasses import replace

from rpeg.ir import Call, Edge, Graph, Kind, Model, Op, Scope, Stage, verify

REWARD = Model("reward", "reward", trainable=False, heads=("reward",))
SCORES = "model_"
"""Before the name of the rewards that scores of the model enter into."""


def with_reward_model(graph: Graph) -> Graph:
    """Each host stage that verifies responses gets the scores of a frozen model `reward`, from a stage of their own.

    Stage `reward_model` needs the responses and gives one number each, `model_rewards`; `reward` goes on to
    add up, as the job's weights say. GraphError where no stage verifies.
    """
    stages, edges = list(graph.stages), list(graph.edges)
    for stage in graph.stages:
        verifies = [op for op in stage.ops if op.name == "verify" and op.gives]
        if stage.kind is not Kind.HOST or not verifies:
            continue
        scoring, verifying = _scoring(stage, verifies[0]), _verifying(stage)
        at = stages.index(stage)
        stages[at : at + 1] = [scoring, verifying]
        brings = [edge for edge in graph.data_into(stage.name) if edge.data in scoring.needs]
        edges += [replace(edge, dst=scoring.name) for edge in brings]
        edges += [Edge(scoring.name, stage.name, datum) for datum in sorted(scoring.gives)]
    return verify(Graph(graph.name, (*graph.models, REWARD), tuple(stages), tuple(edges)))


def _scoring(stage: Stage, verifies: Op) -> Stage:
    op = Op("score", Scope.SAMPLE, verifies.needs, tuple(f"{SCORES}{datum}" for datum in verifies.gives))
    return Stage(f"{stage.name}_model", Kind.INFERENCE, (Call(REWARD.name, (op,)),))


def _verifying(stage: Stage) -> Stage:
    calls = [
        replace(call, ops=tuple(_with_scores(op) if op.name == "verify" else op for op in call.ops))
        for call in stage.calls
    ]
    return replace(stage, calls=tuple(calls))


def _with_scores(op: Op) -> Op:
    return replace(op, needs=(*op.needs, *(f"{SCORES}{datum}" for datum in op.gives)))
