"""`SlotEngine`: continuous batching over an unchanged Hugging Face causal language model.

A slot is a row of the KV cache. Waiting requests are prefilled into free slots, several prompts a pass and
each prompt once for all its samples; every decode step adds one token to each active slot; finished samples
leave at once and the last rows move into their slots, so that a step costs what its active rows cost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from rpeg.backends.generation.admission import by_prompt, check
from rpeg.backends.generation.forward import Forward
from rpeg.backends.generation.prompts import Prompts
from rpeg.backends.generation.protocol import Floats, More, Request, Response, Sampling, Setup, nothing_more
from rpeg.backends.generation.rows import Rows
from rpeg.backends.generation.sampling import draw, logprobs_of
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
        self._kept: Rows | None = None  # of a stopped generation, with keys and values in the first slots
        self._unfinished: tuple[Request, ...] = ()
        self._stopping = False

    @classmethod
    def made(cls, setup: Setup) -> Self:
        """Over the setup's module itself: weights are never held twice. Without one, over a module of its own."""
        return cls(
            setup.module or _module(setup),
            pad_token_id=setup.pad_token_id,
            slots=setup.slots,
            device=setup.device,
            max_length=setup.max_length,
        )

    @property
    def active(self) -> int:
        """Rows that are being generated now."""
        return len(self._rows) if self._rows is not None else 0

    @property
    def cache_bytes(self) -> int:
        """Memory that KV buffers hold now."""
        return self._forward.cache.bytes

    def generate(
        self,
        requests: Sequence[Request],
        sampling: Sampling,
        *,
        seed: int,
        version: int,
        more: More = nothing_more,
    ) -> Iterator[Response]:
        """Each response as soon as it is finished.

        A response depends on (weights, request, sampling, seed) only: not on slots, order or company, up to
        rounding (in float64 the tokens are the same). The weights must not change until the iterator is
        exhausted or closed; `version` is what the responses say about them. The module's training mode is put
        back at the end. Raises InputError at once for requests that cannot be served; RunError for logits
        that are no numbers.
        """
        self._check(requests, sampling)
        self._stopping = False
        return self._run(deque(by_prompt(requests)), sampling, seed, version, more)

    def stop(self) -> None:
        """Ends the generation that goes on after the step under way."""
        self._stopping = True

    @property
    def unfinished(self) -> tuple[Request, ...]:
        """What the last generation has left where it was stopped."""
        return self._unfinished

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
        self._rows = self._prompts = self._kept = None

    @torch.no_grad()
    def load_weights(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Copies weights into the module, but for those that are the module's own. RunError while rows are active."""
        self._demand_idle()
        own = dict(self.module.named_parameters(remove_duplicate=False))
        for name, tensor in weights:
            if own[name] is not tensor:
                own[name].copy_(tensor)

    def score(self, tokens: Ints) -> Floats:
        """(n - 1,) log-probabilities of the n tokens after the first, at temperature 1: each by a prompt pass of its own
        and the draw's own arithmetic."""
        self._demand_idle()
        n, training = len(tokens) - 1, self.module.training
        requests = [Request(end, end, tuple(tokens[:end].tolist())) for end in range(1, n + 1)]
        first = len(self._kept) if self._kept is not None else 0
        with self._forward.mode():
            self._forward.cache.reserve(first + n + 1, n)
            prompts = Prompts(self._forward, first + n, self._pad, self._prefill_tokens)
            logprobs = logprobs_of(prompts.fill(requests, first), self._tensor(tokens[1:]))
        self.module.train(training)
        return logprobs

    def drop_caches(self) -> None:
        """To be called when the weights have changed. Raises RunError while rows depend on the old ones.

        The rows of a stopped generation are forgotten. No row reads what another call has written, so the
        buffers can stay; `sleep` frees them.
        """
        self._demand_idle()
        self._kept = None

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
            self._reserve(max(len(request.context) for request in requests) + 1)
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
        self, waiting: deque[Request], sampling: Sampling, seed: int, version: int, more: More
    ) -> Iterator[Response]:
        training = self.module.training
        rows = self.slots if more is not nothing_more else min(self.slots, len(waiting))
        waiting = self._go_on(waiting, sampling, rows=rows, seed=seed, version=version)
        enough = max(1, round(rows * _REFILL_SHARE))
        try:
            while self._asks(waiting, sampling, more):
                free = rows - self.active
                if waiting and free >= min(enough, len(waiting)):
                    yield from self.prefill([waiting.popleft() for _ in range(min(free, len(waiting)))])
                if self.active:
                    yield from self.decode()
            kept = self._started() if self.active else None
            self._unfinished = (*(kept.unfinished() if kept is not None else ()), *waiting)
            self.clear()
            self._kept = kept
        finally:
            self._stopping = False
            self._rows = self._prompts = None
            self.module.train(training)

    def _asks(self, waiting: deque[Request], sampling: Sampling, more: More) -> bool:
        """Whether there is a step to do; takes further requests in."""
        further = more()
        self._check(further, sampling)
        waiting.extend(further)
        return not self._stopping and bool(waiting or self.active)

    def _go_on(
        self, waiting: deque[Request], sampling: Sampling, *, rows: int, seed: int, version: int
    ) -> deque[Request]:
        """Starts with those rows of a stopped generation that are asked for; returns the other requests."""
        kept, self._kept, self._unfinished = self._kept, None, ()
        self.start(sampling, rows=rows, seed=seed, version=version)
        if kept is None or (kept.sampling, kept.seed) != (sampling, seed):
            return waiting
        asked, there = set(waiting), kept.unfinished()
        others = np.asarray([slot for slot, row in enumerate(there) if row not in asked], dtype=np.int64)
        with self._forward.mode():
            self._remove(kept, others)
        kept.resize(rows)
        kept.version = version
        self._rows = kept
        here = set(kept.unfinished())
        return deque(request for request in waiting if request not in here)

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
        self._remove(rows, finished)
        return responses

    def _remove(self, rows: Rows, slots: Ints) -> None:
        """Takes rows out and moves the last ones, with what is cached of them, into the holes."""
        sources, targets = rows.remove(slots)
        if len(sources):
            width = int(rows.positions[targets].max())
            self._forward.cache.copy(self._tensor(sources), self._tensor(targets), width)

    def _check(self, requests: Sequence[Request], sampling: Sampling) -> None:
        forward = self._forward
        check(requests, sampling, vocabulary=forward.vocabulary, max_length=forward.max_length)

    def _demand_idle(self) -> None:
        if self.active:
            raise RunError(f"{self.active} rows are active; exhaust or close the iterator before new weights")

    def _started(self) -> Rows:
        if self._rows is None:
            raise RunError("no rows: call start() or seed_rows() first")
        return self._rows

    def _reserve(self, columns: int) -> None:
        self._forward.cache.reserve(self._started().capacity + 1, columns)

    def _tensor(self, values: Ints) -> Tensor:
        return torch.from_numpy(values).to(self._forward.device)


def _module(setup: Setup) -> nn.Module:
    """With weights that mean nothing yet."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(setup.directory)
    module: nn.Module = AutoModelForCausalLM.from_config(config, dtype=setup.dtype)
    return module.to(setup.device).eval()


BACKEND = SlotEngine
