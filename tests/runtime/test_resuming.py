"""Runs that are interrupted and resumed: the same numbers as without interruption, the same bounds, nothing twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rpeg.errors import InputError, RunError
from rpeg.job import Job
from rpeg.plan import Plan
from rpeg.runtime import Options, RunDirectory, StepRecord, prepare_directory, train
from rpeg.trace import read_traces
from rpeg.verify import prove_run
from runtime.runs import Ran, Silent, make_job, plan_for, run, tiny_model

APART = {"generate", "prompts"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


def asynchronous(job: Job, staleness: int, freshness: str) -> Plan:
    """On one device, with generation `staleness` steps ahead of what follows; 0 is synchronous."""
    if staleness == 0:
        return plan_for(job, rest=(0,))
    shifts = {s.name: staleness for s in job.algorithm.graph().stages if s.name not in APART}
    transform = f"async{{stage=generate,staleness={staleness},freshness={freshness}}}"
    return plan_for(job, rest=(0,), transforms=(transform,), shifts=shifts)


def in_stretches(model: Path, path: Path, ends: tuple[int, ...], staleness: int, freshness: str) -> Ran:
    """A run of as many steps as the last end says, interrupted at the others."""
    ran = None
    for steps in ends:
        job = make_job(
            model,
            path / "run",
            algorithm="grpo",
            steps=steps,
            allow={"staleness": 2},
            checkpoint={"every": 2},
        )
        plan = None if ran else asynchronous(job, staleness, freshness)
        ran = run(job, plan, resume=ran is not None, in_process=True)
    assert ran is not None
    return ran


@pytest.fixture(scope="module", params=[0, 1, 2])
def straight(request: pytest.FixtureRequest, model: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Five steps without interruption, of each staleness."""
    return in_stretches(model, tmp_path_factory.mktemp("straight"), (5,), request.param, "exact")


@pytest.mark.parametrize("ends", [(2, 5), (1, 2, 3, 5)], ids=["one interruption", "three interruptions"])
def test_exact_runs_resume_bit_for_bit(
    ends: tuple[int, ...], model: Path, straight: Ran, tmp_path: Path
) -> None:
    """Learning rates too: they follow the updates that were made, not the attempts."""
    delays = [edge.delay for edge in straight.traces[0].plan.graph.weights_into("generate")]
    resumed = in_stretches(model, tmp_path, ends, max(delays) - 1, "exact")
    assert [trace.first_step for trace in resumed.traces] == [0, *ends[:-1]]
    assert prove_run(resumed.traces).findings == ()
    assert straight.weights.keys() == resumed.weights.keys()
    for role, tensors in straight.weights.items():
        for name, tensor in tensors.items():
            assert torch.equal(tensor, resumed.weights[role][name]), (role, name)
    kept, whole = (RunDirectory(ran.outcome.directory).steps_recorded() for ran in (resumed, straight))
    for one, other in zip(kept, whole, strict=True):
        for metric in ("step", "reward", "actor/loss", "actor/lr", "versions"):
            assert one[metric] == other[metric]
        assert one.get("staleness_max") == other.get("staleness_max")


@pytest.mark.parametrize("staleness", [0, 1, 2])
def test_the_newest_versions_stay_within_the_bound_after_a_resume(
    staleness: int, model: Path, tmp_path: Path
) -> None:
    """Every component is at the checkpoint's version before the first rollout, which never lags more than allowed."""
    resumed = in_stretches(model, tmp_path, (2, 4), staleness, "latest")
    assert prove_run(resumed.traces).findings == ()
    first, second = resumed.traces
    rollouts = [span for span in second.spans if span.item.name == "generate"]
    assert {span.reads["actor"] for span in rollouts if span.item.step == 2} == {2}
    for trace in (first, second):
        for span in (s for s in trace.spans if s.item.name == "generate"):
            assert 0 <= span.item.step - span.reads["actor"] <= staleness
    assert all(record["staleness_max"] <= staleness for record in steps_of(resumed))


def steps_of(ran: Ran) -> list[dict[str, float]]:
    return RunDirectory(ran.outcome.directory).steps_recorded()


def test_nothing_from_before_is_overwritten(model: Path, tmp_path: Path) -> None:
    in_stretches(model, tmp_path, (2,), 1, "exact")
    directory = tmp_path / "run"
    files = [p for d in ("trace-1", "checkpoint-000002") for p in (directory / d).rglob("*") if p.is_file()]
    before = {path: path.read_bytes() for path in files}
    job = make_job(model, directory, algorithm="grpo", steps=3, allow={"staleness": 2})
    run(job, None, resume=True, in_process=True)
    assert {path: path.read_bytes() for path in files} == before
    assert (directory / "trace-2").is_dir()


def test_a_resume_at_the_end_of_an_epoch_trains_the_next(model: Path, tmp_path: Path) -> None:
    """Eight prompts, four a step: two steps are one epoch to the end."""
    import itertools

    from rpeg.job.bundled import ASSETS

    lines = (ASSETS / "chain_sum" / "train.jsonl").read_text().splitlines()
    (tmp_path / "few.jsonl").write_text("\n".join(itertools.islice(lines, 8)))
    changes = {"data": {"train": str(tmp_path / "few.jsonl")}, "algorithm": "grpo"}
    whole = make_job(model, tmp_path / "whole", steps=4, **changes)  # type: ignore[arg-type]
    straight = run(whole, plan_for(whole, rest=(0,)), in_process=True)
    first = make_job(model, tmp_path / "parts", steps=2, **changes)  # type: ignore[arg-type]
    run(first, plan_for(first, rest=(0,)), in_process=True)
    second = make_job(model, tmp_path / "parts", steps=4, **changes)  # type: ignore[arg-type]
    resumed = run(second, None, resume=True, in_process=True)
    assert [record.step for record in resumed.records] == [2, 3]
    assert [record["epoch"] for record in steps_of(resumed)] == [
        record["epoch"] for record in steps_of(straight)
    ]
    assert all(torch.equal(t, resumed.weights["actor"][n]) for n, t in straight.weights["actor"].items())
    with pytest.raises(InputError, match="4 of 4 steps: nothing is left"):
        run(second, None, resume=True, in_process=True)


