"""The batches that come with an item, by the datum that they carry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from rpeg.backends.samples import Samples, concatenate, join
from rpeg.plan import BEGUN


class Inputs:
    """Batches by datum. Parts and shares of one datum are concatenated, different data joined by sample id."""

    def __init__(self, names: Sequence[str], batches: Sequence[Samples]) -> None:
        by_datum: dict[str, list[Samples]] = {}
        for name, batch in zip(names, batches, strict=True):
            by_datum.setdefault(name, []).append(batch)
        self._data: Mapping[str, Samples] = {name: concatenate(parts) for name, parts in by_datum.items()}

    def of(self, datum: str) -> Samples:
        """What has come of one datum."""
        return self._data[datum]

    def joined(self, ids: Sequence[int]) -> Samples:
        """The samples `ids`, in this order, with every column that has come; responses that are not finished are none."""
        return join([batch for name, batch in self._data.items() if name != BEGUN], ids)


def padded_columns(samples: Samples, dtype: torch.dtype) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Token columns as (n, T) and sample columns as (n,) tensors, and the (n, T) mask; integers stay integers."""

    def tensor(array: object) -> torch.Tensor:
        value = torch.as_tensor(array)
        return value.to(dtype) if value.is_floating_point() else value

    columns = {name: tensor(samples.padded(name)) for name in samples.token}
    columns.update({name: tensor(column) for name, column in samples.sample.items()})
    return columns, torch.as_tensor(samples.mask())
