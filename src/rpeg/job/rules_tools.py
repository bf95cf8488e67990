"""Rules for tools: the function can be found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from rpeg.errors import InputError
from rpeg.job.functions import PREFIX, check_function
from rpeg.job.problems import Problem, sentence
from rpeg.job.schema import Job


def tool_exists(job: Job) -> Iterator[Problem]:
    """It is a function of a module on the import path, or beside the job."""
    if job.tools is None:
        return
    name = job.tools.function
    if not name.startswith(PREFIX):
        text = f"is {name}, must be {PREFIX}package.module:function, of (prompt, response)."
        yield Problem(("tools", "function"), text)
        return
    try:
        check_function(name, job.tools.import_from)
    except InputError as error:
        yield Problem(("tools", "function"), sentence(error))


RULES: tuple[Callable[[Job], Iterable[Problem]], ...] = (tool_exists,)
