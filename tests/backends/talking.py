"""Text and tools for responses of several turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future

from rpeg.backends.generation.tools import Reply


class Numbers:
    """Tokens written as numbers."""

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool) -> str:
        return " ".join(map(str, tokens))

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        return [int(word) if word.isdigit() else 39 for word in text.split()]


def at_once(tool: Callable[[str, str], str | None]) -> Callable[[str, str], Future[Reply]]:
    def ask(prompt: str, response: str) -> Future[Reply]:
        reply: Future[Reply] = Future()
        reply.set_result(Reply(tool(prompt, response), 0.0))
        return reply

    return ask
