"""Questions that a graph answers."""

from __future__ import annotations

import pytest

from rpeg.errors import GraphError
from rpeg.ir import Edge
from samples_of_plans import ppo


def test_order_lets_data_flow_forward() -> None:
    graph = ppo()
    place = {stage.name: i for i, stage in enumerate(graph.order())}
    assert all(place[e.src] < place[e.dst] for e in graph.edges if e.delay == 0)
    assert len(place) == len(graph.stages)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(GraphError, match=r"no stage 'train_actr'\. Did you mean 'train_actor'\?"):
        ppo().stage("train_actr")


@pytest.mark.parametrize(
    ("delay", "bounds"), [(1, [0, 1, 2, 3]), (2, [0, 0, 1, 2]), (3, [0, 0, 0, 1])], ids=["sync", "1", "2"]
)
def test_delay_bounds_the_version(delay: int, bounds: list[int]) -> None:
    edge = Edge("t", "g", "weights:actor", delay=delay, initial="checkpoint")
    assert [edge.version_bound(step) for step in range(4)] == bounds
