"""Whole runs on real processes: every plan trains, proves itself, and synchronous ones all train alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rpeg.errors import InputError, RunError
from rpeg.plan import Parallelism
from rpeg.runtime import RunDirectory, StepRecord
from rpeg.trace import Trace
from rpeg.verify import prove, prove_run
from runtime.runs import PROMPTS, SAMPLES, Ran, Silent, make_job, plan_for, run, tiny_model

ASYNC = "async{stage=generate,staleness=1,freshness=%s}"
ASSESSMENT = ("reference", "value")
TENSORS, PIPELINE, CONTEXT = Parallelism(tp=2), Parallelism(pp=2), Parallelism(cp=2)
SEQUENCE = Parallelism(tp=2, sequence_parallel=True)
APART = {"generate": 0, "prompts": 0}


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def single(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """PPO on one device in double precision: what every other synchronous plan must repeat."""
    job = make_job(model, tmp_path_factory.mktemp("single") / "run")
    return run(job, plan_for(job, rest=(0,)), in_process=True)


def sampled(ran: Ran) -> dict[tuple[str, int], list[int]]:
    """Ids and tokens counted by generation, by stage and step, whatever the replica."""
    found: dict[tuple[str, int], list[int]] = {}
    for trace in ran.traces:
        for span in trace.spans:
            if span.item.name == "generate":
                key = (span.item.name, span.item.step)
                found[key] = sorted({*found.get(key, []), *span.ids})  # the ranks of a gang have all
    return found


PLANS = {
    "colocated": {},
    "colocated, sharded": {"zero": 3},
    "colocated, streamed": {"transforms": ("stream{chunk=2,unit=sample}",)},
    "split": {"blocks": {"generate": (0,), "reference": (0,), "value": (0,)}, "rest": (1,)},
    "split, streamed by groups": {
        "blocks": {"generate": (0,)},
        "rest": (1,),
        "transforms": ("stream{chunk=1,unit=group}",),
    },
    "fused": {
        "blocks": {"reference+value": (0, 1), "train_actor+train_critic": (0, 1)},
        "transforms": ("fuse{a=reference,b=value}", "fuse{a=train_actor,b=train_critic}"),
    },
    "tensors and sequences cut": {
        "layouts": {"train_actor": SEQUENCE, "train_critic": TENSORS, "reference": TENSORS, "value": TENSORS},
    },
    "engines on the parts of the trainer, and on their own": {
        "layouts": {
            "generate": TENSORS,
            "evaluate": TENSORS,
            "train_actor": SEQUENCE,
            "old_logprob": SEQUENCE,
            "train_critic": TENSORS,
            "value": TENSORS,
        },
        "transforms": ("stream{chunk=2,unit=sample}",),
    },
    "actor in a pipeline, critic's context cut": {
        "layouts": {
            "train_actor": PIPELINE,
            "old_logprob": PIPELINE,
            "train_critic": CONTEXT,
            "value": CONTEXT,
        },
        "recompute": {"train_actor": "full", "train_critic": "selective"},
    },
    "moments in shares, states at rest on the host": {
        "layouts": {"train_actor": Parallelism(dp=2, zero=2), "train_critic": Parallelism(dp=2, zero=1)},
        "offload": {"train_actor": "optimizer", "train_critic": "all", "reference": "all"},
    },
    "four devices, mixed": {
        "rest": (0, 1, 2, 3),
        "blocks": {"generate": (0, 1), "evaluate": (0, 1), "train_critic": (2, 3), "value": (2, 3)},
        "layouts": {
            "train_actor": Parallelism(dp=2, tp=2, zero=3),
            "old_logprob": Parallelism(dp=2, tp=2, zero=3),
            "reference": Parallelism(pp=2, tp=2, sequence_parallel=True),
            "train_critic": PIPELINE,
        },
        "transforms": ("stream{chunk=1,unit=group}",),
    },
    "actor and critic apart, sharded critic elsewhere": {
        "blocks": {"train_critic": (1,), "value": (1,), "train_actor": (0,), "old_logprob": (0,)},
    },
}


@pytest.mark.parametrize("name", PLANS)
def test_synchronous_plans_train_alike(name: str, model: Path, single: Ran, tmp_path: Path) -> None:
    """Same samples, losses and gradient norms to 1e-9, weights to 1e-8, whatever the placement and the parts."""
    job = make_job(model, tmp_path / "run")
    ran = run(job, plan_for(job, **PLANS[name]))  # type: ignore[arg-type]
    assert prove_run(ran.traces).findings == ()
    assert sampled(ran) == sampled(single)
    for one, other in zip(ran.outcome.records, single.outcome.records, strict=True):
        assert one.reward == other.reward
        for metric in ("actor/loss", "critic/loss", "actor/grad_norm", "critic/grad_norm", "response_tokens"):
            assert one.metrics[metric] == pytest.approx(other.metrics[metric], rel=0, abs=1e-9), metric
    assert ran.weights.keys() == single.weights.keys() == {"actor", "critic"}
    for role, tensors in single.weights.items():
        for key, tensor in tensors.items():
            torch.testing.assert_close(ran.weights[role][key], tensor, rtol=0, atol=1e-8, msg=f"{role} {key}")


def test_single_precision_differs_by_rounding_only(model: Path, tmp_path: Path) -> None:
    """The first update, to 1e-5. Later ones magnify rounding, which AdamW divides by its own size."""
    found = []
    batch = {"prompts": PROMPTS, "samples_per_prompt": SAMPLES, "minibatches": 1, "microbatch": 4}
    for name, where in (("one", {"rest": (0,)}), ("two", {"zero": 3})):
        job = make_job(model, tmp_path / name, dtype="float32", steps=1, batch=batch)
        found.append(run(job, plan_for(job, **where)))  # type: ignore[arg-type]
    one, two = found
    assert sampled(one) == sampled(two)
    first, second = one.outcome.records[0], two.outcome.records[0]
    for role in ("actor", "critic"):
        assert second.metrics[f"{role}/loss"] == pytest.approx(first.metrics[f"{role}/loss"], rel=0, abs=1e-5)
        assert second.metrics[f"{role}/grad_norm"] == pytest.approx(
            first.metrics[f"{role}/grad_norm"], rel=1e-5
        )


def test_training_moved_the_weights(single: Ran, model: Path) -> None:
    """The comparison above would hold for runs that train nothing."""
    from safetensors.torch import load_file

    before = load_file(model / "model.safetensors")
    name = next(key for key in before if "mlp" in key)
    assert not torch.allclose(single.weights["actor"][name].float(), before[name].float(), atol=1e-4)
    assert single.outcome.records[-1].metrics["actor/applied"] == 2


@pytest.mark.parametrize("freshness", ["exact", "latest"])
def test_asynchronous_ppo(freshness: str, model: Path, tmp_path: Path) -> None:
    job = make_job(model, tmp_path / "run", steps=4, evaluation={"every": 2, "prompts": 4})
    shifts = {s.name: 1 for s in job.algorithm.graph().stages if s.name not in APART}
    blocks = {"generate": (0,), "evaluate": (0,), "reference": (0,)}
    plan = plan_for(job, blocks, rest=(1,), transforms=(ASYNC % freshness,), shifts=shifts)
    ran = run(job, plan)
    assert prove_run(ran.traces).findings == ()
    staleness = [record.metrics["staleness_max"] for record in ran.outcome.records]
    assert staleness[0] == 0
    assert max(staleness) <= 1
    if freshness == "exact":
        assert staleness == [0, 1, 1, 1]
    assert sorted(ran.outcome.evaluations) == [0, 2, 4]


@pytest.fixture(scope="session")
def grpo(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """GRPO in single precision, split, streamed by groups, with checkpoints on the way."""
    directory = tmp_path_factory.mktemp("grpo") / "run"
    job = make_job(
        model, directory, algorithm="grpo", dtype="float32", steps=3, checkpoint={"every": 1, "keep": 2}
    )
    blocks = {"generate": (0,), "reference": (0,)}
    return run(job, plan_for(job, blocks, rest=(1,), transforms=("stream{chunk=1,unit=group}",)))


def test_grpo(grpo: Ran) -> None:
    assert prove_run(grpo.traces).findings == ()
    assert [record.step for record in grpo.outcome.records] == [0, 1, 2]
    kept = sorted(path.name for path in grpo.outcome.directory.glob("checkpoint-*"))
    assert kept == ["checkpoint-000002", "checkpoint-000003"]


def broken(trace: Trace, **change: object) -> Trace:
    """The trace with one field of its third generation span changed."""
    index = next(i for i, s in enumerate(trace.spans) if s.item.name == "generate" and s.item.step == 2)
    spans = list(trace.spans)
    spans[index] = replace(spans[index], **change)  # type: ignore[arg-type]
    return replace(trace, spans=tuple(spans))


def test_a_real_trace_that_lies_is_caught(grpo: Ran) -> None:
    trace = grpo.traces[0]
    span = next(s for s in trace.spans if s.item.name == "generate" and s.item.step == 2)
    early = broken(trace, start_seconds=span.start_seconds - 1, end_seconds=span.end_seconds - 1)
    assert "clocks_differ_by_a_constant" in prove(early).broken
    assert "reads_are_as_commanded" in prove(broken(trace, reads={"actor": 1})).broken
    assert "each_sample_is_generated_once" in prove(broken(trace, ids=span.ids[:-1])).broken
    assert "each_sample_is_generated_once" in prove(broken(trace, ids=(*span.ids, span.ids[0]))).broken


def test_clocks_may_differ(grpo: Ran) -> None:
    trace = grpo.traces[0]
    shifted = tuple(
        replace(s, start_seconds=s.start_seconds + 1e4, end_seconds=s.end_seconds + 1e4)
        if s.worker == "device0"
        else s
        for s in trace.spans
    )
    assert prove(replace(trace, spans=shifted)).findings == ()


def test_resume_continues_as_if_never_stopped(model: Path, tmp_path: Path) -> None:
    whole = make_job(model, tmp_path / "whole", steps=4)
    plan = plan_for(whole)
    straight = run(whole, plan)
    first = make_job(model, tmp_path / "parts", steps=2)
    run(first, plan)
    second = make_job(model, tmp_path / "parts", steps=4)
    resumed = run(second, None, resume=True)
    assert [trace.first_step for trace in resumed.traces] == [0, 2]
    assert prove_run(resumed.traces).findings == ()
    for role, tensors in straight.weights.items():
        for key, tensor in tensors.items():
            torch.testing.assert_close(
                resumed.weights[role][key], tensor, rtol=0, atol=0, msg=f"{role} {key}"
            )
    recorded = RunDirectory(tmp_path / "parts").steps_recorded()
    assert [record["step"] for record in recorded] == [0, 1, 2, 3]
    with pytest.raises(InputError, match="4 of 4 steps"):
        run(second, None, resume=True)


@pytest.mark.parametrize(
    "where", [{"blocks": {"generate": (0,)}, "rest": (1,)}, {"zero": 3}], ids=["elsewhere", "sharded"]
)
def test_the_exported_model_is_the_trained_one(where: dict[str, object], model: Path, tmp_path: Path) -> None:
    """Also where the first device does not train."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    job = make_job(model, tmp_path / "run", algorithm="grpo", steps=1)
    ran = run(job, plan_for(job, **where), export=True)  # type: ignore[arg-type]
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "model", dtype=torch.float64)
    found = dict(exported.named_parameters())
    for name, tensor in ran.weights["actor"].items():
        torch.testing.assert_close(found[name].detach(), tensor, rtol=0, atol=0)
    assert AutoTokenizer.from_pretrained(tmp_path / "run" / "model").eos_token_id == 258


