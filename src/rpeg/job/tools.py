"""The `tools` section: a function that responses may call while they are generated."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rpeg.job.fields import Count, PathText, Positive, Text
from rpeg.job.rewards import LONGEST_LIMIT_SECONDS
from rpeg.job.section import Section

MOST_CALLS = 1024
MOST_PROCESSES = 256


class Tools(Section):
    """Responses of several turns: where one ends, the function is asked, and what it gives is read by the next."""

    function: Text = Field(
        description="python:package.module:function of (prompt, response): the text to go on with, or None where "
        "nothing was called"
    )
    import_from: PathText = Field(
        default=".", description="directory (relative to the job file) to import the function from"
    )
    ends: tuple[Text, ...] = Field(
        default=(),
        description="tokens of the tokenizer that end a turn with a call, such as </tool_call>; default: the end of "
        "sequence",
    )
    max_calls: Annotated[Count, Field(le=MOST_CALLS)] = Field(
        default=4, description="calls in a response, at most"
    )
    time_limit_seconds: Annotated[Positive, Field(le=LONGEST_LIMIT_SECONDS)] = Field(
        default=5.0, description="a call that takes longer is answered with an error"
    )
    processes: Annotated[Count, Field(le=MOST_PROCESSES)] = Field(
        default=4, description="calls at once, for each device that generates"
    )