def test_a_run_without_a_checkpoint_begins_again(model: Path, tmp_path: Path) -> None:
    class Ending(Silent):
        def on_step(self, record: object) -> None:
            raise RunError("as if the machine had failed")

    job = make_job(model, tmp_path / "run", algorithm="grpo")
    plan = plan_for(job, rest=(0,))
    with pytest.raises(RunError, match=r"No checkpoint was written yet.*--resume"):
        run(job, plan, in_process=True, view=Ending([]))
    resumed = run(job, None, resume=True, in_process=True)
    assert [trace.first_step for trace in resumed.traces] == [0, 0]
    assert prove_run(resumed.traces).findings == ()
    with pytest.raises(InputError, match="holds no run to resume"):
        prepare_directory(make_job(model, tmp_path / "none"), None, Options(resume=True))


def test_a_full_disk_leaves_the_older_checkpoint(
    model: Path, straight: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lacks is said in bytes; with room again the run ends as if nothing had been."""
    from collections import namedtuple

    usage = namedtuple("usage", "total used free")
    staleness = max(edge.delay for edge in straight.traces[0].plan.graph.weights_into("generate")) - 1
    job = make_job(
        model, tmp_path / "run", algorithm="grpo", steps=5, allow={"staleness": 2}, checkpoint={"every": 2}
    )

    class Filling(Silent):
        def on_checkpoint(self, checkpoint: object) -> None:
            super().on_checkpoint(checkpoint)  # type: ignore[arg-type]
            monkeypatch.setattr("shutil.disk_usage", lambda path: usage(10**6, 10**6 - 1000, 1000))

    options = Options(in_process=True)
    plan = asynchronous(job, staleness, "exact")
    directory, _, start = prepare_directory(job, plan, options)
    with pytest.raises(
        RunError, match=r"cannot write .*checkpoint-0.*bytes are to be written and 1,000 are free.*lack"
    ):
        train(job, plan, directory, start, options, Filling([]))
    monkeypatch.undo()
    assert [checkpoint.steps for checkpoint in directory.checkpoints()] == [2]
    resumed = run(job, None, resume=True, in_process=True)
    assert prove_run(resumed.traces).findings == ()
    assert all(torch.equal(t, resumed.weights["actor"][n]) for n, t in straight.weights["actor"].items())


def test_another_layout_goes_on_alike(model: Path, tmp_path: Path) -> None:
    """From one device to two with sharded states, to what rounding allows; each stretch is proven by its own plan."""
    whole = make_job(model, tmp_path / "whole", algorithm="grpo", steps=4)
    straight = run(whole, plan_for(whole, rest=(0,)), in_process=True)
    first = make_job(model, tmp_path / "parts", algorithm="grpo", steps=2)
    run(first, plan_for(first, rest=(0,)), in_process=True)
    second = make_job(model, tmp_path / "parts", algorithm="grpo", steps=4)
    other = make_job(
        model, tmp_path / "other", algorithm="grpo", batch={"prompts": 2, "samples_per_prompt": 4}
    )
    with pytest.raises(InputError, match="is of another workload"):
        run(second, plan_for(other, rest=(0,)), resume=True, in_process=True)
    resumed = run(second, plan_for(second, zero=3), resume=True)
    assert [len(trace.plan.assignment("train_actor").all_lanes()) for trace in resumed.traces] == [1, 2]
    assert prove_run(resumed.traces).findings == ()
    for name, tensor in straight.weights["actor"].items():
        torch.testing.assert_close(resumed.weights["actor"][name], tensor, rtol=0, atol=1e-8)


@pytest.mark.parametrize("crashes", [(), (2,), (1, 2, 4)], ids=["none", "one", "three"])
def test_the_learning_rate_of_a_step_is_the_same_after_any_crashes(
    crashes: tuple[int, ...], model: Path, tmp_path: Path
) -> None:
    """Warm-up and decay are over the whole run: 2 of 12 updates up, then down to zero."""
    optimizer = {"lr": 1e-2, "schedule": "linear", "warmup_steps": 1}
    job = make_job(
        model, tmp_path / "run", algorithm="grpo", steps=6, optimizer=optimizer, checkpoint={"every": 1}
    )

    class Crashing(Silent):
        due: int | None = None

        def on_step(self, record: StepRecord) -> None:
            if record.step == self.due:
                raise RunError("as if the machine had failed")

    options, plan = Options(in_process=True, export=False), plan_for(job, rest=(0,))
    for due in (*crashes, None):
        directory, _, start = prepare_directory(job, plan, options)
        view = Crashing([])
        view.due = due
        if due is None:
            train(job, plan, directory, start, options, view)
        else:
            with pytest.raises(RunError, match="as if the machine had failed"):
                train(job, plan, directory, start, options, view)
        options = replace(options, resume=True)
    rates = [record["actor/lr"] for record in directory.steps_recorded()]
    assert rates == pytest.approx([0.0075, 0.0095, 0.0075, 0.0055, 0.0035, 0.0015], rel=1e-12)
    assert len(read_traces(directory.path)) == 1 + len(crashes)
