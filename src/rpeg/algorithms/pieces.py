"""Pieces that the graphs of algorithms are put together from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rpeg.algorithms.hyper import GroupHyper, PolicyHyper, RewardKlHyper
from rpeg.errors import GraphError
from rpeg.ir import (
    KEPT,
    POSITION,
    RETRY,
    WEIGHTS,
    Call,
    Edge,
    Graph,
    Kind,
    Model,
    Op,
    Scope,
    Stage,
    verify,
)

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


def host(name: str, ops: Sequence[Op]) -> Stage:
    return Stage(name, Kind.HOST, (Call(None, tuple(ops)),))


SELECT = Op(
    "select",
    Scope.GROUP,
    ("candidates", "candidate_rewards"),
    ("rollouts", "behaviour_logprobs", "rewards", POSITION, RETRY),
)
SELECTED = (
    host("prompts", [Op("read_prompts", Scope.BATCH, (POSITION,), ("prompts",))]),
    Stage(
        "generate",
        Kind.GENERATE,
        (Call("actor", (Op("sample", Scope.SAMPLE, ("prompts",), ("candidates",)),)),),
    ),
    host("reward", [Op("verify", Scope.SAMPLE, ("candidates",), ("candidate_rewards",))]),
    host("select", [SELECT]),
)
"""Dynamic sampling: what is generated are candidates, and `select` gives those that a step is trained on."""


def assessment(name: str, model: str, op: str, *gives: str) -> Stage:
    """One forward of `model` over the responses: `op` is logprob or value."""
    return Stage(name, Kind.INFERENCE, (Call(model, (Op(op, Scope.TOKEN, ("rollouts",), gives),)),))


def trainer(name: str, model: str, loss_op: str, needs: Sequence[str]) -> Stage:
    """Updates `model` by a loss of the responses and of `needs`."""
    op = Op(loss_op, Scope.MINIBATCH, ("rollouts", *needs))
    return Stage(name, Kind.TRAIN, (Call(model, (op,)),))


def correction_ops(hyper: PolicyHyper) -> list[Op]:
    """What is done first about responses of another policy, and about cut ones: nothing by default."""
    ops = []
    both = ("old_logprobs", "behaviour_logprobs")
    if hyper.uses_loss_mask:
        needs = ("rollouts", *(both if hyper.reject != "none" else ()))
        ops.append(Op("loss_mask", Scope.SAMPLE, needs, ("loss_mask",)))
    if hyper.importance != "none":
        scope = Scope.BATCH if hyper.importance_normalize else Scope.SAMPLE
        ops.append(Op("importance", scope, (*both, *_mask(hyper)), ("importance_weights",)))
    return ops


def kl_penalty_op(hyper: RewardKlHyper, rewards: str = "rewards") -> Op:
    """Rewards at tokens; an adaptive coefficient looks at the whole batch."""
    needs = ("old_logprobs", "ref_logprobs") if hyper.kl_place == "reward" else ()
    scope = Scope.BATCH if hyper.kl_target is not None else Scope.SAMPLE
    return Op("kl_penalty", scope, (rewards, *needs), ("token_rewards",))


def values(hyper: PolicyHyper) -> tuple[str, ...]:
    """What a critic gives: the value before each token, and after the last where cut responses go on from there."""
    return ("values", "final_values") if hyper.truncated == "bootstrap" else ("values",)


def whiten_op(hyper: PolicyHyper) -> Op:
    return Op("whiten", Scope.BATCH, ("advantages", *_mask(hyper)), ("advantages",))


def policy_step(
    name: str,
    hyper: PolicyHyper,
    ops: Sequence[Op],
    loss_op: str,
    *,
    value_loss_op: str = "",
    sources: Sequence[Stage] = (),
    needs_old: bool = True,
) -> Graph:
    """One step: responses, their assessment by verifier, reference, actor and critic, advantages, updates.

    ops: the column operations after those of `correction_ops`. value_loss_op: with it, a critic. sources: further
    stages that feed the ops. needs_old: whether the loss compares with the policy that the step began with.
    """
    ops = [*correction_ops(hyper), *ops]
    old = needs_old or any("old_logprobs" in op.needs for op in ops)
    weights = ("importance_weights",) if hyper.importance != "none" else ()
    reference = ("ref_logprobs",) if hyper.kl_place == "loss" else ()
    ratio = ("old_logprobs",) if needs_old else ()
    selects = isinstance(hyper, GroupHyper) and hyper.dynamic_sampling
    stages = [*(SELECTED if selects else (PROMPTS, GENERATE, REWARD)), *sources]
    if hyper.uses_reference:
        stages.append(assessment("reference", "reference", "logprob", "ref_logprobs"))
    if old:
        stages.append(assessment("old_logprob", "actor", "logprob", "old_logprobs"))
    if value_loss_op:
        stages.append(assessment("value", "critic", "value", *values(hyper)))
    stages.append(host("advantage", ops))
    needs = (*ratio, "advantages", *reference, *weights, *_mask(hyper))
    stages.append(trainer("train_actor", "actor", loss_op, needs))
    if value_loss_op:
        needs = ("values", "returns", *_mask(hyper))
        stages.append(trainer("train_critic", "critic", value_loss_op, needs))
    used = {model for stage in stages for model in stage.models}
    return connect(name, [model for model in (ACTOR, CRITIC, REFERENCE) if model.name in used], stages)


def _mask(hyper: PolicyHyper) -> tuple[str, ...]:
    return ("loss_mask",) if hyper.uses_loss_mask else ()


def connect(name: str, models: Sequence[Model], stages: Sequence[Stage]) -> Graph:
    """The graph in which every need is met by the stage that gives it, and every model by the stage that trains it.

    Weights edges are synchronous (delay 1): a stage uses the version that the step before has published.
    """
    givers = {datum: stage.name for stage in stages for datum in stage.gives}
    trainers = {model: stage.name for stage in stages if stage.kind is Kind.TRAIN for model in stage.models}
    edges = [_data_edge(givers[datum], s.name, datum) for s in stages for datum in sorted(s.needs)]
    edges += [Edge(s.name, stages[0].name, RETRY) for s in stages if RETRY in s.gives]
    edges += [
        Edge(trainers[model], s.name, f"{WEIGHTS}{model}", delay=1, initial=INITIAL)
        for s in stages
        for model in s.models
        if model in trainers
    ]
    return verify(Graph(name, tuple(models), tuple(stages), tuple(edges)))


def _data_edge(src: str, dst: str, datum: str) -> Edge:
    return Edge(src, dst, datum, 1, initial="first") if datum == POSITION else Edge(src, dst, datum)


def with_carry_over(graph: Graph) -> Graph:
    """Accepted groups beyond a step's quota are the first of the next step's. GraphError where nothing selects."""
    selector = graph.selector
    if selector is None:
        raise GraphError(f"graph {graph.name} selects nothing that could be left over")
    ops = tuple(
        replace(op, needs=(*op.needs, KEPT), gives=(*op.gives, KEPT)) if op.name == "select" else op
        for op in selector.ops
    )
    keeping = replace(selector, calls=(Call(None, ops),))
    stages = tuple(keeping if stage == selector else stage for stage in graph.stages)
    edge = Edge(selector.name, selector.name, KEPT, delay=1, initial="none")
    return verify(replace(graph, stages=stages, edges=(*graph.edges, edge)))


def with_evaluation(graph: Graph, every: int) -> Graph:
    """Adds a stage that answers held-out prompts every n steps, and once more after the last."""
    ops = (Op("sample", Scope.SAMPLE), Op("verify", Scope.SAMPLE))
    stage = Stage("evaluate", Kind.GENERATE, (Call("actor", ops),), every=every)
    train = graph.trainer("actor")
    assert train is not None
    edge = Edge(train.name, stage.name, f"{WEIGHTS}actor", delay=1, initial=INITIAL)
    return verify(Graph(graph.name, graph.models, (*graph.stages, stage), (*graph.edges, edge)))
