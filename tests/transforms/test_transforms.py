"""Transforms: what they change, what they refuse, how they print."""

from __future__ import annotations

import pytest

from rpeg.algorithms import dapo
from rpeg.errors import GraphError
from rpeg.ir import Chunk, Freshness, Graph, OnNewWeights, Unit
from rpeg.transforms import Changes, Transform, parse, parse_all, transforms
from samples_of_plans import grpo, ppo


@pytest.mark.parametrize("graph", [ppo(), ppo(evaluate_every=2), grpo()], ids=["ppo", "ppo+eval", "grpo"])
def test_candidates_apply_and_print_so_that_they_are_read_back(graph: Graph) -> None:
    for kind in transforms().values():
        for transform in kind.candidates(graph):
            assert transform.apply(graph) != graph
            assert parse(str(transform)) == transform


def test_bounded_asynchrony_raises_the_delay_of_one_consumer() -> None:
    graph = parse("async{stage=generate,staleness=2,freshness=latest}").apply(ppo(evaluate_every=2))
    into = {edge.dst: edge for edge in graph.edges if edge.model == "actor"}
    assert (into["generate"].delay, into["generate"].freshness) == (3, Freshness.LATEST)
    assert {into[name].delay for name in ("old_logprobs", "train_actor", "evaluate")} == {1}


def test_generation_ahead_is_of_the_newest_weights_and_kept_by_asynchrony() -> None:
    ahead = parse("ahead{stage=generate,how=keep_kv}")
    later = parse("async{stage=generate,staleness=2,freshness=latest}")
    for first, second in ((ahead, later), (later, ahead)):
        (edge,) = second.apply(first.apply(ppo())).weights_into("generate")
        assert (edge.delay, edge.freshness, edge.on_new_weights) == (
            3,
            Freshness.LATEST,
            OnNewWeights.KEEP_KV,
        )
    assert (ahead.key, parse("ahead").key) == ("keep_kv", "staleness")
    with pytest.raises(GraphError, match="works in parts or rounds"):
        parse("split{stage=generate,parts=2}").apply(ahead.apply(ppo()))
    with pytest.raises(GraphError, match="exact freshness requires drain"):
        parse("async{stage=generate,staleness=1,freshness=exact}").apply(ahead.apply(ppo()))


def test_streaming_reaches_the_stages_that_can_work_on_a_sample() -> None:
    graph = parse("stream{chunk=4}").apply(ppo())
    chunked = {edge.dst for edge in graph.edges if edge.chunk == Chunk(4, Unit.SAMPLE)}
    assert chunked == {"reward", "reference", "old_logprobs", "values"}


def test_streaming_by_group_reaches_group_statistics() -> None:
    graph = parse("stream{chunk=1,unit=group}").apply(grpo())
    chunked = {edge.dst for edge in graph.edges if edge.chunk is not None}
    assert chunked == {"reward", "reference", "old_logprobs", "advantages"}


def test_each_transform_says_what_it_changes_and_who_permits_it() -> None:
    assert {name: (kind.changes, kind.permission) for name, kind in transforms().items()} == {
        "ahead": (Changes.STALENESS, "staleness"),
        "async": (Changes.STALENESS, "staleness"),
        "bypass": (Changes.MODEL, "behaviour_logprobs"),
        "fuse": (Changes.SCHEDULE, ""),
        "migrate": (Changes.SCHEDULE, ""),
        "prune": (Changes.SCHEDULE, ""),
        "share": (Changes.MODEL, "actor_critic_sharing"),
        "split": (Changes.SCHEDULE, ""),
        "stream": (Changes.SCHEDULE, ""),
    }


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("asinc", "Did you mean 'async'"),
        ("async{stalenes=1}", "Did you mean 'staleness'"),
        ("async{staleness=one}", "no whole number"),
        ("stream", "needs the arguments chunk"),
    ],
)
def test_text_that_names_no_transform_is_refused(source: str, words: str) -> None:
    with pytest.raises(GraphError, match=words):
        parse(source)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("ahead{how=drain}", "'drain' is no way to go on"),
        ("ahead{stage=reference}", "reference has no weights that change"),
        ("ahead{stage=old_logprobs}", "old_logprobs generates nothing to train on"),
        ("async{staleness=0}", "asynchrony begins at 1"),
        ("async{freshness=newest}", "freshness 'newest' is unknown"),
        ("async{stage=train_actor}", "only generation and assessment"),
        ("async{stage=reference}", "no weights edge"),
        ("stream{chunk=0}", "at least 1"),
        ("stream{chunk=1,unit=token}", "unknown"),
        ("fuse{a=reward,b=values}", "two assessments or two trainers"),
        ("fuse{a=values,b=values}", "a stage is one already"),
        ("split{stage=values,parts=1}", "splitting begins at 2"),
        ("split{stage=advantages,parts=2}", "must see a whole batch"),
        ("split{stage=train_actor,parts=2}", "training takes minibatches"),
        ("prune{stage=reference}", "advantages needs reference"),
        ("prune{stage=old_logprobs}", "advantages, train_actor needs old_logprobs"),
        ("prune{stage=train_actor}", "no trainer could give"),
        ("share{actor=critic,critic=actor}", "a trained model that generates"),
        ("share{actor=actor,critic=reference}", "reference lm"),
        ("bypass{stage=old_logprobs}", "under which a generator gives behaviour_logprobs"),
    ],
)
def test_a_transform_that_does_not_apply_says_why(source: str, words: str) -> None:
    with pytest.raises(GraphError, match=words):
        parse(source).apply(ppo())


@pytest.mark.parametrize("source", ["ahead", "async{staleness=1}", "stream{chunk=2}"])
def test_nothing_is_applied_twice(source: str) -> None:
    transform: Transform = parse(source)
    with pytest.raises(GraphError):
        transform.apply(transform.apply(ppo()))


def test_all_transforms_of_a_plan_are_read_together() -> None:
    applied = ("async{stage=generate,staleness=2,freshness=exact}", "stream{chunk=4,unit=sample}")
    assert tuple(map(str, parse_all(applied))) == applied
    with pytest.raises(GraphError, match="there is no transform 'strem'"):
        parse_all((applied[0], "strem{chunk=4}"))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("async{stage=generate,staleness=-9}", "staleness -9"),
        ("async{stage=generate,freshness=newest}", "freshness 'newest' is unknown"),
        ("stream{chunk=0}", "parts of 0"),
        ("stream{chunk=4,unit=minibatc}", "Did you mean 'minibatch'"),
    ],
)
def test_values_that_no_graph_could_take_are_refused_when_read(source: str, words: str) -> None:
    with pytest.raises(GraphError, match=words):
        parse(source)


def test_a_graph_that_works_in_rounds_keeps_them() -> None:
    """Nothing of it streams or is split; asynchrony and the generator's own log-probabilities it can have."""
    graph = dapo.graph(dapo.Hyper())
    applicable = [t for kind in transforms().values() for t in kind.candidates(graph)]
    assert {t.name for t in applicable} == {"async", "bypass", "prune"}
    for transform in applicable:
        assert transform.apply(graph).rounds == graph.rounds
    passed_on = parse("bypass{stage=old_logprob}").apply(graph)
    assert passed_on.selector is not None
    assert "old_logprobs" in passed_on.selector.gives
