"""Whether a run that broke off goes on from its last checkpoint by itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rpeg.errors import RunError
from rpeg.runtime.failure import Failure


@dataclass(frozen=True)
class Repairs:
    """limit: how often it may. last: the failure before, and the steps of the checkpoint that it went on from."""

    limit: int
    done: int = 0
    last: tuple[Failure, int] | None = None

    def after(self, failure: Failure, steps: int) -> Repairs:
        """What is known once it goes on from a checkpoint of `steps` steps. RunError, with the reason, where it does not:
        a worker that dies again and again at one place would each time cost a start, and bring nothing."""
        if self.limit == 0:
            raise RunError(failure.text)
        if self.done >= self.limit:
            raise RunError(
                f"{failure.text}\nThe run has been restarted {self.done} times, which is what --restarts allows."
            )
        if self.last is not None and not self._has_progressed(failure, steps):
            raise RunError(
                f"{failure.text}\nThe restart before this one brought nothing: it followed {self.last[0].text}"
            )
        return replace(self, done=self.done + 1, last=(failure, steps))

    def _has_progressed(self, failure: Failure, steps: int) -> bool:
        """Whether there is a newer checkpoint, or the run came to a later step than before."""
        assert self.last is not None
        before, steps_before = self.last
        return steps > steps_before or _step(failure) > _step(before)


def _step(failure: Failure) -> int:
    return -1 if failure.step is None else failure.step
