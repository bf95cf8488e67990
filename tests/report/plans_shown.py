"""Small rankings for tests of reports; baselines are made by hand."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from rich.console import Console, RenderableType

from rpeg import algorithms, architecture
from rpeg.architecture import Architecture
from rpeg.cluster import Cluster, local, system
from rpeg.search import Permissions, Problem, Ranked, plan_job
from rpeg.sim import Facts
from rpeg.workload import Workload, constant, lognormal


@cache
def local_plans() -> tuple[Problem, Ranked]:
    """GRPO of a tiny model on two processes, staleness 1 allowed."""
    module = algorithms.load("grpo")
    graph = module.graph(module.Hyper())
    tiny = Architecture("tiny", "llama", 2, 64, 4, 4, 16, 128, 259, 128)
    problem = Problem(
        graph,
        local(2, 4 * 2**30),
        Workload(4, 2, constant(10), lognormal(8, 24)),
        Facts(dict.fromkeys(("actor", "reference"), tiny)),
        microbatch=8,
        permissions=Permissions(staleness=1),
        assumptions=("responses: as long as [bold]ever[/bold]",),
    )
    return problem, replace(plan_job(problem), baselines=())


def on(cluster: Cluster) -> Problem:
    """GRPO of a 7B model."""
    module = algorithms.load("grpo")
    graph = module.graph(module.Hyper())
    shape = architecture.named("Qwen2.5-7B")
    work = Workload(16, 2, constant(200), lognormal(300, 1000), minibatches=2)
    facts = Facts({model.name: shape for model in graph.models}, "bfloat16")
    return Problem(graph, cluster, work, facts, 16, Permissions())


@cache
def node_plans() -> tuple[Problem, Ranked]:
    """The same on one node of H100."""
    problem = on(system("dgx-h100"))
    return problem, replace(plan_job(problem), baselines=())


def shown(*parts: RenderableType, width: int = 80) -> str:
    """As it goes into a pipe."""
    console = Console(width=width, force_terminal=False)
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    return capture.get()
