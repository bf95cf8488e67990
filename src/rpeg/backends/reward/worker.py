"""A process that runs a user's reward function: `python -m rpeg.backends.reward.worker REFERENCE DIRECTORY`.

Requests and replies are JSON, one a line, over the standard input and the original standard output; whatever the
function prints goes to standard error. The parent keeps the time and kills this process when it runs out.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, TextIO

from rpeg.backends.reward.failure import describe
from rpeg.errors import InputError
from rpeg.job.functions import import_function


def main() -> None:
    """Import, say so, answer until the input ends."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    reference, directory = sys.argv[1:3]
    sys.path.insert(0, directory)
    try:
        function = import_function(reference, directory)
    except InputError as error:
        _reply(replies, {"error": str(error)})
        return
    except Exception as error:  # noqa: BLE001  (whatever the user's module raises)
        _reply(replies, {"error": f"{reference}: cannot be imported: {describe(error)}"})
        return
    _reply(replies, {"ready": True})
    for line in sys.stdin:
        _reply(replies, _score(function, json.loads(line)))


def _score(function: Any, request: list[str]) -> dict[str, Any]:
    try:
        return {"score": float(function(*request))}
    except Exception as error:  # noqa: BLE001  (whatever the user's function raises)
        return {"error": describe(error)}


def _reply(out: TextIO, reply: dict[str, Any]) -> None:
    out.write(json.dumps(reply) + "\n")
    out.flush()


if __name__ == "__main__":
    main()
