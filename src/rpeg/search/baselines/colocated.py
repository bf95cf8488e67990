"""All stages on all devices, one after another: with one layout, or with a layout for each stage."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from rpeg.ir import Kind
from rpeg.plan import Devices
from rpeg.search.baselines.family import Family
from rpeg.search.candidate import Candidate
from rpeg.search.constructions import Construction
from rpeg.search.layouts import Degrees, degrees
from rpeg.search.placements import Placement, node_width, placed, whole
from rpeg.search.problem import Problem


def one_layout(problem: Problem) -> Family:
    """Every stage with the same tensor and pipeline parallelism."""
    return Family(
        "colocated, one layout",
        tuple(
            _construction(problem, p) for together in _together(problem) for p in _common(problem, together)
        ),
        in_turn=True,
    )


def trained_in_one_layout(problem: Problem, name: str) -> Family:
    """Training and scoring in one layout, generation in the one that suits it; includes `one_layout`."""
    found = [
        _construction(problem, _trained(problem, together, layout))
        for together in _together(problem)
        for layout in _layouts(problem, together)
    ]
    return Family(name, tuple(found), (one_layout(problem),), in_turn=True)


def a_layout_each(problem: Problem) -> Family:
    """Each stage in the layout that suits it; includes the families with fewer layouts, and what a search has found."""
    fewer = trained_in_one_layout(problem, "colocated, one layout to train and one to generate")
    found = tuple(_construction(problem, together) for together in _together(problem))
    return Family("colocated, a layout per stage", found, (fewer,), takes=partial(_is_colocated, problem))


def any_layout(problem: Problem) -> Family:
    """All on all devices of a kind, each stage as it is fastest."""
    return Family("colocated", tuple(_construction(problem, p) for p in colocated(problem)))


def colocated(problem: Problem) -> Iterator[Placement]:
    """On all devices, of each kind."""
    yield from (placed(problem, f"colocated{words}", block) for words, block in whole(problem))


def _is_colocated(problem: Problem, candidate: Candidate) -> bool:
    """All stages on all devices of a kind, of the graph as the job wants it."""
    blocks = {a.block.ids for a in candidate.plan.assignments if isinstance(a.block, Devices)}
    plain = candidate.plan.applied == tuple(map(str, problem.applied))
    return plain and blocks <= {block for _, block in whole(problem)} and len(blocks) == 1


def _together(problem: Problem) -> Iterator[Placement]:
    yield from colocated(problem)
    if problem.is_local:
        yield from (placed(problem, f"colocated{w}, sharded", block, zero=3) for w, block in whole(problem))


def _common(problem: Problem, together: Placement) -> Iterator[Placement]:
    if problem.is_local:
        yield together
    for layout in _layouts(problem, together):
        yield together.with_degrees(dict.fromkeys(together.blocks, layout), f"all {_words(layout)}")


def _layouts(problem: Problem, together: Placement) -> Iterator[Degrees]:
    """That divide every model; processes of this machine cut them only where a job says so."""
    if problem.is_local:
        return
    block = next(iter(together.blocks.values()))
    architectures = [
        problem.facts.architectures[m] for name in together.blocks for m in _models(problem, name)
    ]
    yield from degrees(architectures, len(block), node_width(problem, block))


def _trained(problem: Problem, together: Placement, layout: Degrees) -> Placement:
    """A layout for all that does not generate."""
    graph = problem.graph
    names = [name for name in together.blocks if graph.stage(name).kind is not Kind.GENERATE]
    return together.with_degrees(dict.fromkeys(names, layout), f"training {_words(layout)}")


def _models(problem: Problem, name: str) -> tuple[str, ...]:
    return problem.graph.stage(name).models


def _words(layout: Degrees) -> str:
    tp, pp = layout
    return f"tp{tp}" + (f" pp{pp}" if pp > 1 else "")


def _construction(problem: Problem, placement: Placement) -> Construction:
    return Construction(problem.graph, placement, problem.applied)
