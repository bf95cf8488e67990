"""Probes of the generation engine: prompt passes, admissions, decode steps, departures."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from rpeg.backends.generation.protocol import Request, Sampling
from rpeg.backends.generation.slots import SlotEngine
from rpeg.calibrate.probe import Probe
from rpeg.calibrate.shapes import Points

_ADMIT_PROMPT = 8


def probes(
    module: nn.Module, points: Points, device: torch.device, context: int, vocabulary: int
) -> list[Probe]:
    """Probes named `decode`, `distinct`, `same`, `staying` and `leaving`; `tables` turns them into ops."""
    rows = max(points.decode[0][-1], points.prefill[0][-1], 2 * max(points.leave, default=0))
    engine = SlotEngine(module, pad_token_id=0, slots=rows, device=device, max_length=context)
    return [
        *_decoding(engine, points),
        *_prefilling(engine, points, vocabulary),
        *_leaving(engine, points),
    ]


def _decoding(engine: SlotEngine, points: Points) -> Iterator[Probe]:
    for rows in points.decode[0]:
        for width in points.decode[1]:

            def before(rows: int = rows, width: int = width) -> None:
                engine.seed_rows(rows, width - 1)

            yield Probe("decode", (rows, width), engine.decode, before)


def _prefilling(engine: SlotEngine, points: Points, vocabulary: int) -> Iterator[Probe]:
    for rows in points.prefill[0]:
        for tokens in points.prefill[1]:
            yield _prefill(engine, "distinct", (rows, tokens), _requests(rows, tokens, vocabulary))
    for rows in points.decode[0]:
        yield _prefill(engine, "same", (rows,), [Request(i, 0, (1,) * _ADMIT_PROMPT) for i in range(rows)])


def _prefill(engine: SlotEngine, op: str, shape: tuple[int, ...], requests: list[Request]) -> Probe:
    def before() -> None:
        engine.clear()
        engine.start(Sampling(max_new_tokens=4), rows=len(requests))

    return Probe(op, shape, lambda: engine.prefill(requests), before)


def _requests(rows: int, tokens: int, vocabulary: int) -> list[Request]:
    """Requests whose prompts differ in their first tokens."""
    prompts = [
        ((i % vocabulary), (i // vocabulary) % vocabulary, *(2,) * tokens)[:tokens] for i in range(rows)
    ]
    return [Request(i, i, prompt) for i, prompt in enumerate(prompts)]


def _leaving(engine: SlotEngine, points: Points) -> Iterator[Probe]:
    """A decode step after which the first n of 2n rows leave and the others take their slots, and one where none do."""
    for half in points.leave:
        for op, tokens in (("staying", 4), ("leaving", 3)):

            def before(half: int = half, tokens: int = tokens) -> None:
                engine.clear()
                engine.start(Sampling(max_new_tokens=tokens), rows=2 * half)
                engine.prefill([Request(i, 0, (1,) * _ADMIT_PROMPT) for i in range(half)])
                engine.decode()
                engine.prefill([Request(half + i, 0, (1,) * _ADMIT_PROMPT) for i in range(half)])

            yield Probe(op, (half,), engine.decode, before)
