"""What ReaL compares its searched plans with, and placements of the kind that it finds.

Source: openpsi-project/ReaLHF at c3889be8, profiler/search.py (model_pipe_device_mapping): every call on all devices,
tensor parallelism over a node, a pipeline over the nodes, no data parallelism.
"""

from __future__ import annotations

from rpeg.search.baselines.colocated import colocated
from rpeg.search.baselines.family import Family
from rpeg.search.constructions import Construction
from rpeg.search.placements import node_width, trainers_apart, whole
from rpeg.search.problem import Problem


def heuristic(problem: Problem) -> Family:
    """tp: the devices of a node; pp: the nodes; every stage on all devices of a kind."""
    name = "ReaL heuristic"
    if problem.is_local:
        return Family(
            name, refused="models are cut over processes of this machine only where plan.layouts says so"
        )
    found = []
    for together in colocated(problem):
        block = next(iter(together.blocks.values()))
        width = min(node_width(problem, block), len(block))
        layout = width, len(block) // width
        fixed = together.with_degrees(dict.fromkeys(together.blocks, layout), f"tp{layout[0]} pp{layout[1]}")
        found.append(Construction(problem.graph, fixed, problem.applied))
    return Family(name, tuple(found))


def meshes(problem: Problem) -> Family:
    """Each trainer with what uses its model on devices of its own, by the parameters that are trained."""
    found = tuple(
        Construction(problem.graph, placement, problem.applied)
        for words, block in whole(problem)
        for placement in trainers_apart(problem, block, words)
    )
    return Family("model meshes", found, refused="" if found else "one trainer, or one device")
