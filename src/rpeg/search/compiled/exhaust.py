"""Every state of a small space, one after another, compiled."""

from __future__ import annotations

from rpeg.search.compiled.blocks import INVALID, OK
from rpeg.search.compiled.chain import objective
from rpeg.search.compiled.evaluate import step_seconds
from rpeg.search.compiled.jit import compiled
from rpeg.search.compiled.layout import HOST, TRAIN, Floats, Ints, Rows, Shape, Site, State, Work
from rpeg.search.compiled.moves import copy_state


@compiled
def unpack(shape: Shape, state: State, number: int, masks: Ints, choices: int, shifts: Ints) -> None:
    """The state of a number: of every stage its mask, option and rest, then the shifts."""
    for stage in range(len(shape.kind)):
        if shape.kind[stage] == HOST:
            continue
        state.mask[stage] = masks[number % len(masks)]
        number //= len(masks)
        state.option[stage] = number % choices
        number //= choices
        rests = 3 if shape.kind[stage] == TRAIN else 2
        state.offload[stage] = number % rests if rests == 3 else 2 * (number % rests)
        number //= rests
    for stage in range(len(shape.kind)):
        state.shift[stage] = shifts[number % len(shifts), stage]


@compiled
def exhaust(
    shape: Shape,
    rows: Rows,
    site: Site,
    trial: State,
    best: State,
    w: Work,
    masks: Ints,
    choices: int,
    shifts: Ints,
    control: Floats,
) -> int:
    """Numbers from control[0] to control[1]; the code of what is missing, or OK at the end.

    control: [number, end, objective of `best`, evaluations].
    """
    while control[0] < control[1]:
        unpack(shape, trial, int(control[0]), masks, choices, shifts)
        code, seconds, short = step_seconds(shape, rows, site, trial, w, 1e300)
        if code not in (OK, INVALID):
            return code
        control[0] += 1
        control[3] += 1
        if code == OK and short == 0.0:
            found = objective(seconds, short)
            if found < control[2]:
                control[2] = found
                copy_state(trial, best)
    return OK
