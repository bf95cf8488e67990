"""What lets a generation end after some of its steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rpeg.backends.generation.protocol import GenerationEngine, Request


def stop_after(engine: GenerationEngine, steps: int) -> Callable[[], Sequence[Request]]:
    """For `generate`'s `more`."""
    left = iter(range(steps))

    def more() -> Sequence[Request]:
        if next(left, None) is None:
            engine.stop()
        return ()

    return more
