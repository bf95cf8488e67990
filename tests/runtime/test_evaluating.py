"""Evaluations, alarms, loggers, the data of a resumed run, and truncated samples left out of the loss."""

from __future__ import annotations

import json
import sys
from itertools import combinations
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpeg.backends.data import Prompt
from rpeg.backends.samples import Samples
from rpeg.errors import InputError
from rpeg.ir import Op, Scope
from rpeg.job import Job
from rpeg.job.bundled import ASSETS
from rpeg.runtime import training
from rpeg.runtime.alarms import alarms
from rpeg.runtime.evaluating import metrics, pass_at, powers, requests_of
from rpeg.runtime.loggers import Loggers
from rpeg.runtime.record import StepRecord, Tally
from rpeg.runtime.resuming import check_same_data
from rpeg.workload import Workload, constant
from runtime.runs import make_job


@given(st.integers(1, 7), st.data())
def test_pass_at_k_is_the_share_of_draws_with_a_right_one(count: int, data: st.DataObject) -> None:
    solved, k = data.draw(st.integers(0, count)), data.draw(st.integers(1, count))
    draws = list(combinations([True] * solved + [False] * (count - solved), k))
    assert pass_at(count, solved, k) == pytest.approx(sum(map(any, draws)) / len(draws))


def test_an_evaluation_is_a_mean_over_prompts() -> None:
    """Two prompts on one replica, one on another: together as if there had been one."""
    first = np.array([[1.0, 0, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]])
    tally = Tally()
    for rows in ([0, 2], [1]):
        ones = np.ones_like(first[rows])
        tally.add(metrics(2 * first[rows], first[rows], 5 * ones, ones == 0, solved=1.0))
    assert tally.accuracy() == pytest.approx(2 * (0.25 + 1) / 3)
    found = tally.evaluation()
    assert found["eval/pass@1"] == found["eval/mean@4"] == pytest.approx(1.25 / 3)
    assert found["eval/pass@2"] == pytest.approx((0.5 + 1) / 3)
    assert found["eval/pass@4"] == pytest.approx(2 / 3)
    assert (found["eval/response_length"], found["eval/truncated"]) == (5, 0)
    record = tally.record(0, 1.0, {})
    assert record.metrics["eval/pass@4"] == found["eval/pass@4"]
    assert powers(6) == [1, 2, 4, 6]
    assert Tally().evaluation() == {}


def test_a_response_is_drawn_alike_on_whichever_replica() -> None:
    prompts = [Prompt(n, (n,), "", "") for n in range(5)]
    whole = requests_of(prompts, 3, 0, 1)
    assert len({request.id for request in whole}) == 15
    shared = [request for replica in range(2) for request in requests_of(prompts, 3, replica, 2)]
    assert sorted(shared, key=lambda request: request.id) == whole


def record(step: int, **changes: float) -> StepRecord:
    truncated = changes.pop("truncated", 0.0)
    return StepRecord(
        step, 1.0, 0.0, None, 1.0, truncated, {}, {"samples": 8.0, "actor/grad_norm": 1.0, **changes}
    )


def test_alarms() -> None:
    assert list(alarms([record(0)])) == []
    assert "57% of the first responses" in next(alarms([record(0, truncated=0.57)]))
    cut = [record(step, truncated=0.97) for step in range(3)]
    assert any("more than 90% of the responses" in text for text in alarms(cut))
    assert list(alarms(cut[:2])) == []
    still = [record(step, **{"actor/grad_norm": 0.0}) for step in range(3)]
    assert any("gradient of the actor has been zero" in text for text in alarms(still))
    assert list(alarms([*still[:2], record(2)])) == []
    failed = [record(step, reward_failed=8.0) for step in range(3)]
    assert list(alarms(failed)) == ["every reward has failed for 3 steps"]


def job_with(tmp_path: Path, *loggers: str) -> Job:
    return make_job(ASSETS / "tiny", tmp_path / "run", loggers=list(loggers))


