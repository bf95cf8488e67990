"""`HostCopies`: state that rests in host memory while its device does something else."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


class HostCopies:
    """The memory of some tensors, given back to the device between `offload` and `reload`.

    The tensors stay the same objects, and views of them stay views: only their storage is empty meanwhile, so that
    nothing may read them. dropped: tensors that need not survive; they are zeros afterwards. constant: they never
    change, so that one copy to the host serves for all.
    """

    def __init__(
        self, kept: Iterable[Tensor], dropped: Iterable[Tensor] = (), *, constant: bool = False
    ) -> None:
        self._zeros = list(dropped)
        self._kept, self._dropped = _storages(kept), _storages(self._zeros)
        self._sizes = [s.nbytes() for s in (*self._kept, *self._dropped)]
        self._copies: list[torch.UntypedStorage] = []
        self.constant, self.resting = constant, False

    def offload(self) -> int:
        """Bytes that went to the host; 0 where it rests already."""
        if self.resting:
            return 0
        moved = 0
        if not (self.constant and self._copies):
            self._copies = self._copies or [_room_for(storage) for storage in self._kept]
            for storage, copy in zip(self._kept, self._copies, strict=True):
                copy.copy_(storage)
            moved = sum(copy.nbytes() for copy in self._copies)
        for storage in (*self._kept, *self._dropped):
            storage.resize_(0)
        self.resting = True
        return moved

    def reload(self) -> int:
        """Bytes that came from the host; 0 where it is on the device."""
        if not self.resting:
            return 0
        for storage, size in zip((*self._kept, *self._dropped), self._sizes, strict=True):
            storage.resize_(size)
        for storage, copy in zip(self._kept, self._copies, strict=True):
            storage.copy_(copy)
        for tensor in self._zeros:
            tensor.zero_()
        moved = sum(copy.nbytes() for copy in self._copies)
        if not self.constant and not any(storage.is_cuda for storage in self._kept):
            self._copies = []  # pinned memory is kept: it takes long to get
        self.resting = False
        return moved


def _storages(tensors: Iterable[Tensor]) -> list[torch.UntypedStorage]:
    """Of each tensor, once where several are views of one."""
    found = {
        t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors if t.untyped_storage().nbytes()
    }
    return list(found.values())


def _room_for(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    """Host memory for a copy, such as a GPU reads and writes directly where it is of one."""
    return torch.empty(storage.nbytes(), dtype=torch.uint8, pin_memory=storage.is_cuda).untyped_storage()
