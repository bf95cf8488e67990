"""Each property catches every lie that breaks it by construction, in runs of all kinds; legal shifts raise no alarm."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from random import Random

import pytest

from rpeg.verify import PROPERTIES, RUN_PROPERTIES, prove_run
from verify.legal_shifts import SHIFTS, Shift, shifted
from verify.lies import Run
from verify.mutations import MUTATIONS, Mutation
from verify.real_runs import real_runs
from verify.sound_runs import KINDS, random_plans, sound_run, sound_runs

RUNS, EACH, CLEAN = 60, 2, 40
"""Runs to lie about, lies of each mutation, clean runs."""


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    return real_runs(tmp_path_factory.mktemp("real"))


@pytest.fixture(scope="module")
def pool(real: list[Run]) -> list[Run]:
    """A run of every kind of plan, of random plans, and those that really ran."""
    draw = Random(1)
    every = [sound_run(make(), draw) for make in KINDS.values()]
    return [*every, *real, *(run for _, run in islice(sound_runs(draw, random_plans(30, 1), real), RUNS))]


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_lie_is_caught_by_the_property_that_it_breaks(mutation: Mutation, pool: list[Run]) -> None:
    found = list(islice(_lies(mutation, pool), EACH))
    assert len(found) == EACH
    for lie in found:
        assert mutation.breaks in prove_run(lie).broken


def _lies(mutation: Mutation, pool: list[Run]) -> Iterator[Run]:
    draw = Random(mutation.name)
    for run in draw.sample(pool, len(pool)):
        lie = mutation.apply(run, draw)
        if lie is not None:
            yield lie


def test_there_is_a_lie_for_every_property() -> None:
    names = {p.__name__ for p in PROPERTIES} | {p.__name__ for p in RUN_PROPERTIES} | {"plan_can_run"}
    assert {mutation.breaks for mutation in MUTATIONS} == names


def test_sound_runs_raise_no_alarm_nor_do_legal_shifts_of_them(pool: list[Run]) -> None:
    draw = Random(2)
    for run in draw.sample(pool, CLEAN):
        assert prove_run(run).findings == ()
        assert prove_run(shifted(run, draw)).findings == ()


@pytest.mark.parametrize("shift", SHIFTS, ids=lambda shift: shift.__name__)
def test_each_legal_shift_alone_raises_no_alarm(shift: Shift, pool: list[Run]) -> None:
    draw = Random(3)
    every = ((run, tuple(shift(trace, draw) for trace in run)) for run in draw.sample(pool, len(pool)))
    changed = list(islice((other for run, other in every if other != run), 3))
    assert changed
    for run in changed:
        assert prove_run(run).findings == ()
