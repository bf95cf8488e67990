from dataclasses import replace

import pytest

from rpeg.architecture import Architecture
from rpeg.cost import Calibration, Tenant, Use, peak, phases

A = Architecture("small", "llama", 2, 64, 4, 2, 16, 96, 260, 128, tied_embeddings=True)
ACTOR = Tenant("actor", A, trainable=True)
REFERENCE = Tenant("reference", A)
TRAIN = Use(ACTOR, slots=8, context=40, microbatch=4, longest=40, response_tokens=100, publishes=True)
SCORE = Use(REFERENCE, microbatch=8, longest=40, response_tokens=200)


def of(phase: str, uses: list[Use]) -> dict[str, float]:
    return dict(next(m for m in phases(uses) if m.phase == phase).parts)


def test_residents_are_counted_once_a_process() -> None:
    twice = of("update", [TRAIN, replace(TRAIN, slots=0)])
    weights = A.parameters() * 4
    assert twice["actor parameters"] == weights
    assert twice["actor gradients"] == weights
    assert twice["actor moments"] == 2 * weights


def test_only_phases_that_occur_are_listed() -> None:
    assert [m.phase for m in phases([SCORE])] == ["load", "score"]
    assert [m.phase for m in phases([TRAIN])] == [
        "load",
        "generate",
        "update",
        "optimizer",
        "transfer",
        "checkpoint",
    ]


@pytest.mark.parametrize(("zero", "divided"), [(0, 0), (1, 2), (2, 3), (3, 4)])
def test_sharding_divides_what_its_stage_shards(zero: int, divided: int) -> None:
    def held(tenant: Tenant) -> float:
        parts = of("load", [Use(tenant, microbatch=1, longest=8)])
        return sum(parts[f"actor {what}"] for what in ("parameters", "gradients", "moments"))

    weights = A.parameters() * 4
    sharded = held(replace(ACTOR, shards=2, zero=zero))
    # parameters and gradients weigh one, the two moments two
    assert held(ACTOR) - sharded == pytest.approx(divided * weights / 2)


def test_a_shared_module_has_no_weights_of_its_own() -> None:
    shared = of(
        "generate",
        [TRAIN, Use(replace(ACTOR, name="rollout", own_copy=False, trainable=False), slots=4, context=9)],
    )
    assert "rollout parameters" not in shared
    assert shared["rollout KV cache"] > 0


def test_more_of_anything_never_holds_less() -> None:
    base = peak([TRAIN, SCORE]).bytes
    for change in (
        {"microbatch": 8},
        {"longest": 60},
        {"slots": 64},
        {"response_tokens": 200},
        {"context": 80},
    ):
        assert peak([replace(TRAIN, **change), SCORE]).bytes >= base
    assert peak([replace(TRAIN, tenant=replace(ACTOR, recompute=True)), SCORE]).bytes < base
    assert peak([replace(TRAIN, tenant=replace(ACTOR, heads=("lm", "value"))), SCORE]).bytes > base


def test_a_value_model_makes_no_logits() -> None:
    critic = Tenant("critic", A, heads=("value",), trainable=True)
    assert of("update", [replace(TRAIN, tenant=critic)])["critic logits"] == 0


def test_the_context_is_the_measured_one() -> None:
    calibration = Calibration("cpu", "m", "float32", "d", "a", memory_bytes={"context": 123.0})
    assert dict(phases([SCORE], calibration)[0].parts)["context"] == 123.0


def test_the_breakdown_prints_what_it_adds_up() -> None:
    text = str(peak([TRAIN]))
    assert text.startswith("update: ")
    assert "actor activations" in text
    assert "MiB" in text
