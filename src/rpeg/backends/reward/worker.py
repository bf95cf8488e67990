"""A process that runs a user's reward function: `python -m rpeg.backends.reward.worker REFERENCE DIRECTORY OPTIONS`.

Requests and replies are JSON, one a line, over the standard input and the original standard output; whatever the
function prints goes to standard error. The parent keeps the time and kills this process when it runs out.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from functools import partial
from typing import Any, TextIO

from rpeg.backends.reward.failure import describe
from rpeg.errors import InputError
from rpeg.job.functions import import_function


def main() -> None:
    """Import, say so, answer until the input ends."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    reference, directory, options = sys.argv[1:4]
    sys.path.insert(0, directory)
    try:
        function = import_function(reference, directory)
        _check_call(function, reference)
        if options != "{}":
            function = partial(function, **json.loads(options))
    except InputError as error:
        _reply(replies, {"error": str(error)})
        return
    _reply(replies, {"ready": True})
    for line in sys.stdin:
        _reply(replies, _score(function, json.loads(line)))


def _check_call(function: Any, reference: str) -> None:
    """InputError unless the function can be called as reward functions are. Functions in C may not tell."""
    if inspect.iscoroutinefunction(function):
        raise InputError(f"{reference}: is async, a plain function is needed")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind("prompt", "response", "answer")
    except TypeError:
        raise InputError(
            f"{reference}: takes {signature}, but is called with (prompt_text, response_text, answer)"
        ) from None


def _score(function: Any, request: list[str]) -> dict[str, Any]:
    try:
        score = function(*request)
    except (NameError, ImportError) as error:  # wrong whatever the sample is
        return {"error": describe(error)}
    except Exception as error:  # noqa: BLE001  (whatever the user's function raises)
        return {"raised": describe(error)}
    try:
        return {"score": float(score)}
    except Exception:  # noqa: BLE001  (whatever a user's __float__ raises)
        return {"error": f"the function gave a {type(score).__name__}, a number is needed"}


def _reply(out: TextIO, reply: dict[str, Any]) -> None:
    out.write(json.dumps(reply) + "\n")
    out.flush()


if __name__ == "__main__":
    main()
