"""How fast slots generate beside Hugging Face `generate`, on one CPU thread.

    OMP_NUM_THREADS=1 python benchmarks/generation.py [--rounds 7] [--tokens-only]

Random weights of the size of the bundled model; stop tokens are a share of the vocabulary, which makes
lengths geometric. Both engines draw from the same distribution; the figure is seconds per generated token,
the two alternating, and its median ratio.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from rpeg.backends.generation.protocol import Request, Sampling
from rpeg.backends.generation.slots import SlotEngine

VOCABULARY = 259
# name: prompts, samples a prompt, longest response, stop tokens of the vocabulary
CASES = {
    "32 rows, 1-16 tokens": (4, 8, 16, 30),
    "128 rows, 1-16 tokens": (16, 8, 16, 30),
    "512 rows, 1-16 tokens": (64, 8, 16, 30),
    "128 rows, 1-64 tokens, mean 17": (16, 8, 64, 15),
    "512 rows, 1-128 tokens, mean 60": (64, 8, 128, 4),
    "32 rows, 128 tokens": (4, 8, 128, 0),
    "128 rows, 64 tokens": (16, 8, 64, 0),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--slots", type=int, default=256)
    parser.add_argument("--tokens-only", action="store_true", help="spare `generate` the log-probabilities")
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=options.hidden,
            intermediate_size=4 * options.hidden,
            num_hidden_layers=options.layers,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=256,
            bos_token_id=None,
            eos_token_id=None,
        )
    ).eval()
    engine = SlotEngine(
        model, pad_token_id=0, slots=options.slots, device=torch.device("cpu"), max_length=256
    )
    print(f"{'case':34}{'generate tok/s':>15}{'slots tok/s':>13}{'ratio':>8}")
    for name, case in CASES.items():
        print(f"{name:34}", end="", flush=True)
        slow, fast = measure(model, engine, case, options.rounds, not options.tokens_only)
        ratio = statistics.median(a / b for a, b in zip(slow, fast, strict=True))
        print(f"{1 / statistics.median(slow):15.0f}{1 / statistics.median(fast):13.0f}{ratio:8.2f}")


def measure(
    model: torch.nn.Module, engine: SlotEngine, case: tuple[int, int, int, int], rounds: int, scores: bool
) -> tuple[list[float], list[float]]:
    """Seconds a generated token of `generate` and of slots, by round."""
    prompts, samples, longest, stops = case
    rng = np.random.default_rng(0)
    texts = [tuple(rng.integers(40, VOCABULARY, size=rng.integers(8, 13)).tolist()) for _ in range(prompts)]
    requests = [Request(p * samples + k, p, text) for p, text in enumerate(texts) for k in range(samples)]
    sampling = Sampling(max_new_tokens=longest, stop_token_ids=tuple(range(1, stops + 1)))
    slow, fast = [], []
    for turn in range(rounds + 1):
        slow.append(seconds_a_token(lambda: with_generate(model, requests, sampling, scores)))
        fast.append(seconds_a_token(lambda turn=turn: with_slots(engine, requests, sampling, turn)))
    return slow[1:], fast[1:]


def seconds_a_token(run: Callable[[], int]) -> float:
    """CPU seconds, which on one thread are wall seconds that other processes do not blur."""
    start = time.process_time()
    tokens = run()
    return (time.process_time() - start) / tokens


def with_slots(engine: SlotEngine, requests: list[Request], sampling: Sampling, seed: int) -> int:
    return sum(len(r) for r in engine.generate(requests, sampling, seed=seed, version=0))


def with_generate(model: torch.nn.Module, requests: list[Request], sampling: Sampling, scores: bool) -> int:
    """All requests in one left-padded batch, with the behaviour log-probabilities if wanted.

    Returns the number of tokens up to each row's first stop token.
    """
    width = max(len(r.prompt) for r in requests)
    ids = torch.tensor([[*[0] * (width - len(r.prompt)), *r.prompt] for r in requests])
    mask = torch.tensor([[*[0] * (width - len(r.prompt)), *[1] * len(r.prompt)] for r in requests])
    out = model.generate(
        input_ids=ids,
        attention_mask=mask,
        max_new_tokens=sampling.max_new_tokens,
        do_sample=True,
        top_k=0,
        top_p=1.0,
        pad_token_id=0,
        eos_token_id=list(sampling.stop_token_ids) or None,
        output_scores=scores,
        return_dict_in_generate=True,
    )
    tokens = out.sequences[:, width:]
    if scores:
        torch.stack(out.scores, 1).log_softmax(-1).gather(-1, tokens.unsqueeze(-1))
    stops = torch.isin(tokens, torch.tensor(sampling.stop_token_ids, dtype=torch.int64))
    return int((stops.cumsum(-1) - stops.long() == 0).sum())


if __name__ == "__main__":
    main()