def test_a_run_in_the_way_is_not_overwritten(grpo: Ran, model: Path) -> None:
    job = make_job(model, grpo.outcome.directory, algorithm="grpo")
    with pytest.raises(InputError, match="--resume"):
        run(job, plan_for(job))


def test_a_worker_that_dies_is_named(model: Path, tmp_path: Path) -> None:
    """A reward function that kills its host: the run ends, says which item it was and how to go on."""
    (tmp_path / "deadly.py").write_text(
        "import os, signal\n"
        "def reward(prompt, response, answer):\n"
        "    os.kill(os.getppid(), signal.SIGKILL)\n"
        "    return 0.0\n"
    )
    job = make_job(
        model, tmp_path / "run", reward={"name": "python:deadly:reward", "import_from": str(tmp_path)}
    )
    with pytest.raises(RunError, match=r"reward\[step 0, .*worker host0.0: the process has died") as caught:
        run(job, plan_for(job))
    assert "The restart before this one brought nothing" in str(caught.value)
    assert "rpeg train --resume" in str(caught.value)


def test_nothing_listens_beyond_this_machine(model: Path, tmp_path: Path) -> None:
    """While a run goes on, no process of it accepts connections on another interface than loopback."""
    import psutil

    seen: set[str] = set()

    class Looking(Silent):
        def on_step(self, record: StepRecord) -> None:
            us = psutil.Process()
            for process in (us, *us.children(recursive=True)):
                connections = process.net_connections(kind="inet")
                seen.update(c.laddr.ip for c in connections if c.status == psutil.CONN_LISTEN)

    job = make_job(model, tmp_path / "run", steps=1)
    run(job, plan_for(job), view=Looking([]))
    assert seen
    assert all(ip.removeprefix("::ffff:").startswith("127.") or ip == "::1" for ip in seen), seen


