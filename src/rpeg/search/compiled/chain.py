"""Simulated annealing within a structure, compiled. It stops where a table lacks a row, and goes on after."""

from __future__ import annotations

import math

from rpeg.search.compiled.blocks import INVALID, OK
from rpeg.search.compiled.evaluate import step_seconds
from rpeg.search.compiled.jit import compiled
from rpeg.search.compiled.layout import Floats, Ints, Rows, Shape, Site, State, Work
from rpeg.search.compiled.moves import copy_state, move, uniform

PENALTY = 6.0
"""Of memory that is missing: the step counts as longer by so many times the share that is missing."""


@compiled
def objective(seconds: float, short: float) -> float:
    """What a chain minimises: the logarithm of the step, lengthened by missing memory."""
    if seconds >= 1e300:
        return 1e300
    return math.log(max(seconds, 1e-12)) + (math.log(1.0 + PENALTY * short) + 0.2 if short > 0 else 0.0)


@compiled
def anneal(
    shape: Shape,
    rows: Rows,
    site: Site,
    now: State,
    trial: State,
    best: State,
    w: Work,
    random: Ints,
    control: Floats,
    placed: bool,
) -> int:
    """Steps from control[0] to control[1]; the code of what is missing, or OK at the end.

    control: [step, steps, first temperature, last temperature, objective of `now`, of `best`, seconds of `best` or
    inf where none fits, evaluations, accepted, sum of squared worsenings, worsenings].
    """
    while control[0] < control[1]:
        began = random[1]
        copy_state(now, trial)
        if not move(shape, now, trial, random, placed):
            control[0] += 1
            continue
        share = control[0] / control[1]
        temperature = control[2] * (control[3] / control[2]) ** share if control[2] > 0 else 0.0
        threshold = control[4] - temperature * math.log(uniform(random))
        beyond = math.exp(min(700.0, threshold))
        code, seconds, short = step_seconds(shape, rows, site, trial, w, beyond)
        if code != OK and code != INVALID:
            random[1] = began
            return code
        control[0] += 1
        control[7] += 1
        if code == INVALID:
            continue
        found = objective(seconds, short)
        worse = found - control[4]
        if 0 < worse < 1.0:
            control[9] += worse * worse
            control[10] += 1
        if found <= threshold and seconds <= beyond:
            copy_state(trial, now)
            control[4] = found
            control[8] += 1
            if found < control[5] - 1e-12:
                copy_state(trial, best)
                control[5] = found
                control[6] = seconds if short == 0.0 else math.inf
    return OK


@compiled
def repeated(shape: Shape, rows: Rows, site: Site, states: list[State], w: Work, times: int) -> float:
    """The sum of the step seconds of these states, evaluated so many times each: to measure evaluations a second."""
    total = 0.0
    for _ in range(times):
        for state in states:
            _, seconds, _ = step_seconds(shape, rows, site, state, w, 1e300)
            total += seconds
    return total
