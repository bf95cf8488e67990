import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig, MistralConfig, Qwen2Config

from rpeg.backends.generation import backend
from rpeg.backends.generation.protocol import Request, Sampling, to_samples
from rpeg.backends.generation.slots import SlotEngine
from rpeg.errors import InputError, RunError

VOCABULARY, LIMIT = 40, 64
COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": LIMIT,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
GPT2 = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": LIMIT}
CONFIGS = {
    "llama": lambda: LlamaConfig(**COMMON),
    "qwen2": lambda: Qwen2Config(**COMMON),
    "gpt2": lambda: GPT2Config(**GPT2, bos_token_id=None, eos_token_id=None),
    "sliding mistral": lambda: MistralConfig(**COMMON, sliding_window=5),
    "mixed qwen2": lambda: Qwen2Config(
        **COMMON, use_sliding_window=True, sliding_window=4, max_window_layers=1
    ),
}
SAMPLING = Sampling(temperature=1.3, max_new_tokens=12, stop_token_ids=(3, 4, 5))
CPU = torch.device("cpu")


def model(name="llama", dtype=torch.float64, attention="sdpa"):
    torch.manual_seed(0)
    module = AutoModelForCausalLM.from_config(CONFIGS[name](), attn_implementation=attention).to(dtype)
    with torch.no_grad():
        for parameter in module.parameters():  # far from uniform, so that a wrong mask shows
            parameter.mul_(4)
    return module


def engine(module, slots=8, **options):
    return SlotEngine(module, pad_token_id=0, slots=slots, device=CPU, max_length=LIMIT, **options)


def requests(prompts=6, samples=3, seed=0):
    rng = np.random.default_rng(seed)
    texts = [tuple(rng.integers(0, VOCABULARY, size=rng.integers(1, 12)).tolist()) for _ in range(prompts)]
    return [Request(1000 + p * samples + k, p, text) for p, text in enumerate(texts) for k in range(samples)]


def generated(module, wanted, sampling=SAMPLING, slots=8, seed=7, **options):
    responses = engine(module, slots, **options).generate(wanted, sampling, seed=seed, version=3)
    return {response.id: response for response in responses}


def recomputed(module, response, temperature):
    """Log-probabilities of the response's tokens by one full forward without cache or padding."""
    with torch.no_grad():
        logits = module(input_ids=torch.tensor([[*response.prompt, *response.tokens]])).logits[0]
    logprobs = (logits.double() / temperature).log_softmax(-1)[len(response.prompt) - 1 : -1]
    return logprobs.gather(1, torch.from_numpy(response.tokens)[:, None])[:, 0].numpy()


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_recorded_logprobs_are_those_of_a_plain_forward(name, dtype, tolerance):
    module = model(name, dtype).eval()
    got = generated(module, requests(), slots=5)
    assert len({len(r) for r in got.values()}) > 3
    for response in got.values():
        assert response.logprobs == pytest.approx(
            recomputed(module, response, SAMPLING.temperature), abs=tolerance
        )


def test_eager_attention_gets_an_additive_mask():
    """Eager attention takes its softmax in float32, hence the tolerance."""
    module = model("qwen2", attention="eager").eval()
    for response in generated(module, requests(3, 2)).values():
        assert response.logprobs == pytest.approx(recomputed(module, response, 1.3), abs=1e-4)


@pytest.fixture(scope="module")
def reference():
    module = model()
    return module, generated(module, requests(), slots=64)


@settings(max_examples=15, deadline=None)
@given(
    slots=st.integers(1, 20),
    parts=st.integers(1, 3),
    prefill_tokens=st.integers(1, 60),
    order=st.permutations(list(range(18))),
)
def test_samples_do_not_depend_on_slots_order_or_engine(reference, slots, parts, prefill_tokens, order):
    module, expected = reference
    wanted = [requests()[i] for i in order]
    got = {}
    for part in range(parts):
        got |= generated(module, wanted[part::parts], slots=slots, prefill_tokens=prefill_tokens)
    assert got.keys() == expected.keys()
    for key, response in got.items():
        assert response.tokens.tolist() == expected[key].tokens.tolist()
        assert response.logprobs == pytest.approx(expected[key].logprobs, abs=1e-12)
        assert (response.group, response.prompt, response.finish) == (
            expected[key].group,
            expected[key].prompt,
            expected[key].finish,
        )


def test_a_response_ends_at_its_first_stop_token_or_at_the_limit(reference):
    _, responses = reference
    assert {r.finish for r in responses.values()} == {"stop", "length"}
    for response in responses.values():
        *before, last = response.tokens.tolist()
        assert not set(before) & set(SAMPLING.stop_token_ids)
        assert (last in SAMPLING.stop_token_ids) == (response.finish == "stop")
        assert len(response) == 12 or response.finish == "stop"
        assert response.versions.tolist() == [3] * len(response)


def test_seed_and_id_key_the_randomness(reference):
    module, expected = reference
    other = generated(module, requests(), seed=8)
    assert sum(other[k].tokens.tolist() == expected[k].tokens.tolist() for k in other) < 6
    assert len({tuple(expected[1000 + k].tokens.tolist()) for k in range(3)}) > 1


def test_short_responses_come_before_long_ones_end(reference):
    module, _ = reference
    one = engine(module, slots=18)
    responses = one.generate(requests(), SAMPLING, seed=7, version=3)
    first = next(responses)
    assert len(first) == 1
    assert one.active
    lengths = [len(first), *(len(r) for r in responses)]
    assert lengths == sorted(lengths)
    assert not one.active