def test_a_learning_rate_that_destroys_the_weights_is_stopped(model: Path, tmp_path: Path) -> None:
    job = make_job(
        model, tmp_path / "run", algorithm="grpo", dtype="float32", optimizer={"lr": 1e300}, steps=1
    )
    with pytest.raises(RunError, match=r"actor has weights that are no numbers after the updates of step 0"):
        run(job, plan_for(job, rest=(0,)), in_process=True)
    assert list((tmp_path / "run").glob("checkpoint-*[0-9]")) == []


def test_rewards_that_fail_are_told(model: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "def reward(prompt, response, answer):\n    raise ValueError('no such luck')\n"
    )
    reward = {"name": "python:broken:reward", "import_from": str(tmp_path)}
    job = make_job(model, tmp_path / "run", steps=2, reward=reward)
    ran = run(job, plan_for(job, rest=(0,)), in_process=True)
    assert [record.metrics["reward_failed"] for record in ran.outcome.records] == [16, 16]
    (warning,) = [line for line in ran.told if line.startswith("warning") and "rewards fail" in line]
    assert "no such luck" in warning


def test_a_reward_that_takes_too_long_is_counted_and_the_run_goes_on(model: Path, tmp_path: Path) -> None:
    """One call hangs: its sample counts as zero, and the next ones are scored."""
    (tmp_path / "slow.py").write_text(
        "import pathlib, time\n"
        "once = pathlib.Path(__file__).with_suffix('.once')\n"
        "def reward(prompt, response, answer):\n"
        "    if not once.exists():\n"
        "        once.touch()\n"
        "        time.sleep(600)\n"
        "    return 1.0\n"
    )
    reward = {"name": "python:slow:reward", "import_from": str(tmp_path), "time_limit_seconds": 2.0}
    job = make_job(model, tmp_path / "run", algorithm="grpo", steps=2, reward=reward)
    ran = run(job, plan_for(job, rest=(0,)), in_process=True)
    assert [record.metrics["reward_timed_out"] for record in ran.records] == [1, 0]
    assert [record.reward for record in ran.records] == [15 / 16, 1.0]
    assert any("rewards run into their time limit" in line for line in ran.told)
