"""A process that runs a user's function:
`python -m rpeg.backends.reward.worker REFERENCE DIRECTORY OPTIONS KIND LIMIT_SECONDS`.

Requests and replies are JSON, one a line, over the standard input and the original standard output; whatever the
function prints goes to standard error. The parent keeps the time and kills this process when it runs out. Where the
parent is killed itself, this process ends when it reads no more, when it sees so within a second, or, where a function
never lets another thread run, at twice its time limit.
"""

from __future__ import annotations

import faulthandler
import inspect
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TextIO

from rpeg.backends.reward.failure import describe
from rpeg.errors import InputError
from rpeg.job.functions import import_function


@dataclass(frozen=True)
class Kind:
    """What a function is called with, how what it gives becomes a result, and what must be given for that.

    roams: it leaves the core of the process that started it, which has other work there.
    """

    arguments: tuple[str, ...]
    result: Callable[[Any], object]
    needed: str
    roams: bool = False


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise TypeError


KINDS = {
    "reward": Kind(("prompt_text", "response_text", "answer"), float, "a number is needed"),
    "tool": Kind(("prompt_text", "response_text"), _text, "text or None is needed", roams=True),
}


def main() -> None:
    """Import, say so, answer until the input ends."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    reference, directory, options, kind_name, limit = sys.argv[1:6]
    threading.Thread(target=_follow, args=(os.getppid(),), daemon=True).start()
    kind = KINDS[kind_name]
    sys.path.insert(0, directory)
    try:
        function = import_function(reference, directory)
        _check_call(function, reference, kind)
        if options != "{}":
            function = partial(function, **json.loads(options))
    except InputError as error:
        _reply(replies, {"error": str(error)})
        return
    _reply(replies, {"ready": True})
    for line in sys.stdin:
        faulthandler.dump_traceback_later(2 * float(limit) + 1, exit=True)
        _reply(replies, _answer(function, kind, json.loads(line)))
        faulthandler.cancel_dump_traceback_later()


def _follow(parent: int) -> None:
    """Ends this process soon after its parent has ended."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _check_call(function: Any, reference: str, kind: Kind) -> None:
    """InputError unless the function can be called as its kind is. Functions in C may not tell."""
    if inspect.iscoroutinefunction(function):
        raise InputError(f"{reference}: is async, a plain function is needed")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*kind.arguments)
    except TypeError:
        called = ", ".join(kind.arguments)
        raise InputError(f"{reference}: takes {signature}, but is called with ({called})") from None


def _answer(function: Any, kind: Kind, request: list[str]) -> dict[str, Any]:
    try:
        given = function(*request)
    except (NameError, ImportError) as error:  # wrong whatever the sample is
        return {"error": describe(error)}
    except Exception as error:  # noqa: BLE001  (whatever the user's function raises)
        return {"raised": describe(error)}
    try:
        return {"result": kind.result(given)}
    except Exception:  # noqa: BLE001  (whatever a user's __float__ raises)
        return {"error": f"the function gave a {type(given).__name__}, {kind.needed}"}


def _reply(out: TextIO, reply: dict[str, Any]) -> None:
    out.write(json.dumps(reply) + "\n")
    out.flush()


if __name__ == "__main__":
    main()