def test_tensorboard_gets_every_finite_number(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    warned: list[str] = []
    loggers = Loggers(job_with(tmp_path, "tensorboard"), tmp_path, 0, warned.append)
    for step in range(2):
        loggers.log(step, {"reward": 0.5 + step, "none": None, "nan": float("nan"), "versions": {"actor": 1}})
    loggers.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("reward")] == [(0, 0.5), (1, 1.5)]
    assert events.Tags()["scalars"] == ["reward"]
    assert warned == []


class Broken(ModuleType):
    """A client without a network."""

    tried = 0

    def init(self, **options: object) -> Broken:
        assert options["mode"] == "offline"
        assert options["name"] == "test"
        return self

    def log(self, metrics: object, step: int) -> None:
        self.tried += 1
        raise ConnectionError("no route to host")

    def finish(self) -> None:
        raise AssertionError("was dropped")


def test_a_logger_that_fails_ends_no_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = Broken("wandb")
    monkeypatch.setitem(sys.modules, "wandb", broken)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    warned: list[str] = []
    loggers = Loggers(job_with(tmp_path, "wandb"), tmp_path, 0, warned.append)
    for step in range(3):
        loggers.log(step, {"reward": 1.0})
    loggers.close()
    assert broken.tried == 1
    assert warned == ["wandb fails and gets no more metrics: ConnectionError: no route to host"]


def test_a_logger_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    with pytest.raises(
        InputError, match=r"mlflow is not installed \(mlflow is missing\): pip install mlflow"
    ):
        Loggers(job_with(tmp_path, "mlflow"), tmp_path, 0, print)


def test_a_resumed_run_goes_on_in_the_same_data(tmp_path: Path) -> None:
    rows = [{"prompt": f"{n} + 1 =", "answer": str(n + 1)} for n in range(8)]
    data = tmp_path / "train.jsonl"

    def write() -> None:
        data.write_text("".join(json.dumps(row) + "\n" for row in rows))

    write()
    job = make_job(ASSETS / "tiny", tmp_path / "run", data={"train": str(data)})
    kept = tmp_path / "data.json"
    check_same_data(job, kept)
    check_same_data(job, kept)
    rows[3]["answer"] = "5"
    write()
    with pytest.raises(InputError, match=r"train.jsonl has 8 records, digest .* when the run began"):
        check_same_data(job, kept)


class Weights:
    """A trainer that remembers what each sample weighs."""

    model = type("Model", (), {"heads": ("lm",)})

    def train(
        self, minibatches: list[Samples], weights: list[object], *_: object, **__: object
    ) -> dict[str, float]:
        pairs = zip(minibatches, weights, strict=True)
        self.by_id = {int(i): float(w) for batch, row in pairs for i, w in zip(batch.ids, row, strict=True)}  # type: ignore[call-overload]
        return {}


@pytest.mark.parametrize("policy", ["score", "mask"])
@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean_token_mean"])
def test_masked_samples_weigh_nothing_and_are_not_counted(
    policy: str, aggregation: str, tmp_path: Path
) -> None:
    job = make_job(
        ASSETS / "tiny",
        tmp_path / "run",
        algorithm="grpo",
        reward={"name": "numeric", "truncated": policy},
    )
    hyper = {"name": "grpo", "loss_aggregation": aggregation}
    job = type(job).model_validate({**job.model_dump(mode="json"), "algorithm": hyper})
    samples = Samples(np.arange(4), np.array([2, 4, 3, 6]), {}, {"finish": np.array([1, 1, 1, 0])})
    workload = Workload(4, 1, constant(1), constant(1), minibatches=1, epochs=1)
    trainer = Weights()
    found, _ = training.train(
        trainer,  # type: ignore[arg-type]
        samples,
        [Op("grpo_policy_loss", Scope.MINIBATCH)],
        job=job,
        workload=workload,
        updates=training.Updates(0, 0, 1),
        microbatch=4,
    )
    lengths = {0: 2, 1: 4, 2: 3} if policy == "mask" else {0: 2, 1: 4, 2: 3, 3: 6}
    total, count = sum(lengths.values()), len(lengths)
    for i, length in lengths.items():
        expected = 1 / total if aggregation == "token_mean" else 1 / (count * length)
        assert trainer.by_id[i] == pytest.approx(expected)
    if policy == "mask":
        assert (trainer.by_id[3], found["masked"]) == (0.0, 1.0)
