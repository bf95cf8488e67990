"""The maximum cycle ratio by Howard's policy iteration, compiled; `rpeg.sim.howard` is the reference."""

from __future__ import annotations

from rpeg.search.compiled.jit import compiled
from rpeg.search.compiled.layout import Floats, Ints

_TOLERANCE = 1e-13
_ROUNDS = 500


@compiled
def evaluate(
    items: int,
    dst: Ints,
    weight: Floats,
    height: Ints,
    policy: Ints,
    ratio: Floats,
    value: Floats,
    seen: Ints,
    path: Ints,
) -> float:
    """Ratios and potentials of the picked arcs, each node's `policy`; the greatest ratio."""
    best = 0.0
    for i in range(items):
        seen[i] = -1
    for root in range(items):
        length, node = 0, root
        while seen[node] < 0:
            seen[node] = root
            path[length] = node
            length += 1
            node = dst[policy[node]]
        fresh = seen[node] == root
        if fresh:
            start = length - 1
            while path[start] != node:
                start -= 1
            total, crossed = 0.0, 0
            for i in range(start, length):
                total += weight[policy[path[i]]]
                crossed += height[policy[path[i]]]
            ratio[node] = total / crossed
            if ratio[node] > best:
                best = ratio[node]
        for back in range(length):
            other = path[length - 1 - back]
            if other != node or not fresh:
                arc = policy[other]
                ratio[other] = ratio[dst[arc]]
                value[other] = weight[arc] - ratio[other] * height[arc] + value[dst[arc]]
    return best


@compiled
def improve(
    items: int,
    head: Ints,
    by_src: Ints,
    dst: Ints,
    weight: Floats,
    height: Ints,
    policy: Ints,
    ratio: Floats,
    value: Floats,
    epsilon: float,
) -> bool:
    """Turns picks to better arcs: first to cycles of a higher ratio, where there are none to higher potentials."""
    changed = False
    for node in range(items):
        best, pick = ratio[node] + epsilon, -1
        for i in range(head[node], head[node + 1]):
            arc = by_src[i]
            if ratio[dst[arc]] > best:
                best, pick = ratio[dst[arc]], arc
        if pick >= 0:
            policy[node] = pick
            changed = True
    if changed:
        return True
    for node in range(items):
        best, pick = value[node] + epsilon, -1
        for i in range(head[node], head[node + 1]):
            arc = by_src[i]
            if ratio[dst[arc]] < ratio[node] - epsilon:
                continue
            there = weight[arc] - ratio[node] * height[arc] + value[dst[arc]]
            if there > best:
                best, pick = there, arc
        if pick >= 0:
            policy[node] = pick
            changed = True
    return changed


@compiled
def cycle_ratio(
    items: int,
    head: Ints,
    by_src: Ints,
    dst: Ints,
    weight: Floats,
    height: Ints,
    policy: Ints,
    ratio: Floats,
    value: Floats,
    seen: Ints,
    path: Ints,
) -> float:
    """Of a graph in which every node has an arc out and every cycle a height. policy: where to begin, and the answer."""
    most = 1e-300
    for i in range(head[items]):
        if weight[by_src[i]] > most:
            most = weight[by_src[i]]
    epsilon = most * _TOLERANCE
    found = 0.0
    for _ in range(_ROUNDS):
        found = evaluate(items, dst, weight, height, policy, ratio, value, seen, path)
        if not improve(items, head, by_src, dst, weight, height, policy, ratio, value, epsilon):
            break
    return found
