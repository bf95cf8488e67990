"""The pure pieces of the runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpeg.backends.generation.protocol import Request, Response
from rpeg.backends.samples import Samples
from rpeg.errors import InputError, RunError
from rpeg.job import dump_job
from rpeg.job.bundled import ASSETS
from rpeg.runtime.generating import in_parts, once_a_prompt
from rpeg.runtime.lock import locked
from rpeg.runtime.mismatch import batch_metrics
from rpeg.runtime.record import Tally
from rpeg.runtime.resuming import check_same_job
from rpeg.runtime.run_directory import RunDirectory
from rpeg.runtime.training import check_staleness, combine, membership
from rpeg.runtime.work import Done, Part, pack, unpack
from rpeg.workload import Workload, constant
from runtime.runs import make_job


def responses(order: list[int], group_size: int) -> list[Response]:
    one = np.ones(1, np.int64)
    return [Response(i, i // group_size, (1,), one, one.astype(float), one, one > 0, "stop") for i in order]


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 3), st.randoms())
def test_parts_of_groups_hold_whole_groups(groups: int, size: int, chunk: int, rng: object) -> None:
    order = list(range(groups * size))
    rng.shuffle(order)  # type: ignore[attr-defined]
    sizes = [min(chunk, groups - g) * size for g in range(0, groups, chunk)]
    found = list(in_parts(responses(order, size), list(enumerate(sizes)), size))
    assert [len(part) for _, part in found] == sizes
    assert sorted(r.id for _, part in found for r in part) == sorted(order)
    for _, part in found:
        members = [r.group for r in part]
        assert all(members.count(group) == size for group in members)


def test_what_is_the_same_for_a_prompt_is_generated_once() -> None:
    requests = [Request(i, i // 3, (1,)) for i in range(7)]
    asked: list[int] = []

    def answer(some: list[Request]) -> list[Response]:
        asked.extend(request.id for request in some)
        return responses([6, 0, 3], 3)

    found = [(r.id, r.group) for r in once_a_prompt(requests, answer)]
    assert asked == [0, 3, 6]
    assert found == [(6, 2), (0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 1)]


def test_parts_of_samples_leave_in_completion_order() -> None:
    found = list(in_parts(responses([3, 0, 2, 1], 2), [(7, 3), (9, 1)], 1))
    assert [(number, [r.id for r in part]) for number, part in found] == [(7, [3, 0, 2]), (9, [1])]


def test_a_generator_that_owes_a_part_is_refused() -> None:
    with pytest.raises(RuntimeError, match="owes"):
        list(in_parts(responses([0, 1], 1), [(0, 3)], 1))


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 100), st.integers(0, 100), st.randoms())
def test_membership_does_not_depend_on_arrival(seed: int, step: int, rng: object) -> None:
    workload = Workload(8, 2, constant(1), constant(1), minibatches=4, epochs=2)
    ids = list(range(16 * step, 16 * step + 16))
    shuffled = list(ids)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    parts = membership(ids, workload, seed, step)
    assert parts == membership(shuffled, workload, seed, step)
    assert [len(part) for part in parts] == [4] * 8
    assert (
        sorted(i for part in parts[:4] for i in part) == ids == sorted(i for part in parts[4:] for i in part)
    )
    assert parts[:4] != parts[4:]


def batch(versions: list[int]) -> Samples:
    return Samples(np.arange(1), np.array([len(versions)]), {"versions": np.array(versions)})


def test_staleness_is_told_by_age() -> None:
    found = batch_metrics(batch([4, 5, 5, 2]), 5)
    assert found == {
        "tokens": 4,
        "staleness": 1.0,
        "staleness_max": 3,
        "staleness_0": 0.5,
        "staleness_1": 0.25,
        "staleness_2": 0.0,
        "staleness_3": 0.25,
    }
    nothing = Samples(np.arange(0), np.zeros(0, np.int64), {"versions": np.zeros(0, np.int64)})
    assert batch_metrics(nothing, 5) == {"tokens": 0, "staleness": 0, "staleness_max": 0}


def test_items_of_a_step_are_reported_as_one() -> None:
    """Losses count by update, what is of tokens by token; a number that an item lacks is zero there."""
    one = {"loss": 1.0, "ratio": 1.0, "ratio_max": 3.0, "tokens": 10, "applied": 2, "skipped": 0}
    two = {"loss": 4.0, "ratio": 2.0, "ratio_max": 2.0, "tokens": 30, "applied": 0, "skipped": 1, "late": 0.4}
    assert combine([one]) == one
    assert combine([one, two]) == {
        "loss": 2.0,
        "ratio": 1.75,
        "ratio_max": 3.0,
        "tokens": 40,
        "applied": 2,
        "skipped": 1,
        "late": pytest.approx(0.3),
    }


def test_tokens_outside_the_bound_are_refused() -> None:
    check_staleness(batch([4, 5]), 4, 5, 5)
    with pytest.raises(RunError, match="versions 3 to 5; the plan allows 4 to 5"):
        check_staleness(batch([3, 5]), 4, 5, 5)
    with pytest.raises(RunError, match="versions 5 to 6"):
        check_staleness(batch([5, 6]), 4, 5, 5)


def test_answers_survive_packing() -> None:
    header, count = next(pack(Done("batch", {"actor": "weights"}, {"x": 1.0})))
    assert (header.batch, count) == (1, 2)
    for answer in (
        Done(),
        Done("batch"),
        Done(None, {"a": "w"}),
        Done("batch", {"a": "w", "b": "v"}),
        Part(1, (2,), (3,), "b"),
    ):
        (header, count), *contents = pack(answer)
        assert count == len(contents)
        assert unpack(header, contents) == answer


def test_a_step_is_put_together_from_its_items() -> None:
    tally = Tally()
    tally.add(
        {"sum/samples": 3, "sum/response_tokens": 30, "sum/truncated": 1, "sum/reward": 1, "sum/rewarded": 2}
    )
    tally.add(
        {
            "sum/samples": 1,
            "sum/response_tokens": 10,
            "sum/reward": 1,
            "sum/rewarded": 2,
            "mean/a": 1,
            "actor/loss": 5,
        }
    )
    tally.add({"mean/a": 3})
    record = tally.record(7, 2.0, {"actor": 8})
    assert (record.reward, record.tokens_per_second, record.truncated) == (0.5, 20, 0.25)
    assert record.metrics["a"] == 2
    assert record.metrics["actor/loss"] == 5
    assert record.metrics["response_length"] == 10
    assert record.accuracy is None


def test_a_checkpoint_counts_only_when_whole(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.begin_checkpoint(2)
    assert run.checkpoints() == []
    assert run.commit_checkpoint(2, seed=0, keep=1).steps == 2
    run.begin_checkpoint(4)
    run.commit_checkpoint(4, seed=0, keep=1)
    run.begin_checkpoint(6)
    assert [c.steps for c in run.checkpoints()] == [4]
    (tmp_path / "mine.txt").write_text("keep me")
    run.clear()
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    run = RunDirectory(tmp_path)
    for steps in (1, 2, 3):
        (run.begin_checkpoint(steps) / "actor").mkdir()
        save_file({"w": torch.zeros(100)}, run.begin_checkpoint(steps) / "actor" / "weights.safetensors")
        run.commit_checkpoint(steps, seed=0, keep=3)
    assert [c.steps for c in run.checkpoints()] == [1, 2, 3]
    weights = tmp_path / "checkpoint-000003" / "actor" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert [c.steps for c in run.checkpoints()] == [1, 2]
    for text in ("", '{"schema":1}', "[]", "{"):
        (tmp_path / "checkpoint-000002" / "state.json").write_text(text)
        assert [c.steps for c in run.checkpoints()] == [1]


def test_one_run_at_a_time(tmp_path: Path) -> None:
    with (
        locked(tmp_path / "run"),
        pytest.raises(InputError, match="another run is writing"),
        locked(tmp_path / "run"),
    ):
        pass
    with locked(tmp_path / "run"):
        pass


def test_a_resumed_job_must_be_the_same(tmp_path: Path) -> None:
    job = make_job(ASSETS / "tiny", tmp_path / "run")
    kept = tmp_path / "job.yaml"
    check_same_job(job, kept)  # nothing is kept: nothing to compare with
    kept.write_text(dump_job(job))
    check_same_job(job.model_copy(update={"steps": 9}), kept)
    optimizer = job.optimizer.model_copy(update={"lr": 0.5})
    with pytest.raises(
        InputError, match=r"seed was 3 and is 7; optimizer.lr was 0.01 and is 0.5|optimizer.lr.*seed"
    ):
        check_same_job(job.model_copy(update={"seed": 7, "optimizer": optimizer}), kept)
    falling = job.model_copy(update={"optimizer": job.optimizer.model_copy(update={"schedule": "linear"})})
    kept.write_text(dump_job(falling))
    with pytest.raises(InputError, match="steps was 2 and is 9"):
        check_same_job(falling.model_copy(update={"steps": 9}), kept)
