"""Do the backends do on another device what they do on the CPU?

    python benchmarks/device.py --device cuda

Generates and trains with the bundled model in double precision on the CPU and on the device: the sampled tokens must be
the same, log-probabilities agree to 1e-5 and weights after two updates to 1e-4. Closer they cannot be: Hugging Face's
Llama computes norms and rotary angles in single precision whatever the model's dtype. Then times generation in the dtypes
that the device is used in, and checks the canary between engine and trainer there. Needs neither Ray nor a network.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import rpeg
from rpeg import algorithms
from rpeg.algorithms.loss import token_weights
from rpeg.backends.generation.protocol import Request, Sampling, to_samples
from rpeg.backends.generation.slots import SlotEngine
from rpeg.backends.models import PolicyModel, load_model
from rpeg.backends.samples import Samples
from rpeg.backends.training.optimizer import OptimizerConfig
from rpeg.backends.training.trainer import Trainer
from rpeg.backends.weights import canary_logprobs, canary_tokens, check_canary

ASSETS = Path(rpeg.__file__).parent / "assets"
PROMPTS = ("53 + 29 =", "11 + 18 =", "77 + 45 =", "90 + 10 =")
EOS = 258


@dataclass(frozen=True)
class Outcome:
    """What one device made of the same work."""

    samples: Samples
    weights: dict[str, torch.Tensor]
    loss: float


def requests(count: int) -> list[Request]:
    return [Request(i, i // 8, tuple(PROMPTS[i // 8 % len(PROMPTS)].encode())) for i in range(count)]


def load(device: str, dtype: torch.dtype) -> PolicyModel:
    return load_model(str(ASSETS / "tiny"), heads=("lm",), dtype=dtype, device=device)


def generate(model: PolicyModel, device: str, count: int, most: int = 22) -> Samples:
    engine = SlotEngine(model.hf, pad_token_id=256, slots=count, device=torch.device(device), max_length=64)
    sampling = Sampling(max_new_tokens=most, stop_token_ids=(EOS,))
    return to_samples(engine.generate(requests(count), sampling, seed=1, version=0))


def work(device: str) -> Outcome:
    """64 responses and two updates in double precision."""
    model = load(device, torch.float64)
    samples = generate(model, device, 64)
    trainer = Trainer(model, optimizer=OptimizerConfig(lr=1e-3))
    old = trainer.logprobs(samples, temperature=1.0, microbatch=16)
    np.testing.assert_allclose(old, samples.token["behaviour_logprobs"], atol=1e-5)
    advantages = np.sin(np.arange(len(old)))
    ready = samples.with_columns({"old_logprobs": old, "advantages": advantages})
    grpo = algorithms.load("grpo")
    hyper = grpo.Hyper(kl_in="none")
    halves = [ready.rows(np.arange(32)), ready.rows(np.arange(32, 64))]
    weights = [token_weights(half.lengths, "token_mean") for half in halves]
    metrics = trainer.train(
        halves,
        weights,
        lambda columns, mask: grpo.OPS["grpo_policy_loss"](columns, mask, hyper),
        microbatch=16,
    )
    return Outcome(samples, {n: p.detach().cpu() for n, p in model.named_parameters()}, metrics["loss"])


def compare(one: Outcome, other: Outcome) -> None:
    assert one.samples.responses is not None
    same = np.array_equal(one.samples.responses, other.samples.responses)
    logprobs = np.abs(
        one.samples.token["behaviour_logprobs"] - other.samples.token["behaviour_logprobs"]
    ).max()
    weights = max(float((one.weights[n] - other.weights[n]).abs().max()) for n in one.weights)
    print(f"same tokens: {same}; largest difference: logprobs {logprobs:.1e}, weights {weights:.1e}")
    print(f"loss: {one.loss:.12f} and {other.loss:.12f}")
    assert same
    assert logprobs < 1e-5
    assert weights < 1e-4


def speed(device: str, dtype: torch.dtype, count: int) -> None:
    """Tokens a second of generation, and the canary between the engine's module and a trainer's."""
    model = load(device, dtype)
    generate(model, device, count)
    start = time.perf_counter()
    samples = generate(model, device, count)
    seconds = time.perf_counter() - start
    tokens = canary_tokens(model.vocab_size)
    difference = check_canary(canary_logprobs(model.hf, tokens), Trainer(model).canary(tokens), dtype)
    print(
        f"{dtype}: {samples.lengths.sum() / seconds:,.0f} tokens/s at {count} rows; canary differs by {difference:.1e}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    device = parser.parse_args().device
    name = torch.cuda.get_device_name() if device.startswith("cuda") else "cpu"
    print(f"{name}, torch {torch.__version__}, {Path(__file__).name}")
    compare(work("cpu"), work(device))
    for dtype in (torch.float32, torch.bfloat16):
        speed(device, dtype, 512)


if __name__ == "__main__":
    main()
