"""What happened: spans and events, of a simulated or a real run alike."""

from rpeg.trace.entry import OVER_QUOTA, Entry, What
from rpeg.trace.files import (
    JsonLines,
    begin_stretch,
    driver_file,
    end_stretch,
    read_traces,
    sources,
    span_file,
    write_trace,
)
from rpeg.trace.kept import Keeping, Kept, read_kept
from rpeg.trace.span import Span
from rpeg.trace.steps import fill_steps, step_ends
from rpeg.trace.trace import Source, Trace

__all__ = [
    "OVER_QUOTA",
    "Entry",
    "JsonLines",
    "Keeping",
    "Kept",
    "Source",
    "Span",
    "Trace",
    "What",
    "begin_stretch",
    "driver_file",
    "end_stretch",
    "fill_steps",
    "read_kept",
    "read_traces",
    "sources",
    "span_file",
    "step_ends",
    "write_trace",
]
