"""`Prompts`: prompt passes for admitted requests, each distinct prompt once. Of a response that goes on, what there is
of it belongs to its prompt here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from rpeg.backends.generation.forward import Forward
from rpeg.backends.generation.protocol import Request

Prompt = tuple[int, ...]


class Prompts:
    """Fills slots with the keys and values of prompts.

    spare: a slot that no row uses. It keeps the last prompt of each admission, so that samples of it that
    found no
    free slot need no second pass: with requests ordered by prompt it is the only one that can still be waited
    for.
    """

    def __init__(self, forward: Forward, spare: int, pad_token_id: int, pass_tokens: int) -> None:
        self._forward, self._spare, self._pad, self._pass_tokens = forward, spare, pad_token_id, pass_tokens
        self._kept: tuple[Prompt, Tensor] | None = None

    def fill(self, requests: Sequence[Request], first: int) -> Tensor:
        """(m, vocabulary) logits after each request's context, which then lies in slots first, first + 1 …"""
        slots: dict[Prompt, list[int]] = {}
        for slot, request in enumerate(requests, first):
            slots.setdefault(request.context, []).append(slot)
        done: list[Prompt] = []
        logits: list[Tensor] = []
        if self._kept is not None and self._kept[0] in slots:
            done.append(self._kept[0])
            logits.append(self._copy_kept(slots))
        last = requests[-1].context
        for batch in _passes([p for p in slots if p not in done], self._pass_tokens):
            done.extend(batch)
            logits.append(self._pass(batch, slots, last))
        every, row = torch.cat(logits), {prompt: i for i, prompt in enumerate(done)}
        self._kept = (last, every[row[last]].clone())
        return every[self._tensor([row[request.context] for request in requests])]

    def _copy_kept(self, slots: dict[Prompt, list[int]]) -> Tensor:
        assert self._kept is not None
        prompt, logits = self._kept
        targets = slots[prompt]
        self._forward.cache.copy(
            self._tensor([self._spare] * len(targets)), self._tensor(targets), len(prompt)
        )
        return logits.unsqueeze(0)

    def _pass(self, batch: list[Prompt], slots: dict[Prompt, list[int]], last: Prompt) -> Tensor:
        """Logits (len(batch), vocabulary) of one pass; `last`, if among them, goes to the spare slot too."""
        longest = max(map(len, batch))
        tokens = self._tensor([[*prompt, *[self._pad] * (longest - len(prompt))] for prompt in batch])
        target = {p: [*slots[p], self._spare] if p == last else slots[p] for p in batch}
        source = [i for i, prompt in enumerate(batch) for _ in target[prompt]]
        return self._forward.prefill(
            tokens,
            self._tensor([len(prompt) for prompt in batch]),
            self._tensor(source),
            self._tensor([slot for prompt in batch for slot in target[prompt]]),
        )

    def _tensor(self, values: Sequence[int] | Sequence[Sequence[int]]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=self._forward.device)


def _passes(prompts: list[Prompt], pass_tokens: int) -> Iterator[list[Prompt]]:
    """Prompts of similar length together, at most `pass_tokens` padded tokens a pass (or a single prompt)."""
    batch: list[Prompt] = []
    for prompt in sorted(prompts, key=len):
        if batch and (len(batch) + 1) * len(prompt) > pass_tokens:
            yield batch
            batch = []
        batch.append(prompt)
    if batch:
        yield batch
