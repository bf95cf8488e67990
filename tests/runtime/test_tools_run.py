"""A run whose responses call a calculator: its words are read, and only what was drawn is trained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rpeg.errors import InputError
from rpeg.verify import prove_run
from runtime.runs import make_job, plan_for, run, tiny_model

LATER = ("reward", "reference", "old_logprob", "value", "advantage", "train_actor", "train_critic")
# A random model over bytes ends a turn with one of these before long.
ENDS = [chr(code) for code in range(ord("0"), ord("9") + 1)] + [
    chr(code) for code in range(ord("a"), ord("z") + 1)
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tiny_model(tmp_path_factory.mktemp("model"))
    (directory / "my_tool.py").write_text(
        "import time\n"
        "def calculator(prompt, response):\n    return f' <{sum(map(ord, response)) % 97}> '\n"
        "def broken(prompt, response):\n    raise ValueError('no such tool')\n"
    )
    return directory


def tools(model: Path, function: str = "calculator", **options: object) -> dict[str, object]:
    return {
        "function": f"python:my_tool:{function}",
        "import_from": str(model),
        "ends": ENDS,
        "processes": 2,
        "max_calls": 2,
        **options,
    }


@pytest.mark.parametrize("algorithm", ["ppo", "grpo"])
def test_what_a_tool_wrote_is_read_by_all_models_and_trained_by_none(
    algorithm: str, model: Path, tmp_path: Path
) -> None:
    """Trainer and reference compute the log-probabilities of what was drawn after the same tokens as the engine."""
    job = make_job(
        model,
        tmp_path / "run",
        algorithm=algorithm,
        steps=3,
        lengths={"max_prompt": 16, "max_response": 24},
        tools=tools(model),
        samples={"every": 1, "count": 16},
        evaluation={"every": 2, "prompts": 4},
    )
    done = run(job, plan_for(job, rest=(0,)), in_process=True)
    assert prove_run(done.traces).findings == ()
    for record in done.records:
        assert record.metrics["tool_calls"] > 3
        assert record.metrics["tool_failed"] == record.metrics["tool_timed_out"] == 0
        assert abs(record.metrics["behaviour_kl"]) < 1e-12
        assert record.metrics["samples"] == 16
    texts = [
        json.loads(line).get("response", "")
        for file in (tmp_path / "run").rglob("*.jsonl")
        for line in file.read_text().splitlines()
        if '"response"' in line
    ]
    assert any(" <" in text and "> " in text for text in texts)


def test_a_broken_tool_is_counted_and_told(model: Path, tmp_path: Path) -> None:
    job = make_job(
        model,
        tmp_path / "run",
        steps=1,
        lengths={"max_prompt": 16, "max_response": 40},
        tools=tools(model, "broken"),
    )
    done = run(job, plan_for(job, rest=(0,)), in_process=True)
    metrics = done.records[0].metrics
    assert metrics["tool_failed"] == metrics["tool_calls"] > 3
    assert any("calls of the tool fail" in text and "ValueError: no such tool" in text for text in done.told)


def test_responses_of_several_turns_go_on_at_the_next_step(model: Path, tmp_path: Path) -> None:
    job = make_job(
        model,
        tmp_path / "run",
        dtype="float32",
        steps=4,
        lengths={"max_prompt": 16, "max_response": 32},
        tools=tools(model),
        allow={"staleness": 2},
    )
    plan = plan_for(
        job,
        rest=(0,),
        transforms=(
            "async{stage=generate,staleness=2,freshness=latest}",
            "ahead{stage=generate,how=reprefill}",
        ),
        shifts=dict.fromkeys(LATER, 1),
    )
    done = run(job, plan, in_process=True)
    assert prove_run(done.traces).findings == ()
    assert sum(r.metrics["ahead_tokens"] for r in done.records) > 0
    assert sum(r.metrics["tool_calls"] for r in done.records) > 3


def test_an_end_of_several_tokens_is_refused(model: Path, tmp_path: Path) -> None:
    job = make_job(model, tmp_path / "run", steps=1, tools=tools(model, ends=["</tool_call>"]))
    with pytest.raises(Exception, match=r"tools.ends: '</tool_call>' is 12 tokens of this model's tokenizer"):
        run(job, plan_for(job, rest=(0,)), in_process=True)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        ("calculator", "is calculator, must be python:package.module:function"),
        ("python:my_tool:calc", "defines no 'calc'. Known: broken, calculator"),
    ],
)
def test_a_tool_that_is_no_function_is_refused(function: str, text: str, model: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"tools.function.*{text}"):
        make_job(model, tmp_path / "run", tools={"function": function, "import_from": str(model)})
