"""Graphs as text, there and back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.errors import GraphError
from rpeg.ir import Graph, violations
from rpeg.text import call_text, parse, parse_call, text
from rpeg.transforms import Transform, transforms
from samples_of_plans import grpo, ppo


@st.composite
def transformed(draw: st.DrawFn) -> tuple[Graph, tuple[Transform, ...]]:
    """PPO or GRPO after a random chain of transforms that apply."""
    graph = draw(st.sampled_from((ppo(), ppo(evaluate_every=3), grpo())))
    chain: list[Transform] = []
    for _ in range(draw(st.integers(0, 4))):
        found = [t for kind in transforms().values() for t in kind.candidates(graph)]
        transform = draw(st.sampled_from(found))
        try:
            graph = transform.apply(graph)
        except GraphError:
            continue
        chain.append(transform)
    return graph, tuple(chain)


@settings(max_examples=80, deadline=None)
@given(transformed())
def test_what_is_printed_is_read_back(case: tuple[Graph, tuple[Transform, ...]]) -> None:
    graph, _ = case
    assert violations(graph) == ()
    assert parse(text(graph)) == graph
    assert text(parse(text(graph))) == text(graph)


def test_comments_and_blank_lines_are_left_out() -> None:
    source = text(ppo())
    assert parse("# PPO\n\n" + source.replace("\n", "\n\n")) == ppo()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("modle x of tiny frozen heads lm", "line 2.*Did you mean 'model'"),
        ("model x tiny", "expected 'model NAME of"),
        ("stage s", "expected 'stage NAME: KIND"),
        ("stage s: sleep", "'sleep' is not a valid Kind"),
        ("call actor", "line 2"),
        ("edge a b rollouts", "expected 'edge SRC -> DST"),
        ("edge a -> b rollouts sideways", "'sideways' is no attribute of an edge"),
        ("edge a -> b rollouts delay", "line 2"),
        ("edge a -> b rollouts chunk two sample", "line 2.*'two'"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(line: str, words: str) -> None:
    with pytest.raises(GraphError, match=words):
        parse(f"graph g\n{line}\n")


@pytest.mark.parametrize("op", ["op x", "op x needs y", "op x scope whole", "op x scope sample gives"])
def test_an_op_that_cannot_be_read_is_named(op: str) -> None:
    with pytest.raises(GraphError, match="line 4"):
        parse(f"graph g\nstage s: host\ncall host\n{op}\n")


def test_text_without_a_graph_is_refused() -> None:
    with pytest.raises(GraphError, match="declares no graph"):
        parse("")


def test_calls_are_read_back() -> None:
    assert parse_call(call_text("async", {"stage": "generate", "staleness": 1})) == (
        "async",
        {"stage": "generate", "staleness": "1"},
    )
    assert parse_call("prune") == ("prune", {})


@pytest.mark.parametrize("source", ["", "a b", "a{", "a{b}", "a{b=}", "a{=1}"])
def test_a_broken_call_is_refused(source: str) -> None:
    with pytest.raises(GraphError, match="expected"):
        parse_call(source)
