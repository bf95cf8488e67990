"""`Rows`: what the slot engine knows about each active sample, on the host."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rpeg.backends.generation.protocol import Begun, Bools, Finish, Floats, Request, Response, Sampling
from rpeg.backends.generation.sampling import Words, stream_keys, uniforms
from rpeg.backends.samples import Ints


class Rows:
    """Active samples in slots 0 … n - 1, always without holes.

    Sampling and seed are the same for all rows; version is that of the weights now.
    """

    def __init__(self, capacity: int, vocabulary: int, sampling: Sampling, seed: int, version: int) -> None:
        self.capacity = capacity
        self.sampling, self.seed, self.version = sampling, seed, version
        self.requests: list[Request] = []
        self._stops = np.zeros(vocabulary, dtype=np.bool_)
        self._stops[list(sampling.stop_token_ids)] = True
        self._keys: Words = np.zeros(capacity, dtype=np.uint64)
        self._prompts: Ints = np.zeros(capacity, dtype=np.int64)
        self._counts: Ints = np.zeros(capacity, dtype=np.int64)
        self._tokens: Ints = np.zeros((capacity, min(sampling.max_new_tokens, 32)), dtype=np.int64)
        self._logprobs: Floats = np.zeros(self._tokens.shape, dtype=np.float64)
        self._versions: Ints = np.zeros(self._tokens.shape, dtype=np.int64)
        self._drawn: Bools = np.ones(self._tokens.shape, dtype=np.bool_)

    def __len__(self) -> int:
        return len(self.requests)

    def admit(self, requests: Sequence[Request]) -> None:
        """Appends samples in the next slots, each with the tokens that it has begun with."""
        first, last = len(self), len(self) + len(requests)
        self.requests.extend(requests)
        self._keys[first:last] = stream_keys(self.seed, np.asarray([r.id for r in requests], dtype=np.int64))
        self._prompts[first:last] = [len(r.prompt) for r in requests]
        self._counts[first:last] = [len(r.begun) for r in requests]
        self._grow(max((len(r.begun) for r in requests), default=0))
        for slot, request in enumerate(requests, first):
            begun = request.begun
            for column, values in (
                (self._tokens, begun.tokens),
                (self._logprobs, begun.logprobs),
                (self._versions, begun.versions),
                (self._drawn, begun.drawn),
            ):
                column[slot, : len(begun)] = values

    def resize(self, capacity: int) -> None:
        """Room for so many rows, of which those that are active need theirs."""
        more = max(0, capacity - len(self._counts))
        self._keys = np.pad(self._keys, (0, more))
        self._prompts, self._counts = np.pad(self._prompts, (0, more)), np.pad(self._counts, (0, more))
        self._pad_tokens(((0, more), (0, 0)))
        self.capacity = capacity

    def uniforms(self, first: int = 0) -> Floats:
        """(n - first,) the random number with which each row from `first` on draws its next token."""
        return uniforms(self._keys[first : len(self)], self._counts[first : len(self)])

    @property
    def last_tokens(self) -> Ints:
        """(n,) the newest token of each row: the next to be fed."""
        slots = np.arange(len(self))
        return self._tokens[slots, self._counts[slots] - 1]

    @property
    def positions(self) -> Ints:
        """(n,) the position of that token in its sequence."""
        return self._prompts[: len(self)] + self._counts[: len(self)] - 1

    def record(self, tokens: Ints, logprobs: Floats, first: int = 0) -> Ints:
        """Adds a token to each row from `first` on; returns the slots of the rows that it finishes."""
        slots = np.arange(first, len(self))
        counts = self._counts[slots]
        self._grow(int(counts.max(initial=0)) + 1)
        self._tokens[slots, counts] = tokens
        self._logprobs[slots, counts] = logprobs
        self._versions[slots, counts] = self.version
        self._drawn[slots, counts] = True
        self._counts[slots] += 1
        return slots[self._stops[tokens] | (counts + 1 >= self.sampling.max_new_tokens)]

    def response(self, slot: int) -> Response:
        """The finished sample of a slot."""
        request, end = self.requests[slot], int(self._counts[slot])
        tokens = self._tokens[slot, :end].copy()
        finish: Finish = "stop" if self._stops[tokens[-1]] else "length"
        return Response(
            request.id,
            request.group,
            request.prompt,
            tokens,
            self._logprobs[slot, :end].copy(),
            self._versions[slot, :end].copy(),
            self._drawn[slot, :end].copy(),
            finish,
        )

    def unfinished(self) -> list[Request]:
        """Every row as a request that goes on from where it is."""
        return [replace(request, begun=self._begun(slot)) for slot, request in enumerate(self.requests)]

    def _begun(self, slot: int) -> Begun:
        end = int(self._counts[slot])
        return Begun(
            tuple(self._tokens[slot, :end].tolist()),
            tuple(self._logprobs[slot, :end].tolist()),
            tuple(self._versions[slot, :end].tolist()),
            tuple(self._drawn[slot, :end].tolist()),
        )

    def remove(self, slots: Ints) -> tuple[Ints, Ints]:
        """Takes rows out and moves the last ones into the holes; returns those moves (sources, targets)."""
        left = len(self) - len(slots)
        targets = slots[slots < left]
        sources = np.setdiff1d(np.arange(left, len(self)), slots, assume_unique=True)
        for column in (
            self._keys,
            self._prompts,
            self._counts,
            self._tokens,
            self._logprobs,
            self._versions,
            self._drawn,
        ):
            column[targets] = column[sources]
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            self.requests[target] = self.requests[source]
        del self.requests[left:]
        return sources, targets

    def _grow(self, columns: int) -> None:
        have = self._tokens.shape[1]
        if columns > have:
            wanted = max(columns, min(2 * have, self.sampling.max_new_tokens))
            self._pad_tokens(((0, 0), (0, wanted - have)))

    def _pad_tokens(self, more: tuple[tuple[int, int], tuple[int, int]]) -> None:
        self._tokens, self._logprobs = np.pad(self._tokens, more), np.pad(self._logprobs, more)
        self._versions, self._drawn = np.pad(self._versions, more), np.pad(self._drawn, more)
