"""Every rule of the graph verifier, broken on a graph that is otherwise sound."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from rpeg.algorithms import dapo
from rpeg.errors import GraphError
from rpeg.ir import (
    RULES,
    Call,
    Chunk,
    Edge,
    Freshness,
    Graph,
    Kind,
    Model,
    OnNewWeights,
    Op,
    Scope,
    Stage,
    Unit,
    verify,
    violations,
)
from samples_of_plans import grpo, ppo, remax

SAMPLE = Chunk(2, Unit.SAMPLE)


def _edges(graph: Graph, where: Callable[[Edge], bool], **changes: object) -> Graph:
    changed = [replace(e, **changes) if where(e) else e for e in graph.edges]  # type: ignore[arg-type]
    assert changed != list(graph.edges)
    return graph.with_edges(changed)


def _stage(graph: Graph, name: str, **changes: object) -> Graph:
    stages = (replace(s, **changes) if s.name == name else s for s in graph.stages)  # type: ignore[arg-type]
    return replace(graph, stages=tuple(stages))


def _without(graph: Graph, *names: str) -> Graph:
    return graph.with_edges(e for e in graph.edges if e.name not in names)


def _plus(graph: Graph, *edges: Edge) -> Graph:
    return graph.with_edges((*graph.edges, *edges))


PPO = ppo()
DAPO = dapo.graph(dapo.Hyper())
WEIGHTS = Edge("train_actor", "generate", "weights:actor", delay=1, initial="checkpoint")

# (the rule that must say it, the broken graph, words of the sentence)
BROKEN: tuple[tuple[str, Graph, str], ...] = (
    ("names_are_unique", _plus(PPO, PPO.edges[0]), "edge 'generate->reward:rollouts' occurs 2 times"),
    ("names_are_unique", replace(PPO, models=(*PPO.models, PPO.models[0])), "model 'actor' occurs 2 times"),
    ("edges_join_stages", _plus(PPO, Edge("generat", "reward", "rewards")), "Did you mean 'generate'?"),
    (
        "models_are_declared",
        _stage(PPO, "reference", calls=(Call("refrence", PPO.stage("reference").ops),)),
        "Did you mean 'reference'?",
    ),
    (
        "models_are_declared",
        replace(PPO, models=(*PPO.models, Model("judge", "tiny", False))),
        "never called",
    ),
    (
        "models_are_declared",
        replace(PPO, models=(replace(PPO.models[0], heads=("ln",)), *PPO.models[1:])),
        "unknown head 'ln'",
    ),
    ("kinds_fit_calls", _stage(PPO, "reward", calls=()), "makes no call"),
    (
        "kinds_fit_calls",
        _stage(PPO, "reward", calls=(Call("reference", PPO.stage("reward").ops),)),
        "runs on the host and cannot call model reference",
    ),
    (
        "kinds_fit_calls",
        _stage(PPO, "reference", calls=(Call(None, PPO.stage("reference").ops),)),
        "is inference and calls no model",
    ),
    ("kinds_fit_calls", _stage(PPO, "values", every=0), "fires every 0 steps"),
    (
        "training_is_of_trainable_models",
        replace(PPO, models=(replace(PPO.models[0], trainable=False), *PPO.models[1:])),
        "actor is frozen and yet trained",
    ),
    (
        "training_is_of_trainable_models",
        _stage(PPO, "values", kind=Kind.TRAIN),
        "critic is trained by 2 stages",
    ),
    (
        "training_is_of_trainable_models",
        replace(PPO, models=(*PPO.models[:2], replace(PPO.models[2], trainable=True))),
        "reference is trainable and no stage trains it",
    ),
    ("trainable_models_are_fed", _without(PPO, WEIGHTS.name), "generate calls actor without an edge"),
    (
        "weights_come_from_their_trainer",
        _edges(PPO, lambda e: e.name == WEIGHTS.name, src="train_critic"),
        "actor is trained by train_actor, not by train_critic",
    ),
    (
        "weights_come_from_their_trainer",
        _plus(PPO, replace(WEIGHTS, dst="reference")),
        "stage reference does not call actor",
    ),
    (
        "delays_are_of_state",
        _edges(PPO, lambda e: e.data == "rewards", delay=1, initial="x"),
        "only state has",
    ),
    ("delays_are_of_state", _edges(PPO, lambda e: e.name == WEIGHTS.name, delay=0), "at least 1"),
    ("delays_are_of_state", _edges(PPO, lambda e: e.name == WEIGHTS.name, initial=None), "no initial value"),
    (
        "delays_are_of_state",
        _edges(PPO, lambda e: e.src == e.dst == "train_actor", delay=2),
        "its delay is 1, not 2",
    ),
    ("cycles_have_delay", _plus(PPO, Edge("advantages", "reward", "advantages")), "wait for each other"),
    (
        "data_are_given_once",
        _stage(PPO, "values", calls=(Call("critic", (Op("v", Scope.SAMPLE, ("rollouts",), ("rewards",)),)),)),
        "rewards is given by 2 stages",
    ),
    (
        "data_are_given_once",
        _edges(PPO, lambda e: e.data == "rewards", src="generate"),
        "edge generate->advantages:rewards: generate gives rollouts",
    ),
    ("needs_are_met", _without(PPO, "reward->advantages:rewards"), "advantages needs rewards"),
    ("needs_are_met", _plus(PPO, Edge("reward", "values", "rewards")), "is brought rewards and needs it not"),
    (
        "chunks_cover_scopes",
        _edges(PPO, lambda e: e.name == WEIGHTS.name, chunk=SAMPLE),
        "weights are published whole",
    ),
    (
        "chunks_cover_scopes",
        _edges(PPO, lambda e: e.dst == "values" and e.data == "rollouts", chunk=Chunk(0, Unit.SAMPLE)),
        "chunks of 0",
    ),
    (
        "chunks_cover_scopes",
        _edges(grpo(), lambda e: e.dst == "advantages", chunk=SAMPLE),
        "advantages must see a whole group",
    ),
    (
        "chunks_agree",
        _edges(PPO, lambda e: e.dst == "advantages" and e.data == "rewards", chunk=SAMPLE),
        "the edges into advantages bring parts of different sizes",
    ),
    (
        "chunks_agree",
        _edges(
            _edges(grpo(), lambda e: e.dst == "reward", chunk=SAMPLE),
            lambda e: e.src == "reward",
            chunk=Chunk(3, Unit.GROUP),
        ),
        "parts can only be merged in whole multiples",
    ),
    (
        "streams_begin_at_generation",
        _edges(grpo(), lambda e: e.src == "reward", chunk=Chunk(1, Unit.GROUP)),
        "it has no parts to pass on",
    ),
    (
        "chunks_cover_scopes",
        _edges(PPO, lambda e: e.dst == "values" and e.model is None, chunk=Chunk(1, Unit.MINIBATCH)),
        "brings minibatches to values, which is inference; only training takes them",
    ),
    (
        "streams_have_one_source",
        _edges(remax(), lambda e: e.model is None and not e.src.startswith("train"), chunk=SAMPLE),
        "advantages joins samples of generate and greedy",
    ),
    ("splits_keep_groups_whole", _stage(PPO, "reward", parts=0), "reward is split into 0 parts; at least 1"),
    ("splits_keep_groups_whole", _stage(PPO, "train_actor", parts=2), "training takes minibatches"),
    (
        "splits_keep_groups_whole",
        _stage(ppo(evaluate_every=2), "evaluate", parts=2),
        "aside from the stream of samples",
    ),
    (
        "splits_keep_groups_whole",
        _stage(PPO, "advantages", parts=2),
        "advantages is split into 2 parts but must see a whole batch",
    ),
    (
        "splits_keep_groups_whole",
        _stage(_edges(PPO, lambda e: e.dst == "values" and e.model is None, chunk=SAMPLE), "values", parts=2),
        "values is split into 2 parts and takes a stream; choose one",
    ),
    (
        "migrated_responses_are_of_one_version",
        _stage(PPO, "values", migrates=2),
        "values migrates 2 responses; only generators of samples do",
    ),
    (
        "migrated_responses_are_of_one_version",
        _stage(PPO, "generate", migrates=2, parts=2),
        "works in parts or rounds; choose one",
    ),
    (
        "migrated_responses_are_of_one_version",
        _stage(remax(), "generate", migrates=-1),
        "at least 1",
    ),
    (
        "migrated_responses_are_of_one_version",
        _edges(
            _stage(PPO, "generate", migrates=2), lambda e: e.dst == "generate", freshness=Freshness.LATEST
        ),
        "replicas may differ; make it exact",
    ),
    (
        "selection_is_bounded",
        _plus(DAPO, Edge("generate", "train_actor", "candidates")),
        "takes what select may yet reject; take what select gives",
    ),
    (
        "selection_is_bounded",
        _edges(DAPO, lambda e: e.data == "retry", dst="generate"),
        "must lead to where its rounds begin: prompts",
    ),
    (
        "selection_is_bounded",
        _plus(DAPO, Edge("reward", "prompts", "retry")),
        "ask for further rounds; one stage selects",
    ),
    (
        "selection_is_bounded",
        _edges(DAPO, lambda e: e.dst == "reward", chunk=Chunk(1, Unit.GROUP)),
        "has chunks, and dapo works in rounds",
    ),
    ("selection_is_bounded", _stage(DAPO, "reward", parts=2), "reward is split, and dapo works in rounds"),
    ("selection_is_bounded", _stage(DAPO, "generate", every=2), "fires every 2 steps and works in rounds"),
    (
        "delays_are_of_state",
        _edges(DAPO, lambda e: e.data == "position", delay=2),
        "what a step leaves is the next one's: 1",
    ),
    (
        "freshness_fits_interruption",
        _edges(PPO, lambda e: e.name == WEIGHTS.name, on_new_weights=OnNewWeights.KEEP_KV),
        "exact freshness requires drain, not keep_kv",
    ),
    (
        "interrupted_stages_go_on_in_the_next_step",
        _edges(PPO, lambda e: e.dst == "old_logprobs", on_new_weights=OnNewWeights.REPREFILL),
        "old_logprobs generates nothing to train on",
    ),
    (
        "interrupted_stages_go_on_in_the_next_step",
        _edges(
            _stage(PPO, "generate", parts=2),
            lambda e: e.name == WEIGHTS.name,
            on_new_weights=OnNewWeights.KEEP_KV,
        ),
        "generate works in parts or rounds; choose one",
    ),
    (
        "rare_stages_feed_none_within_a_step",
        _stage(PPO, "values", every=2),
        "values fires every 2 steps, advantages every 1",
    ),
)


@pytest.mark.parametrize(
    ("rule", "graph", "words"), BROKEN, ids=[f"{r}-{i}" for i, (r, _, _) in enumerate(BROKEN)]
)
def test_a_broken_graph_is_refused_by_its_rule(rule: str, graph: Graph, words: str) -> None:
    sentences = [sentence for name, sentence in violations(graph) if name == rule]
    assert any(words in sentence for sentence in sentences), violations(graph)
    with pytest.raises(GraphError, match=rule):
        verify(graph)


def test_every_rule_is_tested() -> None:
    assert {rule for rule, _, _ in BROKEN} == {rule.__name__ for rule in RULES}


def test_sound_graphs_pass() -> None:
    for graph in (ppo(), ppo(evaluate_every=3), grpo()):
        assert verify(graph) is graph


def test_interruption_is_allowed_with_the_latest_weights() -> None:
    graph = _edges(
        PPO,
        lambda e: e.name == WEIGHTS.name,
        delay=2,
        freshness=Freshness.LATEST,
        on_new_weights=OnNewWeights.REPREFILL,
    )
    assert violations(graph) == ()


def test_a_needed_datum_may_come_from_an_op_before() -> None:
    ops = (Op("a", Scope.SAMPLE, ("rollouts",), ("x",)), Op("b", Scope.SAMPLE, ("x",), ("y",)))
    assert Stage("s", Kind.HOST, (Call(None, ops),)).needs == {"rollouts"}


def test_observers_are_stages_that_nothing_depends_on() -> None:
    assert ppo(evaluate_every=2).observers() == {"evaluate"}
    assert ppo().observers() == frozenset()
