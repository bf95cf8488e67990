"""A few runs that really ran: one device in this process, a random two-layer model, a resume, dynamic sampling."""

from __future__ import annotations

from pathlib import Path

from rpeg.job import Job
from rpeg.runtime import Options, prepare_directory, train
from rpeg.trace import read_traces
from runtime.runs import Silent, counting, make_job, plan_for, tiny_model
from verify.lies import Run
from verify.sound_runs import LATER

SOMETIMES = (
    "def reward(prompt, response, answer):\n    return float(len(response) % 2 and prompt[0] in '1357')\n"
)
"""Nothing is earned by answers to some prompts, whose groups are turned down."""
SMALL = {"dtype": "float32", "evaluation": {"every": 2, "prompts": 4}}


def real_runs(directory: Path) -> list[Run]:
    """PPO a step ahead, streamed, stopped and resumed; GRPO in minibatches as they come; DAPO with rejected groups."""
    model = tiny_model(directory / "model")
    stale = "async{stage=generate,staleness=1,freshness=exact}"
    ppo = make_job(model, directory / "ppo", steps=2, checkpoint={"every": 2}, **SMALL)
    later = dict.fromkeys(LATER, 1)
    plan = plan_for(ppo, rest=(0,), transforms=(stale, "stream{chunk=2,unit=sample}"), shifts=later)
    _run(ppo, plan)
    _run(make_job(model, directory / "ppo", steps=4, checkpoint={"every": 2}, **SMALL), None, resume=True)
    grpo = make_job(
        model,
        directory / "grpo",
        algorithm="grpo",
        reward=counting(model),
        steps=3,
        hyper={"kl_in": "none"},
        **SMALL,
    )
    streams = ("stream{chunk=1,unit=group}", "stream{chunk=1,unit=minibatch}")
    _run(grpo, plan_for(grpo, rest=(0,), transforms=streams))
    (directory / "sometimes.py").write_text(SOMETIMES)
    reward = {"name": "python:sometimes:reward", "import_from": str(directory)}
    rounds = {"max_rounds": 3}
    dapo = make_job(
        model, directory / "dapo", algorithm="dapo", reward=reward, selection=rounds, steps=3, **SMALL
    )
    _run(dapo, plan_for(dapo, rest=(0,)))
    return [read_traces(directory / name) for name in ("ppo", "grpo", "dapo")]


def _run(job: Job, plan: object, *, resume: bool = False) -> None:
    options = Options(in_process=True, resume=resume, export=False, stall_seconds=120)
    run, found, start = prepare_directory(job, plan, options)  # type: ignore[arg-type]
    assert found is not None
    train(job, found, run, start, options, Silent([]))
