"""Dynamic sampling at run time: who is accepted, what is left to the next step, what a resumed run goes on with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from rpeg.algorithms import dapo
from rpeg.algorithms.pieces import with_carry_over
from rpeg.backends.samples import Samples
from rpeg.backends.training.checkpoint import read_weights
from rpeg.errors import RunError
from rpeg.job import Job
from rpeg.plan import Plan
from rpeg.runtime.leftover import Leftover
from rpeg.runtime.run_directory import RunDirectory
from rpeg.runtime.selecting import EQUAL, UNWANTED, Selected, Selector
from rpeg.trace import OVER_QUOTA, What
from rpeg.verify import prove_run
from rpeg.workload import Selection, Workload, constant
from runtime.runs import Ran, make_job, plan_for, run, tiny_model

WORKLOAD = Workload(2, 2, constant(1), constant(2), selection=Selection(3, 2))
"""Two groups of two are wanted, of two rounds of three: a step has the ids 12 · step … 12 · step + 11."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


def candidates(rewards: Sequence[float], first: int = 0) -> Samples:
    """A round's samples, the last first, with one token each."""
    n = len(rewards)
    ids = np.arange(first, first + n)
    samples = Samples(
        ids,
        np.ones(n, np.int64),
        {"versions": np.zeros(n, np.int64)},
        {"group": ids // 2, "candidate_rewards": np.array(rewards, dtype=np.float64)},
        ids,
        np.ones(n, np.int64),
        ids,
    )
    return samples.rows(list(range(n))[::-1])


def selector(model: Path, tmp_path: Path, carry: bool = False, **section: object) -> Selector:
    job = make_job(
        model,
        tmp_path / "run",
        algorithm="dapo",
        selection={"leftover": "keep" if carry else "drop", **section},
    )
    graph = dapo.graph(dapo.Hyper())
    return Selector(with_carry_over(graph) if carry else graph, job, WORKLOAD, tmp_path)


def select(
    chosen: Selector, samples: Samples, *, step: int = 0, number: int = 0, wanted: int = 4
) -> Selected:
    def told() -> tuple[list[str], list[str]]:
        return [f"prompt {i // 2}" for i in sorted(samples.ids)], [f"{i}" for i in sorted(samples.ids)]

    return chosen.select(step, number, samples, wanted, told)


def ids(found: Selected) -> dict[str, tuple[int, ...]]:
    return {"accepted": tuple(found.accepted.ids)} | {
        "kept" if v.kept else v.why: v.ids for v in found.verdicts
    }


def test_groups_of_equals_are_rejected_and_rewards_arrive(model: Path, tmp_path: Path) -> None:
    found = select(selector(model, tmp_path), candidates([1, 1, 0, 1, 0.3, 0.3]))
    assert ids(found) == {"accepted": (2, 3), EQUAL: (0, 1, 4, 5)}
    assert found.accepted.sample["rewards"].tolist() == [0, 1]
    assert found.metrics["sum/selection/equal"] == 2


def test_the_first_in_the_order_of_prompts_are_taken(model: Path, tmp_path: Path) -> None:
    found = select(selector(model, tmp_path), candidates([0, 1, 0, 1, 0, 1]))
    assert ids(found) == {"accepted": (0, 1, 2, 3), OVER_QUOTA: (4, 5)}


def test_a_rule_of_the_users_own(model: Path, tmp_path: Path) -> None:
    (tmp_path / "own_rule.py").write_text(
        "def keep(prompt, responses, rewards):\n    return prompt == 'prompt 1' and responses == ['2', '3']\n"
        "def broken(prompt, responses, rewards):\n    raise ValueError('no')\n"
    )
    own = {"import_from": str(tmp_path), "keep": "python:own_rule:keep"}
    found = select(selector(model, tmp_path, **own), candidates([0, 1, 0, 1, 0, 0]))
    assert ids(found) == {"accepted": (2, 3), EQUAL: (4, 5), UNWANTED: (0, 1)}
    with pytest.raises(RunError, match="own_rule:broken raised ValueError: no"):
        select(selector(model, tmp_path, **own | {"keep": "python:own_rule:broken"}), candidates([0, 1]))


def test_a_round_begins_where_the_one_before_ended(model: Path, tmp_path: Path) -> None:
    chosen = selector(model, tmp_path)
    assert [chosen.place(0, number) for number in (0, 1)] == [0, 3]
    select(chosen, candidates([0, 0, 0, 0, 0, 0]))
    select(chosen, candidates([0, 1, 0, 1, 0, 0], first=6), number=1)
    assert chosen.first_place(1) == 6
    select(chosen, candidates([0, 1, 0, 1, 0, 0], first=12), step=1)
    assert chosen.first_place(2) == 9  # one round was enough
    with pytest.raises(RunError, match="step 3 needs place of step 2"):
        chosen.first_place(3)


def test_what_is_kept_comes_first_in_the_next_step_and_never_later(model: Path, tmp_path: Path) -> None:
    chosen = selector(model, tmp_path, carry=True)
    first = select(chosen, candidates([0, 1] * 3))
    assert ids(first) == {"accepted": (0, 1, 2, 3), "kept": (4, 5)}
    second = select(chosen, candidates([0, 1] * 3, first=12), step=1)
    assert ids(second) == {"accepted": (4, 5, 12, 13), "kept": (14, 15, 16, 17)}
    assert second.accepted.sample["rewards"].tolist() == [0, 1, 0, 1]
    third = select(chosen, candidates([0, 1] * 3, first=24), step=2, wanted=2)
    assert ids(third) == {"accepted": (14, 15), OVER_QUOTA: (16, 17), "kept": (24, 25, 26, 27, 28, 29)}


def test_a_step_that_is_done_again_leaves_what_it_leaves_then(tmp_path: Path) -> None:
    leftover, samples = Leftover(tmp_path, "select"), candidates([0, 1])
    assert leftover.read(1) is None
    leftover.write(0, samples)
    read = leftover.read(1)
    assert read is not None
    assert read.ids.tolist() == samples.ids.tolist()
    assert read.sample["candidate_rewards"].tolist() == [1, 0]
    leftover.write(0, samples.rows([]))
    assert leftover.read(1) is None


def test_what_no_checkpoint_goes_on_with_is_removed(tmp_path: Path) -> None:
    run_directory, leftover = RunDirectory(tmp_path), Leftover(tmp_path, "select")
    for step in range(4):
        leftover.write(step, candidates([0, 1]))
        run_directory.begin_checkpoint(step + 1)
        run_directory.commit_checkpoint(step + 1, seed=0, keep=2)
    assert [checkpoint.steps for checkpoint in run_directory.checkpoints()] == [3, 4]
    assert [step for step in range(4) if leftover.path(step).exists()] == [2, 3]


def test_rounds_that_do_not_fill_the_quota(model: Path, tmp_path: Path) -> None:
    short = select(selector(model, tmp_path), candidates([0, 1, 0, 0, 0, 0], first=6), number=1)
    assert short.metrics["sum/selection/lacking"] == 1
    assert "2 rounds of 3 prompts gave 1 of the 2 groups that step 0 is to train on" in short.warnings[0]
    assert select(selector(model, tmp_path), candidates([0, 0])).warnings == ()  # another round follows
    with pytest.raises(RunError, match=r"selection\.shortfall: train goes on with what there is"):
        select(selector(model, tmp_path, shortfall="stop"), candidates([0, 0], first=6), number=1)


# -- whole runs -----------------------------------------------------------------------------------------------------

REWARD = "def reward(prompt, response, answer):\n    return float(len(response) % 2 and prompt[0] in '{}')\n"


def job_of(model: Path, tmp_path: Path, name: str, some: str, steps: int, **selection: object) -> Job:
    """Rewards depend on the response for prompts that begin with one of `some`, and are zero for all others."""
    (tmp_path / f"reward_{name}.py").write_text(REWARD.format(some))
    return make_job(
        model,
        tmp_path / name,
        algorithm="dapo",
        reward={"name": f"python:reward_{name}:reward", "import_from": str(tmp_path)},
        selection={"max_rounds": 3, **selection},
        cluster={"cpu": 1},
        checkpoint={"every": 1, "keep": 9},
        steps=steps,
    )


def plan_of(job: Job) -> Plan:
    return plan_for(job, rest=(0,))


def trained(ran: Ran) -> dict[int, set[int]]:
    """Step → the samples that were trained at it."""
    found: dict[int, set[int]] = {}
    for trace in ran.traces:
        for span in trace.spans:
            if span.item.name == "train_actor":
                found.setdefault(span.item.step, set()).update(span.ids)
    return found


@pytest.mark.parametrize("leftover", ["drop", "keep"])
def test_a_run_trains_what_it_accepts_and_resumes_where_it_was(
    model: Path, tmp_path: Path, leftover: str
) -> None:
    def made(name: str, steps: int) -> Job:
        return job_of(model, tmp_path, name, "12345678", steps, leftover=leftover, round_prompts=9)

    plan = plan_of(made("whole", 4))
    whole = run(made("whole", 4), plan, in_process=True)
    assert prove_run(whole.traces).findings == ()
    entries = whole.traces[0].entries
    rejected = {i for e in entries if e.what is What.REJECTED for i in e.ids}
    assert rejected
    assert not rejected & set().union(*trained(whole).values())
    assert all(r.metrics["selection/accepted"] + r.metrics["selection/lacking"] == 4 for r in whole.records)
    kept = {e.item.step: set(e.ids) for e in entries if e.what is What.KEPT}
    assert bool(kept) == (leftover == "keep")
    for step, left in kept.items():
        assert left & trained(whole).get(step + 1, left)

    run(made("half", 2), plan, in_process=True)
    rest = run(made("half", 4), plan, in_process=True, resume=True)
    assert prove_run(rest.traces).findings == ()
    assert trained(rest) == trained(whole)
    for name, tensor in whole.weights["actor"].items():
        torch.testing.assert_close(rest.weights["actor"][name], tensor, rtol=0, atol=0)


def test_a_step_without_any_group_changes_nothing(model: Path, tmp_path: Path) -> None:
    job = job_of(model, tmp_path, "none", "x", 2)
    ran = run(job, plan_of(job), in_process=True)
    assert prove_run(ran.traces).findings == ()
    assert [r.metrics["selection/lacking"] for r in ran.records] == [4, 4]
    before = weights_after(ran, 1)
    assert all(torch.equal(before[name], tensor) for name, tensor in ran.weights["actor"].items())
    assert all(r.metrics["actor/applied"] == 0 for r in ran.records)


def weights_after(ran: Ran, steps: int) -> dict[str, torch.Tensor]:
    checkpoints = RunDirectory(ran.outcome.directory).checkpoints()
    path = next(c.path for c in checkpoints if c.steps == steps)
    return read_weights(path / "actor")
