"""`Lengths`: the samples of a GENERATE stage as a value that can be a key."""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from rpeg.errors import InputError

Ints = npt.NDArray[np.int64]

_MOST_KNOWN = 64
_known: OrderedDict[tuple[int, int], tuple[Any, Any, Lengths]] = OrderedDict()
"""Of read-only arrays, by their identity: they need not be compared again. Each entry keeps its arrays alive."""


class Lengths:
    """prompts, responses: (samples,) tokens each, copies that nobody changes; equal where all of them are."""

    def __init__(self, prompts: Any, responses: Any) -> None:
        self.prompts, self.responses = _frozen(prompts), _frozen(responses)
        if self.prompts.ndim != 1 or self.prompts.shape != self.responses.shape:
            raise InputError(
                f"generate: {self.prompts.shape} prompt lengths and {self.responses.shape} response lengths;"
                " one of each a sample"
            )

    @staticmethod
    def of(prompts: Any, responses: Any) -> Lengths:
        """The lengths in two arrays, found again at once where the same read-only arrays were asked before."""
        key = id(prompts), id(responses)
        known = _known.get(key)
        if known is not None and known[0] is prompts and known[1] is responses:
            return known[2]
        made = Lengths(prompts, responses)
        if _read_only(prompts) and _read_only(responses):
            _known[key] = prompts, responses, made
            if len(_known) > _MOST_KNOWN:
                _known.popitem(last=False)
        return made

    @cached_property
    def _bytes(self) -> tuple[bytes, bytes]:
        return self.prompts.tobytes(), self.responses.tobytes()

    @cached_property
    def _hash(self) -> int:
        return hash(self._bytes)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Lengths) and self._bytes == other._bytes)


def _frozen(values: Any) -> Ints:
    own = np.array(values, np.int64)
    own.flags.writeable = False
    return own


def _read_only(values: Any) -> bool:
    return isinstance(values, np.ndarray) and not values.flags.writeable and values.base is None
