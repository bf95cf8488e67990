"""The graphs of the algorithms, and what transforms make of them, as text that a reviewer reads.

To accept a change: RPEG_ACCEPT=1 pytest tests/ir/test_goldens.py, then look at the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rpeg import algorithms
from rpeg.ir import Graph
from rpeg.text import parse, text
from rpeg.transforms import parse as transform

GOLDENS = Path(__file__).parent / "goldens"


def _graph(algorithm: str, *applied: str, **hyper: object) -> Graph:
    module = algorithms.load(algorithm)
    graph: Graph = module.graph(module.Hyper(**hyper))
    for source in applied:
        graph = transform(source).apply(graph)
    return graph


CASES = {
    "ppo": _graph("ppo"),
    "grpo": _graph("grpo"),
    "ppo_async": _graph("ppo", "async{stage=generate,staleness=1}"),
    "ppo_streamed": _graph("ppo", "stream{chunk=8}"),
    "ppo_corrected": _graph("ppo", importance="token", truncated="mask", kl_target=0.1),
    "rloo": _graph("rloo"),
    "reinforce": _graph("reinforce"),
    "remax": _graph("remax"),
    "grpo_streamed": _graph("grpo", "stream{chunk=2,unit=group}"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_graph_is_the_golden_one(name: str) -> None:
    path = GOLDENS / f"{name}.txt"
    if os.environ.get("RPEG_ACCEPT"):
        path.write_text(text(CASES[name]))
    assert text(CASES[name]) == path.read_text()
    assert parse(path.read_text()) == CASES[name]


def test_every_golden_is_tested() -> None:
    assert {path.stem for path in GOLDENS.glob("*.txt")} == set(CASES)
