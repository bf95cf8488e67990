"""`SlotEngine`: continuous batching over an unchanged Hugging Face causal language model.

A slot is a row of the KV cache. Waiting requests are prefilled into free slots, several prompts a pass and
each prompt once for all its samples; every decode step adds one token to each active slot; finished samples
leave at once and the last rows move into their slots, so that a step costs what its active rows cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from rpeg.backends.generation.forward import Forward
from rpeg.backends.generation.prompts import Prompts
from rpeg.backends.generation.protocol import Request, Response, Sampling
from rpeg.backends.generation.rows import Rows
from rpeg.backends.generation.sampling import draw
from rpeg.backends.samples import Ints
from rpeg.errors import InputError, RunError

# A prompt pass has a fixed cost, as a decode step has: refilling slots one by one would pay it for each.
_REFILL_SHARE = 0.25


class SlotEngine:
    """A generation engine with `slots` rows on `device`.

    module: see `Forward`; it is never copied, so that it may be the very module that a trainer updates.
    pad_token_id: any id of the vocabulary; fills up short prompts and is never attended to.
    max_length: longest prompt + response in tokens; the model's own context limit holds too.
    prefill_tokens: padded tokens of one prompt pass, which bounds its activations.

    `generate` is all that a run needs. Its two steps can also be timed alone:

        engine.seed_rows(n, context)   # n active rows with `context` cached tokens each, without meaning
        engine.decode()                # one step at that shape; afterwards each row has one token more
        engine.clear()
        engine.start(sampling, rows=n)
        engine.prefill(requests)       # one prompt pass, the draw of the first tokens included
        engine.clear()
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        pad_token_id: int,
        slots: int,
        device: torch.device,
        max_length: int,
        prefill_tokens: int = 8192,
    ) -> None:
        if slots < 1:
            raise InputError(f"slots is {slots}, must be >= 1")
        self.slots = slots
        self.module = module
        self._pad, self._prefill_tokens = pad_token_id, prefill_tokens
        self._forward = Forward(module, device, max_length)
        self._rows: Rows | None = None
        self._prompts: Prompts | None = None

    @property
    def active(self) -> int:
        """Rows that are being generated now."""
        return len(self._rows) if self._rows is not None else 0

    @property
    def cache_bytes(self) -> int:
        """Memory that KV buffers hold now."""
        return self._forward.cache.bytes

    def generate(
        self, requests: Sequence[Request], sampling: Sampling, *, seed: int, version: int
    ) -> Iterator[Response]:
        """Each response as soon as it is finished.

        A response depends on (weights, request, sampling, seed) only: not on slots, order or company, up to
        rounding (in float64 the tokens are the same). The weights must not change until the iterator is
        exhausted or closed; `version` is what the responses say about them. The module's training mode is put
        back at the end. Raises InputError at once for requests that cannot be served; RunError for logits
        that are no numbers.
        """
        _check(requests, sampling, self._forward)
        return self._run(_by_prompt(requests), sampling, seed, version)

    def start(self, sampling: Sampling, *, rows: int, seed: int = 0, version: int = 0) -> None:
        """Makes room for `rows` rows, none of them active. Raises RunError if a generation is going on."""
        if self._rows is not None:
            raise RunError(
                f"a generation with {self.active} active rows is going on; exhaust or close its iterator"
            )
        self._rows = Rows(rows, self._forward.vocabulary, sampling, seed, version)
        self._prompts = Prompts(self._forward, rows, self._pad, self._prefill_tokens)

    def clear(self) -> None:
        """Abandons all rows. KV buffers stay for the next call."""
        self._rows = self._prompts = None

    def drop_caches(self) -> None:
        """To be called when the weights have changed. Raises RunError while rows depend on the old ones.

        No row reads what another call has written, so the buffers can stay; `sleep` frees them.
        """
        if self.active:
            raise RunError(f"{self.active} rows are active; exhaust or close the iterator before new weights")

    def sleep(self) -> None:
        """Frees the KV buffers; the next call allocates them anew. Raises RunError while rows are active."""
        self.drop_caches()
        self._forward.cache.drop()

    def prefill(self, requests: Sequence[Request]) -> list[Response]:
        """Admits requests and draws their first tokens; returns those that are finished with it."""
        rows, first = self._started(), len(self._started())
        assert self._prompts is not None
        if first + len(requests) > rows.capacity:
            raise InputError(f"{len(requests)} requests for {rows.capacity - first} free rows")
        with self._forward.mode():
            self._reserve(max(len(request.prompt) for request in requests) + 1)
            rows.admit(requests)
            return self._advance(self._prompts.fill(requests, first), first)

    def decode(self) -> list[Response]:
        """One token more for every active row; returns the rows finished by it."""
        rows = self._started()
        positions = rows.positions
        width = int(positions.max()) + 1
        with self._forward.mode():
            self._reserve(width)
            logits = self._forward.decode(self._tensor(rows.last_tokens), self._tensor(positions), width)
            return self._advance(logits, 0)

    def seed_rows(self, rows: int, context: int) -> None:
        """Makes exactly `rows` rows active with `context` cached tokens each, whose content means nothing.

        They stay active up to the context limit. Raises InputError for a shape that the engine cannot hold.
        """
        room = self._forward.max_length - context
        if not 1 <= rows <= self.slots or context < 1 or room < 1:
            raise InputError(
                f"{rows} rows with {context} cached tokens: the engine holds 1 to {self.slots} rows "
                f"of 1 to {self._forward.max_length - 1}"
            )
        self.clear()
        self.start(Sampling(max_new_tokens=room + 1), rows=rows)
        with self._forward.mode():
            self._reserve(context + 1)
        active = self._started()
        active.admit([Request(row, row, (self._pad,) * context) for row in range(rows)])
        active.record(np.full(rows, self._pad, dtype=np.int64), np.zeros(rows))

    def _run(
        self, waiting: Sequence[Request], sampling: Sampling, seed: int, version: int
    ) -> Iterator[Response]:
        rows = min(self.slots, len(waiting))
        training = self.module.training
        self.start(sampling, rows=rows, seed=seed, version=version)
        enough = max(1, round(rows * _REFILL_SHARE))
        served = 0
        try:
            while served < len(waiting) or self.active:
                free, left = rows - self.active, len(waiting) - served
                if left and free >= min(enough, left):
                    served += min(free, left)
                    yield from self.prefill(waiting[served - min(free, left) : served])
                if self.active:
                    yield from self.decode()
        finally:
            self.clear()
            self.module.train(training)

    def _advance(self, logits: Tensor, first: int) -> list[Response]:
        """Draws a token for each row from `first` on and takes out the rows that are finished with it."""
        rows = self._started()
        tokens, logprobs = draw(logits, rows.sampling, rows.uniforms(first))
        if not np.isfinite(logprobs).all():
            self._forward.cache.drop()  # a NaN under the mask would still poison its row
            bad = first + int(np.flatnonzero(~np.isfinite(logprobs))[0])
            raise RunError(
                f"sample {rows.requests[bad].id} has logits that are no numbers at position "
                f"{rows.positions[bad] + 1} with weights of version {rows.version}: the last update has "
                "destroyed them; resume from a checkpoint with a lower learning rate"
            )
        finished = rows.record(tokens, logprobs, first)
        if not len(finished):
            return []
        responses = [rows.response(slot) for slot in finished.tolist()]
        sources, targets = rows.remove(finished)
        if len(sources):
            width = int(rows.positions[targets].max())
            self._forward.cache.copy(self._tensor(sources), self._tensor(targets), width)
        return responses

    def _started(self) -> Rows:
        if self._rows is None:
            raise RunError("no rows: call start() or seed_rows() first")
        return self._rows

    def _reserve(self, columns: int) -> None:
        self._forward.cache.reserve(self._started().capacity + 1, columns)

    def _tensor(self, values: Ints) -> Tensor:
        return torch.from_numpy(values).to(self._forward.device)


