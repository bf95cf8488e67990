"""Responses that one replica begins and another finishes are those that nobody would have moved."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from rpeg.backends.generation.protocol import Begun, Request, Response
from rpeg.job import Job
from rpeg.plan import lower
from rpeg.runtime.migrating import handed_over, taken_over
from rpeg.verify import prove_run
from runtime.runs import Ran, counting, make_job, plan_for, run, tiny_model
from runtime.test_structures import assert_alike

EOS = 258
BATCH = {"prompts": 4, "samples_per_prompt": 4, "minibatches": 2, "microbatch": 8}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model that ends its responses at any length."""
    directory = tiny_model(tmp_path_factory.mktemp("model"))
    weights = load_file(directory / "model.safetensors")
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"])
    head[EOS] *= 40
    save_file(weights, directory / "model.safetensors", {"format": "pt"})
    return directory


@pytest.fixture(scope="module")
def job(model: Path) -> Callable[[Path], Job]:
    return lambda output: make_job(
        model,
        output,
        algorithm="grpo",
        batch=BATCH,
        reward=counting(model),
        lengths={"max_prompt": 16, "max_response": 16},
    )


@pytest.fixture(scope="module")
def plain(job: Callable[[Path], Job], tmp_path_factory: pytest.TempPathFactory) -> Ran:
    own = job(tmp_path_factory.mktemp("plain") / "run")
    return run(own, plan_for(own, rest=(0,)), in_process=True)


def test_what_is_handed_over_is_taken_over() -> None:
    def column(values: list[float], dtype: type) -> np.ndarray:
        return np.array(values, dtype=dtype)

    finished = Response(
        7,
        1,
        (5, 6),
        column([1, 2], int),
        column([-1, -2], float),
        column([3, 3], int),
        column([1, 1], bool),
        "stop",
    )
    begun = Request(4, 1, (5, 6), Begun((9, 8, 7), (-0.5, -0.25, 0.0), (3, 3, 3), (True, True, False)))
    waiting = Request(6, 1, (5, 6))
    batch = handed_over([finished], [waiting, begun])
    done, requests = taken_over(batch)
    assert requests == [begun, waiting]
    assert [(r.id, r.group, r.prompt, r.tokens.tolist(), r.finish) for r in done] == [
        (7, 1, (5, 6), [1, 2], "stop")
    ]
    assert taken_over(handed_over([], [])) == ([], [])


@pytest.mark.slow
@pytest.mark.parametrize(
    "texts",
    [
        ("stream{chunk=2,unit=sample}", "migrate{stage=generate,responses=4}"),
        ("stream{chunk=1,unit=group}", "migrate{stage=generate,responses=8}"),
    ],
    ids=["samples", "groups"],
)
def test_a_run_with_migration_trains_as_one_device_does(
    texts: tuple[str, ...], job: Callable[[Path], Job], plain: Ran, tmp_path: Path
) -> None:
    own = job(tmp_path / "run")
    plan = plan_for(own, transforms=texts)
    ran = run(own, plan)
    assert_alike(ran, plain)
    assert prove_run(ran.traces).findings == ()
    lowered = lower(plan.graph, plan.assignments, plan.workload)
    last = [task.slot for task in lowered.tasks_of("generate") if task.finishes]
    spans = [span for span in ran.traces[0].spans if span.item.slot in last]
    assert [len(span.ids) for span in spans] == [plan.graph.stage("generate").migrates] * 2
    tokens = [record.metrics["response_tokens"] for record in ran.records]
    assert all(16 < n < 16 * 16 for n in tokens)  # some responses are shorter than others
