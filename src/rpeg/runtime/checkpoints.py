"""When a run's checkpoints are due, what belongs into each, and when each is whole.

A checkpoint after s steps holds each trained model's state then, and the older versions that exact edges of a delay above
1 read at step s and later: with them a resumed run repeats what it would have done. Trainers write beside their further
work; the driver commits a checkpoint when everything that was announced for it is on the disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rpeg.ir import Freshness
from rpeg.plan import Copy
from rpeg.runtime.run_directory import Checkpoint, RunDirectory
from rpeg.runtime.work import Save

POLL_SECONDS = 0.02


@dataclass
class Checkpoints:
    """every: steps from one to the next; 0 for only the last. keep: how many there are at most."""

    directory: RunDirectory
    every: int
    keep: int
    seed: int
    requested: set[int] = field(default_factory=set)
    _marks: dict[Path, list[Path]] = field(default_factory=dict)
    _committing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def wanted(self, steps: int, last: int) -> bool:
        """Whether one is written after `steps` steps of a run of `last`."""
        return steps == last or steps in self.requested or (self.every > 0 and steps % self.every == 0)

    def save(self, version: int, last: int, copies: Sequence[Copy]) -> Save | None:
        """What trainers write of a version that `copies` are fed with.

        The last state is waited for: nothing comes after it that could tell that it was not written.
        """
        state = self.directory.begin_checkpoint(version) if self.wanted(version, last) else None
        later = [
            self.directory.begin_checkpoint(steps)
            for steps in range(version + 1, min(version + reach(copies), last + 1))
            if self.wanted(steps, last) and any(copy.version_before(steps) <= version for copy in copies)
        ]
        if state is None and not later:
            return None
        return Save(state, version == last or version in self.requested, tuple(later))

    def expect(self, marks: Sequence[Path]) -> None:
        """What has been begun to be written, see `Done.marks`."""
        for mark in marks:
            self._marks.setdefault(mark.parent, []).append(mark)

    async def commit(self, steps: int, first_step: int, copies: Iterable[Copy]) -> Checkpoint:
        """Waits until all that was announced for it is written; one after another. Raises OSError.

        first_step: of the stretch. What `copies` read of versions from before it is in an older checkpoint.
        """
        async with self._committing:
            partial = self.directory.begin_checkpoint(steps)
            marks = self._marks.pop(partial, [])
            while not all(mark.exists() for mark in marks):
                await asyncio.sleep(POLL_SECONDS)
            for copy in copies:
                for version in range(max(1, copy.version_before(steps)), min(steps, first_step + 1)):
                    self.directory.take_over(copy.model, version, partial)
            return self.directory.commit_checkpoint(steps, self.seed, self.keep)


def reach(copies: Iterable[Copy]) -> int:
    """The largest delay over which versions are read exactly; 1 where none is."""
    return max((copy.delay for copy in copies if copy.freshness is Freshness.EXACT), default=1)
