"""Every error that RPEG raises on purpose.

    RpegError
    ├── InputError        the user's input cannot be used: exit code 2, no traceback
    │   ├── GraphError    a graph breaks a rule of `rpeg.ir.verify`
    │   ├── PlanError     a plan cannot run (`rpeg.plan.check`)
    │   └── JobError      a job file is wrong
    ├── InfeasibleError   nothing fits: says which stage, which phase, how much is missing
    ├── VerificationError a trace breaks what it should prove: carries the counterexample
    └── RunError          a run stopped: names the worker, the item and how to resume

A message names the thing, both values and the way out.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RpegError(Exception):
    """Base of all errors that RPEG raises on purpose."""

    exit_code = 1


class InputError(RpegError):
    """What the user gave cannot be used; nothing has been started."""

    exit_code = 2


class GraphError(InputError):
    """A graph breaks a rule of `rpeg.ir.verify`."""


class PlanError(InputError):
    """A plan cannot run."""


class JobError(InputError):
    """A job file is wrong."""


class InfeasibleError(InputError):
    """No plan fits the devices."""


class VerificationError(RpegError):
    """A trace breaks what it should prove."""


class RunError(RpegError):
    """A run stopped before its end."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint that names the known spelling nearest to `name`, or lists them all.

    Returns a sentence ready to append to a message, such as ``Did you mean 'staleness'?``.
    """
    choices = sorted(set(known))
    close = difflib.get_close_matches(name, choices, n=1, cutoff=0.6)
    if close:
        return f"Did you mean '{close[0]}'?"
    return f"Known: {', '.join(choices)}." if choices else "Nothing is known here."