def test_each_prompt_is_computed_once(monkeypatch):
    module = model()
    one = engine(module, slots=2)
    passes = []
    prefill = one._forward.prefill
    monkeypatch.setattr(one._forward, "prefill", lambda t, *rest: passes.append(len(t)) or prefill(t, *rest))
    assert len(list(one.generate(requests(4, 5), SAMPLING, seed=0, version=0))) == 20
    assert sum(passes) == 4


def test_greedy_is_the_argmax_of_a_plain_forward():
    module = model().eval()
    sampling = Sampling(greedy=True, max_new_tokens=6)
    for response in generated(module, requests(3, 1), sampling).values():
        with torch.no_grad():
            logits = module(input_ids=torch.tensor([[*response.prompt, *response.tokens]])).logits[0]
        assert logits[len(response.prompt) - 1 : -1].argmax(-1).tolist() == response.tokens.tolist()


def test_dropout_is_off_while_generating_and_the_mode_is_put_back():
    module = model("gpt2").train()
    got = generated(module, requests(2, 2))
    assert module.training
    assert got.keys() == {r.id for r in requests(2, 2)}
    for response in got.values():
        assert response.logprobs == pytest.approx(recomputed(module.eval(), response, 1.3), abs=1e-10)


def test_new_weights_are_used_at_once():
    module = model()
    one = engine(module)
    before = list(one.generate(requests(), SAMPLING, seed=7, version=0))
    with torch.no_grad():
        module.lm_head.weight.neg_()
    one.drop_caches()
    after = list(one.generate(requests(), SAMPLING, seed=7, version=1))
    for response in after:
        assert response.logprobs == pytest.approx(recomputed(module.eval(), response, 1.3), abs=1e-10)
    assert {tuple(r.tokens) for r in before} != {tuple(r.tokens) for r in after}


def test_buffers_are_reused_and_freed():
    one = engine(model())
    list(one.generate(requests(), SAMPLING, seed=0, version=0))
    held = one.cache_bytes
    list(one.generate(requests(), SAMPLING, seed=1, version=0))
    assert one.cache_bytes == held > 0
    one.sleep()
    assert one.cache_bytes == 0
    assert len(list(one.generate(requests(), SAMPLING, seed=0, version=0))) == 18


def test_weights_cannot_change_under_active_rows():
    one = engine(model())
    responses = one.generate(requests(), SAMPLING, seed=0, version=0)
    next(responses)
    with pytest.raises(RunError, match="rows are active"):
        one.drop_caches()
    with pytest.raises(RunError, match="going on"):
        next(one.generate(requests(), SAMPLING, seed=0, version=0))
    responses.close()
    one.drop_caches()
    assert one.active == 0


def test_steps_can_be_run_alone_at_a_chosen_shape():
    one = engine(model(), slots=16)
    one.seed_rows(10, 20)
    assert one.decode() == []
    assert one.active == 10
    one.clear()
    one.start(SAMPLING, rows=16)
    finished = one.prefill(requests(4, 4))
    assert one.active + len(finished) == 16
    with pytest.raises(InputError, match="1 to 16 rows"):
        one.seed_rows(17, 4)


def test_seeded_rows_last_to_the_context_limit():
    one = engine(model(), slots=2)
    one.seed_rows(2, LIMIT - 2)
    assert one.decode() == []
    assert len(one.decode()) == 2


def test_no_requests_give_no_responses():
    assert list(engine(model()).generate([], SAMPLING, seed=0, version=0)) == []


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request(9, 0, (1,) * 53), "request 9: prompt of 53 tokens .* max_new_tokens 12 .* limit of 64"),
        (Request(9, 0, ()), "request 9 has an empty prompt"),
        (Request(9, 0, (1, VOCABULARY)), "token 40, outside the vocabulary of 40"),
    ],
)
def test_requests_that_cannot_be_served_are_refused_before_anything_runs(request_, message):
    with pytest.raises(InputError, match=message):
        engine(model()).generate([request_], SAMPLING, seed=0, version=0)


def test_equal_ids_are_refused():
    with pytest.raises(InputError, match="same id"):
        engine(model()).generate([Request(1, 0, (1,)), Request(1, 1, (2,))], SAMPLING, seed=0, version=0)


def test_destroyed_weights_are_noticed_and_named():
    module = model()
    with torch.no_grad():
        module.lm_head.weight[0, 0] = float("nan")
    with pytest.raises(RunError, match=r"sample 10\d\d .* version 3"):
        generated(module, requests())


def test_responses_become_samples_in_order_of_id(reference):
    _, responses = reference
    batch = to_samples(reversed(list(responses.values())))
    assert batch.ids.tolist() == sorted(responses)
    assert batch.lengths.tolist() == [len(responses[i]) for i in sorted(responses)]
    last = responses[batch.ids[-1]]
    assert batch.rows([17]).responses.tolist() == last.tokens.tolist()
    assert batch.rows([17]).prompts.tolist() == list(last.prompt)
    assert batch.rows([17]).token["behaviour_logprobs"].tolist() == last.logprobs.tolist()
    assert batch.sample["finish"][-1] == (last.finish == "stop")


def test_backends_are_found_by_name():
    assert backend("slots") is SlotEngine
    with pytest.raises(InputError, match="Did you mean 'slots'"):
        backend("slotz")
