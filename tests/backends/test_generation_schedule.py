"""The cost model's schedule of a slot engine is what the engine does."""

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from rpeg.backends.generation.protocol import Request, Sampling
from rpeg.backends.generation.slots import SlotEngine
from rpeg.cost.passes.slots import groups_of, schedule

VOCABULARY = 40


@pytest.fixture(scope="module")
def module():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
        bos_token_id=None,
        eos_token_id=None,
    )
    return AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize("slots", [1, 3, 8, 20, 21, 40])
@pytest.mark.parametrize("stops", [1, 5])
def test_the_predicted_schedule_is_the_one_that_runs(module, monkeypatch, slots, stops):
    rng = np.random.default_rng(slots)
    prompts = [tuple(rng.integers(0, VOCABULARY, size=rng.integers(2, 12)).tolist()) for _ in range(7)]
    requests = [Request(i, i // 3, prompts[i // 3]) for i in range(21)]
    engine = SlotEngine(module, pad_token_id=0, slots=slots, device=torch.device("cpu"), max_length=64)
    steps, passes = [], []
    decode, prefill = engine._forward.decode, engine._forward.prefill
    monkeypatch.setattr(
        engine._forward, "decode", lambda t, p, width: steps.append((len(t), width)) or decode(t, p, width)
    )
    monkeypatch.setattr(
        engine._forward,
        "prefill",
        lambda t, *rest: passes.append((len(steps), *t.shape)) or prefill(t, *rest),
    )
    sampling = Sampling(max_new_tokens=12, stop_token_ids=tuple(range(stops)))
    order, lengths, finish = [], {}, {}
    for response in engine.generate(requests, sampling, seed=0, version=0):
        order.append(response.id)
        lengths[response.id], finish[response.id] = len(response), len(steps)

    expected = schedule(
        np.asarray([len(r.prompt) for r in requests]),
        np.asarray([lengths[r.id] for r in requests]),
        groups_of(21, 3),
        slots,
    )
    assert [rows for rows, _ in steps] == expected.rows.tolist()
    assert [width for _, width in steps] == expected.context.tolist()
    assert [finish[r.id] for r in requests] == expected.finish.tolist()
    assert passes == [
        (step, distinct, longest) for step, _, distinct, longest in expected.admissions.tolist() if distinct
    ]
