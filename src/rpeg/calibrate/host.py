"""Probes of work on whole batches in Python: column operations, verifying, joining, collecting responses."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch

from rpeg.algorithms import ppo
from rpeg.backends.generation.protocol import Request, Response, to_samples
from rpeg.backends.reward.verifiers import numeric
from rpeg.backends.samples import Samples, join
from rpeg.calibrate.probe import Probe
from rpeg.calibrate.shapes import Points


def probes(points: Points) -> Iterator[Probe]:
    """`columns` (generalised advantages, the longest that are common), `reward`, `join` and `collect`, by samples."""
    length, tokenizer = points.forward[1][-1] // 2, _tokenizer()
    for samples in points.samples:
        columns, mask = _columns(samples, length)

        def run(columns: dict[str, torch.Tensor] = columns, mask: torch.Tensor = mask) -> None:
            have = dict(columns)
            for name in ("kl_penalty", "gae", "whiten"):
                have.update(ppo.OPS[name](have, mask, ppo.Hyper()))

        yield Probe("columns", (samples,), run)
        batch, responses = _batch(samples, length), _responses(samples, length)
        halves = [batch.columns(("old_logprobs", "rewards")), batch]
        yield Probe("reward", (samples,), partial(_verify, tokenizer, samples))
        yield Probe("join", (samples,), partial(join, halves, batch.ids[::-1]))
        yield Probe("collect", (samples,), partial(_collect, responses))


def _columns(samples: int, length: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    generator = np.random.default_rng(samples)
    names = ("old_logprobs", "ref_logprobs", "values")
    columns = {name: torch.from_numpy(generator.normal(size=(samples, length))) for name in names}
    columns["rewards"] = torch.zeros(samples, dtype=torch.float64)
    lengths = torch.from_numpy(generator.integers(1, length + 1, samples))
    return columns, torch.arange(length) < lengths[:, None]


def _batch(samples: int, length: int) -> Samples:
    flat = np.zeros(samples * length)
    return Samples(
        np.arange(samples),
        np.full(samples, length),
        {"old_logprobs": flat, "behaviour_logprobs": flat},
        {"rewards": np.zeros(samples), "group": np.arange(samples)},
        np.ones(samples * length, dtype=np.int64),
        np.full(samples, length),
        np.ones(samples * length, dtype=np.int64),
    )


def _responses(samples: int, length: int) -> list[Response]:
    tokens, prompt = np.ones(length, dtype=np.int64), (1,) * length
    logprobs, drawn = np.zeros(length), np.ones(length, dtype=np.bool_)
    return [Response(i, i, prompt, tokens, logprobs, tokens, drawn, "stop") for i in range(samples)]


def _collect(responses: list[Response]) -> None:
    requests = [Request(r.id, r.group, (*r.prompt,)) for r in responses]
    assert len(to_samples(responses)) == len(requests)


def _verify(tokenizer: Any, samples: int) -> None:
    """Decodes responses to text and checks each."""
    rows = [list(f"the answer is {number}".encode()) for number in range(samples)]
    for number, text in enumerate(tokenizer.batch_decode(rows, skip_special_tokens=True)):
        numeric.reward("", text, str(number))


def _tokenizer() -> Any:
    """A byte-level tokenizer: a job's own is not known here, and decoding costs about the same with any."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    plain = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(alphabet)}, merges=[]))
    plain.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=plain)
