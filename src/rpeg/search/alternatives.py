"""`Alternative`: a layout of a stage on a block of described hardware, what it needs and what it takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import cast

from rpeg import cost
from rpeg.architecture import Architecture, Head
from rpeg.cluster import Cluster
from rpeg.cost import Execution, Sequences
from rpeg.cost.generating import Policy, with_logprobs
from rpeg.cost.memory import cache_room
from rpeg.ir import Kind, Stage
from rpeg.plan import Assignment, Devices
from rpeg.search.problem import Problem
from rpeg.sim.hardware.layouts import execution_of, software_of
from rpeg.sim.hardware.memory import update_batch
from rpeg.sim.hardware.sites import site
from rpeg.workload import Workload


@dataclass(frozen=True)
class Alternative:
    """One assignment of a stage with a model, were the stage alone on its devices."""

    problem: Problem
    stage: Stage
    assignment: Assignment

    @cached_property
    def capacity_bytes(self) -> float:
        """Of each device."""
        assert isinstance(self.assignment.block, Devices)
        return float(site(self.problem.cluster, self.assignment.block).kind.usable_memory_bytes)

    @cached_property
    def need_bytes(self) -> float:
        """Of the fullest device. Raises InputError where the layout cannot run."""
        return _need(self.problem, self.stage, self.assignment)

    @cached_property
    def seconds(self) -> float:
        """Of one drawn step."""
        return _seconds(self.problem, self.stage, self.assignment)


def alternative(problem: Problem, stage: Stage, assignment: Assignment) -> Alternative:
    """Kept, as placements and rounds of one problem ask for the same."""
    heads = tuple(problem.graph.model(model).heads for model in stage.models)
    return _known(problem.cluster, Key(problem), stage, heads, assignment)


class Key:
    """A problem as a key of a cache: by identity, as its mappings cannot be hashed."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._key = (
            id(problem.facts.architectures),
            problem.workload,
            problem.microbatch,
            problem.facts.engine,
            problem.facts.trainer,
        )

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self._key == other._key


@lru_cache(maxsize=8192)
def _known(
    cluster: Cluster, key: Key, stage: Stage, heads: tuple[tuple[str, ...], ...], assignment: Assignment
) -> Alternative:
    """heads: of the stage's models, which with the stage are all that it has of the graph."""
    return Alternative(replace(key.problem, cluster=cluster), stage, assignment)


def _need(problem: Problem, stage: Stage, option: Assignment) -> float:
    w, facts = problem.workload, problem.facts
    assert isinstance(option.block, Devices)
    machine = site(problem.cluster, option.block).machine(software_of(facts, stage))
    need = 0.0
    for model in stage.models:
        architecture, heads = facts.architectures[model], problem.graph.model(model).heads
        execution = execution_of(w, facts, stage, option, trained=stage.kind is Kind.TRAIN)
        if stage.kind is Kind.GENERATE:
            rows = option.microbatch
            found = cost.generate_memory(architecture, execution, machine, rows=1, context=w.longest)
            room = cache_room(architecture, execution, machine, rows=rows)
            need = max(need, found.peak.device_bytes, 0.0 if room else float("inf"))
        else:
            measure = cost.train_memory if stage.kind is Kind.TRAIN else cost.infer_memory
            found = measure(architecture, update_batch(w), execution, machine, heads=heads)
            need += found.peak.device_bytes
    return need


def _seconds(problem: Problem, stage: Stage, option: Assignment) -> float:
    """Of one drawn step."""
    w, facts = problem.workload, problem.facts
    assert isinstance(option.block, Devices)
    machine = site(problem.cluster, option.block).machine(software_of(facts, stage))
    execution = execution_of(w, facts, stage, option, trained=stage.kind is Kind.TRAIN)
    total = 0.0
    for model in stage.models:
        architecture = facts.architectures[model]
        heads = cast("tuple[Head, ...]", problem.graph.model(model).heads)
        if stage.kind is Kind.GENERATE:
            total += _generation(architecture, w, execution, machine)
            continue
        sequences = _drawn(w)
        if stage.kind is Kind.TRAIN:
            total += cost.train_stage(
                architecture, sequences, execution, machine, updates=w.minibatches, heads=heads
            ).seconds
        else:
            total += cost.infer_stage(architecture, sequences, execution, machine, heads=heads).seconds
    return total


@lru_cache(maxsize=16)
def _drawn(workload: Workload) -> Sequences:
    return Sequences.of(*workload.draw(0, 0))


@lru_cache(maxsize=1024)
def _generation(
    architecture: Architecture, w: Workload, execution: Execution, machine: cost.Machine
) -> float:
    found = cost.generate_stage(
        architecture,
        *w.draw(0, 0),
        execution,
        with_logprobs(machine),
        samples_per_prompt=w.samples_per_prompt,
        policy=Policy(max_rows=execution.microbatch),
    )
    return found.seconds
