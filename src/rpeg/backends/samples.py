"""`Samples`: a ragged batch of responses and what later stages computed for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Samples:
    """n samples, each identified by an id that is unique in the run.

    ids: (n,) int64. lengths: (n,) int64, tokens of each response.
    token: columns with one number a response token, flat, of shape (sum(lengths),), samples one after another.
    sample: columns with one number a sample, of shape (n,).
    prompts, responses: token ids; a batch that carries only computed columns has neither.
    prompts is flat of shape (sum(prompt_lengths),), responses of shape (sum(lengths),).
    whole_lengths, drawn: where tools have written into responses, the (n,) tokens of each with theirs, and which of all,
    (sum(whole_lengths),), were drawn. `responses` then holds all of them; `lengths` and columns are of drawn ones alone,
    as if nothing stood between them.

    The columns are named as the data on the graph's edges: `behaviour_logprobs`, `old_logprobs`, `ref_logprobs`,
    `values`, `advantages`, `returns` and `versions` a token; `rewards`, `finish` and `group` a sample.
    """

    ids: Ints
    lengths: Ints
    token: Mapping[str, Array] = field(default_factory=dict)
    sample: Mapping[str, Array] = field(default_factory=dict)
    prompts: Ints | None = None
    prompt_lengths: Ints | None = None
    responses: Ints | None = None
    whole_lengths: Ints | None = None
    drawn: npt.NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        total = int(self.lengths.sum())
        for name, column in self.token.items():
            if len(column) != total:
                raise ValueError(f"column {name} has {len(column)} entries for {total} response tokens")
        for name, column in self.sample.items():
            if len(column) != len(self.ids):
                raise ValueError(f"column {name} has {len(column)} entries for {len(self.ids)} samples")

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def offsets(self) -> Ints:
        """(n + 1,) where each response starts in the flat columns."""
        return _offsets(self.lengths)

    @property
    def response_lengths(self) -> Ints:
        """(n,) tokens of each response, whoever wrote them."""
        return self.lengths if self.whole_lengths is None else self.whole_lengths

    @property
    def sequence_lengths(self) -> Ints:
        """(n,) tokens of each prompt and response; of what is said here of prompts."""
        return self.response_lengths + (0 if self.prompt_lengths is None else self.prompt_lengths)

    @property
    def targets(self) -> Ints:
        """(sum(lengths),) the response tokens that were drawn."""
        assert self.responses is not None, "this batch carries no tokens"
        return self.responses if self.drawn is None else self.responses[self.drawn]

    def rows(self, rows: Sequence[int] | Ints) -> Samples:
        """The samples at these positions, in this order."""
        index = np.asarray(rows, dtype=np.int64)
        flat = _flat_index(self.lengths, index)
        picked = Samples(
            self.ids[index],
            self.lengths[index],
            {name: column[flat] for name, column in self.token.items()},
            {name: column[index] for name, column in self.sample.items()},
        )
        if self.prompts is None or self.prompt_lengths is None or self.responses is None:
            return picked
        whole = _flat_index(self.response_lengths, index)
        return replace(
            picked,
            prompts=self.prompts[_flat_index(self.prompt_lengths, index)],
            prompt_lengths=self.prompt_lengths[index],
            responses=self.responses[whole],
            whole_lengths=None if self.whole_lengths is None else self.whole_lengths[index],
            drawn=None if self.drawn is None else self.drawn[whole],
        )

    def take(self, ids: Sequence[int] | Ints) -> Samples:
        """The samples with these ids, in this order. KeyError names an id that is not here."""
        where = {int(sample_id): row for row, sample_id in enumerate(self.ids)}
        missing = [int(i) for i in ids if int(i) not in where]
        if missing:
            raise KeyError(f"samples {missing[:5]} are not among the {len(self)} of this batch")
        return self.rows([where[int(i)] for i in ids])

    def columns(self, names: Iterable[str]) -> Samples:
        """Only the ids, the lengths and these columns."""
        names = set(names)
        return Samples(
            self.ids,
            self.lengths,
            {name: column for name, column in self.token.items() if name in names},
            {name: column for name, column in self.sample.items() if name in names},
        )

    def with_columns(
        self, token: Mapping[str, Array] | None = None, sample: Mapping[str, Array] | None = None
    ) -> Samples:
        """The same samples with further columns."""
        return replace(self, token={**self.token, **(token or {})}, sample={**self.sample, **(sample or {})})

    def padded(self, name: str, fill: float = 0) -> Array:
        """A token column (or `responses`, what was drawn of them) as (n, max(lengths)), right-padded with `fill`."""
        column = self.targets if name == "responses" else self.token[name]
        out = np.full((len(self), int(self.lengths.max(initial=0))), fill, dtype=column.dtype)
        out[self.mask()] = column
        return out

    def mask(self) -> npt.NDArray[np.bool_]:
        """(n, max(lengths)) bool: True where there is a response token."""
        return np.arange(int(self.lengths.max(initial=0)))[None, :] < self.lengths[:, None]


def concatenate(batches: Sequence[Samples]) -> Samples:
    """All samples of several batches with the same columns, in order."""
    if len(batches) == 1:
        return batches[0]
    if not batches:
        raise ValueError("nothing to concatenate")
    first = batches[0]
    whole = all(b.prompts is not None for b in batches)
    written = whole and any(b.drawn is not None for b in batches)
    return Samples(
        np.concatenate([b.ids for b in batches]),
        np.concatenate([b.lengths for b in batches]),
        {name: np.concatenate([b.token[name] for b in batches]) for name in first.token},
        {name: np.concatenate([b.sample[name] for b in batches]) for name in first.sample},
        np.concatenate([b.prompts for b in batches if b.prompts is not None]) if whole else None,
        np.concatenate([b.prompt_lengths for b in batches if b.prompt_lengths is not None])
        if whole
        else None,
        np.concatenate([b.responses for b in batches if b.responses is not None]) if whole else None,
        np.concatenate([b.response_lengths for b in batches]) if written else None,
        np.concatenate([_drawn(b) for b in batches]) if written else None,
    )


def join(batches: Sequence[Samples], ids: Sequence[int] | Ints | None = None) -> Samples:
    """One batch with the columns of all: joined by id, in the order of `ids` (default: the first batch's).

    Batches that hold the same columns for different samples are to be concatenated first. One that has columns of
    samples alone may be of other responses to the same prompts.
    """
    order = batches[0].ids if ids is None else np.asarray(ids, dtype=np.int64)
    aligned = [batch.take(order) for batch in batches]
    aligned.sort(key=lambda batch: not _has_tokens(batch))
    out = aligned[0]
    for batch in aligned[1:]:
        if _has_tokens(batch) and not np.array_equal(batch.lengths, out.lengths):
            raise ValueError("two batches give different lengths for the same samples")
        out = Samples(
            out.ids,
            out.lengths,
            {**out.token, **batch.token},
            {**out.sample, **batch.sample},
            out.prompts if out.prompts is not None else batch.prompts,
            out.prompt_lengths if out.prompt_lengths is not None else batch.prompt_lengths,
            out.responses if out.responses is not None else batch.responses,
            out.whole_lengths if out.responses is not None else batch.whole_lengths,
            out.drawn if out.responses is not None else batch.drawn,
        )
    return out


def _drawn(batch: Samples) -> npt.NDArray[np.bool_]:
    return np.ones(int(batch.lengths.sum()), dtype=np.bool_) if batch.drawn is None else batch.drawn


def _has_tokens(batch: Samples) -> bool:
    return bool(batch.token) or batch.responses is not None


def _offsets(lengths: Ints) -> Ints:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def _flat_index(lengths: Ints, rows: Ints) -> Ints:
    """Positions in a flat column of the tokens of `rows`, in order."""
    starts, counts = _offsets(lengths)[:-1][rows], lengths[rows]
    total = int(counts.sum())
    within = np.arange(total) - np.repeat(_offsets(counts)[:-1], counts)
    return np.asarray(np.repeat(starts, counts) + within, dtype=np.int64)
