"""What a generator has begun of the next step while the last responses of a step were generated."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rpeg.backends.generation.protocol import Generates, Request, Response, Sampling


@dataclass
class Ahead:
    """Of one generator in this process. step: that its responses are of; None where there are none.

    carried: tokens with which the last step's responses had begun. dropped: those of responses that began anew, since one
    of their tokens was of too old a version. Nothing outlives a run: a step that is resumed begins its responses anew.
    """

    step: int | None = None
    finished: list[Response] = field(default_factory=list)
    unfinished: list[Request] = field(default_factory=list)
    carried: int = 0
    dropped: int = 0

    def generate(
        self,
        engine: Generates,
        requests: Sequence[Request],
        following: Sequence[Request],
        sampling: Sampling,
        *,
        step: int,
        oldest: int,
        slots: int,
        seed: int,
        version: int,
    ) -> Iterator[Response]:
        """The responses to the requests of a step; of `following`, the next step's, as much as its slots have room for.

        oldest: the version that the step's tokens may have at least; a response with an older one begins anew.
        slots: how many responses the engine works on at once. Other arguments: as of `Generates.generate`.
        """
        own = {request.id: request for request in requests}
        done, begun = self._take(step, oldest)
        yield from done
        own.update((request.id, request) for request in begun)
        for response in done:
            del own[response.id]
        self.step, waiting, late = step + 1, deque(following), set(own)
        working = len(own)

        def more() -> Sequence[Request]:
            nonlocal working
            if not late:
                engine.stop()
                return ()
            free = max(0, slots - working)
            taken = [waiting.popleft() for _ in range(min(free, len(waiting)))]
            working += len(taken)
            return taken

        for response in engine.generate(list(own.values()), sampling, seed=seed, version=version, more=more):
            working -= 1
            if response.id in late:
                late.remove(response.id)
                yield response
            else:
                self.finished.append(response)
        self.unfinished = list(engine.unfinished)

    def _take(self, step: int, oldest: int) -> tuple[list[Response], list[Request]]:
        """What there is of a step and may go on, (finished, unfinished); nothing is left."""
        there, self.finished, self.unfinished = (self.finished, self.unfinished), [], []
        finished, unfinished = there if self.step == step else ([], [])
        done = [response for response in finished if response.versions.min() >= oldest]
        begun = [request for request in unfinished if min(request.begun.versions, default=oldest) >= oldest]
        self.carried = _tokens(done, begun)
        self.dropped = _tokens(finished, unfinished) - self.carried
        return done, begun


def _tokens(finished: Sequence[Response], unfinished: Sequence[Request]) -> int:
    return sum(map(len, finished)) + sum(len(request.begun) for request in unfinished)
