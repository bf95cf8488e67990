"""A reward model in the graphs of the algorithms."""

from __future__ import annotations

import pytest

from rpeg import algorithms
from rpeg.algorithms.rewarding import with_reward_model
from rpeg.ir import Edge, Kind
from rpeg.text import parse, text
from rpeg.transforms import parse as transform


@pytest.mark.parametrize("name", algorithms.names())
def test_the_reward_model_is_an_inference_stage(name: str) -> None:
    module = algorithms.load(name)
    plain = module.graph(module.Hyper())
    graph = with_reward_model(plain)
    assert parse(text(graph)) == graph
    stage = graph.stage("reward_model")
    rewards, responses = (
        ("rewards", "rollouts") if plain.selector is None else ("candidate_rewards", "candidates")
    )
    assert (stage.kind, stage.models, stage.gives) == (Kind.INFERENCE, ("reward",), {f"model_{rewards}"})
    assert graph.stage("reward").needs == {responses, f"model_{rewards}"}
    assert Edge("reward_model", "reward", f"model_{rewards}") in graph.edges
    assert set(plain.stages) - set(graph.stages) == {
        stage for stage in plain.stages if any(op.name == "verify" for op in stage.ops)
    }


def test_it_streams_and_fuses_as_any_assessment() -> None:
    module = algorithms.load("ppo")
    graph = with_reward_model(module.graph(module.Hyper()))
    streamed = transform("stream{chunk=2,unit=sample}").apply(graph)
    assert all(edge.chunk is not None for edge in streamed.data_into("reward_model"))
    assert all(edge.chunk is not None for edge in streamed.data_into("reward"))
    fused = transform("fuse{a=reference,b=reward_model}").apply(graph)
    assert fused.stage("reference+reward_model").models == ("reference", "reward")