def _by_prompt(requests: Sequence[Request]) -> list[Request]:
    """Requests of one prompt one after another, prompts by first appearance."""
    rank: dict[tuple[int, ...], int] = {}
    for request in requests:
        rank.setdefault(request.prompt, len(rank))
    return sorted(requests, key=lambda request: rank[request.prompt])


def _check(requests: Sequence[Request], sampling: Sampling, forward: Forward) -> None:
    """Raises InputError for what could only fail later, or be wrong in silence."""
    if len({request.id for request in requests}) < len(requests):
        raise InputError("two requests have the same id, which would give them the same randomness")
    unknown = [token for token in sampling.stop_token_ids if not 0 <= token < forward.vocabulary]
    if unknown:
        raise InputError(f"stop token {unknown[0]} is not in the vocabulary of {forward.vocabulary}")
    for request in requests:
        _check_prompt(request, sampling, forward)


def _check_prompt(request: Request, sampling: Sampling, forward: Forward) -> None:
    prompt = request.prompt
    if not prompt:
        raise InputError(f"request {request.id} has an empty prompt; give it at least a start token")
    if min(prompt) < 0 or max(prompt) >= forward.vocabulary:
        raise InputError(
            f"request {request.id} has token {max(prompt)}, outside the vocabulary of {forward.vocabulary}: "
            "tokenizer and model do not belong together"
        )
    if len(prompt) + sampling.max_new_tokens > forward.max_length:
        raise InputError(
            f"request {request.id}: prompt of {len(prompt)} tokens + max_new_tokens "
            f"{sampling.max_new_tokens} exceed the context limit of {forward.max_length}; "
            "shorten either or raise the limit"
        )


BACKEND = SlotEngine
