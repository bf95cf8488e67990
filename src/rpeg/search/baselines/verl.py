"""The five schedules that verl offers.

Sources, verl-project/verl: docs/advance/v1_async_trainer.md at 1b86216e (sync, colocate_async, separate_async),
docs/advance/one_step_off.md at e55d1431, docs/advance/fully_async.md at 21470098.

What breaks off rollouts to take them up again with newer weights (`partial rollout`) is not expressed: plans are as slow
as without it, so that colocate-async, which lives on it, takes as long as its generation and training in turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rpeg.errors import GraphError
from rpeg.search.baselines.colocated import colocated, trained_in_one_layout
from rpeg.search.baselines.family import Family
from rpeg.search.constructions import PARTS, Construction, in_parts, transformed, with_staleness
from rpeg.search.placements import Placement, splits
from rpeg.search.problem import Problem
from rpeg.transforms.streaming import Streaming


def sync(problem: Problem) -> Family:
    """All on one pool in turn: one layout trains and scores, the engine has its own."""
    return trained_in_one_layout(problem, "verl sync")


def colocate_async(problem: Problem) -> Family:
    """One pool; generation is a batch ahead of training."""
    return _asynchronous("verl colocate-async", problem, 1, tuple(colocated(problem)))


def separate_async(problem: Problem, pools: Sequence[Placement] = ()) -> Family:
    """Pools for generation and for the rest; minibatches are trained as they are complete, weights published a step.

    pools: where, here and below; all cuts with assessment on the trainers' side if that is not said.
    """
    family = _asynchronous("verl separate-async", problem, 1, pools or _pools(problem))
    return replace(family, members=tuple(_by_minibatch(problem, c) for c in family.members))


def one_step_off(problem: Problem, pools: Sequence[Placement] = ()) -> Family:
    """Pools; a whole batch is generated with the weights before, while the last is trained."""
    return _asynchronous("verl one-step-off", problem, 1, pools or _pools(problem))


def fully_async(problem: Problem, pools: Sequence[Placement] = ()) -> Family:
    """Pools; samples leave as they are done, weights may be as old as the job allows."""
    allowed = problem.permissions
    staleness = max(1, allowed.staleness if allowed.wished_staleness is None else allowed.wished_staleness)
    family = _asynchronous("verl fully-async", problem, staleness, pools or _pools(problem))
    found = [_by_minibatch(problem, c) for c in family.members]
    return replace(family, members=tuple(in_parts(problem, c, PARTS[1]) or c for c in found))


def _pools(problem: Problem) -> tuple[Placement, ...]:
    return tuple(p for p in splits(problem) if not p.assesses_where_it_generates(problem.graph))


def _asynchronous(name: str, problem: Problem, staleness: int, where: Sequence[Placement]) -> Family:
    refused = _refused(problem, staleness)
    if refused or not where:
        return Family(name, refused=refused or "one device cannot be split")
    return Family(name, tuple(with_staleness(problem, placement, staleness) for placement in where))


def _refused(problem: Problem, staleness: int) -> str:
    allowed, wished = problem.permissions.staleness, problem.permissions.wished_staleness
    if staleness > allowed:
        return f"needs staleness {staleness}; the job allows {allowed} (allow: {{staleness: {staleness}}})"
    if wished not in (None, staleness):
        return f"has staleness {staleness}; the job wants {wished} (plan: {{staleness: {wished}}})"
    return ""


def _by_minibatch(problem: Problem, construction: Construction) -> Construction:
    """Each minibatch is trained when its samples are there, where a step has several and sees them once."""
    w = problem.workload
    if w.epochs > 1 or w.minibatches == 1:
        return construction
    try:
        return replace(transformed(construction, Streaming(1, "minibatch")), parts="minibatches")
    except GraphError:
        return construction
