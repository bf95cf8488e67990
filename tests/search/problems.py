"""Small problems for tests of the search."""

from __future__ import annotations

from rpeg import algorithms
from rpeg.algorithms.pieces import with_evaluation
from rpeg.architecture import Architecture
from rpeg.cluster import local
from rpeg.search import Permissions, Problem
from rpeg.sim import Facts
from rpeg.workload import Workload, constant, lognormal

TINY = Architecture("tiny", "llama", 2, 64, 4, 4, 16, 128, 259, 128)


def problem(
    algorithm: str = "ppo",
    devices: int = 2,
    permissions: Permissions | None = None,
    memory_bytes: int = 4 * 2**30,
    evaluate: bool = False,
    prompts: int = 8,
) -> Problem:
    """PPO or GRPO of a tiny model, 2 samples a prompt."""
    module = algorithms.load(algorithm)
    graph = module.graph(module.Hyper())
    if evaluate:
        graph = with_evaluation(graph, 5)
    return Problem(
        graph,
        local(devices, memory_bytes),
        Workload(prompts, 2, constant(10), lognormal(8, 24), minibatches=2),
        Facts({model.name: TINY for model in graph.models}, evaluation_prompts=8 if evaluate else 0),
        microbatch=8,
        permissions=permissions or Permissions(),
    )
